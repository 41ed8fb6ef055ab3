"""The way to the penalties of least risk: a coarse grid, and descents along the derivatives."""

from __future__ import annotations

import itertools
import math

import numpy as np

from needlepoint.numerics.trust_region import Descent, Place, descend
from needlepoint.theory.penalties.accuracy import ACCURACY, HIGHEST, LOWEST
from needlepoint.theory.penalties.answers import Best, Trail
from needlepoint.theory.penalties.checking import checked
from needlepoint.theory.penalties.risk import RiskOfPenalties, data_of
from needlepoint.theory.penalties.sensitivity import Sensitivity


def least_risk(search: RiskOfPenalties, tol: float, trail: Trail | None = None) -> Best:
    """Return the penalties of least predicted risk between LOWEST and HIGHEST, with the risk known to about `tol`.

    Common penalties on a grid are solved from the starts; a descent along the derivatives leads from the best of them
    to the minimum (from each, where the slopes say that there are several minima between them). Then independent
    scramblings with more points say how well the gradient is known there, which corrects the penalties and bounds how
    far their risk may be above the least. Along a curve `trail` is what the neighbour's search left.
    """
    grid = _grid(search, trail)
    curvature = _bend(search, grid) if trail is None else trail.curvature
    ends = [_descent(search, start, tol, curvature) for start in _starts(search, grid, trail)]
    if not ends:
        middle = (float(np.sqrt(LOWEST * HIGHEST)),) * len(search.names)
        note = "no penalty was found at which the equations have a solution; the middle of their range is taken."
        return Best(middle, None, math.inf, (math.inf,), search.solves, (note,))
    end = min(ends, key=lambda e: e.place.value)
    return checked(search, end, tol, grid)


def _grid(search: RiskOfPenalties, trail: Trail | None) -> dict[float, Sensitivity]:
    """Return the solutions at common penalties by their logarithms, the best of them sought from the starts.

    The strongest penalty comes first, where the equations are easiest to solve; each of the others is continued from
    the one before, or along a curve from the neighbour's at the same penalty. Where that was far above the neighbour's
    best it is kept as it is.
    """
    found: dict[float, Sensitivity] = {}
    least = math.inf if trail is None else min(known.risk for known in trail.grid.values())
    near: Place | None = None
    for penalty in sorted(ACCURACY.grid, reverse=True):
        x = np.full(search.axes.shape[1], math.log(penalty))
        known = trail.grid.get(float(x[0])) if trail is not None else None
        if known is not None and known.risk > least + ACCURACY.far:
            found[float(x[0])] = known
            continue
        place = search(x, search.place(x, known) if known is not None else near)
        if place is None and (trail is None or known is not None):  # the neighbour on a curve had no solution either
            place = search(x)
        if place is not None:
            near, found[float(x[0])] = place, data_of(place)
    if found and trail is None:
        at = min(found, key=lambda log: found[log].risk)
        found[at] = search.sought(np.full(search.axes.shape[1], at)) or found[at]
    return found


def _starts(search: RiskOfPenalties, grid: dict[float, Sensitivity], trail: Trail | None) -> list[Place]:
    """Return where to descend from: the neighbour's penalties on a curve; and the best point of the grid, or the lower
    end of every interval in which the risk has a minimum along the diagonal."""
    size = search.axes.shape[1]
    logs = sorted(grid)
    places = [search.place(np.full(size, at), grid[at]) for at in logs]
    if not places:
        return []
    best = min(places, key=lambda p: p.value)
    falling = [float(np.sum(p.gradient)) < 0 for p in places]
    valleys = [i for i, (a, b) in enumerate(itertools.pairwise(falling)) if a and not b]
    starts = [min(places[i : i + 2], key=lambda p: p.value) for i in valleys]
    if all(best is not start for start in starts):
        starts.append(best)
    if trail is not None:
        known = search(trail.place.x, trail.place)
        if known is not None:
            # a point of the grid that is lower than the neighbour's penalties is another valley
            starts = [known, *(s for s in starts if s.value < known.value)]
    return starts


def _bend(search: RiskOfPenalties, grid: dict[float, Sensitivity]) -> np.ndarray | None:
    """Return a first curvature (k, k), from how the slope along the diagonal changes between points of the grid; None
    where it does not grow."""
    size, logs = search.axes.shape[1], sorted(grid)
    slopes = [float(np.sum(search.axes.T @ grid[at].gradient)) for at in logs]
    changes = [(b - a) / (size * (y - x)) for (a, b), (x, y) in zip(_pairs(slopes), _pairs(logs), strict=True)]
    rising = [change for change in changes if change > 0]
    return min(rising) * np.eye(size) if rising else None


def _pairs(values: list[float]) -> list[tuple[float, float]]:
    return list(itertools.pairwise(values))


def _descent(search: RiskOfPenalties, start: Place, tol: float, curvature: np.ndarray | None) -> Descent:
    enough, most = ACCURACY.enough * tol, ACCURACY.solves
    return descend(search, start, *search.bounds, enough=enough, most=most, curvature=curvature)

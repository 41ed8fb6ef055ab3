"""Solving the replica-symmetric equations: find the branches, or continue one from neighbours, and refine them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.branches import APART, STARTS, sought
from needlepoint.theory.location.ridge.equations import COARSE, SCRAMBLES, Equations, pack
from needlepoint.theory.location.ridge.refining import CLOSE, DOUBTFUL, falls, for_all, refined
from needlepoint.theory.location.ridge.solutions import (
    Seed,
    Solution,
    is_quiet,
    judged,
    no_step,
    scatter,
    solution_of,
    unlike,
)

TOLERANCE = 3e-3
"""Of the excess risk, three standard errors of the scramblings."""

_NEARLY = 3e-3  # largest step that counts as none where starts are followed to see whether they end apart
_TREND = 0.3  # longest step that a curve's trend foretells
_MIXED = 3  # neighbours that a trend is read off where their points differ
_AMPLE = 0.5  # share of the tolerance below which half as many points will do


def solve(
    task: SingleLocation,
    model: KeyValueAttention,
    alpha: float,
    penalties: tuple[float, float],
    *,
    start: str = "both",
    tol: float = TOLERANCE,
    seed: int = 0,
    near: Mapping[float, Solution] = MappingProxyType({}),
    careful: bool = True,
    progress: Progress = silent,
) -> list[Solution]:
    """The branches that the starts lead to, the one of lowest energy first and with its stability.

    `near` are solutions at neighbouring parameters, the nearest last, by their distance from these parameters: this
    one is continued from them instead of being sought, or sought as well where it or the nearest is not to be trusted.
    `careful=False` skips that search beside an untrusted neighbour, and looks at stability only before many points are
    spent.
    """
    coarse = Equations(task, model, alpha, penalties, COARSE, 1, seed)
    led = _continued(coarse, near, tol, careful) if near else None
    if led is not None and (not careful or (led.trusted and list(near.values())[-1].trusted)):
        return [led]
    wanted = {"both": tuple(STARTS), "random": ("uninformed",), "informed": ("informed",)}[start]
    starts = {name: STARTS[name] for name in wanted}
    if led is not None:
        ends = [coarse.settle(x[None], _NEARLY).x[0] for x in (*starts.values(), led.seed.x)]
        noise = 3 * scatter(pack(led.rows)) * falls(COARSE - led.equations.log2_points)
        stays = np.all(np.abs(ends[-1] - led.seed.x) < APART + noise)
        if stays and np.max(np.ptp(ends, axis=0)) < APART:
            return [led]
        starts = dict(zip(wanted, ends, strict=False))
    places = sought(coarse, starts)
    progress(0.2)
    ends = [refined(p.equations, p.start, Seed(p.x, p.slope), tol, progress=progress) for p in places]
    found = unlike([branch for end in ends for branch in end])  # some were apart by the noise of the first few points
    # energies are compared among solved points only: where the iteration did not end they can be lower
    found = [s for s in found if s.solved] or found[:1]
    if careful:
        found = [judged(s) for s in found]
    return sorted(found, key=_rank)


def _rank(solution: Solution) -> tuple[float, float]:
    """By energy; but where replica symmetry is unstable the energy is a bound from below, the looser the more unstable,
    so that what is trusted comes first, and then what is less unstable."""
    judged = solution.stability
    return (judged.replicon if judged is not None and judged.doubts else 0.0, solution.energy.value)


def _continued(coarse: Equations, near: Mapping[float, Solution], tol: float, careful: bool = True) -> Solution | None:
    """Each scrambling from where its neighbours' solutions point; None where that does not settle."""
    last = list(near.values())[-1]
    # fewer points only where they will surely do: a second attempt costs more than is saved
    level = max(COARSE, last.equations.log2_points - int(last.excess_risk.error < _AMPLE * tol))
    if not last.trusted:
        level = min(level, DOUBTFUL)
    equations = replace(coarse, log2_points=level, scrambles=SCRAMBLES)
    x, slope = _foretold(near), last.seed.slope
    if level > COARSE + 1:  # a new slope costs less than a step
        slope = coarse.slope(x.mean(axis=0))
    settled, close = no_step(tol), CLOSE * scatter(pack(last.rows)) * falls(level - last.equations.log2_points)
    found = equations.solve(x, settled, for_all(slope), most=2, close=close)
    if not _near(found, settled, close):
        slope = coarse.slope(found.ahead.mean(axis=0))
        found = equations.solve(found.ahead, settled, for_all(slope), most=12, close=close)
    if not _near(found, settled):  # this point may scatter much less than its neighbour
        closer = CLOSE / 2 * scatter(found.x)
        found = equations.solve(found.ahead, settled, for_all(slope), most=12, close=closer)
    if not _near(found, settled):
        return None
    place = Seed(found.x.mean(axis=0), slope)
    solution = solution_of(equations, last.start, found, place, tol)
    if not careful:
        return refined(coarse, last.start, place, tol, solution)[0]
    solution = judged(solution, last)
    if solution.stability is None:
        return None
    if solution.stability.doubts:
        if solution.excess_risk.error <= tol:
            return solution
        # more points are not worth it, or might dispel the doubts
        return replace(solution, status=Status.NOISE_LIMITED) if solution.stability.hopeless else None
    branches = refined(coarse, last.start, place, tol, solution)
    solution = judged(branches[0], solution)
    return None if solution.stability is None or len(branches) > 1 else solution


def _near(found: FixedPoints, settled: float, close: np.ndarray | None = None) -> bool:
    """Is it quiet, and every coordinate closer to its fixed point than `close`, in the mean square over rows that do
    not stand yet? Without `close`, than a share of what the scramblings differ by."""
    off = np.where((found.residual > settled)[:, None], found.ahead - found.x, 0.0)
    share = CLOSE * scatter(found.x) if close is None else close
    return is_quiet(found, settled) and bool(np.all(np.sqrt(np.mean(off**2, axis=0)) <= share))


def _foretold(near: Mapping[float, Solution]) -> np.ndarray:
    """Coordinates (scrambles, 6): the polynomial through the neighbours, read off at distance 0.

    Through those with the same points as the last, scrambling by scrambling. Where they are too few, through the
    means of the nearest: these differ by noise, which a high degree would amplify.
    """
    last = list(near.values())[-1]
    x = last.ahead
    alike = {t: s.ahead for t, s in near.items() if s.equations.log2_points == last.equations.log2_points}
    if len(alike) < min(_MIXED, len(near)):
        alike = {t: x + (s.ahead - x).mean(axis=0) for t, s in list(near.items())[-_MIXED:]}
    trend = sum(rows * math.prod(other / (other - t) for other in alike if other != t) for t, rows in alike.items())
    return x + np.clip(trend - x, -_TREND, _TREND)

"""How well the best penalties are known, by independent scramblings of the integration points."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from needlepoint.numerics.trust_region import Descent, Place, learned, least_in_box, possible_gain, signs
from needlepoint.theory.penalties.accuracy import ACCURACY, HIGHEST, LOWEST
from needlepoint.theory.penalties.answers import Best, Trail
from needlepoint.theory.penalties.risk import RiskOfPenalties, ahead_of, data_of
from needlepoint.theory.penalties.sensitivity import Sensitivity


def checked(search: RiskOfPenalties, end: Descent, tol: float, grid: dict[float, Sensitivity]) -> Best:
    """Return the answer: the place where the descent ended, corrected by independent scramblings, with how far its risk
    may be above the least."""
    place, level, wanted = end.place, max(search.coarse, search.level - 3), ACCURACY.share * tol
    most = usual = level + ACCURACY.finer
    finest, (low, high) = level + ACCURACY.finest, search.bounds
    gain, off, curvature = math.inf, np.full(place.x.size, math.inf), end.curvature
    before: tuple[int, np.ndarray, np.ndarray] | None = None
    for check in range(ACCURACY.checks_most):
        if end.converged:  # the derivatives of the map led here, and the curvature was learned from them
            gradients, curvatures = search.slopes(place, level), None
        else:
            gradients, curvatures = _surfaces(search, place, level)
        if len(gradients) < ACCURACY.rows:
            break
        gradient, error = _middle(gradients)
        if curvatures is not None:
            curvature = _middle(curvatures)[0]
        elif before is not None and before[0] == level:  # with the same points a change of the gradient is curvature
            curvature = learned(curvature, place.x - before[1], gradient - before[2])
        before = level, place.x, gradient
        box = np.maximum(low - place.x, -1.0), np.minimum(high - place.x, 1.0)
        gain = possible_gain(gradient, error, curvature, *box)
        noise = possible_gain(np.zeros_like(gradient), error, curvature, *box)
        corners = [least_in_box(gradient + s * error, curvature, *box)[0] for s in signs(place.x.size)]
        off = np.max(np.abs(corners), axis=0)
        step, _ = least_in_box(gradient, curvature, *box)
        place = replace(place, x=place.x + step, data=replace(data_of(place), x=ahead_of(search, place, step)))
        if gain <= wanted:
            break
        if gain > tol / 2:  # beyond what is usual, to meet the tolerance; the solution takes its other half
            most = finest
        elif check + 1 >= ACCURACY.checks or level > usual:
            break
        if noise > wanted / 2:
            if level == most:
                break
            level = min(most, level + max(1, math.ceil(math.log2(noise / wanted) / (2 * ACCURACY.rate))))
    names = ("lam",) if search.common else tuple(f"lam_{name}" for name in search.names)
    ends = [n for n, x in zip(names, place.x, strict=True) if min(x - low[0], high[0] - x) < ACCURACY.bound]
    notes = tuple(f"{name} is sought between {LOWEST:g} and {HIGHEST:g}, and ends at a bound." for name in ends)
    factor = tuple(float(x) for x in np.exp(off))
    trail = Trail(place, curvature, grid)
    return Best(search.penalties(place.x), data_of(place), gain, factor, search.solves, notes, trail)


def _surfaces(search: RiskOfPenalties, place: Place, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients (rows, k) and curvatures (rows, k, k) of the risk at a place, for each of the independent
    scramblings: those of the quadratic through the risks at the place and around it.

    Differences of solved risks, unlike derivatives of the map, know the jumps of the proximal map. Scramblings without
    a solution at one of the points are left out.
    """
    size, known, reach = place.x.size, data_of(place), ACCURACY.reach
    axes = np.eye(size)
    pairs = [axes[i] + axes[j] for i in range(size) for j in range(i)]
    offsets = reach * np.array([np.zeros(size), *axes, *-axes, *pairs])
    start = known.x[None]
    centre, start = search.rows(place.x, level, start, known)
    risks = [centre]
    for offset in offsets[1:]:
        ahead = np.clip(known.moves @ (search.axes @ offset), -ACCURACY.trend, ACCURACY.trend)
        risks.append(search.rows(place.x + offset, level, start + ahead, known)[0])
    products = [(i, j) for i in range(size) for j in range(i + 1)]
    design = [[1.0, *u, *(u[i] * u[j] / (2.0 if i == j else 1.0) for i, j in products)] for u in offsets]
    solved = np.array(risks).T
    solved = solved[np.all(np.isfinite(solved), axis=1)]
    fits = np.linalg.solve(np.array(design), solved.T).T
    curvatures = np.zeros((len(solved), size, size))
    for column, (i, j) in enumerate(products):
        curvatures[:, i, j] = curvatures[:, j, i] = fits[:, 1 + size + column]
    return fits[:, 1 : 1 + size], curvatures


def _middle(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the medians (k,) over rows (n, k), with three standard errors as if the rows were normal.

    Where the map jumps a little, the differences of a single scrambling can be off by far more than the others scatter;
    a mean would follow it.
    """
    middle = np.median(rows, axis=0)
    spread = 1.4826 * np.median(np.abs(rows - middle), axis=0)  # the standard deviation of a normal law
    return middle, 3 * math.sqrt(math.pi / 2) * spread / math.sqrt(len(rows) - 1)

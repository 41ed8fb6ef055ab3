"""Refining a solution of the replica-symmetric equations: more points until its risk is known to a tolerance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.branches import STARTS
from needlepoint.theory.location.ridge.equations import SCRAMBLES, Equations, pack
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

DOUBTFUL = 12
"""log2 of the most points per scrambling where a branch ends or is not trusted."""

CLOSE = 0.15
"""How far a coordinate may be from its fixed point on a curve, relative to its scatter between scramblings."""


def refined(
    coarse: Equations,
    name: str,
    place: Seed,
    tol: float,
    first: Solution | None = None,
    progress: Progress = silent,
    pooled: bool = False,
) -> list[Solution]:
    """Return the solution with enough points that its excess risk is known to `tol`, or as many as are worth it.

    Points are doubled from those of `first` on. Where scramblings end on different branches there are several
    solutions; each is that of the mean map of all scramblings (`pooled`).
    """
    last = ACCURACY.most_cheap if coarse.is_cheap else ACCURACY.most_dear
    if pooled:  # more points are worth it only where they cost little
        last = DOUBTFUL if coarse.is_cheap else coarse.log2_points
    solution = first or _at_level(replace(coarse, scrambles=SCRAMBLES), name, place, tol, pooled=pooled)
    while True:
        equations = solution.equations
        groups = _groups(pack(solution.rows)) if solution.solved and not pooled else []
        if len(groups) > 1:
            # with few points the scramblings differ too much for the first order that `pooled` relies on
            level = max(equations.log2_points, DOUBTFUL if equations.is_cheap else min(last, equations.log2_points + 1))
            finer = replace(equations, log2_points=level)
            ends = [refined(finer, name, Seed(x, place.slope), tol, pooled=True) for x in groups]
            return unlike([branch for end in ends for branch in end])
        if solution.status not in (Status.CONVERGED, Status.MAX_STEPS) or solution.excess_risk.error <= tol:
            return [solution]
        # where the iteration did not converge more points may help, but many more are not worth it
        most = last if solution.solved else min(last, DOUBTFUL)
        level = min(most, equations.log2_points + max(1, _more(solution.excess_risk.error, tol)))
        if level > ACCURACY.worth:
            solution = judged(solution)
        # nor are more points worth it where the solution would not be trusted anyway
        if level <= equations.log2_points or (solution.stability is not None and solution.stability.hopeless):
            noisy = Status.NOISE_LIMITED if solution.status is Status.CONVERGED else solution.status
            return [replace(solution, status=noisy)]
        expected = scatter(pack(solution.rows)) * falls(level - equations.log2_points)
        close = CLOSE * expected if first else 0.0  # on a curve (`first` is given) no more accuracy is needed
        finer = _at_level(replace(equations, log2_points=level), name, solution.seed, tol, close, pooled)
        progress(0.2 + 0.6 * level / last)
        if solution.solved and not finer.solved:  # near the end of a branch: the solution by fewer points is kept
            return [replace(judged(solution), status=Status.NOISE_LIMITED)]
        solution = finer


def _groups(x: np.ndarray) -> list[np.ndarray]:
    """Return the centre (6,) of each group of rows (rows, 6); a gap in a coordinate divides two groups."""
    for column in x.T:
        order = np.argsort(column)
        gaps = np.diff(column[order])
        if np.max(gaps, initial=0.0) > ACCURACY.gap:
            cut = int(np.argmax(gaps)) + 1
            return [*_groups(x[order[:cut]]), *_groups(x[order[cut:]])]
    return [x.mean(axis=0)]


def _more(error: float, tol: float) -> int:
    """Return the number of doublings of the points that bring the error to `tol`; negative if it is below already."""
    return math.ceil(math.log2(error / tol) / ACCURACY.rate) if 0 < error < math.inf else 1


def falls(doublings: int) -> float:
    """Return the ratio of the errors after and before so many doublings of the points."""
    return 2.0 ** (-ACCURACY.rate * doublings)


def _at_level(
    equations: Equations,
    name: str,
    place: Seed,
    tol: float,
    close: np.ndarray | float = 0.0,
    pooled: bool = False,
) -> Solution:
    """Return the solution with these points: the mean of each scrambling's own fixed point, or, if `pooled`, that of
    their mean map. A first attempt ends within `close` of it."""
    if pooled:
        found, widen = equations.settle_pooled(place.x, no_step(tol))
        return solution_of(equations, name, found, place, tol, widen)
    rows = np.repeat(place.x[None], equations.scrambles, axis=0)
    settled = no_step(tol)

    def ended(found: FixedPoints) -> bool:
        # full convergence is asked for only where the map is smooth, points are few and it is not on a curve;
        # elsewhere a step far below the differences between scramblings is enough
        strict = equations.is_smooth and equations.log2_points <= DOUBTFUL and not np.any(close)
        return bool(np.max(found.residual) <= settled) if strict else is_quiet(found, settled)

    found = equations.solve(rows, settled, for_all(place.slope), most=12, close=close)
    if not ended(found):
        slope = equations.slope(found.x.mean(axis=0))  # the Jacobian that was given may be from too far away
        found = equations.solve(found.x, settled, for_all(slope), most=30)
    few = equations.log2_points <= DOUBTFUL
    if few and not ended(found):  # each scrambling with its own Jacobian
        found = equations.settle(found.x, settled, most=20)
    if few and not is_quiet(found, settled):  # the branch may exist for the coarse points only: begin again
        found = equations.settle(np.repeat(STARTS[name][None], equations.scrambles, axis=0), settled, most=40)
    return solution_of(equations, name, found, place, tol)


def for_all(slope: np.ndarray) -> np.ndarray:
    return np.repeat(slope[None], SCRAMBLES, axis=0)

"""Refining a solution of the replica-symmetric equations: more points until its risk is known to a tolerance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.numerics.fixed_points import FixedPoints
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
"""log2 of the most points a scrambling where a branch ends or is not to be trusted."""

CLOSE = 0.15
"""Share of a coordinate's scatter that it may be off by on a curve."""

_CHEAP, _DEAR = 16, 13  # log2 of the most points a scrambling: one-dimensional proximal maps, and the others
_WORTH = 11  # log2 of the points a scrambling beyond which stability is looked at first
_GAP = 0.4  # coordinates of scramblings with a wider gap between them belong to different branches
_RATE = 0.75  # the error falls like the number of points to this power


def refined(
    coarse: Equations,
    name: str,
    place: Seed,
    tol: float,
    first: Solution | None = None,
    progress: Progress = silent,
    pooled: bool = False,
) -> list[Solution]:
    """Raise the number of points, beyond those of `first`, until the excess risk is known to `tol` or it is not worth
    more of them. Several solutions where scramblings end on different branches: these are solved `pooled`."""
    last = DOUBTFUL if pooled else _CHEAP if coarse.is_cheap else _DEAR
    solution = first or _at_level(replace(coarse, scrambles=SCRAMBLES), name, place, tol, pooled=pooled)
    while True:
        equations = solution.equations
        groups = _groups(pack(solution.rows)) if solution.solved and not pooled else []
        if len(groups) > 1:
            # first-order rows of few points would be as wild as the scramblings are
            level = max(equations.log2_points, DOUBTFUL if equations.is_cheap else min(last, equations.log2_points + 1))
            finer = replace(equations, log2_points=level)
            ends = [refined(finer, name, Seed(x, place.slope), tol, pooled=True) for x in groups]
            return unlike([branch for end in ends for branch in end])
        if solution.status not in (Status.CONVERGED, Status.MAX_STEPS) or solution.excess_risk.error <= tol:
            return [solution]
        # where the iteration did not end more points may help, but not many more
        most = last if solution.solved else min(last, DOUBTFUL)
        level = min(most, equations.log2_points + max(1, _more(solution.excess_risk.error, tol)))
        if level > _WORTH:
            solution = judged(solution)
        # nor is what is not to be trusted in any case
        if level <= equations.log2_points or (solution.stability is not None and solution.stability.hopeless):
            noisy = Status.NOISE_LIMITED if solution.status is Status.CONVERGED else solution.status
            return [replace(solution, status=noisy)]
        expected = scatter(pack(solution.rows)) * falls(level - equations.log2_points)
        close = CLOSE * expected if first else 0.0  # a curve need not settle further
        finer = _at_level(replace(equations, log2_points=level), name, solution.seed, tol, close, pooled)
        progress(0.2 + 0.6 * level / last)
        if solution.solved and not finer.solved:  # near the end of a branch: what fewer points say is kept
            return [replace(judged(solution), status=Status.NOISE_LIMITED)]
        solution = finer


def _groups(x: np.ndarray) -> list[np.ndarray]:
    """The centres (6,) of the groups that rows (rows, 6) fall into: a gap in one coordinate divides them."""
    for column in x.T:
        order = np.argsort(column)
        gaps = np.diff(column[order])
        if np.max(gaps, initial=0.0) > _GAP:
            cut = int(np.argmax(gaps)) + 1
            return [*_groups(x[order[:cut]]), *_groups(x[order[cut:]])]
    return [x.mean(axis=0)]


def _more(error: float, tol: float) -> int:
    """How many doublings of the points bring the error to `tol`; negative where it is below."""
    return math.ceil(math.log2(error / tol) / _RATE) if 0 < error < math.inf else 1


def falls(doublings: int) -> float:
    """What the error after doublings of the points is of the error before."""
    return 2.0 ** (-_RATE * doublings)


def _at_level(
    equations: Equations,
    name: str,
    place: Seed,
    tol: float,
    close: np.ndarray | float = 0.0,
    pooled: bool = False,
) -> Solution:
    """Every scrambling's own fixed point, or `pooled` that of all of them; their mean and scatter. At first coordinates
    may be off by `close`."""
    if pooled:
        found, widen = equations.settle_pooled(place.x, no_step(tol))
        return solution_of(equations, name, found, place, tol, widen)
    rows = np.repeat(place.x[None], equations.scrambles, axis=0)
    settled = no_step(tol)

    def ended(found: FixedPoints) -> bool:
        # where the map has jumps, a curve goes on, or points are many, a share of the scatter is enough
        strict = equations.is_smooth and equations.log2_points <= DOUBTFUL and not np.any(close)
        return bool(np.max(found.residual) <= settled) if strict else is_quiet(found, settled)

    found = equations.solve(rows, settled, for_all(place.slope), most=12, close=close)
    if not ended(found):
        slope = equations.slope(found.x.mean(axis=0))  # the last one may belong elsewhere
        found = equations.solve(found.x, settled, for_all(slope), most=30)
    few = equations.log2_points <= DOUBTFUL
    if few and not ended(found):  # every scrambling with slopes of its own
        found = equations.settle(found.x, settled, most=20)
    if few and not is_quiet(found, settled):  # the branch may belong to the points that it was found with
        found = equations.settle(np.repeat(STARTS[name][None], equations.scrambles, axis=0), settled, most=40)
    return solution_of(equations, name, found, place, tol)


def for_all(slope: np.ndarray) -> np.ndarray:
    return np.repeat(slope[None], SCRAMBLES, axis=0)

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
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.branches import APART, sought, starts_of
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
"""Default tolerance of the excess risk, which its error (three standard errors over the scramblings) has to meet."""


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
    follows: bool = False,
    progress: Progress = silent,
) -> list[Solution]:
    """Return the branches that the starts lead to with their stability, the one of lowest energy first.

    `near` has solutions at neighbouring parameters by their distance from these parameters, the nearest last. The
    solution is continued from them instead of being searched for from the starts; if it or the nearest neighbour is
    not trusted, the starts are followed too. `careful=False` skips that check from the cold starts, and computes the
    stability only before many points are spent. `follows` is that of `Equations`.
    """
    coarse = Equations(task, model, alpha, penalties, COARSE, 1, seed, follows)
    led = _continued(coarse, near, tol, careful) if near else None
    if led is not None and (not careful or (led.trusted and list(near.values())[-1].trusted)):
        return [led]
    starts = starts_of(start)
    if led is not None:
        # the continued solution is enough if the flow stays there and the cold starts lead to it too
        ends = [coarse.settle(x[None], ACCURACY.nearly).x[0] for x in (*starts.values(), led.seed.x)]
        noise = 3 * scatter(pack(led.rows)) * falls(COARSE - led.equations.log2_points)
        stays = np.all(np.abs(ends[-1] - led.seed.x) < APART + noise)
        if stays and np.max(np.ptp(ends, axis=0)) < APART:
            return [led]
        starts = dict(zip(starts, ends, strict=False))
    places = sought(coarse, starts)
    progress(0.2)
    ends = [refined(p.equations, p.start, Seed(p.x, p.slope), tol, progress=progress) for p in places]
    # branches that the noise of the coarse rule kept apart may coincide after refining
    found = unlike([branch for end in ends for branch in end])
    # only solved points are compared: where the iteration did not converge the energy can be too low
    found = [s for s in found if s.solved] or found[:1]
    if careful:
        found = [judged(s) for s in found]
    return sorted(found, key=_rank)


def _rank(solution: Solution) -> tuple[float, float]:
    """Return the sorting key: the energy, after the replicon where replica symmetry is unstable.

    There the energy is only a lower bound, the looser the more unstable, so that trusted solutions come first and then
    the less unstable ones.
    """
    judged = solution.stability
    return (judged.replicon if judged is not None and judged.doubts else 0.0, solution.energy.value)


def _continued(coarse: Equations, near: Mapping[float, Solution], tol: float, careful: bool = True) -> Solution | None:
    """Return the solution continued from its neighbours, each scrambling from its own extrapolated point.

    None where that does not converge or splits into branches, so that the starts have to be followed.
    """
    last = list(near.values())[-1]
    # half as many points only where they surely suffice: a second attempt costs more than they save
    level = max(COARSE, last.equations.log2_points - int(last.excess_risk.error < ACCURACY.ample * tol))
    if not last.trusted:
        level = min(level, DOUBTFUL)
    equations = replace(coarse, log2_points=level, scrambles=SCRAMBLES)
    x, slope = _foretold(near), last.seed.slope
    if level > COARSE + 1:  # a new Jacobian by the coarse rule costs less than one step with so many points
        slope = coarse.slope(x.mean(axis=0))
    settled, close = no_step(tol), CLOSE * scatter(pack(last.rows)) * falls(level - last.equations.log2_points)
    if last.equations.log2_points == level:
        equations.recall(last.equations.known)
    most = ACCURACY.first_steps_followed if coarse.follows else ACCURACY.first_steps
    found = equations.solve(x, settled, for_all(slope), most, close)
    if not _near(found, settled, close):
        slope = coarse.slope(found.ahead.mean(axis=0))
        found = equations.solve(found.ahead, settled, for_all(slope), most=12, close=close)
    if not _near(found, settled):  # `close` is from the neighbour, whose scramblings may differ much more than these
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
        # hopeless: more points would not dispel the doubts. Otherwise they might, and the starts are followed
        return replace(solution, status=Status.NOISE_LIMITED) if solution.stability.hopeless else None
    branches = refined(coarse, last.start, place, tol, solution)
    solution = judged(branches[0], solution)
    return None if solution.stability is None or len(branches) > 1 else solution


def _near(found: FixedPoints, settled: float, close: np.ndarray | None = None) -> bool:
    """Whether steps are small and every coordinate is within `close` of its fixed point, as a root mean square over the
    rows (those that have converged count as 0). Without `close` the bound is CLOSE times the scatter of the rows."""
    off = np.where((found.residual > settled)[:, None], found.ahead - found.x, 0.0)
    share = CLOSE * scatter(found.x) if close is None else close
    return is_quiet(found, settled) and bool(np.all(np.sqrt(np.mean(off**2, axis=0)) <= share))


def _foretold(near: Mapping[float, Solution]) -> np.ndarray:
    """Return extrapolated coordinates (scrambles, 6): the polynomial through the neighbours, evaluated at distance 0.

    It goes through the neighbours with the same number of points as the last, scrambling by scrambling. Where these are
    too few, it goes through the means of the nearest ones: their rules differ, and a polynomial of high degree would
    amplify that noise.
    """
    last = list(near.values())[-1]
    x = last.ahead
    alike = {t: s.ahead for t, s in near.items() if s.equations.log2_points == last.equations.log2_points}
    if len(alike) < min(ACCURACY.mixed, len(near)):
        alike = {t: x + (s.ahead - x).mean(axis=0) for t, s in list(near.items())[-ACCURACY.mixed :]}
    trend = sum(rows * math.prod(other / (other - t) for other in alike if other != t) for t, rows in alike.items())
    return x + np.clip(trend - x, -ACCURACY.trend, ACCURACY.trend)

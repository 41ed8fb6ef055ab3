"""Solving the replica-symmetric equations: find the branches with few points, then refine to a stated error."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory import field_moments, sampled_moments
from needlepoint.theory.key_search import Question as Risk
from needlepoint.theory.key_search import TooSteep
from needlepoint.theory.ridge_equations import COARSE, SCRAMBLES, Equations, pack, unpack
from needlepoint.theory.ridge_fields import Conjugate, Order
from needlepoint.theory.ridge_search import APART, STARTS, sought
from needlepoint.theory.ridge_stability import Stability, judge

TOLERANCE = 3e-3
"""Of the excess risk, three standard errors of the scramblings."""

_CHEAP, _DEAR = 16, 13  # log2 of the most points a scrambling: one-dimensional proximal maps, and the others
_WORTH = 11  # log2 of the points a scrambling beyond which stability is looked at first
_NEARLY = 3e-3  # largest step that counts as none where starts are followed to see whether they end apart
_DOUBTFUL = 12  # log2 of the most points a scrambling where a branch ends or is not to be trusted
_SETTLED = 1e-5  # largest step that counts as none
_QUIET = 0.1  # or this share of the scatter of the scramblings
_CLOSE = 0.15  # share of a coordinate's scatter that it may be off by on a curve
_TREND = 0.3  # longest step that a curve's trend foretells
_MIXED = 3  # neighbours that a trend is read off where their points differ
_HELD = 20.0  # log V beyond which nothing holds the weight
_LOOSE = 1e3  # V beyond which a weight without penalty that does not settle is not held
_SAMPLED = 16  # scramblings of a user's activation
_AMPLE = 0.5  # share of the tolerance below which half as many points will do
_GAP = 0.4  # coordinates of scramblings with a wider gap between them belong to different branches
_RATE = 0.75  # the error falls like the number of points to this power


class Seed(NamedTuple):
    """Where to look for a solution: coordinates (6,) and the Jacobian of the map there or nearby (6, 6)."""

    x: np.ndarray
    slope: np.ndarray


@dataclass(frozen=True)
class Solution:
    """A fixed point with its errors: three standard errors of independent scramblings."""

    start: str
    equations: Equations
    rows: Order
    ahead: np.ndarray  # coordinates of the rows one step further: closer to the fixed points, their means not taken
    order: Order
    order_error: Order
    conjugate: Conjugate
    conjugate_error: Conjugate
    excess_risk: Estimate
    train_loss: Estimate
    energy: Estimate
    residual: float
    status: Status
    seed: Seed
    stability: Stability | None = None  # where it was looked at

    @property
    def solved(self) -> bool:
        """Do the equations hold here, well enough known or not?"""
        return self.status in (Status.CONVERGED, Status.NOISE_LIMITED) and self.energy.finite

    def unknown(self, status: Status) -> Solution:
        """With errors that say that nothing is known."""
        infinite = [math.inf] * len(self.order)
        lost = {name: Estimate(getattr(self, name).value, math.inf) for name in ("excess_risk", "train_loss", "energy")}
        errors = {"order_error": Order(*infinite), "conjugate_error": Conjugate(*infinite)}
        return replace(self, status=status, **errors, **lost)

    @property
    def trusted(self) -> bool:
        return self.status is Status.CONVERGED and self.stability is not None and not self.stability.doubts


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
    Without care nothing is sought as well, and stability is looked at only before many points are spent.
    """
    coarse = Equations(task, model, alpha, penalties, COARSE, 1, seed)
    led = _continued(coarse, near, tol, careful) if near else None
    if led is not None and (not careful or (led.trusted and list(near.values())[-1].trusted)):
        return [led]
    wanted = {"both": tuple(STARTS), "random": ("uninformed",), "informed": ("informed",)}[start]
    starts = {name: STARTS[name] for name in wanted}
    if led is not None:
        ends = [coarse.settle(x[None], _NEARLY).x[0] for x in (*starts.values(), led.seed.x)]
        noise = 3 * _scatter(pack(led.rows)) * _falls(COARSE - led.equations.log2_points)
        stays = np.all(np.abs(ends[-1] - led.seed.x) < APART + noise)
        if stays and np.max(np.ptp(ends, axis=0)) < APART:
            return [led]
        starts = dict(zip(wanted, ends, strict=False))
    places = sought(coarse, starts)
    progress(0.2)
    ends = [refined(p.equations, p.start, Seed(p.x, p.slope), tol, progress=progress) for p in places]
    found = _unlike([branch for end in ends for branch in end])  # some were apart by the noise of the first few points
    # energies are compared among solved points only: where the iteration did not end they can be lower
    found = [s for s in found if s.solved] or found[:1]
    if careful:
        found = [_judged(s) for s in found]
    return sorted(found, key=_rank)


def _rank(solution: Solution) -> tuple[float, float]:
    """By energy; but where replica symmetry is unstable the energy is a bound from below, the looser the more unstable,
    so that what is trusted comes first, and then what is less unstable."""
    judged = solution.stability
    return (judged.replicon if judged is not None and judged.doubts else 0.0, solution.energy.value)


def _differ(one: Solution, other: Solution) -> bool:
    """Do two refined solutions differ by more than their errors?"""
    gap = np.abs(np.subtract(one.order, other.order))
    error = np.add(one.order_error, other.order_error)
    return not np.all(gap <= np.maximum(error, APART * np.abs(one.order)))


def _continued(coarse: Equations, near: Mapping[float, Solution], tol: float, careful: bool = True) -> Solution | None:
    """Each scrambling from where its neighbours' solutions point; None where that does not settle."""
    last = list(near.values())[-1]
    # fewer points only where they will surely do: a second attempt costs more than is saved
    level = max(COARSE, last.equations.log2_points - int(last.excess_risk.error < _AMPLE * tol))
    if not last.trusted:
        level = min(level, _DOUBTFUL)
    equations = replace(coarse, log2_points=level, scrambles=SCRAMBLES)
    x, slope = _foretold(near), last.seed.slope
    if level > COARSE + 1:  # a new slope costs less than a step
        slope = coarse.slope(x.mean(axis=0))
    settled, close = _settled(tol), _CLOSE * _scatter(pack(last.rows)) * _falls(level - last.equations.log2_points)
    found = equations.solve(x, settled, _for_all(slope), most=2, close=close)
    if not _near(found, settled, close):
        slope = coarse.slope(found.ahead.mean(axis=0))
        found = equations.solve(found.ahead, settled, _for_all(slope), most=12, close=close)
    if not _near(found, settled):  # this point may scatter much less than its neighbour
        closer = _CLOSE / 2 * _scatter(found.x)
        found = equations.solve(found.ahead, settled, _for_all(slope), most=12, close=closer)
    if not _near(found, settled):
        return None
    place = Seed(found.x.mean(axis=0), slope)
    solution = _solution(equations, last.start, found, place, tol)
    if not careful:
        return refined(coarse, last.start, place, tol, solution)[0]
    solution = _judged(solution, last)
    if solution.stability is None:
        return None
    if solution.stability.doubts:
        if solution.excess_risk.error <= tol:
            return solution
        # more points are not worth it, or might dispel the doubts
        return replace(solution, status=Status.NOISE_LIMITED) if solution.stability.hopeless else None
    branches = refined(coarse, last.start, place, tol, solution)
    solution = _judged(branches[0], solution)
    return None if solution.stability is None or len(branches) > 1 else solution


def _for_all(slope: np.ndarray) -> np.ndarray:
    return np.repeat(slope[None], SCRAMBLES, axis=0)


def _judged(solution: Solution, near: Solution | None = None) -> Solution:
    """With its stability, if it is solved."""
    if solution.stability is not None or not solution.solved:
        return solution
    return replace(solution, stability=judge(solution.equations, solution.rows, near and near.stability))


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
    last = _DOUBTFUL if pooled else _CHEAP if coarse.is_cheap else _DEAR
    solution = first or _at_level(replace(coarse, scrambles=SCRAMBLES), name, place, tol, pooled=pooled)
    while True:
        equations = solution.equations
        groups = _groups(pack(solution.rows)) if solution.solved and not pooled else []
        if len(groups) > 1:
            ends = [refined(equations, name, Seed(x, place.slope), tol, pooled=True) for x in groups]
            return _unlike([branch for end in ends for branch in end])
        if solution.status not in (Status.CONVERGED, Status.MAX_STEPS) or solution.excess_risk.error <= tol:
            return [solution]
        # where the iteration did not end more points may help, but not many more
        most = last if solution.solved else min(last, _DOUBTFUL)
        level = min(most, equations.log2_points + max(1, _more(solution.excess_risk.error, tol)))
        if level > _WORTH:
            solution = _judged(solution)
        # nor is what is not to be trusted in any case
        if level <= equations.log2_points or (solution.stability is not None and solution.stability.hopeless):
            noisy = Status.NOISE_LIMITED if solution.status is Status.CONVERGED else solution.status
            return [replace(solution, status=noisy)]
        scatter = _scatter(pack(solution.rows)) * _falls(level - equations.log2_points)
        close = _CLOSE * scatter if first else 0.0  # a curve need not settle further
        finer = _at_level(replace(equations, log2_points=level), name, solution.seed, tol, close, pooled)
        progress(0.2 + 0.6 * level / last)
        if solution.solved and not finer.solved:  # near the end of a branch: what fewer points say is kept
            return [replace(_judged(solution), status=Status.NOISE_LIMITED)]
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


def _unlike(solutions: list[Solution]) -> list[Solution]:
    """Without those that do not differ from an earlier one."""
    kept: list[Solution] = []
    for solution in solutions:
        if all(_differ(solution, other) for other in kept):
            kept.append(solution)
    return kept


def _more(error: float, tol: float) -> int:
    """How many doublings of the points bring the error to `tol`; negative where it is below."""
    return math.ceil(math.log2(error / tol) / _RATE) if 0 < error < math.inf else 1


def _falls(doublings: int) -> float:
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
        return _solution(equations, name, equations.settle_pooled(place.x, _settled(tol)), place, tol)
    rows = np.repeat(place.x[None], equations.scrambles, axis=0)
    settled = _settled(tol)

    def ended(found: FixedPoints) -> bool:
        # where the map has jumps, a curve goes on, or points are many, a share of the scatter is enough
        strict = equations.is_smooth and equations.log2_points <= _DOUBTFUL and not np.any(close)
        return bool(np.max(found.residual) <= settled) if strict else _quiet(found, settled)

    found = equations.solve(rows, settled, _for_all(place.slope), most=12, close=close)
    if not ended(found):
        slope = equations.slope(found.x.mean(axis=0))  # the last one may belong elsewhere
        found = equations.solve(found.x, settled, _for_all(slope), most=30)
    few = equations.log2_points <= _DOUBTFUL
    if few and not ended(found):  # every scrambling with slopes of its own
        found = equations.settle(found.x, settled, most=20)
    if few and not _quiet(found, settled):  # the branch may belong to the points that it was found with
        found = equations.settle(np.repeat(STARTS[name][None], equations.scrambles, axis=0), settled, most=40)
    return _solution(equations, name, found, place, tol)


def _settled(tol: float) -> float:
    """The size of a step that counts as none: far below what moves the risk by `tol`."""
    return min(_SETTLED, tol / 300)


def _solution(equations: Equations, name: str, found: FixedPoints, place: Seed, tol: float) -> Solution:
    order = unpack(found.x)
    means = equations.means(order)
    hat, energy = equations.conjugates(means), equations.energy(order, means)
    centre = Order(*(float(np.mean(x)) for x in order))
    excess = excess_risk(equations, order, centre)
    finite = bool(np.all(np.isfinite(found.x)) and math.isfinite(excess.value))
    status = Status.CONVERGED if _quiet(found, _settled(tol)) else Status.MAX_STEPS
    if not finite:
        status = Status.DIVERGED
    elif max(math.log(centre.V_k), math.log(centre.V_v)) > _HELD:
        status = Status.UNBOUNDED
    elif status is Status.MAX_STEPS and 0.0 in equations.penalties and max(centre.V_k, centre.V_v) > _LOOSE:
        status = Status.UNBOUNDED  # on its way there
    solution = Solution(
        name,
        equations,
        order,
        found.ahead,
        centre,
        Order(*(_estimate(x).error for x in order)),
        Conjugate(*(float(np.mean(x)) for x in hat)),
        Conjugate(*(_estimate(x).error for x in hat)),
        excess,
        _estimate(means.residual_sq),
        _estimate(energy),
        float(np.max(found.residual)),
        status,
        Seed(pack(centre) if finite else place.x, place.slope),
    )
    # rows that never left their common start do not differ, which is no accuracy
    return solution if status is Status.CONVERGED else solution.unknown(status)


def _quiet(found: FixedPoints, settled: float) -> bool:
    """Is what the iteration still moves far below what the scramblings differ by?"""
    return bool(np.all(found.residual <= max(settled, _QUIET * np.max(_scatter(found.x)))))


def _near(found: FixedPoints, settled: float, close: np.ndarray | None = None) -> bool:
    """Is it quiet, and every coordinate closer to its fixed point than `close`, in the mean square over rows that do
    not stand yet? Without `close`, than a share of what the scramblings differ by."""
    off = np.where((found.residual > settled)[:, None], found.ahead - found.x, 0.0)
    share = _CLOSE * _scatter(found.x) if close is None else close
    return _quiet(found, settled) and bool(np.all(np.sqrt(np.mean(off**2, axis=0)) <= share))


def _scatter(x: np.ndarray) -> np.ndarray:
    """What the scramblings differ by, coordinate by coordinate."""
    return np.std(x, axis=0, ddof=1)


def _estimate(rows: np.ndarray) -> Estimate:
    """Mean over scramblings and three of its standard errors."""
    return Estimate(float(np.mean(rows)), 3 * float(np.std(rows, ddof=1)) / math.sqrt(len(rows)))


def excess_risk(equations: Equations, rows: Order, centre: Order) -> Estimate:
    """eq:ridge-test. The population risk at the mean overlaps; its error from the rows, to first order."""
    if not all(math.isfinite(x) for x in centre):
        return Estimate(math.nan, math.inf)
    form = functools.partial(_value_form, equations.task, equations.model)
    here, noise = form(centre.m_k, centre.q_k)
    # derivatives along k* with the part of k beyond it held, and along the square of that part
    rest = centre.q_k - centre.m_k**2
    h = 1e-3 * math.sqrt(centre.q_k)
    by_m = (form(centre.m_k + h, (centre.m_k + h) ** 2 + rest)[0] - here) / h
    by_rest = (form(centre.m_k, centre.q_k + 0.01 * rest)[0] - here) / (0.01 * rest)
    mine = np.array([-2 * centre.m_v, centre.q_v])
    values = -2 * here[0] * rows.m_v + here[1] * rows.q_v
    values = values + (mine @ by_m) * (rows.m_k - centre.m_k)
    values = values + (mine @ by_rest) * (rows.q_k - rows.m_k**2 - rest)
    value = equations.task.label_var + float(mine @ here)
    return Estimate(value, _estimate(values).error + float(np.abs(mine) @ noise))


def _value_form(
    task: SingleLocation, model: KeyValueAttention, key: float, key_sq: float
) -> tuple[np.ndarray, np.ndarray]:
    """(A, B) of eq:value-form and their errors: by tables, or sampled where there are none."""
    if model.activation.form != "general":
        with contextlib.suppress(TooSteep):
            return np.array(Risk(task, model).value_form({}, key, key_sq, 1.0)), np.zeros(2)
    c = elementwise.constants(task, model)
    found = sampled_moments.scrambles(task, type(model.activation), c, key, key_sq, 11, _SAMPLED)
    forms = np.array([field_moments.on_manifold(task.label_var, moments) for moments in found])
    return forms.mean(axis=0), 3 * forms.std(axis=0, ddof=1) / math.sqrt(_SAMPLED)

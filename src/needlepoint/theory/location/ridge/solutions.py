"""A solution of the replica-symmetric equations, with its errors from independent scramblings."""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.estimates import Estimate
from needlepoint.core.status import Status
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.moments import sampled as sampled_moments
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.population.risk_at_a_key import Question as Risk
from needlepoint.theory.location.population.risk_at_a_key import TooSteep
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.branches import APART
from needlepoint.theory.location.ridge.equations import Equations, pack, unpack
from needlepoint.theory.location.ridge.fields import Conjugate
from needlepoint.theory.location.ridge.sequences import Order
from needlepoint.theory.location.ridge.stability import Stability, judge


class Seed(NamedTuple):
    """Where to start an iteration: coordinates (6,), and the Jacobian of the map there or nearby, (6, 6)."""

    x: np.ndarray
    slope: np.ndarray


@dataclass(frozen=True)
class Solution:
    """A fixed point, the mean over independent scramblings (`rows`); errors are three standard errors."""

    start: str
    equations: Equations
    rows: Order
    ahead: np.ndarray  # (scrambles, 6) one step beyond `rows`: closer to the fixed points, but no means taken there
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
    stability: Stability | None = None  # None where it was not computed

    @property
    def solved(self) -> bool:
        """Whether the equations hold here, even if the error is above the tolerance."""
        return self.status in (Status.CONVERGED, Status.NOISE_LIMITED) and self.energy.finite

    def unknown(self, status: Status) -> Solution:
        """Return the same with this status and with infinite errors: nothing is known."""
        infinite = [math.inf] * len(self.order)
        lost = {name: Estimate(getattr(self, name).value, math.inf) for name in ("excess_risk", "train_loss", "energy")}
        errors = {"order_error": Order(*infinite), "conjugate_error": Conjugate(*infinite)}
        return replace(self, status=status, **errors, **lost)

    @property
    def trusted(self) -> bool:
        return self.status is Status.CONVERGED and self.stability is not None and not self.stability.doubts


def judged(solution: Solution, near: Solution | None = None) -> Solution:
    """Return the solution with its stability, or as it is where it has one or is not solved."""
    if solution.stability is not None or not solution.solved:
        return solution
    return replace(solution, stability=judge(solution.equations, solution.rows, near and near.stability))


def _differ(one: Solution, other: Solution) -> bool:
    """Whether two refined solutions differ by more than their errors and a relative APART."""
    gap = np.abs(np.subtract(one.order, other.order))
    error = np.add(one.order_error, other.order_error)
    return not np.all(gap <= np.maximum(error, APART * np.abs(one.order)))


def unlike(solutions: list[Solution]) -> list[Solution]:
    """Return the solutions without those that coincide with an earlier one."""
    kept: list[Solution] = []
    for solution in solutions:
        if all(_differ(solution, other) for other in kept):
            kept.append(solution)
    return kept


def no_step(tol: float) -> float:
    """Return the step below which the iteration has converged: far below one that moves the risk by `tol`."""
    return min(ACCURACY.settled, tol / 300)


def solution_of(
    equations: Equations, name: str, found: FixedPoints, place: Seed, tol: float, widen: float = 1.0
) -> Solution:
    """Return the mean of the rows that were found; its errors are from the differences between rows, times `widen`."""
    order = unpack(found.x)
    means = equations.means(order)
    hat, energy = equations.conjugates(means), equations.energy(order, means)
    centre = Order(*(float(np.mean(x)) for x in order))
    excess = excess_risk(equations, order, centre)
    finite = bool(np.all(np.isfinite(found.x)) and math.isfinite(excess.value))
    status = Status.CONVERGED if is_quiet(found, no_step(tol)) else Status.MAX_STEPS
    if not finite:
        status = Status.DIVERGED
    elif max(math.log(centre.V_k), math.log(centre.V_v)) > ACCURACY.held:
        status = Status.UNBOUNDED
    elif status is Status.MAX_STEPS and 0.0 in equations.penalties and max(centre.V_k, centre.V_v) > ACCURACY.loose:
        status = Status.UNBOUNDED  # still growing when the steps ran out
    solution = Solution(
        name,
        equations,
        order,
        found.ahead,
        centre,
        Order(*(widen * _estimate(x).error for x in order)),
        Conjugate(*(float(np.mean(x)) for x in hat)),
        Conjugate(*(widen * _estimate(x).error for x in hat)),
        _widened(excess, widen),
        _widened(_estimate(means.residual_sq), widen),
        _widened(_estimate(energy), widen),
        float(np.max(found.residual)),
        status,
        Seed(pack(centre) if finite else place.x, place.slope),
    )
    # rows that never left their common start do not differ, which must not pass for a small error
    return solution if status is Status.CONVERGED else solution.unknown(status)


def is_quiet(found: FixedPoints, settled: float) -> bool:
    """Whether every row's last step is below `settled`, or far below the differences between scramblings."""
    return bool(np.all(found.residual <= max(settled, ACCURACY.quiet * np.max(scatter(found.x)))))


def scatter(x: np.ndarray) -> np.ndarray:
    """Return the standard deviation between scramblings of each coordinate, (6,)."""
    return np.std(x, axis=0, ddof=1)


def _widened(estimate: Estimate, factor: float) -> Estimate:
    return replace(estimate, error=factor * estimate.error)


def _estimate(rows: np.ndarray) -> Estimate:
    """Return the mean over scramblings with three standard errors."""
    return Estimate(float(np.mean(rows)), 3 * float(np.std(rows, ddof=1)) / math.sqrt(len(rows)))


def excess_risk(equations: Equations, rows: Order, centre: Order) -> Estimate:
    """eq:ridge-test. Return the population risk at the mean overlaps `centre`; its error is from the differences
    between the rows, to first order."""
    if not all(math.isfinite(x) for x in centre):
        return Estimate(math.nan, math.inf)
    form = functools.partial(value_form, equations.task, equations.model)
    here, noise = form(centre.m_k, centre.q_k)
    # derivatives by m_k at a fixed part of k orthogonal to k*, and by the square of that part
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


def value_form(
    task: SingleLocation, model: KeyValueAttention, key: float, key_sq: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return (A, B) of eq:value-form and their errors, each (2,): by tables, or by sampling where there are none."""
    question = Risk(task, model)
    if not question.sampled:
        with contextlib.suppress(TooSteep):
            return np.array(question.value_form({}, key, key_sq, 1.0)), np.zeros(2)
    c = elementwise.constants(task, model)
    found = sampled_moments.scrambles(task, type(model.activation), c, key, key_sq, 11, ACCURACY.sampled)
    forms = np.array([weight_moments.on_manifold(task.label_var, moments) for moments in found])
    return forms.mean(axis=0), 3 * forms.std(axis=0, ddof=1) / math.sqrt(ACCURACY.sampled)

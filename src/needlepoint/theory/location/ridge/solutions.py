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
from needlepoint.theory.location.ridge.branches import APART
from needlepoint.theory.location.ridge.equations import Equations, pack, unpack
from needlepoint.theory.location.ridge.fields import Conjugate, Order
from needlepoint.theory.location.ridge.stability import Stability, judge

_SETTLED = 1e-5  # largest step that counts as none
_QUIET = 0.1  # or this share of the scatter of the scramblings
_HELD = 20.0  # log V beyond which nothing holds the weight
_LOOSE = 1e3  # V beyond which a weight without penalty that does not settle is not held
_SAMPLED = 16  # scramblings of a user's activation


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


def judged(solution: Solution, near: Solution | None = None) -> Solution:
    """With its stability, if it is solved."""
    if solution.stability is not None or not solution.solved:
        return solution
    return replace(solution, stability=judge(solution.equations, solution.rows, near and near.stability))


def _differ(one: Solution, other: Solution) -> bool:
    """Do two refined solutions differ by more than their errors?"""
    gap = np.abs(np.subtract(one.order, other.order))
    error = np.add(one.order_error, other.order_error)
    return not np.all(gap <= np.maximum(error, APART * np.abs(one.order)))


def unlike(solutions: list[Solution]) -> list[Solution]:
    """Without those that do not differ from an earlier one."""
    kept: list[Solution] = []
    for solution in solutions:
        if all(_differ(solution, other) for other in kept):
            kept.append(solution)
    return kept


def no_step(tol: float) -> float:
    """The size of a step that counts as none: far below what moves the risk by `tol`."""
    return min(_SETTLED, tol / 300)


def solution_of(
    equations: Equations, name: str, found: FixedPoints, place: Seed, tol: float, widen: float = 1.0
) -> Solution:
    """The mean of the rows that were found and its errors, from what the rows differ by times `widen`."""
    order = unpack(found.x)
    means = equations.means(order)
    hat, energy = equations.conjugates(means), equations.energy(order, means)
    centre = Order(*(float(np.mean(x)) for x in order))
    excess = excess_risk(equations, order, centre)
    finite = bool(np.all(np.isfinite(found.x)) and math.isfinite(excess.value))
    status = Status.CONVERGED if is_quiet(found, no_step(tol)) else Status.MAX_STEPS
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
    # rows that never left their common start do not differ, which is no accuracy
    return solution if status is Status.CONVERGED else solution.unknown(status)


def is_quiet(found: FixedPoints, settled: float) -> bool:
    """Is what the iteration still moves far below what the scramblings differ by?"""
    return bool(np.all(found.residual <= max(settled, _QUIET * np.max(scatter(found.x)))))


def scatter(x: np.ndarray) -> np.ndarray:
    """What the scramblings differ by, coordinate by coordinate."""
    return np.std(x, axis=0, ddof=1)


def _widened(estimate: Estimate, factor: float) -> Estimate:
    return replace(estimate, error=factor * estimate.error)


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
    forms = np.array([weight_moments.on_manifold(task.label_var, moments) for moments in found])
    return forms.mean(axis=0), 3 * forms.std(axis=0, ddof=1) / math.sqrt(_SAMPLED)

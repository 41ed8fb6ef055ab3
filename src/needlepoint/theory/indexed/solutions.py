"""What is learned on the attention-indexed model: a fixed point of its equations, to a stated error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.models.attention import DirectAttention
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.equations import Equations, Learned, Model, fixed_point, unpack
from needlepoint.theory.indexed.fields import Means, State
from needlepoint.theory.indexed.quadrature import JUMPING, SMOOTH, STEEPEST, Rule, combined, on_lattice, rule_levels
from needlepoint.theory.indexed.spectrum import spread

TOLERANCE = 1e-4
"""Default tolerance of the estimation error, relative to the mean square of the target, on a lattice."""

ROUGH = 1e-3
"""The same with scrambled Sobol points."""


class Outcome(NamedTuple):
    """The numbers of a solution. `distance` is the estimation error; `size` is what the penalty multiplies, Tr S / d
    for tied attention and Tr S^2 / d for direct; `rivals` is the share of sequences with more than one minimum."""

    m: float
    q: float
    train: float
    test: float
    clean: float
    energy: float
    distance: float
    rank: float
    size: float
    rivals: float


@dataclass(frozen=True)
class Solution:
    """A fixed point: the learned matrix, and its numbers with their errors."""

    state: State
    learned: Learned
    value: Outcome
    error: Outcome
    status: Status
    residual: float
    replicon: float
    slope: np.ndarray | None = None
    """Jacobian (3, 3) of the equations there; None where they were not iterated."""
    coarser: tuple[np.ndarray, ...] = ()
    """The numbers by coarser rules, the finest of them last."""

    def estimate(self, name: str) -> Estimate:
        """Return a number with its error, which is infinite where the equations are not solved."""
        return Estimate(getattr(self.value, name), self.known(getattr(self.error, name)))

    def known(self, error: float) -> float:
        return error if self.status is not Status.MAX_STEPS and math.isfinite(error) else math.inf


def default_tolerance(task: AttentionIndexed) -> float:
    return TOLERANCE if on_lattice(task) else ROUGH


def outcome(equations: Equations, state: State, learned: Learned, means: Means) -> Outcome:
    """Return the numbers of a state that solves the equations."""
    law = equations.law
    if isinstance(equations.model, DirectAttention):
        rank, size = 1.0, float(state.q)
    else:
        at = law.truncated(learned.delta, learned.eps)
        rank, size = float(np.clip(at.above, 0.0, 1.0)), -learned.eta * float(at.d2) / 2
    energy = equations.alpha * means.train + equations.penalty * size
    distance = law.square - 2 * state.m + state.q
    return Outcome(state.m, state.q, means.train, means.test, means.clean, energy, distance, rank, size, means.rivals)


def solve(
    task: AttentionIndexed,
    model: Model,
    alpha: float,
    penalty: float,
    *,
    tol: float | None = None,
    seed: int = 0,
    near: Solution | None = None,
    level: int | None = None,
    progress: Progress = silent,
) -> Solution:
    r"""Return the solution for two or more tokens, with rules fine enough that its estimation error is known to `tol`.

    `penalty` is positive: $\tilde\lambda$ for tied attention and $\lambda$ for direct. The iteration starts from the
    solution `near`, or is led down from large penalties. With a `level` only that rule of integration is used.
    """
    tol = default_tolerance(task) if tol is None else tol
    levels = rule_levels(task, seed)
    levels = levels if level is None else levels[level : level + 1]
    first = Equations(task, model, alpha, penalty, levels[0])
    tested = () if on_lattice(task) else levels[-1]  # Sobol points are less accurate: test losses use the most of them
    empty = _nothing(first, levels)
    if near is not None and near.state.q > 0:  # S = 0 is a fixed point, which the iteration would not leave
        start, slope = near.state, near.slope
    else:
        start, slope = _approached(first), None
    found = None
    if empty is not None and not _something(first, start, slope):
        return empty
    for i, rules in enumerate(levels):
        before = found
        found = _at(replace(first, rules=rules, minima={}), start, slope, found, tested)
        if empty is not None and not found.value.energy < empty.value.energy:
            return empty
        start, slope = found.state, found.slope
        progress((i + 1) / len(levels))
        if found.error.distance <= tol * task.target.law.square:
            return found
        if found.value.rivals > ACCURACY.hopeless and math.isfinite(found.error.distance):
            break  # more nodes are not worth it for an answer that will not be trusted
        if tested and before is not None and _next_error(before, found) > tol * task.target.law.square:
            break  # nor are they where the next level would not reach the tolerance either
    assert found is not None
    return replace(found, status=Status.NOISE_LIMITED) if found.status is Status.CONVERGED else found


def _next_error(coarse: Solution, fine: Solution) -> float:
    """Return the error expected at the next level, which has four times the points: it falls by a factor of four, or by
    as much as it fell last if that was more."""
    falls = coarse.error.distance / fine.error.distance if fine.error.distance > 0 else math.inf
    return fine.error.distance / max(4.0, falls)


def _nothing(equations: Equations, levels: Sequence[tuple[Rule, ...]]) -> Solution | None:
    """Return the solution S = 0 where the penalty is so strong that it is a minimum, otherwise None.

    It is a minimum where the cut eps is above the whole spectrum of S0 + delta Z.
    """
    if isinstance(equations.model, DirectAttention):
        return None
    rows, learned = [], None
    for rules in levels[:3]:
        these = replace(equations, rules=rules)
        rows.append([these.means_of_nothing(i) for i in range(len(rules))])
        learned = these.learned(Means(*np.mean(rows[-1], axis=0)))
        if learned.eps < equations.law.support(learned.delta)[-1, 1]:
            return None
    assert learned is not None
    state = State(0.0, 0.0, 0.0)
    *coarser, fine = (np.array([outcome(equations, state, learned, r) for r in level]) for level in rows)
    value, error = combined(fine, [x.mean(axis=0) for x in coarser])
    return Solution(state, learned, Outcome(*value.tolist()), Outcome(*error.tolist()), Status.CONVERGED, 0.0, 0.0)


def _something(equations: Equations, start: State, slope: np.ndarray | None) -> bool:
    """Whether the iteration from `start` converges to a solution other than S = 0."""
    found, _ = fixed_point(replace(equations, rules=equations.rules[:1]), start, ACCURACY.little, slope)
    return bool(
        np.all(found.residual <= ACCURACY.little)
        and np.all(found.x[:, 0] > math.log(ACCURACY.little * equations.law.square))
    )


def _approached(equations: Equations) -> State:
    """Return a state to start from: small penalties are approached from larger ones, and Sigma grows as they fall."""
    one = replace(equations, rules=equations.rules[:1])
    # the mean square of a matrix whose scores reproduce the labels; labels steeper than STEEPEST count as that
    Q0 = one.law.square * (min(one.task.beta_star, STEEPEST) / one.model.beta) ** 2
    start = State(0.5 * math.sqrt(one.law.square * Q0), 0.6 * Q0, 2.0)
    first = max(one.penalty, ACCURACY.easy)
    steps = math.ceil(math.log(first / one.penalty) / math.log(ACCURACY.path)) if one.penalty > 0 else 0
    for penalty in np.geomspace(first, one.penalty, steps + 1)[:-1] if steps else ():
        found = fixed_point(replace(one, penalty=float(penalty)), start, 1e-4)
        state = unpack(found.points.x[0], one.numbers["Q"])
        start = state._replace(Sigma=state.Sigma * (first / one.penalty) ** (1 / steps))
    return start


def _at(
    equations: Equations,
    start: State,
    slope: np.ndarray | None,
    coarser: Solution | None,
    tested: tuple[Rule, ...] = (),
) -> Solution:
    """Return the mean of all rules' fixed points with its error; test losses are over the finer rules `tested`."""
    found, slope = fixed_point(equations, start, ACCURACY.solutions_settled, slope)
    states, means, rows = _outcomes(equations, found.x, tested)
    before = () if coarser is None else (*coarser.coarser, np.array(coarser.value))
    jumps = float(np.max(rows[:, Outcome._fields.index("rivals")])) > ACCURACY.few
    value, error = combined(rows, before, JUMPING if jumps else SMOOTH)
    residual = float(np.max(found.residual))
    if 100 * ACCURACY.solutions_settled < residual <= ACCURACY.jumps:
        # nodes whose minimum jumps keep the steps from shrinking: the Newton step that is left is part of the error
        rest = (replace(equations, minima=None).map(found.x) - found.x) @ np.linalg.inv(np.eye(3) - slope).T
        error = error + 2 * np.max(np.abs(_outcomes(equations, found.x + rest, tested)[2] - rows), axis=0)
    state, average = State(*np.mean(states, axis=0)), Means(*np.mean(means, axis=0))
    learned = equations.learned(average)
    settled = residual <= ACCURACY.jumps and bool(np.all(np.isfinite(rows)))
    return Solution(
        state,
        learned,
        Outcome(*value.tolist()),
        Outcome(*error.tolist()),
        Status.CONVERGED if settled else Status.MAX_STEPS,
        residual,
        _replicon(equations, learned, float(average.response)),
        slope,
        before,
    )


def _outcomes(
    equations: Equations, points: np.ndarray, tested: tuple[Rule, ...]
) -> tuple[list[State], list[Means], np.ndarray]:
    """Return the state and the means of every rule, and their numbers (rules, k)."""
    states = [unpack(x, equations.numbers["Q"]) for x in points]
    means = [equations.means(i, state, tested[i] if tested else None) for i, state in enumerate(states)]
    rows = [outcome(equations, x, equations.learned(r), r) for x, r in zip(states, means, strict=True)]
    return states, means, np.array(rows)


def _replicon(equations: Equations, learned: Learned, response: float) -> float:
    r"""eq:indexed-replicon. Return $\Lambda = 2\alpha E|\partial_\omega g|^2D/\hat\Sigma^2$, which is below 1 where the
    solution is stable."""
    eps = None if isinstance(equations.model, DirectAttention) else learned.eps
    stiff = learned.m / learned.eta
    return 2 * equations.alpha * response * spread(equations.law, learned.delta, eps) / stiff**2

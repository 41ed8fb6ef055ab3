"""Solving the field equations: find the branches from both starts in every phase, and refine them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.losses import Loss
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.order import Order, Pattern
from needlepoint.theory.fields.population import estimate, losses, risks
from needlepoint.theory.fields.ridge.equal_columns import equal_columns
from needlepoint.theory.fields.ridge.equations import Equations, starting_points
from needlepoint.theory.fields.ridge.stability import BREAKS, BROKEN, Stability, breaking, judge
from needlepoint.theory.fields.symmetry import patterns


@dataclass(frozen=True)
class Solution:
    """A fixed point, the mean over independent scramblings (`rows`); errors are three standard errors.

    `envelope` is the mean envelope: the derivative of the energy by alpha, because the free energy is stationary.
    `same_as` is the solution of the smaller model that this one amounts to, where columns are equal.
    """

    start: str
    equations: Equations
    rows: list[Order]
    order: Order
    order_error: Order
    risk: Estimate
    error_rate: Estimate | None
    train_loss: Estimate
    energy: Estimate
    envelope: Estimate
    residual: float
    status: Status
    slope: np.ndarray
    stability: Stability | None = None
    same_as: Solution | None = None

    @property
    def solved(self) -> bool:
        return self.status in (Status.CONVERGED, Status.NOISE_LIMITED)

    @property
    def x(self) -> np.ndarray:
        return self.equations.pattern.pack(self.order)


@dataclass(frozen=True)
class Found:
    """Where a start led with few points."""

    start: str
    equations: Equations
    x: np.ndarray
    slope: np.ndarray
    residual: float

    @property
    def held(self) -> bool:
        """Return whether the fixed point is stable under the damped iteration: no real part above 1."""
        return self.residual <= ACCURACY.nearly_found and float(np.max(np.linalg.eigvals(self.slope).real)) < 1.0


def solve(
    task: SequenceTask,
    model: FieldModel,
    loss: Loss,
    alpha: float,
    penalties: tuple[float, ...],
    informed: np.ndarray,
    *,
    start: str = "both",
    tol: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
    phases: Sequence[Pattern] | None = None,
) -> list[Solution]:
    """Return the branches with their stability, the one of lowest energy first; unsolved ones come last.

    `phases` are the patterns in which solutions are sought, all if it is None.
    """
    found: list[Solution] = []
    phases = phases or patterns(task, model)
    wanted = wanted_starts(start)
    for number, pattern in enumerate(phases):
        coarse = Equations(task, model, loss, alpha, penalties, pattern, ACCURACY.coarse, 1, seed)
        starts = {name: x for name, x in starting_points(pattern, informed).items() if name in wanted}
        for place in _places(coarse, starts):
            progress((number + 0.3) / len(phases))
            solution = _with_equal_columns(place, tol) or _refined(place, tol)
            if all(_differ(solution, other) for other in found):
                found.append(solution)
    solved = [s for s in found if s.solved]
    judged = [s if s.stability is not None else replace(s, stability=judge(s.equations, s.rows)) for s in solved]
    for i, leaving in enumerate(judged):
        # where there are phases, what breaks the symmetry of one of them is another
        alone, known = leaving.equations.pattern.name == "unique", leaving.stability
        if not alone or known is None or known.breaking <= BREAKS:
            continue
        place = _without_symmetry(leaving)
        if place is None:
            continue
        if _is_back(place, leaving.same_as or leaving):
            judged[i] = replace(leaving, stability=replace(known, breaking=1.0))
        elif leaving.same_as is None:
            without = _refined(place, tol)
            without = replace(without, stability=judge(without.equations, without.rows)) if without.solved else None
            if without is not None and all(_differ(without, other) for other in judged):
                judged.append(without)
    return sorted(judged, key=lambda s: s.energy.value) or found[:1]


def wanted_starts(start: str) -> tuple[str, ...]:
    """Return the names of the starting points that a learner's `start` stands for."""
    return {"both": ("uninformed", "informed"), "random": ("uninformed",), "informed": ("informed",)}[start]


def _without_symmetry(solution: Solution) -> Found | None:
    """Return where the equations without symmetries lead from a solution that they seem to leave; None if to no point
    that they hold.

    There are as many such points as the symmetry has images; this is one of them, in which the sign of what the
    symmetry forbade is arbitrary.
    """
    solution = solution.same_as or solution
    broken = breaking(solution.equations, solution.order)
    if broken is None:
        return None
    equations = replace(broken.equations, log2_points=ACCURACY.coarse + ACCURACY.finer[-1])
    place = settled(equations, BROKEN, broken.x + ACCURACY.pushed * broken.direction)
    return place if place.held else None


def _is_back(place: Found, solution: Solution) -> bool:
    """Return whether a place is the solution that was left: with few points, what is forbidden may seem to grow where
    columns almost vanish."""
    pairs = zip(place.equations.pattern.unpack(place.x), solution.order, strict=True)
    return all(np.max(np.abs(a - b)) < ACCURACY.apart * np.max(np.abs(b)) for a, b in pairs)


def followed(solution: Solution, alpha: float, tol: float | None = None) -> Solution | None:
    """Return the solution at another alpha that the flow of the equations leads to from this one, with its stability;
    None if it leads to no point that it holds."""
    finer = ACCURACY.coarse + ACCURACY.finer[-1]
    equations = replace(solution.equations, alpha=alpha, log2_points=finer, scrambles=1)
    place = settled(equations, solution.start, solution.x)
    if not place.held:
        return None
    found = _refined(place, tol)
    return replace(found, stability=judge(found.equations, found.rows)) if found.solved else found


def _places(coarse: Equations, starts: dict[str, np.ndarray]) -> list[Found]:
    """Return the distinct fixed points that the starts lead to; unstable or unsolved ones only if there are no
    others."""
    places: list[Found] = []
    for finer in ACCURACY.finer:
        equations = replace(coarse, log2_points=coarse.log2_points + finer)
        places = [settled(equations, name, x) for name, x in starts.items()]
        if any(p.held for p in places):
            break
    solved = [p for p in places if p.residual <= ACCURACY.nearly_found]
    kept = [p for p in solved if p.held] or solved or [min(places, key=lambda p: p.residual)]
    return [p for i, p in enumerate(kept) if all(np.max(np.abs(p.x - q.x)) >= ACCURACY.apart for q in kept[:i])]


def settled(equations: Equations, name: str, x: np.ndarray) -> Found:
    """Return where the flow leads, judged with minima that are sought anew from all starts."""
    equations.forget()
    end = equations.settle(x)
    equations.forget()
    residual = float(np.max(np.abs(equations.map(end.x) - end.x)))
    if residual > ACCURACY.nearly_found and end.residual[0] <= ACCURACY.nearly_found:
        end = equations.settle(end.x[0])  # minima that were not followed: go on from here with all of them
        residual = float(end.residual[0])
    return Found(name, equations, end.x[0], equations.slope(end.x[0]), residual)


def _refined(place: Found, tol: float | None) -> Solution:
    """Return the solution with as many points as bring the risk's error to `tol`, or as are worth it."""
    freedom = place.equations.freedom
    last = next((most for k, most in ACCURACY.most if freedom <= k), ACCURACY.most_else)
    level, x = ACCURACY.coarse + 1, np.repeat(place.x[None], ACCURACY.scrambles, axis=0)
    while True:
        equations = replace(place.equations, log2_points=level, scrambles=ACCURACY.scrambles)
        solution = _at_level(place, equations, x)
        asked = ACCURACY.tolerance * _of_zero(solution) if tol is None else tol
        if not solution.solved or solution.risk.error <= asked:
            return solution
        more = math.ceil(math.log2(solution.risk.error / asked) / ACCURACY.rate)
        if level >= last:
            return replace(solution, status=Status.NOISE_LIMITED)
        level = min(last, level + max(1, more))
        x = np.stack([equations.pattern.pack(row) for row in solution.rows])
        x = np.repeat(x.mean(axis=0)[None], ACCURACY.scrambles, axis=0)


def _with_equal_columns(place: Found, tol: float | None) -> Solution | None:
    """Return the solution of the smaller model that a place with equal columns amounts to; None if they differ."""
    equal = equal_columns(place.equations, place.x) if place.held else None
    if equal is None:
        return None
    smaller = settled(equal.smaller()[0], place.start, equal.smaller()[1])
    found = _refined(smaller, tol) if smaller.held else None
    if found is None or not found.solved:
        return None
    return replace(
        found,
        equations=replace(found.equations, **_of_larger(place.equations)),
        rows=[equal.embedded(row) for row in found.rows],
        order=equal.embedded(found.order),
        order_error=equal.error(found.order_error),
        slope=place.slope,
        stability=judge(found.equations, found.rows),
        same_as=found,
    )


def _of_larger(equations: Equations) -> dict[str, Any]:
    return {name: getattr(equations, name) for name in ("model", "penalties", "pattern")}


def _of_zero(solution: Solution) -> float:
    """Return the risk of predicting zero."""
    eq, order = solution.equations, solution.order
    return eq.loss.metric_scale * float(
        np.mean(losses(eq.task, eq.model, eq.loss, order.M, order.Q, ACCURACY.coarse, 2)[:, 1])
    )


def _at_level(place: Found, equations: Equations, x: np.ndarray) -> Solution:
    found = equations.solve(x, place.slope, ACCURACY.settled)
    equations.forget()  # the minima at the end are sought from all starts
    ahead = equations.map(found.x)
    residual = np.max(np.abs(ahead - found.x), axis=1)
    if not _quiet(found._replace(residual=residual)):
        found = equations.solve(found.x, equations.slope(found.x.mean(axis=0)), ACCURACY.settled)
        residual = found.residual
    return _solution(place, equations, found._replace(residual=residual))


def _quiet(found: FixedPoints) -> bool:
    """Return whether every row's step is below `settled`, or far below the differences between scramblings."""
    scatter = float(np.max(np.std(found.x, axis=0, ddof=1)))
    return bool(np.all(found.residual <= max(ACCURACY.settled, ACCURACY.quiet * scatter)))


def _solution(place: Found, equations: Equations, found: FixedPoints) -> Solution:
    task, model, loss = equations.task, equations.model, equations.loss
    fixed = [equations.pattern.fixed(equations.pattern.unpack(x)) for x in found.x]
    chosen = np.stack([equations.pattern.pack(order) for order in fixed])
    if np.any(np.abs(chosen - found.x) > ACCURACY.settled):  # other signs, and so other minima
        found = found._replace(x=chosen)
        equations.forget()
    rows = [equations.pattern.unpack(x) for x in found.x]
    means = [equations.means(row, i) for i, row in enumerate(rows)]
    energies = np.array([equations.energy(row, m) for row, m in zip(rows, means, strict=True)])
    centre = equations.pattern.unpack(found.x.mean(axis=0))
    order = Order(*(np.mean([row[i] for row in rows], axis=0) for i in range(3)))
    error = Order(*(3 * np.std([row[i] for row in rows], axis=0, ddof=1) / math.sqrt(len(rows)) for i in range(3)))
    test = risks(task, model, loss, centre.M, centre.Q, seed=equations.seed)
    # how the risk differs between the rows' own overlaps, with the same points for all of them
    own = np.array([losses(task, model, loss, row.M, row.Q, ACCURACY.coarse + 1, 2)[:, [0, 2]].mean(0) for row in rows])
    scale = loss.metric_scale
    status = Status.CONVERGED if _quiet(found) else Status.MAX_STEPS
    if not np.all(np.isfinite(found.x)):
        status = Status.DIVERGED
    elif float(np.max(np.diagonal(order.V))) > ACCURACY.held:
        status = Status.UNBOUNDED
    wrong = test.error_rate
    return Solution(
        place.start,
        equations,
        rows,
        order,
        error,
        replace(test.risk, error=test.risk.error + estimate(scale * own[:, 0]).error),
        None if wrong is None else replace(wrong, error=wrong.error + estimate(own[:, 1]).error),
        estimate(scale * np.array([m.loss for m in means])),
        estimate(energies),
        estimate(np.array([m.envelope for m in means])),
        float(np.max(found.residual)),
        status,
        place.slope,
    )


def _differ(one: Solution, other: Solution) -> bool:
    """Return whether two solutions differ by more than their errors and a relative `apart`."""
    pairs = list(zip(one.order, other.order, one.order_error, other.order_error, strict=True))
    if one.same_as is not None and other.same_as is not None:
        pairs = pairs[:2]  # how much differences of equal columns give is known with few points only
    for a, b, ea, eb in pairs:
        if np.any(np.abs(a - b) > np.maximum(ea + eb, ACCURACY.apart * np.max(np.abs(a)))):
            return True
    return False

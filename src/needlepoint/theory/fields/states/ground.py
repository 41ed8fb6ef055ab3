"""The ground state: the solution at the breaking parameter where the complexity vanishes, with its errors."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian
from needlepoint.theory.fields.envelope import freedom
from needlepoint.theory.fields.population import estimate, losses, risks
from needlepoint.theory.fields.states.accuracy import ACCURACY
from needlepoint.theory.fields.states.branch import Branch
from needlepoint.theory.fields.states.equations import StateEquations, StateOrder
from needlepoint.theory.fields.states.minima import is_direct, of_attention


@dataclass(frozen=True)
class Rows:
    """Solutions of every scrambling at one x: coordinates (rows, k), order parameters, and per row the free energy, its
    derivative, the energy, the mean loss, the share of inner points, and the residual."""

    x: float
    at: np.ndarray
    orders: list[StateOrder]
    free: np.ndarray
    slope: np.ndarray
    energy: np.ndarray
    loss: np.ndarray
    share: np.ndarray
    residual: np.ndarray

    @property
    def complexity(self) -> np.ndarray:
        return self.x**2 * self.slope


@dataclass(frozen=True)
class GroundState:
    """What is known where the complexity vanishes; errors are three standard errors over scramblings, and what the
    softness of x changes. `free_x` is where the free energy along the branch is largest, which should be the same x."""

    status: Status
    x: Estimate
    free_x: float
    order: StateOrder
    order_error: StateOrder
    risk: Estimate
    error_rate: Estimate | None
    train_loss: Estimate
    energy: Estimate
    share: float
    residual: float
    levels: tuple[int, int]


def ground_state(branch: Branch, tol: float | None, progress: Progress = silent) -> GroundState | None:
    """Return the ground state at the end of a branch; None where its x is not found by more points."""
    assert branch.crossing is not None
    x = foretold = branch.crossing
    equations, near = branch.equations, min(branch.points, key=lambda p: abs(math.log(p.x / foretold)))
    problem = replace(equations.problem, scrambles=ACCURACY.scrambles)
    direct = _is_direct(equations)
    most = ACCURACY.most_outer if direct else ACCURACY.most_outer_else
    levels = ACCURACY.inner if direct else ACCURACY.inner_else
    outer, inner = next((o, i) for share, o, i in levels if float(near.means.share) >= share)
    start, slope = np.repeat(near.at[None], ACCURACY.scrambles, axis=0), near.slope
    x = float(np.clip(x, near.x / ACCURACY.around, near.x * ACCURACY.around))
    while True:
        finer = StateEquations(problem, (outer, inner), equations.follows)
        found = _around(finer, x, start, slope, progress)
        if found is None:
            return None
        ground = _of_rows(finer, *found)
        asked = ACCURACY.tolerance * abs(ground.risk.value) if tol is None else tol
        if ground.status is not Status.CONVERGED or ground.risk.error <= asked:
            return ground
        if outer >= most:
            return replace(ground, status=Status.NOISE_LIMITED)
        more = math.ceil(math.log2(ground.risk.error / asked) / ACCURACY.rate)
        outer = min(most, outer + max(1, more))
        x, start = found[1], np.repeat(found[0][1].at.mean(axis=0)[None], ACCURACY.scrambles, axis=0)


def _is_direct(equations: StateEquations) -> bool:
    fast = equations.search is of_attention
    return fast and all(is_direct(part.kind) for part in equations.parts)


def dimension(equations: StateEquations) -> int:
    """Return the dimension of the search for the minimum of a sequence."""
    return 1 if _is_direct(equations) else max(freedom(part.kind) for part in equations.parts)


def _around(
    equations: StateEquations, x: float, start: np.ndarray, slope: np.ndarray, progress: Progress
) -> tuple[list[Rows], float] | None:
    """Return solutions at three x around the one where the mean complexity vanishes, and that one; None where the
    equations are not solved there, or the inner points are too few."""
    rows: list[Rows] = []
    for count in range(ACCURACY.most_around):
        near = min(rows, key=lambda row: abs(math.log(row.x / x))).at if rows else start
        found = _solved(equations, x, near, slope)
        if np.max(found.residual) > ACCURACY.nearly_found:  # the Jacobian is of another x, and of fewer points
            slope = _slope(equations, x, found.at)
            found = _solved(equations, x, found.at, slope)
        progress(0.5 + 0.5 * min(1.0, (count + 1) / 4))
        if np.max(found.residual) > ACCURACY.nearly_found or np.mean(found.share) < ACCURACY.share:
            return None
        rows = sorted([*rows, found], key=lambda row: row.x)
        if any(_rises(one, other) for one, other in itertools.pairwise(rows)):
            return None
        x, crossing = _next(rows)
        if crossing is not None:
            return sorted(
                sorted(rows, key=lambda row: abs(math.log(row.x / crossing)))[:3], key=lambda r: r.x
            ), crossing
    return None


def _slope(equations: StateEquations, x: float, rows: np.ndarray) -> np.ndarray:
    """Return the Jacobian of the map at the mean of the rows, by the first scrambling."""
    alone = replace(equations, problem=replace(equations.problem, scrambles=1))
    return jacobian(lambda at: alone.map(at, x), rows.mean(axis=0))


def _rises(low: Rows, high: Rows) -> bool:
    """Return whether the complexity grows with x by more than its scatter between scramblings explains."""
    change = high.complexity - low.complexity
    return float(np.mean(change)) > ACCURACY.rise * float(np.std(change, ddof=1)) / math.sqrt(len(change))


def _next(rows: list[Rows]) -> tuple[float, float | None]:
    """Return the x to solve at next, and where the complexity vanishes if three x are around it."""
    means = [float(np.mean(row.complexity)) for row in rows]
    if min(means) > 0:
        return rows[-1].x * ACCURACY.around, None
    if max(means) < 0:
        return rows[0].x / ACCURACY.around, None
    i = next(i for i in range(len(rows) - 1) if means[i] > 0 >= means[i + 1])
    low, high = rows[i], rows[i + 1]
    crossing = low.x * (high.x / low.x) ** (means[i] / (means[i] - means[i + 1]))
    if len(rows) > 2:
        return crossing, crossing
    nearer_top = abs(math.log(high.x / crossing)) < abs(math.log(low.x / crossing))
    return (high.x * ACCURACY.around if nearer_top else low.x / ACCURACY.around), None


def _solved(equations: StateEquations, x: float, start: np.ndarray, slope: np.ndarray) -> Rows:
    every = np.repeat(slope[None], len(start), axis=0)

    def iterate(begin: np.ndarray, most: int, close: np.ndarray | float) -> FixedPoints:
        return anderson(
            lambda rows: equations.map(rows, x),
            begin,
            tol=ACCURACY.settled,
            most=most,
            slope=every,
            enough=ACCURACY.nearly_found,
            close=close,
        )

    # what scramblings differ by is known after a few steps, and far below it no step is worth its cost
    end = iterate(start, ACCURACY.first_steps, 0.0)
    end = iterate(end.ahead, ACCURACY.fine_steps, ACCURACY.quiet * np.std(end.ahead, axis=0, ddof=1))
    orders = [equations.unpack(row) for row in end.x]
    means = [equations.means(order, x, i) for i, order in enumerate(orders)]
    energies = [equations.energies(order, found, x) for order, found in zip(orders, means, strict=True)]
    return Rows(
        x,
        end.x,
        orders,
        np.array([e.free for e in energies]),
        np.array([e.slope for e in energies]),
        np.array([e.parts for e in energies]),
        np.array([float(found.loss) for found in means]),
        np.array([float(found.share) for found in means]),
        end.residual,
    )


def _of_rows(equations: StateEquations, rows: list[Rows], x: float) -> GroundState:
    """Return the ground state at x by quadratic interpolation between three x. Every scrambling has an x of its own,
    where its complexity vanishes to first order, and what that moves is in the errors."""
    t = np.log([row.x / x for row in rows])

    def at(values: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return values (3, rows, ...) at the logarithms `place` (rows,) of x over that of the ground state."""
        parts = [
            values[i]
            * np.prod([(place - t[j]) / (t[i] - t[j]) for j in range(3) if j != i], axis=0).reshape(
                -1, *(1,) * (values.ndim - 2)
            )
            for i in range(3)
        ]
        return np.sum(parts, axis=0)

    complexity = np.stack([row.complexity for row in rows])
    fall = np.polyfit(t, complexity.mean(axis=1), 1)[0]
    here = np.zeros(complexity.shape[1])
    reach = 2 * math.log(ACCURACY.around)
    own = np.clip(-(at(complexity, here) - float(np.mean(at(complexity, here)))) / fall, -reach, reach)
    free_t = _top(t, np.stack([row.free for row in rows]).mean(axis=1))
    shifted = here + free_t
    stacked = StateOrder(
        *(np.stack([[getattr(o, name) for o in row.orders] for row in rows]) for name in StateOrder._fields)
    )
    own_orders = StateOrder(*(at(values, own) for values in stacked))
    moved_orders = StateOrder(*(at(values, shifted).mean(axis=0) for values in stacked))
    centre = StateOrder(*(at(values, here).mean(axis=0) for values in stacked))
    problem = equations.problem
    task, model, loss, scale = problem.task, problem.model, problem.loss, problem.loss.metric_scale

    def known(values: np.ndarray, factor: float = 1.0) -> Estimate:
        spread, soft = (
            estimate(factor * at(values, own)),
            factor * float(np.mean(at(values, shifted) - at(values, here))),
        )
        return Estimate(factor * float(np.mean(at(values, here))), spread.error + abs(soft))

    def tested(order: StateOrder) -> np.ndarray:
        found = losses(task, model, loss, order.M, order.within, ACCURACY.test_points, 2, problem.seed)
        return found[:, [0, 2]].mean(axis=0)

    test = risks(task, model, loss, centre.M, centre.within, seed=problem.seed)
    rows_tested = np.array([tested(StateOrder(*(v[i] for v in own_orders))) for i in range(len(own))])
    soft = np.abs(tested(moved_orders) - tested(centre))
    wrong = test.error_rate
    free, energy = np.stack([row.free for row in rows]), np.stack([row.energy for row in rows])
    apart = abs(float(np.mean(at(free, here) - at(energy, here))))  # equal where the complexity vanishes
    lowest = known(energy)
    n = math.sqrt(len(own))
    error = StateOrder(
        *(
            3 * np.std(mine, axis=0, ddof=1) / n + np.abs(other - middle)
            for mine, other, middle in zip(own_orders, moved_orders, centre, strict=True)
        )
    )
    residual = float(max(np.max(row.residual) for row in rows))
    scatter = float(np.max(np.std(rows[1].at, axis=0, ddof=1)))
    quiet = residual <= max(ACCURACY.settled, ACCURACY.quiet * scatter, ACCURACY.nearly_found)
    spread_x = 3 * float(np.std(own, ddof=1)) / n
    return GroundState(
        Status.CONVERGED if quiet else Status.MAX_STEPS,
        Estimate(x, x * (spread_x + abs(free_t))),
        x * math.exp(free_t),
        centre,
        error,
        replace(test.risk, error=test.risk.error + estimate(scale * rows_tested[:, 0]).error + scale * float(soft[0])),
        None
        if wrong is None
        else replace(wrong, error=wrong.error + estimate(rows_tested[:, 1]).error + float(soft[1])),
        known(np.stack([row.loss for row in rows]), scale),
        replace(lowest, error=lowest.error + apart),
        float(np.mean([row.share for row in rows])),
        residual,
        equations.levels,
    )


def _top(t: np.ndarray, values: np.ndarray) -> float:
    """Return the place of the maximum of the parabola through three values, at most as far outside of the places t as
    they are apart."""
    bend, rise, _ = np.polyfit(t, values, 2)
    low, high = t[0] - (t[-1] - t[0]) / 2, t[-1] + (t[-1] - t[0]) / 2
    if bend >= 0:
        return float(high if rise > 0 else low)
    return float(np.clip(-rise / (2 * bend), low, high))

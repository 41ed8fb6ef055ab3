"""The branch of states along the breaking parameter, followed with few points from its replica-symmetric end to where
the complexity vanishes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian
from needlepoint.theory.fields.order import Order
from needlepoint.theory.fields.states.accuracy import ACCURACY
from needlepoint.theory.fields.states.equations import Energies, StateEquations, StateOrder
from needlepoint.theory.fields.states.inner import Means


@dataclass(frozen=True)
class Point:
    """A solution at one x: its coordinates (k,), what follows from them, and the Jacobian of the map there."""

    x: float
    at: np.ndarray
    order: StateOrder
    means: Means
    energies: Energies
    residual: float
    slope: np.ndarray

    @property
    def complexity(self) -> float:
        return self.energies.complexity(self.x)

    @property
    def apart(self) -> float:
        """Return the largest share of a column's squared norm in which states differ."""
        return apart(self.order)

    @property
    def resolved(self) -> bool:
        """Return whether the inner points are enough, and the equations solved."""
        return float(self.means.share) >= ACCURACY.share and self.residual <= ACCURACY.nearly_found


def apart(order: StateOrder) -> float:
    """Return the largest share of a column's squared norm in which states differ."""
    return float(np.max(1 - np.diagonal(order.between) / np.diagonal(order.within)))


@dataclass
class Branch:
    """Points by increasing x. `crossing` is the x at which the complexity vanishes, None where that was not reached;
    `why` says what ended the branch there."""

    equations: StateEquations
    points: list[Point] = field(default_factory=list[Point])
    crossing: float | None = None
    why: str = ""

    @property
    def last(self) -> Point:
        return self.points[-1]

    @property
    def exists(self) -> bool:
        """Return whether states are apart anywhere on it."""
        return any(point.resolved and point.apart > ACCURACY.together for point in self.points)

    def begin(self, x: float) -> np.ndarray:
        """Return the coordinates at x that the nearest points foretell, straight in log x through the last two."""
        at = [point.at for point in self.points]
        if len(at) < 2:
            return at[-1]
        t = math.log(x / self.points[-1].x) / math.log(self.points[-1].x / self.points[-2].x)
        return at[-1] + np.clip(t, -1, 1) * np.clip(at[-1] - at[-2], -0.5, 0.5)


def follow(equations: StateEquations, known: Order, progress: Progress = silent) -> Branch:
    """Return the branch that begins at a replica-symmetric solution, up to where most of its complexity is gone, or
    where it ends. With so few points the last part would say more of them than of the branch."""
    unit = 1 / envelope_at(equations, known)
    branch = Branch(equations)
    start = equations.pack(_opened(equations, known))
    first = solved(equations, ACCURACY.first * unit, start)
    if first.apart > ACCURACY.together and first.resolved:
        branch.points.append(first)
        x = ACCURACY.second * unit
    else:
        opened = next(iter(_sought(equations, start, unit)), None)
        if opened is None:
            branch.points.append(first)
            branch.why = "all states are one"
            return branch
        branch.points.append(opened)
        x = opened.x * ACCURACY.growth
    for count in range(ACCURACY.most_x):
        point = solved(branch.equations, x, branch.begin(x), branch.last.slope)
        progress(min(1.0, count / 10))
        point = _with_enough(branch, point)
        if not point.resolved or point.apart <= ACCURACY.together:
            branch.why = _ended(point)
            break
        largest = max(p.complexity for p in branch.points)
        falling = branch.last.complexity < largest
        if falling and point.complexity > branch.last.complexity:
            branch.why = f"at x = {x:.3g} the complexity rises again, as it does with too few inner points"
            break
        branch.points.append(point)
        if point.complexity < ACCURACY.gone * largest:
            break
        x *= ACCURACY.growth_past if point.complexity < largest else ACCURACY.growth
    branch.why = branch.why or f"the complexity is still positive at x = {branch.last.x:.3g}"
    branch.crossing = _foretold(branch)
    return branch


def _with_enough(branch: Branch, point: Point) -> Point:
    """Return the solution with so many inner points that twice as many change the complexity little; the branch goes on
    with as many. Where the most are not enough, the point's residual is infinite."""
    equations = branch.equations
    while point.resolved and float(point.means.share) < ACCURACY.ample:
        outer, inner = equations.levels
        if inner >= ACCURACY.most_inner:
            return replace(point, residual=math.inf)
        finer = replace(equations, levels=(outer, inner + 1))
        again = solved(finer, point.x, point.at, point.slope)
        largest = max(abs(p.complexity) for p in (*branch.points, again))
        alike = abs(again.complexity - point.complexity) <= ACCURACY.off * largest
        # of one scrambling it is known to some of these shares; what too few inner points do is that it rises again
        falls = max(again.complexity, point.complexity) < branch.last.complexity
        if again.resolved and (alike or falls):
            branch.equations = equations
            return again
        equations, point = finer, again
    return point


def envelope_at(equations: StateEquations, known: Order) -> float:
    """Return the mean envelope where all states are one, which x is measured by."""
    one = StateOrder(known.M, known.Q, known.Q, known.V)
    return float(equations.means(one, 1e-6).envelope)


def _opened(equations: StateEquations, known: Order) -> StateOrder:
    """Return the replica-symmetric order parameters with part of the columns' spread moved apart between states."""
    rest = known.Q - known.M @ known.M.T
    return StateOrder(known.M, known.M @ known.M.T + ACCURACY.begun * rest, known.Q, known.V)


def _sought(equations: StateEquations, start: np.ndarray, unit: float) -> list[Point]:
    """Return where states are apart although there is one state at a small x, the smallest of these x first."""
    found = []
    for x in ACCURACY.sought:
        point = solved(equations, x * unit, start)
        if point.resolved and point.apart > ACCURACY.together:
            found.append(point)
            break
    return found


def _ended(point: Point) -> str:
    if point.apart <= ACCURACY.together:
        return f"all states are one from x = {point.x:.3g} on"
    if math.isinf(point.residual):
        return f"at x = {point.x:.3g} the inner points are too few to know the complexity"
    if point.means.share < ACCURACY.share:
        return f"at x = {point.x:.3g} only {100 * float(point.means.share):.0f} % of the inner points count"
    return f"at x = {point.x:.3g} the equations are not solved (they still move by {point.residual:.1g})"


def _foretold(branch: Branch) -> float | None:
    """Return the x at which the complexity vanishes, straight in log x through the last two points; None where it has
    not fallen far enough to say."""
    if len(branch.points) < 2:
        return None
    before, last = branch.points[-2:]
    a, b = before.complexity, last.complexity
    if not b < min(a, ACCURACY.nearly_gone * max(p.complexity for p in branch.points)):
        return None
    ahead = b / (a - b) * math.log(last.x / before.x)
    return last.x * math.exp(min(ahead, math.log(ACCURACY.ahead)))


def solved(equations: StateEquations, x: float, start: np.ndarray, slope: np.ndarray | None = None) -> Point:
    """Return the solution at x that the iteration reaches from `start` (k,), by the points of one scrambling."""

    def step(rows: np.ndarray) -> np.ndarray:
        return equations.map(rows, x)

    def iterate(begin: np.ndarray, slope: np.ndarray | None) -> FixedPoints:
        return anderson(
            step,
            begin[None],
            tol=ACCURACY.found,
            most=ACCURACY.steps,
            slope=None if slope is None else slope[None],
            enough=ACCURACY.nearly_found,
        )

    end = iterate(start, slope)
    if slope is None or end.residual[0] > ACCURACY.nearly_found or end.steps > ACCURACY.slow:
        slope = jacobian(step, end.x[0])
    if end.residual[0] > ACCURACY.nearly_found:
        again = iterate(end.x[0], slope)
        end = again if again.residual[0] < end.residual[0] else end
    at = end.x[0]
    order = equations.unpack(at)
    means = equations.means(order, x)
    return Point(x, at, order, means, equations.energies(order, means, x), float(end.residual[0]), slope)

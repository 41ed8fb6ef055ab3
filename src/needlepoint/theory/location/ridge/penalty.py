"""The penalties that make the predicted risk least, sought along the derivatives of the fixed point."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.learners import Ridge
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.numerics.trust_region import Descent, Place, descend, learned, least_in_box, possible_gain, signs
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.branches import APART, starts_of
from needlepoint.theory.location.ridge.equations import COARSE, SCRAMBLES, Equations, unpack
from needlepoint.theory.location.ridge.refining import for_all
from needlepoint.theory.location.ridge.sensitivity import Sensitivity, risk_at, sensitivities
from needlepoint.theory.location.ridge.solving import TOLERANCE

LOWEST, HIGHEST = 1e-3, 1e3
"""Bounds of the search for the penalties."""


@dataclass(frozen=True)
class Trail:
    """What a search leaves for the next one along a curve: where it ended, the curvature there, and its first grid."""

    place: Place
    curvature: np.ndarray
    grid: dict[float, Sensitivity]


@dataclass(frozen=True)
class Best:
    """The penalties of least predicted risk, (lam_key, lam_value).

    x          coordinates (6,) of the fixed point there, by the points of the search; `solves` of them on the way
    shortfall  how far the risk at these penalties may be above the least one
    factor     the penalties are known to this factor, the same for key and value where they are one
    """

    penalties: tuple[float, float]
    x: np.ndarray | None
    shortfall: float
    factor: tuple[float, ...]
    solves: int
    notes: tuple[str, ...] = ()
    trail: Trail | None = None


@dataclass
class Search:
    """The predicted risk as a function of the logarithms of the penalties, with its gradient.

    All penalties are solved with the same integration points, so that the risk is a smooth function of them up to what
    the iteration leaves. `axes` (2, k) are the directions that are searched: both penalties, or one common to both.
    """

    task: SingleLocation
    model: KeyValueAttention
    learner: Ridge
    seed: int = 0
    follows: bool = True
    """Whether a solution is continued from its neighbour; otherwise every one is sought from the starts."""
    progress: Progress = silent
    solves: int = field(default=0, init=False)

    @property
    def axes(self) -> np.ndarray:
        return np.ones((2, 1)) if self.learner.common else np.eye(2)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones(self.axes.shape[1])
        return math.log(LOWEST) * ones, math.log(HIGHEST) * ones

    def equations(self, x: np.ndarray, level: int | None = None, scrambles: int = 1) -> Equations:
        """Return the equations at the penalties exp(axes x)."""
        key, value = np.exp(self.axes @ x)
        penalties, level = (float(key), float(value)), self.level if level is None else level
        return Equations(
            self.task, self.model, self.learner.alpha, penalties, level, scrambles, self.seed, follows=True
        )

    @property
    def level(self) -> int:
        """Return log2 of the points of the search."""
        cheap = Equations(self.task, self.model, 1.0, (1.0, 1.0), COARSE, 1, self.seed).is_cheap
        return ACCURACY.penalty_points_cheap if cheap else ACCURACY.penalty_points_dear

    def __call__(self, x: np.ndarray, near: Place | None = None) -> Place | None:
        """Return the risk at x (k,) with its gradient, continued from the place `near` where there is one; None where
        the equations have no solution that their flow holds."""
        found = self._from(x, _ahead(self, near, x - near.x)) if near is not None and self.follows else self.sought(x)
        return None if found is None else self.place(x, found)

    def place(self, x: np.ndarray, found: Sensitivity) -> Place:
        return Place(x, found.risk, self.axes.T @ found.gradient, found)

    def sought(self, x: np.ndarray) -> Sensitivity | None:
        """Return the solution of lowest energy that the starts lead to."""
        ends: list[Sensitivity] = []
        for start in starts_of(self.learner.start).values():
            end = self._from(x, start)
            if end is not None and all(np.max(np.abs(end.x - other.x)) >= APART for other in ends):
                ends.append(end)
        return min(ends, key=lambda end: self._energy(x, end)) if ends else None

    def _count(self) -> None:
        self.solves += 1
        self.progress(self.solves / (self.solves + ACCURACY.penalty_solves))  # how many there will be is not known

    def _energy(self, x: np.ndarray, end: Sensitivity) -> float:
        equations, order = self.equations(x), unpack(end.x[None])
        return float(equations.energy(order, equations.means(order))[0])

    def _from(self, x: np.ndarray, start: np.ndarray) -> Sensitivity | None:
        """Return where the flow leads from coordinates `start` (6,), or None if that is no solution."""
        equations = self.equations(x)
        self._count()
        found = equations.settle(start[None], ACCURACY.found, ACCURACY.penalty_steps)
        if found.residual[0] > ACCURACY.nearly_found:
            return None
        end = sensitivities(equations, found.x)[0]
        held = np.all(np.isfinite(end.gradient)) and max(end.x[2], end.x[5]) < ACCURACY.held and end.is_held
        return end if held else None

    def rows(self, x: np.ndarray, level: int, start: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the risk at x of each of eight independent scramblings, (8,), and their fixed points, (8, 6), solved
        from `start` (8, 6) with the Jacobian `slope`; NaN where a scrambling has no solution nearby."""
        equations = self.equations(x, level, SCRAMBLES)
        self._count()
        found = equations.solve(start, ACCURACY.penalty_settled, for_all(slope), most=ACCURACY.penalty_steps)
        solved = _is_solved(found)
        risks = [
            risk_at(equations, end)[0] if fine else math.nan for end, fine in zip(found.ahead, solved, strict=True)
        ]
        equations.forget()
        return np.array(risks), np.where(solved[:, None], found.ahead, start)

    def slopes(self, place: Place, level: int) -> np.ndarray:
        """Return the gradient of the risk at a place for each of eight independent scramblings, (rows, k), without
        those that have no solution nearby."""
        equations, known = self.equations(place.x, level, SCRAMBLES), _data(place)
        self._count()
        start = np.repeat(known.x[None], SCRAMBLES, axis=0)
        found = equations.solve(start, ACCURACY.penalty_settled, for_all(known.slope), most=ACCURACY.penalty_steps)
        ends = sensitivities(equations, found.x)
        equations.forget()
        rows = [self.axes.T @ end.gradient for end, fine in zip(ends, _is_solved(found), strict=True) if fine]
        return np.array([row for row in rows if np.all(np.isfinite(row))])


def best_penalties(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: Ridge,
    seed: int = 0,
    tol: float | None = None,
    progress: Progress = silent,
    *,
    trail: Trail | None = None,
    follows: bool = True,
) -> Best:
    """Return the penalties of least predicted risk between LOWEST and HIGHEST, one of both if `learner.common`.

    Common penalties on a grid are solved from the starts; a descent along the derivatives leads from the best of them
    to the minimum (from each, where the slopes say that there are several minima between them). Then independent
    scramblings with more points say how well the gradient is known there, which corrects the penalties and bounds how
    far their risk may be above the least. Along a curve `trail` is what the neighbour's search left. `follows=False`
    seeks every solution from the starts, which costs more but cannot stay on a branch that is not the lowest.
    """
    search, tol = Search(task, model, learner, seed, follows, progress), tol or TOLERANCE
    grid = _grid(search, trail)
    curvature = _bend(search, grid) if trail is None else trail.curvature
    ends = [_descent(search, start, tol, curvature) for start in _starts(search, grid, trail)]
    if not ends:
        lowest = float(np.sqrt(LOWEST * HIGHEST))
        note = "no penalty was found at which the equations have a solution; the middle of their range is taken."
        return Best((lowest, lowest), None, math.inf, (math.inf,), search.solves, (note,))
    end = min(ends, key=lambda e: e.place.value)
    return _checked(search, end, tol, grid)


def _grid(search: Search, trail: Trail | None) -> dict[float, Sensitivity]:
    """Return the solutions at common penalties by their logarithms, the best of them sought from the starts.

    The strongest penalty comes first, where the equations are easiest to solve; each of the others is continued from
    the one before, or along a curve from the neighbour's at the same penalty. Where that was far above the neighbour's
    best it is kept as it is.
    """
    found: dict[float, Sensitivity] = {}
    least = math.inf if trail is None else min(known.risk for known in trail.grid.values())
    near: Place | None = None
    for penalty in sorted(ACCURACY.penalty_grid, reverse=True):
        x = np.full(search.axes.shape[1], math.log(penalty))
        known = trail.grid.get(float(x[0])) if trail is not None else None
        if known is not None and known.risk > least + ACCURACY.penalty_far:
            found[float(x[0])] = known
            continue
        place = search(x, search.place(x, known) if known is not None else near)
        if place is None and (trail is None or known is not None):  # the neighbour on a curve had no solution either
            place = search(x)
        if place is not None:
            near, found[float(x[0])] = place, _data(place)
    if found and trail is None:
        at = min(found, key=lambda log: found[log].risk)
        found[at] = search.sought(np.full(search.axes.shape[1], at)) or found[at]
    return found


def _starts(search: Search, grid: dict[float, Sensitivity], trail: Trail | None) -> list[Place]:
    """Return where to descend from: the neighbour's penalties on a curve; and the best point of the grid, or the lower
    end of every interval in which the risk has a minimum along the diagonal."""
    size = search.axes.shape[1]
    logs = sorted(grid)
    places = [search.place(np.full(size, at), grid[at]) for at in logs]
    if not places:
        return []
    best = min(places, key=lambda p: p.value)
    falling = [float(np.sum(p.gradient)) < 0 for p in places]
    valleys = [i for i, (a, b) in enumerate(itertools.pairwise(falling)) if a and not b]
    starts = [min(places[i : i + 2], key=lambda p: p.value) for i in valleys]
    if all(best is not start for start in starts):
        starts.append(best)
    if trail is not None:
        known = search(trail.place.x, trail.place)
        if known is not None:
            # a point of the grid that is lower than the neighbour's penalties is another valley
            starts = [known, *(s for s in starts if s.value < known.value)]
    return starts


def _bend(search: Search, grid: dict[float, Sensitivity]) -> np.ndarray | None:
    """Return a first curvature (k, k), from how the slope along the diagonal changes between points of the grid; None
    where it does not grow."""
    size, logs = search.axes.shape[1], sorted(grid)
    slopes = [float(np.sum(search.axes.T @ grid[at].gradient)) for at in logs]
    changes = [(b - a) / (size * (y - x)) for (a, b), (x, y) in zip(_pairs(slopes), _pairs(logs), strict=True)]
    rising = [change for change in changes if change > 0]
    return min(rising) * np.eye(size) if rising else None


def _pairs(values: list[float]) -> list[tuple[float, float]]:
    return list(itertools.pairwise(values))


def _descent(search: Search, start: Place, tol: float, curvature: np.ndarray | None) -> Descent:
    enough, most = ACCURACY.penalty_enough * tol, ACCURACY.penalty_solves
    return descend(search, start, *search.bounds, enough=enough, most=most, curvature=curvature)


def _checked(search: Search, end: Descent, tol: float, grid: dict[float, Sensitivity]) -> Best:
    """Return the answer: the place where the descent ended, corrected by independent scramblings, with how far its risk
    may be above the least."""
    place, level, wanted = end.place, max(COARSE, search.level - 3), ACCURACY.penalty_share * tol
    most = usual = level + ACCURACY.penalty_finer
    finest, (low, high) = level + ACCURACY.penalty_finest, search.bounds
    gain, off, curvature = math.inf, np.full(place.x.size, math.inf), end.curvature
    before: tuple[int, np.ndarray, np.ndarray] | None = None
    for check in range(ACCURACY.penalty_checks_most):
        if end.converged:  # the derivatives of the map led here, and the curvature was learned from them
            gradients, curvatures = search.slopes(place, level), None
        else:
            gradients, curvatures = _surfaces(search, place, level)
        if len(gradients) < ACCURACY.penalty_rows:
            break
        gradient, error = _middle(gradients)
        if curvatures is not None:
            curvature = _middle(curvatures)[0]
        elif before is not None and before[0] == level:  # with the same points a change of the gradient is curvature
            curvature = learned(curvature, place.x - before[1], gradient - before[2])
        before = level, place.x, gradient
        box = np.maximum(low - place.x, -1.0), np.minimum(high - place.x, 1.0)
        gain = possible_gain(gradient, error, curvature, *box)
        noise = possible_gain(np.zeros_like(gradient), error, curvature, *box)
        corners = [least_in_box(gradient + s * error, curvature, *box)[0] for s in signs(place.x.size)]
        off = np.max(np.abs(corners), axis=0)
        step, _ = least_in_box(gradient, curvature, *box)
        place = replace(place, x=place.x + step, data=replace(_data(place), x=_ahead(search, place, step)))
        if gain <= wanted:
            break
        if gain > tol / 2:  # beyond what is usual, to meet the tolerance; the solution takes its other half
            most = finest
        elif check + 1 >= ACCURACY.penalty_checks or level > usual:
            break
        if noise > wanted / 2:
            if level == most:
                break
            level = min(most, level + max(1, math.ceil(math.log2(noise / wanted) / (2 * ACCURACY.rate))))
    names = ("lam",) if search.learner.common else ("lam_key", "lam_value")
    ends = [n for n, x in zip(names, place.x, strict=True) if min(x - low[0], high[0] - x) < ACCURACY.penalty_step]
    notes = tuple(f"{name} is sought between {LOWEST:g} and {HIGHEST:g}, and ends at a bound." for name in ends)
    key, value = np.exp(search.axes @ place.x)
    factor = tuple(float(x) for x in np.exp(off))
    trail = Trail(place, curvature, grid)
    return Best((float(key), float(value)), _data(place).x, gain, factor, search.solves, notes, trail)


def _surfaces(search: Search, place: Place, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients (rows, k) and curvatures (rows, k, k) of the risk at a place, for each of the independent
    scramblings: those of the quadratic through the risks at the place and around it.

    Differences of solved risks, unlike derivatives of the map, know the jumps of the proximal map. Scramblings without
    a solution at one of the points are left out.
    """
    size, known, reach = place.x.size, _data(place), ACCURACY.penalty_reach
    axes = np.eye(size)
    pairs = [axes[i] + axes[j] for i in range(size) for j in range(i)]
    offsets = reach * np.array([np.zeros(size), *axes, *-axes, *pairs])
    start = np.repeat(known.x[None], SCRAMBLES, axis=0)
    centre, start = search.rows(place.x, level, start, known.slope)
    risks = [centre]
    for offset in offsets[1:]:
        ahead = np.clip(known.moves @ (search.axes @ offset), -ACCURACY.trend, ACCURACY.trend)
        risks.append(search.rows(place.x + offset, level, start + ahead, known.slope)[0])
    products = [(i, j) for i in range(size) for j in range(i + 1)]
    design = [[1.0, *u, *(u[i] * u[j] / (2.0 if i == j else 1.0) for i, j in products)] for u in offsets]
    solved = np.array(risks).T
    solved = solved[np.all(np.isfinite(solved), axis=1)]
    fits = np.linalg.solve(np.array(design), solved.T).T
    curvatures = np.zeros((len(solved), size, size))
    for column, (i, j) in enumerate(products):
        curvatures[:, i, j] = curvatures[:, j, i] = fits[:, 1 + size + column]
    return fits[:, 1 : 1 + size], curvatures


def _is_solved(found: FixedPoints) -> np.ndarray:
    return (found.residual <= ACCURACY.nearly_found) & np.all(np.isfinite(found.ahead), axis=1)


def _data(place: Place) -> Sensitivity:
    assert isinstance(place.data, Sensitivity)
    return place.data


def _ahead(search: Search, place: Place, step: np.ndarray) -> np.ndarray:
    """Return where the fixed point (6,) moves, to first order, if the penalties move by `step` (k,)."""
    known = _data(place)
    return known.x + np.clip(known.moves @ (search.axes @ step), -ACCURACY.trend, ACCURACY.trend)


def _middle(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the medians (k,) over rows (n, k), with three standard errors as if the rows were normal.

    Where the map jumps a little, the differences of a single scrambling can be off by far more than the others scatter;
    a mean would follow it.
    """
    middle = np.median(rows, axis=0)
    spread = 1.4826 * np.median(np.abs(rows - middle), axis=0)  # the standard deviation of a normal law
    return middle, 3 * math.sqrt(math.pi / 2) * spread / math.sqrt(len(rows) - 1)

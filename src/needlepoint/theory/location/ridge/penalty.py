"""The penalties that make the predicted risk of key-value attention least: what `theory.penalties` needs to know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from needlepoint.channels.replies import Minima
from needlepoint.core.results import Progress, silent
from needlepoint.learners import Ridge
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.branches import APART, starts_of
from needlepoint.theory.location.ridge.equations import COARSE, SCRAMBLES, Equations, unpack
from needlepoint.theory.location.ridge.refining import for_all
from needlepoint.theory.location.ridge.sensitivity import risk_at, sensitivities
from needlepoint.theory.location.ridge.solving import TOLERANCE
from needlepoint.theory.penalties.answers import Best, Trail
from needlepoint.theory.penalties.risk import RiskOfPenalties
from needlepoint.theory.penalties.search import least_risk
from needlepoint.theory.penalties.sensitivity import Sensitivity


@dataclass
class Search(RiskOfPenalties):
    """The predicted risk as a function of the logarithms of the penalties on key and value, with its gradient."""

    task: SingleLocation
    model: KeyValueAttention
    learner: Ridge
    seed: int = 0
    follows: bool = True
    progress: Progress = silent
    solves: int = field(default=0, init=False)
    _kept: dict[tuple[int, int], tuple[np.ndarray, Sequence[Minima]]] = field(
        default_factory=dict, init=False, repr=False
    )

    coarse = COARSE
    apart = APART

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.groups

    @property
    def common(self) -> bool:
        return self.learner.common

    @property
    def level(self) -> int:
        cheap = Equations(self.task, self.model, 1.0, (1.0, 1.0), COARSE, 1, self.seed).is_cheap
        return ACCURACY.penalty_points_cheap if cheap else ACCURACY.penalty_points_dear

    def equations(self, x: np.ndarray, level: int | None = None, scrambles: int = 1) -> Equations:
        """Return the equations at the penalties exp(axes x)."""
        key, value = self.penalties(x)
        level = self.level if level is None else level
        return Equations(self.task, self.model, self.learner.alpha, (key, value), level, scrambles, self.seed, True)

    def starts(self) -> Iterable[tuple[np.ndarray, None]]:
        for start in starts_of(self.learner.start).values():
            self._kept.clear()  # the minima of another start are no way to what this one leads to
            yield start, None

    def energy(self, x: np.ndarray, end: Sensitivity) -> float:
        equations, order = self.equations(x), unpack(end.x[None])
        return float(equations.energy(order, equations.means(order))[0])

    def found(self, x: np.ndarray, start: np.ndarray, branch: object) -> Sensitivity | None:
        equations = self.equations(x)
        near = self._near_by(x, equations)
        found = equations.settle(start[None], ACCURACY.found, ACCURACY.penalty_steps, near)
        if found.residual[0] > ACCURACY.nearly_found:
            return None
        end = sensitivities(equations, found.x)[0]
        self._keep(x, equations)
        held = np.all(np.isfinite(end.gradient)) and max(end.x[2], end.x[5]) < ACCURACY.held and end.is_held
        return end if held else None

    def rows(self, x: np.ndarray, level: int, start: np.ndarray, known: Sensitivity) -> tuple[np.ndarray, np.ndarray]:
        equations, start = self.equations(x, level, SCRAMBLES), np.broadcast_to(start, (SCRAMBLES, 6))
        self.count()
        found = self._solved_rows(x, equations, start, known)
        solved = _is_solved(found)
        risks = [
            risk_at(equations, end)[0] if fine else math.nan for end, fine in zip(found.ahead, solved, strict=True)
        ]
        self._keep(x, equations)
        return np.array(risks), np.where(solved[:, None], found.ahead, start)

    def gradients(self, x: np.ndarray, level: int, known: Sensitivity) -> list[np.ndarray]:
        equations = self.equations(x, level, SCRAMBLES)
        found = self._solved_rows(x, equations, np.repeat(known.x[None], SCRAMBLES, axis=0), known)
        ends = sensitivities(equations, found.x)
        self._keep(x, equations)
        return [end.gradient for end, fine in zip(ends, _is_solved(found), strict=True) if fine]

    def _solved_rows(self, x: np.ndarray, equations: Equations, start: np.ndarray, known: Sensitivity) -> FixedPoints:
        tol, most = ACCURACY.penalty_settled, ACCURACY.penalty_steps
        equations.recall(self._near_by(x, equations))
        return equations.solve(start, tol, for_all(known.slope), most=most)

    def _near_by(self, x: np.ndarray, equations: Equations) -> Sequence[Minima]:
        """Return the minima of sequences that the last solution with these points has found, if it was close to x."""
        place, minima = self._kept.get((equations.log2_points, equations.scrambles), (x, ()))
        return minima if np.max(np.abs(x - place)) <= ACCURACY.remembered else ()

    def _keep(self, x: np.ndarray, equations: Equations) -> None:
        """Keep the minima of sequences at a solution for the next one close by, and free the rest."""
        if equations.known and not equations.is_cheap:
            self._kept[equations.log2_points, equations.scrambles] = x, equations.known
        equations.forget()


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
    """Return the penalties (lam_key, lam_value) of least predicted risk, one of both if `learner.common`.

    Along a curve `trail` is what the neighbour's search left. `follows=False` seeks every solution from the starts,
    which costs more but cannot stay on a branch that is not the lowest.
    """
    return least_risk(Search(task, model, learner, seed, follows, progress), tol or TOLERANCE, trail)


def _is_solved(found: FixedPoints) -> np.ndarray:
    return (found.residual <= ACCURACY.nearly_found) & np.all(np.isfinite(found.ahead), axis=1)

"""The penalties that make the predicted risk least, for any field law and output: what `theory.penalties` needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.learners import Ridge
from needlepoint.models.fields import FieldModel, informed
from needlepoint.numerics.fixed_points import FixedPoints
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.order import Pattern
from needlepoint.theory.fields.population import losses
from needlepoint.theory.fields.ridge.equations import Equations, starting_points
from needlepoint.theory.fields.ridge.response import risk_at, sensitivities
from needlepoint.theory.fields.ridge.solutions import settled, wanted_starts
from needlepoint.theory.fields.symmetry import patterns
from needlepoint.theory.penalties.risk import RiskOfPenalties
from needlepoint.theory.penalties.sensitivity import Sensitivity


@dataclass
class Search(RiskOfPenalties):
    """The predicted risk, in units of that of predicting zero, as a function of the logarithms of the penalties on
    every kind of columns, with its gradient. A branch is the pattern of overlaps of a phase."""

    task: SequenceTask
    model: FieldModel
    learner: Ridge
    scale: float
    seed: int = 0
    follows: bool = True
    progress: Progress = silent
    solves: int = field(default=0, init=False)

    level, coarse = ACCURACY.response_level, ACCURACY.coarse
    apart = ACCURACY.apart

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.groups

    @property
    def common(self) -> bool:
        return self.learner.common

    def equations(self, x: np.ndarray, pattern: Pattern, level: int | None = None, scrambles: int = 1) -> Equations:
        """Return the equations of a phase at the penalties exp(axes x)."""
        learner, level = self.learner, self.level if level is None else level
        penalties = self.model.penalties(learner_lam(self.penalties(x)))
        given = self.task, self.model, learner.loss, learner.alpha, penalties, pattern
        return Equations(*given, level, scrambles, self.seed)

    def starts(self) -> Iterable[tuple[np.ndarray, Pattern]]:
        for pattern in patterns(self.task, self.model):
            every = starting_points(pattern, informed(self.task, self.model))
            yield from ((every[name], pattern) for name in wanted_starts(self.learner.start))

    def energy(self, x: np.ndarray, end: Sensitivity) -> float:
        equations = self.equations(x, _pattern(end.branch))
        order = equations.pattern.unpack(end.x)
        return equations.energy(order, equations.means(order))

    def found(self, x: np.ndarray, start: np.ndarray, branch: object) -> Sensitivity | None:
        equations = self.equations(x, _pattern(branch))
        place = settled(equations, "", start)
        if not place.held:
            return None
        end = sensitivities(equations, place.x[None], self.scale)[0]
        susceptible = float(np.max(np.diagonal(equations.pattern.unpack(end.x).V)))
        return end if np.all(np.isfinite(end.gradient)) and susceptible < ACCURACY.held else None

    def rows(self, x: np.ndarray, level: int, start: np.ndarray, known: Sensitivity) -> tuple[np.ndarray, np.ndarray]:
        equations = self.equations(x, _pattern(known.branch), level, ACCURACY.scrambles)
        start = np.broadcast_to(start, (ACCURACY.scrambles, known.x.size))
        self.count()
        found = equations.solve(start, known.slope, ACCURACY.response_settled)
        solved = _is_solved(found)
        risks = [
            risk_at(equations, row, end)[0] / self.scale if fine else math.nan
            for row, (end, fine) in enumerate(zip(found.ahead, solved, strict=True))
        ]
        return np.array(risks), np.where(solved[:, None], found.ahead, start)

    def gradients(self, x: np.ndarray, level: int, known: Sensitivity) -> list[np.ndarray]:
        equations = self.equations(x, _pattern(known.branch), level, ACCURACY.scrambles)
        start = np.repeat(known.x[None], ACCURACY.scrambles, axis=0)
        found = equations.solve(start, known.slope, ACCURACY.response_settled)
        ends = sensitivities(equations, found.x, self.scale)
        return [end.gradient for end, fine in zip(ends, _is_solved(found), strict=True) if fine]


def learner_lam(penalties: tuple[float, ...]) -> float | tuple[float, ...]:
    """Return penalties (G,) as `Ridge` takes them: a number where the model has one kind of columns."""
    return penalties if len(penalties) > 1 else penalties[0]


def risk_of_zero(task: SequenceTask, model: FieldModel, learner: Ridge) -> float:
    """Return the risk of predicting zero, the scale of risks."""
    zero = np.zeros((len(model.labels), len(task.teachers))), np.eye(len(model.labels))
    rows = losses(task, model, learner.loss, *zero, ACCURACY.coarse, 2)
    return learner.loss.metric_scale * float(np.mean(rows[:, 1]))


def _pattern(branch: object) -> Pattern:
    assert isinstance(branch, Pattern)
    return branch


def _is_solved(found: FixedPoints) -> np.ndarray:
    return (found.residual <= ACCURACY.nearly_found) & np.all(np.isfinite(found.ahead), axis=1)

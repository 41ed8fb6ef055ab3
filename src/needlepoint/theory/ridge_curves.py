"""Curves of ridge predictions: each point is continued from its neighbour instead of being sought."""

from __future__ import annotations

from needlepoint.core.dispatch import rule
from needlepoint.core.results import Prediction
from needlepoint.learners import Ridge
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.curves import Curves, Solver
from needlepoint.theory.predicting import Options
from needlepoint.theory.ridge import prediction, require_ridge
from needlepoint.theory.ridge_solutions import TOLERANCE, Solution, solve


@rule("predict_curves", SpikedSLR, KeyValueAttention, Ridge)
@rule("predict_curves", MaxSLR, KeyValueAttention, Ridge)
def curves_of_ridge(task: SingleLocation, model: KeyValueAttention, learner: Ridge) -> Solver | None:
    """A solver for curves at given penalties; the best penalties are sought point by point."""
    return None if isinstance(learner.lam, str) else _solve


def _solve(curves: Curves, options: Options) -> list[list[Prediction]]:
    total, done, answers = sum(map(len, curves)), 0, []
    for curve in curves:
        row: list[Prediction] = []
        near: list[Solution] = []
        for task, model, learner in curve:
            assert isinstance(task, SingleLocation)
            assert isinstance(model, KeyValueAttention)
            assert isinstance(learner, Ridge)
            require_ridge(task, model)
            found = solve(
                task,
                model,
                learner.alpha,
                learner.penalties,
                start=learner.start,
                tol=options.tol or TOLERANCE,
                seed=options.seed,
                near=near[-2:],
            )
            row.append(prediction(task, model, learner, learner, options, found))
            # two branches: the next point is sought again, so that none is missed
            near = [*near, found[0]] if len(found) == 1 and row[-1].status.finished else []
            done += 1
            options.progress(done / total)
        answers.append(row)
    return answers

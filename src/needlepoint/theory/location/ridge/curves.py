"""Curves of ridge predictions: each point is continued from its neighbours instead of being searched for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.lowering import lower
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction, silent
from needlepoint.learners import Ridge
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.curves import Curves, Question, Solver
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.prediction import (
    answers_for,
    at_best_penalties,
    branches,
    prediction,
    require_ridge,
)
from needlepoint.theory.location.ridge.solutions import Solution
from needlepoint.theory.penalties.answers import Trail


@rule("predict_curves", SpikedSLR, KeyValueAttention, Ridge)
@rule("predict_curves", MaxSLR, KeyValueAttention, Ridge)
def curves_of_ridge(task: SingleLocation, model: KeyValueAttention, learner: Ridge) -> Solver | None:
    """Return a solver for curves, at given penalties or at the best ones of each point; None where the equations are
    not for the question."""
    return _solve if answers_for(task, model, learner) else None


def _solve(curves: Curves, options: PredictionOptions) -> list[list[Prediction]]:
    total, done, answers = sum(map(len, curves)), 0, []
    quiet = replace(options, progress=silent)  # one progress bar for the whole, not one per point
    for curve in curves:
        row: list[Prediction] = []
        known: list[tuple[float, Solution]] = []
        trail: Trail | None = None
        places = _places(curve)
        for place, (task, model, learner) in zip(places, curve, strict=True):
            assert isinstance(task, SingleLocation)
            assert isinstance(model, KeyValueAttention)
            assert isinstance(learner, Ridge)
            require_ridge(task, model)
            near = {place - t: solution for t, solution in _spread(known[-ACCURACY.memory :], place)}
            if isinstance(learner.lam, str):
                answer, solution, trail = at_best_penalties(task, model, learner, quiet, trail, near=near)
                alone = answer.branch == "unique"
            else:
                found = branches(task, model, learner, quiet, near=near)
                answer = prediction(task, model, learner, learner, options, found)
                solution, alone = found[0], len(found) == 1
            row.append(answer)
            # after two branches, or a failure, the next point is searched for from the starts, so that none is missed
            for _, passed in known:
                passed.equations.forget()
            known = [*known, (place, solution)] if alone and answer.status.finished else []
            trail = trail if known else None
            done += 1
            options.progress(done / total)
        answers.append(row)
    return answers


def _spread(known: list[tuple[float, Solution]], place: float) -> list[tuple[float, Solution]]:
    """Return the known points without those that almost coincide with a later one, as seen from `place`: extrapolation
    would magnify their noise."""
    kept: list[tuple[float, Solution]] = []
    for t, solution in reversed(known):
        if not kept or kept[0][0] - t > ACCURACY.alike * (place - kept[0][0]):
            kept.insert(0, (t, solution))
    return kept


def _places(curve: Sequence[Question]) -> list[float]:
    """Return how far along the curve each question is: the summed changes of the logarithms of its parameters."""
    if not curve:
        return []
    numbers = np.array([[x for part in q if part is not None for x in lower(part)[1].values()] for q in curve])
    logs = np.log(np.abs(numbers) + ACCURACY.small)
    return np.concatenate([[0.0], np.cumsum(np.abs(np.diff(logs, axis=0)).sum(axis=1) + ACCURACY.small)]).tolist()

"""Many questions at once: the batched counterpart of `predict`, for questions that differ in real numbers only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from needlepoint.core.dispatch import check_question, check_tolerance, find, load
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.lowering import lower
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction, Progress, silent
from needlepoint.core.specs import Spec
from needlepoint.numerics.precision import float64

Question = tuple[Spec, Spec | None, Spec]
Curves = Sequence[Sequence[Question]]
Solver = Callable[[Curves, PredictionOptions], list[list[Prediction]]]
"""What a rule of the verb "predict_curves" gives for a question that it covers; None for the others."""

_T = TypeVar("_T")


def static_key(task: Spec, model: Spec | None, learner: Spec) -> Hashable | None:
    """Questions with equal keys can be solved in one batch; None where no batched rule covers the question."""
    if _solver(task, model, learner) is None:
        return None
    return tuple(None if part is None else lower(part)[0] for part in (task, model, learner))


@float64
def predict_curves(
    curves: Curves, *, seed: int = 0, tol: float | None = None, progress: Progress = silent
) -> list[list[Prediction]]:
    """What `predict(..., throw=False)` says of every question, curve by curve, computed together.

    A curve is a list of neighbouring questions. All questions must have the same static key; the answers depend on
    all of them only through rounding, and on the order of a curve only where a neighbour leads to a lower minimum.
    """
    check_tolerance("predict_curves", tol)
    questions = [question for curve in curves for question in curve]
    if not questions:
        return [[] for _ in curves]
    for question in questions:
        check_question("predict_curves", *question, seed)
    first, *others = {static_key(*question): question for question in questions}.items()
    if first[0] is None or others:
        raise InvalidParameter(
            "predict_curves: one call takes questions of one static key that a batched rule covers; "
            f"{first[1]!r} has {'none' if first[0] is None else 'another than ' + repr(others[0][1])}."
        )
    solver = _solver(*questions[0])
    assert solver is not None
    answers = solver(curves, PredictionOptions(seed, tol, progress))
    progress(1.0)
    return answers


def reshaped(curves: Curves, flat: Iterable[_T]) -> list[list[_T]]:
    """Answers in the order of the questions, cut into curves."""
    left = iter(flat)
    return [list(itertools.islice(left, len(curve))) for curve in curves]


def padded(count: int, least: int = 32) -> int:
    """The next power of two: few sizes, few compilations."""
    return max(least, 1 << (count - 1).bit_length())


def _solver(task: Spec, model: Spec | None, learner: Spec) -> Solver | None:
    load_rules(task, learner)
    try:
        covering = find("predict_curves", task, model, learner)
    except NoTheory:
        return None
    return covering(task, model, learner)


RULES = {
    "location.dynamics.descent": ("SpikedSLR", "ProjectedDescent"),
    "location.erf.many_optima": ("SpikedSLR", "MaxSLR", "Population"),
    "location.ridge.curves": ("SpikedSLR", "MaxSLR", "Ridge"),
}
"""Modules of `needlepoint.theory` that register curves, and for which tasks and learners."""


def load_rules(task: Spec | None = None, learner: Spec | None = None) -> None:
    """Fill the dispatch table, or only its part for this task and this learner."""
    load("needlepoint.theory", RULES, task, learner)

"""The rules that serve every field law, asked of tasks that have rules of their own, which are the second route."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks.honesty.record import Check, Question, Row

import needlepoint as ndl

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
START = ndl.Overlaps(0.2, 0.3, 0.1, 0.05, 0.1, 0.5, 0.6)


def _task(index: int, tokens: int = 2) -> tuple[np.random.Generator, Any]:
    rng = np.random.default_rng([22, index])
    snr, noise = math.exp(rng.uniform(*np.log([0.5, 6]))), float(rng.uniform(0, 0.5))
    return rng, (ndl.SpikedSLR(tokens, snr, noise=noise) if index % 2 else ndl.MaxSLR(tokens, snr, noise=noise))


def _ridge(index: int) -> Question:
    rng, task = _task(index)
    model = SOFTMAX if index % 4 < 2 else ndl.KeyValueAttention(ndl.Linear())
    learner = ndl.Ridge(math.exp(rng.uniform(*np.log([1, 8]))), math.exp(rng.uniform(*np.log([0.3, 2]))))
    return Question("predict", (task, model, learner), {"method": "fields"})


def _optimum(index: int) -> Question:
    return Question("predict", (_task(index)[1], SOFTMAX, ndl.Population()), {"method": "fields"})


def _flow(index: int) -> Question:
    return Question("predict", (_task(index)[1], SOFTMAX, ndl.GradientFlow(2.0, START, 1.0)), {"method": "fields"})


def _sgd(index: int) -> Question:
    rng, task = _task(2 * index)  # the max task: the other has a law of its own at every d
    learner = ndl.OnlineSGD(float(rng.uniform(0.002, 0.01)), 100, 2, START, record_every=50, d=50)
    return Question("predict", (task, SOFTMAX, learner), {"method": "fields"})


def _bayes(index: int) -> Question:
    rng, task = _task(index, tokens=2 + index % 3)
    if index % 4 == 1:  # a spread of its own reveals the place in the limit: nothing but the noise is left
        task = task.replace(relevant_std=float(rng.uniform(0.3, 2.0)))
    return Question("predict", (task, None, ndl.BayesOptimal()), {"method": "fields"})


def _beside(question: Question, answer: Any) -> Iterator[Row]:
    """Every metric that both rules give, where both trust their answer."""
    tol = answer.excess_risk.error / 4
    other = ndl.predict(*question.parts, throw=False, **({"tol": tol} if "Ridge" in str(question) else {}))
    if not (answer.ok and other.ok):
        return
    for name in ("excess_risk", "train_loss", "energy"):
        if name in answer.metrics and name in other.metrics:
            mine, theirs = answer.metrics[name], other.metrics[name]
            yield Row(name, mine.value, mine.error, theirs.value, theirs.error)


CHECKS = [
    Check(
        f"fields: {name}",
        (("SequenceTask", model, learner),),
        points,
        "the rules of single-location tasks",
        draw,
        _beside,
        quick,
    )
    for name, model, learner, points, draw, quick in (
        ("ridge", "FieldModel", "Ridge", 40, _ridge, (1,)),
        ("optimum", "FieldModel", "Population", 20, _optimum, (0,)),
        ("flow", "FieldModel", "GradientFlow", 20, _flow, (1,)),
        ("SGD", "FieldModel", "OnlineSGD", 20, _sgd, (0,)),
        ("Bayes", "None", "BayesOptimal", 40, _bayes, (0, 1)),
    )
]

"""Bayes-optimal learning from samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import posterior

import needlepoint as ndl


def draw(index: int) -> Question:
    draw = ask.Draw(11, index)
    task: Any = ask.maximal(draw, 1, top=30.0) if index % 2 else ask.spiked(draw, 1, std=False, top=30.0)
    task = task.replace(tokens=draw.one_of(2, 2, {1: 0.3, 2: 0.7}), noise=draw.between(0.03, 3.0))
    if task.snr == 0:
        task = task.replace(snr=1.0)
    return Question("predict", (task, None, ndl.BayesOptimal(draw.between(0.1, 30.0))))


def compare(question: Question, found: Any) -> Iterable[Row]:
    task, _, learner = question.parts
    o = found.overlaps
    if found.status is not ndl.Status.CONVERGED or not 1e-6 < o.key < 1 - 1e-6 or not 1e-6 < o.value < 1 - 1e-7:
        return []
    fine, coarse = (posterior.fixed_point(task, learner.alpha, (o.key, o.value), step) for step in (1.7, 2.1))
    return metric_rows(found, {n: (x, abs(x - coarse[n]) + 1e-14) for n, x in fine.items()})


CHECKS = (
    Check(
        "bayes_samples",
        (("SpikedSLR", "None", "BayesOptimal"), ("MaxSLR", "None", "BayesOptimal")),
        120,
        "derivatives of E log Z, an integral over one or two Gaussian numbers; Newton's method from the point reported",
        draw,
        compare,
        quick=(2,),
    ),
)

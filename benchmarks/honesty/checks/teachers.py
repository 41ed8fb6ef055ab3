"""The Bayes risk at given teachers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import kernels
from benchmarks.honesty.references.mellin import max_bayes, spiked_bayes

import needlepoint as ndl

LONG = 100
"""Tokens from which on the reference is an integral of positive terms."""


def draw(index: int) -> Question:
    draw = ask.Draw(2, index)
    if index % 3 == 0:
        return Question("predict", (ask.maximal(draw, 1e6), None, ndl.BayesOptimal()))
    if index % 3 == 1:
        return Question("predict", (ask.spiked(draw, 1e6, std=False), None, ndl.BayesOptimal()))
    # at another spread the norm is informative, and a fallback samples sequences: few tokens
    task = ask.spiked(draw, 50)
    d = draw.one_of(2, 3, round(draw.between(2, 50)), round(draw.between(2, 400)), None)
    return Question("predict", (task, None, ndl.BayesOptimal(d=d)))


def compare(question: Question, found: Any) -> Iterable[Row]:
    task, _, learner = question.parts
    if task.label_var == 1 and task.longest > LONG and math.isfinite(task.snr):
        # phases of a Fourier integral round at long sequences; positive terms do not
        value, coarse = (kernels.bayes(task, fine) for fine in (1.0, 1.25))
        error = abs(value - coarse) + 1e-14 * value
    elif isinstance(task, ndl.MaxSLR):
        value, error = max_bayes(task)
    elif learner.d is None and task.relevant_std != 1:
        value, error = 0.0, 0.0  # the limit of large d
    else:
        value, error = spiked_bayes(task, learner.d or 2)
    return metric_rows(found, {"excess_risk": (value, error)})


CHECKS = (
    Check(
        "bayes_teachers",
        (("SpikedSLR", "None", "BayesOptimal"), ("MaxSLR", "None", "BayesOptimal")),
        250,
        "Mellin transforms: closed complex moments of the likelihood ratio and a Fourier integral; over 100 tokens "
        "Laplace transforms on Gauss-Legendre panels",
        draw,
        compare,
        quick=(0, 1, 2, 3, 4, 8, 9, 10, 11, 13, 15),
    ),
)

"""The population risk at random overlaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.honesty import questions as ask
from benchmarks.honesty import references
from benchmarks.honesty.record import Check, Question, Row

import needlepoint as ndl


def draw(index: int) -> Question:
    draw = ask.Draw(1, index)
    unit = draw.chance(0.3)
    by_token, spiked = index % 2 == 0, index % 4 < 2
    if by_token:
        activation = draw.one_of(ask.erf(draw), ask.erf(draw), ndl.Linear(), ask.user("sigmoid_gate"))
        task = ask.spiked(draw, 1e6) if spiked else ask.maximal(draw, 1e4)
    else:
        activation = draw.one_of(ndl.Softmax(), ndl.Softplus(), ask.user("sink_softmax"))
        few = type(activation).__name__ == "sink_softmax"
        task = ask.spiked(draw, 8 if few else 1e6) if spiked else ask.maximal(draw, 6 if few else 1e3, top=10.0)
    model = ndl.KeyValueAttention(activation, unit)
    return Question("population_risk", (task, model, ask.overlaps(draw, unit)))


def compare(question: Question, found: Any) -> Iterable[Row]:
    task, model, overlaps = question.parts
    value, error = references.excess_risk(task, model.activation, overlaps)
    route = {"elementwise": "closed or 1-d", "kernel": "kernel", "general": "sampled"}[model.activation.form]
    # adding the noise of the labels rounds both sides
    rounding = 2e-16 * task.noise_var
    yield Row(f"risk, {route}", found.value, found.error, value + task.noise_var, error + rounding, found.kind)


CHECKS = (
    Check(
        "population_risk",
        (),
        400,
        "element-wise: one-dimensional means in 40 digits (spiked) or over the score (max); kernels: Laplace "
        "transforms on Gauss-Legendre panels",
        draw,
        compare,
        quick=(0, 1, 4, 5, 8, 9, 10, 11, 12, 13, 15, 16, 17, 19),
    ),
)

"""Gradient flow and projected descent: vectors that follow an automatic gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import vectors

import needlepoint as ndl


def draw_flow(index: int) -> Question:
    draw = ask.Draw(5, index)
    spiked, by_token = index % 2 == 0, index % 4 < 2
    if by_token:
        activation = draw.one_of(ask.erf(draw, 0.2, 3.0), ndl.Linear(), ask.user("sigmoid_gate"))
        task: Any = ask.spiked(draw, 30, top=10.0) if spiked else ask.maximal(draw, 30, top=10.0)
    elif spiked:
        activation = draw.one_of(ndl.Softmax(), ndl.Softmax(), ndl.Softplus(), ask.user("sink_softmax"))
        task = ask.spiked(draw, 1, top=10.0).replace(tokens=draw.one_of(1, 2, 2, {1: 0.3, 2: 0.7}))
    else:
        activation, task = ndl.Softmax(), ask.maximal(draw, 1, top=10.0).replace(tokens=2)
    start = ask.overlaps(draw, False, (0.1, 2.0))
    while start.value_sq > 4 or start.key_sq - start.key**2 < 0.01 * start.key_sq:
        start = ask.overlaps(draw, False, (0.1, 2.0))
    longest = max(1.0, 0.1 * task.longest * start.value_sq)
    time = draw.short(draw.between(0.1, 10.0) / longest)
    learner = ndl.GradientFlow(time, start, time)
    return Question("predict", (task, ndl.KeyValueAttention(activation), learner))


def compare_flow(question: Question, found: Any) -> Iterable[Row]:
    task, model, learner = question.parts
    if not found.status.ok:
        return []
    fine, coarse = (
        vectors.flow(task, model.activation, learner.start, learner.time, reach, rtol)
        for reach, rtol in ((8.5, 1e-12), (8.0, 1e-10))
    )
    known = {n: (x, abs(x - coarse[n]) + 1e-13 * (1 + abs(x))) for n, x in fine.items()}
    if learner.start.distance_to_manifold == 0:  # these stay at zero, by symmetry
        known |= dict.fromkeys(("value_on_key", "key_on_value", "key_dot_value"), (0.0, 0.0))
    return metric_rows(found, known)


def draw_descent(index: int) -> Question:
    draw = ask.Draw(6, index)
    task = ask.spiked(draw, 1000)
    activation = ask.erf(draw, 0.01, 3.0)
    start = ask.overlaps(draw, True)
    scale = activation.scale or 1.0
    # an edge of stability in a few, calm paths in most
    curvature = max(1.0, (task.snr * task.label_var + task.longest) * scale**2)
    lr = draw.short(draw.between(1e-3, 0.3) / curvature)
    learner = ndl.ProjectedDescent(lr, round(draw.between(1, 300)), start, schedule=draw.one_of(0.0, 0.0, 0.01))
    return Question("predict", (task, ndl.KeyValueAttention(activation, unit_norm=True), learner))


def compare_descent(question: Question, found: Any) -> Iterable[Row]:
    task, model, learner = question.parts
    steep = model.activation.scale * max(1.0, task.relevant_std)
    nodes = 16 * math.ceil(max(1.0, steep))  # few shapes to compile
    fine, coarse = (vectors.descent(task, model.activation, learner, learner.start, nodes, r) for r in (8.5, 8.0))
    return metric_rows(found, {n: (x, abs(x - coarse[n]) + 1e-14 * (1 + abs(x))) for n, x in fine.items()})


CHECKS = (
    Check(
        "gradient_flow",
        (("SpikedSLR", "KeyValueAttention", "GradientFlow"), ("MaxSLR", "KeyValueAttention", "GradientFlow")),
        150,
        "vectors along the automatic gradient of the risk on Gauss-Legendre nodes, DOP853 at 1e-12",
        draw_flow,
        compare_flow,
    ),
    Check(
        "projected_descent",
        (("SpikedSLR", "KeyValueAttention", "ProjectedDescent"),),
        150,
        "the recursion of unit vectors along the automatic gradient of the risk on Gauss-Legendre nodes",
        draw_descent,
        compare_descent,
        quick=(3, 4, 5),
    ),
)

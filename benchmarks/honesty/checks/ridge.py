"""Ridge training on location tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import ridge

import needlepoint as ndl


def draw(index: int) -> Question:
    draw = ask.Draw(12, index)
    linear = index % 2 == 0
    tokens = draw.one_of(2, 2, 3, 4) if linear else 2
    noise = draw.uniform(0.0, 1.0)
    if index % 4 < 2:
        task: Any = ndl.SpikedSLR(tokens, draw.between(0.1, 20.0), noise=noise)
    else:
        task = ndl.MaxSLR(tokens, math.inf if draw.chance(0.3) else draw.between(0.1, 20.0), noise)
    lam = (draw.between(1e-3, 10.0), draw.between(1e-3, 10.0)) if draw.chance(0.5) else draw.between(1e-3, 10.0)
    learner = ndl.Ridge(draw.between(0.3, 30.0), lam)
    return Question("predict", (task, ndl.KeyValueAttention(ndl.Linear() if linear else ndl.Softmax()), learner))


def compare(question: Question, found: Any) -> Iterable[Row]:
    """At the branch that is reported; whether another has a lower energy is not asked here."""
    task, model, learner = question.parts
    o, c = found.overlaps, found.conjugates
    solved = found.status in (ndl.Status.CONVERGED, ndl.Status.UNSTABLE, ndl.Status.NOISE_LIMITED)
    if not solved or not found.excess_risk.finite:
        return []
    start = [o.key, o.key_sq, c["key_susceptibility"], o.value, o.value_sq, c["value_susceptibility"]]
    if o.key_sq - o.key**2 < 1e-10 or o.value_sq - o.value**2 < 1e-10:
        return []
    rows = metric_rows(found, ridge.fixed_point(task, model.activation, learner, np.array(start), 15, 16))
    if found.status is not ndl.Status.UNSTABLE:
        return rows
    # by the equations' own account these numbers are solved: they are listed apart
    return [Row(f"{r.metric}, UNSTABLE", r.value, r.error, r.reference, r.reference_error, r.kind) for r in rows]


CHECKS = (
    Check(
        "ridge",
        (("SpikedSLR", "KeyValueAttention", "Ridge"), ("MaxSLR", "KeyValueAttention", "Ridge")),
        120,
        "the equations on 16 scramblings of 32,768 other points, proximal maps by halving (linear) or a dense scan "
        "(softmax over two tokens), from the point reported",
        draw,
        compare,
    ),
)

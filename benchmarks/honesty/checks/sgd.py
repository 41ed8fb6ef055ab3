"""Online SGD: on unit spheres against SGD in d dimensions, run for run in law."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import vectors
from scipy import special

import needlepoint as ndl

RUNS = 100
"""Of the library; the reference has sixteen times as many."""


def draw(index: int) -> Question:
    draw = ask.Draw(13, index)
    d, length = draw.one_of(6, 8, 12, 20), draw.one_of(1, 2, 3, 5)
    task = ask.spiked(draw, 1).replace(tokens=length, snr=draw.between(0.1, 20.0))
    activation = ask.erf(draw, 0.1, 2.0)
    start = ask.overlaps(draw, True)
    learner = ndl.OnlineSGD(
        draw.between(3e-3, 0.1), round(draw.between(1, 30)), draw.one_of(1, 2, 4), start, d=d, runs=RUNS
    )
    seed = int(draw.rng.integers(1000))
    return Question("predict", (task, ndl.KeyValueAttention(activation, unit_norm=True), learner), {"seed": seed})


def compare(question: Question, found: Any) -> Iterable[Row]:
    task, model, learner = question.parts
    k, v = runs(task, model.activation, learner, 16 * RUNS, 5 + question.options["seed"])
    overlaps = {
        "key": k[:, 0],
        "value": v[:, 1],
        "value_on_key": v[:, 0],
        "key_on_value": k[:, 1],
        "key_dot_value": (k * v).sum(axis=1),
    }
    known = {n: (float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))) for n, x in overlaps.items()}
    return metric_rows(found, known)


def runs(task: Any, activation: Any, learner: Any, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Key and value (runs, d) after the steps, with vectors and sequences in d dimensions."""
    rng = np.random.default_rng(seed)
    d, L, B = learner.d, task.fixed_length, learner.batch
    a, b, o = activation.scale, activation.shift, activation.offset
    k, v = (np.zeros((count, d)) for _ in range(2))
    k[:, :4], v[:, :4] = vectors.start_vectors(learner.start)
    for t in range(learner.steps):
        scale = a / (1 + learner.schedule * t)
        X = rng.standard_normal((count, B, L, d))
        X[:, :, 0] *= task.relevant_std
        X[:, :, 0, 0] += np.sqrt(task.snr)
        y = X[:, :, 0, 1] + task.noise * rng.standard_normal((count, B))
        chi, z = np.einsum("rbld,rd->rbl", X, k), np.einsum("rbld,rd->rbl", X, v)
        w = o + special.erf(scale * chi + b)
        slope = 2 / np.sqrt(np.pi) * scale * np.exp(-((scale * chi + b) ** 2))
        r = 2 * ((w * z).sum(axis=-1) - y)[..., None] / B
        gk, gv = np.einsum("rbl,rbld->rd", r * slope * z, X), np.einsum("rbl,rbld->rd", r * w, X)
        k = k - learner.lr * (gk - (gk * k).sum(axis=1, keepdims=True) * k)
        v = v - learner.lr * (gv - (gv * v).sum(axis=1, keepdims=True) * v)
        k, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (k, v))
    return k, v


CHECKS = (
    Check(
        "sgd_sphere",
        (("SpikedSLR", "KeyValueAttention", "OnlineSGD"),),
        60,
        "SGD of vectors in d dimensions on sampled sequences, sixteen times the runs (standard errors on both sides)",
        draw,
        compare,
        quick=(0, 1),
    ),
)

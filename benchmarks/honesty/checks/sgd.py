"""Online SGD: on unit spheres against SGD in d dimensions, in law; with free norms against another integration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from benchmarks.honesty import questions as ask
from benchmarks.honesty.record import Check, Question, Row, metric_rows
from benchmarks.honesty.references import diffusion, vectors
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


def draw_limit(index: int) -> Question:
    draw = ask.Draw(14, index)
    activation = draw.one_of(ask.erf(draw, 0.2, 2.0), ndl.Linear(), ask.user("sigmoid_gate"))
    if index % 2:
        task: Any = ask.spiked(draw, 20, top=10.0)
    else:
        task = ask.maximal(draw, 1).replace(tokens=draw.one_of(1, 2, 2, {1: 0.4, 2: 0.6}), snr=draw.between(0.1, 3.0))
    start = ask.overlaps(draw, False, (0.1, 1.5))
    while start.value_sq > 2 or start.key_sq - start.key**2 < 0.01 * start.key_sq:
        start = ask.overlaps(draw, False, (0.1, 1.5))
    d = 1000
    eta = draw.between(0.02, 0.5) / max(1.0, 0.3 * task.longest * start.value_sq)
    learner = ndl.OnlineSGD(draw.short(eta / (2 * d)), round(d * draw.between(0.3, 3.0)), 1, start, d=d)
    return Question("predict", (task, ndl.KeyValueAttention(activation), learner.replace(batch=draw.one_of(1, 4))))


def compare_limit(question: Question, found: Any) -> Iterable[Row]:
    task, model, learner = question.parts
    if not found.status.ok:
        return []
    fine, coarse = (diffusion.end(task, model.activation, learner, n, r) for n, r in ((12, 1e-10), (9, 1e-8)))
    known = {n: (x, abs(x - coarse[n]) + 1e-12 * (1 + abs(x))) for n, x in fine.items()}
    if learner.start.distance_to_manifold == 0:
        known |= dict.fromkeys(("value_on_key", "key_on_value", "key_dot_value"), (0.0, 0.0))
    return metric_rows(found, known)


CHECKS = (
    Check(
        "sgd_limit",
        (("SpikedSLR", "KeyValueAttention", "OnlineSGD"), ("MaxSLR", "KeyValueAttention", "OnlineSGD")),
        60,
        "DOP853 with the automatic gradient of the risk, and moments of single tokens for the squares of steps",
        draw_limit,
        compare_limit,
    ),
    Check(
        "sgd_sphere",
        (("SpikedSLR", "KeyValueAttention", "OnlineSGD"),),
        60,
        "SGD of vectors in d dimensions on sampled sequences, sixteen times the runs (standard errors on both sides)",
        draw,
        compare,
    ),
)

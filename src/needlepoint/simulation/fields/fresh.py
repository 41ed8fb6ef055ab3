"""Means over fresh sequences: risk, error rate, and what of the risk is label noise."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.lowering import Template
from needlepoint.losses import Loss, Square
from needlepoint.models.fields import FieldModel
from needlepoint.simulation.fields.accuracy import ACCURACY
from needlepoint.simulation.fields.problem import Kinds, kinds_and_numbers
from needlepoint.tasks.sequence import SequenceTask, noise_var_of


def fresh_metrics(
    task: SequenceTask,
    model: FieldModel,
    loss: Loss,
    teachers: np.ndarray,
    weights: np.ndarray,
    key: Any,
    samples: int,
) -> dict[str, float]:
    """Return `risk`, and what follows from it, for teachers (S, d) and weights (P, d), over `samples` fresh sequences
    of each length."""
    kinds, numbers = kinds_and_numbers(model, loss)
    chunk = max(1, min(samples, ACCURACY.drawn_numbers // (task.longest * teachers.shape[1])))
    means = np.zeros(2)
    for length, probability in task.length_law:
        one = task.at(length)
        total = np.zeros(2)
        for i, start in enumerate(range(0, samples, chunk)):
            here = jax.random.fold_in(jax.random.fold_in(key, length), i)
            found = np.stack(_losses(kinds, one.template, chunk, numbers, one.numbers, here, teachers, weights))
            total += found[:, : samples - start].sum(axis=1)
        means += probability * total / samples
    risk, wrong = (float(x) for x in means)
    metrics = {"risk": risk}
    floor = noise_floor(task, loss)
    if floor is not None:
        metrics["excess_risk"] = risk - floor
    if loss.signs:
        metrics["error_rate"] = wrong
    return metrics


def in_their_span(teachers: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return teachers and weights in coordinates of the space that they span, at most (S, S + P) and (P, S + P).

    Tokens are Gaussian, so that their other coordinates enter no output and need not be drawn.
    """
    coordinates = np.linalg.qr(np.concatenate([teachers, weights]).T)[1].T
    return coordinates[: len(teachers)], coordinates[len(teachers) :]


def noise_floor(task: SequenceTask, loss: Loss) -> float | None:
    """Return the part of the risk that is label noise, under the squared error and where the noise is added to the
    label; None elsewhere, where nothing of the kind can be subtracted."""
    var = noise_var_of(task)
    return loss.weight * var if isinstance(loss, Square) and var is not None else None


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _losses(
    kinds: Kinds, template: Template, n: int, numbers: Any, law: Any, key: Any, teachers: Any, weights: Any
) -> Any:
    """Return the losses of n fresh sequences, in the units of `risk`, and whether the sign of the output is wrong."""
    model, loss = (kind.bind(those) for kind, those in zip(kinds, numbers, strict=True))
    x, y, _ = template.bind(law).draw_vectors(key, teachers, n)

    def one(fields: Any, y: Any) -> Any:
        f = model.outputs(fields)
        wrong = jnp.any(jnp.sign(f) != y)
        return loss.metric_scale * loss.cost(y, f), jnp.asarray(wrong, float)

    return jax.vmap(one)(x @ weights.T, y)

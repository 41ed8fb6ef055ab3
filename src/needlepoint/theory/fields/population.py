"""Population risk at given overlaps: the mean loss over the law of the fields."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.losses import Logistic, Loss
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.arrays import Array
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.law import Kind, Numbers, normals, parts, with_roots


class Losses(NamedTuple):
    """Mean loss, mean loss of predicting zero, and the share of wrong signs."""

    loss: Array
    of_zero: Array
    wrong: Array


@functools.partial(jax.jit, static_argnums=0)
def _losses(kind: Kind, numbers: Numbers, M: Array, roots: Array, base: Array) -> Losses:
    seq = with_roots(kind, numbers, M, roots, base)
    _, model, loss = kind.bound(numbers)

    def one(y: Array, f: Array) -> Losses:
        out = model.outputs(f)
        wrong = jnp.asarray(jnp.any(jnp.sign(y) != jnp.sign(out)), float)
        return Losses(loss.cost(y, out), loss.cost(y, jnp.zeros_like(out)), wrong)

    found = jax.vmap(one, -1)(seq.y, seq.columns)
    return Losses(*(jnp.mean(seq.weight * x) for x in found))


def roots_at(kind: Kind, M: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Return roots (tokens, P, P) of Q - M_l M_l^T. They may be singular, as they are at the edge Q = M M^T."""
    found = []
    if not (np.all(np.isfinite(M)) and np.all(np.isfinite(Q))):
        return np.full((kind.tokens, *Q.shape), np.nan)
    for mask in kind.mask:
        seen = M * mask
        values, vectors = np.linalg.eigh(Q - seen @ seen.T)
        found.append((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    return np.stack(found)


def losses(
    task: SequenceTask,
    model: FieldModel,
    loss: Loss,
    M: np.ndarray,
    Q: np.ndarray,
    log2_points: int,
    scrambles: int,
    seed: int = 0,
) -> np.ndarray:
    """Return mean loss, that of predicting zero and the share of wrong signs by each scrambling, (scrambles, 3)."""
    rows = np.zeros((scrambles, 3))
    for probability, kind, numbers in parts(task, model, loss):
        roots = roots_at(kind, M, Q)
        for i, blocks in enumerate(normals(kind.normals, log2_points, scrambles, seed)):
            for base in blocks:
                found = np.array([float(x) for x in _losses(kind, numbers, M, roots, base)])
                rows[i] += probability / len(blocks) * found
    return rows


class Risks(NamedTuple):
    """The risk (the mean of the loss in the units of metrics), that of predicting zero, and the share of wrong signs
    where the loss is about signs."""

    risk: Estimate
    of_zero: Estimate
    error_rate: Estimate | None


def risks(
    task: SequenceTask,
    model: FieldModel,
    loss: Loss,
    M: np.ndarray,
    Q: np.ndarray,
    log2_points: int = ACCURACY.test_points,
    seed: int = 0,
) -> Risks:
    """eq:population-risk. Return the population risk at overlaps M (P, S) and Q (P, P)."""
    rows = losses(task, model, loss, M, Q, log2_points, ACCURACY.scrambles, seed)
    scale = loss.metric_scale
    wrong = estimate(rows[:, 2]) if isinstance(loss, Logistic) else None
    return Risks(estimate(scale * rows[:, 0]), estimate(scale * rows[:, 1]), wrong)


def estimate(rows: np.ndarray) -> Estimate:
    """Return the mean over scramblings with three standard errors; one that is not a number has no error."""
    if not np.all(np.isfinite(rows)):
        return Estimate(math.nan, math.inf)
    return Estimate(float(np.mean(rows)), 3 * float(np.std(rows, ddof=1)) / math.sqrt(len(rows)))

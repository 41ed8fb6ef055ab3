"""Teachers and weights as vectors in d dimensions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.overlaps import FieldOverlaps, Overlaps, as_matrices
from needlepoint.models.fields import FieldModel
from needlepoint.simulation.location.vectors import frames
from needlepoint.tasks.sequence import SequenceTask


class Vectors(NamedTuple):
    """Orthonormal teachers (runs, S, d) and weights (runs, P, d)."""

    teachers: np.ndarray
    weights: np.ndarray


def with_overlaps(
    rng: np.random.Generator,
    task: SequenceTask,
    model: FieldModel,
    overlaps: Overlaps | FieldOverlaps,
    runs: int,
    d: int,
) -> Vectors:
    """Return vectors in R^d with exactly these overlaps, in uniformly random directions."""
    M, Q = as_matrices(overlaps, model.labels, task.teachers)
    rest = remainder(M, Q)
    rest = rest[:, np.any(rest != 0.0, axis=0)]
    needed = M.shape[1] + rest.shape[1]
    if d < needed:
        raise InvalidParameter(f"simulate(d={d}): d must be >= {needed} to hold vectors with {overlaps!r}.")
    basis = frames(rng, runs, d, needed)
    return Vectors(basis[:, : M.shape[1]], np.concatenate([M, rest], axis=1) @ basis)


def remainder(M: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Return F (..., P, P) with F F^T = Q - M M^T: the columns outside the span of the teachers.

    Directions below the rounding error of the norms are 0.
    """
    values, vectors = np.linalg.eigh(Q - M @ np.swapaxes(M, -1, -2))
    least = 1e-12 * np.max(np.abs(Q), axis=(-1, -2))[..., None]
    return vectors * np.sqrt(np.where(values > least, values, 0.0))[..., None, :]


def on_spheres(rng: np.random.Generator, task: SequenceTask, model: FieldModel, runs: int, d: int) -> Vectors:
    """Return teachers, and columns of norm 1 in directions of their own."""
    weights = rng.standard_normal((runs, len(model.labels), d))
    return Vectors(frames(rng, runs, d, len(task.teachers)), weights / np.linalg.norm(weights, axis=2, keepdims=True))

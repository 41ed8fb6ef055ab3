"""Descent directions from small symmetric matrices, many at once."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def solve_positive(matrix: Any, vector: Any) -> Any:
    """Return the solution (k, n) for small symmetric matrices (k, k, n) and vectors (k, n), by an LDL^T whose negative
    pivots are made positive.

    With a gradient as the vector it is minus a descent direction for any matrix. The loops are unrolled, because
    batched LAPACK calls cost more than the arithmetic.
    """
    k = vector.shape[0]
    lower: list[list[Any]] = [[None] * k for _ in range(k)]
    pivots: list[Any] = []
    for j in range(k):
        pivot = matrix[j, j] - sum((lower[j][i] ** 2 * pivots[i] for i in range(j)), 0.0)
        pivots.append(jnp.maximum(jnp.abs(pivot), 1e-12))
        for i in range(j + 1, k):
            cross = sum((lower[i][m] * lower[j][m] * pivots[m] for m in range(j)), 0.0)
            lower[i][j] = (matrix[i, j] - cross) / pivots[j]
    forward: list[Any] = []
    for i in range(k):
        forward.append(vector[i] - sum((lower[i][j] * forward[j] for j in range(i)), 0.0))
    back: list[Any] = [None] * k
    for i in reversed(range(k)):
        back[i] = forward[i] / pivots[i] - sum((lower[j][i] * back[j] for j in range(i + 1, k)), 0.0)
    return jnp.stack(back)

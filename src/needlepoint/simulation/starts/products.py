"""Products of a data set with the weights of many starts: one matrix product each, where one start has vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from needlepoint.simulation.starts.accuracy import ACCURACY


def fields_of(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the fields X w of tokens (n, length, d) along weights (starts, P, d), (starts, n, length, P)."""
    (n, length, d), (starts, columns, _) = x.shape, weights.shape
    fields = x.reshape(-1, d) @ weights.reshape(-1, d).T
    return np.ascontiguousarray(np.moveaxis(fields.reshape(n, length, starts, columns), 2, 0))


def pulled_by(x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return the sums over sequences of X^T slopes, (starts, P, d), for slopes (starts, n, length, P)."""
    starts, n, length, columns = slopes.shape
    flat = np.moveaxis(slopes, 0, 2).reshape(n * length, starts * columns)
    return (flat.T @ x.reshape(n * length, -1)).reshape(starts, columns, -1)


def blocks(n: int, numbers: int) -> Iterator[slice]:
    """Return slices of n sequences that have at most `ACCURACY.block` numbers, if a sequence has so many."""
    step = max(1, ACCURACY.block // numbers)
    return (slice(i, i + step) for i in range(0, n, step))

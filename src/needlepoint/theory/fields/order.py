"""The unknowns of the replica-symmetric equations, which of them a symmetry keeps at zero, and their coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

LEAST_SPREAD = 1e-3
"""Least root of an eigenvalue of Q - M M^T: where columns vanish or become dependent its logarithm would have no limit.
What it adds to Q is 1e-6."""

ROUNDING = 1e-13
"""Digits that are lost in Q - M M^T, relative to the squares of the overlaps."""

LARGEST_SUSCEPTIBILITY = math.exp(25.0)
"""Bound of V; there neither the penalty nor the data hold a weight."""


class Order(NamedTuple):
    """Overlaps with the teachers M (P, S), products of the columns Q (P, P), susceptibilities V (P, P)."""

    M: np.ndarray
    Q: np.ndarray
    V: np.ndarray


class Conjugates(NamedTuple):
    """The conjugates (hats) of the order parameters, of the same shapes."""

    M: np.ndarray
    Q: np.ndarray
    V: np.ndarray


@dataclass(frozen=True)
class Pattern:
    """Which overlaps may differ from zero: those whose column and teacher change sign under the same symmetries.

    `columns` (P,) and `teachers` (S,) have the signs under each symmetry, as tuples.
    """

    columns: tuple[tuple[int, ...], ...]
    teachers: tuple[tuple[int, ...], ...]
    name: str = "unique"
    gauges: tuple[tuple[int, ...], ...] = ()
    """Signs (P,) of columns that may all change without changing the output: of two such solutions one is kept."""

    def fixed(self, order: Order) -> Order:
        """Return the order parameters with the signs of free gauges chosen: overlaps with teachers sum to >= 0."""
        M, Q, V = order
        for gauge in self.gauges:
            signs = np.array(gauge, float)
            if np.sum(M[signs < 0]) < 0:
                M, Q, V = signs[:, None] * M, signs[:, None] * Q * signs, signs[:, None] * V * signs
        return Order(M, Q, V)

    @property
    def M(self) -> np.ndarray:
        return np.array([[c == t for t in self.teachers] for c in self.columns])

    @property
    def Q(self) -> np.ndarray:
        return np.array([[c == d for d in self.columns] for c in self.columns])

    @property
    def below(self) -> np.ndarray:
        """Return the entries of a root below its diagonal, (P, P)."""
        return np.tril(self.Q, -1)

    @property
    def coordinates(self) -> int:
        return int(self.M.sum()) + 2 * (len(self.columns) + int(self.below.sum()))

    def pack(self, order: Order) -> np.ndarray:
        """Return the coordinates (k,): M, then the roots of Q - M M^T and of V with logarithms on the diagonal."""
        found = [order.M[self.M]]
        digits = ROUNDING * float(np.sum(order.M**2))
        # the difference loses digits where the overlaps are large, and may then not be positive
        found += [self.packed(matrix, digits) for matrix in (order.Q - order.M @ order.M.T, order.V)]
        whole = np.concatenate(found)
        return whole if np.all(np.isfinite(whole)) else np.full(self.coordinates, np.nan)

    def packed(self, matrix: np.ndarray, digits: float = 0.0) -> np.ndarray:
        """Return the coordinates of a positive matrix (P, P) with this pattern: the logarithms of the diagonal of its
        root, and what is below. Eigenvalues are raised to the least spread, and to what `digits` were lost."""
        if not np.all(np.isfinite(matrix)):
            return np.full(len(self.columns) + int(self.below.sum()), np.nan)
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        least = max(LEAST_SPREAD**2, digits, ROUNDING * float(values[-1]))
        upper = np.asarray(np.linalg.qr((vectors * np.sqrt(np.maximum(values, least))).T, mode="r"))
        root = np.transpose(upper * np.sign(np.diagonal(upper))[:, None])
        return np.concatenate([np.log(np.diagonal(root)), root[self.below]])

    def root(self, x: np.ndarray) -> np.ndarray:
        """Return the root (P, P), with zeros above its diagonal, of the matrix with these coordinates."""
        P = len(self.columns)
        root = np.diag(np.exp(x[:P]))
        root[self.below] = x[P:]
        return root

    def unpack(self, x: np.ndarray) -> Order:
        count = len(self.columns) + int(self.below.sum())
        first, *rest = np.split(x, int(self.M.sum()) + count * np.arange(2))
        M = np.zeros(self.M.shape)
        M[self.M] = first
        Q, V = (root @ root.T for root in map(self.root, rest))
        return Order(M, Q + M @ M.T, V)

    def updated(self, hat: Conjugates, penalties: np.ndarray) -> Order:
        r"""eq:field-equations. Return $V = (r + \hat V)^{-1}$, $M = V\hat m$, $Q = V(\hat m\hat m^\top + \hat q)V$."""
        if not all(np.all(np.isfinite(x)) for x in hat):
            return Order(*(np.full(x.shape, np.nan) for x in hat))
        held, vectors = np.linalg.eigh(np.diag(penalties) + hat.V * self.Q)
        # where the curvature is negative nothing holds the weight, and V is set to its bound
        V = (vectors / np.maximum(held, 1 / LARGEST_SUSCEPTIBILITY)) @ vectors.T * self.Q
        M = V @ (hat.M * self.M)
        spread, axes = np.linalg.eigh(V @ (hat.Q * self.Q) @ V)
        rest = (axes * np.maximum(spread, LEAST_SPREAD**2)) @ axes.T * self.Q
        return Order(M, rest + M @ M.T, V)

"""Numbers that describe one head's map M = W_Q^T W_K, all from p x p matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ranks:
    r"""How many directions a spectrum has, with the shares $e_i = s_i^2/\sum_j s_j^2$.

    effective      $\exp(-\sum_i e_i\log e_i)$
    stable         $\sum_i s_i^2/s_1^2$
    participation  $1/\sum_i e_i^2$
    r90            the least number of values with nine tenths of the sum of squares
    """

    effective: float
    stable: float
    participation: float
    r90: int


def ranks(values: np.ndarray) -> Ranks:
    """eq:head-ranks. Return the four ranks of singular values, sorted from the largest; all zero if they are."""
    squares = np.asarray(values, float) ** 2
    total = squares.sum()
    if total == 0:
        return Ranks(0.0, 0.0, 0.0, 0)
    shares = squares / total
    entropy = -np.sum(shares[shares > 0] * np.log(shares[shares > 0]))
    r90 = min(int(np.searchsorted(np.cumsum(shares), 0.9 - 1e-12) + 1), len(shares))
    return Ranks(float(np.exp(entropy)), float(total / squares[0]), float(1 / np.sum(shares**2)), r90)


def triangles(query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the triangular factors R_Q and R_K (p, p) of the transposed weights: M has the singular values of
    R_Q R_K^T, and with positions in between those of R_Q R_t R_K^T."""
    return np.linalg.qr(query.T).R, np.linalg.qr(key.T).R


def symmetric_share(query: np.ndarray, key: np.ndarray) -> float:
    r"""eq:symmetric-share. Return $|(M + M^T)/2|^2/|M|^2 = \frac12(1 + \mathrm{tr}M^2/|M|^2)$: 1 for a symmetric map,
    1/2 for independent queries and keys."""
    size = np.sum((query @ query.T) * (key @ key.T))
    cross = key @ query.T
    return float(0.5 * (1 + np.sum(cross * cross.T) / size)) if size > 0 else float("nan")


def trace_share(query: np.ndarray, key: np.ndarray) -> float:
    r"""eq:trace-share. Return $\mathrm{tr}M/(|M|\sqrt p)$: 0 for independent queries and keys, 1 for a multiple of a
    projector."""
    size = np.sum((query @ query.T) * (key @ key.T))
    return float(np.sum(query * key) / np.sqrt(size * len(query))) if size > 0 else float("nan")

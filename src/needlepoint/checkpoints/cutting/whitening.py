"""The best map of lower rank between queries and keys, from their second moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_JITTER = 1e-9
"""What is added to a moment matrix that is singular, relative to its mean diagonal: fewer tokens than coordinates."""


@dataclass(frozen=True)
class HeadMap:
    r"""eq:whitened-head. The whitened spectrum $\tilde s$ (p) of a head, and the factors of its best maps: of rank r,
    $P_r = $ `left`[:, :r] diag($\tilde s$[:r]) `right`[:r], which acts on queries as q P."""

    values: np.ndarray
    left: np.ndarray
    right: np.ndarray

    def at(self, rank: int) -> np.ndarray:
        """Return P of a rank from 0 to p, (p, p); of rank p it is the identity."""
        return (self.left[:, :rank] * self.values[:rank]) @ self.right[:rank]


def _root(moments: np.ndarray) -> np.ndarray:
    """Return the lower triangular L with L L^T = moments."""
    try:
        return np.linalg.cholesky(moments)
    except np.linalg.LinAlgError:
        size = max(float(np.trace(moments)) / len(moments), np.finfo(float).tiny)
        return np.linalg.cholesky(moments + _JITTER * size * np.eye(len(moments)))


def best_maps(query_moments: np.ndarray, key_moments: np.ndarray) -> HeadMap:
    r"""eq:whitened-head. Return the maps that lose least of the scores $q^Tk$ on average over independent queries and
    keys with these second moments: $P_r = L_Q^{-T}U_r\tilde s_rV_r^TL_K^{-1}$ with $L_Q^TL_K = U\tilde sV^T$."""
    l_query, l_key = _root(query_moments), _root(key_moments)
    u, values, vt = np.linalg.svd(l_query.T @ l_key)
    left = np.linalg.solve(l_query.T, u)
    right = np.linalg.solve(l_key.T, vt.T).T
    return HeadMap(values, left, right)


def score_losses(values: np.ndarray, scale: float) -> np.ndarray:
    r"""eq:whitened-head. Return the mean squared change of a score at every rank 0..p, $E\,dz^2 = \frac1p\sum_{i>r}
    \tilde s_i^2$ (p + 1), with `scale` squared for 1/p."""
    return scale**2 * np.concatenate([np.cumsum(values[::-1] ** 2)[::-1], [0.0]])

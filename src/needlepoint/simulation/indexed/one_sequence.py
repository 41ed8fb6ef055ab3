"""The error of one sequence of the attention-indexed model as a function of its scores, and its derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def attention(z: np.ndarray, beta: float) -> np.ndarray:
    """Return the row-wise softmax of beta z, (n, T, T); for one token its score, because softmax would always be 1."""
    if z.shape[2] == 1:
        return z
    powers = np.exp(beta * (z - z.max(axis=2, keepdims=True)))
    return powers / powers.sum(axis=2, keepdims=True)


@dataclass(frozen=True, eq=False)
class Errors:
    r"""eq:indexed-loss. $\ell(z) = \mathrm{Tr}\,(f - y)K(f - y)^\top$ with $f = \mathrm{softmax}(\beta z)$ by rows (one
    token: $f = z$); $K = 1$ for attention matrices, $XX^\top/d$ for the tokens that they mix.

    `labels` y and `metric` K (or None) are (n, T, T), as are scores z, which are symmetric.
    """

    beta: float
    labels: np.ndarray
    metric: np.ndarray | None

    def of(self, rows: np.ndarray) -> Errors:
        """Return the same for some of the sequences."""
        return Errors(self.beta, self.labels[rows], None if self.metric is None else self.metric[rows])

    def losses_and_slopes(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (n,) and their derivatives by z, (n, T, T), which are symmetric as z is."""
        f = attention(z, self.beta)
        error = f - self.labels
        mixed = error if self.metric is None else error @ self.metric
        slope = 2 * mixed
        if z.shape[1] > 1:
            slope = self.beta * f * (slope - np.sum(slope * f, axis=2, keepdims=True))
        return np.sum(error * mixed, axis=(1, 2)), (slope + slope.transpose(0, 2, 1)) / 2

    def curvatures(self, z: np.ndarray) -> np.ndarray:
        r"""Return the second derivatives by each row of z, (n, T, T, T).

        With $J = \beta(\mathrm{diag}f - ff^\top)$, $G = 2K(f - y)$ and $t = f(G - f\cdot G)$ a row has $2JKJ +
        \beta^2[\mathrm{diag}\,t - tf^\top - ft^\top]$.
        """
        n, T = z.shape[:2]
        eye = np.eye(T)
        K = np.broadcast_to(eye, (n, T, T)) if self.metric is None else self.metric
        if T == 1:
            return 2 * K[:, None]
        f = attention(z, self.beta)
        G = 2 * (f - self.labels) @ K
        t = f * (G - np.sum(f * G, axis=2, keepdims=True))
        J = self.beta * (f[..., None] * eye - f[..., None] * f[..., None, :])
        cross = t[..., None] * f[..., None, :]
        return 2 * J @ K[:, None] @ J + self.beta**2 * (t[..., None] * eye - cross - cross.swapaxes(2, 3))

"""The memory of L-BFGS for many starts, in the compact form: two products with it give every start its direction."""

from __future__ import annotations

import numpy as np

from needlepoint.simulation.starts.accuracy import ACCURACY


class Memory:
    """The last pairs of steps s and changes y of the gradient of every start, and their products with each other.

    count     pairs that each start has stored in all, (starts,); the next takes the place `count % memory`
    pairs     steps above changes, (starts, 2 memory, N); places that are empty hold zeros
    products  of the pairs with each other, (starts, 2 memory, 2 memory)
    """

    def __init__(self, starts: int, size: int, most: int | None = None):
        self.most = ACCURACY.memory if most is None else most
        self.count = np.zeros(starts, int)
        self.pairs = np.zeros((starts, 2 * self.most, size))
        self.products = np.zeros((starts, 2 * self.most, 2 * self.most))

    def where(self, kept: np.ndarray) -> Memory:
        """Return the memory of the starts that are kept."""
        made = Memory(0, 0, self.most)
        made.count, made.pairs, made.products = self.count[kept], self.pairs[kept], self.products[kept]
        return made

    def forget(self, rows: np.ndarray) -> None:
        self.count[rows], self.pairs[rows], self.products[rows] = 0, 0.0, 0.0

    def learn(self, rows: np.ndarray, step: np.ndarray, change: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        r"""Store a pair of each of these rows, and return the directions $-Hg$ of all starts, (starts, N).

        With S and Y the steps and changes from the oldest to the newest, R the upper triangle of $S^\top Y$, D its
        diagonal and $\gamma$ the last $s\cdot y/y\cdot y$: $Hg = \gamma g + Sb - \gamma Ya$, $a = R^{-1}S^\top g$,
        $b = R^{-\top}[(D + \gamma Y^\top Y)a - \gamma Y^\top g]$.
        """
        most = self.most
        bend = np.einsum("sn,sn->s", step, change)
        size = np.einsum("sn,sn->s", change, change)
        stored = np.flatnonzero(rows & (bend > np.finfo(float).eps * size))
        place = self.count[stored] % most
        self.pairs[stored, place], self.pairs[stored, most + place] = step[stored], change[stored]
        with_three = self.pairs @ np.stack([step, change, gradient], axis=2)
        for offset, column in ((0, 0), (most, 1)):
            self.products[stored, offset + place, :] = with_three[stored, :, column]
            self.products[stored, :, offset + place] = with_three[stored, :, column]
        self.count[stored] += 1
        return -self._times(gradient, with_three[:, :, 2])

    def _times(self, gradient: np.ndarray, with_gradient: np.ndarray) -> np.ndarray:
        """Return H g, (starts, N), from g and its products with the pairs (starts, 2 memory)."""
        most, starts = self.most, np.arange(len(gradient))[:, None]
        order = (self.count[:, None] + np.arange(most)) % most  # from the oldest to the newest; empty places come first
        S_g, Y_g = with_gradient[starts, order], with_gradient[starts, most + order]
        R = self.products[starts[..., None], order[:, :, None], most + order[:, None, :]]
        Y_Y = self.products[starts[..., None], most + order[:, :, None], most + order[:, None, :]]
        D = np.einsum("sii->si", R).copy()
        newest = Y_Y[:, -1, -1]
        gamma = np.where(newest > 0, D[:, -1], 1.0) / np.where(newest > 0, newest, 1.0)
        pivots = np.where(D == 0.0, 1.0, D)
        a = _solve_upper(R, pivots, S_g)
        right = D * a + gamma[:, None] * (np.einsum("sij,sj->si", Y_Y, a) - Y_g)
        b = _solve_lower(np.swapaxes(R, 1, 2), pivots, right)
        shares = np.empty_like(with_gradient)
        shares[starts, order], shares[starts, most + order] = b, -gamma[:, None] * a
        return gamma[:, None] * gradient + (shares[:, None, :] @ self.pairs)[:, 0]


def _solve_upper(matrix: np.ndarray, pivots: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the solutions (starts, n) of triangular equations, from the last unknown to the first."""
    x = np.zeros_like(right)
    for i in reversed(range(right.shape[1])):
        x[:, i] = (right[:, i] - np.einsum("sj,sj->s", matrix[:, i, i + 1 :], x[:, i + 1 :])) / pivots[:, i]
    return x


def _solve_lower(matrix: np.ndarray, pivots: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the solutions (starts, n) of triangular equations, from the first unknown to the last."""
    x = np.zeros_like(right)
    for i in range(right.shape[1]):
        x[:, i] = (right[:, i] - np.einsum("sj,sj->s", matrix[:, i, :i], x[:, :i])) / pivots[:, i]
    return x

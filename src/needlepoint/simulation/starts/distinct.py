"""Which of the minima that several starts reached are one, and how much different ones have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from needlepoint.simulation.starts.accuracy import ACCURACY

Change = Callable[[np.ndarray], np.ndarray]
"""An exchange or a change of sign of the rows of weights (P, d) that the predictions do not see."""


def found_by(
    energies: np.ndarray, weights: np.ndarray, allowed: Sequence[Change], rounding: float = 0.0
) -> list[list[int]]:
    """Return the starts that found each minimum, the lowest minimum first, and in each the lowest start first.

    Two ends are one minimum if their energies (starts,) differ by less than 1e-5, relatively (or by less than
    `rounding`), and if after one of the `allowed` changes every column of the weights (starts, P, d) of one has a
    cosine above 0.99 with that of the other. Ends of an energy that is not finite are left out.
    """
    minima: list[list[int]] = []
    for start in (int(i) for i in np.argsort(energies, kind="stable") if np.isfinite(energies[i])):
        for members in reversed(minima):  # the nearest in energy come last
            first = members[0]
            gap = energies[start] - energies[first]
            if gap > ACCURACY.same_energy * abs(energies[start]) + rounding:
                continue
            if are_same(weights[first], weights[start], allowed):
                members.append(start)
                break
        else:
            minima.append([start])
    return minima


def are_same(one: np.ndarray, other: np.ndarray, allowed: Sequence[Change]) -> bool:
    """Return whether weights (P, d) agree in the direction of every column after one of the allowed changes."""
    return any(_least_cosine(one, change(other)) > ACCURACY.same_weights for change in allowed)


def _least_cosine(one: np.ndarray, other: np.ndarray) -> float:
    sizes = [np.linalg.norm(weights, axis=1) for weights in (one, other)]
    there = [size > ACCURACY.no_column * np.linalg.norm(size) for size in sizes]
    if np.any(there[0] != there[1]):
        return 0.0
    products = np.sum(one * other, axis=1)[there[0]]
    return float(np.min(products / (sizes[0] * sizes[1])[there[0]], initial=1.0))


def common(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean over pairs of minima of the product of each column with itself, (P,), for weights (P, d) in one
    gauge; of one minimum, the squares of its columns."""
    stack = np.array(weights)
    products = np.einsum("apd,bpd->pab", stack, stack)
    if len(stack) == 1:
        return products[:, 0, 0]
    above = np.triu_indices(len(stack), 1)
    return products[:, above[0], above[1]].mean(axis=1)

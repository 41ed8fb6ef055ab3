"""Teachers and weights as vectors in d dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.overlaps import Overlaps, vectors_with_gram


class Vectors(NamedTuple):
    """k*, v*, k, v, each (runs, d)."""

    k_star: np.ndarray
    v_star: np.ndarray
    k: np.ndarray
    v: np.ndarray

    def five(self) -> np.ndarray:
        """Return the overlaps (kappa, nu, theta, eta, rho), (5, runs)."""
        pairs = (
            (self.k, self.k_star),
            (self.v, self.v_star),
            (self.v, self.k_star),
            (self.k, self.v_star),
            (self.k, self.v),
        )
        return np.stack([np.einsum("rd,rd->r", a, b) for a, b in pairs])


def frames(rng: np.random.Generator, runs: int, d: int, size: int) -> np.ndarray:
    """Return `size` orthonormal vectors in uniformly random directions for every run, (runs, size, d)."""
    q, r = np.linalg.qr(rng.standard_normal((runs, d, size)))
    return np.swapaxes(q * np.sign(np.einsum("rii->ri", r))[:, None, :], 1, 2)


def with_overlaps(rng: np.random.Generator, overlaps: Overlaps, runs: int, d: int) -> Vectors:
    """Return vectors in R^d with exactly these overlaps, in uniformly random directions."""
    coordinates = vectors_with_gram(overlaps)
    used = [i for i in range(4) if np.any(coordinates[:, i] != 0.0)]
    if d < len(used):
        raise InvalidParameter(f"simulate(d={d}): d must be >= {len(used)} to hold vectors with {overlaps!r}.")
    basis = frames(rng, runs, d, len(used))
    return Vectors(*(np.einsum("i,rid->rd", row, basis) for row in coordinates[:, used]))


def starting_vectors(learner: Any, d: int, repeats: int, seed: int) -> Vectors:
    """Return where descent and SGD start: on the sphere, on the manifold or at given overlaps, with fresh teachers in
    every run."""
    rng = np.random.default_rng([seed, 4])
    if learner.given:
        parts = [with_overlaps(rng, o, repeats, d) for o in learner.given]
        return Vectors(*(np.concatenate(x) for x in zip(*parts, strict=True)))
    lowest = learner.smallest_d[learner.start]
    if d < lowest:
        raise InvalidParameter(f"simulate(d={d}): d must be >= {lowest} for start={learner.start!r}.")
    teachers = frames(rng, repeats, d, 2)
    k_star, v_star = teachers[:, 0], teachers[:, 1]
    k, v = rng.standard_normal((repeats, d)), rng.standard_normal((repeats, d))
    if learner.start == "manifold":
        k = _unit(_without(k, v_star))
        # v is made orthogonal to the plane of k and k*: k has a component along k*, so that both must be removed
        v = _without(_without(v, k_star), _unit(_without(k, k_star)))
    return Vectors(k_star, v_star, _unit(k), _unit(v))


def _without(x: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return x - np.einsum("rd,rd->r", x, unit)[:, None] * unit


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)

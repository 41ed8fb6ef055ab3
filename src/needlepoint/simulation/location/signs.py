"""Signs of key and value that the predictions do not see, and the choice of one before repeats are averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from needlepoint.core.overlaps import SEVEN, fix_gauge
from needlepoint.models.activations import Activation

_EVEN_GAUGE = ("key", "key_on_value", "key_dot_value")  # the overlaps that change sign with k alone


class Signs(NamedTuple):
    """What an activation does when the scores change sign: `mirrored` is -1 if it is odd, 1 if it is even, else 0."""

    mirrored: int

    @classmethod
    def of(cls, activation: Activation) -> Signs:
        scores = np.random.default_rng(0).standard_normal((8, 3))
        weights, other = np.asarray(activation(scores)), np.asarray(activation(-scores))
        signs = (s for s in (-1, 1) if np.allclose(other, s * weights, rtol=0.0, atol=1e-12))
        return cls(next(signs, 0))

    @property
    def changes(self) -> list[Callable[[np.ndarray], np.ndarray]]:
        """Return the changes of weights (2, d) that leave the predictions as they are; the first is none at all."""
        other = {-1: [np.array([[-1.0], [-1.0]])], 1: [np.array([[-1.0], [1.0]])], 0: []}[self.mirrored]
        return [lambda weights, signs=signs: signs * weights for signs in (np.ones((2, 1)), *other)]

    def fix(self, overlaps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return overlaps (repeats,) each with the sign of larger overlap with the teachers."""
        if self.mirrored == -1:
            fixed = fix_gauge({name: x[:, None] for name, x in overlaps.items()})
            return {name: x[:, 0] for name, x in fixed.items()}
        if self.mirrored == 1:
            sign = np.where(overlaps["key"] < 0, -1.0, 1.0)
            return {name: sign * x if name in _EVEN_GAUGE else x for name, x in overlaps.items()}
        return overlaps

    def fix_weights(self, teachers: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weights (2, d) with the sign that `fix` gives their overlaps with the teachers (2, d)."""
        found = {name: np.array([x]) for name, x in seven_overlaps(teachers, weights).items()}
        changed = any(np.any(x != found[name]) for name, x in self.fix(found).items())
        return self.changes[-1](weights) if changed else weights


def fix_sign(activation: Activation, overlaps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the overlaps of the repeats, (repeats,) each, with the gauge sign of larger overlap with the teachers.

    A sign that does not change the predictions is a gauge: a common sign of k and v if the activation is odd, the sign
    of k if it is even. With any other activation the overlaps are returned as they are.
    """
    return Signs.of(activation).fix(overlaps)


def seven_overlaps(teachers: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Return the overlaps of weights (2, d) with the teachers (2, d) and with each other, by name."""
    (k_star, v_star), (k, v) = teachers, weights
    seven = (k @ k_star, v @ v_star, v @ k_star, k @ v_star, k @ v, k @ k, v @ v)
    return {name: float(x) for name, x in zip(SEVEN, seven, strict=True)}

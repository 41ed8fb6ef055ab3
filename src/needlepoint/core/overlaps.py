"""Overlaps: the few scalar products that the weights are known by in the limit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import Spec, real, spec

OFF_MANIFOLD = ("value_on_key", "key_on_value", "key_dot_value")
"""The three overlaps that vanish on the invariant manifold."""

ODD = ("key", "value", "value_on_key", "key_on_value")
"""The overlaps that change sign with (k, v) -> (-k, -v), a symmetry of odd activations."""

FIVE = ("key", "value", "value_on_key", "key_on_value", "key_dot_value")
"""kappa, nu, theta, eta, rho: the order of the unit-norm overlap vector everywhere."""

_VECTORS = ("k*", "v*", "k", "v")


@spec
class Overlaps(Spec):
    """Scalar products of a key k and a value v with the teachers k*, v* and with each other.

    Per unit-variance tokens and orthonormal teachers; `gram` is the matrix of all of them.
    """

    family: ClassVar[str] = "overlaps"

    key: float = real(why="k . k*")
    value: float = real(why="v . v*")
    value_on_key: float = real(default=0.0, why="v . k*")
    key_on_value: float = real(default=0.0, why="k . v*")
    key_dot_value: float = real(default=0.0, why="k . v")
    key_sq: float = real(lo=0.0, default=1.0, why="|k|^2")
    value_sq: float = real(lo=0.0, default=1.0, why="|v|^2")

    def check(self) -> None:
        gram = self.gram()
        # no part of the matrix has a lower eigenvalue than the whole
        if float(np.linalg.eigvalsh(gram)[0]) >= -1e-9 * float(gram.diagonal().min()):
            return
        for size in (2, 3, 4):
            for subset in itertools.combinations(range(4), size):
                lowest = float(np.linalg.eigvalsh(gram[np.ix_(subset, subset)])[0])
                if lowest < -1e-9 * max(gram[i, i] for i in subset):
                    named = ", ".join(_VECTORS[i] for i in subset)
                    raise InvalidParameter(
                        f"{self!r}: no such vectors exist: the Gram matrix of ({named}) must be positive "
                        f"semi-definite, its lowest eigenvalue is {lowest:.3g}."
                    )

    def gram(self) -> np.ndarray:
        """Gram matrix of (k*, v*, k, v)."""
        return np.array(
            [
                [1.0, 0.0, self.key, self.value_on_key],
                [0.0, 1.0, self.key_on_value, self.value],
                [self.key, self.key_on_value, self.key_sq, self.key_dot_value],
                [self.value_on_key, self.value, self.key_dot_value, self.value_sq],
            ]
        )

    @property
    def distance_to_manifold(self) -> float:
        """sqrt(theta^2 + eta^2 + rho^2)."""
        return float(np.sqrt(sum(getattr(self, name) ** 2 for name in OFF_MANIFOLD)))

    @property
    def unit(self) -> bool:
        """True if k and v have unit norm."""
        return abs(self.key_sq - 1) <= 1e-9 and abs(self.value_sq - 1) <= 1e-9

    def five(self) -> np.ndarray:
        """(kappa, nu, theta, eta, rho)."""
        return np.array([getattr(self, name) for name in FIVE])

    @classmethod
    def from_five(cls, five: Any) -> Overlaps:
        return cls(*(float(x) for x in five))

    def items(self) -> Iterator[tuple[str, float]]:
        return ((name, getattr(self, name)) for name in (*FIVE, "key_sq", "value_sq"))


@spec
class IndexedOverlaps(Spec):
    """Of the learned S with the target S0 of the attention-indexed model: Tr(S S0)/d and Tr(S^2)/d."""

    family: ClassVar[str] = "indexed overlaps"

    m: float = real(why="Tr(S S0) / d")
    q: float = real(lo=0.0, why="Tr(S^2) / d")

    def items(self) -> Iterator[tuple[str, float]]:
        return iter((("m", self.m), ("q", self.q)))


def frame_coordinates(five: np.ndarray, key_sq: Any = 1.0, value_sq: Any = 1.0) -> np.ndarray:
    """(kappa, eta, k3, theta, nu, v3, v4): k and v in the frame of eq:sgd-frame, arrays over runs.

    A missing direction is 0: where k lies in the plane of the teachers, v has no third coordinate.
    """
    kappa, nu, theta, eta, rho = five
    k3 = np.sqrt(_remainder(key_sq - kappa**2 - eta**2, key_sq))
    along = rho - kappa * theta - eta * nu
    present = k3 > 1e-12 * np.sqrt(np.maximum(key_sq, 1e-300))
    # where k almost lies in that plane the quotient is rounding: v3 never exceeds what is left of v
    left = np.maximum(0.0, value_sq - theta**2 - nu**2)
    room = np.sqrt(left + 1e-15 * value_sq)
    v3 = np.clip(np.where(present, along / np.where(present, k3, 1.0), 0.0), -room, room)
    v4 = np.sqrt(_remainder(left - v3**2, value_sq))
    return np.array([kappa, eta, k3, theta, nu, v3, v4])


def _remainder(square: Any, whole: Any) -> Any:
    """What is left of a squared norm; below the rounding of the norm it is nothing."""
    return np.where(square > 8 * np.finfo(float).eps * whole, square, 0.0)


def vectors_with_gram(overlaps: Overlaps) -> np.ndarray:
    """Coordinates (4 x 4, rows k*, v*, k, v) of vectors with these overlaps, k* = e1 and v* = e2."""
    kappa, eta, k3, theta, nu, v3, v4 = frame_coordinates(overlaps.five(), overlaps.key_sq, overlaps.value_sq)
    return np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [kappa, eta, k3, 0], [theta, nu, v3, v4]])


def fix_gauge(overlaps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Choose the sign of (k, v) run by run so that the odd overlaps at the last record sum to >= 0."""
    end = sum(overlaps[name][..., -1:] for name in ODD)
    sign = np.where(end < 0, -1.0, 1.0)
    return {name: x * sign if name in ODD else x for name, x in overlaps.items()}

"""Overlaps: the few scalar products of the weights on which the risk depends in the limit of large d."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter, UnknownName
from needlepoint.core.specs import Spec, named_numbers, real, spec

OFF_MANIFOLD = ("value_on_key", "key_on_value", "key_dot_value")
"""theta, eta, rho: the overlaps that vanish on the invariant manifold, the set that gradient descent on the population
risk does not leave."""

ODD = ("key", "value", "value_on_key", "key_on_value")
"""The overlaps that change sign with (k, v) -> (-k, -v), a symmetry of odd activations."""

FIVE = ("key", "value", "value_on_key", "key_on_value", "key_dot_value")
"""kappa, nu, theta, eta, rho: the order of the overlap vector wherever k and v have unit norm."""

SEVEN = (*FIVE, "key_sq", "value_sq")
"""kappa, nu, theta, eta, rho, q_k, q_v: the order of the overlap vector where the norms of k and v are free."""

_VECTORS = ("k*", "v*", "k", "v")


@spec
class Overlaps(Spec):
    """Scalar products of a key k and a value v with the teachers k*, v* and with each other.

    They are for tokens of unit variance and orthonormal teachers; `gram` is the matrix of all of them.

    >>> ndl.Overlaps(key=0.9, value=0.8).unit
    True
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
        # if the whole matrix is positive, so is every part of it; the search below only finds which vectors to name
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
        """Return the Gram matrix (4, 4) of (k*, v*, k, v)."""
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
        """Return sqrt(theta^2 + eta^2 + rho^2)."""
        return float(np.sqrt(sum(getattr(self, name) ** 2 for name in OFF_MANIFOLD)))

    @property
    def unit(self) -> bool:
        """Return whether k and v have unit norm."""
        return abs(self.key_sq - 1) <= 1e-9 and abs(self.value_sq - 1) <= 1e-9

    def five(self) -> np.ndarray:
        """Return (kappa, nu, theta, eta, rho), shape (5,)."""
        return np.array([getattr(self, name) for name in FIVE])

    @classmethod
    def from_five(cls, five: Any) -> Overlaps:
        return cls(*(float(x) for x in five))

    def items(self) -> Iterator[tuple[str, float]]:
        return ((name, getattr(self, name)) for name in SEVEN)


@spec
class IndexedOverlaps(Spec):
    """Overlaps of the learned matrix S with the target S0 in the attention-indexed model: Tr(S S0)/d and Tr(S^2)/d.

    >>> ndl.IndexedOverlaps(m=0.9, q=1.1)
    IndexedOverlaps(m=0.9, q=1.1)
    """

    family: ClassVar[str] = "indexed overlaps"

    m: float = real(why="Tr(S S0) / d")
    q: float = real(lo=0.0, why="Tr(S^2) / d")

    def items(self) -> Iterator[tuple[str, float]]:
        return iter((("m", self.m), ("q", self.q)))


@spec
class FieldOverlaps(Spec):
    """Overlaps of any number of columns with any number of teachers and with each other, by name.

    `a_on_b` is the product of column a with teacher b, `a_dot_b` that of columns a and b, `a_sq` the squared norm of a.
    What is left out is 0, and a squared norm 1.

    >>> ndl.FieldOverlaps({"key1_on_key": 0.5, "key1_sq": 0.3})["key1_on_key"]
    0.5
    """

    family: ClassVar[str] = "overlaps"

    values: Any = named_numbers(why="it has a number for each name, such as {'key1_on_key': 0.5}")

    def __getitem__(self, name: str) -> float:
        return dict(self.values)[name]

    def items(self) -> Iterator[tuple[str, float]]:
        return iter(self.values)

    @classmethod
    def from_matrices(
        cls, columns: Sequence[str], teachers: Sequence[str], M: np.ndarray, Q: np.ndarray
    ) -> FieldOverlaps:
        """Return the overlaps with M (P, S) the products with the teachers and Q (P, P) those of the columns."""
        return cls(dict(zip(overlap_names(columns, teachers), flat_overlaps(M, Q), strict=True)))

    def matrices(self, columns: Sequence[str], teachers: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return M (P, S) and Q (P, P) for these columns and teachers; names that are not theirs are refused."""
        known, given = overlap_names(columns, teachers), dict(self.values)
        for name in given:
            if name not in known:
                raise UnknownName("overlap", name, known)
        P, S = len(columns), len(teachers)
        M = np.array([given.get(f"{a}_on_{b}", 0.0) for a in columns for b in teachers]).reshape(P, S)
        Q = np.diag([given.get(f"{a}_sq", 1.0) for a in columns])
        for i, j in itertools.combinations(range(P), 2):
            Q[i, j] = Q[j, i] = given.get(f"{columns[i]}_dot_{columns[j]}", 0.0)
        if float(np.linalg.eigvalsh(Q - M @ M.T)[0]) < -1e-9 * float(np.max(np.abs(Q))):
            raise InvalidParameter(
                f"{self!r}: no such vectors exist: the columns' products minus what their overlaps with the teachers "
                "give must be positive semi-definite; raise the squared norms (a_sq)."
            )
        return M, Q


def overlap_names(columns: Sequence[str], teachers: Sequence[str]) -> list[str]:
    """Return the names of all overlaps: with the teachers, squared norms, and products of two columns."""
    with_teachers = [f"{a}_on_{b}" for a in columns for b in teachers]
    return [
        *with_teachers,
        *(f"{a}_sq" for a in columns),
        *(f"{a}_dot_{b}" for a, b in itertools.combinations(columns, 2)),
    ]


def flat_overlaps(M: np.ndarray, Q: np.ndarray) -> list[float]:
    """Return the entries of M (P, S) and Q (P, P) in the order of `overlap_names`."""
    pairs = itertools.combinations(range(len(Q)), 2)
    return [float(x) for x in (*np.ravel(M), *np.diagonal(Q), *(Q[i, j] for i, j in pairs))]


_AS_SEVEN = {"key_on_key": "key", "value_on_value": "value"}


def result_names(columns: Sequence[str], teachers: Sequence[str]) -> list[str]:
    """Return the names under which results give the overlaps, in the order of `overlap_names`: those of `Overlaps` for
    a key and a value with teachers of these names, else those of `FieldOverlaps`."""
    names = overlap_names(columns, teachers)
    seven = tuple(columns) == tuple(teachers) == ("key", "value")
    return [_AS_SEVEN.get(name, name) for name in names] if seven else names


def as_overlaps(named: Mapping[str, float]) -> Overlaps | FieldOverlaps:
    """Return overlaps given by the names of `result_names`."""
    return Overlaps(**named) if set(named) <= set(SEVEN) else FieldOverlaps(dict(named))


def as_seven(overlaps: Overlaps | FieldOverlaps) -> Overlaps:
    """Return overlaps of a key and a value with teachers of these names as the seven."""
    if isinstance(overlaps, Overlaps):
        return overlaps
    M, Q = overlaps.matrices(("key", "value"), ("key", "value"))
    return Overlaps(M[0, 0], M[1, 1], M[1, 0], M[0, 1], Q[0, 1], Q[0, 0], Q[1, 1])


def as_matrices(
    overlaps: Overlaps | FieldOverlaps, columns: Sequence[str], teachers: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return M (P, S) and Q (P, P) of overlaps of either kind; names that are not those of the columns and teachers are
    refused."""
    if isinstance(overlaps, FieldOverlaps):
        return overlaps.matrices(columns, teachers)
    if tuple(columns) != ("key", "value") or tuple(teachers) != ("key", "value"):
        raise InvalidParameter(
            f"{overlaps!r}: Overlaps are for one key and one value; the columns here are {', '.join(columns)} and the "
            f"teachers {', '.join(teachers)}: write FieldOverlaps({{{overlap_names(columns, teachers)[0]!r}: ...}})."
        )
    gram = overlaps.gram()
    return gram[2:, :2], gram[2:, 2:]


def frame_coordinates(five: np.ndarray, key_sq: Any = 1.0, value_sq: Any = 1.0) -> np.ndarray:
    """Return (kappa, eta, k3, theta, nu, v3, v4), (7, ...): the coordinates of k and v in the frame of eq:sgd-frame.

    `five` is (5, ...), the overlaps in the order of `FIVE`. The frame is k*, v*, the rest of k, and the rest of v.
    Where k lies in the plane of the teachers there is no third direction: k3 and v3 are 0.
    """
    kappa, nu, theta, eta, rho = five
    k3 = np.sqrt(_remainder(key_sq - kappa**2 - eta**2, key_sq))
    along = rho - kappa * theta - eta * nu
    present = k3 > 1e-12 * np.sqrt(np.maximum(key_sq, 1e-300))
    # where k almost lies in the plane of the teachers, along/k3 is mostly rounding; v3 is therefore limited to the
    # norm that v has outside this plane
    left = np.maximum(0.0, value_sq - theta**2 - nu**2)
    room = np.sqrt(left + 1e-15 * value_sq)
    v3 = np.clip(np.where(present, along / np.where(present, k3, 1.0), 0.0), -room, room)
    v4 = np.sqrt(_remainder(left - v3**2, value_sq))
    return np.array([kappa, eta, k3, theta, nu, v3, v4])


def _remainder(square: Any, whole: Any) -> Any:
    """Return what is left of a squared norm, set to 0 where it is below the rounding error of the `whole` norm."""
    return np.where(square > 8 * np.finfo(float).eps * whole, square, 0.0)


def vectors_with_gram(overlaps: Overlaps) -> np.ndarray:
    """Return coordinates (4, 4), rows k*, v*, k, v, of vectors with these overlaps; k* = e1 and v* = e2."""
    kappa, eta, k3, theta, nu, v3, v4 = frame_coordinates(overlaps.five(), overlaps.key_sq, overlaps.value_sq)
    return np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [kappa, eta, k3, 0], [theta, nu, v3, v4]])


def fix_gauge(overlaps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the overlaps (runs, records) by name, with the sign of (k, v) chosen run by run.

    The sign is the one for which the odd overlaps at the last record sum to >= 0.
    """
    end = sum(overlaps[name][..., -1:] for name in ODD)
    sign = np.where(end < 0, -1.0, 1.0)
    return {name: x * sign if name in ODD else x for name, x in overlaps.items()}

"""Targets: the laws of the eigenvalues of the matrix that labels are made with."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import Spec, count, numbers, real, spec

if TYPE_CHECKING:  # specs are read where nothing is computed, and those load scipy
    from needlepoint.numerics.free_atoms import Atoms
    from needlepoint.numerics.freeprob import FreeSum

_LARGEST = 1e12  # of given eigenvalues, and one over it the smallest of their largest
_OUTLINE = 400  # points at which a density is tabulated for a picture
_EXACT, _BINS = 200, 300  # largest eigenvalues of a power law that are kept, and bins that the others are put in


class Target(Spec):
    """A positive semi-definite matrix S0, known by its eigenvalues: tokens are isotropic."""

    family: ClassVar[str] = "target"

    @property
    def law(self) -> FreeSum:
        """The limit law of the eigenvalues, to which noise is added freely."""
        raise NotImplementedError

    @property
    def rank(self) -> float:
        """The share of eigenvalues that are not zero."""
        raise NotImplementedError

    @property
    def concentration(self) -> float:
        r"""eq:indexed-kurtosis. $\sum_is_i^4/(\sum_is_i^2)^2$: one over the number of directions that carry the scores,
        a twelfth of the excess kurtosis of a diagonal one. It vanishes in the limit of many eigenvalues of each size.
        """
        return 0.0

    @property
    def alike(self) -> float:
        """The chance that two eigenvalues are equal: the squares of the shares of equal ones, added up."""
        raise NotImplementedError

    def outline(self) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y (n,) of the density of the eigenvalues that are not zero; empty where they are single ones."""
        return np.empty(0), np.empty(0)

    def eigenvalues(self) -> np.ndarray:
        """Return the single eigenvalues (n,), the different ones; empty where they have a density."""
        return np.empty(0)

    def draw(self, rng: np.random.Generator, d: int) -> np.ndarray:
        """The eigenvalues (d,) of one matrix."""
        raise NotImplementedError


@spec
class Wishart(Target):
    r"""eq:wishart-target. $S_0 = W_0W_0^\top/\sqrt{p_0d}$ with $W_0$ of standard normals, $d \times p_0$; `rank_ratio`
    is $p_0/d$.

    >>> ndl.Wishart(rank_ratio=0.5)
    Wishart(rank_ratio=0.5)
    """

    rank_ratio: float = real(lo=0.0, open_lo=True, largest=1e6, why="it is the width of the target over d")

    @functools.cached_property
    def _law(self) -> FreeSum:
        from needlepoint.numerics.freeprob import MarchenkoPastur

        return MarchenkoPastur(self.rank_ratio)

    @property
    def law(self) -> FreeSum:
        return self._law

    @property
    def rank(self) -> float:
        return min(1.0, self.rank_ratio)

    @property
    def alike(self) -> float:
        return (1 - self.rank) ** 2

    def outline(self) -> tuple[np.ndarray, np.ndarray]:
        r"""Return the density of Marchenko and Pastur, $\sqrt{\rho (s - s_-)(s_+ - s)}/(2\pi s)$ with the edges
        $s_\pm = (\sqrt\rho \pm 1)^2/\sqrt\rho$ and $\rho$ the `rank_ratio`, at points that crowd at the edges."""
        root = math.sqrt(self.rank_ratio)
        low, high = (root - 1) ** 2 / root, (root + 1) ** 2 / root
        angle = (np.arange(_OUTLINE) + 0.5) / _OUTLINE * np.pi
        s = low + (high - low) * (1 - np.cos(angle)) / 2
        return s, root * np.sqrt((s - low) * (high - s)) / (2 * np.pi * s)

    def draw(self, rng: np.random.Generator, d: int) -> np.ndarray:
        width = max(1, round(self.rank_ratio * d))
        W = rng.standard_normal((d, width))
        small = W.T @ W if width < d else W @ W.T
        found = np.zeros(d)
        found[d - min(d, width) :] = np.linalg.eigvalsh(small / math.sqrt(width * d))
        return np.maximum(found, 0.0)


@spec
class Eigenvalues(Target):
    """Given eigenvalues with `weights` that sum to one (equal ones if None). A weight of zero is a single eigenvalue
    among d: it does not count in the limit, but may show as an outlier of what is learned.

    >>> ndl.Eigenvalues((0.0, 1.0))
    Eigenvalues(values=(0.0, 1.0))
    """

    values: tuple[float, ...] = numbers(lo=0.0, why="S0 is positive semi-definite, as W W^T is")
    weights: Any = numbers(lo=0.0, free=True, default=None, why="they are shares of the eigenvalues")

    def check(self) -> None:
        counted = [v for v, w in zip(self.values, self.weights or (1.0,) * len(self.values), strict=False) if w > 0]
        if not any(counted):
            raise InvalidParameter("Eigenvalues: one that counts must be positive (a target of zeros has no labels).")
        if max(self.values) > _LARGEST or max(counted) < 1 / _LARGEST:
            far = max(self.values) if max(self.values) > _LARGEST else max(counted)
            raise InvalidParameter(
                f"Eigenvalues: the largest must be between {1 / _LARGEST:g} and {_LARGEST:g}, got {far:g} (powers of "
                "others leave the range of floating-point numbers); scores have a unit that can be changed with beta."
            )
        if self.weights is None:
            return
        if len(self.weights) != len(self.values):
            raise InvalidParameter(
                f"Eigenvalues: {len(self.values)} values have {len(self.weights)} weights; each needs its own."
            )
        total = math.fsum(self.weights)
        if not math.isclose(total, 1.0, rel_tol=1e-9):
            raise InvalidParameter(f"Eigenvalues(weights=...): they must sum to 1 (they sum to {total:.6g}).")

    @functools.cached_property
    def _law(self) -> Atoms:
        from needlepoint.numerics.free_atoms import Atoms

        return Atoms(self.values, self.weights)

    @property
    def law(self) -> FreeSum:
        return self._law

    @property
    def rank(self) -> float:
        return float(self._law.a[self._law.s > 0].sum())

    @property
    def alike(self) -> float:
        return 1.0 if self._law.a.size == 1 else float(self._law.a @ self._law.a)

    def concentration_at(self, d: int) -> float:
        """`concentration` if d eigenvalues are drawn."""
        law = self._law
        return float(law.a @ law.s**4) / (d * law.square**2)

    @property
    def smallest_d(self) -> int:
        """Where the rarest eigenvalue occurs once."""
        return round(1 / float(self._law.a.min()))

    def eigenvalues(self) -> np.ndarray:
        """The different ones."""
        return np.array(self.values)

    def draw(self, rng: np.random.Generator, d: int) -> np.ndarray:
        """As many of each as its weight asks for, one of each weight zero; what is left over goes to the largest
        remainders."""
        weights = np.full(len(self.values), 1 / len(self.values)) if self.weights is None else np.array(self.weights)
        spikes = weights == 0
        room = d - int(spikes.sum())
        if room < 1:
            raise InvalidParameter(f"Eigenvalues: {int(spikes.sum())} values of weight zero need d > {spikes.sum()}.")
        counts = np.floor(weights * room + 1e-9).astype(int)
        order = np.argsort(-(weights * room - counts), kind="stable")
        counts[order[: room - counts.sum()]] += 1
        return np.sort(np.repeat(self.values, np.where(spikes, 1, counts)))


@spec
class PowerLaw(Target):
    r"""eq:power-law. $s_i = \sqrt d\,i^{-\gamma}$ for $i = 1, \dots, d$; `exponent` is $\gamma$.

    >>> ndl.PowerLaw(exponent=1.5, d=90)
    PowerLaw(exponent=1.5, d=90)
    """

    exponent: float = real(lo=0.0, open_lo=True, largest=20.0, why="eigenvalues fall like i to minus this power")
    d: int = count(lo=2, why="it is how many eigenvalues there are, and simulate's d")

    @functools.cached_property
    def _law(self) -> Atoms:
        from needlepoint.numerics.free_atoms import Atoms

        s = self.eigenvalues()
        if self.d <= _EXACT + _BINS:
            return Atoms(s)
        # the small ones in geometric bins that keep their mean square
        ends = np.unique(np.geomspace(_EXACT, self.d, _BINS + 1).round().astype(int))
        sizes = np.diff(ends)
        squares = np.add.reduceat(s[_EXACT:] ** 2, ends[:-1] - _EXACT) / sizes
        return Atoms(np.r_[s[:_EXACT], np.sqrt(squares)], np.r_[np.ones(_EXACT), sizes] / self.d)

    @property
    def law(self) -> FreeSum:
        return self._law

    @property
    def rank(self) -> float:
        return 1.0

    @property
    def alike(self) -> float:
        return float(self._law.a @ self._law.a)  # of the bins: the equations see no finer

    @property
    def concentration(self) -> float:
        squares = np.arange(1, self.d + 1) ** (-2.0 * self.exponent)
        return float(np.sum(squares**2) / np.sum(squares) ** 2)

    def eigenvalues(self) -> np.ndarray:
        """All of them, largest first."""
        return math.sqrt(self.d) * np.arange(1, self.d + 1) ** (-self.exponent)

    def draw(self, rng: np.random.Generator, d: int) -> np.ndarray:
        if d != self.d:
            raise InvalidParameter(f"{self!r} has {self.d} eigenvalues; simulate needs d={self.d}, got d={d}.")
        return self.eigenvalues()[::-1]

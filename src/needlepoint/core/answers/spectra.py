"""Spectra of a learned matrix: the limit law, and the eigenvalues of trained ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.core.text.jsonio import plain
from needlepoint.core.text.showing import Showing, picture, table

GROUPS = {"eigenvalues_top_10": (0.9, 1.0), "eigenvalues_10_25": (0.75, 0.9), "eigenvalues_25_50": (0.5, 0.75)}
"""Groups of sorted eigenvalues whose means are compared, each by its lower and upper rank as a share of d: the top
10 %, the next 15 %, and the next 25 %."""


def group_means(eigenvalues: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean (...) of each of `GROUPS` by name, from sorted eigenvalues (..., d)."""
    d = eigenvalues.shape[-1]
    ends = {name: (round(low * d), round(high * d)) for name, (low, high) in GROUPS.items()}
    return {name: eigenvalues[..., low : max(high, low + 1)].mean(axis=-1) for name, (low, high) in ends.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Showing):
    """The limit law of the eigenvalues of the learned matrix.

    x, density      where the continuous part is tabulated, and its values there
    atom            share of the eigenvalues that are exactly zero
    edges           (pieces, 2), the intervals on which the density is positive
    outliers        single eigenvalues outside these intervals
    levels, values  the quantile function: `values[i]` is the quantile at `levels[i]`

    >>> task = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04)
    >>> law = ndl.predict(task, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1)).spectrum
    >>> f"{law.atom:.4f}"
    '0.4193'
    """

    x: np.ndarray
    density: np.ndarray
    atom: float
    edges: np.ndarray
    outliers: np.ndarray
    levels: np.ndarray
    values: np.ndarray

    def quantiles(self, d: int) -> np.ndarray:
        """Return (d,), the quantiles at (i + 1/2)/d, with which d sorted eigenvalues are compared."""
        return np.interp((np.arange(d) + 0.5) / d, self.levels, self.values)

    def __repr__(self) -> str:
        pieces = ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in self.edges)
        outliers = ", ".join(f"{x:.4g}" for x in self.outliers)
        more = f", outliers at {outliers}" if outliers else ""
        return f"Spectrum: {100 * self.atom:.3g} % zeros, a density on {pieces or 'no interval'}{more}"

    def _repr_html_(self) -> str:
        pieces = ", ".join(f"{low:.6g} to {high:.6g}" for low, high in self.edges) or "none"
        outliers = ", ".join(f"{x:.6g}" for x in self.outliers) or "none"
        rows = [("zeros", f"{100 * self.atom:.4g} %"), ("density on", pieces), ("outliers", outliers)]
        return table(rows, caption="Spectrum of the learned matrix") + picture(self)

    def _records(self) -> list[dict[str, Any]]:
        return [{"x": x, "density": y} for x, y in zip(self.x.tolist(), self.density.tolist(), strict=True)]

    def _document(self) -> dict[str, Any]:
        return plain(
            {
                "atom": self.atom,
                "edges": self.edges,
                "outliers": self.outliers,
                "x": self.x,
                "density": self.density,
                "levels": self.levels,
                "values": self.values,
            }
        )


@dataclass(frozen=True, eq=False, repr=False)
class TrainedSpectrum(Showing):
    """Sorted eigenvalues (repeats, d) of the learned matrices, and of the targets that they were trained on.

    >>> task = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04)
    >>> found = ndl.simulate(task, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1), d=8, repeats=2, samples=50)
    >>> found.spectrum.eigenvalues.shape
    (2, 8)
    """

    eigenvalues: np.ndarray
    target: np.ndarray

    def __repr__(self) -> str:
        repeats, d = self.eigenvalues.shape
        low, high = float(self.eigenvalues.min()), float(self.eigenvalues.max())
        return f"TrainedSpectrum: {repeats} repeats of {d} eigenvalues, from {low:.4g} to {high:.4g}"

    def _repr_html_(self) -> str:
        return table([("eigenvalues", repr(self).partition(": ")[2])], caption="Spectra of trained matrices") + picture(
            self
        )

    def _records(self) -> list[dict[str, Any]]:
        learned, target = self.eigenvalues, np.broadcast_to(self.target, self.eigenvalues.shape)
        return [
            {"repeat": i, "rank": j, "eigenvalue": float(learned[i, j]), "target": float(target[i, j])}
            for i in range(learned.shape[0])
            for j in range(learned.shape[1])
        ]

    def _document(self) -> dict[str, Any]:
        return plain({"eigenvalues": self.eigenvalues, "target": self.target})

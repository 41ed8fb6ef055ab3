"""What a theory says of itself to have its best penalties sought: its risk at penalties, with a gradient."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.numerics.trust_region import Place
from needlepoint.theory.penalties.accuracy import ACCURACY, HIGHEST, LOWEST
from needlepoint.theory.penalties.sensitivity import Sensitivity


class RiskOfPenalties(ABC):
    """The predicted risk as a function of the logarithms of the penalties, with its gradient: what a theory says of
    itself to have its penalties sought.

    All penalties are solved with the same integration points, so that the risk is a smooth function of them up to what
    the iteration leaves. A point x (k,) stands for the penalties exp(axes x).
    """

    names: tuple[str, ...]
    """What the penalties are called in notes, without their common prefix."""

    common: bool
    """Whether one penalty is sought for all."""

    follows: bool
    """Whether a solution is continued from its neighbour; otherwise every one is sought from the starts."""

    level: int
    """log2 of the points of the search."""

    coarse: int
    """log2 of the fewest points that a solution has."""

    apart: float
    """Solutions are on different branches if one of their coordinates differs by more than this."""

    progress: Progress = silent
    solves: int = 0

    @abstractmethod
    def starts(self) -> Iterable[tuple[np.ndarray, object]]:
        """Return coordinates from which solutions are sought, each with its branch of the equations."""

    @abstractmethod
    def found(self, x: np.ndarray, start: np.ndarray, branch: object) -> Sensitivity | None:
        """Return where the flow leads from coordinates `start` at the penalties of x, or None if that is no
        solution."""

    @abstractmethod
    def energy(self, x: np.ndarray, end: Sensitivity) -> float:
        """Return the energy of a solution at the penalties of x."""

    @abstractmethod
    def rows(self, x: np.ndarray, level: int, start: np.ndarray, known: Sensitivity) -> tuple[np.ndarray, np.ndarray]:
        """Return the risk at x of each of the independent scramblings, (rows,), and their fixed points, solved from
        `start` on the branch and with the Jacobian of `known`; NaN where a scrambling has no solution nearby."""

    @abstractmethod
    def gradients(self, x: np.ndarray, level: int, known: Sensitivity) -> list[np.ndarray]:
        """Return the gradient by the logarithms of all penalties, (p,), of each of the independent scramblings that
        has a solution near `known`."""

    @property
    def axes(self) -> np.ndarray:
        """Return the directions (p, k) that are searched: every penalty, or one common to all."""
        return np.ones((len(self.names), 1)) if self.common else np.eye(len(self.names))

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones(self.axes.shape[1])
        return math.log(LOWEST) * ones, math.log(HIGHEST) * ones

    def penalties(self, x: np.ndarray) -> tuple[float, ...]:
        """Return the penalties (p,) that x stands for."""
        return tuple(float(p) for p in np.exp(self.axes @ x))

    def __call__(self, x: np.ndarray, near: Place | None = None) -> Place | None:
        """Return the risk at x (k,) with its gradient, continued from the place `near` where there is one; None where
        the equations have no solution that their flow holds."""
        if near is None or not self.follows:
            found = self.sought(x)
        else:
            found = self._solved(x, ahead_of(self, near, x - near.x), data_of(near).branch)
        return None if found is None else self.place(x, found)

    def place(self, x: np.ndarray, found: Sensitivity) -> Place:
        return Place(x, found.risk, self.axes.T @ found.gradient, found)

    def sought(self, x: np.ndarray) -> Sensitivity | None:
        """Return the solution of lowest energy that the starts lead to."""
        ends: list[Sensitivity] = []
        for start, branch in self.starts():
            end = self._solved(x, start, branch)
            if end is not None and all(self._differ(end, other) for other in ends):
                ends.append(end)
        return min(ends, key=lambda end: self.energy(x, end)) if ends else None

    def _differ(self, one: Sensitivity, other: Sensitivity) -> bool:
        return one.branch != other.branch or bool(np.max(np.abs(one.x - other.x)) >= self.apart)

    def _solved(self, x: np.ndarray, start: np.ndarray, branch: object) -> Sensitivity | None:
        self.count()
        return self.found(x, start, branch)

    def slopes(self, place: Place, level: int) -> np.ndarray:
        """Return the gradient of the risk at a place for each of the independent scramblings, (rows, k), without those
        that have no solution nearby."""
        self.count()
        rows = [self.axes.T @ gradient for gradient in self.gradients(place.x, level, data_of(place))]
        return np.array([row for row in rows if np.all(np.isfinite(row))])

    def count(self) -> None:
        """Count a solution, and tell the progress: how many there will be is not known."""
        self.solves += 1
        self.progress(self.solves / (self.solves + ACCURACY.solves))


def data_of(place: Place) -> Sensitivity:
    assert isinstance(place.data, Sensitivity)
    return place.data


def ahead_of(search: RiskOfPenalties, place: Place, step: np.ndarray) -> np.ndarray:
    """Return where the fixed point (k,) moves, to first order, if the penalties move by `step` (k,)."""
    known = data_of(place)
    return known.x + np.clip(known.moves @ (search.axes @ step), -ACCURACY.trend, ACCURACY.trend)

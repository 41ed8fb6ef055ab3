"""Adaptive refinement: new points only where the answer changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.kinds import is_whole
from needlepoint.core.results import Prediction
from needlepoint.studies.axes import At, Axes, is_real

LABELS = ("status", "stable", "branch")
Lookup = Callable[[At], Prediction | None]
Index = tuple[int, ...]


@dataclass(frozen=True)
class Refine:
    """Halve the cells of the grid where their corners differ, `levels` times over.

    on      what is compared at the corners: "status", "stable" or "branch", or the name of a metric
    levels  how often cells are halved, from 1 to 12
    level   for a metric, the value whose contour is sought: corners differ if they lie on both sides of it

    >>> ndl.Refine("excess_risk", levels=2, level=0.5)
    Refine(on='excess_risk', levels=2, level=0.5)
    """

    on: str = "status"
    levels: int = 3
    level: float | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.levels) or not 1 <= self.levels <= 12:
            raise InvalidParameter(f"Refine(levels={shown(self.levels)}): levels must be a whole number from 1 to 12.")
        object.__setattr__(self, "levels", int(self.levels))
        if self.level is not None and (isinstance(self.level, bool) or not isinstance(self.level, (int, float))):
            raise InvalidParameter(f"Refine(level={shown(self.level)}): level must be a number.")
        if self.on in LABELS and self.level is not None:
            raise InvalidParameter(f"Refine(on={self.on!r}, level={self.level!r}): a label has no level; leave it out.")
        if self.on not in LABELS and (self.level is None or not math.isfinite(self.level)):
            raise InvalidParameter(
                f"Refine(on={self.on!r}): a metric needs the level of its contour, such as level=0.5; or refine on "
                f"{', '.join(LABELS)}."
            )

    def check(self, axes: Axes) -> None:
        if not axes.grid:
            raise InvalidParameter("refine: a list of points has no cells; give over as a mapping (a grid).")
        if not self.directions(axes):
            raise InvalidParameter("refine: no axis has two or more real numbers in order, so there are no cells.")

    def directions(self, axes: Axes) -> list[int]:
        """Return the numbers of the axes that are refined: real fields with two or more finite values in order."""
        found = []
        for i, (path, values) in enumerate(zip(axes.paths, axes.values, strict=True)):
            real = is_real(axes.base, path) and all(isinstance(v, float) and math.isfinite(v) for v in values)
            steps = np.diff(values) if real else np.zeros(0)
            if len(steps) and (np.all(steps > 0) or np.all(steps < 0)):
                found.append(i)
        return found

    def label(self, prediction: Prediction | None) -> Any:
        """Return what the corners of a cell must agree in, for the cell not to be halved."""
        if prediction is None:
            return "failed"
        if self.on in LABELS:
            return getattr(prediction, self.on)
        if self.on not in prediction.metrics:
            raise InvalidParameter(
                f"Refine(on={self.on!r}): the prediction has no such metric; it has {', '.join(prediction.metrics)}."
            )
        value = prediction.metrics[self.on].value
        return bool(value > (self.level or 0.0)) if math.isfinite(value) else "not finite"

    def stages(self, axes: Axes, lookup: Lookup) -> Iterator[list[At]]:
        """Yield the list of new points of each level; `lookup` gives the predictions at the points of levels before.

        Points are known by whole numbers: `slice_` has the indices of the axes that are not refined, `index` the places
        on the lattice of the finest level along those that are.
        """
        along = self.directions(axes)
        size = 2**self.levels
        counts = [size * (len(axes.values[i]) - 1) for i in along]
        fine = [_lattice(axes.values[i], size) for i in along]
        others = [[0] if i in along else range(len(v)) for i, v in enumerate(axes.values)]
        known: set[tuple[Index, Index]] = set()

        def place(slice_: Index, index: Index) -> At:
            at = [axes.values[i][j] for i, j in enumerate(slice_)]
            for i, values, j in zip(along, fine, index, strict=True):
                at[i] = values[j]
            return tuple(at)

        cells: list[tuple[Index, Index]] = []
        for slice_ in itertools.product(*others):
            known |= {(slice_, index) for index in itertools.product(*(range(0, n + 1, size) for n in counts))}
            cells += [(slice_, index) for index in itertools.product(*(range(0, n, size) for n in counts))]
        step = size
        while step > 1:
            half = step // 2
            split = []
            for slice_, index in cells:
                corners = itertools.product(*((i, i + step) for i in index))
                if len({self.label(lookup(place(slice_, c))) for c in corners}) > 1:
                    split.append((slice_, index))
            new: dict[tuple[Index, Index], None] = {}
            for slice_, index in split:
                for point in itertools.product(*((i, i + half, i + step) for i in index)):
                    if (slice_, point) not in known:
                        new[slice_, point] = None
            known |= set(new)
            yield [place(*key) for key in new]
            cells = [(s, child) for s, index in split for child in itertools.product(*((i, i + half) for i in index))]
            step = half


def _lattice(values: tuple[float, ...], size: int) -> list[float]:
    """Return the axis with size - 1 new values in every interval.

    They are evenly spaced, or at equal ratios where the values of the axis are closer to equal ratios than to even.
    """
    x = np.array(values)
    even = np.ptp(np.diff(x)) / np.abs(np.mean(np.diff(x)))
    ratios = np.diff(np.log(np.abs(x))) if np.all(x > 0) or np.all(x < 0) else None
    geometric = ratios is not None and len(x) > 2 and np.ptp(ratios) / np.abs(np.mean(ratios)) < even
    fine = []
    for a, b in itertools.pairwise(values):
        for j in range(size):
            fine.append(a * (b / a) ** (j / size) if geometric else a + (b - a) * j / size)
    return [*fine, values[-1]]

"""Scales, legends and signs that curves and maps of a study share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

_CROSSES = {"MAX_STEPS": "X", "NOISE_LIMITED": "P", "DIVERGED": (4, 1, 0), "UNBOUNDED": (3, 1, 0)}
_OTHER_CROSS = (5, 1, 0)
GREY = "#555555"


@dataclass(frozen=True)
class Scale:
    """Where the values of an axis are drawn: linear or logarithmic, with infinity one step beyond the last value.

    values    the finite values, sorted
    log       whether the axis is logarithmic
    whole     whether all values are whole numbers
    infinity  where infinity is drawn; None if it is not among the values
    """

    values: np.ndarray
    log: bool
    whole: bool
    infinity: float | None

    @classmethod
    def of(cls, given: Sequence[Any]) -> Scale:
        every = np.array(sorted({float(v) for v in given}))
        values = every[np.isfinite(every)]
        log = _geometric(values)
        infinity = None
        if len(values) < len(every):
            at = (np.log(values) if log else values) if len(values) else np.zeros(1)
            span = float(at[-1] - at[0])
            beyond = at[-1] + (max(span / (len(at) - 1), 0.1 * span) if span else 1.0)
            infinity = float(np.exp(beyond) if log else beyond)
        return cls(values, log, bool(np.all(values == np.round(values))), infinity)

    def place(self, value: Any) -> float:
        return self.infinity if self.infinity is not None and math.isinf(value) else float(value)

    @property
    def places(self) -> np.ndarray:
        return np.append(self.values, [] if self.infinity is None else [self.infinity])

    def forward(self, x: Any) -> np.ndarray:
        return np.log(x) if self.log else np.asarray(x, dtype=float)

    def back(self, t: Any) -> np.ndarray:
        return np.exp(t) if self.log else np.asarray(t, dtype=float)

    def edges(self) -> np.ndarray:
        """Return the borders (n + 1,) of the cells around the n places."""
        t = self.forward(self.places)
        middle = (t[1:] + t[:-1]) / 2
        return self.back(np.concatenate([[2 * t[0] - middle[0]], middle, [2 * t[-1] - middle[-1]]]))

    def dress(self, axis: Any, letter: str, label: str) -> None:
        """Set scale, ticks and label of the x or y axis, as `letter` says."""
        axis.set(**{f"{letter}label": label, f"{letter}scale": "log" if self.log else "linear"})
        if self.infinity is not None:
            ticks = self.values[:: max(1, math.ceil(len(self.values) / 6))]
            axis.set(**{f"{letter}ticks": [*ticks, self.infinity]})
            axis.set(**{f"{letter}ticklabels": [*[f"{v:.4g}" for v in ticks], "∞"]})
            getattr(axis, f"{letter}axis").set_minor_locator(NullLocator())
        elif self.whole and not self.log:
            getattr(axis, f"{letter}axis").set_major_locator(MaxNLocator(integer=True))


def _geometric(values: np.ndarray) -> bool:
    """Return whether values suit a logarithmic axis: positive, over more than a factor 30, and closer to even steps in
    the logarithm than in the value."""
    if len(values) < 2 or values[0] <= 0 or values[-1] <= 30 * values[0]:
        return False
    steps = np.arange(len(values))
    straight = [abs(float(np.corrcoef(steps, v)[0, 1])) for v in (values, np.log(values))]
    return straight[1] > straight[0] or len(values) == 2


def is_wide(values: Iterable[float]) -> bool:
    """Return whether values are positive and span more than a factor 1000, so that a logarithmic scale is used."""
    finite = [v for v in values if math.isfinite(v)]
    return bool(finite) and min(finite) > 0 and max(finite) > 1000 * min(finite)


def add_legend(figure: Figure, entries: Mapping[str, Any]) -> None:
    """Put one legend above the panels, in as many columns (four at most) as the texts allow."""
    if not entries:
        return
    width, height = figure.get_size_inches()
    lengths = [len(text.replace("\\", "").replace("$", "")) for text in entries]
    columns = 4
    while columns > 1 and sum(0.068 * max(c, default=0) + 0.55 for c in _split(lengths, columns)) > width:
        columns -= 1
    figure.set_size_inches(width, height + 0.19 * math.ceil(len(entries) / columns))
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=columns)


def _split(items: Sequence[int], columns: int) -> list[list[int]]:
    """Return the items in columns, as matplotlib fills the columns of a legend."""
    return [list(map(int, part)) for part in np.array_split(np.array(items), columns)]


def legend_sign(marker: Any, **options: Any) -> Line2D:
    """Return a legend entry with this marker."""
    look = {"color": GREY, "markerfacecolor": "white", "linestyle": "none", "markersize": 6.0, **options}
    return Line2D([], [], marker=marker, **look)


def cross_of(wrong: str) -> Any:
    """Return the marker of a failure, by its status."""
    return _CROSSES.get(wrong.rpartition(": ")[2], _OTHER_CROSS)

"""The look of every picture; pyplot is not used, because it keeps global state."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.figure import Figure

from needlepoint.core.errors import InvalidParameter

_P = ParamSpec("_P")
_R = TypeVar("_R")

COLOURS = ("#1f5fa8", "#c8531c", "#2a8a57", "#7a4fa3", "#8a6d1d", "#444444")
GREY = "#555555"  # of what a legend says of all colours, such as that circles are training
THEORY, TRAINING = "theory", "training"

_RC: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
}


def styled(draw: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a drawing function that runs with the settings `_RC` and leaves matplotlib's own unchanged."""

    @functools.wraps(draw)
    def inside(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with matplotlib.rc_context(_RC):
            return draw(*args, **kwargs)

    return inside


class Picture(Figure):
    """A matplotlib figure that a notebook shows as an image, without magic commands."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def legend_above(figure: Figure, named: Mapping[str, Any], columns: int = 4) -> None:
    """Put one legend above all panels, in as many columns (at most `columns`) as fit the width of the figure."""
    if not named:
        return
    room = figure.get_size_inches()[0]
    fitting = [n for n in range(1, min(columns, len(named)) + 1) if _legend_width(list(named), n) <= room]
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=max(fitting, default=1))


def _legend_width(names: Sequence[str], columns: int) -> float:
    """Return the width of a legend in inches, roughly; it is filled column by column."""
    rows, more = divmod(len(names), columns)
    counts = [rows + (i < more) for i in range(columns)]
    ends = list(itertools.accumulate(counts))
    letters = [
        max(len(line) for n in names[end - count : end] for line in n.split("\n"))
        for end, count in zip(ends, counts, strict=True)
    ]
    return sum(0.062 * n + 0.55 for n in letters)


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """Return a figure of `width` x `height` inches and its axes (rows, columns)."""
    figure = Picture(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def saved(drawn: Any, path: Path | None) -> Any:
    """Return the figure or axes, after the figure has been saved if a path is given."""
    if path is not None:
        figure = drawn if isinstance(drawn, Figure) else drawn.figure
        try:
            figure.savefig(path, dpi=160)
        except OSError as error:
            raise InvalidParameter(
                f"plot(path={str(path)!r}): cannot be written ({error.strerror or error})."
            ) from None
    return drawn

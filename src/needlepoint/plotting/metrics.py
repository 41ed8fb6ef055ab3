"""Panels of metrics, each with its own axes: lines that are broken where the theory is not to be trusted, measured
points, guides and marks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from needlepoint.plotting.stability import DOUBTFUL, SMALL, segments
from needlepoint.plotting.style import COLOURS, THEORY, legend_above, panels, styled

GREY = "#777777"
_BROKEN: Any = (0, (2, 2))


@dataclass(frozen=True)
class Line:
    """A line (x, y) of the theory and the measured points that belong to it.

    label    name in the legend; "" stays out of it
    trusted  for each point of the line whether it is to be trusted; empty means all
    points   measured points (x, mean, standard error)
    smaller  measured points of smaller sizes, drawn smaller
    colour   index into `style.COLOURS`; None is grey
    style    matplotlib line style; "" draws the measured points alone
    mark     matplotlib marker of the measured points
    faint    whether the line is thin and behind the others
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    trusted: Sequence[bool] = ()
    points: Sequence[tuple[float, float, float]] = ()
    colour: int | None = 0
    style: str = "-"
    mark: str = "o"
    faint: bool = False
    smaller: Sequence[tuple[float, float, float]] = ()

    @property
    def ink(self) -> str:
        return GREY if self.colour is None else COLOURS[self.colour % len(COLOURS)]


@dataclass(frozen=True)
class MetricPanel:
    """One panel; `marks` has the places of vertical lines by name, `limits` are the ends of the y axis."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    xscale: str = "log"
    yscale: str = "log"
    limits: tuple[float, float] | None = None
    marks: Mapping[str, float] = field(default_factory=dict)


@styled
def metric_panels(
    shown: Sequence[Sequence[MetricPanel]],
    *,
    measured: Mapping[str, str] | str = "",
    smaller: str = "",
    styles: Mapping[str, str] | None = None,
    legends: str = "shared",
    lines: str = THEORY,
    columns: int = 3,
    width: float = 3.4,
    height: float = 2.9,
) -> Figure:
    """Return a figure of rows of panels.

    measured       what markers mean: a name for each marker, or the name of circles
    smaller        what small circles mean
    styles         what line styles mean, where they are not those of `lines`
    legends        "shared" names the curves in one legend above all panels, "own" in one above each panel
    lines          what lines mean; this and `measured` are always in the legend above all panels
    columns        of the legend above all panels
    width, height  of a panel, in inches
    """
    across = max(len(row) for row in shown)
    figure, axes = panels(len(shown), across, max(6.4, width * across), 0.6 + height * len(shown))
    named: dict[str, Any] = {}
    doubtful = False
    for row, line_of_axes in zip(shown, axes, strict=True):
        for axis in line_of_axes[len(row) :]:
            axis.set_visible(False)
        for axis, panel in zip(line_of_axes, row, strict=False):
            mine = _draw_panel(axis, panel)
            doubtful |= any(not all(line.trusted) for line in panel.lines)
            if legends == "own":
                _own_legend(axis, panel.title, mine)
            else:
                axis.set_title(panel.title)
                named |= mine
    named |= _key(lines, measured, doubtful)
    for style, name in (styles or {}).items():
        look: Any = {"linestyle": style, "linewidth": 1.2}
        named[name] = Line2D([], [], color=GREY, **look)
    if smaller:
        named[smaller] = Line2D([], [], color=GREY, linestyle="", marker="o", alpha=0.6, **SMALL)
    legend_above(figure, named, columns)
    return figure


def _draw_panel(axis: Any, panel: MetricPanel) -> dict[str, Any]:
    named = {}
    for line in panel.lines:
        _draw_line(axis, line)
        if line.label:
            style: Any = line.style or "none"
            named[line.label] = Line2D(
                [],
                [],
                color=line.ink,
                linestyle=style,
                linewidth=1.0 if line.faint else 1.6,
                marker="" if line.style else line.mark,
                markerfacecolor="white",
                markersize=5,
            )
    axis.set(xscale=panel.xscale, yscale=panel.yscale, xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.limits is not None:
        axis.set_ylim(*panel.limits)
    for name, at in panel.marks.items():
        axis.axvline(at, color=GREY, linewidth=1.2, linestyle=":", zorder=1)
        named[name] = Line2D([], [], color=GREY, linewidth=1.2, linestyle=":")
    for scale, side in ((panel.xscale, axis.xaxis), (panel.yscale, axis.yaxis)):
        if scale == "log":
            _plain_ticks(side)
    return named


def _draw_line(axis: Any, line: Line) -> None:
    trusted = np.asarray(line.trusted or [True] * len(line.x), dtype=bool)
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    ink = {"color": line.ink, "zorder": 2 if line.faint else 3}
    if line.style:
        for piece, solid in segments(list(trusted)):
            broken = {"linestyle": _BROKEN, "linewidth": 1.2}
            solid_look = {"linestyle": line.style, "linewidth": 1.0 if line.faint else 1.6}
            axis.plot(x[piece], y[piece], **ink, **(solid_look if solid else broken))
        if not trusted.all():
            axis.plot(x[~trusted], y[~trusted], "x", markersize=5, **ink)
    for points, look, opacity in ((line.smaller, SMALL, 0.6), (line.points, {"markersize": 4.8}, 1.0)):
        if points:
            at, mean, error = np.array(points, dtype=float).T
            dots = {"fmt": line.mark, "color": line.ink, "markerfacecolor": "white", "capsize": 2, **look}
            axis.errorbar(at, mean, yerr=error, zorder=5, linewidth=1.0, alpha=opacity, **dots)


def _own_legend(axis: Any, title: str, named: dict[str, Any]) -> None:
    """Put a legend above the panel, under its title, where it covers nothing."""
    axis.legend(
        named.values(),
        named.keys(),
        title=title,
        title_fontsize=10.0,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=2 if len(named) > 3 else 1,
        columnspacing=1.2,
        handlelength=1.6,
        borderaxespad=0.2,
    )


def _key(lines: str, measured: Mapping[str, str] | str, doubtful: bool) -> dict[str, Any]:
    ink = GREY
    key: dict[str, Any] = {lines: Line2D([], [], color=ink)}
    if doubtful:
        key[DOUBTFUL] = Line2D([], [], color=ink, linestyle=_BROKEN, marker="x", markersize=5, linewidth=1.2)
    by_mark = {"o": measured} if isinstance(measured, str) else measured
    for mark, name in by_mark.items():
        if name:
            key[name] = Line2D([], [], color=ink, linestyle="", marker=mark, markersize=5, markerfacecolor="white")
    return key


def _plain_ticks(side: Any) -> None:
    """Label a logarithmic axis with plain numbers instead of powers, as many as it has room for."""
    low, high = side.get_view_interval()
    decades = math.log10(high / low)
    if decades > 5:
        return
    subs = (1.0, 2.0, 5.0) if decades < 1.7 else (1.0, 3.0) if decades < 3.2 else (1.0,)
    side.set_major_locator(LogLocator(subs=subs))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    side.set_minor_formatter(NullFormatter())

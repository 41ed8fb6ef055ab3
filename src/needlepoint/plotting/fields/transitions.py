"""Curves against alpha with the place of a transition: a panel each quantity, theory as lines, training as circles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from needlepoint.plotting.stability import DOUBTFUL, SMALL, DoubtCurve, draw_curve
from needlepoint.plotting.style import GREY, legend_above, panels, styled


@dataclass(frozen=True)
class Mark:
    """A place on the x axis that is drawn as a vertical line, with its error as a band."""

    label: str
    at: float
    error: float


@dataclass(frozen=True)
class Sheet:
    """A panel: its curves, the name of its y axis, and the ends of that axis (None fits what is drawn)."""

    title: str
    ylabel: str
    curves: Sequence[DoubtCurve]
    limits: tuple[float, float] | None = None


@styled
def transition_panels(
    shown: Sequence[Sheet],
    xlabel: str,
    *,
    measured: str,
    smaller: str = "",
    marks: Sequence[Mark] = (),
    ticks: Sequence[float] = (),
) -> Figure:
    """Return a figure of panels side by side with one legend above, in which curves of one label share an entry.

    Broken lines with crosses are predictions that are not to be trusted. `measured` says in the legend what the
    measured points are, `smaller` what the small ones. With `ticks` the x axis is logarithmic.
    """
    figure, axes = panels(1, len(shown), max(5.4, 3.6 * len(shown) + 0.6), 3.9)
    named: dict[str, Any] = {}
    doubtful = False
    for axis, sheet in zip(axes[0], shown, strict=True):
        for curve in sheet.curves:
            doubtful |= not all(curve.trusted)
            named.setdefault(curve.label, draw_curve(axis, curve))
        for mark in marks:
            axis.axvline(mark.at, color=GREY, linestyle=":", linewidth=1.2)
            axis.axvspan(mark.at - mark.error, mark.at + mark.error, color=GREY, alpha=0.18, linewidth=0)
        axis.set(title=sheet.title, xlabel=xlabel, ylabel=sheet.ylabel)
        if sheet.limits is not None:
            axis.set_ylim(*sheet.limits)
        if ticks:
            axis.set_xscale("log")
            axis.set_xticks(list(ticks), [f"{t:g}" for t in ticks])
            axis.set_xticks([], minor=True)
    named["theory"] = Line2D([], [], color=GREY)
    if doubtful:
        named[DOUBTFUL] = Line2D([], [], color=GREY, linestyle=(0, (2, 2)), marker="x", markersize=5, linewidth=1.2)
    if any(curve.points for sheet in shown for curve in sheet.curves):
        named[measured] = Line2D([], [], color=GREY, linestyle="", marker="o", markersize=5, markerfacecolor="white")
    if any(curve.smaller for sheet in shown for curve in sheet.curves):
        named[smaller] = Line2D([], [], color=GREY, linestyle="", marker="o", alpha=0.6, **SMALL)
    for mark in marks:
        band = (Patch(color=GREY, alpha=0.18, linewidth=0), Line2D([], [], color=GREY, linestyle=":", linewidth=1.2))
        named[mark.label] = band
    legend_above(figure, named, 3)
    return figure

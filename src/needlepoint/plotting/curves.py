"""Curves of a metric against a parameter: theory lines, measured points with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from needlepoint.plotting.style import COLOURS, GREY, legend_above, panels, styled


@dataclass(frozen=True)
class Curve:
    """A line (x, y) of the theory and the measured points (x, mean, standard error) that belong to it.

    `colour` is an index into `style.COLOURS`; None takes the next one. `line` is a matplotlib line style.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    points: Sequence[tuple[float, float, float]] = ()
    colour: int | None = None
    line: str = "-"


@dataclass(frozen=True)
class CurvePanel:
    title: str
    xlabel: str
    curves: Sequence[Curve]
    xscale: str = "log"
    yscale: str = "log"


@styled
def curve_panels(
    shown: Sequence[CurvePanel], ylabel: str, limits: tuple[float, float], measured: str = "measured"
) -> Figure:
    """Return a figure of panels side by side with one legend above, in which curves of the same label share an entry.

    `limits` are the ends of the y axis that all panels share; `measured` says in the legend what the circles are.
    """
    figure, axes = panels(1, len(shown), max(5.4, 4.1 * len(shown)), 3.8, sharey=True)
    named = {}
    for axis, panel in zip(axes[0], shown, strict=True):
        for i, curve in enumerate(panel.curves):
            colour = COLOURS[(i if curve.colour is None else curve.colour) % len(COLOURS)]
            (line,) = axis.plot(curve.x, curve.y, curve.line, color=colour, label=curve.label)
            named.setdefault(curve.label, line)
            if curve.points:
                x, mean, error = np.array(curve.points).T
                axis.errorbar(
                    x, mean, yerr=error, fmt="o", color=colour, markersize=4.5, markerfacecolor="white", zorder=5
                )
        axis.set(xscale=panel.xscale, yscale=panel.yscale, title=panel.title, xlabel=panel.xlabel)
        axis.set_ylim(*limits)
    axes[0][0].set_ylabel(ylabel)
    if any(curve.points for panel in shown for curve in panel.curves):
        named[measured] = Line2D([], [], color=GREY, linestyle="", marker="o", markersize=4.5, markerfacecolor="white")
    legend_above(figure, named)
    return figure

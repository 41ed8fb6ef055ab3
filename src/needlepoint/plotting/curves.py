"""Curves of a metric against a parameter: theory lines, measured points with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from needlepoint.plotting.style import COLOURS, panels, styled


@dataclass(frozen=True)
class Curve:
    """A line (x, y) of the theory and the measured points (x, mean, standard error) that belong to it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    points: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class CurvePanel:
    title: str
    xlabel: str
    curves: Sequence[Curve]


@styled
def curve_panels(shown: Sequence[CurvePanel], ylabel: str, limits: tuple[float, float]) -> Figure:
    """Panels side by side on logarithmic axes with one legend above."""
    figure, axes = panels(1, len(shown), 4.1 * len(shown), 3.8, sharey=True)
    for axis, panel in zip(axes[0], shown, strict=True):
        for i, curve in enumerate(panel.curves):
            colour = COLOURS[i % len(COLOURS)]
            axis.plot(curve.x, curve.y, color=colour, label=curve.label)
            if curve.points:
                x, mean, error = np.array(curve.points).T
                axis.errorbar(x, mean, yerr=error, fmt="o", color=colour, markersize=4.5, markerfacecolor="white")
        axis.set(xscale="log", yscale="log", title=panel.title, xlabel=panel.xlabel)
        axis.set_ylim(*limits)
    axes[0][0].set_ylabel(ylabel)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure

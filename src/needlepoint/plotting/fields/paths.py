"""Overlaps over time: theory as lines, the mean over training runs at several sizes as circles with standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from needlepoint.core.results import Trajectory
from needlepoint.plotting.style import COLOURS, GREY, legend_above, panels, styled

MARKERS = ("o", "s", "^")
"""The marker of each size, the smallest first."""


@dataclass(frozen=True)
class PathPanel:
    """The quantities `names` (name in a trajectory, name in the legend) over time: `theory` has one run, `training` the
    runs at each d."""

    title: str
    ylabel: str
    names: Sequence[tuple[str, str]]
    theory: Trajectory
    training: Mapping[int, Trajectory]


def values_of(path: Trajectory, name: str) -> np.ndarray:
    """Return a quantity by run and record: the excess risk or an overlap."""
    return path.excess_risk if name == "excess_risk" else path.overlaps[name]


def mean_and_error(path: Trajectory, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over runs and its standard error, (records,) each."""
    values = values_of(path, name)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(len(values))


@styled
def path_panels(shown: Sequence[Sequence[PathPanel]], d_of_theory: int) -> Figure:
    """Return a figure of rows of panels; time is steps over d, so that all sizes share one axis."""
    figure, axes = panels(len(shown), len(shown[0]), 3.9 * len(shown[0]), 0.9 + 2.8 * len(shown), sharex=True)
    named: dict[str, Any] = {}
    colours: dict[str, str] = {}
    for line_of_axes, row in zip(axes, shown, strict=True):
        for axis, panel in zip(line_of_axes, row, strict=True):
            for name, label in panel.names:
                colour = colours.setdefault(label, COLOURS[len(colours) % len(COLOURS)])
                time = panel.theory.steps / d_of_theory
                axis.plot(time, values_of(panel.theory, name)[0], color=colour)
                named.setdefault(label, Line2D([], [], color=colour))
                for (d, path), marker in zip(sorted(panel.training.items()), MARKERS, strict=False):
                    mean, error = mean_and_error(path, name)
                    look: dict[str, Any] = {"markersize": 3.8, "markerfacecolor": "white", "capsize": 2}
                    axis.errorbar(path.steps / d, mean, yerr=error, fmt=marker, color=colour, zorder=5, **look)
            axis.set(title=panel.title, ylabel=panel.ylabel)
    for axis in axes[-1]:
        axis.set_xlabel("time (steps over d)")
    named["theory (limit of large d)"] = Line2D([], [], color=GREY)
    for (d, path), marker in zip(sorted(shown[0][0].training.items()), MARKERS, strict=False):
        look = {"linestyle": "", "marker": marker, "markersize": 4, "markerfacecolor": "white"}
        named[f"training, d = {d}, {path.runs} runs, ± standard error"] = Line2D([], [], color=GREY, **look)
    legend_above(figure, named, 4)
    return figure

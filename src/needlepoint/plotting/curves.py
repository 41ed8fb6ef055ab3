"""Curves of a metric against a parameter: theory lines, measured points with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.plotting.style import COLOURS


@dataclass(frozen=True)
class Curve:
    """A line (x, y) of the theory and the measured points (x, mean, standard error) that belong to it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    points: Sequence[tuple[float, float, float]] = ()


def draw_curves(axis: Any, curves: Sequence[Curve]) -> None:
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        axis.plot(curve.x, curve.y, color=colour, label=curve.label)
        if curve.points:
            x, mean, error = np.array(curve.points).T
            axis.errorbar(x, mean, yerr=error, fmt="o", color=colour, markersize=4.5, markerfacecolor="white", zorder=5)

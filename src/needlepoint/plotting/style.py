"""The look of every picture, without pyplot and its global state."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#c8531c", "#2a8a57", "#7a4fa3", "#8a6d1d", "#444444")
THEORY, TRAINING = "theory", "training"

_RC = {
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


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes (always a two-dimensional array) in the house style."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes

"""The flow on the invariant manifold with its fixed points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from needlepoint.plotting.style import COLOURS, panels, styled

_MARKS = {"minimum": ("o", COLOURS[2]), "maximum": ("s", COLOURS[1]), "saddle": ("X", COLOURS[3])}


@dataclass(frozen=True)
class FlowPanel:
    """One panel: the field on a square grid, the fixed points (key, value, kind), and the nullcline."""

    title: str
    grid: np.ndarray
    key_dot: np.ndarray
    value_dot: np.ndarray
    points: Sequence[tuple[float, float, str]]
    nullcline: tuple[np.ndarray, np.ndarray]


@styled
def flow_panels(shown: Sequence[FlowPanel]) -> Figure:
    """Arrows show the direction, colour the magnitude (logarithmic); the dashed line is where key_dot changes sign."""
    figure, axes = panels(1, len(shown), 4.2 * len(shown) + 0.6, 4.2)
    speed_max = max(float(np.hypot(p.key_dot, p.value_dot).max()) for p in shown)
    norm = LogNorm(vmin=1e-4 * speed_max, vmax=speed_max, clip=True)
    arrows: Any = None
    for axis, panel in zip(axes[0], shown, strict=True):
        speed = np.hypot(panel.key_dot, panel.value_dot)
        unit = np.where(speed > 0, speed, 1.0)
        key, value = np.meshgrid(panel.grid, panel.grid)
        arrows = axis.quiver(
            key,
            value,
            panel.key_dot / unit,
            panel.value_dot / unit,
            np.maximum(speed, norm.vmin or 0.0),
            cmap="viridis_r",
            norm=norm,
            scale=26,
            width=0.005,
            pivot="mid",
        )
        axis.plot(*panel.nullcline, "--", color="#555555", linewidth=1.0, label=r"$\nu=\mathrm{erf}(cu)$")
        named: set[str] = set()
        for x, y, kind in panel.points:
            mark, colour = _MARKS[kind]
            label = None if kind in named else kind
            named.add(kind)
            axis.plot(x, y, mark, color=colour, markersize=9, markeredgecolor="white", label=label, clip_on=False)
        axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", title=panel.title)
        axis.set_xlabel(r"$\kappa$ (key)")
        axis.set_ylabel(r"$\nu$ (value)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.colorbar(arrows, ax=list(axes[0]), shrink=0.8, label="speed of the flow")
    return figure

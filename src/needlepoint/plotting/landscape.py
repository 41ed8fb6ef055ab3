"""The flow on the invariant manifold with its fixed points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from needlepoint.plotting.style import COLOURS, legend_above, panels, styled

_MARKS = {"minimum": ("o", COLOURS[2]), "maximum": ("s", COLOURS[1]), "saddle": ("X", COLOURS[3])}


@dataclass(frozen=True)
class FlowPanel:
    """One panel of a flow on the overlaps (key, value).

    grid                values of both overlaps, (n,)
    key_dot, value_dot  velocity of each overlap on the square of the grid, (n, n)
    points              fixed points (key, value, kind)
    nullcline           (key, value) along the line where the velocity of the key changes sign
    """

    title: str
    grid: np.ndarray
    key_dot: np.ndarray
    value_dot: np.ndarray
    points: Sequence[tuple[float, float, str]]
    nullcline: tuple[np.ndarray, np.ndarray]


@styled
def flow_panels(shown: Sequence[FlowPanel]) -> Figure:
    """Return a figure of flows: arrows show the direction, colour the speed (logarithmic), the dashed line is where
    key_dot changes sign."""
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
        axis.plot(
            *panel.nullcline,
            "--",
            color="#555555",
            linewidth=1.0,
            label=r"$\nu=\mathrm{erf}(cu)$: here the key is at rest",
        )
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


@dataclass(frozen=True)
class HeatPanel:
    """One panel: `value` (scales, alignments) over the alignment and the scale of the key, and the `best` point."""

    title: str
    alignment: np.ndarray
    scale: np.ndarray
    value: np.ndarray
    best: tuple[float, float] | None = None


@styled
def heat_panels(shown: Sequence[HeatPanel], label: str, best: str = "least value") -> Figure:
    """Return a figure of heat maps that share one colour scale, with contours; `best` names the star in the legend."""
    figure, axes = panels(1, len(shown), 3.3 * len(shown) + 0.8, 3.6, sharey=True)
    low, high = _range(shown)
    levels = np.linspace(low, high, 13)
    image: Any = None
    for axis, panel in zip(axes[0], shown, strict=True):
        image = axis.pcolormesh(
            panel.alignment, panel.scale, panel.value, shading="gouraud", cmap="viridis", vmin=low, vmax=high
        )
        axis.contour(panel.alignment, panel.scale, panel.value, levels=levels, colors="white", linewidths=0.5)
        if panel.best is not None:
            axis.plot(*panel.best, "*", color=COLOURS[1], markersize=13, markeredgecolor="white", clip_on=False)
        axis.grid(False)
        axis.set(title=panel.title, xlabel=r"alignment $\kappa/|k|$")
    axes[0][0].set_ylabel(r"key norm $|k|$")
    if any(panel.best is not None for panel in shown):
        look: dict[str, Any] = {"marker": "*", "color": COLOURS[1], "markersize": 13, "markeredgecolor": "white"}
        star, contour = Line2D([], [], linestyle="", **look), Line2D([], [], color="#999999", linewidth=0.8)
        legend_above(figure, {best: star, f"lines of equal {label}": contour})
    figure.colorbar(image, ax=list(axes[0]), shrink=0.9, label=label)
    return figure


def _range(shown: Sequence[HeatPanel]) -> tuple[float, float]:
    return min(float(p.value.min()) for p in shown), max(float(p.value.max()) for p in shown)

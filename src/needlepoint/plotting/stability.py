"""Predictions that say where they are not to be trusted: curves that are broken there, and a map of where that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from needlepoint.plotting.style import COLOURS, legend_above, panels, styled

DOUBTFUL = "theory, not to be trusted"
_GREY = "#444444"
SMALL: dict[str, Any] = {"markersize": 3.0, "markerfacecolor": "white"}
"""The look of a measured point of a smaller size."""


@dataclass(frozen=True)
class DoubtCurve:
    """A line (x, y) of the theory, which of its points are to be trusted, and the measured points (x, mean, standard
    error) that belong to it.

    `colour` is an index into `style.COLOURS`; `mark` is the marker of the measured points; `smaller` has the measured
    points of smaller sizes, which are drawn smaller.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    trusted: Sequence[bool]
    points: Sequence[tuple[float, float, float]] = ()
    colour: int = 0
    mark: str = "o"
    smaller: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class DoubtPanel:
    title: str
    curves: Sequence[DoubtCurve]


def segments(trusted: Sequence[bool]) -> list[tuple[slice, bool]]:
    """Return the pieces of a line as (slice of its points, whether solid); it is solid between two trusted points."""
    found: list[tuple[slice, bool]] = []
    for i in range(len(trusted) - 1):
        solid = bool(trusted[i] and trusted[i + 1])
        if found and found[-1][1] == solid:
            found[-1] = (slice(found[-1][0].start, i + 2), solid)
        else:
            found.append((slice(i, i + 2), solid))
    return found


@styled
def doubt_panels(
    shown: Sequence[Sequence[DoubtPanel]],
    xlabel: str,
    ylabel: str,
    limits: tuple[float, float] | None,
    measured: str,
    ticks: Sequence[float] = (),
    smaller: str = "",
) -> Figure:
    """Return a figure of rows of panels with one legend above.

    Broken lines with crosses are predictions that are not to be trusted. `measured` says in the legend what the
    measured points are, `smaller` what the small ones. `limits` are the ends of the y axes; None fits what is drawn,
    from zero on.
    """
    limits = limits or (0.0, _top(shown))
    columns = max(len(row) for row in shown)
    figure, axes = panels(len(shown), columns, max(7.6, 3.1 * columns + 0.4), 0.9 + 2.7 * len(shown), sharey=True)
    named: dict[str, Any] = {}
    doubtful = False
    for line_of_axes, row in zip(axes, shown, strict=True):
        for axis in line_of_axes[len(row) :]:
            axis.set_visible(False)
        for axis, panel in zip(line_of_axes, row, strict=False):
            for curve in panel.curves:
                doubtful |= not all(curve.trusted)
                named[curve.label] = draw_curve(axis, curve)
            axis.set(xscale="log", title=panel.title, xlabel=xlabel)
            axis.set_ylim(*limits)
            if ticks and panel.curves:
                low, high = min(min(c.x) for c in panel.curves), max(max(c.x) for c in panel.curves)
                inside = [t for t in ticks if low <= t <= high]
                axis.set_xticks(inside, [f"{t:g}" for t in inside])
                axis.set_xticks([], minor=True)
        line_of_axes[0].set_ylabel(ylabel)
    named["theory"] = Line2D([], [], color=_GREY)
    if doubtful:
        named[DOUBTFUL] = Line2D([], [], color=_GREY, linestyle=(0, (2, 2)), marker="x", markersize=5, linewidth=1.2)
    if measured:
        named[measured] = Line2D([], [], color=_GREY, linestyle="", marker="o", markersize=5, markerfacecolor="white")
    if smaller:
        named[smaller] = Line2D([], [], color=_GREY, linestyle="", marker="o", alpha=0.6, **SMALL)
    legend_above(figure, named, 3)
    return figure


def _top(shown: Sequence[Sequence[DoubtPanel]]) -> float:
    """Return the end of the y axis: just above the highest trusted prediction and measured point."""
    curves = [curve for row in shown for panel in row for curve in panel.curves]
    lines = [y for c in curves for y, trusted in zip(c.y, c.trusted, strict=True) if trusted]
    points = [mean + error for c in curves for _, mean, error in (*c.points, *c.smaller)]
    return 1.05 * max([*filter(np.isfinite, (*lines, *points)), 1e-9])


def draw_curve(axis: Any, curve: DoubtCurve) -> Any:
    """Draw a curve with its measured points; return what stands for it in a legend."""
    colour = COLOURS[curve.colour % len(COLOURS)]
    x, y, trusted = np.asarray(curve.x), np.asarray(curve.y), np.asarray(curve.trusted, dtype=bool)
    for piece, solid in segments(curve.trusted):
        style = {"linestyle": "-"} if solid else {"linestyle": (0, (2, 2)), "linewidth": 1.2}
        axis.plot(x[piece], y[piece], color=colour, **style)
    if not trusted.all():
        axis.plot(x[~trusted], y[~trusted], "x", color=colour, markersize=5)
    for points, look, opacity in ((curve.smaller, SMALL, 0.6), (curve.points, {"markersize": 5}, 1.0)):
        if points:
            at, mean, error = np.array(points).T
            dots: dict[str, Any] = {"fmt": curve.mark, "color": colour, "markerfacecolor": "white", **look}
            axis.errorbar(at, mean, yerr=error, zorder=5, capsize=2, alpha=opacity, **dots)
    return Patch(color=colour)


# --- the map -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StabilityPanel:
    """A map over alpha and the penalty `lam`.

    `replicon` and `trusted` (whether the prediction is to be trusted) are arrays (penalties, alphas); `tried` has the
    places where training from two starts was tried: (alpha, penalty, repeats that ended apart).
    """

    title: str
    alpha: Sequence[float]
    lam: Sequence[float]
    replicon: np.ndarray
    trusted: np.ndarray
    tried: Sequence[tuple[float, float, int]] = ()


@styled
def stability_panels(shown: Sequence[StabilityPanel], repeats: int, d: int) -> Figure:
    """Return a figure of maps: colour is the replicon, and crosses are predictions that are not to be trusted.

    The number in a circle counts the repeats in which training from two starts ended at different energies.
    """
    figure, axes = panels(1, len(shown), 4.2 * len(shown) + 1.0, 4.3, sharey=True)
    norm = LogNorm(0.1, 10.0, clip=True)
    image: Any = None
    for axis, panel in zip(axes[0], shown, strict=True):
        # all cells are drawn in one size, whatever the spacing of the values, so places are indices
        columns, rows = ({x: i for i, x in enumerate(values)} for values in (panel.alpha, panel.lam))
        replicon = np.ma.masked_invalid(panel.replicon)
        image = axis.pcolormesh(replicon, cmap="RdYlBu_r", norm=norm, edgecolors="white", linewidth=0.4)
        i, j = np.nonzero(~np.asarray(panel.trusted, dtype=bool))
        axis.plot(j + 0.28, i + 0.5, "x", color="black", markersize=7, markeredgewidth=1.4)
        for alpha, lam, apart in panel.tried:
            disc = {"boxstyle": "circle,pad=0.3", "fc": "black" if apart else "white", "ec": "black", "lw": 0.8}
            at = columns[alpha] + 0.68, rows[lam] + 0.5
            colour = "white" if apart else "black"
            axis.text(*at, str(apart), ha="center", va="center", fontsize=7.5, color=colour, bbox=disc)
        axis.grid(False)
        axis.set(title=panel.title, xlabel=r"samples over dimension $\alpha$")
        axis.set_xticks(np.arange(len(panel.alpha)) + 0.5, [f"{a:.3g}" for a in panel.alpha])
        axis.set_yticks(np.arange(len(panel.lam)) + 0.5, [f"{lam:.2g}" for lam in panel.lam])
    axes[0][0].set_ylabel(r"penalty $\lambda$")
    disc = {"linestyle": "", "marker": "o", "markersize": 10, "markeredgecolor": "black"}
    named = {
        DOUBTFUL: Line2D([], [], linestyle="", marker="x", color="black", markersize=7, markeredgewidth=1.4),
        f"training (d = {d}): two starts agree in all {repeats} repeats": Line2D(
            [], [], markerfacecolor="white", **disc
        ),
        f"they end apart in that many of {repeats}": Line2D([], [], markerfacecolor="black", **disc),
    }
    legend_above(figure, named, 3)
    figure.colorbar(image, ax=list(axes[0]), shrink=0.9, extend="both", label="replicon (unstable above 1)")
    return figure

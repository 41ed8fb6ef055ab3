"""A metric against one parameter: theory lines, measured points, and their z-scores below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from needlepoint.core.answers.comparison import Row
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.plotting.studies.data import OVERLAPS, Data, estimate_of, listed
from needlepoint.plotting.studies.scales import GREY, Scale, add_legend, cross_of, is_wide, legend_sign
from needlepoint.plotting.style import COLOURS, THEORY, panels
from needlepoint.studies.points import StudyPoint

MOST_CURVES = 10
Z_LEAST, Z_MOST = 4.5, 10.0
"""The strip of z-scores reaches at least and at most this far; a z beyond is drawn as a triangle on its edge."""
_SIZES = ("o", "s", "^", "D", "v", "p", "h", "<", ">", "8")


def draw_curves(data: Data, x: str | None, ax: Any = None) -> Figure:
    """Return the figure of the curves, or draw them on `ax` alone, without the strip of z-scores."""
    path = data.choose("x", x)
    groups = data.groups([path])
    if len(groups) > MOST_CURVES:
        choices = [p for p in data.numeric if p != path]
        switch = f"choose x= among {listed(choices)}, draw kind='map', " if choices else ""
        raise InvalidParameter(
            f"plot(x={path!r}, kind='curves'): {data.counts([path])} make {len(groups)} curves, at most {MOST_CURVES} "
            f"can be told apart; {switch}or sweep fewer values."
        )
    scale = Scale.of(data.axes[path])
    rows = {name: [(p, row) for p in points for row in _rows(data, p)] for name, points in groups.items()}
    strip = any(rows.values()) and ax is None
    options = {"sharex": True, "gridspec_kw": {"height_ratios": (3.4, 1.0)}} if strip else {}
    if ax is None:
        figure, axes = panels(2 if strip else 1, 1, 6.4, 4.7 if strip else 3.8, **options)
    else:
        figure, axes = ax.figure, np.array([[ax]], dtype=object)
    sizes = sorted({m.d for p in data.points for m in p.measurements})
    shapes = {d: _SIZES[i % len(_SIZES)] for i, d in enumerate(sizes)}
    legend, marks = {}, {}
    panel = _Panel(axes[0][0], path, scale, shapes, marks)
    for i, (name, points) in enumerate(groups.items()):
        colour, dash = COLOURS[i % len(COLOURS)], "-" if i < len(COLOURS) else "--"
        if data.predicted:
            legend[name or THEORY] = Line2D([], [], color=colour, linestyle=dash)
        elif name:
            legend[name] = Line2D([], [], color=colour, linestyle="none", marker="o")
        points = sorted(points, key=lambda p: float(p.at[path]))
        panel.theory(data, points, name or THEORY, colour, dash)
        panel.training(data, points, name or THEORY, colour)
    panel.axis.set(ylabel=data.label, title=data.title, yscale="log" if is_wide(panel.drawn) else "linear")
    if strip:
        _Panel(axes[1][0], path, scale, shapes, marks).scores(rows)
    scale.dress(axes[-1][0], "x", data.name(path))
    if scale.infinity is not None and len(scale.values):
        border = float(scale.back(np.mean(scale.forward(scale.places[-2:]))))
        for axis in axes[:, 0]:
            axis.axvline(border, color="#bbbbbb", linewidth=0.8, linestyle=":")
    sized = {text: sign for text, sign in marks.items() if text.startswith(f"{data.source}, ")}
    entries = {**legend, **sized, **marks}
    if ax is None:
        add_legend(figure, entries)
    else:
        ax.legend(list(entries.values()), list(entries))
    return figure


def _rows(data: Data, point: StudyPoint) -> list[Row]:
    """Return the comparisons of this metric at a point, one for each d."""
    if point.prediction is None or estimate_of(point.prediction, data.metric) is None or not point.measurements:
        return []
    comparison = point.comparison
    name = data.metric.removeprefix(OVERLAPS)
    return [row for row in comparison.rows if row.metric == name] if comparison is not None else []


class _Panel:
    """Axes with the swept field `path` along x.

    `shapes` has the marker of each d, `marks` collects legend entries, `drawn` collects the values that decide between
    a linear and a logarithmic y axis, and `rows` has the row of ticks of each curve on the lower edge.
    """

    def __init__(self, axis: Any, path: str, scale: Scale, shapes: Mapping[int, str], marks: dict[str, Any]):
        self.axis, self.path, self.scale, self.shapes, self.marks = axis, path, scale, shapes, marks
        self.drawn: list[float] = []
        self.rows: dict[str, int] = {}

    def at(self, point: StudyPoint) -> float:
        return self.scale.place(point.at[self.path])

    def failed(self, x: float, estimate: Estimate | None, wrong: str, curve: str, colour: str) -> None:
        """Draw a point that did not converge: an open cross at its value, or a tick on the lower edge if it has none.

        The ticks of each curve are in a row of their own.
        """
        if estimate is not None and math.isfinite(estimate.value):
            self.drawn.append(estimate.value)
            self.axis.plot([x], [estimate.value], label=wrong, **open_cross(wrong, colour))
            self.marks.setdefault(wrong, legend_sign(cross_of(wrong), markersize=7))
            return
        height = 0.02 + 0.035 * self.rows.setdefault(curve, len(self.rows))
        look: dict[str, Any] = {"markersize": 7, "markeredgewidth": 1.6}
        below = {"transform": self.axis.get_xaxis_transform(), "clip_on": False, "zorder": 6}
        self.axis.plot([x], [height], "|", color=colour, label=wrong, **look, **below)
        text = wrong if wrong.partition(" ")[0] in ("no", "not") else f"{wrong}, no value"
        self.marks.setdefault(text, legend_sign("|", **look))

    def theory(self, data: Data, points: Sequence[StudyPoint], name: str, colour: str, dash: str) -> None:
        """Draw the line through the points that converged, its error as a band, and marks for the other points."""
        rows: list[tuple[float, float, float]] = []
        for point in points:
            x, (estimate, wrong) = self.at(point), data.theory(point)
            if x == self.scale.infinity:
                rows.append((x, math.nan, math.nan))  # NaN breaks the line before the point at infinity
            if wrong:
                self.failed(x, estimate, wrong, name, colour)
            good = estimate if not wrong else None
            rows.append((x, good.value, good.error) if good is not None else (x, math.nan, math.nan))
        if not data.predicted:
            return
        x, value, error = np.array(rows).T
        self.drawn += value[np.isfinite(value)].tolist()
        there = np.concatenate([[False], np.isfinite(value), [False]])
        alone = np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:]).tolist()
        pieces: dict[str, Any] = {"marker": "_", "markersize": 13, "markeredgewidth": 1.6, "markevery": alone}
        self.axis.plot(x, value, color=colour, linestyle=dash, label=name, **(pieces if alone else {}))
        known = np.isfinite(error)
        size = np.where(known, error, 0.0)
        self.axis.fill_between(x, value - size, value + size, where=known, color=colour, alpha=0.2, linewidth=0)
        if np.any(size[known] > 0.01 * np.abs(value[known])):
            self.marks.setdefault(f"error of the {THEORY}", Patch(color=GREY, alpha=0.25, linewidth=0))

    def training(self, data: Data, points: Sequence[StudyPoint], name: str, colour: str) -> None:
        """Draw the means of measurements with one standard error, in a marker for each d."""
        rows: dict[int, list[tuple[float, float, float]]] = {}
        for point in points:
            for d, estimate, wrong in data.training(point):
                if wrong:
                    self.failed(self.at(point), estimate, wrong, name, colour)
                elif estimate is not None:
                    error = estimate.error if math.isfinite(estimate.error) else math.nan
                    rows.setdefault(d, []).append((self.at(point), estimate.value, error))
        for d in sorted(rows):
            x, mean, error = np.array(rows[d]).T
            self.drawn += mean.tolist()
            text = f"{data.source}, $d$ = {d}"
            look: dict[str, Any] = {"markersize": 4.5, "markerfacecolor": "white", "color": colour, "linewidth": 1.1}
            self.axis.errorbar(x, mean, yerr=error, fmt=self.shapes[d], zorder=5, label=text, **look)
            self.marks.setdefault(text, legend_sign(self.shapes[d], markersize=4.5))
            if np.isnan(error).any():
                self.marks.setdefault("no bar: error unknown (one repeat)", Line2D([], [], linestyle="none"))

    def scores(self, rows: Mapping[str, list[tuple[StudyPoint, Row]]]) -> None:
        """Draw z-scores with the band |z| < 2 and lines at 4; a z beyond the strip is a triangle on its edge."""
        every = [row for shown in rows.values() for _, row in shown]
        finite = [abs(row.z) for row in every if math.isfinite(row.z)]
        limit = min(max(Z_LEAST, 1.1 * max(finite, default=0.0)), Z_MOST)
        self.axis.axhspan(-2, 2, color="#000000", alpha=0.08, linewidth=0)
        self.axis.axhline(0.0, color="#999999", linewidth=0.8)
        for level in (-4, 4):
            self.axis.axhline(level, color="#999999", linewidth=0.9, linestyle="--")
        label = "$z$" if all(row.exact for row in every) else "$z$ at finite $d$"
        self.axis.set(ylim=(-limit, limit), ylabel=label, yticks=(-4, -2, 0, 2, 4))
        for i, (name, shown) in enumerate(rows.items()):
            colour = COLOURS[i % len(COLOURS)]
            for point, row in shown:
                if math.isnan(row.z):
                    self.failed(self.at(point), None, "no z", name, colour)
                    continue
                beyond = abs(row.z) > limit
                z = math.copysign(limit, row.z) if beyond else row.z
                shape = ("^" if z > 0 else "v") if beyond else self.shapes[row.d]
                fill = {"markersize": 7.0 if beyond else 4.5, "markerfacecolor": colour if beyond else "white"}
                self.axis.plot(
                    [self.at(point)], [z], shape, color=colour, clip_on=False, zorder=5, label=name or THEORY, **fill
                )


def open_cross(wrong: str, colour: str) -> dict[str, Any]:
    look = {"marker": cross_of(wrong), "linestyle": "none", "color": colour, "markerfacecolor": "white"}
    return {**look, "markersize": 7.5, "markeredgewidth": 1.2, "zorder": 6}

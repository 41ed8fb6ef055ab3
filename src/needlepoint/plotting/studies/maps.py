"""A metric over two parameters, with contours, and borders where the status, the branch or the stability changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, MaxNLocator
from matplotlib.tri import TriAnalyzer, Triangulation

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.results import Result
from needlepoint.plotting.studies.curves import open_cross
from needlepoint.plotting.studies.data import Data, listed
from needlepoint.plotting.studies.scales import Scale, add_legend, cross_of, is_wide, legend_sign
from needlepoint.plotting.style import COLOURS, panels
from needlepoint.studies.points import StudyPoint

MOST_MAPS = 6
_HATCHES = ("////", "\\\\\\\\", "xxxx", "....", "++++", "oooo")
_BORDERS = {"status": ("#000000", 3.2), "branch": (COLOURS[1], 2.0), "stability": ("#ffffff", 0.9)}
"""Colour and width of the borders where a label changes; the widths differ so that two that coincide are both seen."""
_HALO = [withStroke(linewidth=2.4, foreground="white")]
_CASING = 0.9  # points by which the black line under a border is wider than the border
_CONTOURS: dict[str, Any] = {"colors": "white", "linewidths": 0.8}


@dataclass(frozen=True)
class _Sample:
    """A point of a map: its place, the metric there (NaN if none), what is wrong with it ("" if nothing), and its
    status, branch and stability."""

    x: float
    y: float
    value: float
    wrong: str
    labels: Mapping[str, str | None]


@dataclass(frozen=True)
class _Canvas:
    """What all maps of a figure share: scales of x and y, colours, contour levels, kinds of border, legend entries."""

    scales: tuple[Scale, Scale]
    norm: Normalize
    levels: Sequence[float]
    borders: Sequence[str]
    legend: dict[str, Any]


def draw_maps(data: Data, x: str | None, y: str | None, levels: int | Sequence[float] | None, ax: Any = None) -> Figure:
    """Return the figure of the maps, or draw the one map on `ax`."""
    first = data.choose("x", x, taken=[] if y is None or x is not None else [data.choose("y", y)])
    paths = (first, data.choose("y", y, taken=[first]))
    for name, path in zip("xy", paths, strict=True):
        if len(data.axes[path]) < 2:
            raise InvalidParameter(f"plot({name}={path!r}, kind='map'): {path} has one value; a map needs two or more.")
    groups = data.groups(paths)
    if len(groups) > MOST_MAPS:
        raise InvalidParameter(
            f"plot(kind='map'): {data.counts(paths)} make {len(groups)} maps over {paths[0]} and {paths[1]}, at most "
            f"{MOST_MAPS} fit; choose other x= and y=, draw kind='curves', or sweep fewer values."
        )
    scales = Scale.of(data.axes[paths[0]]), Scale.of(data.axes[paths[1]])
    samples = {name: _samples(data, points, paths, scales) for name, points in groups.items()}
    every = [s for shown in samples.values() for s in shown]
    finite = [s.value for s in every if math.isfinite(s.value)]
    if not finite:
        raise InvalidParameter(
            f"plot(kind='map'): no point has a finite {data.metric} ({listed(sorted({s.wrong for s in every}))})."
        )
    norm: Normalize = (LogNorm if is_wide(finite) else Normalize)(min(finite), max(finite))
    borders = [kind for kind in _BORDERS if len({s.labels[kind] for s in every} - {None}) > 1]
    usable = [s.value for s in every if not s.wrong] or finite
    canvas = _Canvas(scales, norm, _levels(levels, min(usable), max(usable), isinstance(norm, LogNorm)), borders, {})
    columns = len(groups) if len(groups) < 4 else 2 if len(groups) == 4 else 3
    rows = math.ceil(len(groups) / columns)
    if ax is not None and len(groups) > 1:
        raise InvalidParameter(
            f"plot(ax=...): {data.counts(paths)} make {len(groups)} maps, and one fits; leave ax out."
        )
    if ax is None:
        figure, axes = panels(rows, columns, 3.6 * columns + 1.8, 3.5 * rows + 0.4, sharex=True, sharey=True)
    else:
        figure, axes = ax.figure, np.array([[ax]], dtype=object)
    draw, image = _cells if data.grid else _triangles, cast(Any, None)
    for i, (axis, (name, shown)) in enumerate(zip(axes.flat, samples.items(), strict=False)):
        axis.set_title(name or data.title)
        axis.grid(False)
        bottom = i + columns >= len(groups)
        scales[0].dress(axis, "x", data.name(paths[0]) if bottom else "")
        scales[1].dress(axis, "y", data.name(paths[1]) if i % columns == 0 else "")
        axis.tick_params(labelbottom=bottom)
        image = draw(axis, shown, canvas)  # after the scales are set, because they decide where contour labels go
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    source = "" if data.predicted else f", {data.source}"
    figure.colorbar(image, ax=list(axes.flat), label=data.label + source, shrink=0.95)
    for kind in borders:
        names = " | ".join(sorted({label for s in every if (label := s.labels[kind])}))
        text = f"{kind} changes" if kind == "status" else f"{kind} changes: {names}"
        colour, width = _BORDERS[kind]
        cased = [withStroke(linewidth=width + _CASING, foreground="black")]
        canvas.legend[text] = Line2D([], [], color=colour, linewidth=width, path_effects=cased)
    if ax is None:
        add_legend(figure, canvas.legend)
    elif canvas.legend:
        ax.legend(list(canvas.legend.values()), list(canvas.legend), loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return figure


def _samples(
    data: Data, points: Sequence[StudyPoint], paths: tuple[str, str], scales: tuple[Scale, Scale]
) -> list[_Sample]:
    """Return what a map shows at each point: the prediction, or the measurement if no prediction has the metric."""
    found, seen = [], set()
    for point in points:
        x, y = (scale.place(point.at[path]) for path, scale in zip(paths, scales, strict=True))
        if (x, y) in seen:
            raise InvalidParameter(
                f"plot(kind='map'): two points lie at {paths[0]} = {x:g}, {paths[1]} = {y:g}; a map shows one."
            )
        seen.add((x, y))
        result: Result | None = point.prediction
        if data.predicted:
            estimate, wrong = data.theory(point)
        else:
            if len(point.measurements) > 1:
                raise InvalidParameter(
                    f"plot(kind='map'): only {data.source} has {data.metric}, at several sizes d; a map shows one size."
                )
            result = point.measurements[0] if point.measurements else None
            _, estimate, wrong = next(iter(data.training(point)), (0, None, "not computed"))
        value = estimate.value if estimate is not None and math.isfinite(estimate.value) else math.nan
        wrong = wrong or ("" if math.isfinite(value) else "not computed")
        stable = getattr(result, "stable", None)
        labels = {
            "status": wrong or "CONVERGED",
            "branch": result.branch if result is not None else None,
            "stability": None if stable is None else "stable" if stable else "unstable",
        }
        found.append(_Sample(x, y, value, wrong, labels))
    return found


def _levels(given: int | Sequence[float] | None, low: float, high: float, log: bool) -> list[float]:
    """Return the contour levels that lie strictly between `low` and `high`, from a number of them or from values."""
    if given is None or isinstance(given, int):
        count = 6 if given is None else given
        if count < 0:
            raise InvalidParameter(f"plot(levels={given}): levels must be a number of contours >= 0 or their values.")
        if not count or low == high:
            return []
        locator = LogLocator(numticks=count + 2) if log else MaxNLocator(count + 1, steps=[1, 2, 2.5, 5, 10])
        return [float(v) for v in locator.tick_values(low, high) if low < v < high]
    try:
        levels = sorted({float(v) for v in given})
    except (TypeError, ValueError):
        levels = [math.nan]
    if not all(map(math.isfinite, levels)):
        raise InvalidParameter(f"plot(levels={given!r}): levels must be finite numbers, or how many contours.")
    inside = [v for v in levels if low < v < high]
    if levels and not inside:
        raise InvalidParameter(
            f"plot(levels={given!r}): no level lies inside the values, which go from {low:.4g} to {high:.4g}."
        )
    return inside


def _cells(axis: Any, samples: Sequence[_Sample], canvas: _Canvas) -> Any:
    """Draw a grid as coloured cells, with contours through what converged, hatched failures, and borders; return the
    image for the colour bar."""
    places, (xs, ys) = [s.places for s in canvas.scales], [s.edges() for s in canvas.scales]
    shape = (len(places[1]), len(places[0]))
    every = list(itertools.product(range(shape[0]), range(shape[1])))
    cells = {(int(np.argmin(abs(places[1] - s.y))), int(np.argmin(abs(places[0] - s.x)))): s for s in samples}
    value = np.array([cells[c].value if c in cells else math.nan for c in every]).reshape(shape)
    good = np.array([cells[c].value if c in cells and not cells[c].wrong else math.nan for c in every]).reshape(shape)
    at_infinity = [p == s.infinity for p, s in zip(places, canvas.scales, strict=True)]
    # infinity is drawn at an arbitrary place, so no contour may run to it
    good[at_infinity[1][:, None] | at_infinity[0][None, :]] = math.nan
    image = axis.pcolormesh(xs, ys, np.ma.masked_invalid(value), cmap="viridis", norm=canvas.norm)
    axis.set(xlim=xs[[0, -1]], ylim=ys[[0, -1]])
    levels = _crossed(canvas.levels, good)
    if levels:
        _dress_contours(axis, axis.contour(*places, np.ma.masked_invalid(good), levels=levels, **_CONTOURS))
    wrongs = {c: cells[c].wrong if c in cells else "not computed" for c in every}
    for wrong in sorted(set(wrongs.values()) - {""}):
        shown = [(j, i) for (j, i), found in wrongs.items() if found == wrong]
        corners = [[(xs[i + a], ys[j + b]) for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))] for j, i in shown]
        look: dict[str, Any] = {"edgecolor": "#222222", "linewidth": 0, "hatch": _hatch(wrong, canvas.legend)}
        axis.add_collection(PolyCollection(corners, facecolor="#ffffff66", label=wrong, **look))
    for kind in canvas.borders:
        labels = {c: s.labels[kind] for c, s in cells.items()}
        right = [(j, i) for j, i in every if _differ(labels.get((j, i)), labels.get((j, i + 1)))]
        above = [(j, i) for j, i in every if _differ(labels.get((j, i)), labels.get((j + 1, i)))]
        upright = [[(xs[i + 1], ys[j]), (xs[i + 1], ys[j + 1])] for j, i in right]
        level = [[(xs[i], ys[j + 1]), (xs[i + 1], ys[j + 1])] for j, i in above]
        _border(axis, kind, upright + level)
    _name_regions(axis, samples, canvas)
    return image


def _hatch(wrong: str, legend: dict[str, Any]) -> str:
    """Return the hatching of a kind of failure, the same in every panel, and put it into the legend."""
    if wrong not in legend:
        hatch = _HATCHES[len(legend) % len(_HATCHES)]
        legend[wrong] = Patch(facecolor="#dddddd", edgecolor="#222222", linewidth=0, hatch=hatch)
    return legend[wrong].get_hatch()


def _triangles(axis: Any, samples: Sequence[_Sample], canvas: _Canvas) -> Any:
    """Draw scattered points (crosses where they failed) with coloured triangles between them, contours and borders;
    return the image for the colour bar."""
    x, y = np.array([s.x for s in samples]), np.array([s.y for s in samples])
    unit = [_unit(scale.forward(v)) for scale, v in zip(canvas.scales, (x, y), strict=True)]
    try:
        flat = Triangulation(*unit)
        flat.set_mask(TriAnalyzer(flat).get_flat_tri_mask(0.01))
        triangles = flat.get_masked_triangles()
    except (ValueError, RuntimeError):
        triangles = np.zeros((0, 3), dtype=int)
    if not len(triangles):
        raise InvalidParameter(
            f"plot(kind='map'): the {len(samples)} scattered points span no area (they lie on one line or are fewer "
            "than three); draw curves or add points."
        )
    value = np.array([s.value for s in samples])
    at_infinity = [s.x == canvas.scales[0].infinity or s.y == canvas.scales[1].infinity for s in samples]
    good = np.where([not s.wrong for s in samples] & ~np.array(at_infinity), value, np.nan)
    shown = triangles[np.isfinite(value[triangles]).all(axis=1)]
    log = isinstance(canvas.norm, LogNorm)
    mean = np.exp(np.log(value[shown]).mean(axis=1)) if log else value[shown].mean(axis=1)
    colours: dict[str, Any] = {"cmap": "viridis", "norm": canvas.norm}
    if len(shown):
        image = axis.tripcolor(Triangulation(x, y, shown), facecolors=mean, **colours)
    else:
        image = axis.scatter(x, y, c=value, s=40, **colours)
    fine = triangles[np.isfinite(good[triangles]).all(axis=1)]
    axis.margins(0.01)
    axis.autoscale_view()
    levels = _crossed(canvas.levels, good[fine])
    if levels:
        contours = axis.tricontour(Triangulation(x, y, fine), np.nan_to_num(good), levels=levels, **_CONTOURS)
        _dress_contours(axis, contours)
    for kind in canvas.borders:
        labels = [s.labels[kind] for s in samples]
        _border(axis, kind, _mid_edges(np.column_stack([x, y]), triangles, labels, canvas.scales))
    size = min(3.5, 35.0 / math.sqrt(len(samples)))  # many dots are drawn small, or they would hide the colours
    dots: dict[str, Any] = {"color": "black", "markersize": size, "linestyle": "none", "clip_on": False, "zorder": 1.5}
    for wrong in ["", *sorted({s.wrong for s in samples} - {""})]:
        there = np.array([s.wrong == wrong for s in samples])
        look = {**open_cross(wrong, "black"), "clip_on": False} if wrong else {**dots, "marker": "."}
        axis.plot(x[there], y[there], label=wrong or "points", **look)
        if wrong:
            canvas.legend.setdefault(wrong, legend_sign(cross_of(wrong), color="black", markersize=7))
    _name_regions(axis, samples, canvas)
    return image


def _unit(t: np.ndarray) -> np.ndarray:
    """Return the values scaled to 0..1, so that which points are neighbours does not depend on units."""
    return (t - t.min()) / (float(np.ptp(t)) or 1.0)


def _mid_edges(
    places: np.ndarray, triangles: np.ndarray, labels: Sequence[str | None], scales: tuple[Scale, Scale]
) -> list[Any]:
    """Return the border between labels as segments (n, 2 ends, 2 coordinates).

    Inside each triangle it joins the middles of the edges whose ends have different labels. Where three labels meet, or
    one corner has none, it runs from the middles to the centre of the triangle.
    """
    t = np.column_stack([scale.forward(v) for scale, v in zip(scales, places.T, strict=True)])
    segments = []
    for corners in triangles:
        cut = [(t[a] + t[b]) / 2 for a, b in itertools.combinations(corners, 2) if _differ(labels[a], labels[b])]
        ends = [cut] if len(cut) == 2 else [[middle, t[corners].mean(axis=0)] for middle in cut]
        segments += [[[float(s.back(v)) for s, v in zip(scales, p, strict=True)] for p in pair] for pair in ends]
    return segments


def _differ(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a != b


def _border(axis: Any, kind: str, segments: list[Any]) -> None:
    colour, width = _BORDERS[kind]
    casing = [] if kind == "status" else [("black", width + _CASING, "casing")]
    for shown, wide, label in [*casing, (colour, width, kind)]:
        axis.add_collection(
            LineCollection(segments, colors=shown, linewidths=wide, capstyle="projecting", label=label, zorder=3)
        )


def _crossed(levels: Sequence[float], values: np.ndarray) -> list[float]:
    """Return the levels that lie strictly between these values."""
    finite = values[np.isfinite(values)]
    return [v for v in levels if finite.size and finite.min() < v < finite.max()]


def _dress_contours(axis: Any, drawn: Any) -> None:
    drawn.set_path_effects([withStroke(linewidth=1.5, foreground="#00000066")])
    for text in axis.clabel(drawn, fmt=lambda v: f"{v:.3g}", fontsize=7, colors="black", inline_spacing=2):
        text.set_path_effects(_HALO)


def _name_regions(axis: Any, samples: Sequence[_Sample], canvas: _Canvas) -> None:
    """Write the branch and the stability of each region at the point that is farthest from its borders."""
    from scipy.spatial import KDTree

    kinds = [kind for kind in canvas.borders if kind != "status"]
    names = np.array(["" if s.wrong else ", ".join(s.labels[k] or "" for k in kinds).strip(", ") for s in samples])
    places = zip(canvas.scales, ([s.x for s in samples], [s.y for s in samples]), strict=True)
    at = np.column_stack([_unit(scale.forward(v)) for scale, v in places])
    to_frame = 0.05 + np.minimum(at, 1 - at).min(axis=1)
    for name in sorted(set(names) - {""}):
        inside = names == name
        depth = to_frame[inside]
        if not inside.all():
            depth = np.minimum(depth, KDTree(at[~inside]).query(at[inside])[0])
        best = int(np.flatnonzero(inside)[np.argmax(depth)])
        side = "left" if at[best, 0] < 0.2 else "right" if at[best, 0] > 0.8 else "center"
        look: dict[str, Any] = {"fontsize": 8.5, "fontweight": "bold", "path_effects": _HALO, "zorder": 7}
        axis.text(samples[best].x, samples[best].y, name, ha=side, va="center", **look)

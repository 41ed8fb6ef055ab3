"""Spectra of a learned matrix: the predicted density with its atom at zero, over a histogram of trained eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from needlepoint.core.answers.spectra import Spectrum
from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.plotting.style import COLOURS, THEORY, TRAINING, panels, styled
from needlepoint.tasks.targets import Target

ZERO = 1e-3
"""Trained eigenvalues below this share of the largest one count as zero."""

ROOM = 0.76
"""Share of the panel's height that densities fill; the text of the share at zero stands above it."""

XLABEL = "eigenvalue of the learned matrix"
_PALE = "#f0c9ae"  # bars of trained eigenvalues, light enough for a line on top
_BINS = 90  # most bars of a histogram
_BEHIND, _FEW = "#9a9a9a", 12  # the colour of the target, and how many single eigenvalues of it are drawn tall
TARGET = "target"

PANEL = 4.4
"""Width in inches of a panel that stands beside others."""

GIVEN = "given"
"""What a user's own eigenvalues are called."""


@dataclass(frozen=True, eq=False)
class SpectrumPanel:
    """A predicted law, trained `eigenvalues` of any shape, or both.

    `zeros` is the share of the trained eigenvalues that are zero (None counts those below `ZERO`). `limits` are the
    ends of the x axis, for a spectrum whose largest eigenvalues would leave no room for the rest. `target` is the law
    of the matrix that was to be learned, drawn behind. `source` says in a word where the eigenvalues are from.
    """

    title: str
    spectrum: Spectrum | None
    eigenvalues: Any = None
    zeros: float | None = None
    limits: tuple[float, float] | None = None
    target: Target | None = None
    source: str = "trained"

    def __post_init__(self) -> None:
        if self.spectrum is None and self.eigenvalues is None:
            raise InvalidParameter(f"SpectrumPanel({self.title!r}): give a spectrum, eigenvalues or both.")


@styled
def spectrum_panels(
    every: Sequence[SpectrumPanel],
    *,
    columns: int = 3,
    width: float = 3.3,
    height: float = 2.6,
    xlabel: str = XLABEL,
    trained: str = "trained",
) -> Figure:
    """Return a figure of panels in rows of `columns`, each `width` x `height` inches, with one legend above."""
    if not every:
        raise InvalidParameter("spectrum_panels([]): there is nothing to draw.")
    columns = min(columns, len(every))
    rows = math.ceil(len(every) / columns)
    figure, axes = panels(rows, columns, max(3.4, width * columns), height * rows + 0.35)
    named: dict[str, Any] = {}
    for i, axis in enumerate(axes.flat):
        if i >= len(every):
            axis.set_axis_off()
            continue
        named |= draw_spectrum(axis, every[i], trained=trained)
        axis.set_ylabel("density" if i % columns == 0 else "")
    figure.supxlabel(xlabel, fontsize="medium")
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=4)
    return figure


def draw_spectrum(axis: Any, panel: SpectrumPanel, *, trained: str = "trained") -> dict[str, Any]:
    """Draw one panel; return its legend entries by name. `trained` is the name of the histogram."""
    law, named = panel.spectrum, {}
    values, zeros = _apart(panel)
    top = 0.0
    if len(values):
        heights, ends = histogram(panel)
        axis.stairs(heights, ends, fill=True, color=_PALE, zorder=2)
        axis.stairs(heights, ends, color=COLOURS[1], linewidth=0.5, alpha=0.7, zorder=2)
        named[trained] = Patch(facecolor=_PALE, edgecolor=COLOURS[1], linewidth=0.5)
        top = float(heights.max())
    peak = None
    behind = {} if panel.target is None else _target(axis, panel.target)
    if law is not None:
        x, y = curve(law)
        if not len(values):
            shade = axis.fill_between(x, y, color=COLOURS[0], alpha=0.14, linewidth=0, zorder=3)
            shade.set_clip_path(Rectangle((0, 0), 1, 1.02 * ROOM, transform=axis.transAxes))
        (line,) = axis.plot(x, y, color=COLOURS[0], linewidth=1.5, zorder=4)
        line.set_clip_path(Rectangle((0, 0), 1, 1.02 * ROOM, transform=axis.transAxes))
        named = {THEORY: Line2D([], [], color=COLOURS[0]), **named}
        if len(law.x):
            level = _level(law)
            highest = float(np.nanmax(y))
            top = min(max(highest, top), level)
            peak = (float(x[np.nanargmax(y)]), highest) if highest > top else None
        if law.edges.size:  # matplotlib would reserve room for an empty line that is not clipped
            axis.plot(law.edges.ravel(), np.zeros(law.edges.size), "|", color=COLOURS[0], markersize=7, clip_on=False)
        named |= _outliers(axis, law, values)
    axis.set_ylim(0, (top or 1.0) / ROOM)
    low, high = _range(panel, values)
    axis.set_xlim(*(panel.limits or (low - 0.04 * (high - low), high + 0.04 * (high - low))))
    if peak is not None:
        axis.annotate(
            f"↑ {peak[1]:.3g}",
            (peak[0], ROOM),
            xycoords=axis.get_xaxis_transform(),
            xytext=(5, -2),
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=COLOURS[0],
        )
    _zeros(axis, panel, zeros)
    axis.set_title(panel.title)
    return named | behind


def spectrum_drawer(panel: SpectrumPanel) -> Callable[[Any], None]:
    """Return a function that draws a panel on axes, with labels and a legend below."""

    def draw(axis: Any) -> None:
        named = draw_spectrum(axis, panel, trained=GIVEN if panel.source == GIVEN else TRAINING)
        axis.set(xlabel=XLABEL, ylabel="density")
        axis.legend(named.values(), named.keys(), loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=4)

    return draw


def curve(law: Spectrum) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of the density as a line, with NaN between the pieces of the support.

    The line comes down to zero at every edge. Only where a piece starts at zero, with an atom there, the density does
    not vanish: the line starts at the height that its first two points extrapolate to.
    """
    x: list[float] = []
    y: list[float] = []
    for low, high in law.edges:
        inside = (law.x >= low) & (law.x <= high)
        if not inside.any():
            continue
        start = 0.0
        if low == 0 and law.atom > 0:
            near, heights = law.x[inside][:2], law.density[inside][:2]
            slope = float(np.diff(heights)[0] / np.diff(near)[0]) if len(near) > 1 else 0.0
            start = max(0.0, float(heights[0] - slope * near[0]))
        x += [low, *law.x[inside], high, math.nan]
        y += [start, *law.density[inside], 0.0, math.nan]
    return np.array(x or [math.nan]), np.array(y or [math.nan])


def histogram(panel: SpectrumPanel) -> tuple[np.ndarray, np.ndarray]:
    """Return heights (bars,) and ends (bars + 1,) of the histogram of the eigenvalues that are not zero.

    Its area is the share of these among all eigenvalues, as for the density of the theory.
    """
    values, zeros = _apart(panel)
    low, high = float(values.min()), float(values.max())
    low = min(low, 0.0) if low >= -ZERO * high else low
    quarter = float(np.subtract(*np.quantile(values, [0.75, 0.25])))
    wanted = 2 * quarter / len(values) ** (1 / 3)
    if panel.spectrum is not None:  # four bars or more for each piece of the support that holds over 5 % of them
        pieces = panel.spectrum.edges
        mass = [np.sum((values >= a) & (values <= b)) for a, b in pieces]
        wanted = min([wanted, *((b - a) / 4 for (a, b), n in zip(pieces, mass, strict=True) if n > 0.05 * len(values))])
    span = high - low
    if span <= 1e-9 * max(abs(high), abs(low)):  # all values are equal, and a bar needs a width
        low, high, span, wanted = low - 0.5, high + 0.5, 1.0, 0.1
    bins = int(np.clip(math.ceil(span / wanted) if wanted > 0 else _BINS, 12, _BINS))
    counts, ends = np.histogram(values, bins=bins, range=(low, high))
    return counts / counts.sum() * (1 - (zeros or 0.0)) / np.diff(ends), ends


def read_eigenvalues(given: Any) -> np.ndarray:
    """Return a user's eigenvalues as an array (d,) or (matrices, d); raise one sentence if they are not."""
    try:
        found = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim not in (1, 2) or not found.size or not np.isfinite(found).all():
        raise InvalidParameter(
            f"plot(eigenvalues={shown(given)}): give finite numbers (d,), or (matrices, d) for several, such as "
            "np.linalg.eigvalsh(S)."
        )
    return found


def _apart(panel: SpectrumPanel) -> tuple[np.ndarray, float | None]:
    """Return the trained eigenvalues that are not zero, and the share of those that are.

    The share is None, and no eigenvalue is taken out, where the theory has no atom at zero; without a theory, where
    less than 0.5 % are zero.
    """
    if panel.eigenvalues is None:
        return np.empty(0), None
    every = np.atleast_2d(np.asarray(panel.eigenvalues, dtype=float))
    every = every[np.isfinite(every).all(axis=1)]  # repeats that diverged have no eigenvalues
    if not every.size:
        return np.empty(0), None
    sizes = np.abs(every)
    if panel.zeros is None:
        small = sizes <= ZERO * sizes.max(axis=1, keepdims=True)
    else:
        small = np.argsort(np.argsort(sizes, axis=None)).reshape(sizes.shape) < round(panel.zeros * sizes.size)
    share = float(small.mean())
    law = panel.spectrum
    by_chance = share < 0.005 if law is None else law.atom == 0
    return (every.ravel(), None) if by_chance else (every[~small], share)


def _level(law: Spectrum) -> float:
    """Return how high the y axis reaches: 2.5 times the height below which the density is on 90 % of its support.

    A density that diverges at an edge would otherwise flatten all the rest.
    """
    length, height = [], []
    for low, high in law.edges:
        inside = (law.x >= low) & (law.x <= high)
        places = np.r_[low, law.x[inside], high]
        length += list((places[2:] - places[:-2]) / 2)
        height += list(law.density[inside])
    order = np.argsort(height)
    share = np.cumsum(np.array(length)[order])
    at = min(int(np.searchsorted(share, 0.9 * share[-1])), len(order) - 1)
    return 2.5 * float(np.array(height)[order][at])


def _range(panel: SpectrumPanel, values: np.ndarray) -> tuple[float, float]:
    law = panel.spectrum
    ends = [values.min(), values.max()] if len(values) else []
    if law is not None:
        ends += [*law.edges.ravel(), *law.outliers]
    if law is None or law.atom > 0 or not ends:
        ends += [0.0]
    if panel.target is not None:
        ends += [float(x.max()) for x in panel.target.outline()[:1] if len(x)]
    low, high = float(min(ends)), float(max(ends))
    return (low, high) if high > low else (low - 0.1, low + 1.0)


def _outliers(axis: Any, law: Spectrum, values: np.ndarray) -> dict[str, Any]:
    """Draw a tick for each predicted outlier and a dot for each trained eigenvalue outside the support; return their
    legend entries."""
    named: dict[str, Any] = {}
    foot = axis.get_xaxis_transform()
    if len(law.outliers):
        axis.vlines(law.outliers, 0, 0.16, color=COLOURS[0], linewidth=1.4, transform=foot, zorder=4)
        axis.plot(law.outliers, np.full(len(law.outliers), 0.16), "v", color=COLOURS[0], markersize=5, transform=foot)
        named["predicted outlier"] = Line2D([], [], color=COLOURS[0], marker="v", linestyle="none", markersize=5)
        away = np.min([np.maximum(a - values, values - b) for a, b in law.edges], axis=0) if len(law.edges) else values
        outside = values[away > 0.05 * float(np.ptp(law.edges))] if len(values) and len(law.edges) else values
        if len(outside):
            look: dict[str, Any] = {
                "color": COLOURS[1],
                "markersize": 4,
                "markerfacecolor": "white",
                "markeredgewidth": 0.8,
            }
            axis.plot(outside, np.full(len(outside), 0.05), "o", transform=foot, zorder=5, **look)
            named["trained, outside"] = Line2D([], [], marker="o", linestyle="none", **look)
    return named


def _target(axis: Any, target: Target) -> dict[str, Any]:
    """Draw the law of the target behind everything: its density, or its single eigenvalues as ticks; return its legend
    entry."""
    x, y = target.outline()
    if len(x):
        axis.fill_between(x, y, color=_BEHIND, alpha=0.35, linewidth=0, zorder=1)
        axis.plot(x, y, color=_BEHIND, linewidth=0.9, zorder=2.5)  # seen also where the histogram covers the density
        return {TARGET: Patch(facecolor=_BEHIND, alpha=0.35, linewidth=0)}
    single = target.eigenvalues()
    single = single[single > 0]
    high = 0.35 if len(single) <= _FEW else 0.07
    axis.vlines(single, 0, high, transform=axis.get_xaxis_transform(), color=_BEHIND, linewidth=1.2, zorder=5)
    return {TARGET: Line2D([], [], color=_BEHIND, marker="|", linestyle="none", markersize=9, markeredgewidth=1.4)}


def _zeros(axis: Any, panel: SpectrumPanel, zeros: float | None) -> None:
    """Draw the shares of eigenvalues that are zero, of target, theory and training, as bars on a scale of their own to
    the right of the densities, and say them in words."""
    atom = 0.0 if panel.spectrum is None else panel.spectrum.atom
    if atom == 0 and zeros is None:
        return
    shares = [] if panel.target is None else [(1 - panel.target.rank, _BEHIND, {"alpha": 0.5})]
    shares += [] if panel.spectrum is None else [(atom, COLOURS[0], {})]
    shares += [] if zeros is None else [(zeros, _PALE, {"edgecolor": COLOURS[1], "linewidth": 0.8})]
    bars = axis.inset_axes((1.03, 0.0, 0.035 * len(shares) + 0.02, ROOM))
    for i, (share, colour, look) in enumerate(shares):
        bars.bar(i, share, 0.8, color=colour, **look)
    bars.set(xlim=(-0.7, len(shares) - 0.3), ylim=(0, 1), xticks=[], yticks=(0, 0.5, 1), xlabel="zeros")
    bars.set_yticklabels(("0", "50 %", "100 %"), fontsize=7)
    bars.xaxis.label.set_fontsize(8)
    bars.yaxis.tick_right()
    bars.grid(visible=False)
    bars.spines["left"].set_visible(False)
    bars.spines["right"].set_visible(True)
    look: dict[str, Any] = {"ha": "right", "va": "top", "fontsize": 8, "zorder": 8, "transform": axis.transAxes}
    axis.text(1.0, 0.97, _share_label(panel, atom, zeros), **look)


def _share_label(panel: SpectrumPanel, atom: float, zeros: float | None) -> str:
    if panel.spectrum is None:
        return f"{_percent(zeros or 0.0)} at zero"
    if zeros is None:
        return f"{_percent(atom)} at zero"
    # trained eigenvalues below `small` count as zero, so the text also gives the theory's share below it
    small = ZERO * float(np.max(np.abs(panel.eigenvalues)))
    below = float(np.interp(small, panel.spectrum.values, panel.spectrum.levels))
    also = f", {_percent(below)} below {small:.1g}\n" if below > atom + 0.01 else ""
    return f"{_percent(atom)} at zero{also or ' '}({panel.source} {_percent(zeros)})"


def _percent(share: float) -> str:
    """Return a share as whole per cents, with a decimal if it is below 1 % or above 99 %."""
    return f"{100 * share:.{0 if 0.01 <= share <= 0.99 or share in (0, 1) else 1}f} %"

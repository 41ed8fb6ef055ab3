"""Tables of numbers as panels, and z-scores beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D

from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.results import Prediction, Result
from needlepoint.plotting.style import COLOURS

FARTHEST = 6.0
"""|z| beyond this is drawn at the border of the panel, with its value as text."""

INK, _RULE = "#333333", "#d8d8d8"
_MARKS = ("o", "s", "^", "D", "v", "P")


def listed(result: Result) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of one result: metrics with their errors, overlaps, and the replicon."""
    kinds = {e.kind for e in result.metrics.values()}
    head = ["", "value", "standard error" if kinds == {"stderr"} else "error at most" if len(kinds) == 1 else "error"]
    rows = [[name, *numbers(e.value, e.error)] for name, e in result.metrics.items()]
    for name, value in () if result.overlaps is None else result.overlaps.items():
        rows.append([name, *numbers(value, result.overlaps_error.get(name))])
    if isinstance(result, Prediction) and result.replicon is not None:
        rows.append(["replicon", f"{result.replicon:.3g}", "stable" if result.stable else "not stable"])
    return head, rows


def compared(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of predicted against measured values, at the largest d."""
    d = max(row.d for row in comparison.rows)
    rows = [row for row in comparison.rows if row.d == d]
    head = ["", "predicted", f"at d = {d}", "error"]
    return head, [
        [r.metric, numbers(r.predicted, r.predicted_error)[0], *numbers(r.measured, r.measured_error)] for r in rows
    ]


def numbers(value: float, error: float | None) -> tuple[str, str]:
    """Return texts of the value, with the digits that its error leaves (six at most), and of the error."""
    if not math.isfinite(value):
        return "none", ""
    if error is None or error == 0 or not math.isfinite(error):
        return f"{value:.6g}", "" if error is None else "unknown" if error else "exact"
    size = math.floor(math.log10(abs(value))) if value else 0
    decimals = min(1 - math.floor(math.log10(error)), 5 - size)
    plain = f"{value:.{decimals}f}" if -4 <= size < 6 and decimals >= 0 else f"{value:.{max(2, size + decimals + 1)}g}"
    return plain, f"{error:.1e}"


def draw_table(axis: Any, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw rows of text under a head, the first column flush left and the others flush right."""
    axis.set_axis_off()
    axis.set(xlim=(0, 1.02), ylim=(len(rows) - 0.4, -1.6))
    stops = (0.0, *((0.64, 1.0) if len(head) == 3 else (0.56, 0.8, 1.0)))
    for y, row in enumerate((head, *rows), start=-1):
        if y >= 0:
            axis.axhline(y - 0.5, color=_RULE if y else INK, linewidth=0.6)
        for i, (x, text) in enumerate(zip(stops, row, strict=True)):
            colour = "#777777" if y < 0 else INK
            shown = text.replace("_", " ") if i == 0 else text
            axis.text(x, y, shown, ha="right" if i else "left", va="center", fontsize=8, color=colour)


def draw_scores(axis: Any, comparison: Comparison, names: Sequence[str], labels: bool = False) -> None:
    """Draw z of each metric beside its row of the table: a mark for each d, a star for the extrapolation in 1/d.

    With `labels` the rows are named on the axis, for a panel that has no table beside it.
    """
    axis.axvspan(-2, 2, color="#eeeeee", zorder=0)
    axis.axvline(0, color="#999999", linewidth=0.8)
    sizes = sorted({row.d for row in comparison.rows})
    points = [(names.index(r.metric), r.z, sizes.index(r.d)) for r in comparison.rows]
    fitted = [(names.index(e.metric), e.z_extrapolated, len(sizes)) for e in comparison.extrapolations]
    looks = [(_MARKS[i % len(_MARKS)], COLOURS[i % len(COLOURS)], 5.0) for i in range(len(sizes))]
    looks.append(("*", INK, 8.0))
    for y, z, i in (*points, *fitted):
        marker, colour, size = looks[i]
        if math.isnan(z):
            axis.text(0, y, "no z", ha="center", va="center", fontsize=7, color="#777777")
            continue
        far = abs(z) > FARTHEST
        x = math.copysign(FARTHEST, z) if far else z
        axis.plot(x, y, marker, color=colour, markersize=size, zorder=3, clip_on=False)
        if far:
            axis.annotate(
                f"{z:.3g}",
                (x, y),
                xytext=(-6 if z > 0 else 6, 0),
                textcoords="offset points",
                ha="right" if z > 0 else "left",
                va="center",
                fontsize=7,
            )
    axis.set(xlim=(-FARTHEST, FARTHEST), ylim=(len(names) - 0.4, -1.6), yticks=[], xlabel="z")
    if labels:
        axis.set(yticks=range(len(names)), yticklabels=[name.replace("_", " ") for name in names])
    axis.spines["left"].set_visible(False)
    axis.grid(visible=False)
    texts = [f"d = {d}" for d in sizes] + (["d to infinity"] if fitted else [])
    marks = [Line2D([], [], marker=m, color=c, linestyle="none", markersize=s) for m, c, s in looks[: len(texts)]]
    exact = all(row.exact for row in comparison.rows)
    title = "exact at this d" if exact else "theory is a limit"
    axis.legend(marks, texts, loc="lower center", bbox_to_anchor=(0.5, 1.0), title=title, title_fontsize=8)

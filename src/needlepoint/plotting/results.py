"""Pictures of one answer: a prediction, a measurement, or a prediction with the measurements that test it."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from os import PathLike
from typing import Any, overload

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.results import Measurement, Prediction, Result, Trajectory
from needlepoint.plotting.spectra import XLABEL, SpectrumPanel, draw_spectrum
from needlepoint.plotting.studies import pictures as studies
from needlepoint.plotting.studies.data import Plottable
from needlepoint.plotting.studies.pictures import picture_path
from needlepoint.plotting.style import COLOURS, THEORY, TRAINING, Picture, styled
from needlepoint.plotting.trajectories import four_panels

FARTHEST = 6.0
"""|z| beyond this is drawn at the border of the panel, with its value as text."""

_INK, _RULE = "#333333", "#d8d8d8"
_MARKS = ("o", "s", "^", "D", "v", "P")


@overload
def plot(
    shown: Result,
    measurements: Measurement | Sequence[Measurement] = (),
    *,
    path: str | PathLike[str] | None = None,
) -> Figure: ...
@overload
def plot(
    shown: Plottable,
    metric: str | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    kind: str | None = None,
    levels: int | Sequence[float] | None = None,
    path: str | PathLike[str] | None = None,
) -> Figure: ...
def plot(shown: Any, *args: Any, **options: Any) -> Figure:
    """Draw a result or a study, and save the picture if `path` is given.

    `plot(prediction)`, `plot(measurement)` or `plot(prediction, measurements)` draws the spectrum of the learned
    matrix, the trajectory or the metrics, whichever there is, with z-scores where both are given. `plot(study,
    metric)` draws a metric (or an overlap, "overlaps.key") of a study: `kind` "curves" against one axis (`x`), with
    training points and their z-scores, or "map" over two (`x`, `y`) with contours at `levels`.

    >>> found = ndl.predict(ndl.SpikedSLR(2, snr=2.0), None, ndl.BayesOptimal())
    >>> type(ndl.plot(found)).__name__
    'Picture'
    """
    if isinstance(shown, Result):
        return plot_result(shown, *args, **options)
    return studies.plot(shown, *args, **options)


def plot_result(
    result: Result,
    measurements: Measurement | Sequence[Measurement] = (),
    *,
    path: str | PathLike[str] | None = None,
) -> Figure:
    """Return the picture of one result; measurements, if given, must be of the same specs as the prediction."""
    target = picture_path(path)
    tests = (measurements,) if isinstance(measurements, Result) else tuple(measurements)
    if not isinstance(result, Result) or not all(isinstance(m, Measurement) for m in tests):
        raise InvalidParameter(
            "plot(prediction, measurements): takes a Prediction or a Measurement, and Measurements that test a "
            "Prediction; several predictions are drawn as a study (sweep)."
        )
    if tests and not isinstance(result, Prediction):
        raise InvalidParameter("plot: measurements are drawn over a Prediction; give that first.")
    figure = _figure(result, tests)
    if target is not None:
        try:
            figure.savefig(target, dpi=160)
        except OSError as error:
            raise InvalidParameter(
                f"plot(path={str(path)!r}): cannot be written ({error.strerror or error})."
            ) from None
    return figure


@styled
def _figure(result: Result, tests: tuple[Measurement, ...]) -> Figure:
    if result.trajectory is not None:
        return _trajectories(result, tests)
    spectra = _spectra(result, tests)
    from needlepoint.theory.comparing import compare  # imported late, because it loads the theory

    comparison = compare(result, tests) if isinstance(result, Prediction) and tests else None
    head, rows = _compared(comparison) if comparison else _listed(result)
    columns = min(2, len(spectra))
    high = math.ceil(len(spectra) / 2)
    table_width = 2.9 if comparison is None else 5.4
    height = max(2.7 * high, 0.27 * (len(rows) + 2) + 0.2 * (len(tests) + 2 if tests else 0)) + 0.75
    figure = Picture(figsize=(max(3.9 * columns + table_width, 4.2), height), layout="constrained")
    left, right = None, figure
    if spectra:
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(3.9 * columns, table_width))[0]
    title = _title(result, figure.get_size_inches()[0])
    figure.suptitle(title, fontsize=8.5, x=0.01, ha="left", color=_INK)
    if left is not None:
        axes = left.subplots(high, columns, squeeze=False)
        named: dict[str, Any] = {}
        for i, axis in enumerate(axes.flat):
            if i >= len(spectra):
                axis.set_axis_off()
                continue
            named |= draw_spectrum(axis, spectra[i], trained=TRAINING)
            axis.set(xlabel=XLABEL, ylabel="density")
        left.legend(named.values(), named.keys(), loc="outside lower center", ncols=4)
    if comparison is None:
        _table(right.subplots(1, 1), head, rows)
    else:
        table, scores = right.subplots(1, 2, width_ratios=(1.9, 1.0))
        _table(table, head, rows)
        _scores(scores, comparison, [row[0] for row in rows])
    return figure


def _title(result: Result, width: float) -> str:
    """Return the title: the specs, on one line where they fit in `width` inches, and what is wrong with the result."""
    room, parts = int(17 * width), [repr(s) for s in (result.task, result.model, result.learner) if s is not None]
    asked = [", ".join(parts)]
    if len(asked[0]) > room:
        asked = [f"{parts[0]},", ", ".join(parts[1:])]
    doubts = () if result.status.ok else (f"{result.status.name}: {result.status.sentence}", *result.notes)
    return "\n".join(line for text in (*asked, *doubts) for line in textwrap.wrap(text, room))


def _spectra(result: Result, tests: tuple[Measurement, ...]) -> list[SpectrumPanel]:
    """Return a panel for each measured d, or one of the predicted law alone; none if there is no spectrum."""
    law = result.spectrum if isinstance(result, Prediction) else None
    measured = [m for m in (result, *tests) if isinstance(m, Measurement)]
    trained = [(m, m.spectrum) for m in measured if m.spectrum is not None]
    if not trained:
        return [] if law is None else [SpectrumPanel("spectrum of the learned matrix", law)]
    return [
        SpectrumPanel(
            f"d = {m.d}, {m.repeats} repeat{'s' if m.repeats > 1 else ''}",
            law,
            spectrum.eigenvalues,
            1 - m.metrics["rank_fraction"].value if "rank_fraction" in m.metrics else None,
        )
        for m, spectrum in trained
    ]


# --- tables ---------------------------------------------------------------------------------------


def _listed(result: Result) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of one result: metrics with their errors, overlaps, and the replicon."""
    kinds = {e.kind for e in result.metrics.values()}
    head = ["", "value", "standard error" if kinds == {"stderr"} else "error at most" if len(kinds) == 1 else "error"]
    rows = [[name, *_numbers(e.value, e.error)] for name, e in result.metrics.items()]
    for name, value in () if result.overlaps is None else result.overlaps.items():
        rows.append([name, *_numbers(value, result.overlaps_error.get(name))])
    if isinstance(result, Prediction) and result.replicon is not None:
        rows.append(["replicon", f"{result.replicon:.3g}", "stable" if result.stable else "not stable"])
    return head, rows


def _compared(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of predicted against measured values, at the largest d."""
    d = max(row.d for row in comparison.rows)
    rows = [row for row in comparison.rows if row.d == d]
    head = ["", "predicted", f"at d = {d}", "error"]
    return head, [
        [r.metric, _numbers(r.predicted, r.predicted_error)[0], *_numbers(r.measured, r.measured_error)] for r in rows
    ]


def _numbers(value: float, error: float | None) -> tuple[str, str]:
    """Return texts of the value, with the digits that its error leaves (six at most), and of the error."""
    if not math.isfinite(value):
        return "none", ""
    if error is None or error == 0 or not math.isfinite(error):
        return f"{value:.6g}", "" if error is None else "unknown" if error else "exact"
    size = math.floor(math.log10(abs(value))) if value else 0
    decimals = min(1 - math.floor(math.log10(error)), 5 - size)
    plain = f"{value:.{decimals}f}" if -4 <= size < 6 and decimals >= 0 else f"{value:.{max(2, size + decimals + 1)}g}"
    return plain, f"{error:.1e}"


def _table(axis: Any, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw rows of text under a head, the first column flush left and the others flush right."""
    axis.set_axis_off()
    axis.set(xlim=(0, 1.02), ylim=(len(rows) - 0.4, -1.6))
    stops = (0.0, *((0.64, 1.0) if len(head) == 3 else (0.56, 0.8, 1.0)))
    for y, row in enumerate((head, *rows), start=-1):
        if y >= 0:
            axis.axhline(y - 0.5, color=_RULE if y else _INK, linewidth=0.6)
        for i, (x, text) in enumerate(zip(stops, row, strict=True)):
            colour = "#777777" if y < 0 else _INK
            shown = text.replace("_", " ") if i == 0 else text
            axis.text(x, y, shown, ha="right" if i else "left", va="center", fontsize=8, color=colour)


def _scores(axis: Any, comparison: Comparison, names: Sequence[str]) -> None:
    """Draw z of each metric beside its row of the table: a mark for each d, a star for the extrapolation in 1/d."""
    axis.axvspan(-2, 2, color="#eeeeee", zorder=0)
    axis.axvline(0, color="#999999", linewidth=0.8)
    sizes = sorted({row.d for row in comparison.rows})
    points = [(names.index(r.metric), r.z, sizes.index(r.d)) for r in comparison.rows]
    fitted = [(names.index(e.metric), e.z_extrapolated, len(sizes)) for e in comparison.extrapolations]
    looks = [(_MARKS[i % len(_MARKS)], COLOURS[i % len(COLOURS)], 5.0) for i in range(len(sizes))]
    looks.append(("*", _INK, 8.0))
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
    axis.spines["left"].set_visible(False)
    axis.grid(visible=False)
    labels = [f"d = {d}" for d in sizes] + (["d to infinity"] if fitted else [])
    marks = [Line2D([], [], marker=m, color=c, linestyle="none", markersize=s) for m, c, s in looks[: len(labels)]]
    exact = all(row.exact for row in comparison.rows)
    title = "exact at this d" if exact else "theory is a limit"
    axis.legend(marks, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), title=title, title_fontsize=8)


# --- trajectories ---------------------------------------------------------------------------------


def _trajectories(result: Result, tests: tuple[Measurement, ...]) -> Figure:
    """Return the four panels of a trajectory, with limits and legends that fit this run."""
    path = result.trajectory
    assert path is not None
    training = next((m.trajectory for m in reversed(tests) if m.trajectory is not None), None)
    every = [path] if training is None else [path, training]
    risks = np.concatenate([t.excess_risk.ravel() for t in every])
    top = float(np.max(risks[np.isfinite(risks)], initial=0.0)) or 1.0
    figure = four_panels(_ended(path), training, oracle=None, risk_limits=(-0.03 * top, 1.05 * top))
    if not path.branches:
        _rename(figure, "ends other", "each run, to its dot", whole=True)
    if isinstance(result, Measurement):
        _rename(figure, THEORY, f"{TRAINING} (d = {result.d}, {path.runs} runs)")
    risk, alignment, paths, distance = figure.axes
    if not np.issubdtype(path.steps.dtype, np.integer):
        for axis in (risk, alignment, distance):
            axis.set_xlabel("time")
    # where the norms are free an overlap may leave [-1, 1], for which the panels are made
    reach = max([1.0, *(_reach(t, name) for t in every for name in ("key", "value"))])
    if reach > 1.0:
        alignment.set_ylim(-0.03 * reach, 1.05 * reach)
        paths.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(-1.08 * reach, 1.08 * reach))
    figure.suptitle(_title(result, figure.get_size_inches()[0]), fontsize=8.5, x=0.01, ha="left", color=_INK)
    return figure


def _ended(path: Trajectory) -> Trajectory:
    return path if path.branches else dataclasses.replace(path, branches=("other",) * path.runs)


def _reach(path: Trajectory, name: str) -> float:
    found = np.abs(path.overlaps[name])
    return float(np.max(found[np.isfinite(found)], initial=0.0))


def _rename(figure: Figure, old: str, new: str, whole: bool = False) -> None:
    """Replace `old` in the legend texts that start with it, or with `whole` the whole text."""
    for axis in figure.axes:
        legend = axis.get_legend()
        for text in legend.get_texts() if legend is not None else ():
            if text.get_text().startswith(old):
                text.set_text(new if whole else text.get_text().replace(old, new))

"""Pictures of one answer: a prediction, a measurement, both, a comparison, or a spectrum."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, cast, overload

from matplotlib.figure import Figure

from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.answers.spectra import Spectrum, TrainedSpectrum
from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.results import Measurement, Prediction, Result
from needlepoint.learners import Ridge
from needlepoint.plotting.alone import draw_comparison, draw_law
from needlepoint.plotting.around import FIELDS, around, draw_around, drawn_metric, tests_on
from needlepoint.plotting.single_descent import draw_descent, draw_risk
from needlepoint.plotting.spectra import GIVEN, PANEL, SpectrumPanel, read_eigenvalues, spectrum_drawer
from needlepoint.plotting.studies import pictures as studies
from needlepoint.plotting.studies.data import Plottable
from needlepoint.plotting.studies.pictures import picture_path
from needlepoint.plotting.style import Picture, saved, styled
from needlepoint.plotting.tables import INK, compared, draw_scores, draw_table, listed


@overload
def plot(
    shown: Result,
    measurements: Measurement | Iterable[Measurement] = (),
    *,
    x: str | None = None,
    metric: str | None = None,
    eigenvalues: Any = None,
    ax: Any = None,
    path: str | PathLike[str] | None = None,
) -> Any: ...
@overload
def plot(
    shown: Comparison | Spectrum | TrainedSpectrum,
    *,
    ax: Any = None,
    path: str | PathLike[str] | None = None,
) -> Any: ...
@overload
def plot(
    shown: Plottable,
    metric: str | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    kind: str | None = None,
    levels: int | Sequence[float] | None = None,
    ax: Any = None,
    path: str | PathLike[str] | None = None,
) -> Any: ...
def plot(shown: Any, *args: Any, **options: Any) -> Any:
    """Draw an answer or a study; return the figure, which a notebook shows, or `ax` if that is given.

    `plot(prediction)` of a ridge learner draws a metric around the point, against `x` "alpha" (samples) or "penalty",
    which takes a second or more to compute, and beside it the spectrum of a model that learns a matrix, with the law
    of the target behind it. `metric` is the one to draw. Of a descent it draws the trajectory, and of anything else
    the numbers. `plot(prediction, measurements)` adds training, with z-scores; measurements at other samples or
    penalties are dots along the curve. `eigenvalues` are a user's own, drawn as a histogram over the predicted law.

    `plot(comparison)` draws the z-scores, `plot(prediction.spectrum)` the spectrum. `plot(study, metric)` draws a
    metric (or an overlap, "overlaps.key") of a study: `kind` "curves" against one axis (`x`), with training points
    and their z-scores, or "map" over two (`x`, `y`) with contours at `levels`.

    With `ax`, matplotlib axes, the main panel alone is drawn there; `path` saves the picture.

    >>> found = ndl.predict(ndl.SpikedSLR(2, snr=2.0), None, ndl.BayesOptimal())
    >>> type(ndl.plot(found)).__name__
    'Picture'
    """
    _check_options(shown, options)
    if isinstance(shown, Result):
        return plot_result(shown, *args, **options)
    if isinstance(shown, Comparison):
        return draw_comparison(shown, *args, **options)
    if isinstance(shown, (Spectrum, TrainedSpectrum)):
        return draw_law(shown, *args, **options)
    return studies.plot(shown, *args, **options)


OPTIONS = {
    "an answer": ("measurements", "x", "metric", "eigenvalues", "ax", "path"),
    "a comparison or a spectrum": ("ax", "path"),
    "a study": ("metric", "x", "y", "kind", "levels", "ax", "path"),
}
"""What `plot` takes by name, for each kind of what it draws."""


def _check_options(drawn: Any, options: dict[str, Any]) -> None:
    kind = "an answer" if isinstance(drawn, Result) else "a study"
    kind = "a comparison or a spectrum" if isinstance(drawn, (Comparison, Spectrum, TrainedSpectrum)) else kind
    for name in options:
        if name not in OPTIONS[kind]:
            raise InvalidParameter(f"plot({shown(name)[1:-1]}=...): of {kind} it takes {', '.join(OPTIONS[kind])}.")
    ax = options.get("ax")
    if ax is not None and not hasattr(ax, "get_xaxis_transform"):
        raise InvalidParameter(f"plot(ax={shown(ax)}): ax must be one axes of matplotlib, such as plt.subplots()[1].")


def plot_result(
    result: Result,
    measurements: Measurement | Iterable[Measurement] = (),
    *,
    x: str | None = None,
    metric: str | None = None,
    eigenvalues: Any = None,
    ax: Any = None,
    path: str | PathLike[str] | None = None,
) -> Any:
    """Return the picture of one result, see `plot`; measurements must be of the prediction's question, or of another
    that lies on its curve."""
    target = picture_path(path)
    tests = _tests(result, measurements)
    if x is not None and x not in FIELDS:
        raise InvalidParameter(f"plot(x={shown(x)}): x must be 'alpha' (samples) or 'penalty'.")
    curved = isinstance(result, Prediction) and isinstance(result.learner, Ridge) and bool(result.metrics)
    if not curved and (x is not None or metric is not None):
        raise InvalidParameter(
            f"plot(x=..., metric=...): a curve is drawn around the prediction of a Ridge learner; this is a "
            f"{type(result).__name__} of {type(result.learner).__name__}, and a sweep draws curves of any."
        )
    # every result has a spectrum or None, under a name that is not in their base
    if eigenvalues is not None and result.spectrum is None:  # pyright: ignore[reportAttributeAccessIssue]
        raise InvalidParameter("plot(eigenvalues=...): this model learns no matrix, and has no law to compare with.")
    values = None if eigenvalues is None else read_eigenvalues(eigenvalues)
    if ax is not None:
        _draw_on(ax, result, tests, x, metric, values)
        return saved(ax, target)
    return saved(_figure(result, tests, x or "alpha", metric, values), target)


def _tests(result: Result, measurements: Any) -> tuple[Measurement, ...]:
    """Return the measurements, checked, or raise one sentence on what `plot` takes."""
    several = isinstance(measurements, Iterable) and not isinstance(measurements, (Result, str))
    tests: tuple[Any, ...] = tuple(cast("Iterable[Any]", measurements)) if several else (measurements,)
    if not all(isinstance(m, Measurement) for m in tests):
        raise InvalidParameter(
            "plot(prediction, measurements): takes a Prediction or a Measurement, and Measurements that test a "
            f"Prediction, not a {type(tests[0]).__name__}; several predictions are drawn as a study (sweep)."
        )
    if tests and not isinstance(result, Prediction):
        raise InvalidParameter("plot: measurements are drawn over a Prediction; give that first.")
    return tests


@styled
def _draw_on(
    ax: Any, result: Result, tests: tuple[Measurement, ...], x: str | None, metric: str | None, values: Any
) -> None:
    """Draw the main panel of a result on axes that the user has made."""
    if result.trajectory is not None:
        draw_risk(ax, result, tests)
        return
    spectra = _spectra(result, tests, values)
    if spectra and x is None and metric is None:
        spectrum_drawer(spectra[-1])(ax)
        return
    if isinstance(result, Prediction) and isinstance(result.learner, Ridge) and result.metrics:
        along = x or "alpha"
        curve = around(result, along, drawn_metric(result, metric))
        draw_around(ax, result, curve, _on_the_curve(result, tests, along))
        return
    draw_table(ax, *listed(result))


@styled
def _figure(result: Result, tests: tuple[Measurement, ...], x: str, metric: str | None, values: Any) -> Figure:
    if result.trajectory is not None:
        figure = draw_descent(result, tests)
        _entitle(figure, result)
        return figure
    from needlepoint.theory.comparing import compare  # imported late, because it loads the theory

    curved = isinstance(result, Prediction) and isinstance(result.learner, Ridge) and bool(result.metrics)
    along = _on_the_curve(result, tests, x) if curved else list(tests)
    here = [m for m in along if not curved or _same(result, m)]
    if isinstance(result, Prediction) and tests and (here or not curved):
        comparison = compare(result, here or tests)
    else:
        comparison = None
    spectra = _spectra(result, tuple(here), values)
    drawers: list[Callable[[Any], Any]] = [spectrum_drawer(panel) for panel in spectra]
    if curved:
        assert isinstance(result, Prediction)
        curve = around(result, x, drawn_metric(result, metric))
        drawers.append(lambda axis: draw_around(axis, result, curve, along))
    head, rows = compared(comparison) if comparison else listed(result)
    tabled = comparison is not None or not curved
    columns, high = min(2, len(drawers)), math.ceil(len(drawers) / 2)
    table = (5.4 if comparison else 2.9) if tabled else 0.0
    lines = 0.27 * (len(rows) + 2) + 0.2 * (len(tests) + 2 if tests else 0) if tabled else 0.0
    figure = Picture(figsize=(max(PANEL * columns + table, 4.2), max(2.9 * high, lines) + 0.75), layout="constrained")
    _entitle(figure, result)
    parts: list[Any] = [figure]
    if drawers and tabled:
        parts = list(figure.subfigures(1, 2, squeeze=False, width_ratios=(PANEL * columns, table))[0])
    if drawers:
        for axis, draw in zip(_cells(parts[0], high, columns, len(drawers)), drawers, strict=True):
            draw(axis)
    if comparison is not None:
        left, right = parts[-1].subplots(1, 2, width_ratios=(1.9, 1.0))
        draw_table(left, head, rows)
        draw_scores(right, comparison, [row[0] for row in rows])
    elif tabled:
        draw_table(parts[-1].subplots(1, 1), head, rows)
    figure.draw_without_rendering()  # ticks change with the size of a panel, and so the room that its labels need
    return figure


def _cells(figure: Any, rows: int, columns: int, count: int) -> list[Any]:
    """Return the first `count` axes of a grid, and leave the others empty."""
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return axes[:count]


def _on_the_curve(result: Result, tests: tuple[Measurement, ...], x: str) -> list[Measurement]:
    """Return the measurements; raise one sentence if one is neither of the question nor on the curve around it."""
    assert isinstance(result, Prediction)
    found = tests_on(result, tests, x)
    if len(found) < len(tests):
        from needlepoint.core.answers.agreement import asked

        asked(result, [m for m in tests if m not in found])  # says what differs
        return list(tests)
    return found


def _same(result: Result, measurement: Measurement) -> bool:
    assert isinstance(result, Prediction)
    learner = (result.resolved or (None, None, result.learner))[2]
    return measurement.learner.replace(algorithm="lbfgs") in (
        learner.replace(algorithm="lbfgs"),
        result.learner.replace(algorithm="lbfgs"),
    )


def _entitle(figure: Figure, result: Result) -> None:
    """Set the title: the specs, on one line where they fit, and what is wrong with the result."""
    room = int(15.5 * figure.get_size_inches()[0])
    parts = [shown(s) for s in (result.task, result.model, result.learner) if s is not None]
    asked = [", ".join(parts)]
    if len(asked[0]) > room:
        asked = [f"{parts[0]},", ", ".join(parts[1:])]
    doubts = () if result.status.ok else (f"{result.status.name}: {result.status.sentence}", *result.notes)
    title = "\n".join(line for text in (*asked, *doubts) for line in textwrap.wrap(text, room))
    figure.suptitle(title, fontsize=8.5, x=0.01, ha="left", color=INK)


def _spectra(result: Result, tests: tuple[Measurement, ...], values: Any) -> list[SpectrumPanel]:
    """Return a panel for each measured d and for a user's eigenvalues, or one of the predicted law alone; none if there
    is no spectrum."""
    law = result.spectrum if isinstance(result, Prediction) else None
    target: Any = getattr(result.task, "target", None)
    measured = [m for m in (result, *tests) if isinstance(m, Measurement)]
    shown = [
        SpectrumPanel(
            f"d = {m.d}, {m.repeats} repeat{'s' if m.repeats > 1 else ''}",
            law,
            m.spectrum.eigenvalues,
            1 - m.metrics["rank_fraction"].value if "rank_fraction" in m.metrics else None,
            target=target,
        )
        for m in measured
        if m.spectrum is not None
    ]
    if values is not None:
        shown.append(SpectrumPanel(f"{values.size} {GIVEN} eigenvalues", law, values, target=target, source=GIVEN))
    if not shown and law is not None:
        shown.append(SpectrumPanel("spectrum of the learned matrix", law, target=target))
    return shown

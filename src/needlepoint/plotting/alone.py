"""Pictures of what is drawn by itself: a comparison, a spectrum."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from matplotlib.figure import Figure

from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.answers.spectra import Spectrum, TrainedSpectrum
from needlepoint.core.errors import InvalidParameter
from needlepoint.plotting.spectra import PANEL, SpectrumPanel, spectrum_drawer
from needlepoint.plotting.studies.pictures import picture_path
from needlepoint.plotting.style import Picture, saved, styled
from needlepoint.plotting.tables import compared, draw_scores, draw_table


def draw_comparison(comparison: Comparison, *more: Any, **options: Any) -> Any:
    """Return the table of predicted and measured values with their z-scores, or `ax` with the z-scores alone."""
    return _whole(comparison, _scores, _comparison_figure, *more, **options)


def draw_law(law: Spectrum | TrainedSpectrum, *more: Any, **options: Any) -> Any:
    """Return the picture of a spectrum, or `ax` with it."""
    return _whole(law, _law, _law_figure, *more, **options)


def _whole(
    answer: Any,
    draw: Callable[[Any, Any], None],
    figure: Callable[[Any], Figure],
    *more: Any,
    ax: Any = None,
    path: str | PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Draw an answer that has one picture, on `ax` or as a figure."""
    if more or options:
        extra = next(iter(options), "measurements")
        raise InvalidParameter(
            f"plot({type(answer).__name__}, {extra}=...): it is drawn by itself, with ax= or path= at most; "
            "plot(prediction, measurements) takes more."
        )
    target = picture_path(path)
    if ax is None:
        return saved(figure(answer), target)
    draw(ax, answer)
    return saved(ax, target)


@styled
def _scores(ax: Any, comparison: Comparison) -> None:
    draw_scores(ax, comparison, list(dict.fromkeys(row.metric for row in comparison.rows)), labels=True)


@styled
def _comparison_figure(comparison: Comparison) -> Figure:
    if not comparison.rows:
        raise InvalidParameter("plot(comparison): it has no rows.")
    head, rows = compared(comparison)
    sizes = len({row.d for row in comparison.rows})
    figure = Picture(figsize=(5.8, 0.27 * (len(rows) + 2) + 0.2 * (sizes + 2) + 0.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.9, 1.0))
    draw_table(left, head, rows)
    draw_scores(right, comparison, [row[0] for row in rows])
    return figure


@styled
def _law(ax: Any, law: Spectrum | TrainedSpectrum) -> None:
    predicted = isinstance(law, Spectrum)
    title = "spectrum of the learned matrix" if predicted else f"{len(law.eigenvalues)} trained matrices"
    panel = SpectrumPanel(title, law if predicted else None, None if predicted else law.eigenvalues)
    spectrum_drawer(panel)(ax)


def _law_figure(law: Spectrum | TrainedSpectrum) -> Figure:
    figure = Picture(figsize=(PANEL, 3.2), layout="constrained")
    with_style = styled(figure.subplots)
    _law(with_style(), law)
    return figure

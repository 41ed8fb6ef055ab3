"""The picture of a contest: the risk of every model at its own best penalties, or curves of them against alpha."""

from __future__ import annotations

import math
import textwrap
from os import PathLike
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from needlepoint.core.errors import InvalidParameter
from needlepoint.plotting.style import COLOURS, Picture, saved, styled
from needlepoint.studies.verdicts import Contest, Entry

_INK, _PALE = "#333333", "#9a9a9a"
_DOUBT = "#b3261e"


@styled
def plot_contest(contest: Contest, *, ax: Any = None, path: Path | PathLike[str] | None = None) -> Figure:
    """Return the picture: for one learner a row for each model with its penalties, for several a curve for each model
    against alpha. What is not to be trusted is hollow; the Bayes-optimal risk is a dashed line."""
    alphas = [getattr(learner, "alpha", None) for learner in contest.learners]
    curves = len(alphas) > 1
    if curves and any(alpha is None for alpha in alphas):
        raise InvalidParameter(
            "plot(contest): curves are drawn against alpha, which not all of its learners have; draw one learner at a "
            "time, contest(task, models, learner)."
        )
    alone = ax is None
    if alone:
        rows = len(contest.ranked(contest.learners[0]))
        figure: Figure = Picture(figsize=(6.4, 3.8 if curves else 1.5 + 0.42 * rows), layout="constrained")
        ax = figure.subplots()
    else:
        figure = ax.figure
    (_curves if curves else _rows)(ax, contest)
    if alone:
        text = "\n".join(textwrap.wrap(contest.verdict, 98))
        figure.suptitle(text, fontsize=8.5, x=0.01, ha="left", color=_INK)
    return saved(figure, None if path is None else Path(path))


def _rows(ax: Any, contest: Contest) -> None:
    learner, metric = contest.learners[0], contest.metric
    ranked, bound = contest.ranked(learner), contest.bound(learner)
    labels = []
    for y, entry in enumerate(ranked):
        risk = entry.risk(metric)
        colour = COLOURS[0] if y == 0 else _PALE
        shown = _error(risk.error)
        fill = colour if entry.trusted else "white"
        ax.errorbar(risk.value, y, xerr=shown, fmt="o", color=colour, mfc=fill, markersize=5, capsize=4, zorder=3)
        labels.append(_label(entry))
    if bound is not None:
        ax.axvline(bound.risk(metric).value, color=_INK, linestyle="--", linewidth=1.0)
        ax.annotate(
            bound.name,
            (bound.risk(metric).value, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color=_INK,
        )
    doubted = [e for e in ranked if not e.trusted]
    ax.set(yticks=range(len(labels)), ylim=(len(labels) - 0.5, -0.5), xlabel=_axis(contest))
    ax.set_yticklabels(labels)
    for tick, entry in zip(ax.get_yticklabels(), ranked, strict=True):
        tick.set_color(_DOUBT if entry in doubted else _INK)
    values = [e.risk(metric).value for e in ([*ranked, bound] if bound is not None else ranked)]
    finite = [v for v in values if math.isfinite(v)]
    if finite:
        room = 0.08 * ((max(finite) - min(finite)) or abs(finite[0]) or 1.0)
        ax.set_xlim(min(finite) - room, max(finite) + room)
    ax.grid(visible=False, axis="y")


def _label(entry: Entry) -> str:
    lam = entry.penalties
    text = f"{entry.name}\n" if lam else entry.name
    if lam:
        text += f"penalt{'y' if len(lam) == 1 else 'ies'} " + " / ".join(f"{x:.2g}" for x in lam)
    return text if entry.trusted else f"{text}, not trusted"


def _curves(ax: Any, contest: Contest) -> None:
    names = dict.fromkeys(entry.name for entry in contest.entries)
    colours = iter(COLOURS)
    for name in names:
        mine = sorted((e for e in contest.entries if e.name == name), key=_alpha)
        bayes = mine[0].model is None
        colour = _INK if bayes else next(colours, _PALE)
        xs = [_alpha(e) for e in mine]
        risks = [e.risk(contest.metric) for e in mine]
        ys = [r.value for r in risks]
        ax.plot(xs, ys, "--" if bayes else "-", color=colour, linewidth=1.0 if bayes else 1.6, label=name)
        errors = [_error(r.error) for r in risks]
        ax.fill_between(
            xs,
            [y - e for y, e in zip(ys, errors, strict=True)],
            [y + e for y, e in zip(ys, errors, strict=True)],
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        if not bayes:
            for x, y, entry in zip(xs, ys, mine, strict=True):
                ax.plot(x, y, "o", color=colour, mfc=colour if entry.trusted else "white", markersize=5)
    if any(not e.trusted for e in contest.entries):
        ax.plot([], [], "o", color=_PALE, mfc="white", markersize=5, label="not to be trusted")
    many = max(map(_alpha, contest.entries)) > 4 * min(map(_alpha, contest.entries))
    ax.set(xlabel=r"$\alpha$ (alpha)", ylabel=_axis(contest), xscale="log" if many else "linear")
    if many:
        ticks = [_alpha(e) for e in contest.entries if e.name == contest.entries[0].name]
        ax.set_xticks(ticks[:: max(1, len(ticks) // 6)], minor=False)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:.3g}")
        ax.xaxis.set_minor_formatter(lambda x, _: "")
    ax.legend()


def _axis(contest: Contest) -> str:
    words = contest.metric.replace("_", " ")
    penalties = any(e.penalties for e in contest.entries)
    chosen = any(isinstance(getattr(e.learner, "lam", None), str) for e in contest.entries)
    sizes = sorted({e.measurement.d for e in contest.entries if e.measurement is not None})
    text = f"{words} at the best penalties" if chosen else f"{words} at the given penalty" if penalties else words
    return f"{text}, trained at d = {sizes[0]}" if sizes else text


def _alpha(entry: Entry) -> float:
    return float(getattr(entry.learner, "alpha", math.nan))


def _error(error: float) -> float:
    return error if math.isfinite(error) else 0.0

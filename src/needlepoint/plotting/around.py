"""The curve around a ridge prediction: a metric against the number of samples or the penalty, with the point on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Prediction
from needlepoint.core.specs import declared
from needlepoint.learners import Ridge
from needlepoint.plotting.studies.data import estimate_of
from needlepoint.plotting.studies.scales import is_wide
from needlepoint.plotting.style import COLOURS, THEORY, TRAINING
from needlepoint.studies.study import sweep

FIELDS = {"alpha": "alpha", "penalty": "lam"}
"""What a curve can go along, by the name that `plot(x=...)` takes, and the field of the learner that it changes."""

FAVOURED = ("estimation_error", "excess_risk", "risk")
"""The first of these that a prediction has is drawn."""

_SHAPES = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Span:
    """How far a curve reaches and how finely it is drawn.

    alpha    largest factor, up and down, between the samples at its ends and those of the point
    penalty  the same for the penalty, which matters on a logarithmic scale only
    points   number of predictions along it, evenly in the logarithm; even, so that none falls on the point itself
    alone    the same where no solver continues a curve from point to point
    further  how often a penalty curve is continued beyond an end at which it is still falling
    tol      accuracy that is asked of each of these, as a share of the target's mean square: what the eye can see
    zero     ends of the curve of a point without penalty, which has no place on a logarithmic axis
    """

    alpha: float = 4.0
    penalty: float = 30.0
    points: int = 20
    alone: int = 16
    further: int = 2
    tol: float = 0.01
    zero: tuple[float, float] = (1e-3, 1.0)


SPAN = Span()


@dataclass(frozen=True)
class Curve:
    """A metric along one field of the learner: the answers (x, estimate, whether it is trusted), sorted by x.

    `best` is the penalty at which the curve is lowest, where that is inside it.
    """

    x: str
    metric: str
    answers: tuple[tuple[float, Estimate, bool], ...]
    best: float | None = None


def drawn_metric(prediction: Prediction, metric: str | None) -> str:
    """Return the metric to draw: the given one if there is such, or the first of `FAVOURED`."""
    if metric is None:
        return next((name for name in FAVOURED if name in prediction.metrics), next(iter(prediction.metrics), "risk"))
    if estimate_of(prediction, metric) is None:
        raise InvalidParameter(f"plot(metric={shown(metric)}): the prediction has {', '.join(prediction.metrics)}.")
    return metric


def place(learner: Any, x: str) -> float:
    """Return where a learner is on the axis `x`; of two penalties, that of the key counts."""
    return learner.penalties[0] if x == "penalty" else learner.alpha


def around(prediction: Prediction, x: str, metric: str) -> Curve:
    """Return the curve through a prediction, computed by a study that is not kept. Points that fail are left out."""
    task, model, learner = prediction.resolved or (prediction.task, prediction.model, prediction.learner)
    field = FIELDS[x]
    here = place(learner, x)
    ratio = learner.penalties[1] / here if isinstance(learner, Ridge) and x == "penalty" and here else 1.0
    found: dict[float, Prediction] = {here: prediction} if here else {}

    continued = _continued(task, model, learner)
    count, tol = (SPAN.points, None) if continued else (SPAN.alone, SPAN.tol)

    def compute(low: float, high: float, count: int) -> None:
        values = np.geomspace(low, high, count).tolist()
        over = values if ratio == 1 else [(v, ratio * v) for v in values]
        with sweep(task, model, learner, {f"learner.{field}": over}, tol=tol) as study:
            for value, point in zip(values, study.points(), strict=True):
                if point.prediction is not None:
                    found[value] = point.prediction

    far = SPAN.penalty if x == "penalty" else SPAN.alpha
    low, high = (here / far, here * far) if here else SPAN.zero
    compute(low, high, count)
    for _ in range(SPAN.further if x == "penalty" else 0):
        answers = _answers(found, metric)
        if not answers:
            break
        lowest = min(answers, key=lambda a: a[1].value)[0]
        if lowest == answers[0][0]:
            compute(low / far, low / far ** (2 / count), count // 2)
            low /= far
        elif lowest == answers[-1][0]:
            compute(high * far ** (2 / count), high * far, count // 2)
            high *= far
        else:
            break
    answers = _answers(found, metric)
    return Curve(x, metric, answers, _best(answers) if x == "penalty" else None)


def _continued(task: Any, model: Any, learner: Any) -> bool:
    from needlepoint.theory.curves import static_key

    return static_key(task, model, learner) is not None


def _answers(found: dict[float, Prediction], metric: str) -> tuple[tuple[float, Estimate, bool], ...]:
    rows = []
    for x in sorted(found):
        estimate = estimate_of(found[x], metric)
        if estimate is not None and estimate.finite:
            rows.append((x, estimate, found[x].ok and found[x].stable is not False))
    return tuple(rows)


def _best(answers: Sequence[tuple[float, Estimate, bool]]) -> float | None:
    """Return where a parabola in log x through the lowest answer and its neighbours is lowest; None at an end."""
    if len(answers) < 3:
        return None
    lowest = min(range(len(answers)), key=lambda i: answers[i][1].value)
    if lowest in (0, len(answers) - 1):
        return None
    t = [math.log(answers[i][0]) for i in range(lowest - 1, lowest + 2)]
    a, b, _ = np.polyfit(np.array(t) - t[1], [answers[i][1].value for i in range(lowest - 1, lowest + 2)], 2)
    return answers[lowest][0] if a <= 0 else math.exp(t[1] - b / (2 * a))


def tests_on(prediction: Prediction, measurements: Sequence[Measurement], x: str) -> list[Measurement]:
    """Return the measurements that belong on the curve: of the same question but for the field along which it goes."""
    task, model, learner = prediction.resolved or (prediction.task, prediction.model, prediction.learner)
    field = FIELDS[x]
    others = [f.name for f in declared(type(learner)) if f.name not in (field, "algorithm")]

    def same(m: Measurement) -> bool:
        alike = type(m.learner) is type(learner) and not isinstance(getattr(m.learner, field), str)
        kept = alike and all(getattr(m.learner, name) == getattr(learner, name) for name in others)
        return kept and (m.task, m.model) == (task, model)

    return [m for m in measurements if same(m)]


def draw_around(axis: Any, prediction: Prediction, curve: Curve, measurements: Sequence[Measurement]) -> None:
    """Draw the curve with its error as a band, dashed where it is not to be trusted, the point, and training points."""
    x = np.array([a[0] for a in curve.answers])
    value, error = (np.array([getattr(a[1], name) for a in curve.answers]) for name in ("value", "error"))
    trusted = np.array([a[2] for a in curve.answers], dtype=bool)
    colour = COLOURS[0]
    if len(x):
        axis.fill_between(x, value - error, value + error, color=colour, alpha=0.18, linewidth=0)
        axis.plot(x, np.where(trusted, value, np.nan), color=colour, label=THEORY)
    if not trusted.all():
        near = ~trusted  # a dashed piece reaches to the trusted points beside it, so that the line has no hole
        near[:-1] |= ~trusted[1:]
        near[1:] |= ~trusted[:-1]
        axis.plot(x, np.where(near, value, np.nan), "--", color=colour, label=f"{THEORY}, not to be trusted")
    learner = (prediction.resolved or (None, None, prediction.learner))[2]
    here = place(learner, curve.x)
    estimate = estimate_of(prediction, curve.metric)
    if estimate is not None and math.isfinite(estimate.value):
        bar = estimate.error if math.isfinite(estimate.error) else None
        if here > 0:
            label = f"{estimate} at {here:.4g}"
            axis.errorbar(
                [here], [estimate.value], yerr=bar, fmt="o", color=colour, markersize=7, zorder=4, label=label
            )
        else:
            label = f"{estimate} without penalty"
            axis.axhline(estimate.value, color=colour, linewidth=1.0, linestyle=":", label=label)
        value = np.r_[value, estimate.value]
    if curve.best is not None:
        axis.axvline(curve.best, color="#888888", linewidth=1.0, linestyle=":", label=f"lowest at {curve.best:.3g}")
    value = np.r_[value, _training(axis, curve, measurements)]
    over = "d^2" if "estimation_error" in prediction.metrics else "d"
    pair = isinstance(learner, Ridge) and len(set(learner.penalties)) > 1
    names = {
        "alpha": rf"$\alpha$, samples over ${over}$",
        "penalty": r"penalty $\lambda$" + (" on the key, that on the value in proportion" if pair else ""),
    }
    axis.set(xscale="log", xlabel=names[curve.x], ylabel=curve.metric.replace("_", " "))
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_yscale("log" if is_wide(value) else "linear")
    axis.legend()


def _training(axis: Any, curve: Curve, measurements: Sequence[Measurement]) -> list[float]:
    """Draw a mark for each measurement with one standard error; return the measured values."""
    sizes, drawn = sorted({m.d for m in measurements}), list[float]()
    for i, d in enumerate(sizes):
        rows = []
        for m in measurements:
            estimate = estimate_of(m, curve.metric)
            if m.d == d and estimate is not None and math.isfinite(estimate.value) and place(m.learner, curve.x) > 0:
                rows.append((place(m.learner, curve.x), estimate.value, estimate.error))
        if rows:
            x, mean, error = np.array(rows).T
            drawn += mean.tolist()
            look: dict[str, Any] = {"markersize": 5, "markerfacecolor": "white", "color": COLOURS[1], "linewidth": 1.2}
            error = np.where(np.isfinite(error), error, np.nan)
            label = f"{TRAINING}, $d$ = {d}"
            axis.errorbar(x, mean, yerr=error, fmt=_SHAPES[i % len(_SHAPES)], zorder=5, label=label, **look)
    return drawn

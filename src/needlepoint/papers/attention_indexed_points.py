"""What the figures of arXiv 2509.24914 share: tasks, the points that a curve needs, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Prediction
from needlepoint.core.specs import Spec
from needlepoint.learners import Ridge
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.papers.figures import Point, Record, Size
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Wishart

PAPER, BAYES_PAPER = "2509.24914", "2506.01582"
NOISE = 0.5
TIED, DIRECT = TiedAttention(), DirectAttention()
TWO = AttentionIndexed(2, Wishart(0.5), noise_var=NOISE)
"""The task of most figures: two tokens, target of rank d/2."""

PENALTY = 0.02
"""The penalty of figures with a single fixed one; it is near the best one for many sequences."""

ALPHA = r"sequences over dimension squared $\alpha$"
ERROR = r"estimation error $\mathrm{Tr}(S - S_0)^2/d$"
COLUMNS = ["panel", "curve", "source", "x", "metric", "value", "error", "error_kind", "status", "d"]


def training(size: Size, tokens: int = 2, d: int | None = None) -> dict[str, Any]:
    """Return the options of a simulation at this size of figure; `d` None is the largest dimension used.

    Smaller ones have more repeats: they are cheap, and a trend in d is seen against the noise of both.
    """
    largest = 40 if size == "quick" else 100 if tokens == 1 else 70
    repeats = 16 if d is None or d >= largest else 24
    return {"d": d or largest, "repeats": repeats, "samples": 3000 if size == "quick" else 10_000, "seed": 1}


def dimensions(size: Size, tokens: int = 2) -> list[int]:
    """Return the dimensions of a figure's training: the largest, and half of it to tell a finite size by its trend."""
    largest = training(size, tokens)["d"]
    return [largest, largest // 2]


def theory(size: Size, measured: Sequence[int]) -> dict[str, Any]:
    """Return the options of a prediction.

    A quick prediction that no training is compared with (`measured` is empty) needs only the precision of a drawn line.
    """
    return {"tol": 0.01} if size == "quick" and not measured else {}


def learner(alpha: float, lam: Any, task: AttentionIndexed = TWO, model: Spec = TIED) -> Ridge:
    """Return ridge-penalised training from one start, as two starts find the same minimum in these figures.

    For one token and tied attention the problem is convex in S, and FISTA, which uses that, is quicker than L-BFGS.
    """
    convex = task.tokens == 1 and model == TIED
    return Ridge(alpha, lam, start="random", algorithm="fista" if convex else "lbfgs")


def asked(
    task: AttentionIndexed,
    model: Spec,
    alpha: float,
    lam: Any,
    label: str,
    x: float,
    size: Size,
    measured: Sequence[int] = (),
) -> list[Point]:
    """Return the points of one place on a curve: a prediction, and training at each dimension in `measured`."""
    question = task, model, learner(alpha, lam, task, model)
    points = [Point("predict", *question, theory(size, measured), label, x)]
    follow = isinstance(lam, str)
    return points + [
        Point("simulate", *question, training(size, task.tokens, d), label, x, follow=follow) for d in measured
    ]


def labelled(records: Sequence[Record], label: str) -> list[Record]:
    """Return the records with this label, sorted by x."""
    return sorted((r for r in records if r.point.label == label), key=lambda r: float(r.point.x or 0))


def line(records: Sequence[Record], panel: str, name: str, metric: str, **look: Any) -> tuple[Any, list[list[Any]]]:
    """Return the line of one metric with its measured points, and the rows of its table (`COLUMNS`)."""
    from needlepoint.plotting.metrics import Line

    mine = labelled(records, f"{panel}, {name}")
    lines = [r for r in mine if isinstance(r.result, Prediction)]
    dots = [r for r in mine if isinstance(r.result, Measurement)]
    largest = max((r.result.d for r in dots), default=0)
    drawn = Line(
        name,
        [float(r.point.x or 0) for r in lines],
        [metric_of(r, metric).value for r in lines],
        [r.result.status.ok for r in lines],
        [_dot(r, metric) for r in dots if r.result.d == largest],
        smaller=[_dot(r, metric) for r in dots if r.result.d < largest],
        **look,
    )
    rows = [
        [panel, name, source, r.point.x, metric, e.value, e.error, e.kind, r.result.status.name, d]
        for source, found in (("theory", lines), ("training", dots))
        for r in found
        for e, d in [(metric_of(r, metric), getattr(r.result, "d", ""))]
    ]
    return drawn, rows


def _dot(record: Record, metric: str) -> tuple[float, float, float]:
    found = metric_of(record, metric)
    return float(record.point.x or 0), found.value, found.error


def metric_of(record: Record, metric: str) -> Estimate:
    return record.result.metrics[metric]


def sizes(records: Sequence[Record], what: str = "training") -> dict[str, Any]:
    """Return what the legend says of measured points, and of those of smaller sizes: arguments of `metric_panels`."""
    found = sorted({(r.result.d, r.result.repeats) for r in records if isinstance(r.result, Measurement)})
    if not found:
        return {}
    said = [f"d = {d}, {repeats} repeats" for d, repeats in found]
    named = {"measured": f"{what}, {said[-1]}, ± standard error"}
    return {**named, "smaller": f"{what}, {' or '.join(said[:-1])}"} if len(said) > 1 else named

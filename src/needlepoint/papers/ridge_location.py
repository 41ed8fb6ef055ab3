"""Figures of arXiv 2509.21936 with alpha d samples: what ridge-penalised attention learns, and the Bayes optimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from needlepoint.core.results import Measurement, Prediction
from needlepoint.core.specs import Spec
from needlepoint.learners import BayesOptimal, Ridge
from needlepoint.models.activations import Linear, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register, spread
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR

PAPER = "2509.21936"
NOISE = 0.1
PENALTY = 0.5
"""The fixed penalty of the figures against alpha."""

ATTENTIONS = {"softmax": KeyValueAttention(Softmax()), "linear": KeyValueAttention(Linear())}
BAYES = "Bayes-optimal"
BAYES_TASKS = (SpikedSLR, MaxSLR)
"""Tasks whose Bayes-optimal line is drawn."""

_COLOURS = {"softmax": 0, "linear": 1, BAYES: 5}
COLUMNS = ["panel", "curve", "source", "x", "excess_risk", "error", "error_kind", "status", "d"]
ALPHA, EXCESS = r"samples over dimension $\alpha$", "excess risk"


def spiked(tokens: int, snr: float) -> SpikedSLR:
    return SpikedSLR(tokens, snr=snr, noise=NOISE)


def argmax(tokens: int) -> MaxSLR:
    return MaxSLR(tokens, snr=math.inf, noise=NOISE)


CASES: dict[str, SingleLocation] = {
    f"{name}, {tokens} tokens": task
    for tokens in (2, 3)
    for name, task in (
        ("spiked, snr 1", spiked(tokens, 1.0)),
        ("spiked, snr 2", spiked(tokens, 2.0)),
        ("max, snr infinite", argmax(tokens)),
    )
}
QUICK = ("spiked, snr 1, 2 tokens", "spiked, snr 2, 2 tokens", "max, snr infinite, 2 tokens", "spiked, snr 2, 3 tokens")


def training_options(size: Size) -> list[dict[str, Any]]:
    """Return the options of training at each d; a second, smaller d tells a finite size from a disagreement.

    It has more repeats, because it is cheap and a trend is seen against the noise of both.
    """
    largest = 100 if size == "quick" else 200
    return [
        {"d": largest, "repeats": 16, "samples": 20_000, "seed": 1},
        {"d": largest // 2, "repeats": 32, "samples": 10_000, "seed": 2},
    ]


def _theory(size: Size) -> dict[str, Any]:
    """Return the options of a prediction: the excess risk to the precision of a drawn line."""
    return {"tol": 0.01 if size == "quick" else 0.005}


def _ridge(
    task: Spec, name: str, lam: Any, alpha: float, label: str, x: float, size: Size, measured: bool
) -> list[Point]:
    """Return the points of one place on a curve: a prediction and, if `measured`, training with its penalties."""
    question = task, ATTENTIONS[name], Ridge(alpha, lam)
    points = [Point("predict", *question, _theory(size), label, x)]
    follow = isinstance(lam, str)
    options = training_options(size) if measured else []
    return points + [Point("simulate", *question, each, label, x, follow=follow) for each in options]


def _bayes(task: Spec, alpha: float, label: str, size: Size, measured: bool) -> list[Point]:
    """Return the points of the Bayes-optimal risk and, if `measured`, of message passing, which attains it.

    There is one d: at half of it message passing does not settle in some of the repeats (theory/bayes-samples says
    why).
    """
    if not isinstance(task, BAYES_TASKS):
        return []
    question = task, None, BayesOptimal(alpha)
    points = [Point("predict", *question, label=label, x=alpha)]
    options = training_options(size)[:1] if measured else []
    return points + [Point("simulate", *question, each, label, alpha) for each in options]


def is_trusted(result: Prediction) -> bool:
    return result.status.ok


def _curve(records: Sequence[Record], panel: str, name: str, colour: int) -> tuple[Any, list[list[Any]]]:
    """Return one curve with its measured points, and the rows of its table (`COLUMNS`)."""
    from needlepoint.plotting.stability import DoubtCurve

    mine = sorted((r for r in records if r.point.label == f"{panel}, {name}"), key=lambda r: float(r.point.x or 0))
    lines = [r for r in mine if isinstance(r.result, Prediction)]
    dots = [r for r in mine if isinstance(r.result, Measurement)]
    largest = max((r.result.d for r in dots), default=0)
    curve = DoubtCurve(
        name,
        [float(r.point.x or 0) for r in lines],
        [r.result.excess_risk.value for r in lines],
        [is_trusted(r.result) for r in lines],
        [_dot(r) for r in dots if r.result.d == largest],
        colour,
        smaller=[_dot(r) for r in dots if r.result.d < largest],
    )
    rows = [
        [panel, name, source, r.point.x, e.value, e.error, e.kind, r.result.status.name, getattr(r.result, "d", "")]
        for source, found in (("theory", lines), ("training", dots))
        for r in found
        for e in [r.result.excess_risk]
    ]
    return curve, rows


def _dot(record: Record) -> tuple[float, float, float]:
    return float(record.point.x or 0), record.result.excess_risk.value, record.result.excess_risk.error


def _draw_rows(
    records: Sequence[Record], rows: Sequence[Sequence[str]], names: dict[str, int], ticks: Sequence[float], **look: Any
) -> Drawing:
    """Return the drawing of the panels named in `rows`, with those curves of `names` that are among the records."""
    from needlepoint.plotting.stability import DoubtPanel, doubt_panels

    shown, table = [], []
    for row in rows:
        panels = []
        for panel in row:
            found = [_curve(records, panel, name, colour) for name, colour in names.items()]
            panels.append(DoubtPanel(panel, [curve for curve, _ in found if len(curve.x)]))
            table += [line for _, mine in found for line in mine]
        shown.append(panels)
    sizes = sorted({(r.result.d, r.result.repeats) for r in records if isinstance(r.result, Measurement)})
    training = "training (Bayes: message passing),\n" if BAYES in names else "training, "
    said = [f"d = {d}, {n} repeats, ± standard error" for d, n in sizes]
    measured, smaller = f"{training}{said[-1]}" if said else "", f"the same, {said[0]}" if len(said) > 1 else ""
    figure = doubt_panels(shown, measured=measured, smaller=smaller, ticks=ticks, **look)
    return Drawing(figure, {"curves": (COLUMNS, table)})


def _present(records: Sequence[Record]) -> list[str]:
    return [case for case in CASES if any(r.point.label.startswith(f"{case}, ") for r in records)]


def _in_rows(cases: Sequence[str]) -> list[list[str]]:
    """Return the cases in rows of panels: two in a row if there are two or four, else three."""
    width = 2 if len(cases) in (2, 4) else 3
    return [list(cases[i : i + width]) for i in range(0, len(cases), width)]


# --- error against alpha, fixed penalty ----------------------------------------------------------

_TICKS = (0.5, 1.0, 2.0, 4.0, 8.0)
_BENT = (0.5, 0.7, 0.85, 1.0, 1.08, 1.16, 1.25, 1.35, 1.5, 1.7, 2.0, 2.8, 4.0, 8.0)
"""Where the Bayes-optimal line is computed, which is dear: it bends between 1 and 2 only."""


def _alpha_points(size: Size) -> list[Point]:
    alphas, measured = spread(0.5, 8.0, 29), (1.0, 2.0, 4.0) if size == "quick" else _TICKS
    points = []
    for case in QUICK if size == "quick" else CASES:
        task = CASES[case]
        for alpha in sorted({*alphas, *measured}):
            for name in ATTENTIONS:
                label = f"{case}, {name}"
                # at three tokens the theory flags itself around 2, where training is worth the most
                trained = alpha in measured and (size == "full" or alpha != 2.0 or task.longest == 3)
                points += _ridge(task, name, PENALTY, alpha, label, alpha, size, measured=trained)
        for alpha in sorted({*_BENT, *measured}):
            trained = alpha == 2.0 if size == "quick" else alpha in measured  # message passing is dear
            points += _bayes(task, alpha, f"{case}, {BAYES}", size, trained)
    return points


def _draw_alpha(records: Sequence[Record]) -> Drawing:
    return _draw_rows(
        records,
        _in_rows(_present(records)),
        _COLOURS,
        _TICKS,
        xlabel=ALPHA,
        ylabel=f"{EXCESS}, penalty {PENALTY:g}",
        limits=None,
    )


register(
    Figure(
        "ridge-samples",
        "Excess risk against the number of samples",
        PAPER,
        "Attention trained on alpha d sequences with a penalty of 0.5 on key and value, label noise 0.1: softmax needs "
        "fewer samples than linear attention, which overfits at three tokens around alpha = 2. Broken lines: the "
        "theory itself says that it is not to be trusted. Black: the best possible from the same samples, and message "
        "passing that attains it.",
        _alpha_points,
        _draw_alpha,
    )
)


# --- error against alpha, optimal penalty --------------------------------------------------------

_BEST = {name: f"{name}, best penalties" for name in ATTENTIONS}


def _optimal_points(size: Size) -> list[Point]:
    alphas, measured = spread(1.0, 8.0, 7), (1.0, 4.0) if size == "quick" else (1.0, 2.0, 4.0, 8.0)
    fixed = spread(1.0, 8.0, 25)
    cases = ("spiked, snr 2, 2 tokens",) if size == "quick" else tuple(CASES)
    points = []
    for case in cases:
        task = CASES[case]
        for alpha in alphas:
            for name in ATTENTIONS:
                label = f"{case}, {_BEST[name]}"
                points += _ridge(task, name, "optimal", alpha, label, alpha, size, measured=alpha in measured)
        for alpha in sorted({*_BENT[3:], *measured}):
            trained = alpha == 2.0 if size == "quick" else alpha in measured
            points += _bayes(task, alpha, f"{case}, {BAYES}", size, trained)
        for name in ATTENTIONS:
            for alpha in fixed:
                points += _ridge(task, name, PENALTY, alpha, f"{case}, {_fixed(name)}", alpha, size, measured=False)
    return points


def _fixed(name: str) -> str:
    return f"{name}, both penalties {PENALTY:g}"


def _draw_optimal(records: Sequence[Record]) -> Drawing:
    names = {
        **{_BEST[name]: _COLOURS[name] for name in ATTENTIONS},
        _fixed("softmax"): 2,
        _fixed("linear"): 3,
        BAYES: _COLOURS[BAYES],
    }
    return _draw_rows(
        records,
        _in_rows(_present(records)),
        names,
        _TICKS,
        xlabel=ALPHA,
        ylabel=EXCESS,
        limits=None,
    )


register(
    Figure(
        "ridge-optimal",
        "The best penalties",
        PAPER,
        "Penalties on key and value chosen to make the predicted risk least, against one fixed penalty and the "
        "Bayes-optimal predictor. Training uses the penalties that the theory chose.",
        _optimal_points,
        _draw_optimal,
    )
)


# --- error against penalty -----------------------------------------------------------------------

_PENALTY_ALPHAS = (2.0, 4.0)
_PENALTY_TICKS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def _penalty_case(alpha: float) -> str:
    return f"spiked, snr 2, 2 tokens, $\\alpha$ = {alpha:g}"


def _penalty_points(size: Size) -> list[Point]:
    lams = spread(0.1, 10.0, 31) if size == "quick" else spread(0.03, 10.0, 41)
    measured = (0.1, 0.3, 1.0, 4.0) if size == "quick" else (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    points = []
    for alpha in _PENALTY_ALPHAS:
        for lam in sorted({*lams, *measured}):
            for name in ATTENTIONS:
                label = f"{_penalty_case(alpha)}, {name}"
                points += _ridge(spiked(2, 2.0), name, lam, alpha, label, lam, size, measured=lam in measured)
    return points


def _draw_penalty(records: Sequence[Record]) -> Drawing:
    names = {name: _COLOURS[name] for name in ATTENTIONS}
    return _draw_rows(
        records,
        [[_penalty_case(alpha) for alpha in _PENALTY_ALPHAS]],
        names,
        _PENALTY_TICKS,
        xlabel=r"penalty $\lambda$ on key and value",
        ylabel=EXCESS,
        limits=None,
    )


register(
    Figure(
        "ridge-penalty",
        "Excess risk against the penalty",
        PAPER,
        "Too weak a penalty overfits, too strong a one forgets; linear attention needs a stronger one than softmax. "
        "Broken lines: the theory says that it is not to be trusted, and training departs from it.",
        _penalty_points,
        _draw_penalty,
    )
)

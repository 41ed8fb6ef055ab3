"""Figures of arXiv 2509.21936 at finitely many samples: what ridge-penalised attention learns, and the best one can."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from needlepoint.core.results import Measurement, Prediction
from needlepoint.core.specs import Spec
from needlepoint.learners import BayesOptimal, Ridge
from needlepoint.models.activations import Linear, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR

PAPER = "2509.21936"
NOISE = 0.1
PENALTY = 0.5
"""The fixed penalty of the figure against alpha."""

ATTENTIONS = {"softmax": KeyValueAttention(Softmax()), "linear": KeyValueAttention(Linear())}
BAYES = "Bayes-optimal"
BAYES_TASKS = (SpikedSLR, MaxSLR)
"""Tasks whose Bayes-optimal line is drawn."""

_COLOURS = {"softmax": 0, "linear": 1, BAYES: 5}
COLUMNS = ["panel", "curve", "source", "x", "excess_risk", "error", "error_kind", "status"]
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


def _options(size: Size) -> dict[str, Any]:
    return {"d": 100 if size == "quick" else 200, "repeats": 16, "samples": 20_000, "seed": 1}


def _theory(size: Size) -> dict[str, Any]:
    """Options of a prediction: the excess risk to the width of a line, or less."""
    return {"tol": 0.01 if size == "quick" else 0.005}


def _ridge(
    task: Spec, name: str, lam: Any, alpha: float, label: str, x: float, size: Size, measured: bool
) -> list[Point]:
    """One prediction, and the training that it is for."""
    question = task, ATTENTIONS[name], Ridge(alpha, lam)
    points = [Point("predict", *question, _theory(size), label, x)]
    if measured:
        points.append(Point("simulate", *question, _options(size), label, x, follow=isinstance(lam, str)))
    return points


def _bayes(task: Spec, alpha: float, label: str, size: Size, measured: bool) -> list[Point]:
    """The best possible, and message passing that attains it."""
    if not isinstance(task, BAYES_TASKS):
        return []
    question = task, None, BayesOptimal(alpha)
    points = [Point("predict", *question, label=label, x=alpha)]
    return points + [Point("simulate", *question, _options(size), label, alpha)] * measured


def _trusted(result: Prediction) -> bool:
    return result.status.ok


def _curve(records: Sequence[Record], panel: str, name: str, colour: int) -> tuple[Any, list[list[Any]]]:
    """One line with its measured points, and the rows of its table."""
    from needlepoint.plotting.stability import DoubtCurve

    mine = sorted((r for r in records if r.point.label == f"{panel}, {name}"), key=lambda r: float(r.point.x or 0))
    lines = [r for r in mine if isinstance(r.result, Prediction)]
    dots = [r for r in mine if isinstance(r.result, Measurement)]
    curve = DoubtCurve(
        name,
        [float(r.point.x or 0) for r in lines],
        [r.result.excess_risk.value for r in lines],
        [_trusted(r.result) for r in lines],
        [(float(r.point.x or 0), r.result.excess_risk.value, r.result.excess_risk.error) for r in dots],
        colour,
    )
    rows = [
        [panel, name, source, r.point.x, e.value, e.error, e.kind, r.result.status.name]
        for source, found in (("theory", lines), ("training", dots))
        for r in found
        for e in [r.result.excess_risk]
    ]
    return curve, rows


def _draw_rows(
    records: Sequence[Record], rows: Sequence[Sequence[str]], names: dict[str, int], ticks: Sequence[float], **look: Any
) -> Drawing:
    """Panels of the curves that are among the records, laid out in rows."""
    from needlepoint.plotting.stability import DoubtPanel, doubt_panels

    shown, table = [], []
    for row in rows:
        panels = []
        for panel in row:
            found = [_curve(records, panel, name, colour) for name, colour in names.items()]
            panels.append(DoubtPanel(panel, [curve for curve, _ in found if len(curve.x)]))
            table += [line for _, mine in found for line in mine]
        shown.append(panels)
    sizes = {(r.result.d, r.result.repeats) for r in records if isinstance(r.result, Measurement)}
    training = "training (Bayes: message passing),\n" if BAYES in names else "training, "
    measured = ", ".join(f"{training}d = {d}, {n} repeats, ± standard error" for d, n in sorted(sizes))
    return Drawing(doubt_panels(shown, measured=measured, ticks=ticks, **look), {"curves": (COLUMNS, table)})


def _present(records: Sequence[Record]) -> list[str]:
    return [case for case in CASES if any(r.point.label.startswith(f"{case}, ") for r in records)]


def _in_rows(cases: Sequence[str]) -> list[list[str]]:
    """Two panels a row where there are four, three where there are six."""
    width = 2 if len(cases) in (2, 4) else 3
    return [list(cases[i : i + width]) for i in range(0, len(cases), width)]


# --- error against alpha, fixed penalty ----------------------------------------------------------

_TICKS = (0.5, 1.0, 2.0, 4.0, 8.0)


def _alpha_points(size: Size) -> list[Point]:
    full = [0.5, 0.7, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0]
    alphas, measured = ([0.5, 1.0, 1.25, 1.5, 2.0, 4.0, 8.0], (1.0, 4.0)) if size == "quick" else (full, _TICKS)
    points = []
    for case in QUICK if size == "quick" else CASES:
        task = CASES[case]
        for alpha in sorted({*alphas, *measured}):
            for name in ATTENTIONS:
                label = f"{case}, {name}"
                points += _ridge(task, name, PENALTY, alpha, label, alpha, size, measured=alpha in measured)
            points += _bayes(task, alpha, f"{case}, {BAYES}", size, alpha in measured)
    return points


def _draw_alpha(records: Sequence[Record]) -> Drawing:
    return _draw_rows(
        records,
        _in_rows(_present(records)),
        _COLOURS,
        _TICKS,
        xlabel=ALPHA,
        ylabel=f"{EXCESS}, penalty {PENALTY:g}",
        limits=(0.0, 1.45),
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
    alphas, measured = [1.0, 2.0, 4.0, 8.0], (1.0, 4.0) if size == "quick" else (1.0, 2.0, 4.0, 8.0)
    cases = ("spiked, snr 2, 2 tokens",) if size == "quick" else tuple(CASES)
    points = []
    for case in cases:
        task = CASES[case]
        for alpha in alphas:
            for name in ATTENTIONS:
                label = f"{case}, {_BEST[name]}"
                points += _ridge(task, name, "optimal", alpha, label, alpha, size, measured=alpha in measured)
                points += _ridge(task, name, PENALTY, alpha, f"{case}, {_fixed(name)}", alpha, size, measured=False)
            points += _bayes(task, alpha, f"{case}, {BAYES}", size, alpha in measured)
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
        limits=(0.0, 1.0),
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
    lams = (
        (0.1, 0.15, 0.2, 0.3, 0.6, 1.0, 2.0, 4.0, 10.0)
        if size == "quick"
        else [0.03 * 1000 ** (i / 24) for i in range(21)]
    )
    measured = (0.1, 1.0, 4.0) if size == "quick" else (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
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
        limits=(0.2, 1.8),
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


# --- where the theory holds ----------------------------------------------------------------------


def _map_points(size: Size) -> list[Point]:
    if size == "quick":
        alphas, lams = (0.5, 1.0, 2.0, 4.0, 8.0), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
        tried = {(alpha, lam) for alpha in (1.0, 2.0, 4.0) for lam in (0.1, 1.0)} | {(4.0, 0.03)}
    else:
        alphas = tuple(0.5 * 2 ** (i / 2) for i in range(9))
        lams = tuple(0.01 * 10 ** (i / 4) for i in range(11))
        tried = {(alpha, lam) for alpha in alphas[::2] for lam in lams[::2]}
    points = []
    for name, model in ATTENTIONS.items():
        for lam in lams:
            for alpha in alphas:
                question = spiked(2, 2.0), model, Ridge(alpha, lam)
                # risks of 10 and more are reached where nothing is to be trusted; the map shows the replicon
                points.append(Point("predict", *question, {"tol": 0.1}, name, alpha))
                if (alpha, lam) in tried:
                    points.append(Point("simulate", *question, _options(size), name, alpha))
    return points


def _draw_map(records: Sequence[Record]) -> Drawing:
    import numpy as np

    from needlepoint.plotting.stability import StabilityPanel, stability_panels

    shown, cells, tried = [], [], []
    for name in ATTENTIONS:
        mine = [r for r in records if r.point.label == name]
        at = {(r.point.learner.lam, r.point.learner.alpha): r.result for r in mine if r.point.verb == "predict"}  # pyright: ignore
        lams, alphas = sorted({lam for lam, _ in at}), sorted({alpha for _, alpha in at})
        replicon = np.array([[_number(at[lam, alpha].replicon) for alpha in alphas] for lam in lams])
        trusted = np.array([[_trusted(at[lam, alpha]) for alpha in alphas] for lam in lams])
        measured = [r.result for r in mine if isinstance(r.result, Measurement)]
        counts = [
            (m.learner.alpha, m.learner.lam, round(m.metrics["starts_apart"].value * m.repeats))  # pyright: ignore
            for m in measured
        ]
        shown.append(StabilityPanel(name, alphas, lams, replicon, trusted, counts))
        for (lam, alpha), r in sorted(at.items()):
            jump = r.metrics.get("jump_weight")
            cells.append(
                [name, alpha, lam, r.status.name, r.replicon, *((jump.value, jump.error) if jump else ("", ""))]
            )
        tried += [[name, *count, m.repeats, m.d] for count, m in zip(counts, measured, strict=True)]
    repeats, d = tried[0][-2:]
    columns = ["attention", "alpha", "penalty", "status", "replicon", "jump_weight", "jump_weight_error"]
    return Drawing(
        stability_panels(shown, repeats, d),
        {
            "map": (columns, cells),
            "starts": (["attention", "alpha", "penalty", "starts_apart", "repeats", "d"], tried),
        },
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


register(
    Figure(
        "ridge-stability",
        "Where the replica-symmetric theory holds",
        PAPER,
        "Spiked tokens, L = 2, snr 2: the theory flags itself at weak penalties and few samples (crosses: a replicon "
        "of 1 or more, or a proximal map that jumps), and there training from a random and from an informed start ends "
        "at different minima (numbers). The flags are no guarantee: starts end apart in cells without a cross too.",
        _map_points,
        _draw_map,
    )
)


# --- branches of the Bayes-optimal state evolution -----------------------------------------------

_BRANCHES = {
    "spiked, snr 2, 10 tokens": SpikedSLR(10, snr=2.0, noise=0.01),
    "spiked, snr 0.5, 5 tokens": SpikedSLR(5, snr=0.5, noise=0.01),
}
# close to where the branches of each end and change places, so that lines are drawn up to there
_SCANS = {
    "spiked, snr 2, 10 tokens": (1.0, 1.2, 1.285, 1.45, 1.6, 1.605, 1.8, 2.0, 2.2, 2.3, 2.33, 2.4, 2.8),
    "spiked, snr 0.5, 5 tokens": (1.0, 1.1, 1.215, 1.35, 1.48, 1.485, 1.65, 1.8, 2.0, 2.1, 2.18, 2.2, 2.3, 2.8),
}


def _branch_points(size: Size) -> list[Point]:
    points = []
    for panel, task in list(_BRANCHES.items())[: 1 if size == "quick" else None]:
        alphas = _SCANS[panel]
        if size == "full":
            alphas = sorted({*alphas, *(1.0 + 0.05 * i for i in range(37))})
        points.append(Point("bayes_scan", task, options={"alphas": list(alphas)}, label=panel))
        points.append(Point("bayes_transition", task, options={"low": 1.0, "high": 2.8}, label=panel))
    return points


def _draw_branches(records: Sequence[Record]) -> Drawing:
    from needlepoint.plotting.curves import CurvePanel, curve_panels

    shown, rows, places = [], [], []
    present = [panel for panel in _BRANCHES if any(r.point.label == panel for r in records)]
    for panel in present:
        scan, turn = (r.result for r in records if r.point.label == panel)
        ends = [turn.informed_spinodal, turn.transition, turn.uninformed_spinodal]
        lower, equal, upper = (math.inf if e is None else e.value for e in ends)
        low = [(p.alpha, p.uninformed.excess_risk.value) for p in scan if p.alpha < upper]
        high = [(p.alpha, p.informed.excess_risk.value) for p in scan if p.alpha > lower]
        curves = [
            _branch(
                "Bayes-optimal",
                [*(x for x in low if x[0] <= equal), (equal, math.nan), *(x for x in high if x[0] > equal)],
                0,
                "-",
            ),
            _branch("reached by algorithms", [x for x in low if x[0] > equal], 1, "--"),
            _branch("reached from the teachers", [x for x in high if x[0] <= equal], 5, ":"),
        ]
        shown.append(CurvePanel(panel, ALPHA, curves, xscale="linear", yscale="linear"))
        rows += [
            [
                panel,
                p.alpha,
                b.start,
                b.key,
                b.value,
                b.free_energy,
                b.excess_risk.value,
                b.excess_risk.error,
                b.status.name,
            ]
            for p in scan
            for b in (p.uninformed, p.informed)
        ]
        places += [
            [panel, name, *((e.value, e.error) if e else ("", ""))]
            for name, e in zip(("informed_spinodal", "transition", "uninformed_spinodal"), ends, strict=True)
        ]
    figure = curve_panels(shown, EXCESS, (0.65, 1.0))
    for axis, panel in zip(figure.axes, present, strict=True):
        (turn,) = (r.result for r in records if r.point.label == panel and r.point.verb == "bayes_transition")
        if turn.hard_phase is not None:
            axis.axvspan(*turn.hard_phase, color="#f3e3d8", zorder=0)
            axis.text(sum(turn.hard_phase) / 2, 0.66, "hard phase", ha="center", color="#8a3a12")
    columns = ["panel", "alpha", "branch", "key", "value", "free_energy", "excess_risk", "error", "status"]
    return Drawing(figure, {"branches": (columns, rows), "transitions": (["panel", "place", "alpha", "error"], places)})


def _branch(label: str, line: Sequence[tuple[float, float]], colour: int, style: str) -> Any:
    from needlepoint.plotting.curves import Curve

    return Curve(label, [x for x, _ in line], [y for _, y in line], colour=colour, line=style)


register(
    Figure(
        "bayes-branches",
        "Branches of the Bayes-optimal predictor",
        PAPER,
        "Many tokens and little label noise (0.01): the state evolution has two fixed points in an interval of alpha. "
        "In the shaded part the better one is Bayes-optimal, but algorithms without a good start stay at the other.",
        _branch_points,
        _draw_branches,
    )
)

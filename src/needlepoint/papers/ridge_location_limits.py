"""Figures of arXiv 2509.21936 with alpha d samples: where the theory holds, and branches of the Bayes optimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from needlepoint.core.results import Measurement
from needlepoint.learners import Ridge
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register, spread
from needlepoint.papers.ridge_location import (
    ALPHA,
    ATTENTIONS,
    EXCESS,
    PAPER,
    is_trusted,
    spiked,
    training_options,
)
from needlepoint.tasks.single_location import SpikedSLR

# --- where the theory holds ----------------------------------------------------------------------


def _map_points(size: Size) -> list[Point]:
    if size == "quick":
        alphas, lams = spread(0.5, 8.0, 9), (0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0, 3.0)
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
                # a loose tolerance is enough: the map shows the replicon, and the risk is 10 or more in places where
                # the theory is not to be trusted anyway
                label = f"{name}, penalty {lam:g}"
                points.append(Point("predict", *question, {"tol": 0.1}, label, alpha))
                if (alpha, lam) in tried:
                    points += [Point("simulate", *question, each, label, alpha) for each in training_options(size)]
    return points


def _draw_map(records: Sequence[Record]) -> Drawing:
    import numpy as np

    from needlepoint.plotting.stability import StabilityPanel, stability_panels

    shown, cells, tried = [], [], []
    for name in ATTENTIONS:
        mine = [r for r in records if r.point.label.startswith(f"{name}, ")]
        at = {(r.point.learner.lam, r.point.learner.alpha): r.result for r in mine if r.point.verb == "predict"}
        lams, alphas = sorted({lam for lam, _ in at}), sorted({alpha for _, alpha in at})
        replicon = np.array([[_number(at[lam, alpha].replicon) for alpha in alphas] for lam in lams])
        trusted = np.array([[is_trusted(at[lam, alpha]) for alpha in alphas] for lam in lams])
        largest = max(r.result.d for r in records if isinstance(r.result, Measurement))
        measured = [r.result for r in mine if isinstance(r.result, Measurement) and r.result.d == largest]
        counts = [(*_place(m.learner), round(m.metrics["starts_apart"].value * m.repeats)) for m in measured]
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


def _place(learner: Any) -> tuple[float, float]:
    """Return (alpha, penalty), the place of a training on the map."""
    return learner.alpha, learner.lam


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
# alphas, denser near where a branch ends or becomes the better one, so that lines are drawn up to there
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

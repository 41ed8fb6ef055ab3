"""Risks against the number of samples: several relevant tokens, and sign labels with the logistic loss."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from needlepoint.learners import Ridge
from needlepoint.losses import Logistic
from needlepoint.models.activations import Linear, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.papers.fields.records import COLUMNS, curve, said, training_options
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size, register, spread
from needlepoint.tasks.several_relevant import SeveralSLR
from needlepoint.tasks.sign_labels import SignSLR

PAPER = "2509.21936"
ALPHA = r"samples over dimension $\alpha$"
MODELS = {"softmax": KeyValueAttention(Softmax()), "linear": KeyValueAttention(Linear())}
PENALTY = 0.5
TICKS = (1.0, 2.0, 4.0, 8.0)

SEVERAL = {
    f"{name}, {relevant} relevant": (SeveralSLR(tokens=2, snr=3.0, relevant=relevant, noise=0.1), model)
    for relevant in (1, 2)
    for name, model in MODELS.items()
}
"""The curves of `several-relevant`: of two tokens one or both carry the label."""

SIGNS = {"softmax": (SignSLR(tokens=2, snr=3.0), MODELS["softmax"])}


def _points(cases: dict[str, Any], quick: Sequence[str], loss: Any, size: Size) -> list[Point]:
    alphas, measured = spread(1.0, 8.0, 21), (1.0, 4.0) if size == "quick" else TICKS
    found = []
    for name in quick if size == "quick" else cases:
        task, model = cases[name]
        for alpha in sorted({*alphas, *measured}):
            question = task, model, Ridge(alpha, PENALTY, **loss)
            found.append(Point("predict", *question, {"tol": 0.03}, name, alpha))
            options = training_options(size) if alpha in measured else []
            found += [Point("simulate", *question, each, name, alpha) for each in options]
    return found


def _draw(panels: Sequence[tuple[str, str, str]], records: Sequence[Record]) -> Drawing:
    """Return a panel for every (title, quantity, name of the axis)."""
    from needlepoint.plotting.fields.transitions import Sheet, transition_panels

    labels = list(dict.fromkeys(r.point.label for r in records))
    shown, table = [], []
    for title, quantity, ylabel in panels:
        found = [curve(records, label, quantity, i) for i, label in enumerate(labels)]
        shown.append(Sheet(title, ylabel, [one for one, _ in found]))
        table += [row for _, rows in found for row in rows]
    measured, smaller = said(records)
    figure = transition_panels(shown, ALPHA, measured=measured, smaller=smaller, ticks=TICKS)
    return Drawing(figure, {"curves": (COLUMNS, table)})


register(
    Figure(
        "several-relevant",
        "One or both of two tokens carry the label",
        PAPER,
        "Attention trained with a penalty of 0.5 on two tokens at snr 3, label noise 0.1. Where both tokens are "
        "relevant, the label is their sum, there is nothing to find, and linear attention needs fewer samples; where "
        "only one is (full size), softmax does.",
        functools.partial(_points, SEVERAL, ("softmax, 2 relevant", "linear, 2 relevant"), {}),
        functools.partial(_draw, [("test", "excess_risk", "excess risk"), ("training", "train_loss", "training loss")]),
    )
)

register(
    Figure(
        "sign-labels",
        "Learning from signs by the logistic loss",
        PAPER,
        "Softmax attention over two tokens at snr 3, penalty 0.5, from labels that say only on which side of a "
        "hyperplane the relevant token lies: mean logistic loss on fresh and on training sequences, share of wrong "
        "signs, and what key and value know.",
        functools.partial(_points, SIGNS, tuple(SIGNS), {"loss": Logistic()}),
        functools.partial(
            _draw,
            [
                ("test", "risk", "logistic loss"),
                ("training", "train_loss", "logistic loss"),
                ("wrong signs", "error_rate", "share of wrong signs"),
            ],
        ),
    )
)

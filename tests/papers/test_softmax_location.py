"""The figures of arXiv 2509.21936 ask what the issue of softmax against other attentions is about, and draw it."""

import io
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.figures import Record, figure, figures
from needlepoint.papers.runner import agreement, compute
from needlepoint.papers.softmax_location import ATTENTIONS, PAPER

IDS = {"softmax-snr", "softmax-length", "softmax-random-lengths", "softmax-decay", "softmax-landscape"}


def test_all_figures_of_the_paper():
    assert {f.id for f in figures().values() if f.paper == PAPER} >= IDS


@pytest.mark.parametrize(("size", "steps"), [("quick", 25), ("full", 40)])
def test_the_snr_figure_has_four_attentions_on_two_tasks(size, steps):
    predictions = [p for p in figure("softmax-snr").points(size) if p.verb == "predict"]
    for task in (ndl.SpikedSLR, ndl.MaxSLR):
        for model in ATTENTIONS.values():
            mine = [p for p in predictions if isinstance(p.task, task) and p.model == model]
            assert [p.x for p in mine] == [p.task.snr for p in mine]
            assert len(mine) == steps
            assert (mine[0].x, mine[-1].x) == pytest.approx((0.1, 10.0))


def test_lengths_go_to_100_at_an_infinite_snr_and_decay_to_snr_200():
    for size in ("quick", "full"):
        points = figure("softmax-length").points(size)
        assert {p.task.snr for p in points} == {math.inf}
        assert max(p.task.tokens for p in points) == 100
        assert max(p.x for p in figure("softmax-decay").points(size)) == 200.0


@pytest.mark.parametrize("name", sorted(IDS))
def test_simulations_follow_their_prediction_with_at_least_16_repeats(name):
    points = figure(name).points("quick")
    asked = {p.question for p in points if p.verb == "predict"}
    simulated = [p for p in points if p.verb == "simulate"]
    assert simulated
    assert all(p.follow and p.question in asked and p.options["repeats"] >= 16 for p in simulated)


def thinned(name):
    """One abscissa of the figure, with every curve and its simulations."""
    points = figure(name).points("quick")
    measured = min(p.x for p in points if p.verb == "simulate")
    return [p for p in points if p.x == measured]


MEASURED = {
    "softmax-length": set(ATTENTIONS),
    "softmax-decay": {"linear"},
}
"""The attentions that are measured too; the rest is left to the slow tests, since each one is compiled for itself."""
ALL_MEASURED = ("softmax-snr", "softmax-random-lengths", "softmax-decay")
SIZE = {"d": 6, "samples": 2000}
"""That of the tests of simulated risks, whose kernels these are."""


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        *MEASURED.items(),
        *(pytest.param(name, set(ATTENTIONS), marks=pytest.mark.slow) for name in ALL_MEASURED),
    ],
    ids=lambda x: x if isinstance(x, str) else f"{len(x)} measured",
)
def test_draw_and_agreement(name, measured):
    models = [ATTENTIONS[attention] for attention in measured]
    points = [
        type(p)(p.verb, p.task, p.model, p.learner, {**p.options, **SIZE}, p.label, p.x, p.follow)
        if p.verb == "simulate"
        else p
        for p in thinned(name)
        if p.verb != "simulate" or p.model in models
    ]
    records = compute(points)
    drawing = figure(name).draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    columns, rows = drawing.tables["curves"]
    assert len(rows) == len(records)
    assert all(len(row) == len(columns) for row in rows)
    # 4 standard errors: at most 16 rows, and Student tails are in z already
    rows = agreement(records)
    assert len(rows) >= len(measured)
    assert max(abs(r.z) for r in rows) < 4.5


def test_draw_the_landscape():
    points = figure("softmax-landscape").points("quick")
    records = []
    for p in points:
        if p.verb == "key_landscape":
            grid = {"alignment": np.linspace(-1, 1, 5), "scale": np.linspace(0, 5.5, 4)}
            p = type(p)(p.verb, p.task, p.model, p.learner, grid, p.label, p.x)
            records.append(Record(p, ndl.key_landscape(p.task, p.model, **grid)))
        elif p.verb == "predict":
            records.append(Record(p, ndl.predict(*p.question)))
        else:
            records.append(Record(p, None))
    drawing = figure("softmax-landscape").draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    surface = drawing.tables["surface"][1]
    for name, alignment, norm, lowest, _ in drawing.tables["best"][1]:
        assert (alignment, 0 < norm < 5.5) == (1.0, True)
        assert lowest <= min(row[3] for row in surface if row[0] == name) + 1e-9

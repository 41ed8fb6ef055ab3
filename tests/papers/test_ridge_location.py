"""The figures of arXiv 2509.21936 at finitely many samples ask what they should, and draw it."""

import dataclasses
import io
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.figures import Record, figure, figures
from needlepoint.papers.ridge_location import ATTENTIONS, CASES, PAPER, PENALTY, QUICK
from needlepoint.papers.runner import agreement, compute
from needlepoint.theory.location.bayes.transition import bayes_scan, bayes_transition

IDS = {"ridge-samples", "ridge-optimal", "ridge-penalty", "ridge-stability", "bayes-branches"}
RIDGE = sorted(IDS - {"bayes-branches"})


def test_all_figures_of_this_file():
    assert {f.id for f in figures().values() if f.paper == PAPER} >= IDS


def test_cases_are_two_tasks_at_two_lengths():
    assert {(type(t), t.tokens, t.snr) for t in CASES.values()} == {
        (kind, tokens, snr)
        for tokens in (2, 3)
        for kind, snr in ((ndl.SpikedSLR, 1.0), (ndl.SpikedSLR, 2.0), (ndl.MaxSLR, math.inf))
    }


@pytest.mark.parametrize("name", ["ridge-samples", "ridge-optimal"])
def test_full_size_has_every_case_with_every_attention(name):
    points = [p for p in figure(name).points("full") if isinstance(p.learner, ndl.Ridge)]
    for task in CASES.values():
        for model in ATTENTIONS.values():
            assert [p for p in points if (p.task, p.model) == (task, model) and p.verb == "simulate"]
    wanted = "optimal" if name == "ridge-optimal" else PENALTY
    assert {p.learner.lam for p in points if p.verb == "simulate" and p.model is not None} == {wanted}


@pytest.mark.parametrize("name", RIDGE)
@pytest.mark.parametrize("size", ["quick", "full"])
def test_training_has_16_repeats_and_a_seed_of_its_own(name, size):
    simulated = [p for p in figure(name).points(size) if p.verb == "simulate"]
    assert simulated
    assert all(p.options["repeats"] >= 16 and p.options["seed"] != 0 for p in simulated)
    assert all(p.follow == (p.model is not None and p.learner.lam == "optimal") for p in simulated)


@pytest.mark.parametrize("name", RIDGE)
@pytest.mark.parametrize("size", ["quick", "full"])
def test_every_training_has_a_second_size(name, size):
    """So that a gap to the limit can be told apart from a disagreement. Message passing has one, see `_bayes`."""
    dims = {}
    for p in figure(name).points(size):
        if p.verb == "simulate":
            dims.setdefault(p.question, set()).add(p.options["d"])
    assert all(len(sizes) == (1 if model is None else 2) for (_, model, _), sizes in dims.items())


def test_the_larger_size_is_the_large_circle():
    points = [p for p in figure("ridge-samples").points("quick") if p.x == 4.0 and p.label == f"{QUICK[0]}, softmax"]
    records = []
    for p in points:
        value = ndl.Estimate(0.5, 0.01) if p.verb == "predict" else ndl.Estimate(10 / p.options["d"], 0.01, "stderr")
        kind = ndl.Prediction if p.verb == "predict" else ndl.Measurement
        own = {} if p.verb == "predict" else {"d": p.options["d"], "repeats": p.options["repeats"]}
        records.append(Record(p, kind(*p.question, {"excess_risk": value}, **own)))
    drawing = figure("ridge-samples").draw(records)
    axis = next(a for a in drawing.figure.axes if a.get_visible())
    (little, _, _), (large, _, _) = axis.containers
    assert (little.get_ydata().tolist(), large.get_ydata().tolist()) == ([0.2], [0.1])
    assert little.get_markersize() < large.get_markersize()
    said = [t.get_text() for t in drawing.figure.legends[0].get_texts()]
    assert any("d = 100, 16 repeats" in text for text in said)
    assert any("the same, d = 50, 32 repeats" in text for text in said)


def small(point):
    """The same question at a size for tests."""
    if point.verb == "predict":
        return dataclasses.replace(point, options={**point.options, "tol": 0.05})
    return dataclasses.replace(point, options={**point.options, "d": 40, "samples": 4000})


@pytest.mark.parametrize("trained", [(2.0,), pytest.param((2.0, 4.0), marks=pytest.mark.slow)], ids=str)
def test_draw_risks_against_alpha(trained):
    case = "spiked, snr 2, 3 tokens"
    points = [p for p in figure("ridge-samples").points("quick") if p.label.startswith(case) and p.x in (2.0, 4.0)]
    points = [p for p in points if p.verb == "predict" or (p.x in trained and p.options["d"] == 100)]
    records = compute([small(p) for p in points])
    drawing = figure("ridge-samples").draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    columns, rows = drawing.tables["curves"]
    assert len(rows) == len(records) == (2 + 1) * 2 + 2 * len(trained) + 1  # message passing at 2 only
    assert all(len(row) == len(columns) for row in rows)
    (axis,) = (a for a in drawing.figure.axes if a.get_visible())
    assert axis.get_title() == case
    assert len(axis.containers) == 3  # the points of both attentions and of message passing, with error bars
    # a limit at d = 40: gaps of a tenth in the risk would be a wrong curve, smaller ones are the size
    gaps = [r.gap / r.predicted for r in agreement(records) if r.metric == "excess_risk"]
    assert len(gaps) == 2 * len(trained) + 1
    assert max(map(abs, gaps)) < 0.1


def test_a_doubtful_prediction_is_drawn_so():
    points = figure("ridge-penalty").points("quick")
    task = points[0].task
    shown = {p.label: p for p in points if p.label.endswith("linear")}
    (label, point), _ = shown.items()
    doubtful = dataclasses.replace(point, learner=ndl.Ridge(2.0, 0.1), x=0.1, options={"tol": 0.1})
    firm = dataclasses.replace(point, learner=ndl.Ridge(2.0, 2.0), x=2.0, options={"tol": 0.1})
    assert task == doubtful.task
    drawing = figure("ridge-penalty").draw(compute([doubtful, firm]))
    assert [row[-2] for row in drawing.tables["curves"][1]] == ["UNSTABLE", "CONVERGED"]
    axis = next(a for a in drawing.figure.axes if f"{a.get_title()}, linear" == label)
    assert [line.get_linestyle() for line in axis.lines] == ["--", "None"]
    assert "theory, not to be trusted" in [t.get_text() for t in drawing.figure.legends[0].get_texts()]


def test_draw_the_map_from_its_records():
    points = [p for p in figure("ridge-stability").points("quick") if p.learner.lam in (0.1, 1.0)]
    points = [p for p in points if p.learner.alpha in (1.0, 2.0)]
    trained = [p for p in points if p.verb == "simulate" and (p.learner.alpha, p.learner.lam) == (2.0, 1.0)]
    points = [p for p in points if p.verb == "predict"] + [p for p in trained if p.options["d"] == 100]
    records = compute([small(p) for p in points])
    drawing = figure("ridge-stability").draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    cells = {tuple(row[:3]): row[3:] for row in drawing.tables["map"][1]}
    assert len(cells) == 8
    # far from any border: replicons of 0.15 and 3.7
    assert cells["softmax", 2.0, 1.0][0] == "CONVERGED"
    assert cells["linear", 2.0, 0.1][0] == "UNSTABLE"
    assert cells["linear", 2.0, 0.1][1] > 2
    assert [row[3:] for row in drawing.tables["starts"][1]] == [[0, 16, 40]] * 2


@pytest.mark.slow
def test_draw_the_branches():
    records = []
    for p in figure("bayes-branches").points("quick"):
        if p.verb == "bayes_scan":
            records.append(Record(p, bayes_scan(p.task, [1.2, 1.5, 1.9, 2.8])))
        else:
            records.append(Record(p, bayes_transition(p.task, **p.options)))
    drawing = figure("bayes-branches").draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    places = {tuple(row[:2]): row[2] for row in drawing.tables["transitions"][1]}
    # theory sheet: about 1.28, 1.604 and 2.34 for ten tokens at snr 2
    first = [places["spiked, snr 2, 10 tokens", n] for n in ("informed_spinodal", "transition", "uninformed_spinodal")]
    np.testing.assert_allclose(first, [1.28, 1.604, 2.34], atol=0.01)
    for axis in drawing.figure.axes:
        best, reached, informed = axis.lines
        risk = best.get_ydata()
        assert np.isnan(risk).sum() == 1  # the line breaks at the transition
        assert np.all(np.diff(risk[np.isfinite(risk)]) < 0)
        # at 1.5 an informed start does better without being optimal; at 1.9 algorithms do worse than the optimum
        assert (list(informed.get_xdata()), list(reached.get_xdata())) == ([1.5], [1.9])
        assert [t.get_text() for t in axis.texts] == ["hard phase"]


@pytest.mark.negative
def test_a_wrong_penalty_is_seen():
    """The gap that the drawing test allows would not hide a penalty of 1 for one of 0.3."""
    task, model = CASES["spiked, snr 2, 2 tokens"], ATTENTIONS["softmax"]
    right, wrong = (ndl.predict(task, model, ndl.Ridge(4.0, lam), tol=0.05).excess_risk.value for lam in (PENALTY, 1.0))
    assert abs(wrong / right - 1) > 0.15

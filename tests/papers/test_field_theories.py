"""The figures of theories on fields ask what they should, and draw it."""

import dataclasses
import io

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.fields import crossing, heads, phases
from needlepoint.papers.figures import Record, figure, figures
from needlepoint.papers.runner import agreement, compute

IDS = ("several-relevant", "sign-labels", "heads-sgd", "heads-crossing", "semantic-transition")
BOTH = pytest.mark.parametrize("size", ["quick", "full"])


def test_all_figures_of_this_folder():
    assert set(IDS) <= set(figures())


@BOTH
@pytest.mark.parametrize("name", IDS)
def test_training_has_16_repeats_and_a_seed_of_its_own(name, size):
    trained = [p for p in figure(name).points(size) if p.verb == "simulate"]
    assert trained
    assert all(p.options["repeats"] >= 16 and p.options["seed"] != 0 for p in trained)


@BOTH
@pytest.mark.parametrize("name", IDS)
def test_a_line_has_twenty_points(name, size):
    """Paths over time have as many records."""
    lines = {}
    for p in figure(name).points(size):
        if p.verb in ("predict", "field_branches") and p.label != "lower":
            records = p.learner.steps // p.learner.record_every if name == "heads-sgd" else 1
            lines[p.label] = lines.get(p.label, 0) + records
    assert min(lines.values()) >= 20


def test_the_paper_and_the_library_count_penalties_differently():
    learner = phases.learner(2.0)
    assert (learner.lam, learner.loss) == (pytest.approx(0.04), ndl.Square(0.25))


def small(point):
    if point.verb == "simulate":
        return dataclasses.replace(point, options={**point.options, "d": 40, "samples": 2000})
    return dataclasses.replace(point, options={**point.options, "tol": 0.05})


def drawn(name, points):
    records = compute([small(p) for p in points])
    drawing = figure(name).draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    return records, drawing


def test_draw_risks_of_several_relevant_tokens():
    label = "linear, 2 relevant"
    points = [p for p in figure("several-relevant").points("quick") if p.label == label and p.x in (1.0, 4.0)]
    records, drawing = drawn("several-relevant", points)
    columns, rows = drawing.tables["curves"]
    assert len(rows) == 2 * len(records) == 8  # two quantities
    assert all(len(row) == len(columns) for row in rows)
    gaps = [row.gap / row.predicted for row in agreement(records) if row.metric == "excess_risk" and row.x == 1.0]
    assert len(gaps) == 1
    assert abs(gaps[0]) < 0.25  # d = 40


def test_both_parts_of_a_legend_are_named():
    points = [p for p in figure("sign-labels").points("quick") if p.x == 4.0]
    _, drawing = drawn("sign-labels", points)
    said = [t.get_text() for t in drawing.figure.legends[0].get_texts()]
    assert said[:2] == ["softmax", "theory"]
    assert said[2].startswith("training, d = 40, 16 repeats")
    assert {row[3] for row in drawing.tables["curves"][1]} == {"risk", "train_loss", "error_rate"}


def short(point):
    """The same descent, but a twelfth of it and fewer runs."""
    learner = point.learner.replace(steps=point.learner.steps // 12)
    options = {**point.options, **({"repeats": 16, "samples": 200} if point.verb == "simulate" else {})}
    return dataclasses.replace(point, learner=learner, options=options)


def test_draw_the_paths_of_two_heads():
    points = [short(p) for p in figure("heads-sgd").points("quick") if p.x == 50.0]
    drawing = figure("heads-sgd").draw(compute(points))
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    columns, rows = drawing.tables["paths"]
    assert all(len(row) == len(columns) for row in rows)
    # the same start in theory and training, of both heads' activations
    first = {(row[0], row[1], row[4]): row[5] for row in rows if row[3] == 0.0 and row[4] != "excess_risk"}
    assert len(first) == 2 * 2 * 4
    for (name, source, quantity), value in first.items():
        start = dict(heads.START.values)[quantity]
        assert value == pytest.approx(start, abs=1e-9), (name, source)


def solved(energy, error, status=ndl.Status.CONVERGED):
    overlaps = ndl.FieldOverlaps({"query_on_semantic": 0.3, "query_on_positional": 0.1})
    metrics = {"energy": ndl.Estimate(energy, error), "risk": ndl.Estimate(0.5, 0.01)}
    zero = dict.fromkeys(dict(overlaps.items()), 0.0)
    return ndl.Prediction(
        phases.TASK, phases.MODEL, phases.learner(1.0), metrics, status=status, overlaps=overlaps, overlaps_error=zero
    )


def test_the_crossing_is_where_a_straight_line_says_with_the_error_of_the_energies():
    def pair(gap):
        return {"positional": solved(1.0, 0.01), "semantic": solved(1.0 + gap, 0.02)}

    found = phases.crossing([(2.0, pair(-0.3)), (1.0, pair(0.1)), (3.0, pair(-0.5))])
    assert found == pytest.approx((1.25, 0.03 / 0.4))
    assert phases.crossing([(1.0, pair(0.1)), (2.0, pair(0.2))]) is None


def test_a_doubtful_phase_is_broken_and_the_transition_is_marked():
    points = [p for p in figure("semantic-transition").points("quick") if p.verb == "field_branches"][:3]
    gaps = (0.1, -0.1, -0.2)
    records = [
        Record(
            p,
            {
                "positional": solved(1.0, 0.001),
                "semantic": solved(1.0 + gap, 0.001, ndl.Status.UNSTABLE if gap > 0 else ndl.Status.CONVERGED),
            },
        )
        for p, gap in zip(points, gaps, strict=True)
    ]
    drawing = figure("semantic-transition").draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    ((_, at, _),) = drawing.tables["transition"][1]
    assert points[0].x < at < points[1].x
    said = [t.get_text() for t in drawing.figure.legends[0].get_texts()]
    assert "theory, not to be trusted" in said
    assert any(text.startswith("energies cross at") for text in said)
    lines = drawing.figure.axes[0].lines
    assert "--" in {line.get_linestyle() for line in lines}
    np.testing.assert_allclose(lines[0].get_xdata(), [p.x for p in points])


def one_and_two(size, gap):
    """Records of the quick size: one head has a risk of 0.9, two heads are lower by gap(alpha)."""
    found = []
    for p in figure("heads-crossing").points(size):
        below = gap(p.x) if p.label == "two heads" else 0.0
        error = ndl.Estimate(0.9 - below, 0.01, "stderr" if p.verb == "simulate" else "numerical")
        given = p.task, p.model, p.learner, {"excess_risk": error}
        if p.verb == "simulate":
            result = ndl.Measurement(*given, d=p.options["d"], repeats=p.options["repeats"])
        else:
            result = ndl.Prediction(*given, status=ndl.Status.UNSTABLE if p.x > 1.2 else ndl.Status.CONVERGED)
        found.append(Record(p, result))
    return found


@BOTH
def test_two_heads_are_better_from_where_the_gap_begins(size):
    drawing = figure("heads-crossing").draw(one_and_two(size, lambda alpha: max(0.0, 0.2 * (alpha - 0.6))))
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    ((_, at, error),) = drawing.tables["crossing"][1]
    assert at == pytest.approx(0.6)
    assert 0 < error < 0.2
    said = [t.get_text() for t in drawing.figure.legends[0].get_texts()]
    assert any(text.startswith("two heads are better from 0.6") for text in said)
    columns, rows = drawing.tables["curves"]
    assert all(len(row) == len(columns) for row in rows)
    assert {row[0] for row in rows} == {"one head", "two heads", "one head less two heads"}


def test_where_two_heads_are_not_better_nothing_is_marked():
    drawing = figure("heads-crossing").draw(one_and_two("quick", lambda alpha: 0.0))
    assert drawing.tables["crossing"][1] == []
    assert crossing.crossing({1.0: ndl.Estimate(0.1, 0.01), 2.0: ndl.Estimate(0.2, 0.01)}) is None

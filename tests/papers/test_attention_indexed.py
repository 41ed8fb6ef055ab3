"""The figures of arXiv 2509.24914 ask what they should, and draw it. Where drawing is tested answers are made up, so
that what has to be on the page is known."""

import dataclasses
import io
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.answers.spectra import TrainedSpectrum
from needlepoint.papers.attention_indexed_points import BAYES_PAPER, PAPER, TIED, TWO
from needlepoint.papers.figures import Record, figure, figures
from needlepoint.papers.runner import agreement, compute

IDS = {
    "indexed-errors",
    "indexed-spectra",
    "indexed-best",
    "indexed-thresholds",
    "indexed-temperature",
    "indexed-power-law",
    "indexed-readout",
}
METRICS = ("risk", "clean_risk", "train_loss", "estimation_error", "rank_fraction")
BOTH = pytest.mark.parametrize("size", ["quick", "full"])


def answer(point, value, status=ndl.Status.CONVERGED, gap=0.0):
    """A prediction whose metrics are all `value`, or a measurement that is `gap` above."""
    if point.verb == "predict":
        metrics = dict.fromkeys(METRICS, ndl.Estimate(value, 1e-6))
        return ndl.Prediction(*point.question, metrics, status=status, stable=status.ok)
    d, repeats = point.options["d"], point.options["repeats"]
    values = value + gap + 0.01 * np.linspace(-1, 1, repeats)
    metrics = dict.fromkeys(METRICS, ndl.Estimate(values.mean(), values.std(ddof=1) / math.sqrt(repeats), "stderr"))
    each = dict.fromkeys(METRICS, values)
    return ndl.Measurement(*point.question, metrics, d=d, repeats=repeats, seed=1, values=each)


def made_up(name, value=lambda p: 1 / (1 + p.x), size="quick", **others):
    """Records of a figure with made-up predictions and measurements; `others` has the answers of further verbs."""
    found = []
    for point in figure(name).points(size):
        result = others[point.verb](point) if point.verb in others else answer(point, value(point))
        found.append(Record(point, result))
    return found


def drawn(name, records):
    drawing = figure(name).draw(records)
    drawing.figure.savefig(io.BytesIO(), format="png", dpi=30)
    for columns, rows in drawing.tables.values():
        assert rows
        assert all(len(row) == len(columns) for row in rows)
    return drawing


def table(drawing, name="curves"):
    columns, rows = drawing.tables[name]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_all_figures_of_these_files():
    found = {f.id for f in figures().values() if f.paper in (PAPER, BAYES_PAPER)}
    assert found == IDS


@BOTH
@pytest.mark.parametrize("name", sorted(IDS - {"indexed-thresholds"}))
def test_training_has_repeats_and_a_seed_of_its_own(name, size):
    points = figure(name).points(size)
    simulated = [p for p in points if p.verb == "simulate"]
    assert simulated
    assert all(p.options["repeats"] >= (8 if size == "quick" else 16) and p.options["seed"] != 0 for p in simulated)
    assert all(p.follow == (getattr(p.learner, "lam", None) == "optimal") for p in simulated)
    predicted = {p.question for p in points if p.verb == "predict"}
    assert all(p.question in predicted for p in simulated)
    laws = [p for p in simulated if isinstance(p.task.target, ndl.PowerLaw)]
    assert all(p.options["d"] == p.task.target.d for p in laws)


def test_figures_share_what_they_train():
    """The same question with the same options is answered once."""

    def trained(name):
        return {(p.question, tuple(p.options.items())) for p in figure(name).points("quick") if p.verb == "simulate"}

    errors = trained("indexed-errors")  # at two sizes each
    assert len(trained("indexed-spectra") & errors) == 6
    for name in ("indexed-temperature", "indexed-readout"):
        assert len(trained(name) & errors) == 4


def test_errors_cross_the_threshold_of_the_theory():
    records = made_up("indexed-errors", thresholds=lambda p: ndl.thresholds(p.task, p.model))
    assert {r.point.learner.lam for r in records if r.point.learner} == {0.001, 0.02, 0.1}
    drawing = drawn("indexed-errors", records)
    (edge,) = table(drawing, "thresholds")
    assert edge["alpha"] == pytest.approx(0.15348210, abs=1e-8)  # theory sheet
    alphas = [r.point.x for r in records if r.point.x]
    assert min(alphas) < edge["alpha"] < max(alphas)
    rows = table(drawing)
    assert {row["metric"] for row in rows} == {"risk", "estimation_error", "train_loss"}
    assert len(rows) == 3 * (len(records) - 1)
    assert len(drawing.figure.axes) == 3
    for axis in drawing.figure.axes:
        assert any(list(line.get_xdata()) == [edge["alpha"]] * 2 for line in axis.lines)
        assert len(axis.containers) == 6  # three penalties at two sizes


@BOTH
@pytest.mark.parametrize("name", sorted(IDS - {"indexed-thresholds", "indexed-power-law"}))
def test_every_training_has_a_second_size(name, size):
    """So that a gap to the limit can be told apart from a disagreement."""
    dims = {}
    for p in figure(name).points(size):
        if p.verb == "simulate":
            dims.setdefault(p.question, set()).add(p.options["d"])
    assert min(map(len, dims.values())) >= 2


def test_a_doubtful_prediction_is_drawn_so():
    records = made_up("indexed-errors", thresholds=lambda p: ndl.thresholds(p.task, p.model))
    doubtful = [
        dataclasses.replace(r, result=answer(r.point, 0.5, ndl.Status.UNSTABLE))
        if r.point.verb == "predict" and r.point.learner.lam == 0.001 and r.point.x == 0.25
        else r
        for r in records
    ]
    for given, broken in ((records, 0), (doubtful, 1)):
        drawing = drawn("indexed-errors", given)
        for axis in drawing.figure.axes:
            assert [line.get_marker() for line in axis.lines].count("x") == broken
        assert [row["status"] for row in table(drawing)].count("UNSTABLE") == 3 * broken


def test_spectra_have_the_law_and_what_was_trained():
    one, d = TWO.replace(tokens=1), 40
    law = ndl.predict(one, TIED, ndl.Ridge(0.3, 0.1))
    eigenvalues = np.tile(law.spectrum.quantiles(d), (8, 1)) + 0.01 * np.linspace(-1, 1, 8)[:, None]
    share = ndl.Estimate(1 - law.spectrum.atom, 0.01, "stderr")
    records = []
    for point in figure("indexed-spectra").points("quick"):
        result = answer(point, 0.5)
        if point.verb == "predict":
            result = dataclasses.replace(result, spectrum=law.spectrum)
        else:
            found = TrainedSpectrum(eigenvalues, eigenvalues)
            result = dataclasses.replace(
                result, d=d, spectrum=found, metrics={**result.metrics, "rank_fraction": share}
            )
        records.append(Record(point, result))
    drawing = drawn("indexed-spectra", records)
    assert [a.get_title() for a in drawing.figure.axes] == [rf"$\alpha$ = {a:g}" for a in (0.03, 0.1, 0.3, 1.0)]
    for row in table(drawing, "zeros"):
        assert row["predicted"] == row["trained"] == law.spectrum.atom
    gaps = [row["predicted"] - row["trained"] for row in table(drawing, "eigenvalues")]
    assert len(gaps) == 4 * d
    assert max(map(abs, gaps)) < 1e-12
    assert len(table(drawing, "density")) == 4 * len(law.spectrum.x)


@pytest.mark.slow
def test_best_penalties_of_both_models_and_bayes():
    """Closed forms, and a training that takes the penalty of the theory."""
    points = [p for p in figure("indexed-best").points("quick") if "0.5" in p.label and p.x == 0.6]
    points = [p for p in points if p.verb == "predict" or p.options["d"] == 40]
    small = [
        dataclasses.replace(p, options={**p.options, "d": 24, "samples": 200}) if p.verb == "simulate" else p
        for p in points
    ]
    records = compute(small)
    drawing = drawn("indexed-best", records)
    theory = {row["curve"]: row["value"] for row in table(drawing) if row["source"] == "theory"}
    assert theory["Bayes-optimal"] < theory["tied, best penalty"] < theory["direct, best penalty"]
    best = {r.point.model: r.result.resolved[2].lam for r in records if r.point.model and r.point.verb == "predict"}
    used = {r.point.model: r.result.learner.lam for r in records if r.point.model and r.point.verb == "simulate"}
    assert best == used
    assert best[ndl.DirectAttention()] == pytest.approx(0.5 / (2 * 1.5))  # noise over twice the mean square
    # a limit at d = 24: errors a third away would be a wrong curve
    gaps = [r.gap / r.predicted for r in agreement(records) if r.metric == "estimation_error"]
    assert len(gaps) == 3
    assert max(map(abs, gaps)) < 0.33


def test_thresholds_are_one_curve_for_every_number_of_tokens():
    points = figure("indexed-thresholds").points("quick")
    chosen = [p for p in points if p.task.tokens != 2 or p.x < 0.01 or abs(p.x - 1.5) < 0.01]
    one_curve = [
        dataclasses.replace(p, task=p.task.replace(tokens=2), label="2 tokens") for p in chosen if p.task.tokens != 2
    ]
    drawing = drawn("indexed-thresholds", compute([*chosen, *one_curve]))
    rows = table(drawing, "thresholds")
    found = {(row["curve"], row["tokens"], row["rank_ratio"]): row["scaled"] for row in rows}
    assert all(math.isfinite(x) for x in found.values())
    for (curve, tokens, k), scaled in found.items():
        if tokens != 2:
            assert scaled == pytest.approx(found[curve, 2, k], rel=1e-10)
            assert (tokens, k) in {(p.task.tokens, p.x) for p in chosen}
    full, noisy, none, bayes, direct = sorted({row["curve"] for row in rows}, key=_order)
    for k in (0.1, 0.4):
        assert found[bayes, 1, k] < found[none, 1, k] < found[full, 1, k] < found[direct, 1, k] == 1
        assert found[noisy, 1, k] < found[full, 1, k]
    assert found[none, 1, 0.1] == pytest.approx(2 * 0.15757182, abs=1e-7)  # theory sheet
    assert found[noisy, 1, 0.1] == pytest.approx(2 * 0.26347075, abs=1e-7)


def _order(curve):
    return ("no noise", "noise 0.5", "vanishing", "Bayes", "direct").index(
        next(w for w in ("no noise", "noise 0.5", "vanishing", "Bayes", "direct") if w in curve)
    )


@BOTH
def test_temperatures_are_matched_and_tokens_counted(size):
    points = figure("indexed-temperature").points(size)
    heat = [p for p in points if p.label.startswith("temperature")]
    assert {(p.task.beta_star, p.model.beta) for p in heat} == {(0.5, 0.5), (1.0, 1.0), (2.0, 2.0)}
    for p in heat:
        assert p.learner.lam * (2 / p.model.beta) ** 2 == pytest.approx(0.08)
    tokens = [p for p in points if p.label.startswith("tokens")]
    assert {p.task.tokens for p in tokens} == set(range(1, 4 if size == "quick" else 5))
    for p in tokens:
        T = p.task.tokens
        assert p.x == pytest.approx(p.learner.alpha * (2 if T == 1 else T * T + T - 2))
        assert p.learner.lam * (T / p.model.beta) ** 2 == pytest.approx(0.08)


def test_draw_temperatures_and_tokens():
    records = made_up("indexed-temperature")
    drawing = drawn("indexed-temperature", records)
    left, right = drawing.figure.axes
    assert len(left.get_legend().get_texts()) == len(right.get_legend().get_texts()) == 3
    assert len(table(drawing)) == len(records)
    sources = [row["source"] for row in table(drawing)]
    assert sources.count("training") == len([r for r in records if r.point.verb == "simulate"])


def power(point):
    """Errors that fall like a power of their own: 2 x^-0.7, and 3 x^-1.3 without noise."""
    return 2 * point.x**-0.7 if point.task.noise_var else 3 * point.x**-1.3


def directions(point):
    count = round(400 * point.x**0.5)  # many, so that rounding does not bend the slope
    return ndl.Directions(*np.ones((3, count)))


def test_powers_are_those_of_the_curves():
    records = made_up(
        "indexed-power-law",
        power,
        learning_exponents=lambda p: ndl.learning_exponents(p.task),
        recovered_directions=directions,
    )
    drawing = drawn("indexed-power-law", records)
    rows = [row for row in table(drawing) if row["local_slope"] != ""]
    for panel, slope, rtol in (("noisy", -0.7, 1e-12), ("noiseless", -1.3, 1e-12), ("recovered", 0.5, 0.05)):
        mine = [row for row in rows if row["panel"] == panel]
        np.testing.assert_allclose([row["local_slope"] for row in mine], slope, rtol=rtol)
    predicted = {(row["panel"], row["gamma"]): row["predicted_slope"] for row in rows}
    assert predicted["noisy", 1.0] == pytest.approx(-0.5)
    assert predicted["noiseless", 1.5] == pytest.approx(-2.0)
    assert predicted["recovered", 1.5] == pytest.approx(1 / 3)
    said = [t.get_text() for t in drawing.figure.legends[0].get_texts()]
    assert "guide with the predicted exponent" in said
    assert "theory in the small dimension of the training" in said
    assert any("slope at the end (predicted exponent)" in text for text in said)
    noisy, noiseless, seen = drawing.figure.axes
    for axis, (first, power_of_guide) in ((noisy, (-0.7, -0.5)), (noiseless, (-1.3, -1.0))):
        assert f"{first:.2f} ({power_of_guide:.2f})" in axis.get_legend().get_texts()[0].get_text()
        guide = next(line for line in axis.lines if line.get_linestyle() == "--")
        (a, b), (u, v) = guide.get_ydata(), guide.get_xdata()
        assert math.log(b / a) / math.log(v / u) == pytest.approx(power_of_guide)
    assert seen.get_ylabel().startswith("directions")


def test_readouts_are_compared_on_the_same_data():
    records = [
        Record(p, answer(p, 1.0, gap=0.5 / p.options["d"] if p.task.readout == "seq2seq" else 0.0))
        if p.verb == "simulate"
        else Record(p, answer(p, 1.0))
        for p in figure("indexed-readout").points("quick")
    ]
    drawing = drawn("indexed-readout", records)
    rows = table(drawing, "differences")
    assert {row["d"] for row in rows} == {20, 40}
    for row in rows:  # the scatter is the same in both readouts, and is gone
        assert row["difference"] == pytest.approx(0.5 / row["d"])
        assert row["error"] < 1e-12
    assert len(table(drawing)) == len(records)


@pytest.mark.negative
def test_readouts_with_other_data_would_be_seen():
    """Repeats in another order are no pairs: the error then has their scatter."""
    records = []
    for p in figure("indexed-readout").points("quick"):
        result = answer(p, 1.0)
        if p.verb == "simulate" and p.task.readout == "seq2seq":
            result = dataclasses.replace(result, values={k: v[::-1] for k, v in result.values.items()})
        records.append(Record(p, result))
    rows = table(drawn("indexed-readout", records), "differences")
    assert min(row["error"] for row in rows) > 1e-3

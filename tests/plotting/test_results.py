"""Pictures of one answer: every number that is drawn is in the result."""

import dataclasses
import io
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.plotting.results import plot, plot_result
from needlepoint.plotting.spectra import SpectrumPanel, histogram
from needlepoint.plotting.tables import FARTHEST, numbers

TASK = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5)
ASKED = (TASK, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1))
LOCATION = (ndl.SpikedSLR(3, 4), ndl.KeyValueAttention(ndl.Erf(0.4), unit_norm=True))


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def words(figure):
    return [t.get_text() for axis in figure.axes for t in axis.texts]


def titled(figure):
    return figure.get_suptitle()


@pytest.fixture(scope="module")
def prediction():
    return ndl.predict(*ASKED)


def measured(prediction, d=10, repeats=4, off=1.02, seed=0):
    """A measurement made by hand: the prediction's numbers times `off`, and eigenvalues at its quantiles."""
    rng = np.random.default_rng(seed)
    eigenvalues = np.sort(rng.choice(prediction.spectrum.values, (repeats, d)), axis=1)
    metrics = {n: ndl.Estimate(off * e.value, 0.01 * e.value, "stderr") for n, e in prediction.metrics.items()}
    return ndl.Measurement(
        *ASKED,
        metrics,
        overlaps=ndl.IndexedOverlaps(*(off * x for _, x in prediction.overlaps.items())),
        overlaps_error={"m": 0.02, "q": 0.02},
        d=d,
        repeats=repeats,
        spectrum=ndl.TrainedSpectrum(eigenvalues, eigenvalues),
    )


def test_a_prediction_has_its_spectrum_and_the_curve_around_it(prediction):
    figure = plot(prediction)
    spectrum, curve = figure.axes
    assert "39 % at zero" in words(figure)
    assert [t.get_text() for t in spectrum.get_legend().get_texts()] == ["theory", "target"]
    assert curve.get_ylabel() == "estimation error"
    line = curve.lines[0]
    at = list(line.get_xdata()).index(0.5)
    assert line.get_ydata()[at] == prediction.estimation_error.value
    assert f"{prediction.estimation_error} at 0.5" in [t.get_text() for t in curve.get_legend().get_texts()]
    assert titled(figure).replace("\n", " ") == ", ".join(map(repr, ASKED))
    render(figure)


def test_a_measurement_alone_is_a_histogram_and_standard_errors(prediction):
    m = measured(prediction)
    figure = plot(m)
    shown = words(figure)
    assert "standard error" in shown
    assert figure.axes[0].get_title() == "d = 10, 4 repeats"
    assert f"{100 * (1 - m.rank_fraction.value):.0f} % at zero" in shown
    render(figure)


def test_a_comparison_has_z_of_every_metric(prediction):
    m = measured(prediction)
    figure = plot(prediction, m)
    rows = ndl.compare(prediction, m).rows
    spectrum, _, table, scores = figure.axes
    drawn = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in scores.lines[1:]]
    assert drawn == [(pytest.approx(row.z), float(i)) for i, row in enumerate(rows)]
    shown = [t.get_text() for t in table.texts]
    assert shown[:4] == ["", "predicted", "at d = 10", "error"]
    for row in rows:
        _, predicted, value, error = shown[shown.index(row.metric.replace("_", " ")) :][:4]
        assert float(predicted) == pytest.approx(row.predicted, rel=5e-6)
        assert float(value) == pytest.approx(row.measured, abs=0.06 * row.measured_error)
        assert float(error) == pytest.approx(row.measured_error, rel=0.05)
    assert "theory is a limit" in scores.get_legend().get_title().get_text()
    zeros = f"{100 * (1 - m.rank_fraction.value):.0f} %"
    assert [t.get_text() for t in spectrum.texts] == [f"39 % at zero (trained {zeros})"]
    render(figure)


@pytest.mark.exact
def test_the_histogram_is_of_the_measured_eigenvalues(prediction):
    m = measured(prediction, d=40)
    expected, ends = histogram(
        SpectrumPanel("", prediction.spectrum, m.spectrum.eigenvalues, 1 - m.rank_fraction.value)
    )
    bars = plot(prediction, m).axes[0].patches[0].get_data()
    np.testing.assert_array_equal(bars.values, expected)
    np.testing.assert_array_equal(bars.edges, ends)


def test_several_sizes_have_a_panel_each_and_a_fit(prediction):
    sizes = [measured(prediction, d, off=1 + 1 / d, seed=d) for d in (10, 20, 40)]
    figure = plot(prediction, sizes)
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == [f"d = {d}, 4 repeats" for d in (10, 20, 40)]
    scores = figure.axes[-1]
    names = [t.get_text() for t in scores.get_legend().get_texts()]
    assert names == ["d = 10", "d = 20", "d = 40", "d to infinity"]
    comparison = ndl.compare(prediction, sizes)
    assert len(scores.lines) - 1 == len(comparison.rows) + len(comparison.extrapolations)
    render(figure)


def test_large_and_missing_z_are_said_in_words(prediction):
    far = measured(prediction, off=1.5)
    sure = dataclasses.replace(far, metrics={"risk": ndl.Estimate(9.0, 1e-3, "stderr")}, repeats=64)
    (row, *_) = ndl.compare(prediction, sure).rows
    assert row.z > FARTHEST
    figure = plot(prediction, sure)
    assert f"{row.z:.3g}" in words(figure)
    assert figure.axes[-1].lines[1].get_xdata()[0] == FARTHEST
    one = dataclasses.replace(far, metrics={"risk": ndl.Estimate(1.2, math.inf, "stderr")}, overlaps=None)
    figure = plot(prediction, one)
    assert {"no z", "unknown"} <= set(words(figure))
    render(figure)


def test_without_a_spectrum_there_is_the_curve_only(prediction):
    bare = dataclasses.replace(prediction, spectrum=None)
    assert len(plot(bare).axes) == 1
    assert len(plot(bare, dataclasses.replace(measured(prediction), spectrum=None)).axes) == 3


def test_what_is_wrong_stands_above(prediction):
    doubtful = dataclasses.replace(prediction, status=ndl.Status.UNSTABLE, notes=("not to be trusted: many minima.",))
    above = titled(plot(doubtful)).replace("\n", " ")
    assert ndl.Status.UNSTABLE.sentence in above
    assert "many minima" in above
    nothing = dataclasses.replace(
        prediction, status=ndl.Status.DIVERGED, metrics={"risk": ndl.Estimate(math.nan, math.inf)}, overlaps=None
    )
    figure = plot(nothing)
    assert "DIVERGED" in titled(figure)
    assert not any(" at 0.5" in t.get_text() for t in figure.axes[1].get_legend().get_texts())
    render(figure)


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (0.3520, 0.009, ("0.3520", "9.0e-03")),
        (1.2048858, 1.8e-9, ("1.20489", "1.8e-09")),
        (0.0, 1e-9, ("0.00000", "1.0e-09")),
        (2.237e-7, 1.5e-9, ("2.237e-07", "1.5e-09")),
        (123456.7, 20.0, ("123457", "2.0e+01")),
        (12.0, 3.0, ("12.0", "3.0e+00")),
        (-0.25, 0.0, ("-0.25", "exact")),
        (0.5, math.inf, ("0.5", "unknown")),
        (math.nan, math.inf, ("none", "")),
        (1.0, None, ("1", "")),
    ],
)
def test_numbers_keep_the_digits_that_their_error_leaves(value, error, shown):
    assert numbers(value, error) == shown


# --- other results -------------------------------------------------------------------------------


def test_a_trajectory_is_drawn_as_one(trajectory):
    asked = (*LOCATION, ndl.ProjectedDescent(0.01, 4, "sphere", d=8, runs=6))
    metrics = {"risk": ndl.Estimate(1.0, 0.1, "stderr")}
    theory = ndl.Prediction(*asked, metrics, trajectory=trajectory())
    training = ndl.Measurement(*asked, metrics, trajectory=trajectory(seed=1), d=8, repeats=6)
    for figure, said in ((plot(theory), "theory"), (plot(theory, training), "training (d-dim., 6 runs)")):
        assert len(figure.axes) == 4
        assert said in [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
        render(figure)
    alone = plot(training)
    said = [t.get_text() for axis in alone.axes for t in axis.get_legend().get_texts()]
    assert "training (d = 8, 6 runs)" in said
    assert not any("theory" in text for text in said)  # nothing measured is called theory
    top = alone.axes[0].get_ylim()[1]
    assert top == pytest.approx(1.05 * training.trajectory.excess_risk.max(), rel=1e-12)


def test_a_flow_has_a_time_and_free_norms_their_room(trajectory):
    t = trajectory(runs=1)
    free = {n: 3 * x if n in ("key", "value") else x for n, x in t.overlaps.items()}
    flow = dataclasses.replace(t, steps=t.steps / 100.0, branches=(), overlaps=free)
    asked = (*LOCATION, ndl.GradientFlow(40.0, ndl.Overlaps(0.1, 0.1), 1.0))
    figure = plot(ndl.Prediction(*asked, {}, trajectory=flow))
    risk, alignment, paths, _ = figure.axes
    assert (risk.get_xlabel(), alignment.get_xlabel()) == ("time", "time")
    reach = max(np.abs(free[n]).max() for n in ("key", "value"))
    assert alignment.get_ylim()[1] > reach
    assert paths.get_xlim()[1] > reach
    assert [x.get_text() for x in paths.get_legend().get_texts()] == ["each run, to its dot"]
    render(figure)


def test_a_population_optimum_is_a_table():
    figure = plot(ndl.predict(*LOCATION, ndl.Population()))
    assert {"excess risk", "key", "value"} <= set(words(figure))
    render(figure)


# --- files and mistakes --------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_picture_is_saved(prediction, tmp_path, suffix, begins):
    path = tmp_path / f"out.{suffix}"
    plot(prediction, path=path)
    assert path.read_bytes().startswith(begins)


def test_mistakes_are_one_sentence(prediction, tmp_path):
    m = measured(prediction)
    with pytest.raises(ndl.InvalidParameter, match="the file name must end in"):
        plot(prediction, path=tmp_path / "out.gif")
    with pytest.raises(ndl.InvalidParameter, match="there is no folder"):
        plot(prediction, path=tmp_path / "none" / "out.png")
    with pytest.raises(ndl.InvalidParameter, match="give that first"):
        plot(m, [m])
    with pytest.raises(ndl.InvalidParameter, match="Measurements that test"):
        plot(prediction, [prediction])
    with pytest.raises(ndl.InvalidParameter, match="answers another question"):
        plot_result(prediction, dataclasses.replace(m, learner=ndl.Ridge(0.5, 0.2)))


def test_studies_are_drawn_as_before():
    study = ndl.sweep(*LOCATION, ndl.Population(), over={"task.snr": [1.0, 2.0, 4.0]})
    study.run()
    figure = plot(study, "risk")
    assert figure.axes[0].get_ylabel()
    assert "risk" in figure.axes[0].get_ylabel()

"""The curve around a ridge prediction, other answers by themselves, and axes that a user has made."""

import dataclasses
import io

import numpy as np
import pytest
from matplotlib.figure import Figure

import needlepoint as ndl
from needlepoint.plotting.around import SPAN, _best, around
from needlepoint.plotting.results import plot

INDEXED = (ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5), ndl.TiedAttention(), ndl.Ridge(0.5, 0.1))
LOCATION = (ndl.SpikedSLR(2, 3.0, noise=0.1), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(6.0, 0.3))


@pytest.fixture(scope="module")
def indexed():
    return ndl.predict(*INDEXED)


@pytest.fixture(scope="module")
def location():
    return ndl.predict(*LOCATION)


def axes():
    return Figure().subplots()


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def legend(axis):
    return [t.get_text() for t in axis.get_legend().get_texts()]


def trained(prediction, learner, d=20, value=0.5):
    """A measurement made by hand."""
    metrics = {name: ndl.Estimate(value, 0.01, "stderr") for name in prediction.metrics}
    return ndl.Measurement(prediction.task, prediction.model, learner, metrics, d=d, repeats=4)


@pytest.mark.parametrize("x", ["alpha", "penalty"])
@pytest.mark.parametrize("family", ["indexed", "location"])
def test_every_point_of_a_curve_is_a_prediction(family, x, request):
    """The second route: each answer that is drawn is what `predict` says there, within both errors."""
    prediction = request.getfixturevalue(family)
    metric = "estimation_error" if family == "indexed" else "excess_risk"
    curve = around(prediction, x, metric)
    places = [a[0] for a in curve.answers]
    assert places == sorted(places)
    learner = prediction.learner
    here = learner.alpha if x == "alpha" else learner.lam
    assert here in places
    far = SPAN.alpha if x == "alpha" else SPAN.penalty
    assert places[0] <= here / far * (1 + 1e-12)
    assert places[-1] >= here * far * (1 - 1e-12)
    for at, estimate, _ in (curve.answers[2], curve.answers[-3]):
        change = {"alpha": at} if x == "alpha" else {"lam": at}
        alone = ndl.predict(prediction.task, prediction.model, learner.replace(**change), throw=False).metrics[metric]
        assert abs(alone.value - estimate.value) <= 2 * (alone.error + estimate.error) + 1e-12


@pytest.mark.exact
def test_the_lowest_penalty_is_the_best_one(indexed):
    """For one token the best penalty is known in closed form; the parabola through the grid is near it."""
    task, model, learner = INDEXED
    best = ndl.predict(task, model, learner.replace(lam="optimal")).resolved[2].lam
    curve = around(indexed, "penalty", "risk")
    step = (SPAN.penalty**2) ** (1 / (SPAN.alone - 1))  # of the grid: the parabola is better than half of it
    assert abs(np.log(curve.best / best)) < np.log(step) / 2
    axis = axes()
    plot(indexed, ax=axis, x="penalty", metric="risk")
    assert f"lowest at {curve.best:.3g}" in legend(axis)


@pytest.mark.exact
def test_a_parabola_is_found_and_an_end_is_not():
    rows = [(x, ndl.Estimate(np.log(x / 0.3) ** 2), True) for x in (0.1, 0.2, 0.7, 2.0)]
    assert _best(rows) == pytest.approx(0.3, rel=1e-12)
    assert _best(rows[2:]) is None
    assert _best([(x, ndl.Estimate(x), True) for x in (1.0, 2.0, 3.0)]) is None


def test_a_curve_that_still_falls_is_continued(indexed):
    far = dataclasses.replace(indexed, learner=ndl.Ridge(0.5, 40.0), resolved=None)
    far = ndl.predict(*INDEXED[:2], far.learner)
    curve = around(far, "penalty", "risk")
    assert curve.best is not None
    assert curve.answers[0][0] < 40.0 / SPAN.penalty / 2


def test_what_is_not_trusted_is_dashed(location):
    flagged = dataclasses.replace(location, status=ndl.Status.UNSTABLE, stable=False)
    axis = axes()
    plot(flagged, ax=axis)
    assert "theory, not to be trusted" in legend(axis)
    (dashed,) = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert np.isfinite(dashed.get_ydata()).sum() == 3  # the point and its two neighbours, to which it reaches


def test_training_is_dots_along_the_curve(location):
    here = [trained(location, location.learner, d) for d in (20, 40)]
    there = trained(location, ndl.Ridge(10.0, 0.3), value=0.4)
    figure = plot(location, [*here, there])
    curve, table, _ = figure.axes
    assert {"training, $d$ = 20", "training, $d$ = 40"} <= set(legend(curve))
    dots = np.concatenate(
        [np.array(c.lines[0].get_xydata()) for c in curve.containers if c.lines[0].get_mfc() == "white"]
    )
    assert sorted(map(tuple, dots.tolist())) == [(6.0, 0.5), (6.0, 0.5), (10.0, 0.4)]
    assert "at d = 40" in [t.get_text() for t in table.texts]  # z-scores are of the question itself
    render(figure)
    with pytest.raises(ndl.InvalidParameter, match="answers another question"):
        plot(location, trained(location, ndl.Ridge(10.0, 0.3)), x="penalty")


def test_only_plot_computes_a_curve(indexed, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("a repr has computed something")

    monkeypatch.setattr("needlepoint.plotting.around.sweep", refuse)
    assert indexed._repr_html_()
    assert repr(indexed)


def test_a_users_eigenvalues_are_a_histogram_over_the_law(indexed):
    values = np.random.default_rng(0).choice(indexed.spectrum.values, 300)
    spectrum, _ = plot(indexed, eigenvalues=values).axes
    assert spectrum.get_title() == "300 given eigenvalues"
    assert legend(spectrum) == ["theory", "given", "target"]
    assert any("given" in t.get_text() for t in spectrum.texts)
    for bad in ("words", [[[1.0]]], [], [np.nan], object()):
        with pytest.raises(ndl.InvalidParameter, match=r"give finite numbers \(d,\)"):
            plot(indexed, eigenvalues=bad)


def test_eigenvalues_need_a_law(location):
    with pytest.raises(ndl.InvalidParameter, match="learns no matrix"):
        plot(location, eigenvalues=[1.0])


def test_every_answer_draws_itself_on_axes(indexed, location, trajectory):
    learner = ndl.ProjectedDescent(0.01, 4, "sphere", d=8, runs=6)
    descent = ndl.Prediction(LOCATION[0], LOCATION[1], learner, {}, trajectory=trajectory())
    measured = dataclasses.replace(
        trained(indexed, indexed.learner), spectrum=ndl.TrainedSpectrum(np.ones((2, 5)), np.ones((2, 5)))
    )
    population = ndl.predict(LOCATION[0], LOCATION[1], ndl.Population())
    comparison = ndl.compare(indexed, dataclasses.replace(measured, spectrum=None))
    study = ndl.sweep(
        LOCATION[0], None, ndl.BayesOptimal(), {"task.snr": [1.0, 2.0, 3.0], "task.noise": [0.1, 0.2, 0.3]}
    )
    for shown in (
        indexed,
        location,
        descent,
        measured,
        population,
        comparison,
        study,
        indexed.spectrum,
        measured.spectrum,
    ):
        axis = axes()
        assert shown.plot(ax=axis) is axis
        assert axis.has_data() or axis.texts
        render(axis.figure)
        assert shown.plot()._repr_png_().startswith(b"\x89PNG")
    axis = axes()
    assert study.plot("risk", x="snr", kind="curves", ax=axis) is axis
    assert len(axis.figure.axes) == 1


def test_the_axes_of_a_comparison_name_its_metrics(indexed):
    comparison = ndl.compare(indexed, trained(indexed, indexed.learner))
    axis = axes()
    comparison.plot(ax=axis)
    names = [t.get_text() for t in axis.get_yticklabels()]
    assert names == [row.metric.replace("_", " ") for row in comparison.rows]


def test_mistakes_are_one_sentence(indexed, location):
    with pytest.raises(ndl.InvalidParameter, match="several predictions are drawn as a study"):
        plot(indexed, location)
    with pytest.raises(ndl.InvalidParameter, match="not a int"):
        plot(indexed, 3)
    with pytest.raises(ndl.InvalidParameter, match="x must be 'alpha'"):
        plot(indexed, x="snr")
    with pytest.raises(ndl.InvalidParameter, match="the prediction has risk"):
        plot(indexed, metric="beauty")
    with pytest.raises(ndl.InvalidParameter, match="drawn by itself"):
        plot(indexed.spectrum, indexed)
    with pytest.raises(ndl.InvalidParameter, match="curve is drawn around the prediction of a Ridge"):
        plot(ndl.predict(LOCATION[0], LOCATION[1], ndl.Population()), x="alpha")
    with pytest.raises(ndl.InvalidParameter, match=r"plot\(Softmax\): takes"):
        plot(ndl.Softmax)

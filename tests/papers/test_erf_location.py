"""The figures of arXiv 2410.01537 ask what the authors' configurations say."""

import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.papers.erf_location import PAPER, drawn_starts
from needlepoint.papers.figures import figure, figures

# theory sheet 01, section 7: d, scale, schedule, lr, steps, record_every, start, batch
TABLE = {
    "erf-schedule": (400, 1.0, 1e-4, 4e-3, 120_000, 300, "sphere", None),
    "erf-manifold": (400, 0.1, 0.0, 4e-3, 20_000, 200, "manifold", None),
    "erf-sgd": (80, 2.0, 1e-4, 1e-3, 200_000, 500, "sphere", 5),
    "erf-large-scale": (400, 0.9, 0.0, 1e-3, 120_000, 300, "sphere", None),
    "erf-small-scale": (400, 0.1, 0.0, 4e-3, 20_000, 200, "sphere", None),
}
# the scale at step T - 1, as the sheet prints it
LAST_SCALE = {"erf-schedule": 0.0769237, "erf-sgd": 0.0952385}


@pytest.mark.paper
@pytest.mark.parametrize("name", TABLE)
def test_full_size_is_the_published_configuration(name):
    d, scale, schedule, lr, steps, record_every, start, batch = TABLE[name]
    theory, oracle, *followed, training = figure(name).points("full")
    given = drawn_starts(start, d, 30)
    random = {"d": d, "runs": 30, "start": start}
    for point in (theory, *followed, training):
        assert point.task == ndl.SpikedSLR(10, snr=d / 2, relevant_std=math.sqrt(0.5), noise=0.1)
        assert point.model == ndl.KeyValueAttention(ndl.Erf(scale=scale), unit_norm=True)
        begins = {"start": given} if point.learner.given else random
        shared = {"record_every": record_every, "schedule": schedule, **begins}
        expected = (
            ndl.ProjectedDescent(lr, steps, **shared)
            if batch is None
            else ndl.OnlineSGD(lr, steps, batch=batch, **shared)
        )
        assert point.learner == expected
    assert (theory.verb, oracle.verb, training.verb) == ("predict", "predict", "simulate")
    # descent is deterministic: training has the starts that the theory follows. SGD agrees in law, over 16 runs
    assert bool(training.learner.given) == (batch is None)
    assert training.question == (followed[0] if followed else theory).question
    assert (training.options["d"], training.options["repeats"]) == (d, 16 if batch else 1)
    assert oracle.task == theory.task
    assert oracle.learner == ndl.Population()
    last = scale / (1 + schedule * (steps - 1))
    assert math.isclose(oracle.model.activation.scale, last, rel_tol=1e-15)
    assert math.isclose(last, LAST_SCALE.get(name, scale), abs_tol=5e-8)  # half a printed digit


@pytest.mark.exact
@pytest.mark.parametrize("kind", ["sphere", "manifold"])
def test_starts_have_the_law_of_random_ones(kind):
    """Second moments 1/d (1/(d - 1) and 1/(d - 2) on the manifold), and the means of a thousand starts near zero."""
    d, runs = 50, 1000
    five = np.array([o.five() for o in drawn_starts(kind, d, runs)])
    wanted = np.full(5, 1 / d) if kind == "sphere" else np.array([1 / (d - 1), 1 / (d - 2), 0, 0, 0])
    # the mean of a square has a relative error of about sqrt(2 / runs), 4.5 %
    np.testing.assert_allclose((five**2).mean(axis=0), wanted, rtol=0.25)
    assert np.all(np.abs(five.mean(axis=0)) <= 5 * np.sqrt(wanted / runs))
    assert drawn_starts(kind, d, 5) == drawn_starts(kind, d, 5)


@pytest.mark.training
def test_theory_and_training_of_a_descent_stay_together():
    """The same starts: after 300 steps the paths differ by rounding."""
    given = drawn_starts("sphere", 20, 3)
    question = (
        ndl.SpikedSLR(10, snr=10, relevant_std=math.sqrt(0.5), noise=0.1),
        ndl.KeyValueAttention(ndl.Erf(scale=0.1), unit_norm=True),
        ndl.ProjectedDescent(4e-3, 300, given, record_every=100),
    )
    theory = ndl.predict(*question).trajectory
    training = ndl.simulate(*question, d=20, repeats=1, seed=1).trajectory
    for name, path in theory.overlaps.items():
        np.testing.assert_allclose(training.overlaps[name], path, atol=1e-9)


def test_only_the_small_scale_draws_every_run():
    """Section 7: mean with a 95 % interval, except the small-lambda configuration."""
    drawn = {name: figure(name).draw.args[0] for name in TABLE}
    assert [name for name, every in drawn.items() if every] == ["erf-small-scale"]


def test_all_figures_of_the_paper():
    mine = [f.id for f in figures().values() if f.paper == PAPER]
    assert set(mine) == {*TABLE, "erf-flow", "erf-dimension"}


@pytest.mark.paper
def test_the_flow_is_drawn_at_dimension_400():
    points = figure("erf-flow").points("full")
    assert {p.verb for p in points} == {"vector_field", "fixed_points", "nullcline"}
    assert all(p.task == ndl.SpikedSLR(10, snr=200, relevant_std=math.sqrt(0.5)) for p in points)


@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_dimension_figure_keeps_snr_at_half_the_dimension(size):
    for point in figure("erf-dimension").points(size):
        assert point.task.snr == point.x / 2
        assert point.task.relevant_std == math.sqrt(0.5)
        family = point.label.partition(",")[0]
        lengths = {"L = 10": 10, "L = sqrt(d)": max(2, round(math.sqrt(point.x))), "L = d": point.x}
        assert point.task.tokens == lengths[family]
        assert getattr(point.learner, "d", point.x) == point.x

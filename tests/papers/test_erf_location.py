"""The figures of arXiv 2410.01537 ask what the authors' configurations say."""

import math

import pytest

import needlepoint as ndl
from needlepoint.papers.erf_location import PAPER
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
    theory, oracle, training = figure(name).points("full")
    for point in (theory, training):
        assert point.task == ndl.SpikedSLR(10, snr=d / 2, relevant_std=math.sqrt(0.5), noise=0.1)
        assert point.model == ndl.KeyValueAttention(ndl.Erf(scale=scale), unit_norm=True)
        shared = {"record_every": record_every, "d": d, "runs": 30, "schedule": schedule, "start": start}
        expected = (
            ndl.ProjectedDescent(lr, steps, **shared)
            if batch is None
            else ndl.OnlineSGD(lr, steps, batch=batch, **shared)
        )
        assert point.learner == expected
    assert (theory.verb, oracle.verb, training.verb) == ("predict", "predict", "simulate")
    # vectors cost d times as much: the SGD overlay has 16 runs, the theory always 30
    assert (training.options["d"], training.options["repeats"]) == (d, 16 if batch else 30)
    assert oracle.task == theory.task
    assert oracle.learner == ndl.Population()
    last = scale / (1 + schedule * (steps - 1))
    assert math.isclose(oracle.model.activation.scale, last, rel_tol=1e-15)
    assert math.isclose(last, LAST_SCALE.get(name, scale), abs_tol=5e-8)  # half a printed digit


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

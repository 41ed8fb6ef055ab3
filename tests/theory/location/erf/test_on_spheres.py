"""The best models at infinite data: linear, oracle, best scale, global optimum and its branch."""

import functools
import itertools

import numpy as np
import pytest

import needlepoint as ndl

TASK = ndl.SpikedSLR(10, snr=200, relevant_std=0.5**0.5, noise=0.1)


def erf(scale, **more):
    return ndl.KeyValueAttention(ndl.Erf(scale, **more), unit_norm=True)


@pytest.mark.paper
def test_reference_baselines():
    linear = ndl.predict(TASK, ndl.LinearRegression(), ndl.Population())
    assert linear.excess_risk.value == pytest.approx(0.47368421052631576, abs=1e-10)
    best = ndl.predict(TASK, erf(None), ndl.Population())
    assert best.resolved[1].activation.scale == pytest.approx(0.06376746895464551, abs=1e-10)
    assert best.excess_risk.value == pytest.approx(0.06710197843830955, abs=1e-10)
    assert best.branch == "oracle"


@pytest.mark.paper
@pytest.mark.parametrize(
    ("d", "length", "value"),
    [(100, 10, 0.16094), (1600, 10, 0.02434), (10**6, 10, 1.03e-4), (6400, 80, 0.0438), (1600, 1600, 0.4015)],
)
def test_published_best_oracles(d, length, value):
    """sheet 01, section 5, printed digits."""
    task = ndl.SpikedSLR(length, snr=d / 2, relevant_std=0.5**0.5)
    assert ndl.predict(task, erf(None), ndl.Population()).excess_risk.value == pytest.approx(value, rel=5e-3)


@functools.cache
def best_of_all(scale):
    return ndl.predict(TASK, erf(scale), ndl.Population(within="all"))


@pytest.mark.paper
@pytest.mark.parametrize(
    ("scale", "value", "branch"),
    [
        (0.05, 0.049927, "swapped"),
        (0.3, 0.8774290, "oracle"),
        (0.9, 3.8065732, "other"),
        pytest.param(0.1, 0.1134981, "oracle", marks=pytest.mark.slow),
    ],
)
def test_global_optimum_and_its_branch(scale, value, branch):
    """sheet 01, section 6, printed digits; "best found" at scale .9."""
    best = best_of_all(scale)
    assert best.excess_risk.value == pytest.approx(value, abs=1e-6)
    assert best.branch == branch
    at = ndl.excess_risk(TASK, erf(scale), best.overlaps)
    assert at.value == pytest.approx(best.excess_risk.value, abs=1e-10)


@pytest.mark.paper
@pytest.mark.slow
def test_global_optimum_with_a_free_scale_is_the_swapped_minimum():
    best = ndl.predict(TASK, erf(None), ndl.Population(within="all"))
    assert best.branch == "swapped"
    assert best.resolved[1].activation.scale == pytest.approx(0.057485, abs=1e-6)
    assert best.excess_risk.value == pytest.approx(0.042211, abs=1e-6)


@pytest.mark.exact
def test_no_random_point_beats_the_global_optimum():
    best = best_of_all(0.3).excess_risk.value
    rng = np.random.default_rng(0)
    for _ in range(300):
        k, v = rng.standard_normal(3), rng.standard_normal(4)
        k, v = k / np.linalg.norm(k), v / np.linalg.norm(v)
        o = ndl.Overlaps(k[0], v[1], v[0], k[1], float(k @ v[:3]))
        assert ndl.excess_risk(TASK, erf(0.3), o).value >= best


@pytest.mark.exact
def test_free_constants_can_only_help():
    task = ndl.SpikedSLR(4, snr=3.0)
    risks = [
        ndl.predict(task, model, ndl.Population()).excess_risk.value
        for model in (erf(1.0), erf(None), erf(None, shift=None), erf(None, shift=None, offset=None))
    ]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(risks))
    assert risks[-1] < risks[0] - 0.01


@pytest.mark.exact
@pytest.mark.parametrize("std", [1e-4, *(pytest.param(x, marks=pytest.mark.slow) for x in (1e-3, 0.1)), 3.0])
def test_all_overlaps_are_never_worse_than_the_manifold(std):
    """Small relevant_std makes the whole landscape small: tolerances must shrink with it."""
    task = ndl.SpikedSLR(5, snr=20.0, relevant_std=std)
    on = ndl.predict(task, erf(None), ndl.Population()).excess_risk
    free = ndl.predict(task, erf(None), ndl.Population(within="all")).excess_risk
    assert free.value <= on.value + on.error + free.error
    assert 0 < on.value < std**2  # better than predicting nothing


def test_an_infimum_that_is_not_attained_is_reported():
    """Without a spike nothing is better than no weight at all, which is risk 1."""
    found = ndl.predict(ndl.SpikedSLR(10, snr=0.0), erf(None), ndl.Population())
    assert (found.status, found.ok) == (ndl.Status.UNBOUNDED, True)
    assert found.excess_risk.value == pytest.approx(1.0, abs=1e-15)


@pytest.mark.montecarlo
def test_linear_regression_on_real_vectors():
    task = ndl.SpikedSLR(3, snr=3.0, relevant_std=1.2, noise=0.1)
    question = (task, ndl.LinearRegression(), ndl.Population())
    measured = ndl.simulate(*question, d=4, repeats=16)
    assert measured.risk.error < 0.005 * measured.risk.value
    assert ndl.compare(ndl.predict(*question), measured).worst < 4


def test_requests_without_an_answer():
    with pytest.raises(ndl.InvalidParameter, match="needs a fixed length"):
        ndl.predict(ndl.SpikedSLR({1: 0.5, 2: 0.5}, 1.0), ndl.LinearRegression(), ndl.Population())
    with pytest.raises(ndl.InvalidParameter, match="unit_norm=True"):
        ndl.predict(TASK, ndl.KeyValueAttention(ndl.Erf(scale=None)), ndl.Population())
    with pytest.raises(ndl.InvalidParameter, match="tol must be > 0"):
        ndl.predict(TASK, erf(0.1), ndl.Population(), tol=-1.0)


def test_a_tolerance_that_cannot_be_met_is_reported():
    impossible = 1e-300
    found = ndl.predict(TASK, erf(None), ndl.Population(), tol=impossible, throw=False)
    if found.residual == 0.0:
        assert found.status is ndl.Status.CONVERGED
    else:
        assert found.status is ndl.Status.MAX_STEPS
        with pytest.raises(ndl.NotConverged) as caught:
            ndl.predict(TASK, erf(None), ndl.Population(), tol=impossible)
        assert caught.value.result.excess_risk.value == found.excess_risk.value

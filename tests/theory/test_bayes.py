"""The Bayes risk by integration against sampling, limits and bounds."""

import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.bayes import bayes_bound, bayes_excess_risk, bayes_monte_carlo, chi_square_rule

# the first two have a norm that shifts every log-weight by far more than the key field does
CASES = [
    (4, 2.0, 0.99, 10_000),
    (4, 2.0, 0.999, 100_000),
    (10, 4.0, 1.0, 8),
    (5, 3.0, 1.4, 12),
    (10, 10.0, 0.5**0.5, 20),
    (3, 1.0, 2.5, 6),
    (2, 2.0, 0.9, 40),
]


@pytest.mark.montecarlo
@pytest.mark.parametrize(
    ("length", "snr", "std", "d"), [*CASES[:4], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[4:])]
)
def test_integral_equals_sampling_of_the_fields(length, snr, std, d):
    task = ndl.SpikedSLR(length, snr=snr, relevant_std=std)
    exact, sampled = bayes_excess_risk(task, length, d), bayes_monte_carlo(task, length, d, seed=3)
    assert exact.error < 1e-4 * exact.value
    assert sampled.error < 0.015 * sampled.value  # 2^20 samples; at 1 % of them the place is mistaken
    assert abs(exact.value - sampled.value) < 5 * sampled.error


@pytest.mark.negative
def test_ignoring_the_norm_is_seen():
    """Scores along k* alone (the answer for relevant_std = 1) are not the Bayes risk at relevant_std != 1."""
    task = ndl.SpikedSLR(5, snr=3.0, relevant_std=1.4)
    sampled = bayes_monte_carlo(task, 5, 12, seed=4)
    assert abs(bayes_excess_risk(task.replace(relevant_std=1.0), 5, 12).value - sampled.value) > 5 * sampled.error


@pytest.mark.montecarlo
@pytest.mark.parametrize(("std", "d"), [(1.0, 12), (0.8, 12)])
def test_integral_equals_the_posterior_mean_on_real_vectors(std, d):
    task = ndl.SpikedSLR(4, snr=3.0, relevant_std=std, noise=0.2)
    prediction = ndl.predict(task, None, ndl.BayesOptimal(d=d))
    measured = ndl.simulate(task, None, ndl.BayesOptimal(d=d), d=d, repeats=32, samples=10_000)
    assert measured.risk.error < 0.01 * measured.risk.value
    assert ndl.compare(prediction, measured).worst < 5


@pytest.mark.paper
@pytest.mark.parametrize(
    ("length", "snr", "value"),
    [
        (2, 1.0, 0.3249432976624441),
        (2, 5.0, 0.084397),
        (3, 2.0, 0.352423),
        (10, 2.0, 0.666521),
    ],
)
def test_published_values_at_unit_spread(length, snr, value):
    """sheet 02, section 2 (printed digits)."""
    assert ndl.predict(ndl.SpikedSLR(length, snr=snr), None, ndl.BayesOptimal()).risk.value == pytest.approx(
        value, abs=1e-6
    )


@pytest.mark.exact
def test_exponential_rate_without_cancellation():
    """(L-1) sqrt(pi / (4 snr)) exp(-snr / 4) (1 + O(1/snr)); the ratio at snr 200 is .988 (sheet 02)."""
    for length, ratio in ((2, 0.988), (10, 0.988)):
        risk = bayes_excess_risk(ndl.SpikedSLR(length, snr=200.0), length, 2).value
        asymptotic = (length - 1) * math.sqrt(math.pi / 800) * math.exp(-50)
        assert risk / asymptotic == pytest.approx(ratio, abs=5e-4)


@pytest.mark.exact
def test_the_bound_bounds_and_is_continuous_in_the_spread():
    for length, snr, std, d in CASES:
        task = ndl.SpikedSLR(length, snr=snr, relevant_std=std)
        assert bayes_excess_risk(task, length, d).value < bayes_bound(task, length, d)
    near = bayes_excess_risk(ndl.SpikedSLR(5, snr=3.0, relevant_std=1 + 1e-5), 5, 12).value
    assert near == pytest.approx(bayes_excess_risk(ndl.SpikedSLR(5, snr=3.0), 5, 12).value, rel=1e-4)


def test_a_vanishing_risk_is_a_bound_with_a_note():
    """d = 400, gamma^2 = .5: the squared Bhattacharyya coefficient is exp(-90.2)."""
    task = ndl.SpikedSLR(10, snr=200, relevant_std=0.5**0.5, noise=0.1)
    prediction = ndl.predict(task, None, ndl.BayesOptimal(d=400))
    assert 0 < prediction.excess_risk.value == prediction.excess_risk.error < 1e-12
    assert prediction.excess_risk.value == pytest.approx(9 / 3 * math.exp(-90.2), rel=0.1)
    assert prediction.risk.value == pytest.approx(0.01, abs=1e-16)
    assert "between 0 and" in prediction.notes[0]


def test_a_tolerance_that_sampling_cannot_meet_is_reported():
    task, learner = ndl.SpikedSLR(3, snr=1.0, relevant_std=0.2), ndl.BayesOptimal(d=3)
    with pytest.raises(ndl.NotConverged, match="NOISE_LIMITED"):
        ndl.predict(task, None, learner, tol=1e-9)


def test_limits_and_lengths():
    task = ndl.SpikedSLR({1: 0.5, 3: 0.5}, snr=2.0)
    mixed = ndl.predict(task, None, ndl.BayesOptimal()).excess_risk
    three = ndl.predict(ndl.SpikedSLR(3, snr=2.0), None, ndl.BayesOptimal()).excess_risk
    assert mixed.value == pytest.approx(three.value / 2, rel=1e-12)
    assert ndl.predict(ndl.SpikedSLR(1, snr=2.0), None, ndl.BayesOptimal()).excess_risk.value == 0.0
    limit = ndl.predict(ndl.SpikedSLR(3, snr=2.0, relevant_std=0.5), None, ndl.BayesOptimal())
    assert limit.excess_risk.value == 0.0
    assert not limit.exact
    assert "give d=" in limit.notes[0]
    with pytest.raises(ndl.InvalidParameter, match="needs noise > 0"):
        ndl.predict(ndl.MaxSLR(2, 2.0), None, ndl.BayesOptimal(alpha=2.0))


def test_where_integration_fails_sampling_or_the_bound_takes_over():
    steep = ndl.predict(ndl.SpikedSLR(3, snr=1.0, relevant_std=0.2), None, ndl.BayesOptimal(d=3)).excess_risk
    assert steep.kind == "stderr"
    assert steep.error < 0.1 * steep.value
    never = ndl.predict(ndl.SpikedSLR(3, snr=1.0, relevant_std=0.05), None, ndl.BayesOptimal(d=30))
    assert never.excess_risk.value == never.excess_risk.error < 1e-20


@pytest.mark.exact
def test_chi_square_rule_moments():
    for dof in (1, 5, 400):
        nodes, weights = chi_square_rule(dof, 24)
        np.testing.assert_allclose(
            [weights @ nodes**k for k in range(4)],
            [1, dof, dof * (dof + 2), dof * (dof + 2) * (dof + 4)],
            rtol=1e-12,
        )

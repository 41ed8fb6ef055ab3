"""The Bayes risk by integration against sampling, limits and bounds."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

import needlepoint as ndl
from needlepoint.core.estimates import Estimate
from needlepoint.numerics.radial import log_radial_density
from needlepoint.theory.location.bayes import spiked_teachers
from needlepoint.theory.location.bayes.given_teachers import bayes_bound
from needlepoint.theory.location.bayes.spiked_teachers import bayes_excess_risk

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


def bayes_monte_carlo(task, length, d, seed, samples=2**20, chunk=2**22):
    """eq:bayes-risk by sampling key field, value field and squared norm of every token."""
    rng = np.random.default_rng(seed)
    m, G = math.sqrt(task.snr), task.relevant_std**2
    total, squares, done = 0.0, 0.0, 0
    while done < samples:
        shape = (min(samples - done, max(1, chunk // length)), length)
        key, value = rng.standard_normal(shape), rng.standard_normal(shape)
        rest = rng.chisquare(d - 2, shape) if d > 2 else np.zeros(shape)
        key[:, 0] = m + task.relevant_std * key[:, 0]
        value[:, 0] *= task.relevant_std
        rest[:, 0] *= G
        log_weight = -((key - m) ** 2) / (2 * G) + key**2 / 2 - (1 / G - 1) / 2 * (value**2 + rest)
        posterior = special.softmax(log_weight, axis=1)
        error = (value[:, 0] - np.sum(posterior * value, axis=1)) ** 2
        total, squares, done = total + error.sum(), squares + (error**2).sum(), done + shape[0]
    mean = total / samples
    return Estimate(mean, math.sqrt(max(squares / samples - mean**2, 0.0) / samples), "stderr")


def by_key_field_and_norm(task, length, d, step=0.12):
    """eq:bayes-risk over the two coordinates k* . x and |x - (k* . x) k*|, with no distance and no Bessel function."""
    m, g, G = math.sqrt(task.snr), task.relevant_std, task.relevant_std**2
    slope = g * max(abs((m + s * 9 * g) * (1 - 1 / G) + m / G) for s in (1, -1))
    h = min(step, 0.3 / max(slope, 1e-9))
    z = np.arange(-9, 9 + h / 2, h)
    a, norm = m + g * z, h / math.sqrt(2 * math.pi)
    # the length of the other coordinates in units of g, as log(1 + e^t); E_J[(v* . x)^2 ...] has two more of them
    high = math.sqrt(d + 1) + 9
    t = np.arange(-80.0 / d - 2, high, min(step, 0.3 / (abs(1 - G) * high)))
    x = np.logaddexp(0, t)
    jacobian = -np.expm1(-x) * (t[1] - t[0])
    radial = [jacobian * f * stats.chi.pdf(f * x, k) for f, k in ((1.0, d + 1), (g, d - 1))]
    relevant = np.outer(norm * np.exp(-(z**2) / 2), radial[0]).ravel()
    other = np.outer(norm * g * np.exp(-(a**2) / 2), radial[1]).ravel()
    log_ratio = -d * math.log(g) - np.add.outer((a - m) ** 2 / (2 * G) - a**2 / 2, (1 - G) / 2 * x**2).ravel()
    used = log_ratio < 120
    relevant, other, log_ratio, total = relevant[used], other[used], log_ratio[used], 0.0
    for u in np.arange(-log_ratio.max() - 38 - math.log(length), 5 - log_ratio.min(), 0.3):
        weight = np.exp(np.minimum(u + log_ratio, 700))
        gone = -np.expm1(-weight)
        others = math.exp((length - 2) * math.log1p(-min(gone @ other, 1 - 1e-16)))
        total += 0.3 * ((weight * (1 - gone)) @ other) * ((1 - gone) @ relevant) * others
    return (length - 1) * G * total


@pytest.mark.exact
@pytest.mark.parametrize(
    ("length", "snr", "std", "d"),
    [
        (40, 0.4, 0.7, 12),
        (10**6, 2.0, 0.9, 6),
        (10**12, 0.0, 1.02, 3),
        pytest.param(2, 0.5, 0.30354, 2, marks=pytest.mark.slow),
        pytest.param(7, 1.3, 1.8, 5, marks=pytest.mark.slow),
    ],
)
def test_the_error_covers_another_route(length, snr, std, d):
    """Two coordinates in place of one."""
    task = ndl.SpikedSLR(length, snr=snr, relevant_std=std)
    found, direct = bayes_excess_risk(task, length, d), by_key_field_and_norm(task, length, d)
    assert found.error < 1e-8 * found.value
    assert abs(found.value - direct) <= found.error + 1e-11 * direct  # of the other route


@pytest.mark.exact
@pytest.mark.parametrize(("std", "d"), [(0.30354, 2), (0.8, 20), (1.7, 3)])
def test_two_tokens_without_a_spike(std, d):
    """A double integral over their norms. The first case was off by 440 errors with a Gauss rule of 48 nodes."""
    task, G = ndl.SpikedSLR(2, 0.0, relevant_std=std), std**2
    t = np.linspace(-80.0 / d - 2, math.sqrt(d + 1) + 9.5, 2001)
    x = np.logaddexp(0, t)
    step = -np.expm1(-x) * (t[1] - t[0])
    relevant, other = step * stats.chi.pdf(x, d + 2), step * stats.chi.pdf(x, d)  # v* . x adds two dimensions
    lost = special.expit(np.subtract.outer((1 / G - 1) / 2 * G * x**2, (1 / G - 1) / 2 * x**2))
    found = bayes_excess_risk(task, 2, d)
    assert found.error < 1e-9 * found.value
    assert abs(found.value - G * relevant @ lost @ other) <= found.error + 1e-13 * G


@pytest.mark.exact
@pytest.mark.parametrize("length", [10**6, 10**9, 10**12, 10**15])
def test_many_tokens(length):
    """Without a spike the risk is 1 - 1/L; with one, posteriors are likelihood ratios over L, and 1 - R = e^snr / L."""
    none = bayes_excess_risk(ndl.SpikedSLR(length, 0.0), length, 2)
    assert abs(none.value - (1 - 1 / length)) <= none.error < 1e-14
    weak = bayes_excess_risk(ndl.SpikedSLR(length, 1.0), length, 2)
    assert weak.error < 1e-8
    assert abs(weak.value - (1 - math.e / length)) <= weak.error + 30 / length**2
    linear = length * (length - 1) / (length**2 + length - 1)  # eq:linear-optimum is attainable
    assert weak.value <= linear + weak.error


def test_a_table_that_would_be_too_large_is_a_bound(monkeypatch):
    task, learner = ndl.SpikedSLR(10**5, 1.0, relevant_std=0.5), ndl.BayesOptimal(d=10)
    began = time.process_time()
    assert ndl.predict(task, None, learner).excess_risk.error < 1e-8  # no table grows with the length
    assert time.process_time() - began < 5
    monkeypatch.setattr(spiked_teachers, "ACCURACY", replace(spiked_teachers.ACCURACY, largest_table=10))
    found = ndl.predict(task, None, learner)
    assert 0 < found.excess_risk.value == found.excess_risk.error <= task.label_var
    assert "between 0 and" in found.notes[0]


@pytest.mark.exact
@pytest.mark.parametrize("d", [2, 3, 11, 81, 82, 400])
@pytest.mark.parametrize("offset", [0.0, 1e-3, 0.7, 12.0, 300.0])
def test_the_density_of_a_distance(d, offset):
    """Against the noncentral chi-square law of its square."""
    near = math.sqrt(offset**2 + d) - offset + np.array([-2.0, 0.0, 1.5])
    near = near[offset + near > 0]
    rho = offset + near
    square = stats.ncx2.logpdf(rho**2, d, offset**2) if offset > 0.01 else stats.chi2.logpdf(rho**2, d)
    tolerance = 1e-5 if offset == 1e-3 else 2e-8  # the central law is only close; scipy's other one is good to 1e-8
    np.testing.assert_allclose(log_radial_density(near, offset, d), np.log(2 * rho) + square, atol=tolerance)


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


def test_a_tolerance_that_is_not_met_is_reported():
    task, learner = ndl.SpikedSLR(3, snr=1.0, relevant_std=0.2), ndl.BayesOptimal(d=3)
    with pytest.raises(ndl.NotConverged, match="NOISE_LIMITED"):
        ndl.predict(task, None, learner, tol=1e-25)


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


def test_a_steep_log_weight_is_integrated_and_a_vanishing_risk_is_bounded():
    task = ndl.SpikedSLR(3, snr=1.0, relevant_std=0.2)
    steep = ndl.predict(task, None, ndl.BayesOptimal(d=3)).excess_risk
    assert steep.error < 1e-10 * steep.value
    sampled = bayes_monte_carlo(task, 3, 3, seed=5)
    assert abs(steep.value - sampled.value) < 5 * sampled.error < 0.2 * steep.value
    never = ndl.predict(ndl.SpikedSLR(3, snr=1.0, relevant_std=0.05), None, ndl.BayesOptimal(d=30))
    assert never.excess_risk.value == never.excess_risk.error < 1e-20


@pytest.mark.quadrature
def test_nodes_reach_the_place_where_two_tokens_are_mistaken_for_each_other():
    """A risk of 1e-10, against Mellin transforms (benchmarks/honesty, bayes_teachers 65); nodes within 9.5 standard
    deviations of the relevant token missed 1e-11 of it, four errors."""
    found = ndl.predict(ndl.SpikedSLR(2, 82.7118, noise=0.512288), None, ndl.BayesOptimal(d=2)).excess_risk
    assert abs(found.value - 9.912426345404055e-11) < found.error < 1e-11 * found.value

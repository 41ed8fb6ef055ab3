"""The best estimate for the attention-indexed model: shrinkage, message passing and predictions against the theory."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.options import SimulationOptions
from needlepoint.core.results import mean_estimate
from needlepoint.core.status import Status
from needlepoint.simulation.indexed import bayes as indexed_bayes
from needlepoint.simulation.indexed import training as indexed
from needlepoint.simulation.indexed.one_sequence import attention
from needlepoint.theory.indexed import bayes as theory

FOUR = ndl.Eigenvalues((0.0, 1.0, 2.0, 4.0))
WISHART = ndl.Wishart(0.5)


def error_of(problem, S):
    return float(np.sum((S - np.diag(problem.target)) ** 2)) / problem.d


@functools.cache
def errors(task, alpha, d, repeats):
    """Of the posterior mean, a number a repeat; the seed is d, so that sizes are independent."""
    problems = [indexed_bayes.draw(task, alpha, d, d, repeat) for repeat in range(repeats)]
    return np.array([error_of(p, indexed_bayes.amp(p).S) for p in problems])


def least(task, alpha):
    return theory.least_error(task, theory.noise_for(task, alpha))


# what labels show ---------------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_what_is_used_of_the_scores_is_what_the_labels_show(tokens):
    task = ndl.AttentionIndexed(tokens, WISHART, noise_var=0.5, beta_star=0.7)
    z = indexed_bayes.draw(task, 0.1, 12, 0, 0).data.noisy
    logs = np.log(attention(z, 0.7)) / 0.7  # scores up to a shift of every row; symmetry leaves one shift of all
    rows = np.mean(logs - logs.transpose(0, 2, 1), axis=2, keepdims=True)
    shown = logs - rows
    np.testing.assert_allclose(
        indexed_bayes.visible(z), shown - shown.mean(axis=(1, 2), keepdims=True), rtol=0, atol=1e-13
    )
    # N coordinates: the rank of the projection on symmetric matrices
    basis = np.eye(tokens**2).reshape(-1, tokens, tokens)
    seen = indexed_bayes.visible(basis + basis.transpose(0, 2, 1))
    assert np.linalg.matrix_rank(seen.reshape(-1, tokens**2)) == task.components


@pytest.mark.exact
def test_the_score_of_one_token_is_its_label():
    z = np.random.default_rng(0).standard_normal((5, 1, 1))
    np.testing.assert_array_equal(indexed_bayes.visible(z), z)


@pytest.mark.montecarlo
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_one_pull_of_the_residuals_gives_the_target_in_noise(tokens):
    """R = S + A^T(r)/(2 N alpha d) has mean S0 and noise tau, at the first step, where S does not depend on data."""
    task, d = ndl.AttentionIndexed(tokens, FOUR, noise_var=0.5), 40
    found = []
    for repeat in range(64):
        p = indexed_bayes.draw(task, 0.3 / task.components, d, 0, repeat)
        ratio = 2 * task.components * p.n / d**2
        S = 1.75 * np.eye(d)
        r = indexed_bayes.visible(p.data.noisy) - indexed_bayes.visible(p.scores(p.data.x, S))
        away = S + p.pull(r) / (ratio * d) - np.diag(p.target)
        tau = indexed_bayes._noise(r, task.components, ratio)
        found.append([np.sum(away[np.triu_indices(d, 1)] ** 2) * 2 / (d - 1) / tau, np.diag(away) @ p.target / d, tau])
    noise, along, tau = (mean_estimate(column) for column in np.array(found).T)
    variance, Delta = 2.1875, 0.5  # of the eigenvalues, of the noise
    expected = (variance + Delta / 2) / 0.6
    assert tau.error < 0.01 * expected
    assert abs(tau.value - expected) < 4 * tau.error
    assert abs(along.value) < 4 * along.error
    if tokens == 1:  # E x_i^2 x_j^2 r^2 has 16/d of the variance more at finite d, by Wick's theorem
        assert noise.error < 0.01
        assert abs(noise.value - 1 - 8 * variance / d / (variance + Delta / 2)) < 4 * noise.error
        assert abs(noise.value - 1) > 4 * noise.error


# shrinkage ----------------------------------------------------------------------------------------------------------


def denoised(target, tau, used, d=160, seeds=16):
    law = target.law
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        s = target.draw(rng, d)
        Z = rng.standard_normal((d, d))
        values, vectors = np.linalg.eigh(np.diag(s) + math.sqrt(tau / (2 * d)) * (Z + Z.T))
        f, D = indexed_bayes.shrink(law, values, used)
        found.append([np.sum(((vectors * f) @ vectors.T - np.diag(s)) ** 2) / d, used * D])
    return [mean_estimate(column) for column in np.array(found).T]


def closed(law, tau):
    """tau - (4 pi^2 / 3) tau^2 int rho^3."""
    nodes = law.nodes(math.sqrt(tau))
    return tau - 4 * math.pi**2 / 3 * tau**2 * float(nodes.dx @ nodes.density**3)


@pytest.mark.montecarlo
@pytest.mark.parametrize("target", [FOUR, WISHART, ndl.Wishart(2.0)])
@pytest.mark.parametrize("tau", [0.3, 3.0])
def test_shrinkage_has_the_least_error_and_knows_it(target, tau):
    error, own = denoised(target, tau, tau)
    expected = closed(target.law, tau)
    assert error.error < 0.01 * expected
    assert abs(error.value - expected) < 4 * error.error + expected / 160  # 1/d of the orthogonal ensemble
    assert abs(own.value - expected) < 4 * own.error + 5 * expected / 160  # the window, and 1 + delta_ij


@pytest.mark.negative
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_shrinkage_for_another_noise_is_worse(factor):
    error, own = denoised(FOUR, 1.0, factor)
    expected = closed(FOUR.law, 1.0)
    assert error.value - expected > 4 * error.error + expected / 160
    assert abs(own.value - expected) > 4 * own.error + 5 * expected / 160


@pytest.mark.exact
def test_the_divergence_is_that_of_the_map():
    """D = d^-2 sum_ij (1 + delta_ij) times the derivative of the ij entry of f(R) by that of R, numerically."""
    rng = np.random.default_rng(3)
    d, tau = 6, 0.7
    R = rng.standard_normal((d, d))
    R = (R + R.T) / 2

    def mapped(M):
        values, vectors = np.linalg.eigh(M)
        return (vectors * indexed_bayes.shrink(WISHART.law, values, tau)[0]) @ vectors.T

    total = 0.0
    for i in range(d):
        for j in range(i, d):
            move = np.zeros((d, d))
            move[i, j] = move[j, i] = 1e-5
            slope = (mapped(R + move) - mapped(R - move))[i, j] / 2e-5
            total += 2 * slope  # 1 + delta_ij on the diagonal, ij and ji off it
    D = indexed_bayes.shrink(WISHART.law, np.linalg.eigvalsh(R), tau)[1]
    # the mean over the window is a sum of 16 points, the slope that of the whole window
    assert total / d**2 == pytest.approx(D, rel=5e-3)


@pytest.mark.exact
def test_coinciding_eigenvalues_and_no_noise_at_all():
    f, D = indexed_bayes.shrink(WISHART.law, np.array([0.3, 0.3, 0.3]), 0.5)
    assert np.ptp(f) == 0
    assert np.isfinite(D)
    f, D = indexed_bayes.shrink(FOUR.law, np.array([-1e-9, 1.0, 2.0, 4.0]), 1e-18)
    np.testing.assert_allclose(f, [0, 1, 2, 4], rtol=0, atol=1e-8)


# message passing ----------------------------------------------------------------------------------------------------


def extrapolated(small, large):
    """The value at 1/d = 0 from two sizes, one twice the other."""
    return 2 * large.value - small.value, math.hypot(2 * large.error, small.error)


TWO = ndl.AttentionIndexed(2, FOUR, noise_var=0.5)


def apart(expected, d=48, repeats=20):
    """From the error at one size, in units of what is allowed: four standard errors, and a finite size of 2/d."""
    found = mean_estimate(errors(TWO, 0.1, d, repeats))
    assert found.error < 0.01 * found.value
    return abs(found.value - expected) / (4 * found.error + 2 / d * expected)


@pytest.mark.training
def test_error_at_one_size_is_near_that_of_the_theory():
    assert apart(least(TWO, 0.1)) < 1


@pytest.mark.negative
def test_counting_the_shift_that_labels_hide_is_refuted_at_one_size():
    assert apart(least(TWO, 0.1 * 3 / 2)) > 2


@pytest.fixture(scope="module")
def two_sizes():
    learner = ndl.BayesOptimal(0.1)
    return [
        indexed_bayes.simulate_indexed_bayes(TWO, None, learner, SimulationOptions(d, repeats, d, samples=1000))
        for d, repeats in ((24, 64), (48, 40))
    ]


@pytest.mark.slow
@pytest.mark.training
def test_error_and_overlaps_are_those_of_the_theory(two_sizes):
    expected = least(TWO, 0.1)
    value, error = extrapolated(*(m.estimation_error for m in two_sizes))
    assert error < 0.015 * expected
    assert abs(value - expected) < 4 * error
    for name in ("m", "q"):
        small, large = (getattr(m.overlaps, name) for m in two_sizes)
        error = math.hypot(2 * two_sizes[1].overlaps_error[name], two_sizes[0].overlaps_error[name])
        assert error < 0.02 * (5.25 - expected)
        assert abs(2 * large - small - (5.25 - expected)) < 4 * error


@pytest.mark.slow
@pytest.mark.training
def test_risks_are_those_of_the_theory(two_sizes):
    predicted = ndl.predict(TWO, None, ndl.BayesOptimal(0.1))
    for name in ("risk", "clean_risk"):
        value, error = extrapolated(*(getattr(m, name) for m in two_sizes))
        expected = getattr(predicted, name).value
        assert error < 0.017 * expected
        assert abs(value - expected) < 4 * error


@pytest.mark.slow
@pytest.mark.negative
def test_counting_the_shift_that_labels_hide_is_refuted(two_sizes):
    """With N = 3 coordinates of two tokens rather than 2 the theory would promise less error."""
    value, error = extrapolated(*(m.estimation_error for m in two_sizes))
    assert abs(value - least(TWO, 0.1 * 3 / 2)) > 8 * error


@pytest.mark.contract
def test_what_is_reported():
    measured = indexed_bayes.simulate_indexed_bayes(
        TWO, None, ndl.BayesOptimal(0.1), SimulationOptions(24, 2, samples=1000)
    )
    predicted = ndl.predict(TWO, None, ndl.BayesOptimal(0.1))
    assert set(measured.metrics) == set(predicted.metrics)
    assert measured.status is Status.CONVERGED
    assert measured.notes == ()
    assert measured.spectrum.eigenvalues.shape == measured.spectrum.target.shape == (2, 24)
    np.testing.assert_allclose(np.mean(measured.spectrum.eigenvalues**2), measured.overlaps.q, rtol=1e-12)
    np.testing.assert_array_equal(measured.spectrum.target[0], np.repeat([0.0, 1.0, 2.0, 4.0], 6))


@pytest.mark.training
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "target", "noise_var", "alpha", "repeats"),
    [
        (1, FOUR, 0.5, 0.2, 60),
        (2, FOUR, 0.0, 0.1, 60),
        (3, FOUR, 0.5, 0.04, 60),
        (1, WISHART, 0.5, 0.3, 240),
        (2, WISHART, 0.0, 0.05, 240),
    ],
)
def test_the_explicit_curve(tokens, target, noise_var, alpha, repeats):
    task = ndl.AttentionIndexed(tokens, target, noise_var=noise_var)
    expected = least(task, alpha)
    ends = [mean_estimate(errors(task, alpha, d, r) / expected) for d, r in ((32, 2 * repeats), (64, repeats))]
    value, error = extrapolated(*ends)
    assert error < 0.015
    assert abs(value - 1) < 4 * error
    assert ends[0].value - 1 > ends[1].value - 1 > 0  # larger is better


@pytest.mark.training
@pytest.mark.parametrize(
    ("tokens", "target"),
    [(1, WISHART), (2, FOUR), (3, ndl.Wishart(2.0)), pytest.param(2, ndl.Wishart(0.1), marks=pytest.mark.slow)],
)
def test_without_noise_the_target_is_found_above_the_threshold_alone(tokens, target):
    task = ndl.AttentionIndexed(tokens, target)
    threshold = theory.recovery(task)
    for repeat in range(2):
        p = indexed_bayes.draw(task, 1.5 * threshold, 40, 0, repeat)
        posterior = indexed_bayes.amp(p)
        assert posterior.settled
        assert error_of(p, posterior.S) < 1e-8
        p = indexed_bayes.draw(task, 0.5 * threshold, 40, 0, repeat)
        posterior = indexed_bayes.amp(p)
        assert error_of(p, posterior.S) > 0.05
        assert posterior.error > 0.05


@pytest.mark.training
def test_it_errs_less_than_training_on_the_same_data():
    task = ndl.AttentionIndexed(1, WISHART, noise_var=0.5)
    ratios = []
    for repeat in range(16):  # the penalty 0.3 is about the best of training
        p = indexed_bayes.draw(task, 0.3, 30, 0, repeat)
        best = error_of(p, indexed_bayes.amp(p).S)
        trained = indexed.train(task, ndl.TiedAttention(), ndl.Ridge(0.3, 0.3), 30, 0, repeat, "fista")
        np.testing.assert_array_equal(trained.problem.data.noisy, p.data.noisy)
        ratios.append(best / error_of(p, trained.best.S))
    ratio = mean_estimate(np.array(ratios))
    assert ratio.value < 1 - 4 * ratio.error


@pytest.mark.negative
def test_too_few_steps_are_reported(monkeypatch):
    monkeypatch.setattr(indexed_bayes, "ACCURACY", replace(indexed_bayes.ACCURACY, bayes_steps=3))
    measured = indexed_bayes.simulate_indexed_bayes(
        TWO, None, ndl.BayesOptimal(0.1), SimulationOptions(12, 2, samples=10)
    )
    assert measured.status is Status.MAX_STEPS
    assert measured.notes == ("2 of 2 runs of message passing did not settle in 3 steps.",)
    assert all(np.isfinite(e.value) for e in measured.metrics.values())


@pytest.mark.contract
@pytest.mark.parametrize("noise_var", [0.0, pytest.param(1e-9, marks=pytest.mark.slow), 1e9])
@pytest.mark.parametrize("alpha", [0.01, 3.0])
def test_no_noise_and_much_of_it_give_numbers(noise_var, alpha):
    for tokens, target in ((1, WISHART), (3, ndl.PowerLaw(1.0, 12)), (2, ndl.Eigenvalues((1.0,)))):
        task = ndl.AttentionIndexed(tokens, target, noise_var=noise_var)
        measured = indexed_bayes.simulate_indexed_bayes(
            task, None, ndl.BayesOptimal(alpha), SimulationOptions(12, 2, samples=50)
        )
        assert all(np.isfinite(e.value) and e.value >= -1e-9 for e in measured.metrics.values())


# predictions --------------------------------------------------------------------------------------------------------


def joint_scores(tokens, n, q, v, seed):
    """Symmetric Gaussian scores with covariance (1 + delta)(v, q; q, q): the estimate is the mean of the other."""
    rng = np.random.default_rng(seed)
    one, two = (rng.standard_normal((n, tokens, tokens)) for _ in range(2))
    one, two = ((x + x.transpose(0, 2, 1)) / math.sqrt(2) for x in (one, two))
    return math.sqrt(q) * one + math.sqrt(v - q) * two, math.sqrt(q) * one


def split_error(z, estimate, variance, beta, rules):
    labels = attention(z, beta)
    one, other = (indexed_bayes.predicted(estimate, variance, beta, rule) - labels for rule in rules)
    return mean_estimate(np.sum(one * other, axis=(1, 2)))


def rules_of(tokens, log2_points=6, scrambles=2):
    return indexed_bayes.sobol_normals(tokens, log2_points, scrambles, 5)


@pytest.mark.montecarlo
@pytest.mark.parametrize(("tokens", "beta"), [(2, 4.0), (3, 1.0), pytest.param(2, 1.0, marks=pytest.mark.slow)])
def test_the_best_prediction_has_half_the_distance_of_two_replicas(tokens, beta):
    q, v, n = 0.9, 1.7, 30_000
    z, estimate = joint_scores(tokens, n, q, v, 0)
    found = split_error(z, estimate, 2 * (v - q), beta, rules_of(tokens))
    a, shared = joint_scores(tokens, n, q, v, 1)
    b = shared + (joint_scores(tokens, n, q, v, 2)[0] - joint_scores(tokens, n, q, v, 2)[1])
    half = mean_estimate(np.sum((attention(a, beta) - attention(b, beta)) ** 2, axis=(1, 2)) / 2)
    assert max(found.error, half.error) < 0.01 * half.value
    assert abs(found.value - half.value) < 4 * math.hypot(found.error, half.error)


@pytest.mark.negative
def test_predictions_that_forget_the_noise_are_worse():
    z, estimate = joint_scores(2, 40_000, 0.9, 1.7, 0)
    best = split_error(z, estimate, 1.6, 1.0, rules_of(2))
    bold = split_error(z, estimate, 0.0, 1.0, rules_of(2))
    assert bold.value - best.value > 4 * math.hypot(best.error, bold.error)


@pytest.mark.quadrature
@pytest.mark.parametrize("variance", [0.2, 3.0])
def test_a_prediction_for_two_tokens_is_a_one_dimensional_mean(variance):
    z = np.random.default_rng(0).standard_normal((50, 2, 2))
    z = z + z.transpose(0, 2, 1)
    t, w = np.polynomial.hermite_e.hermegauss(120)
    apart = z[:, 0, 0] - z[:, 0, 1]  # its variance is one and a half that of a diagonal score
    expected = special.expit(1.3 * (apart[:, None] + math.sqrt(1.5 * variance) * t)) @ w / math.sqrt(2 * math.pi)
    found = indexed_bayes.predicted(z, variance, 1.3, rules_of(2, 12, 1)[0])
    np.testing.assert_allclose(found[:, 0, 0], expected, rtol=0, atol=3e-4)  # 4096 points
    np.testing.assert_allclose(found.sum(axis=2), 1, rtol=0, atol=1e-14)


@pytest.mark.montecarlo
def test_few_points_of_integration_do_not_bias_a_risk():
    z, estimate = joint_scores(2, 2000, 0.9, 1.7, 0)
    fine = split_error(z, estimate, 1.6, 1.0, rules_of(2, 10)).value
    pairs = [indexed_bayes.sobol_normals(2, 2, 2, seed) for seed in range(120)]
    rough = mean_estimate(np.array([split_error(z, estimate, 1.6, 1.0, pair).value for pair in pairs]))
    assert rough.error < 0.01 * fine
    assert abs(rough.value - fine) < 4 * rough.error
    # negative twin: the square of one rule's error counts its inaccuracy
    squares = [split_error(z, estimate, 1.6, 1.0, pair[[0, 0]]).value for pair in pairs]
    assert np.mean(squares) > fine + 8 * rough.error


@pytest.mark.exact
def test_risks_of_one_token_are_twice_the_error():
    """2 Tr(S - S0)^2 / d, and the noise: exact in the mean over sequences, at any d."""
    task = ndl.AttentionIndexed(1, FOUR, noise_var=0.5)
    options = SimulationOptions(20, 1, samples=60_000)
    p = indexed_bayes.draw(task, 0.3, 20, 0, 0)
    posterior = indexed_bayes.amp(p)
    risk, clean = indexed_bayes.risks(p, posterior, options, 0)
    expected = 2 * error_of(p, posterior.S)
    assert clean == pytest.approx(expected, rel=4 * math.sqrt(14 / 60_000))  # a square of nearly Gaussian scores
    assert risk == pytest.approx(expected + 0.5, rel=4 * math.sqrt(14 / 60_000))


@pytest.mark.contract
def test_mixtures_of_tokens_show_the_same():
    """The same S, and an error that differs by 1/sqrt(d) in a sequence and less in the mean."""
    measured = [
        indexed_bayes.simulate_indexed_bayes(
            ndl.AttentionIndexed(3, FOUR, noise_var=0.5, readout=readout),
            None,
            ndl.BayesOptimal(0.1),
            SimulationOptions(24, 2, samples=3000),
        )
        for readout in ("seq2lab", "seq2seq")
    ]
    assert measured[0].estimation_error.value == measured[1].estimation_error.value
    assert measured[0].risk.value == pytest.approx(measured[1].risk.value, rel=0.05)
    assert measured[0].risk.value != measured[1].risk.value


# bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract
@pytest.mark.parametrize(
    ("task", "learner", "d", "words"),
    [
        (TWO, ndl.BayesOptimal(), 20, "needs alpha"),
        (TWO, ndl.BayesOptimal(0.1, d=20), 20, "leave d out"),
        (TWO, ndl.BayesOptimal(1e-6), 20, "at least one sequence"),
        (ndl.AttentionIndexed(5, WISHART, readout="seq2seq"), ndl.BayesOptimal(1.0), 4, "d must be >= 5"),
    ],
)
def test_bad_input_has_one_sentence(task, learner, d, words):
    with pytest.raises(InvalidParameter, match=words) as caught:
        indexed_bayes.simulate_indexed_bayes(task, None, learner, SimulationOptions(d, 1))
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)

"""Normalised kernels by one-token transforms: the Bayes point, direct integrals, sampling, and honest errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.numerics.gaussian import trapezoid_rule
from needlepoint.theory.location.moments import kernels as kernel_moments
from needlepoint.theory.location.moments import weight_moments

INF = math.inf


def softmax(x):
    return x


def softplus(x):
    return np.log(np.logaddexp(0.0, x))


def wide(x):
    """A kernel that rises, falls and stays positive: 1 + x^2 / 4."""
    return np.log1p(x**2 / 4)


KERNELS = {softmax: ndl.Softmax(), softplus: ndl.Softplus()}


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [2, 3, 10, 100, 1000, {1: 0.2, 5: 0.5, 40: 0.3}], ids=str)
@pytest.mark.parametrize("snr", [0.3, 2.0, 8.0])
def test_first_and_second_moment_agree_at_the_bayes_point(tokens, snr):
    """There sigma_l = P(J = l | X), so that E sigma_J = E sum sigma_l^2, and 1 - E sigma_J is the Bayes risk."""
    spiked, maximal = ndl.SpikedSLR(tokens, snr=snr), ndl.MaxSLR(tokens, snr=snr)
    for task, key in ((spiked, math.sqrt(snr)), (maximal, snr)):
        assert ndl.softmax_key(task) == pytest.approx(key, rel=1e-15)
        route = kernel_moments.spiked if task is spiked else kernel_moments.maximal
        mean = route(task, softmax, key, key**2)
        first, second = weight_moments.on_manifold(task.label_var, mean)
        assert first == pytest.approx(second, abs=1e-12)
        bayes = ndl.predict(task, None, ndl.BayesOptimal()).excess_risk
        assert 1 - first == pytest.approx(bayes.value, abs=1e-12)
        # negative twin: away from that key they differ
        A, B = weight_moments.on_manifold(task.label_var, route(task, softmax, 1.2 * key, 1.44 * key**2))
        assert abs(A - B) > 1e-5


def two_tokens(log_kernel, task, key, key_sq):
    """Every mean at L = 2 by trapezoid rules over the scores: (chi_1, chi_2) spiked, and chi*, g of both for max."""
    x, w = trapezoid_rule(120)
    if isinstance(task, ndl.SpikedSLR):
        norm = math.sqrt(key_sq)
        xi = np.stack(np.broadcast_arrays(task.relevant_std * norm * x[:, None], norm * x[None, :]))
        weight = special.softmax(log_kernel(xi + np.array([math.sqrt(task.snr) * key, 0.0])[:, None, None]), axis=0)
        mu = np.sum(weight * xi, axis=0)
        table = [weight[0], weight[0] * xi[0], xi[0] * mu, weight[0] ** 2, weight[1] ** 2, weight[0] * mu, mu**2]
        return [w @ t @ w for t in table]
    x, w = trapezoid_rule(40)
    s = math.sqrt(key_sq - key**2)
    star = np.stack(np.broadcast_arrays(x[:, None, None, None], x[:, None, None]))
    g = np.stack(np.broadcast_arrays(x[:, None] + 0 * star[0], x + 0 * star[0]))
    score = key * star + s * g
    weight, place = special.softmax(log_kernel(score), axis=0), special.softmax(task.snr * star, axis=0)
    at = np.sum(place * g, axis=0)
    table = [
        np.sum(place * weight, axis=0),
        at * np.sum(weight * star, axis=0),
        at * np.sum(weight * g, axis=0),
        np.sum(weight**2, axis=0),
        np.sum(weight * score, axis=0) ** 2,
    ]
    return [np.einsum("ijkl,i,j,k,l->", t, w, w, w, w, optimize=True) for t in table]


@pytest.mark.exact
@pytest.mark.parametrize("log_kernel", [softmax, softplus, wide])
def test_two_spiked_tokens(log_kernel):
    for snr, std, key, key_sq in ((2.0, 1.0, 1.0, 1.3), (4.0, 0.6, -0.7, 0.6), (1.0, 1.4, 0.0, 2.0)):
        task = ndl.SpikedSLR(2, snr=snr, relevant_std=std)
        direct = two_tokens(log_kernel, task, key, key_sq)
        np.testing.assert_allclose(kernel_moments.spiked(task, log_kernel, key, key_sq), direct, rtol=0, atol=1e-11)


@pytest.mark.exact
@pytest.mark.parametrize("log_kernel", [softmax, softplus, wide])
@pytest.mark.parametrize("snr", [0.5, 1.5])
def test_two_tokens_of_the_max_task(log_kernel, snr):
    """Four fields on a lattice of step 0.45, which is exact to 1e-9 for weights this smooth."""
    key, key_sq = 0.6, 0.8
    task = ndl.MaxSLR(2, snr=snr)
    direct = two_tokens(log_kernel, task, key, key_sq)
    np.testing.assert_allclose(kernel_moments.maximal(task, log_kernel, key, key_sq), direct, rtol=0, atol=1e-8)


@pytest.mark.exact
@pytest.mark.parametrize("snr", [0.0, 0.3, 3.0, INF])
def test_without_rest_the_manifold_is_the_same(snr):
    task = ndl.MaxSLR({2: 0.5, 7: 0.5}, snr=snr)
    full = kernel_moments.maximal(task, softplus, 0.7, 1.1)
    part = kernel_moments.maximal(task, softplus, 0.7, 1.1, rest=False)
    for name in ("weight", "weights_sq", "scores_sq"):
        assert getattr(part, name) == pytest.approx(getattr(full, name), rel=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("log_kernel", [softmax, softplus])
def test_the_place_law_goes_to_its_ends(log_kernel):
    """snr 0 has its own formula, and a large snr a lattice finer than the Gumbel noise: both are limits."""
    at = (0.7, 1.1)
    for tokens in (1, 2, 6):
        zero, small, smaller = (
            np.array(kernel_moments.maximal(ndl.MaxSLR(tokens, s), log_kernel, *at)) for s in (0.0, 2e-3, 1e-3)
        )
        # linear in snr: extrapolate
        np.testing.assert_allclose(2 * smaller - small, zero, atol=2e-6)
        end, large, larger = (
            np.array(kernel_moments.maximal(ndl.MaxSLR(tokens, s), log_kernel, *at)) for s in (INF, 500.0, 1000.0)
        )
        np.testing.assert_allclose(larger, end, atol=1e-5)  # corrections are of order 1 / snr^2
        np.testing.assert_allclose((4 * larger - large) / 3, end, atol=2e-8)


@pytest.mark.exact
@pytest.mark.parametrize("key_sq", [0.8, 3.0, 20.0])
def test_nothing_jumps_where_the_race_changes_its_rule(key_sq):
    """snr * step = 0.2 is at snr 2, 2.83 or 5.66 for these norms: the means are smooth there to rounding."""
    step = kernel_moments._ladder(min(0.1, 0.25 / math.sqrt(key_sq)))
    at = 0.2 / step
    below, above = (
        np.array(kernel_moments.maximal(ndl.MaxSLR(4, at * f), softmax, 0.6, key_sq)) for f in (1 - 1e-9, 1 + 1e-9)
    )
    np.testing.assert_allclose(below, above, atol=3e-9)


def random_setting(rng, norm):
    k, v = rng.standard_normal(3), rng.standard_normal(4)
    k *= norm / np.linalg.norm(k)
    overlaps = ndl.Overlaps(k[0], v[1], v[0], k[1], float(k @ v[:3]), float(k @ k), float(v @ v))
    tokens = [2, 3, {1: 0.5, 3: 0.5}][rng.integers(3)]
    if rng.random() < 0.5:
        return ndl.SpikedSLR(tokens, snr=float(rng.uniform(0, 6)), relevant_std=float(rng.uniform(0.5, 1.6))), overlaps
    return ndl.MaxSLR(tokens, snr=float([0.0, 0.3, 1.5, 8.0, INF][rng.integers(5)])), overlaps


@pytest.mark.quadrature
@pytest.mark.parametrize("activation", KERNELS.values(), ids=str)
def test_tables_equal_quasi_monte_carlo(activation):
    """Seven overlaps at random, both tasks; the quasi-Monte-Carlo error is three standard errors of 16 scramblings."""
    rng, model, inside = np.random.default_rng(6), ndl.KeyValueAttention(activation), 0
    for _ in range(5):
        task, overlaps = random_setting(rng, float(rng.uniform(0.3, 2.5)))
        kernel, qmc = (ndl.excess_risk(task, model, overlaps, method) for method in ("kernel", "qmc"))
        assert kernel.error < 1e-6 * kernel.value
        assert qmc.error < 0.01 * qmc.value
        assert abs(kernel.value - qmc.value) < 2 * (kernel.error + qmc.error), (task, overlaps)
        inside += abs(kernel.value - qmc.value) <= kernel.error + qmc.error
        # negative twin
        wrong = ndl.excess_risk(task, model, overlaps.replace(value=overlaps.value + 0.1, value_sq=30.0), "kernel")
        assert abs(wrong.value - qmc.value) > 5 * qmc.error
    assert inside >= 4


@pytest.mark.quadrature
@pytest.mark.parametrize(("log_kernel", "activation"), KERNELS.items(), ids=["softmax", "softplus"])
def test_reported_errors_are_honest(log_kernel, activation):
    """Against tables of half the step: the change on halving is far below the change on doubling that is reported."""
    rng, model = np.random.default_rng(7), ndl.KeyValueAttention(activation)
    for i in range(16):
        task, overlaps = random_setting(rng, float(np.exp(rng.uniform(-2, 3 if i % 2 else 1))))
        found = ndl.excess_risk(task, model, overlaps, "kernel")
        route = kernel_moments.spiked if isinstance(task, ndl.SpikedSLR) else kernel_moments.maximal
        finer = route(task, log_kernel, overlaps.key, overlaps.key_sq, 0.5)
        exact = weight_moments.excess_risk(task, finer, overlaps)
        assert abs(found.value - exact) <= 2 * found.error, (task, overlaps)
        assert found.error < 0.01 * found.value


@pytest.mark.exact
@pytest.mark.parametrize("length", [1, 2, 50, 1000])
def test_uniform_weights_without_a_key(length):
    for task in (ndl.SpikedSLR(length, 2.0), ndl.MaxSLR(length, 2.0), ndl.MaxSLR(length, INF), ndl.MaxSLR(length, 0.0)):
        route = kernel_moments.spiked if isinstance(task, ndl.SpikedSLR) else kernel_moments.maximal
        A, B = weight_moments.on_manifold(task.label_var, route(task, softmax, 0.0, 0.0))
        np.testing.assert_allclose([A, B], 1 / length, rtol=1e-11)


@pytest.mark.exact
def test_a_kernel_does_not_know_its_scale():
    for task in (ndl.SpikedSLR(4, 2.0), ndl.MaxSLR(4, 2.0)):
        route = kernel_moments.spiked if isinstance(task, ndl.SpikedSLR) else kernel_moments.maximal
        base, moved = route(task, softplus, 0.8, 1.2), route(task, lambda x: softplus(x) + 25.0, 0.8, 1.2)
        np.testing.assert_allclose(moved, base, rtol=1e-10)


def test_too_steep_a_kernel_is_refused():
    """The caller then takes quasi-Monte-Carlo."""
    assert kernel_moments.spiked(ndl.SpikedSLR(4, 2.0), softplus, 1e6, 1e12) is None
    assert kernel_moments.maximal(ndl.MaxSLR(4, 2.0), softplus, 1e6, 1e12) is None
    model, at = ndl.KeyValueAttention(ndl.Softplus()), ndl.Overlaps(1e6, 1.0, key_sq=1e12)
    found = ndl.excess_risk(ndl.SpikedSLR(2, 2.0), model, at)
    assert found == ndl.excess_risk(ndl.SpikedSLR(2, 2.0), model, at, "qmc")


@pytest.mark.exact
@pytest.mark.parametrize("key", [6.0, 40.0])
@pytest.mark.parametrize("task", [ndl.SpikedSLR(3, 0.5), ndl.MaxSLR(3, math.inf), ndl.MaxSLR(2, 4.0)], ids=repr)
def test_long_keys_of_softplus_against_even_steps(task, key, monkeypatch):
    def means(coarseness):
        route = kernel_moments.spiked if isinstance(task, ndl.SpikedSLR) else kernel_moments.maximal
        return np.array(route(task, lambda x: ndl.Softplus.log_kernel(x, np), key, key**2, coarseness))

    graded = means(1.0)
    # negative twin: the same rule with steps that grow far too fast
    monkeypatch.setattr(kernel_moments, "ACCURACY", replace(kernel_moments.ACCURACY, bend=0.5))
    hasty = means(1.0)
    monkeypatch.setattr(kernel_moments, "ACCURACY", replace(kernel_moments.ACCURACY, wide=1e9))
    even = means(1.0)
    scale = np.abs(even) + 1e-3
    assert np.all(np.abs(graded - even) < 1e-12 * scale)
    assert not np.all(np.abs(hasty - even) < 1e-12 * scale)

"""Means of element-wise weights: closed forms against Gauss-Hermite rules, and both against the other routes."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import needlepoint as ndl
from needlepoint.channels import elementwise
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.moments import elementwise as elementwise_moments
from needlepoint.theory.location.moments import place_race

INF = math.inf
ERF = ndl.Erf(0.9, -0.3, 0.6)
SIGMA = {ERF: lambda x: 0.6 + special.erf(0.9 * x - 0.3), ndl.Linear(): lambda x: 1 + x}


@float64
def means(task, activation, key, key_sq, nodes, refine=4):
    """With 0 nodes the closed form."""
    c = elementwise.constants(task, ndl.KeyValueAttention(activation))
    kind = type(activation)

    def sigma(scores):
        return kind.weights(scores, c)

    if isinstance(task, ndl.SpikedSLR):
        found = elementwise_moments.spiked(sigma, c, key, key_sq, nodes) if nodes else None
        return found or elementwise_moments.spiked_erf(c, key, key_sq)
    rule = place_race.winner_law(task, refine)
    if nodes:
        return elementwise_moments.maximal(sigma, c, rule, key, key_sq, nodes)
    return elementwise_moments.maximal_erf(c, rule, key, key_sq)


NODES, MASS = np.polynomial.hermite_e.hermegauss(150)
MASS = MASS / math.sqrt(2 * math.pi)


def gauss(f, std=1.0):
    """E f(N(0, std^2)) by Gauss-Hermite: the library's rules are trapezoid rules and closed forms."""
    return f(std * NODES) @ MASS


@pytest.mark.exact
@pytest.mark.parametrize("activation", SIGMA, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize(("tokens", "std"), [(1, 1.0), (2, 0.7), (6, 1.3), ({1: 0.4, 3: 0.6}, 0.9)], ids=str)
def test_spiked_means_by_hand(tokens, std, activation):
    """Tokens are independent, so that a mean of a sum over tokens is a polynomial of E sigma^i xi^a."""
    task, key, key_sq, sigma = ndl.SpikedSLR(tokens, 3.0, std), 0.5, 0.8, SIGMA[activation]
    shift, norm = math.sqrt(3.0) * key, math.sqrt(key_sq)

    def r(i, a):
        return gauss(lambda x: sigma(shift + x) ** i * x**a, std=std * norm)

    def o(i, a):
        return gauss(lambda x: sigma(x) ** i * x**a, std=norm)

    expected = np.zeros(7)
    for length, p in task.length_law:
        n = length - 1
        expected += p * np.array(
            [
                r(1, 0),
                r(1, 1),
                r(1, 2),
                r(2, 0),
                n * o(2, 0),
                r(2, 1) + n * r(1, 0) * o(1, 1),
                r(2, 2) + 2 * n * r(1, 1) * o(1, 1) + n * o(2, 2) + n * (n - 1) * o(1, 1) ** 2,
            ]
        )
    for nodes in (0, 128) if activation is ERF else (128,):
        np.testing.assert_allclose(means(task, activation, key, key_sq, nodes), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("activation", SIGMA, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("snr", [0.0, 0.5, 2.0, INF])
def test_max_means_by_hand(snr, activation):
    """L = 2: the law of chi*_J is 2 phi(x) E sigmoid(snr (x - x')), and 2 phi Phi at an infinite snr."""
    task, key, key_sq, sigma = ndl.MaxSLR(2, snr), 0.5, 0.8, SIGMA[activation]
    s, norm = math.sqrt(key_sq - key**2), math.sqrt(key_sq)
    x, w = np.linspace(-10, 10, 401), 0.05
    if snr == INF:
        place = special.ndtr(x)
    else:
        z = np.linspace(-10, 10, 801)
        place = special.expit(snr * (x[:, None] - z)) @ (stats.norm.pdf(z) * 0.025)
    law = w * 2 * stats.norm.pdf(x) * place
    given = [SIGMA[activation](key * x[:, None] + s * NODES) @ (MASS * NODES**a) for a in range(3)]
    expected = [
        law @ given[0],
        law @ (x * given[1]),
        law @ given[2],
        2 * gauss(lambda y: sigma(y) ** 2, std=norm),
        2 * gauss(lambda y: (sigma(y) * y) ** 2, std=norm) + 2 * gauss(lambda y: sigma(y) * y, std=norm) ** 2,
    ]
    for nodes in (0, 128) if activation is ERF else (128,):
        found = means(task, activation, key, key_sq, nodes)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def random_setting(rng, spiked):
    k, v = rng.standard_normal(3), rng.standard_normal(4)
    overlaps = ndl.Overlaps(k[0], v[1], v[0], k[1], float(k @ v[:3]), float(k @ k), float(v @ v))
    tokens = [1, 2, 7, 30, {1: 0.5, 4: 0.5}][rng.integers(5)]
    if spiked:
        return ndl.SpikedSLR(tokens, snr=float(rng.uniform(0, 9)), relevant_std=float(rng.uniform(0.4, 1.6))), overlaps
    return ndl.MaxSLR(tokens, snr=float([0.0, 0.2, 1.0, 3.0, 20.0, INF][rng.integers(6)])), overlaps


@pytest.mark.quadrature
@pytest.mark.parametrize("spiked", [True, False])
def test_closed_and_one_dimensional_means_agree_within_their_errors(spiked):
    """Erf with shift and offset, steep and flat, at random overlaps; both errors are of the size of rounding."""
    rng = np.random.default_rng(11)
    for _ in range(40):
        task, overlaps = random_setting(rng, spiked)
        shape = (float(np.exp(rng.uniform(-3, 1))), *map(float, rng.normal(0, 0.8, 2)))
        model = ndl.KeyValueAttention(ndl.Erf(*shape))
        closed, means = (ndl.excess_risk(task, model, overlaps, method) for method in ("closed", "elementwise"))
        assert abs(closed.value - means.value) <= closed.error + means.error, (task, model, overlaps)
        assert closed.error < 1e-9 * max(1.0, closed.value)


@pytest.mark.quadrature
@pytest.mark.parametrize("activation", [ERF, ndl.Linear()], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("task", [ndl.MaxSLR(3, 1.5), ndl.MaxSLR(2, INF), ndl.SpikedSLR(3, 2.0, 1.3)], ids=str)
def test_one_dimensional_means_equal_quasi_monte_carlo(task, activation):
    """Three standard errors of 16 scramblings; off the manifold."""
    model, at = ndl.KeyValueAttention(activation), ndl.Overlaps(0.6, 0.5, 0.5, 0.4, -0.4, 1.6, 2.2)
    exact, qmc = ndl.excess_risk(task, model, at), ndl.excess_risk(task, model, at, "qmc")
    assert qmc.error < 0.01 * qmc.value
    assert abs(exact.value - qmc.value) <= 1.5 * qmc.error + exact.error
    wrong = ndl.excess_risk(task, model, at.replace(key_on_value=-0.4))
    assert abs(wrong.value - qmc.value) > 5 * qmc.error


@pytest.mark.exact
def test_long_sequences_on_the_argmax_task():
    """L = 1000: E sigma_J by adaptive quadrature over L phi Phi^(L-1); the reported error bounds the difference."""
    task, model = ndl.MaxSLR(1000, INF), ndl.KeyValueAttention(ndl.Erf(1.0, -1.0, 1.0))
    at = ndl.Overlaps(1.0, 0.5, key_sq=1.5, value_sq=0.3)

    def winner(x):
        law = math.exp(-(x**2) / 2 + 999 * special.log_ndtr(x)) * 1000 / math.sqrt(2 * math.pi)
        return law * (1 + special.erf((x - 1) / math.sqrt(1 + 2 * 0.5)))

    weight = integrate.quad(winner, -2, 9, points=[2, 3, 4, 5], epsabs=1e-13, epsrel=1e-13, limit=300)[0]
    square = gauss(lambda x: (1 + special.erf(x - 1)) ** 2, std=math.sqrt(1.5))
    found = ndl.excess_risk(task, model, at)
    # 300 times the rounding of a square
    assert abs(found.value - (1 - 2 * 0.5 * weight + 0.3 * 1000 * square)) <= found.error + 1e-12


AT = ndl.Overlaps(0.6, 0.5, 0.5, 0.4, -0.4, 1.6, 2.2)


@pytest.mark.exact
@pytest.mark.parametrize("task", [ndl.SpikedSLR(2, 2.0, 0.8), ndl.MaxSLR(2, 2.0)], ids=str)
def test_a_user_function_is_integrated_like_a_built_in_one(task):
    from jax.scipy.special import erf

    @ndl.activation("my_erf_weights", form="elementwise")
    def mine(scores):
        return 0.6 + erf(0.9 * scores - 0.3)

    one, two = (ndl.excess_risk(task, ndl.KeyValueAttention(a), AT) for a in (ERF, mine))
    assert abs(one.value - two.value) <= one.error + two.error


@pytest.mark.exact
@pytest.mark.parametrize(
    "task", [ndl.SpikedSLR(2, 2.0, 0.8), pytest.param(ndl.MaxSLR(2, 2.0), marks=pytest.mark.slow)], ids=str
)
def test_a_kink_costs_digits_and_the_error_says_so(task):
    import jax.numpy as jnp

    @ndl.activation("my_relu_weights", form="elementwise")
    def relu(scores):
        return jnp.maximum(scores, 0.0)

    rough = ndl.excess_risk(task, ndl.KeyValueAttention(relu), AT)
    sampled = ndl.excess_risk(task, ndl.KeyValueAttention(relu), AT, "qmc")
    assert 1e-12 < rough.error < 1e-4
    assert abs(rough.value - sampled.value) <= 1.5 * sampled.error + rough.error


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [2, 40])
@pytest.mark.parametrize("key", [3.0, 5.0, -40.0, 3000.0])
def test_a_steep_erf_is_integrated_over_its_own_width(tokens, key):
    """The lattice of the winner is far too wide for it; the exact distribution at an infinite snr is Phi^L."""
    task = ndl.MaxSLR(tokens, math.inf)
    c = {"scale": 1.0, "shift": 1.2, "offset": 0.3, "task.others": tokens - 1.0, "task.pairs": 0.0}

    @float64
    def weight(refine):
        return float(elementwise_moments.maximal_erf(c, place_race.winner_law(task, refine), key, key**2).weight)

    def below(t):
        return np.exp(-t * t) / math.sqrt(math.pi) * special.ndtr((t - 1.2) / key) ** tokens

    P = integrate.quad(below, -7, 7, epsabs=1e-14, limit=500)[0]
    exact = 0.3 + math.copysign(1.0, key) * (1 - 2 * P)
    assert [weight(r) for r in (1, 2, 4)] == pytest.approx([exact] * 3, abs=2e-13)

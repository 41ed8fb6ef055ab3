"""Element-wise attention by one-dimensional means: against tensor quadrature, real samples and the closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf
from scipy import special

import needlepoint as ndl
from needlepoint.channels.elementwise import excess_risk, token_moments
from needlepoint.core.overlaps import vectors_with_gram
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.erf import closed_form as erf_closed_form

EPS = np.finfo(float).eps
NODES = 128
POINTS = {
    "general": ndl.Overlaps(0.4, 0.5, -0.3, 0.2, 0.25, 0.8, 1.3),
    "oracle": ndl.Overlaps(1.0, 1.0),
    "manifold": ndl.Overlaps(-0.3, 0.9),
    "swapped": ndl.Overlaps(0.0, 0.0, 0.6, 1.0, 0.0),
    "k = v": ndl.Overlaps(0.3, 0.4, 0.3, 0.4, 1.0),
}
LAWS = [(0.0, 1.0), (2.0, 0.7), (5.0, 1.2)]


def sigma(x):
    """Neither odd nor even, so that every term of the moments is felt."""
    return 0.3 + special.erf(0.4 * x - 0.2)


def sigma_jax(x):
    return 0.3 + erf(0.4 * x - 0.2)


def seven(o):
    return tuple(v for _, v in o.items())


compiled = jax.jit(token_moments, static_argnums=(0, 4))


@float64
def moments(o, mean, std, function=sigma_jax, nodes=NODES):
    return np.array([float(x) for x in compiled(function, seven(o), mean, std, nodes)])


def tensor_moments(o, mean, std, nodes=44):
    """The same means by Gauss-Hermite in four coordinates of x, with no conditioning and real vectors."""
    k_star, v_star, k, v = vectors_with_gram(o)
    used = [i for i in range(4) if k[i] or v[i] or i < 2]
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    # only k's coordinates enter through erf; the others are polynomials of degree 2, exact with 3 nodes
    few = np.polynomial.hermite_e.hermegauss(3)
    axes = [(z, w) if k[i] else few for i in used]
    grids = np.meshgrid(*(a for a, _ in axes), indexing="ij")
    weight = np.prod(np.meshgrid(*(b / b.sum() for _, b in axes), indexing="ij"), axis=0)
    x = np.stack([std * g for g in grids])
    fields = {n: np.tensordot(a[used], x, 1) + mean * (a @ k_star) for n, a in (("k", k), ("v", v), ("*", v_star))}
    f = sigma(fields["k"]) * fields["v"]
    return np.array([np.sum(weight * f), np.sum(weight * f**2), np.sum(weight * fields["*"] * f)])


@pytest.mark.quadrature
@pytest.mark.parametrize(("mean", "std"), LAWS)
@pytest.mark.parametrize("point", POINTS)
def test_token_moments_equal_tensor_quadrature(point, mean, std):
    o = POINTS[point]
    coarse, fine = tensor_moments(o, mean, std, 36), tensor_moments(o, mean, std, 44)
    error = np.abs(coarse - fine) + 64 * EPS * np.maximum(1, np.abs(fine))
    assert np.max(error) < 1e-8
    # the 1-D means are exact to rounding, the tensor rule to its own change under refinement (4 times, to be safe)
    assert np.all(np.abs(moments(o, mean, std) - fine) < 4 * error)


@pytest.mark.negative
@pytest.mark.parametrize("changed", [{"key_dot_value": 0.27}, {"value": 0.52}, {"key_on_value": 0.22}])
def test_a_wrong_overlap_fails_the_same_check(changed):
    o = POINTS["general"]
    fine = tensor_moments(o, 2.0, 0.7)
    assert np.max(np.abs(moments(o.replace(**changed), 2.0, 0.7) - fine)) > 1e-4


@pytest.mark.montecarlo
def test_token_moments_equal_real_samples():
    o, mean, std, n = POINTS["general"], 2.0, 0.7, 400_000
    k_star, v_star, k, v = vectors_with_gram(o)
    x = mean * k_star + std * np.random.default_rng(0).standard_normal((n, 4))
    f = sigma(x @ k) * (x @ v)
    for sample, found in zip((f, f**2, (x @ v_star) * f), moments(o, mean, std), strict=True):
        se = sample.std() / np.sqrt(n)
        assert se < 0.01 * max(abs(found), sample.std())
        assert abs(sample.mean() - found) < 5 * se


@pytest.mark.exact
@pytest.mark.parametrize(("mean", "std"), LAWS)
def test_a_key_of_zero_length_has_a_constant_weight(mean, std):
    o = ndl.Overlaps(0.0, 0.5, -0.3, 0.0, 0.0, 0.0, 1.3)
    w = sigma(0.0)
    exact = [w * mean * -0.3, w**2 * ((mean * -0.3) ** 2 + std**2 * 1.3), w * std**2 * 0.5]
    np.testing.assert_allclose(moments(o, mean, std), exact, rtol=16 * EPS, atol=16 * EPS)
    # and is the limit of short keys: corrections are of the order of the length, 1e-7
    short = ndl.Overlaps(3e-8, 0.5, -0.3, 2e-8, 1e-8, 1e-14, 1.3)
    np.testing.assert_allclose(moments(short, mean, std), exact, rtol=0, atol=10 * 1e-7 * (1 + mean) ** 2)


def law(task):
    return {"task.snr": task.snr, "task.relevant_std": task.relevant_std, **task.length_moments()}


@float64
def two_routes(task, activation, o):
    model = ndl.KeyValueAttention(activation)
    means = excess_risk(activation, law(task), seven(o), NODES)
    arrays = tuple(jnp.asarray(x) for x in seven(o))
    return float(means), float(erf_closed_form.excess_risk(erf_closed_form.constants(task, model), arrays))


TASKS = [
    ndl.SpikedSLR(1, snr=3.0),
    ndl.SpikedSLR(10, snr=8.0, relevant_std=0.7),
    ndl.SpikedSLR({1: 0.2, 2: 0.3, 6: 0.5}, snr=2.0, relevant_std=1.3),
]


@pytest.mark.quadrature
@pytest.mark.parametrize("task", TASKS, ids=repr)
@pytest.mark.parametrize("point", [*POINTS, "k = 0"])
def test_the_risk_equals_the_closed_form(task, point):
    o = POINTS.get(point, ndl.Overlaps(0.0, 0.5, -0.3, 0.0, 0.0, 0.0, 1.3))
    means, closed = two_routes(task, ndl.Erf(0.4, -0.2, 0.3), o)
    # both are sums of some 20 terms exact to rounding, the largest about the risk itself
    assert means == pytest.approx(closed, rel=200 * EPS, abs=200 * EPS)


@pytest.mark.exact
def test_the_risk_of_linear_attention_is_a_polynomial():
    # sigma = 1 + x at one token: F = (1 + a)(b) with Gaussian a, b; E F^2 by Wick's theorem
    o = POINTS["general"]
    m, G = np.sqrt(2.0), 0.49
    kappa, nu, theta, eta, rho, q_k, q_v = seven(o)
    a, b = 1 + m * kappa, m * theta
    second = (a**2 + G * q_k) * (b**2 + G * q_v) + 4 * a * b * G * rho + 2 * (G * rho) ** 2
    cross = G * (nu * a + eta * b)
    task = ndl.SpikedSLR(1, snr=2.0, relevant_std=0.7)

    @float64
    def found():
        return float(excess_risk(ndl.Linear(), law(task), seven(o), NODES))

    assert found() == pytest.approx(G - 2 * cross + second, rel=64 * EPS)


@pytest.mark.exact
@float64
@pytest.mark.parametrize("i", [0, 4, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3, 5, 6))])
def test_overlaps_that_broadcast_together(i):
    """As the docstring says: any of them may be an array, kappa or another one."""
    base = seven(POINTS["general"])
    values = np.linspace(base[i], base[i] + 0.1, 5)
    stacked = [jnp.asarray(values) if j == i else x for j, x in enumerate(base)]
    found = compiled(sigma_jax, stacked, 2.0, 0.7, NODES)
    alone = [compiled(sigma_jax, [*base[:i], v, *base[i + 1 :]], 2.0, 0.7, NODES) for v in values]
    for name in ("first", "second", "cross"):
        expected = [float(getattr(one, name)) for one in alone]
        np.testing.assert_allclose(np.broadcast_to(getattr(found, name), 5), expected, rtol=64 * EPS, atol=64 * EPS)


@pytest.mark.exact
@float64
def test_more_nodes_than_needed_change_nothing():
    o = POINTS["general"]
    values = [moments(o, 2.0, 0.7, nodes=n) for n in (64, 128, 256)]
    np.testing.assert_allclose(values[0], values[2], rtol=64 * EPS)
    np.testing.assert_allclose(values[1], values[2], rtol=64 * EPS)


@pytest.mark.exact
@float64
def test_gradients_are_finite_also_at_a_key_of_zero_length():
    def total(o, key_sq):
        return sum(token_moments(sigma_jax, (*o, key_sq, 1.3), 2.0, 0.7, 64))

    gradient = jax.jit(jax.grad(total))
    for o, key_sq in ((jnp.array([0.0, 0.5, -0.3, 0.0, 0.0]), 0.0), (jnp.array([0.4, 0.5, -0.3, 0.2, 0.25]), 0.8)):
        assert np.all(np.isfinite(np.asarray(gradient(o, key_sq))))

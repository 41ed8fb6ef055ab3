"""Gaussian rules: their exactness, their rate of convergence, and whether their stated error is honest."""

import numpy as np
import pytest
from scipy import special, stats

from needlepoint.numerics.gaussian import REACH, legendre_rule, sobol_normals, trapezoid_rule

EPS = np.finfo(float).eps


@pytest.mark.exact
@pytest.mark.parametrize("order", range(0, 14, 2))
def test_trapezoid_moments_of_the_normal(order):
    x, w = trapezoid_rule(64)
    moment = special.factorial2(order - 1) if order else 1.0
    # what lies beyond REACH (4 times: the end weights count too), and the rounding of 65 terms
    beyond = moment * special.gammaincc((order + 1) / 2, REACH**2 / 2)
    assert np.sum(w * x**order) == pytest.approx(moment, abs=4 * beyond + 16 * EPS * moment)
    assert np.sum(w * x ** (order + 1)) == pytest.approx(0.0, abs=16 * EPS * REACH * moment)


@pytest.mark.exact
def test_trapezoid_rules_are_nested():
    for n in (8, 64, 128):
        x, w = trapezoid_rule(n)
        fine_x, fine_w = trapezoid_rule(2 * n)
        assert len(x) == n + 1
        np.testing.assert_allclose(fine_x[::2], x, rtol=0, atol=4 * EPS * REACH)
        # an error of the node, 4 EPS REACH, costs REACH times that in the logarithm of the weight
        np.testing.assert_allclose(2 * fine_w[::2], w, rtol=4 * EPS * REACH**2)


def erf_square_error(n, g):
    x, w = trapezoid_rule(n)
    return abs(np.sum(w * special.erf(g * x) ** 2) - 2 / np.pi * np.arcsin(2 * g**2 / (1 + 2 * g**2)))


@pytest.mark.exact
@pytest.mark.parametrize("g", [0.5, 0.9, 2.0])
def test_trapezoid_converges_like_exp_of_minus_n_squared(g):
    # erf(i g y)^2 grows like exp(2 g^2 y^2): the error is exp(-2 pi^2 / (h^2 (1 + 4 g^2))) with h = 2 REACH / n
    rate = 2 * np.pi**2 / (2 * REACH) ** 2 / (1 + 4 * g**2)
    n = np.arange(8, 400, 2)
    exponent = rate * n**2
    n = n[(exponent > 4) & (exponent < 27)]  # between the first decay and rounding
    errors = np.array([erf_square_error(int(k), g) for k in n])
    design = np.stack([np.ones(len(n)), n**2, np.log(n)], axis=1)
    (_, slope, _), residual, *_ = np.linalg.lstsq(design, np.log(errors), rcond=None)
    # corrections to the power law in front are relative O(1 / n^2): 5 % of the rate over this range
    assert slope == pytest.approx(-rate, rel=0.05)
    assert np.sqrt(residual[0] / len(n)) < 0.2


@pytest.mark.exact
def test_sixty_four_nodes_reach_rounding_up_to_g_of_0_9():
    for g in np.linspace(0.01, 0.9, 30):
        assert erf_square_error(64, g) < 8 * EPS


@pytest.mark.negative
def test_sixty_four_nodes_do_not_reach_rounding_at_g_of_3():
    assert erf_square_error(64, 3.0) > 1e-6


@pytest.mark.exact
@pytest.mark.parametrize("n", [1, 2, 5, 24])
def test_legendre_is_exact_to_degree_2n_minus_1_and_no_further(n):
    x, w = legendre_rule(n)
    assert np.all((x > 0) & (x < 1) & (w > 0))
    for degree in range(2 * n):
        assert np.sum(w * x**degree) == pytest.approx(1 / (degree + 1), rel=0, abs=4 * n * EPS)
    if n <= 5:
        # the error on x^(2n) is that of the monic Legendre polynomial squared on (0, 1)
        missing = special.factorial(n) ** 4 / special.factorial(2 * n) ** 2 / (2 * n + 1)
        assert 1 / (2 * n + 1) - np.sum(w * x ** (2 * n)) == pytest.approx(missing, abs=8 * n * EPS)


@pytest.mark.exact
def test_sobol_shape_and_determinism():
    z = sobol_normals(3, 6, 4, seed=1)
    assert z.shape == (4, 64, 3)
    assert np.all(np.isfinite(z))
    np.testing.assert_array_equal(z, sobol_normals(3, 6, 4, seed=1))
    assert not np.any(z == sobol_normals(3, 6, 4, seed=2))
    assert not np.any(z[0] == z[1])
    # more scrambles continue the same sequence of rules
    np.testing.assert_array_equal(sobol_normals(3, 6, 6, seed=1)[:4], z)


@pytest.mark.montecarlo
def test_sobol_mean_and_covariance():
    z = sobol_normals(5, 10, 32, seed=0)
    means = z.mean(axis=1)
    seconds = np.einsum("snd,sne->sde", z, z) / z.shape[1]
    for blocks, truth in ((means, np.zeros(5)), (seconds, np.eye(5))):
        se = blocks.std(axis=0, ddof=1) / np.sqrt(len(blocks))
        assert np.max(se) < 0.01
        assert np.max(np.abs(blocks.mean(axis=0) - truth) / se) < 5
    # a net beats independent points: for the means by far more than a factor 5
    assert means.std() < 0.2 / np.sqrt(z.shape[1])


@pytest.mark.montecarlo
def test_the_spread_between_scrambles_is_an_honest_error():
    scrambles, dimension, coverage = 8, 4, []
    rng = np.random.default_rng(0)
    for seed in range(150):
        a = rng.standard_normal(dimension) * 0.4
        z = sobol_normals(dimension, 7, scrambles, seed)
        field = z @ a
        sq = a @ a
        integrals = (
            (np.exp(field - sq / 2), 1.0),
            (np.cos(field), np.exp(-sq / 2)),
            (special.erf(field) ** 2, 2 / np.pi * np.arcsin(2 * sq / (1 + 2 * sq))),
            (np.maximum(field, 0.0), np.sqrt(sq / (2 * np.pi))),
        )
        for f, truth in integrals:
            means = f.mean(axis=1)
            t = (means.mean() - truth) / (means.std(ddof=1) / np.sqrt(scrambles))
            coverage.append(abs(t) < stats.t.ppf([0.75, 0.975, 0.9995], scrambles - 1))
    found = np.mean(coverage, axis=0)
    # the four integrals of a seed share points: the standard error is that of 150 independent ones
    for level, share in zip((0.5, 0.95, 0.999), found, strict=True):
        assert abs(share - level) < 5 * np.sqrt(level * (1 - level) / 150) + 0.01

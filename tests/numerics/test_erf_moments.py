"""The means of erf and erf^2: against Owen's T, 30-digit integrals of the definition, and each other's derivatives."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import quadax
from scipy import special

from needlepoint.numerics.erf_moments import erf_mean, erf_square_mean, shifted_erf_means, zeta
from needlepoint.numerics.precision import float64

EPS = np.finfo(float).eps
SMALL, LARGE = (0.0, 1e-6, 1e-3), (0.7, 3.0, 12.0)
TABLE = [(t, g) for t in SMALL for g in (1e-6, 1e-3, 0.3, 2.0)] + [(t, g) for t in LARGE for g in (1e-6, 0.3, 1.0, 5.0)]
GRID = np.stack(np.meshgrid(np.linspace(-8, 8, 33), np.geomspace(1e-3, 30, 16)), -1).reshape(-1, 2).T


def gaussian_mean(f, t, g):
    """E f(N) to 30 digits; the breakpoints follow the step of erf(t + g x) at x = -t / g."""
    with mpmath.workdps(32):
        t, g = mpmath.mpf(t), mpmath.mpf(g)
        step = {(k - t) / g for k in (-2, 0, 2) if abs((k - t) / g) < 13}
        return mpmath.quad(
            lambda x: f(t + g * x, x) * mpmath.npdf(x), sorted({mpmath.mpf(-13), mpmath.mpf(0), mpmath.mpf(13)} | step)
        )


def derf(x):
    return 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-(x**2))


def relative_error(found, truth):
    return float(abs(mpmath.mpf(float(found)) - truth) / abs(truth))


def owen(t, g):
    return 1 - 8 * special.owens_t(np.sqrt(2) * t / np.sqrt(1 + 2 * g**2), 1 / np.sqrt(1 + 4 * g**2))


@float64
def values(function, t, g):
    return jax.tree.map(np.asarray, jax.jit(function)(jnp.asarray(t, float), jnp.asarray(g, float)))


@pytest.mark.quadrature
@pytest.mark.parametrize(("t", "g"), TABLE)
def test_zeta_equals_its_definition_to_30_digits(t, g):
    truth = gaussian_mean(lambda x, _: mpmath.erf(x) ** 2, t, g)
    # relative accuracy also where zeta is 1e-12: some ten roundings, 8 eps
    assert relative_error(values(zeta, t, g), truth) < 8 * EPS


@pytest.mark.exact
def test_zeta_equals_owens_t():
    t, g = GRID
    # Owen's form is 1 - 8 T with T good to 1 eps absolute: 8 eps, and as much for zeta
    np.testing.assert_allclose(values(zeta, t, g), owen(t, g), rtol=0, atol=16 * EPS)


@pytest.mark.negative
def test_owens_form_loses_the_relative_accuracy_that_zeta_keeps():
    t, g = 1e-6, 1e-6
    truth = gaussian_mean(lambda x, _: mpmath.erf(x) ** 2, t, g)
    assert relative_error(owen(t, g), truth) > 1e6 * EPS


@jax.jit
def quadax_mean(t, g):
    def integrand(x):
        return jax.scipy.special.erf(t + g * x) ** 2 * jnp.exp(-(x**2) / 2) / jnp.sqrt(2 * jnp.pi)

    y, info = quadax.quadgk(integrand, jnp.array([-jnp.inf, 0.0, jnp.inf]), epsabs=1e-13, epsrel=1e-13)
    return y, info.err


@pytest.mark.slow
@pytest.mark.quadrature
@pytest.mark.parametrize(("t", "g"), [(0.3, 0.2), (-1.7, 0.7), (4.0, 2.0)])
def test_zeta_equals_quadax(t, g):
    y, err = values(quadax_mean, t, g)
    assert err < 1e-11
    # within the integrator's own error and 16 roundings
    assert abs(values(zeta, t, g) - y) < err + 16 * EPS


@pytest.mark.exact
def test_zeta_is_even_in_t_and_in_g():
    t, g = GRID
    np.testing.assert_array_equal(values(zeta, t, g), values(zeta, -t, g))
    np.testing.assert_array_equal(values(zeta, t, g), values(zeta, t, -g))


@pytest.mark.negative
def test_zeta_is_not_symmetric_in_its_arguments():
    # zeta(t, 0) = erf(t)^2 and zeta(0, g) = (2 / pi) arcsin(2 g^2 / (1 + 2 g^2)) are different functions
    assert float(values(zeta, 1.0, 0.0)) == pytest.approx(special.erf(1.0) ** 2, rel=8 * EPS)
    assert float(values(zeta, 0.0, 1.0)) == pytest.approx(2 / np.pi * np.arcsin(2 / 3), rel=8 * EPS)
    assert abs(float(values(zeta, 1.0, 0.3)) - float(values(zeta, 0.3, 1.0))) > 0.1


@pytest.mark.exact
def test_zeta_limits():
    # a step function at infinite g, certainty at infinite t, and no overflow on the way
    np.testing.assert_allclose(values(zeta, [0.3, 1e3, 1e160], [1e9, 0.5, 0.5]), 1.0, rtol=1e-8)
    assert float(values(zeta, 0.0, 0.0)) == 0.0
    assert np.all(np.isfinite(values(erf_square_mean, [0.0, 0.0, 1e160], [0.0, 1e9, 0.5])))


@pytest.mark.exact
def test_zeta_broadcasts():
    t, g = np.linspace(-1, 1, 3)[:, None], np.array([0.1, 0.5])
    assert values(zeta, t, g).shape == (3, 2)
    np.testing.assert_allclose(values(zeta, t, g)[2, 1], values(zeta, 1.0, 0.5), rtol=8 * EPS)


gradients = jax.grad(zeta, (0, 1))
DERIVATIVE_TABLE = [(1e-6, 1e-6), (1e-3, 0.3), (0.7, 1e-3), (0.7, 0.3), (-1.5, 1.0), (3.0, 0.05), (4.0, 3.0)]


@pytest.mark.quadrature
@pytest.mark.parametrize(("t", "g"), DERIVATIVE_TABLE)
def test_first_derivatives_equal_those_of_the_definition(t, g):
    in_t = gaussian_mean(lambda x, n: 2 * mpmath.erf(x) * derf(x), t, g)
    in_g = gaussian_mean(lambda x, n: 2 * n * mpmath.erf(x) * derf(x), t, g)
    found_t, found_g = (float(x) for x in values(gradients, t, g))
    moments = values(erf_square_mean, t, g)
    # exp(-u^2) magnifies the rounding of u by 2 u^2; the g derivative is a difference of two terms, its
    # error is one of the larger term, which is below 2 |g|
    u2 = t**2 / (1 + 2 * g**2)
    assert relative_error(found_t, in_t) < (8 + 4 * u2) * EPS
    assert relative_error(moments.dzeta, in_t) < (8 + 4 * u2) * EPS
    assert abs(found_g - float(in_g)) < (8 + 4 * u2) * EPS * 2 * g
    assert abs(g * float(moments.ddzeta) - float(in_g)) < (8 + 4 * u2) * EPS * 2 * g


@pytest.mark.exact
def test_derivatives_equal_finite_differences_of_owens_t():
    t, g = GRID[:, (np.abs(GRID[0]) < 4) & (GRID[1] > 0.1) & (GRID[1] < 3)]
    h = 1e-3

    def five_point(f):
        return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)

    m = values(erf_square_mean, t, g)
    # truncation h^4 f^(5) / 30 with f^(5) below 200, and the rounding 16 EPS / h
    error = h**4 * 200 / 30 + 16 * EPS / h
    np.testing.assert_allclose(m.dzeta, five_point(lambda s: owen(t + s, g)), rtol=0, atol=2 * error)
    np.testing.assert_allclose(g * m.ddzeta, five_point(lambda s: owen(t, g + s)), rtol=0, atol=2 * error)


@pytest.mark.exact
def test_second_derivatives_by_hessian():
    t, g = GRID[:, np.abs(GRID[0]) < 4]
    hessian = np.moveaxis(np.array(values(jax.vmap(jax.hessian(zeta, (0, 1))), t, g)), -1, 0)
    s, c = (1 + 2 * g**2) ** -0.5, (1 + 4 * g**2) ** -0.5
    u = t * s
    p, p_c = (2 / np.sqrt(np.pi) * np.exp(-(x**2)) for x in (u, u * c))
    q = special.erf(u * c)
    second = 2 * s**2 * (c * p * p_c - 2 * u * p * q)
    third = 2 * s**3 * (-2 * u * c * (2 + c**2) * p * p_c + (4 * u**2 - 2) * p * q)
    # differences of terms below 10, each good to (8 + 4 u^2) EPS with u^2 <= 16
    tolerance = 10 * (8 + 4 * 16) * EPS
    np.testing.assert_allclose(hessian[:, 0, 0], second, rtol=0, atol=tolerance)
    np.testing.assert_allclose(values(erf_square_mean, t, g).ddzeta, second, rtol=0, atol=tolerance)
    np.testing.assert_allclose(hessian[:, 0, 1], g * third, rtol=0, atol=tolerance)
    np.testing.assert_allclose(hessian[:, 1, 0], hessian[:, 0, 1], rtol=0, atol=tolerance)
    h = 1e-4
    slopes = [(g + x) * values(erf_square_mean, t, g + x).ddzeta for x in (h, -h)]
    # central differences: h^2 f''' / 6 with f''' below 200, and the rounding EPS / h
    np.testing.assert_allclose(hessian[:, 1, 1], (slopes[0] - slopes[1]) / (2 * h), rtol=0, atol=h**2 * 200 / 6)


@pytest.mark.exact
def test_an_integer_score_can_stand_beside_a_differentiated_width():
    @float64
    def slope(t):
        return float(jax.jit(jax.grad(lambda g: zeta(t, g)))(0.3))

    assert slope(0) == slope(0.0)


# --- the primal under joint differentiation ---------------------------------------------------

D, SCALE, GAMMA = 400, 0.3, np.sqrt(0.5)
M, WIDTH = np.sqrt(D / 2), SCALE * GAMMA


@jax.custom_jvp
def swapped_primal(t, g):
    return zeta(t, g)


@swapped_primal.defjvp
def _swapped_primal_jvp(primals, tangents):
    (t, g), (t_dot, g_dot) = primals, tangents
    moments = erf_square_mean(t, g)
    return zeta(g, t), moments.dzeta * t_dot + g * moments.ddzeta * g_dot


@functools.partial(jax.jit, static_argnums=0)
def joint_and_separate(function, theta, kappa):
    def term(theta, kappa):
        return M**2 * theta**2 * function(SCALE * M * kappa, WIDTH)

    separate = jax.grad(term, 0)(theta, kappa), jax.grad(term, 1)(theta, kappa)
    return *jax.value_and_grad(term, (0, 1))(theta, kappa), separate


@float64
def joint(function, theta, kappa):
    """m^2 theta^2 zeta(lambda m kappa, g), the term of the risk where the primal matters: its value and gradient
    differentiated jointly in (theta, kappa), and its two derivatives taken one at a time."""
    return [np.array(x) for x in joint_and_separate(function, theta, kappa)]


def assert_joint_derivatives(function, theta, kappa):
    value, grad, _ = joint(function, theta, kappa)
    t = SCALE * M * kappa
    s, c = (1 + 2 * WIDTH**2) ** -0.5, (1 + 4 * WIDTH**2) ** -0.5
    slope = 2 * s * 2 / np.sqrt(np.pi) * np.exp(-((t * s) ** 2)) * special.erf(t * s * c)
    # 32 roundings of a product of six factors, one of them Owen's T
    assert value == pytest.approx(M**2 * theta**2 * owen(t, WIDTH), rel=32 * EPS)
    assert grad[0] == pytest.approx(2 * M**2 * theta * owen(t, WIDTH), rel=32 * EPS)
    assert grad[1] == pytest.approx(M**2 * theta**2 * SCALE * M * slope, rel=32 * EPS)


JOINT_POINTS = [(0.498, 0.278), (-0.2, 0.101), (0.7, -0.08)]


@pytest.mark.exact
@pytest.mark.parametrize(("theta", "kappa"), JOINT_POINTS)
def test_joint_derivatives_of_a_prefactor_and_zeta(theta, kappa):
    assert_joint_derivatives(zeta, theta, kappa)


@pytest.mark.negative
@pytest.mark.parametrize(("theta", "kappa"), JOINT_POINTS)
def test_a_swapped_primal_is_caught(theta, kappa):
    with pytest.raises(AssertionError):
        assert_joint_derivatives(swapped_primal, theta, kappa)
    # and shows nowhere else: separate gradients are right, the joint one is off by d theta [zeta(g, t) - zeta(t, g)]
    _, right, _ = joint(zeta, theta, kappa)
    _, wrong, alone = joint(swapped_primal, theta, kappa)
    np.testing.assert_allclose(alone, right, rtol=32 * EPS)
    assert wrong[1] == pytest.approx(right[1], rel=32 * EPS)
    t = SCALE * M * kappa
    assert wrong[0] - right[0] == pytest.approx(D * theta * (owen(WIDTH, t) - owen(t, WIDTH)), rel=1e4 * EPS)


# --- e ----------------------------------------------------------------------------------------


@pytest.mark.quadrature
@pytest.mark.parametrize(("t", "g"), DERIVATIVE_TABLE)
def test_erf_mean_and_its_derivatives_equal_their_definition(t, g):
    m = values(erf_mean, t, g)
    u2 = t**2 / (1 + 2 * g**2)
    truth = [
        gaussian_mean(lambda x, _: mpmath.erf(x), t, g),
        gaussian_mean(lambda x, _: derf(x), t, g),
        gaussian_mean(lambda x, _: -2 * x * derf(x), t, g),
    ]
    for found, wanted in zip(m, truth, strict=True):
        # exp(-u^2) magnifies the rounding of u by 2 u^2
        assert relative_error(found, wanted) < (8 + 4 * u2) * EPS


@pytest.mark.exact
def test_erf_mean_is_odd_and_its_derivatives_are_those_of_autodiff():
    t, g = GRID[:, np.abs(GRID[0]) < 4]
    m, mirrored = values(erf_mean, t, g), values(erf_mean, -t, g)
    np.testing.assert_array_equal(m.e, -mirrored.e)
    first = jax.grad(lambda t, g: erf_mean(t, g).e)
    for found, slope in ((m.de, first), (m.dde, jax.grad(first))):
        wanted = values(jax.vmap(slope), t, g)
        np.testing.assert_allclose(found, wanted, rtol=(8 + 4 * 16) * EPS, atol=EPS)


@pytest.mark.exact
@pytest.mark.parametrize("t", [-5.0, -3.0, -1.0, 0.0, 2.0])
@pytest.mark.parametrize("g", [0.0, 0.01, 0.3, 2.0, 10.0])
def test_shifted_means_keep_their_relative_accuracy(t, g):
    """1 + 2 e + zeta has an absolute error of 1e-16 where the mean square is 1e-9 at t = -3."""
    with mpmath.workdps(32):
        # bounds where the Gaussian times erfc^2 lives, in steps of at most 2 standard deviations
        points = [mpmath.mpf(x) for x in range(-14, 15, 2)]
        exact = [
            mpmath.quad(lambda x, k=k: mpmath.npdf(x) * mpmath.erfc(-(t + g * x)) ** k, points)
            if g
            else mpmath.erfc(-mpmath.mpf(t)) ** k
            for k in (1, 2)
        ]
    found = float64(lambda: [float(x) for x in shifted_erf_means(t, g)])()
    np.testing.assert_allclose(found, [float(x) for x in exact], rtol=1e-12)

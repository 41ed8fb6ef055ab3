"""Minimisation: a table of known problems, and whether what it reports about itself is true."""

import math

import numpy as np
import pytest
from scipy import optimize

from needlepoint.core.status import Status
from needlepoint.numerics.minimise import minimise


def rosenbrock(x):
    return optimize.rosen(x), optimize.rosen_der(x)


def two_wells(x):
    """Minima near -1 (lower) and +1."""
    return float((x[0] ** 2 - 1) ** 2 + 0.3 * x[0]), np.array([4 * x[0] * (x[0] ** 2 - 1) + 0.3])


def ring(x):
    """Constant along the angle."""
    r2 = x @ x
    return float((r2 - 1) ** 2), 4 * (r2 - 1) * x


def valley(x):
    """Constant along (1, -1, 0)."""
    s = x[0] + x[1] - 1
    c = np.cosh(x[2] - 0.3)
    return float(s**2 + c), np.array([2 * s, 2 * s, np.sinh(x[2] - 0.3)])


def half_line(x):
    """x - log x, which is no number for x <= 0."""
    if x[0] <= 0:
        return np.nan, np.array([np.nan])
    return float(x[0] - np.log(x[0])), np.array([1 - 1 / x[0]])


def kink(x):
    return float(abs(x[0] - 0.3)), np.sign(x - 0.3)


def starts(dimension, n=4):
    return np.random.default_rng(0).uniform(-2, 2, (n, dimension))


@pytest.mark.exact
@pytest.mark.parametrize("dimension", [2, 5])
def test_rosenbrock(dimension):
    found = minimise(rosenbrock, np.concatenate([starts(dimension), np.full((1, dimension), 0.9)]))
    assert found.status is Status.CONVERGED
    # Newton on an exact gradient: a few roundings of it through the inverse Hessian, whose norm is 2.5e3 EPS = 6e-13
    np.testing.assert_allclose(found.x, 1.0, rtol=0, atol=1e-12)
    assert found.value < 1e-24


@pytest.mark.exact
def test_polishing_reaches_1e_12_in_x_where_bfgs_does_not():
    def quartic(x):
        y = x - np.array([0.3, -0.2])
        f = 1.0 + 1e-3 * y[0] ** 2 + y[0] ** 4 + (y[1] - y[0] ** 2) ** 2
        slope = np.array([2e-3 * y[0] + 4 * y[0] ** 3 - 4 * y[0] * (y[1] - y[0] ** 2), 2 * (y[1] - y[0] ** 2)])
        return float(f), slope

    rough = minimise(quartic, starts(2, 1), polish_steps=0)
    fine = minimise(quartic, starts(2, 1))
    target = np.array([0.3, -0.2])
    assert np.max(np.abs(rough.x - target)) > 1e-12
    assert np.max(np.abs(fine.x - target)) < 1e-12
    assert fine.residual <= rough.residual


@pytest.mark.exact
def test_the_lowest_of_several_minima_and_all_their_values():
    roots = np.sort(np.roots([4, 0, -4, 0.3]).real)
    both = minimise(two_wells, np.array([[2.0], [-2.0], [0.5]]))
    assert both.x[0] == pytest.approx(roots[0], abs=1e-12)
    np.testing.assert_allclose(both.others, [two_wells(roots[[i]])[0] for i in (0, 2, 2)], atol=1e-12)
    assert list(both.others) == sorted(both.others)
    # a start in one well says nothing of the other
    assert minimise(two_wells, np.array([[2.0]])).x[0] == pytest.approx(roots[2], abs=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("angle", [0.4, 2.0, -1.1])
def test_a_flat_direction_is_left_alone(angle):
    found = minimise(ring, 1.7 * np.array([[np.cos(angle), np.sin(angle)]]))
    assert found.status is Status.CONVERGED
    assert np.linalg.norm(found.x) == pytest.approx(1.0, abs=1e-12)
    # the gradient is radial, so only rounding (divided by the pinv's cut-off of 1e-10) can turn the point
    assert np.arctan2(found.x[1], found.x[0]) == pytest.approx(angle, abs=1e-5)
    flat = minimise(valley, np.array([[angle, 2.0, -1.0]]))
    assert flat.status is Status.CONVERGED
    assert flat.x[0] + flat.x[1] == pytest.approx(1.0, abs=1e-12)
    assert flat.x[2] == pytest.approx(0.3, abs=1e-12)
    assert flat.x[0] - flat.x[1] == pytest.approx(angle - 2.0, abs=1e-5)


@pytest.mark.exact
def test_a_region_without_values():
    found = minimise(half_line, np.array([[-1.0], [3.0], [0.01]]))
    assert found.status is Status.CONVERGED
    assert found.x[0] == pytest.approx(1.0, abs=1e-12)
    assert np.isnan(found.others[-1])
    nowhere = minimise(half_line, np.array([[-1.0], [-2.0]]))
    assert nowhere.status is Status.DIVERGED
    assert np.isnan(nowhere.value)


@pytest.mark.exact
@pytest.mark.parametrize(("problem", "dimension"), [(rosenbrock, 3), (two_wells, 1), (ring, 2), (valley, 3), (kink, 1)])
@pytest.mark.parametrize("polish_steps", [0, 12])
def test_what_is_reported_is_true_at_the_returned_point(problem, dimension, polish_steps):
    found = minimise(problem, starts(dimension), polish_steps=polish_steps)
    value, gradient = problem(found.x)
    assert found.value == value
    assert found.residual == np.max(np.abs(gradient))
    if found.status is Status.CONVERGED:
        assert found.residual <= 1e-9 * max(1.0, abs(value))
    assert found.value <= found.others[0] + 1e-12 * max(1.0, abs(value))
    assert len(found.others) == 4


@pytest.mark.exact
def test_the_tolerance_decides_the_status():
    assert minimise(rosenbrock, starts(2), tol=1e-9).status is Status.CONVERGED
    assert minimise(kink, starts(1)).status is Status.MAX_STEPS
    assert minimise(kink, starts(1)).residual == 1.0
    assert minimise(kink, starts(1), tol=2.0).status is Status.CONVERGED


@pytest.mark.negative
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scipy's line search overflows on the way to minus infinity
def test_an_unbounded_function_is_never_converged():
    for slope in (1.0, 1e-3):
        found = minimise(lambda x, s=slope: (float(-s * x[0]), np.array([-s])), np.zeros((1, 1)))
        assert found.status is not Status.CONVERGED


def test_a_value_without_a_slope_is_no_minimum():
    found = minimise(lambda x: (1.0, np.full_like(x, math.nan)), [np.zeros(2)], tol=1e-8)
    assert found.status is Status.MAX_STEPS
    assert (found.value, found.value_error, found.residual) == (1.0, math.inf, math.inf)

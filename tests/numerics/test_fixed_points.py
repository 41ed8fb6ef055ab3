"""Anderson's method and the flow: they find known fixed points, and what they say of themselves is true."""

import numpy as np
import pytest

from needlepoint.numerics.fixed_points import anderson, jacobian, linearised_alone, linearised_rows, settle

RNG = np.random.default_rng(0)
MATRIX = 0.6 * RNG.standard_normal((4, 4)) / 2
SHIFT = RNG.standard_normal((3, 4))
FIXED = np.linalg.solve(np.eye(4) - MATRIX, SHIFT.T).T
ZERO = np.zeros((3, 4))


def affine(x):
    return x @ MATRIX.T + SHIFT


def cosine(x):
    """Fixed at 0.739085..., in every coordinate."""
    return np.cos(x)


def swing(x):
    """The plain iteration swings ever wider around 1: its slope there is -3."""
    return 1.0 - 3.0 * np.tanh(x - 1.0)


@pytest.mark.exact
def test_an_affine_map():
    found = anderson(affine, ZERO, tol=1e-12, most=60)
    np.testing.assert_allclose(found.x, FIXED, rtol=0, atol=1e-11)
    # five secants span four dimensions: what the method is for
    assert found.steps < 25


@pytest.mark.exact
def test_newton_with_the_slope_needs_one_step_within_reach():
    slope = np.repeat(MATRIX[None], 3, axis=0)
    found = anderson(affine, FIXED + 0.5, tol=1e-12, most=60, slope=slope)
    assert found.steps == 2  # one to get there, one to see it
    np.testing.assert_allclose(found.x, FIXED, rtol=0, atol=1e-12)


@pytest.mark.exact
def test_rows_end_where_every_coordinate_is_close_enough():
    x, slope = np.array([[0.5, 0.7]]), np.zeros((1, 2, 2))
    slope[0] = np.diag([-0.6, -0.6])  # roughly
    root = 0.7390851332151607
    loose = anderson(np.cos, x, tol=1e-12, most=50, slope=slope, close=np.array([1e-2, 1e-2]))
    tight = anderson(np.cos, x, tol=1e-12, most=50, slope=slope, close=np.array([1e-6, 1e-2]))
    assert loose.steps < tight.steps
    assert np.all(np.abs(loose.ahead - loose.x) < 1e-2)
    assert 1e-6 < np.abs(loose.x[0, 0] - root) < 1e-2
    assert np.abs(tight.x[0, 0] - root) < 2e-6


@pytest.mark.exact
def test_one_more_step_is_told():
    slope = np.repeat(0.9 * MATRIX[None], 3, axis=0)
    found = anderson(affine, FIXED + 0.1, tol=1e-2, most=60, slope=slope)
    assert found.steps > 1
    left, further = (np.max(np.abs(x - FIXED)) for x in (found.x, found.ahead))
    assert further < 0.3 * left


@pytest.mark.exact
@pytest.mark.parametrize(("function", "value"), [(cosine, 0.7390851332151607), (swing, 1.0)])
def test_nonlinear_maps(function, value):
    found = anderson(function, np.array([[0.1, 2.0], [1.5, -0.4]]), tol=1e-11, most=80)
    assert np.all(found.residual <= 1e-11)
    np.testing.assert_allclose(found.x, value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("most", [1, 3, 7, 80])
@pytest.mark.parametrize("function", [affine, cosine, swing])
def test_the_residual_is_the_undamped_step_at_the_returned_point(function, most):
    found = anderson(function, ZERO + 0.3, tol=1e-10, most=most)
    np.testing.assert_array_equal(found.residual, np.max(np.abs(function(found.x) - found.x), axis=1))
    assert found.steps <= most


def test_without_a_fixed_point_the_best_point_is_returned():
    """x^2/2 + 3/4 is above x by at least 1/4, which it is at x = 1."""

    def never(x):
        return x**2 / 2 + 0.75

    starts = np.array([[0.0], [1.4]])
    found = anderson(never, starts, tol=1e-8, most=50)
    assert found.steps == 50
    assert np.all((found.residual >= 0.25) & (found.residual <= never(starts)[:, 0] - starts[:, 0]))
    np.testing.assert_allclose(found.residual, never(found.x)[:, 0] - found.x[:, 0], rtol=1e-12)
    assert found.residual[0] < 0.26


def test_a_row_that_has_converged_stays_while_the_others_go_on():
    seen = []

    def function(x):
        seen.append(x.copy())
        return affine(x)

    start = np.stack([FIXED[0], FIXED[1] + 1.0, FIXED[2] - 2.0])
    found = anderson(function, start, tol=1e-10, most=60)
    assert all(np.array_equal(x[0], FIXED[0]) for x in seen)
    alone = anderson(lambda x: x @ MATRIX.T + SHIFT[1], start[1:2], tol=1e-10, most=60)
    np.testing.assert_allclose(found.x[1], alone.x[0], rtol=0, atol=1e-9)


def test_where_the_map_has_no_value_the_row_says_so():
    def broken(x):
        return np.stack([np.cos(x[0]), np.full_like(x[1], np.nan)])

    found = anderson(broken, np.ones((2, 2)), tol=1e-10, most=40)
    assert found.residual[0] <= 1e-10
    assert np.isinf(found.residual[1])
    assert np.all(np.isfinite(found.x))


def test_steps_stay_within_reach():
    seen = []

    def function(x):
        seen.append(x.copy())
        return x + 100.0

    anderson(function, np.zeros((1, 2)), tol=1e-10, most=6, reach=0.7)
    assert np.max(np.abs(np.diff(np.array(seen), axis=0))) <= 0.7 + 1e-12


@pytest.mark.exact
def test_jacobian():
    np.testing.assert_allclose(jacobian(lambda x: x @ MATRIX.T, FIXED[0]), MATRIX, rtol=0, atol=1e-11)

    def bent(x):
        return np.stack([x[:, 0] * x[:, 1], np.sin(x[:, 0])], axis=1)

    at = np.array([0.3, 0.8])
    expected = np.array([[at[1], at[0]], [np.cos(at[0]), 0.0]])
    # forward differences: half a step times the second derivative
    np.testing.assert_allclose(jacobian(bent, at, step=1e-4), expected, rtol=0, atol=1e-4)
    assert np.max(np.abs(jacobian(bent, at, step=1e-4).T - expected)) > 0.1


# --- along the flow ------------------------------------------------------------------------------


def steep(x):
    """Fixed at 1 with slope -30: the plain iteration needs steps below 2/31."""
    return 1.0 - 30.0 * np.tanh(x - 1.0)


def fork(x):
    """Fixed at 0, where its slope is 2 and the flow leaves, and at 1 and -1, where it stays."""
    return 2.0 * x - x**3


@pytest.mark.exact
@pytest.mark.parametrize(("function", "value"), [(cosine, 0.7390851332151607), (swing, 1.0), (steep, 1.0)])
def test_the_flow_finds_what_steep_slopes_hide(function, value):
    found = settle(linearised_rows(function), np.array([[0.1, 2.0], [1.5, -0.4]]), tol=1e-10, most=60)
    assert np.all(found.residual <= 1e-10)
    np.testing.assert_allclose(found.x, value, rtol=0, atol=1e-9)
    assert found.steps < 30


@pytest.mark.negative
def test_anderson_does_not():
    """The reason for the flow: with a slope of -30 the damped iteration does not end."""
    found = anderson(steep, np.array([[0.1, 2.0], [1.5, -0.4]]), tol=1e-10, most=60, memory=1)
    assert np.max(found.residual) > 1e-6


@pytest.mark.exact
@pytest.mark.parametrize(("start", "end"), [(0.05, 1.0), (-0.01, -1.0), (1.3, 1.0)])
def test_the_flow_leaves_a_point_that_does_not_hold_it(start, end):
    found = settle(linearised_alone(fork), np.array([[start, start]]), tol=1e-10, most=80)
    np.testing.assert_allclose(found.x, end, rtol=0, atol=1e-9)
    # Newton's method with the slope of the start goes to zero
    newton = anderson(fork, np.array([[0.05, 0.05]]), tol=1e-10, most=80, slope=1.99 * np.eye(2)[None])
    assert np.max(np.abs(newton.x)) < 1e-6


@pytest.mark.parametrize("most", [1, 2, 5, 60])
def test_the_residual_of_the_flow_is_the_undamped_step_at_the_returned_point(most):
    found = settle(linearised_rows(affine), ZERO + 0.3, tol=1e-10, most=most)
    np.testing.assert_array_equal(found.residual, np.max(np.abs(affine(found.x) - found.x), axis=1))
    assert found.steps <= most


@pytest.mark.exact
def test_slopes_are_the_same_in_one_call_and_in_many():
    x = np.array([[0.3, -0.2, 0.9]])
    for alone, rows in zip(linearised_alone(swing)(x), linearised_rows(swing)(x), strict=True):
        np.testing.assert_array_equal(alone, rows)


def test_a_row_that_leaves_the_numbers_does_not_spoil_the_others():
    def broken(x):
        return np.where(x > 5, np.nan, np.cos(x))

    found = settle(linearised_rows(broken), np.array([[0.3], [9.0]]), tol=1e-9, most=40)
    assert found.residual[0] <= 1e-9
    assert found.residual[1] == np.inf
    np.testing.assert_array_equal(found.x[1], [9.0])

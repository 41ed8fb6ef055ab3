"""Newton on values alone: known minima, saddles, kinks and slopes without end, and what it says of itself."""

import numpy as np
import pytest
from scipy import optimize

from needlepoint.core.status import Status
from needlepoint.numerics.minimise import newton

# central differences of step 1e-5: rounding of the value over the step
SLOPE = 1e-16 / 1e-5


def quadratic(rng, dimension, condition):
    """x -> (x - a)' M (x - a) / 2 + 1 with eigenvalues from 1 to `condition`."""
    q = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    matrix, at = (q * np.geomspace(1, condition, dimension)) @ q.T, rng.uniform(-1, 1, dimension)
    return (lambda x: float(1 + (x - at) @ matrix @ (x - at) / 2)), at


@pytest.mark.exact
@pytest.mark.parametrize("dimension", [1, 2, 4])
@pytest.mark.parametrize("condition", [1.0, 100.0])
def test_quadratics(dimension, condition):
    rng = np.random.default_rng(dimension)
    value, at = quadratic(rng, dimension, condition)
    found = newton(value, rng.uniform(-2, 2, dimension))
    assert found.status is Status.CONVERGED
    # the slope is seen to its rounding, which moves x by itself over the least eigenvalue, 1
    np.testing.assert_allclose(found.x, at, atol=20 * SLOPE * dimension)
    assert found.value == pytest.approx(1.0, abs=1e-15)
    assert found.value_error < 1e-15


PROBLEMS = {
    "valley": (lambda x: 1 + (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2, [-1.0, 1.0], [1.0, 1.0], 1.0),
    "cosh": (lambda x: float(np.cosh(x[0] - 0.3) + np.cosh(3 * x[1])), [3.0, -2.0], [0.3, 0.0], 2.0),
    "log": (lambda x: float(np.exp(x[0]) - x[0]), [-2.5], [0.0], 1.0),
    "double well": (lambda x: (x[0] ** 2 - 1) ** 2 + x[1] ** 2, [0.3, 1.0], [1.0, 0.0], 0.0),
    "far": (lambda x: float(1 - np.exp(-((x[0] - 1) ** 2) / 2)), [-1.5], [1.0], 0.0),
}


@pytest.mark.exact
@pytest.mark.parametrize("name", PROBLEMS)
def test_known_minima(name):
    """From a point where the function may curve down; the error bounds what is left."""
    value, start, at, lowest = PROBLEMS[name]
    found = newton(value, np.array(start))
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.x, at, atol=1e-7)
    assert found.value == value(found.x)
    assert 0 <= found.value - lowest <= found.value_error + 1e-15


@pytest.mark.exact
def test_a_start_beside_a_saddle_goes_downhill():
    """x^4/4 - x^2/2 + y^2 at (1e-3, 0.5): the Hessian has a negative direction, which is turned downhill."""

    def value(x):
        return float(x[0] ** 4 / 4 - x[0] ** 2 / 2 + x[1] ** 2)

    for side in (1, -1):
        found = newton(value, np.array([2e-2 * side, 0.5]))
        np.testing.assert_allclose(found.x, [side, 0.0], atol=1e-8)
        assert found.status is Status.CONVERGED


@pytest.mark.exact
def test_a_flat_direction_is_left_alone():
    found = newton(lambda x: float((x[0] + x[1] - 1) ** 2), np.array([2.0, 0.5]))
    assert found.status is Status.CONVERGED
    assert found.x[0] - found.x[1] == pytest.approx(1.5, abs=1e-6)
    assert found.x.sum() == pytest.approx(1.0, abs=1e-8)


def test_an_infinite_value_is_diverged():
    assert newton(lambda x: np.nan, np.array([0.3])).status is Status.DIVERGED


def test_a_barrier_is_not_crossed():
    """x - log x is no number for x <= 0; a move that ends there is refused, and the radius halves."""

    def value(x):
        return float(x[0] - np.log(x[0])) if x[0] > 0 else np.nan

    found = newton(value, np.array([0.05]))
    assert found.status is Status.CONVERGED
    assert found.x[0] == pytest.approx(1.0, abs=1e-7)


def test_a_slope_without_end_is_never_converged():
    found = newton(lambda x: float(-x[0]), np.array([0.0]), most=10)
    assert found.status is Status.MAX_STEPS
    assert found.residual == pytest.approx(1.0, rel=1e-8)
    tail = newton(lambda x: float(np.exp(-x[0] / 3)), np.array([0.0]), most=10)
    assert tail.status is Status.MAX_STEPS


@pytest.mark.exact
def test_the_tolerance_decides_the_status():
    """A kink has no gradient to vanish; a wide tolerance takes it as it is."""

    def kink(x):
        return float(abs(x[0] - 0.3) + 0.5 * (x[0] - 0.3) ** 2)

    strict = newton(kink, np.array([1.0]))
    if strict.residual > 1e-9:
        assert strict.status is Status.MAX_STEPS
    assert newton(kink, np.array([1.0]), tol=10.0).status is Status.CONVERGED
    assert strict.value <= kink(np.array([1.0]))


@pytest.mark.exact
def test_it_never_ends_above_its_start():
    rng = np.random.default_rng(5)
    for _ in range(60):
        a, b = rng.standard_normal((2, 3)), rng.standard_normal(3)

        def value(x, a=a, b=b):
            return float(np.sum(np.cos(a @ x)) + 0.05 * x @ x + b @ np.tanh(x))

        start = rng.uniform(-2, 2, 3)
        found = newton(value, start)
        assert found.value <= value(start)
        if found.status is Status.CONVERGED and found.value_error < 1e-10:
            # a local search with exact tolerances from there gains no more than it says, but for leaving a saddle
            end = optimize.minimize(value, found.x, method="BFGS", options={"gtol": 1e-9})
            if np.linalg.norm(end.x - found.x) < 1e-2:
                assert found.value - end.fun <= found.value_error + 1e-13


@pytest.mark.exact
def test_rough_steps_for_rough_functions():
    """With noise of 1e-7 the wide differences of the search still find the minimum, to sqrt of noise over curvature."""
    noise = np.random.default_rng(0)

    def value(x):
        return float(np.sum((x - 0.2) ** 2) + 1e-7 * noise.standard_normal())

    found = newton(value, np.array([1.0, -1.0]), tol=3e-4, steps=(1e-2, 1e-3))
    np.testing.assert_allclose(found.x, 0.2, atol=2e-3)

"""Quasi-Newton descent in a box, and the exact minimum of a quadratic in a box."""

import itertools

import numpy as np
import pytest

from needlepoint.numerics.trust_region import Place, RegionSteps, descend, learned, least_in_box, possible_gain

FINE = RegionSteps(narrowest=1e-6)  # this function has no noise
LOW, HIGH = np.array([-3.0, -3.0]), np.array([3.0, 3.0])


@pytest.mark.exact
@pytest.mark.parametrize("seed", range(8))
def test_the_least_point_of_a_box_is_below_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    gradient, root = rng.normal(size=2), rng.normal(size=(2, 2))
    curvature = root + root.T  # indefinite for some of the seeds
    low, high = -rng.uniform(0.2, 2, 2), rng.uniform(0.2, 2, 2)
    step, value = least_in_box(gradient, curvature, low, high)
    assert np.all(step >= low)
    assert np.all(step <= high)
    assert value == pytest.approx(gradient @ step + step @ curvature @ step / 2)
    grid = np.array(list(itertools.product(*(np.linspace(a, b, 201) for a, b in zip(low, high, strict=True)))))
    values = grid @ gradient + np.einsum("ni,ij,nj->n", grid, curvature, grid) / 2
    # a grid of spacing h misses the minimum by at most |slope| h
    assert value <= values.min() + 1e-12
    assert value >= values.min() - 0.1


@pytest.mark.exact
def test_an_update_learns_the_curvature_along_the_step():
    true = np.array([[0.3, 0.1], [0.1, 0.8]])
    curvature = np.eye(2)
    for step in (np.array([1.0, 0.2]), np.array([-0.1, 0.7])):
        curvature = learned(curvature, step, true @ step)
    assert curvature == pytest.approx(true)  # two steps of two variables say everything
    assert learned(true, np.array([1.0, 0.0]), true @ np.array([1.0, 0.0])) is true


def valley(x, _=None):
    """Rosenbrock's function, scaled down: a curved valley with its minimum 0 at (1, 1)."""
    a, b = x
    value = 0.01 * ((1 - a) ** 2 + 5 * (b - a**2) ** 2)
    gradient = 0.01 * np.array([-2 * (1 - a) - 20 * a * (b - a**2), 10 * (b - a**2)])
    return Place(np.array(x), value, gradient)


@pytest.mark.exact
@pytest.mark.parametrize("start", [(-1.2, 1.0), (2.5, -2.0), (0.0, 0.0)])
def test_a_descent_follows_a_curved_valley(start):
    found = descend(valley, valley(np.array(start)), LOW, HIGH, enough=1e-9, most=80, steps=FINE)
    assert found.converged
    assert found.place.x == pytest.approx([1.0, 1.0], abs=2e-3)
    assert found.calls < 60


@pytest.mark.exact
def test_a_minimum_beyond_the_box_is_found_on_its_side():
    high = np.array([0.5, 3.0])
    found = descend(valley, valley(np.array([-1.0, 0.0])), LOW, high, enough=1e-9, most=80, steps=FINE)
    assert found.place.x == pytest.approx([0.5, 0.25], abs=2e-3)


def test_places_without_a_value_are_avoided():
    def holed(x, near):
        return None if 0.2 < x[0] < 0.8 else valley(x, near)

    found = descend(holed, valley(np.array([-1.0, 1.0])), LOW, HIGH, enough=1e-9, most=40)
    assert not 0.2 < found.place.x[0] < 0.8
    assert found.place.value < valley(np.array([-1.0, 1.0])).value


@pytest.mark.exact
def test_the_gain_that_an_error_of_the_gradient_leaves_possible():
    curvature, box = np.diag([2.0, 4.0]), (-np.ones(2), np.ones(2))
    # e^2 / 2c for each variable, and nothing where the gradient is known and zero
    assert possible_gain(np.zeros(2), np.array([0.2, 0.4]), curvature, *box) == pytest.approx(0.01 + 0.02)
    assert possible_gain(np.zeros(2), np.zeros(2), curvature, *box) == 0.0
    # without a curvature the box is the bound
    assert possible_gain(np.zeros(2), np.array([0.2, 0.0]), np.zeros((2, 2)), *box) == pytest.approx(0.2)

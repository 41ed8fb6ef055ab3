"""L-BFGS from many starts at once: where it ends, whatever the other starts do."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.simulation.fields import training
from needlepoint.simulation.location import ridge
from needlepoint.simulation.starts import lbfgs, memory, products
from needlepoint.simulation.starts.lbfgs import descend_together

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
LINEAR = ndl.KeyValueAttention(ndl.Linear())
D = 40


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def random_weights(starts, problem, seed=0):
    weights = np.random.default_rng(seed).standard_normal((starts, len(problem.penalties), problem.d))
    return weights / np.linalg.norm(weights, axis=2, keepdims=True)


def bowls(curvatures, centres):
    """Paraboloids, one a start: values and gradients at weights (starts, 1, N), and how often they were asked for."""
    calls = []

    def objective(weights):
        calls.append(len(weights))
        away = weights[:, 0] - centres[: len(weights)]
        return 0.5 * np.sum(curvatures * away**2, axis=1), (curvatures * away)[:, None]

    return objective, calls


# --- objectives of many starts -------------------------------------------------------------------


LENGTHS = ndl.SpikedSLR({1: 0.2, 3: 0.8}, snr=2.0, noise=0.2)
PROBLEMS = {
    "spiked": lambda: ridge.train(LENGTHS, SOFTMAX, ndl.Ridge(4.0, 0.3), D, 0, 0),
    "max": lambda: ridge.train(ndl.MaxSLR(2, 2.0), LINEAR, ndl.Ridge(4.0, (0.3, 0.7)), D, 0, 0),
    "heads": lambda: training.train(
        ndl.Needles(3, snr=4.0, noise=0.1), ndl.MultiHead(2, ndl.Softmax()), ndl.Ridge(4.0, (0.2, 0.4)), D, 0, 0
    ),
    "signs": lambda: training.train(
        ndl.SignSLR(2, snr=3.0), SOFTMAX, ndl.Ridge(4.0, 0.3, loss=ndl.Logistic()), D, 0, 0
    ),
}  # fmt: skip


@pytest.mark.exact
@pytest.mark.parametrize("name", PROBLEMS)
def test_values_and_gradients_of_many_are_those_of_each(name, monkeypatch):
    problem = PROBLEMS[name]().problem
    weights = 3.0 * random_weights(5, problem)
    each = [problem.value_and_gradient(one) for one in weights]
    for block in (products.ACCURACY.block, 40):
        monkeypatch.setattr(products, "ACCURACY", replace(products.ACCURACY, block=block))
        values, gradients = problem.values_and_gradients(weights)
        np.testing.assert_allclose(values, [value for value, _ in each], rtol=1e-12)
        scale = np.abs(gradients).max()
        np.testing.assert_allclose(gradients, [gradient for _, gradient in each], rtol=0, atol=1e-12 * scale)


@pytest.mark.exact
def test_products_are_those_of_every_start():
    rng = np.random.default_rng(0)
    x, weights, slopes = (rng.standard_normal(shape) for shape in ((6, 3, 5), (4, 2, 5), (4, 6, 3, 2)))
    fields = products.fields_of(x, weights)
    np.testing.assert_allclose(fields, np.einsum("nld,spd->snlp", x, weights), rtol=1e-12, atol=1e-12)
    pulled = products.pulled_by(x, slopes)
    np.testing.assert_allclose(pulled, np.einsum("nld,snlp->spd", x, slopes), rtol=1e-12, atol=1e-12)


# --- where it ends -------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_batch_ends_at_the_minima_of_one_start_after_the_other(name):
    problem = PROBLEMS[name]().problem
    weights = random_weights(6, problem)
    ends = descend_together(problem.values_and_gradients, weights, problem.units, problem.tolerance)
    assert np.all(ends.converged)
    train = training if name in ("heads", "signs") else ridge
    same = 0
    for i, start in enumerate(weights):
        alone = train.lbfgs(problem, start)
        assert alone.converged
        value, gradient = problem.value_and_gradient(ends.weights[i])
        assert np.linalg.norm(problem.units * gradient) <= problem.tolerance * (1 + 1e-6)
        assert ends.values[i] == pytest.approx(value, rel=1e-12)
        if np.allclose(alone.weights, ends.weights[i], atol=1e-3):
            same += 1
            # half the square of the tolerance over the curvature: 1e-12 of the energy at zero
            assert ends.values[i] == pytest.approx(alone.energy, rel=1e-9)
    assert same >= 3, "most starts should end in the basin that L-BFGS by itself ends in"


@pytest.mark.exact
def test_a_start_does_not_depend_on_the_others():
    problem = PROBLEMS["spiked"]().problem
    weights = random_weights(8, problem)
    whole = descend_together(problem.values_and_gradients, weights, problem.units, problem.tolerance)
    some = descend_together(problem.values_and_gradients, weights[[5, 2]], problem.units, problem.tolerance)
    np.testing.assert_allclose(some.values, whole.values[[5, 2]], rtol=1e-9)


@pytest.mark.exact
def test_bowls_of_very_different_curvatures():
    rng = np.random.default_rng(0)
    curvatures, centres = np.geomspace(1e-2, 1e2, 12), rng.standard_normal((5, 12))
    objective, calls = bowls(curvatures, np.repeat(centres[:1], 5, axis=0))
    ends = descend_together(objective, rng.standard_normal((5, 1, 12)), np.ones((1, 1)), 1e-9)
    assert np.all(ends.converged)
    np.testing.assert_allclose(ends.weights[:, 0], np.repeat(centres[:1], 5, axis=0), atol=1e-7 / 1e-2)
    assert len(calls) == max(ends.steps)


def test_starts_that_have_ended_leave_the_batch():
    """One start has far to go, on a slope that is the same for all; three begin where they end."""
    objective, calls = bowls(np.geomspace(1.0, 1e3, 20), np.zeros((4, 20)))
    weights = np.zeros((4, 1, 20))
    weights[3] = 1.0
    ends = descend_together(objective, weights, np.ones((1, 1)), 1e-9)
    assert np.all(ends.converged)
    assert list(ends.steps[:3]) == [1, 1, 1]
    assert ends.steps[3] > 10
    assert calls[0] == 4
    assert set(calls[1:]) == {1}


def test_a_start_that_is_not_finite_is_lost_alone():
    objective, _ = bowls(np.ones(3), np.zeros((2, 3)))
    weights = np.array([[[1.0, 2.0, 3.0]], [[np.inf, 0.0, 0.0]]])
    with np.errstate(invalid="ignore"):
        ends = descend_together(objective, weights, np.ones((1, 1)), 1e-9)
    assert list(ends.converged) == [True, False]
    assert not np.isfinite(ends.values[1])


def test_what_stops_early_has_not_converged(monkeypatch):
    monkeypatch.setattr(lbfgs, "ACCURACY", replace(lbfgs.ACCURACY, most_steps=4))
    problem = PROBLEMS["spiked"]().problem
    ends = descend_together(problem.values_and_gradients, random_weights(3, problem), problem.units, problem.tolerance)
    assert not np.any(ends.converged)
    assert list(ends.steps) == [4, 4, 4]


def test_it_stops_where_no_step_descends():
    """A gradient that points uphill: the start is lost, and said not to have converged."""

    def wrong(weights):
        return np.sum(weights**2, axis=(1, 2)), -2 * weights

    ends = descend_together(wrong, np.ones((2, 1, 3)), np.ones((1, 1)), 1e-9)
    assert not np.any(ends.converged)
    assert np.all(ends.values <= 3.0)


# --- the memory ----------------------------------------------------------------------------------


def two_loops(pairs, gradient):
    """H g by the recursion of textbooks, from pairs (s, y) from the oldest to the newest."""
    q, kept = gradient.copy(), []
    for s, y in reversed(pairs):
        a = (s @ q) / (s @ y)
        kept.append(a)
        q -= a * y
    s, y = pairs[-1]
    q *= (s @ y) / (y @ y)
    for (s, y), a in zip(pairs, reversed(kept), strict=True):
        q += (a - (y @ q) / (s @ y)) * s
    return q


@pytest.mark.exact
def test_directions_are_those_of_the_two_loops():
    """Starts that store at different times, more pairs than are kept, and one that forgets."""
    rng, size, most = np.random.default_rng(0), 9, 3
    curvature = np.diag(np.geomspace(0.5, 5.0, size))
    kept = memory.Memory(3, size, most)
    pairs = [[], [], []]
    for round_ in range(7):
        rows = np.array([True, round_ % 2 == 0, round_ != 3])
        step = rng.standard_normal((3, size))
        change, gradient = step @ curvature, rng.standard_normal((3, size))
        if round_ == 5:
            kept.forget(np.array([False, False, True]))
            pairs[2] = []
        direction = kept.learn(rows, step, change, gradient)
        for start in range(3):
            if rows[start]:
                pairs[start] = [*pairs[start], (step[start], change[start])][-most:]
            if pairs[start]:
                expected = -two_loops(pairs[start], gradient[start])
                np.testing.assert_allclose(direction[start], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.exact
def test_a_pair_that_bends_down_is_not_stored():
    kept = memory.Memory(1, 3, 2)
    direction = kept.learn(np.array([True]), np.ones((1, 3)), -np.ones((1, 3)), np.ones((1, 3)))
    np.testing.assert_array_equal(direction, -np.ones((1, 3)))
    assert kept.count[0] == 0

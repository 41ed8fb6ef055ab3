"""Ridge training: the objective and its derivatives, the minimum, what is reported of it."""

import dataclasses
import functools
import math
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import FIVE
from needlepoint.core.results import mean_estimate
from needlepoint.simulation import minima
from needlepoint.simulation.location import hessians, ridge, ridge_problem, signs
from needlepoint.simulation.location.risks import attention_errors
from needlepoint.simulation.location.vectors import frames


def sink(scores):
    """A softmax that may attend to nothing: neither element-wise nor normalised."""
    return jnp.exp(scores) / (1.0 + jnp.sum(jnp.exp(scores)))


SPIKED = ndl.SpikedSLR(2, snr=2.0, noise=0.1)
TASKS = {
    "spiked": ndl.SpikedSLR({1: 0.2, 3: 0.8}, snr=2.0, relevant_std=0.8, noise=0.2),
    "max": ndl.MaxSLR({1: 0.2, 3: 0.8}, snr=2.0, noise=0.2),
    "hard": ndl.MaxSLR(2, snr=math.inf),
}
MODELS = {
    "softmax": ndl.KeyValueAttention(ndl.Softmax()),
    "softplus": ndl.KeyValueAttention(ndl.Softplus()),
    "linear": ndl.KeyValueAttention(ndl.Linear()),
    "erf": ndl.KeyValueAttention(ndl.Erf(0.7, -0.3, 1.0)),
    "user": ndl.KeyValueAttention(sink),
}
PENALTIES = (0.3, 0.7)
D = 40
"""One dimension for all that is small, and as many samples as a ridge of alpha 4 has: kernels are compiled once."""
simulate = functools.partial(ndl.simulate, samples=4000)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def small_problem(task, model, n=4 * D, seed=3, penalties=PENALTIES):
    teachers = frames(np.random.default_rng(seed), 1, D, 2)[0]
    return ridge_problem.draw_problem(task, model.activation, penalties, n, jax.random.key(seed), *teachers)


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.value_and_grad, argnums=3)
def plain_objective(model, data, penalties, weights):
    """eq:ridge as it is written, with its automatic gradient."""
    squares = sum(jnp.sum((part.y - model(part.x, *weights)) ** 2) for part in data)
    return squares / (2 * weights.shape[1]) + sum(
        r / 2 * jnp.sum(w**2) for r, w in zip(penalties, weights, strict=True)
    )


def differences(function, point, step):
    """Central differences of a function of an array, along every entry."""
    rows = []
    for i in range(point.size):
        move = np.zeros(point.size)
        move[i] = step
        move = move.reshape(point.shape)
        rows.append((np.asarray(function(point + move)) - np.asarray(function(point - move))) / (2 * step))
    return np.array(rows)


# --- the objective -------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("task", "model"),
    [
        *(("spiked", model) for model in MODELS),
        *((task, model) for task in ("max", "hard") for model in ("softmax", "linear")),
        *(
            pytest.param(task, model, marks=pytest.mark.slow)
            for task in ("max", "hard")
            for model in ("softplus", "erf", "user")
        ),
    ],
)
def test_value_and_gradient_are_those_of_the_plain_objective(task, model):
    problem = small_problem(TASKS[task], MODELS[model])
    weights = np.random.default_rng(1).standard_normal((2, D))
    value, gradient = problem.value_and_gradient(weights)
    expected, automatic = map(np.asarray, plain_objective(MODELS[model], problem.data, problem.penalties, weights))
    assert math.isclose(value, expected, rel_tol=1e-12)
    np.testing.assert_allclose(gradient, automatic, rtol=0, atol=1e-12 * np.abs(automatic).max())
    numerical = differences(lambda w: problem.value_and_gradient(w)[0], weights, 1e-5).reshape(2, D)
    # central differences: h^2 of a third derivative of order 10
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-8 * np.abs(automatic).max())
    assert math.isclose(
        value, problem.train_loss(weights) * problem.n / (2 * problem.d) + problem.penalty(weights), rel_tol=1e-12
    )


@pytest.mark.exact
@pytest.mark.parametrize("model", ["softmax", "user"])
def test_blocks_change_nothing_but_rounding(model, monkeypatch):
    problem = small_problem(TASKS["spiked"], MODELS[model], n=90)
    weights = np.random.default_rng(1).standard_normal((2, D))
    value, gradient = problem.value_and_gradient(weights)
    monkeypatch.setattr(ridge_problem, "ACCURACY", replace(ridge_problem.ACCURACY, cached=50))
    monkeypatch.setattr(ridge_problem, "ACCURACY", replace(ridge_problem.ACCURACY, padded=16))
    again, gradient_again = problem.value_and_gradient(weights)
    assert math.isclose(value, again, rel_tol=1e-13)
    np.testing.assert_allclose(gradient, gradient_again, rtol=0, atol=1e-13 * np.abs(gradient).max())


def test_a_larger_data_set_begins_with_the_smaller_one():
    task = ndl.SpikedSLR(2, snr=2.0, noise=0.1)
    few, many = (small_problem(task, MODELS["softmax"], n=n).data[0] for n in (300, 700))
    np.testing.assert_array_equal(few.x, many.x[:300])
    np.testing.assert_array_equal(few.y, many.y[:300])
    # and no block repeats another
    assert len(np.unique(many.y)) == 700


@pytest.mark.parametrize(("n", "counts"), [(10, [2, 8]), (3, [1, 2]), (1, [1]), (1000, [200, 800])])
def test_lengths_have_their_shares(n, counts):
    problem = small_problem(TASKS["max"], MODELS["softmax"], n=n)
    assert [len(part.y) for part in problem.data] == counts
    assert problem.n == n


# --- the minimum ---------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(("task", "model"), [*(("spiked", model) for model in MODELS), ("hard", "softmax")])
def test_the_gradient_vanishes_at_the_minimum(task, model):
    trained = ridge.train(TASKS[task], MODELS[model], ndl.Ridge(4.0, 0.5), D, 0, 0)
    given = MODELS[model], trained.problem.data, trained.problem.penalties
    for minimum in trained.minima.values():
        assert minimum.converged
        _, gradient = plain_objective(*given, minimum.weights)
        # 1e-6 in the units of the stopping rule, of which the largest here is 4.5^(1/2)
        assert np.linalg.norm(gradient) < 2.2e-6 * math.sqrt(2 * trained.problem.energy_at_zero)
        curvatures = np.linalg.eigvalsh(hessians.hessian(trained.problem, minimum.weights))
        assert curvatures[0] > 0


@pytest.mark.exact
@pytest.mark.parametrize(("model", "weight"), [("softmax", 0.5), ("linear", 1.0)])
def test_without_a_key_it_is_ridge_regression(model, weight):
    """A key penalty of 1e8 leaves uniform weights, where the best value solves a linear equation."""
    learner = ndl.Ridge(3.0, (1e8, 0.7))
    trained = ridge.train(SPIKED, MODELS[model], learner, D, 1, 0)
    features = weight * trained.problem.data[0].x.sum(axis=1)
    gram = features.T @ features / D + 0.7 * np.eye(D)
    value = np.linalg.solve(gram, features.T @ trained.problem.data[0].y / D)
    np.testing.assert_allclose(trained.best.weights[1], value, rtol=0, atol=2e-6)
    assert np.linalg.norm(trained.best.weights[0]) < 1e-7
    residual = trained.problem.data[0].y - features @ value
    energy = residual @ residual / (2 * D) + 0.35 * value @ value
    # the energy is quadratic in what is left of the gradient, and the key's share is 1e-8
    assert math.isclose(trained.best.energy, energy, rel_tol=1e-7)


@pytest.mark.exact
def test_huge_penalties_leave_nothing():
    found = simulate(SPIKED, MODELS["softmax"], ndl.Ridge(5.0, 1e10), d=D, repeats=3)
    assert found.status is ndl.Status.CONVERGED
    assert found.overlaps is not None
    assert max(found.overlaps.key_sq, found.overlaps.value_sq) < 1e-15
    assert math.isclose(found.energy.value, 2.5 * found.train_loss.value, rel_tol=1e-8)


@pytest.mark.exact
@pytest.mark.parametrize("start", ["random", "informed", "both"])
def test_energy_is_the_loss_and_the_penalties(start):
    found = simulate(TASKS["max"], MODELS["softmax"], ndl.Ridge(4.0, PENALTIES, start), d=D, repeats=3)
    o = found.overlaps
    assert o is not None
    expected = 2.0 * found.train_loss.value + 0.15 * o.key_sq + 0.35 * o.value_sq
    assert math.isclose(found.energy.value, expected, rel_tol=1e-12)
    assert math.isclose(found.risk.value - found.excess_risk.value, 0.04, rel_tol=1e-12)
    extra = {"energy_random", "energy_informed", "starts_apart"}
    assert set(found.metrics) & extra == (extra if start == "both" else set())


# --- starts --------------------------------------------------------------------------------------


def test_a_stable_problem_has_one_minimum():
    found = simulate(SPIKED, MODELS["softmax"], ndl.Ridge(5.0, 0.5), d=D, repeats=4)
    assert found.starts_apart.value == 0.0
    assert abs(found.energy_random.value - found.energy_informed.value) < 1e-9
    assert any("in 0 of 4 repeats" in note for note in found.notes)


def test_the_lower_of_two_minima_counts():
    learner = ndl.Ridge(2.0, 0.01)
    both = simulate(SPIKED, MODELS["linear"], learner, d=D, repeats=2)
    assert both.starts_apart.value == 1.0
    assert any("in 2 of 2 repeats" in note for note in both.notes)
    apart = [
        simulate(SPIKED, MODELS["linear"], learner.replace(start=s), d=D, repeats=2) for s in ("random", "informed")
    ]
    assert [m.energy.value for m in apart] == [both.energy_random.value, both.energy_informed.value]
    assert both.energy.value <= min(m.energy.value for m in apart)
    trained = ridge.train(SPIKED, MODELS["linear"], learner, D, 0, 1)
    assert trained.apart
    assert trained.best.energy == min(m.energy for m in trained.minima.values())


@pytest.mark.exact
def test_signs_are_fixed_where_they_are_a_gauge():
    rng = np.random.default_rng(0)
    seven = {name: rng.standard_normal(50) for name in (*FIVE, "key_sq", "value_sq")}
    odd = ridge.fix_sign(ndl.Erf(), seven)
    assert np.all(sum(odd[name] for name in FIVE[:4]) >= 0)
    np.testing.assert_array_equal(odd["key"] * odd["value"], seven["key"] * seven["value"])
    np.testing.assert_array_equal(odd["key_dot_value"], seven["key_dot_value"])
    even = ridge.fix_sign(ndl.KeyValueAttention(lambda s: s**2).activation, seven)
    assert np.all(even["key"] >= 0)
    np.testing.assert_array_equal(even["value_on_key"], seven["value_on_key"])
    np.testing.assert_array_equal(even["key"] * even["key_dot_value"], seven["key"] * seven["key_dot_value"])
    for activation in (ndl.Softmax(), ndl.Linear(), ndl.Erf(shift=0.1)):
        assert ridge.fix_sign(activation, seven) is seven


def test_a_random_start_of_an_odd_activation_does_not_average_out():
    learner = ndl.Ridge(12.0, 0.5, start="random")
    found = simulate(ndl.SpikedSLR(2, 6.0, noise=0.1), ndl.KeyValueAttention(ndl.Erf()), learner, d=30, repeats=8)
    assert found.overlaps is not None
    assert found.overlaps.key > 0.2
    raw = [ridge.train(found.task, found.model, learner, 30, 0, r) for r in range(8)]
    signs = {bool(t.best.weights[0] @ t.teachers[0] > 0) for t in raw}
    assert signs == {True, False}


# --- what is measured ----------------------------------------------------------------------------


@pytest.mark.montecarlo
@pytest.mark.parametrize("task", ["spiked", pytest.param("hard", marks=pytest.mark.slow)])
def test_the_span_of_four_vectors_has_the_whole_risk(task):
    """The risk measured in four dimensions, in all of them, and by integration."""
    task, model = {"spiked": SPIKED, "hard": TASKS["hard"]}[task], MODELS["erf"]
    trained = ridge.train(task, model, ndl.Ridge(3.0, 0.5), D, 0, 0)
    weights = trained.best.weights
    seven = signs.seven_overlaps(trained.teachers, weights)
    exact = ndl.population_risk(task, model, ndl.Overlaps(**seven))
    inside, whole = [], []
    for seed in range(16):
        options = SimulationOptions(d=D, repeats=1, seed=seed, samples=4000)
        inside.append(ridge._risk(task, model, trained.teachers, weights, options, 0))
        key = jax.random.key(1000 + seed)
        whole.append(attention_errors(task, ndl.Erf, model.constants(), key, 4000, *trained.teachers, *weights))
    for found in map(mean_estimate, (inside, whole)):
        assert found.error < 0.01 * found.value
        assert abs(found.value - exact.value) < 5 * found.error + exact.error


def test_same_seed_same_numbers():
    question = (TASKS["max"], MODELS["softmax"], ndl.Ridge(3.0, 0.5))
    one, two, other = (simulate(*question, d=D, repeats=2, seed=s) for s in (4, 4, 5))
    assert one.metrics == two.metrics
    assert one.overlaps == two.overlaps
    assert one.metrics != other.metrics
    # a repeat does not depend on how many there are
    alone = simulate(*question, d=D, repeats=1, seed=4)
    second = ridge._run(*question, SimulationOptions(d=D, repeats=1, seed=4, samples=4000), 1)
    assert math.isclose(one.energy.value, (alone.energy.value + second.metrics["energy"]) / 2, rel_tol=1e-14)


REFERENCES = {
    # of an independent solution of the replica equations, standard errors up to 4e-4
    ("softmax", 2.0): {
        "excess_risk": 0.5289, "train_loss": 0.1649, "energy": 0.3802,
        "key": 0.2884, "key_sq": 0.2193, "value": 0.7018, "value_sq": 0.6421,
    },
    ("linear", 5.0): {
        "excess_risk": 0.5328, "train_loss": 0.1865, "energy": 0.6093,
        "key": 0.3853, "key_sq": 0.3642, "value": 0.4278, "value_sq": 0.2077,
    },
}  # fmt: skip


@functools.cache
def trained_measurement(model, alpha, lam=0.5):
    learner = ndl.Ridge(alpha, lam, start="informed")
    return simulate(SPIKED, MODELS[model], learner, d=160, repeats=28, seed=1)


def misses(found, expected):
    """Reference values that are more than 5 standard errors and a finite size of 3/d away."""
    o = dict(found.overlaps.items())
    errors = {**{n: e.error for n, e in found.metrics.items()}, **found.overlaps_error}
    values = {**{n: e.value for n, e in found.metrics.items()}, **o}
    size = 3 / found.d
    return [n for n, x in expected.items() if abs(values[n] - x) > 5 * errors[n] + size * abs(x) + 4e-4]


@pytest.mark.paper
@pytest.mark.training
@pytest.mark.parametrize(("model", "alpha"), REFERENCES)
def test_training_gives_the_replica_values(model, alpha):
    found = trained_measurement(model, alpha)
    assert found.status is ndl.Status.CONVERGED
    assert found.excess_risk.error < 0.01 * found.excess_risk.value
    assert found.energy.error < 0.01 * found.energy.value
    assert misses(found, REFERENCES[model, alpha]) == []


@pytest.mark.negative
def test_another_penalty_has_other_values():
    found = trained_measurement("softmax", 2.0, lam=0.4)
    assert {"energy", "train_loss"} <= set(misses(found, REFERENCES["softmax", 2.0]))


# --- the Hessian ---------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", ["spiked", pytest.param("max", marks=pytest.mark.slow)])
def test_hessian_is_the_derivative_of_the_gradient(task, model):
    problem = small_problem(TASKS[task], MODELS[model])
    weights = np.random.default_rng(2).standard_normal((2, D))
    found = hessians.hessian(problem, weights)
    expected = differences(lambda w: problem.value_and_gradient(w)[1], weights, 1e-5).reshape(2 * D, 2 * D)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-12 * np.abs(found).max())


@pytest.mark.exact
def test_traces_of_a_known_inverse():
    """Ridge regression in v: the traces are those of a resolvent, the key is known by its penalty alone."""
    traces = hessians.inverse_hessian_traces(SPIKED, MODELS["linear"], ndl.Ridge(3.0, (1e8, 0.7)), d=D, repeats=2)
    expected = []
    for repeat in range(2):
        x = (
            ridge.train(SPIKED, MODELS["linear"], ndl.Ridge(3.0, (1e8, 0.7)), D, 0, repeat)
            .problem.data[0]
            .x.sum(axis=1)
        )
        inverse = np.linalg.inv(x.T @ x / D + 0.7 * np.eye(D))
        expected.append([np.trace(inverse) / D, np.sum(inverse**2) / D, 1 / np.linalg.eigvalsh(inverse)[-1]])
    found = [traces.value.value, traces.value_value.value, traces.lowest.value]
    np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=1e-6)
    assert math.isclose(traces.key.value, 1e-8, rel_tol=1e-5)
    assert traces.key_value.value < 1e-14


@pytest.mark.paper
@pytest.mark.training
def test_inverse_hessian_has_the_predicted_squares():
    """Of an independent solution of the replica equations: kk, kv, vv = 1.143, .0353, .1482 at infinite d."""
    found = hessians.inverse_hessian_traces(
        SPIKED, MODELS["softmax"], ndl.Ridge(5.0, 0.5, "informed"), d=160, repeats=24
    )
    assert found.lowest.value - 5 * found.lowest.error > 0
    for estimate, expected in ((found.key_key, 1.143), (found.key_value, 0.0353), (found.value_value, 0.1482)):
        assert abs(estimate.value - expected) < 5 * estimate.error + 3 / 160 * expected
    # the squares of the traces alone, as if nothing were correlated, are clearly lower
    assert found.key_key.value - found.key.value**2 > 5 * found.key_key.error
    assert found.value_value.error < 0.01 * found.value_value.value


# --- what is refused, and what is said -----------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "learner", "error", "sentence"),
    [
        (ndl.KeyValueAttention(ndl.Softmax(), unit_norm=True), ndl.Ridge(2.0, 0.1), ndl.NoTheory, "set the norms"),
        (MODELS["softmax"], ndl.Ridge(2.0, "optimal"), ndl.InvalidParameter, "take predict"),
        (MODELS["softmax"], ndl.Ridge(1e-3, 0.1), ndl.InvalidParameter, "at least one sequence"),
        (MODELS["softmax"], ndl.Ridge(1e9, 0.1), ndl.InvalidParameter, "at most 4e"),
        (ndl.KeyValueAttention(ndl.Erf(shift=None)), ndl.Ridge(2.0, 0.1), ndl.InvalidParameter, "shift is None"),
    ],
)  # fmt: skip
def test_what_is_refused_and_why(model, learner, error, sentence):
    with pytest.raises(error, match=sentence):
        simulate(SPIKED, model, learner, d=D, repeats=1)


@pytest.mark.parametrize("size", [{"d": 3000, "repeats": 1}, {"d": D, "repeats": 0}])
def test_a_hessian_that_does_not_fit_is_refused(size):
    with pytest.raises(ndl.InvalidParameter, match="from 2 to 2000"):
        hessians.inverse_hessian_traces(SPIKED, MODELS["linear"], ndl.Ridge(2.0, 0.1), **size)


def test_a_run_that_stops_early_says_so(monkeypatch):
    monkeypatch.setattr(minima, "_STEPS", 3)
    found = simulate(SPIKED, MODELS["softmax"], ndl.Ridge(5.0, 0.1), d=D, repeats=2)
    assert found.status is ndl.Status.MAX_STEPS
    assert any("in 4 of 4 runs L-BFGS stopped" in note for note in found.notes)


def test_a_minimum_that_is_not_unique_is_said_to_be_so():
    found = simulate(SPIKED, MODELS["linear"], ndl.Ridge(1.0, 0.0), d=D, repeats=2)
    assert found.train_loss.value < 1e-9
    assert any("2 of 2 repeats); other starts" in note for note in found.notes)
    penalised = simulate(SPIKED, MODELS["linear"], ndl.Ridge(1.0, 0.1), d=D, repeats=2)
    assert not any("penalty of 0" in note for note in penalised.notes)


def test_an_overflow_is_reported():
    activation = ndl.KeyValueAttention(lambda s: 1e160 * (1.0 + s))
    found = simulate(SPIKED, activation, ndl.Ridge(2.0, 0.1), d=D, repeats=2)
    assert found.status is ndl.Status.DIVERGED


def test_progress_and_threads():
    from threadpoolctl import threadpool_info

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    seen, before = [], threads()
    simulate(SPIKED, MODELS["linear"], ndl.Ridge(2.0, 0.5), d=D, repeats=4, progress=seen.append)
    assert seen == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert threads() == before


def test_a_problem_holds_one_copy_of_the_data():
    problem = small_problem(SPIKED, MODELS["softmax"], n=50)
    assert [f.name for f in dataclasses.fields(problem)] == ["activation", "constants", "penalties", "data"]
    assert all(part.x.dtype == np.float64 and part.x.flags.c_contiguous for part in problem.data)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_two_thousand_dimensions_fit_in_four_gigabytes():
    script = """
import re
import needlepoint as ndl
learner = ndl.Ridge(10.0, 0.5, start="informed")
found = ndl.simulate(ndl.SpikedSLR(2, 2.0, noise=0.1), ndl.KeyValueAttention(ndl.Softmax()), learner, d=2000, repeats=2)
assert found.status is ndl.Status.CONVERGED
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # getrusage would count the parent too; the data are 0.6 GB, the libraries 0.3 GB: a second copy would be seen
    assert float(done.stdout) < 1.4

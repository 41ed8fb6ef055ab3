"""Message passing for ridge training: its fixed points are the minima, its divergences are derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.channels.any_activation import curvature
from needlepoint.channels.replies import Channel, Sample, reply
from needlepoint.simulation.location import ridge, ridge_amp


def sink(scores):
    """A softmax that may attend to nothing."""
    return jnp.exp(scores) / (1.0 + jnp.sum(jnp.exp(scores)))


SPIKED = ndl.SpikedSLR(2, snr=2.0, noise=0.1)
TASKS = {"spiked": SPIKED, "max": ndl.MaxSLR({1: 0.3, 2: 0.7}, snr=2.0, noise=0.1)}
MODELS = {
    "softmax": ndl.KeyValueAttention(ndl.Softmax()),
    "linear": ndl.KeyValueAttention(ndl.Linear()),
    "erf": ndl.KeyValueAttention(ndl.Erf(1.0, 0.0, 1.0)),
    "user": ndl.KeyValueAttention(sink),
}
STABLE = ndl.Ridge(6.0, 1.0)
"""Penalties and data that leave one minimum."""
D = 40
"""At six sequences a dimension both tasks have between 129 and 256 pairs, and share what is compiled."""
simulate = functools.partial(ndl.simulate, samples=4000)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def train(task, model, learner, algorithm):
    return ridge.train(task, MODELS[model], learner.replace(algorithm=algorithm), D, 0, 0)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("model", "task"),
    [
        *((model, "spiked") for model in MODELS),
        ("softmax", "max"),
        ("linear", "max"),
        *(pytest.param(model, "max", marks=pytest.mark.slow) for model in ("erf", "user")),
    ],
)
def test_it_ends_at_the_minimum(model, task):
    passed, descended = (train(TASKS[task], model, STABLE, algorithm) for algorithm in ("amp", "lbfgs"))
    for found in passed.minima.values():
        assert found.converged
        # what is left of the energy is about half the squared gradient, 1e-12 of the whole
        assert abs(found.energy - descended.best.energy) < 1e-9 * descended.best.energy
        np.testing.assert_allclose(found.weights, descended.best.weights, rtol=0, atol=1e-5)


@pytest.mark.negative
def test_another_penalty_ends_elsewhere():
    passed = train(SPIKED, "softmax", STABLE.replace(lam=(1.0, 1.01)), "amp")
    descended = train(SPIKED, "softmax", STABLE, "lbfgs")
    assert abs(passed.best.energy - descended.best.energy) > 1e-4 * descended.best.energy


@pytest.mark.exact
@pytest.mark.parametrize(
    ("model", "tokens"), [*((model, 2) for model in MODELS), pytest.param("softmax", 3, marks=pytest.mark.slow)]
)
def test_divergences_are_derivatives_of_the_proximal_map(model, tokens):
    activation, constants = type(MODELS[model].activation), MODELS[model].constants()
    rng = np.random.default_rng(0)
    V, y, fields = np.array([0.5, 0.3]), rng.standard_normal(256), rng.standard_normal((256, 2, tokens))
    g, divergences = (np.asarray(x) for x in ridge_amp._answer(activation, constants, fields, y, V))

    @jax.jit
    def forces(fields):
        """At the minimum next to that of the given fields: their map is good to the root of rounding, differences
        need more."""
        channel, sample = Channel(constants, *V), Sample(y, fields[:, 0].T, fields[:, 1].T)

        def newton(_, scores):
            slope, bend, _ = curvature(activation, channel, sample, scores)
            return scores - jnp.linalg.solve(jnp.moveaxis(bend, -1, 0), slope.T[..., None])[..., 0].T

        scores = jax.lax.fori_loop(0, 3, newton, sample.w_chi + V[0] * g[:, 0].T)
        at = reply(activation, channel, sample, scores)
        return jnp.stack([at.g_k.T, at.g_v.T], axis=1)

    np.testing.assert_allclose(g, forces(fields), rtol=0, atol=1e-6)
    expected = np.zeros((256, 2))
    for a in (0, 1):
        for token in range(tokens):
            move = np.zeros_like(fields)
            move[:, a, token] = 1e-5
            expected[:, a] += np.asarray(forces(fields + move) - forces(fields - move))[:, a, token] / 2e-5
    # central differences: 1e-10 of a third derivative of order 10, and the map's own 1e-7
    np.testing.assert_allclose(divergences, expected, rtol=0, atol=1e-6)


def test_simulate_reports_the_same_minimum():
    found = {
        algorithm: simulate(SPIKED, MODELS["softmax"], STABLE.replace(algorithm=algorithm), d=D, repeats=3)
        for algorithm in ("amp", "lbfgs")
    }
    assert found["amp"].status is ndl.Status.CONVERGED
    for name, estimate in found["lbfgs"].metrics.items():
        assert abs(found["amp"].metrics[name].value - estimate.value) < 1e-5
    assert found["amp"].starts_apart.value == 0.0


def test_where_the_minimum_is_unstable_it_says_that_it_did_not_settle():
    found = simulate(SPIKED, MODELS["linear"], ndl.Ridge(2.0, 0.1, "informed", "amp"), d=D, repeats=2)
    assert found.status is ndl.Status.MAX_STEPS
    assert any("message passing stopped before the gradient vanished" in note for note in found.notes)
    assert all(e.finite for e in found.metrics.values())

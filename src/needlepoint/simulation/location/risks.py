"""Risks by Monte Carlo with d-dimensional sequences: attention at given weights, Bayes, linear regression."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import lower
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import as_seven
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.specs import Spec
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal, Population
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention, LinearRegression
from needlepoint.simulation.location.accuracy import ACCURACY
from needlepoint.simulation.location.vectors import frames, with_overlaps
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR


@rule("simulate", SpikedSLR, KeyValueAttention, Population)
@rule("simulate", MaxSLR, KeyValueAttention, Population)
def simulate_attention(
    task: SingleLocation, model: KeyValueAttention, learner: Population, options: SimulationOptions
) -> Measurement:
    """Return the risk of attention at given overlaps, with fresh vectors of these overlaps in every repeat."""
    if options.overlaps is None:
        raise InvalidParameter(
            "simulate(..., Population()): overlaps= is needed, the weights to measure at "
            "(predict(...).overlaps are the best ones)."
        )
    o = as_seven(options.overlaps)
    if model.unit_norm and not o.unit:
        raise InvalidParameter(f"{o!r}: key_sq and value_sq must be 1 for a model with unit_norm=True.")
    rng = np.random.default_rng([options.seed, 5])
    vectors = with_overlaps(rng, o, options.repeats, options.d)
    activation, constants = type(model.activation), model.constants()

    def errors(key: Any, repeat: int, n: int, length: int) -> Any:
        weights = (vectors.k_star[repeat], vectors.v_star[repeat], vectors.k[repeat], vectors.v[repeat])
        return _attention_error(type(task), activation, n, length, _law(task), constants, key, *weights)

    means = _repeat(task, options, errors)
    return _measurement(task, model, learner, options, means, overlaps=o)


def simulate_known_teachers(
    task: SingleLocation, model: None, learner: BayesOptimal, options: SimulationOptions
) -> Measurement:
    """Return the risk of the posterior mean of the label if the teachers are known, with vectors in R^d."""
    teachers = frames(np.random.default_rng([options.seed, 5]), options.repeats, options.d, 2)

    def errors(key: Any, repeat: int, n: int, length: int) -> Any:
        return _bayes_error(type(task), n, length, _law(task), key, teachers[repeat, 0], teachers[repeat, 1])

    return _measurement(task, model, learner, options, _repeat(task, options, errors))


@rule("simulate", SpikedSLR, LinearRegression, Population)
@rule("simulate", MaxSLR, LinearRegression, Population)
def simulate_linear(
    task: SingleLocation, model: LinearRegression, learner: Population, options: SimulationOptions
) -> Measurement:
    """Return the risk of least squares on all coordinates and an intercept, with enough sequences.

    With n sequences and p weights the training error is too low by p/n and the test error too high by p/n, relatively;
    their mean is the risk of the best linear predictor up to (p/n)^2, below 1e-5 for n = 400 p.
    """
    length = task.fixed_length
    if length is None:
        raise InvalidParameter(f"{task!r}: LinearRegression needs a fixed length; give tokens as a whole number.")
    p = length * options.d + 1
    n = max(options.samples, 400 * p)
    if n * p * p * options.repeats > 1e12:
        raise InvalidParameter(
            f"simulate(d={options.d}): least squares with {p} weights needs {n} sequences a repeat; take a smaller d."
        )
    teachers = frames(np.random.default_rng([options.seed, 5]), options.repeats, options.d, 2)
    means = []
    for repeat in range(options.repeats):
        draw = functools.partial(_regression_data, task, length, teachers[repeat])
        moments = sum_chunks(draw, jax.random.key(options.seed), (repeat, 0), n, p, _second_moments)
        test = sum_chunks(draw, jax.random.key(options.seed), (repeat, 1), n, p, _second_moments)
        weights = np.linalg.solve(moments[:p, :p], moments[:p, p])
        full = np.append(weights, -1.0)
        means.append((full @ moments @ full + full @ test @ full) / (2 * n))
        options.progress((repeat + 1) / options.repeats)
    return _measurement(task, model, learner, options, np.array(means))


def _regression_data(task: SingleLocation, length: int, teachers: np.ndarray, key: Any, n: int) -> np.ndarray:
    x, y, _ = _sample(type(task), n, length, _law(task), key, teachers[0], teachers[1])
    return np.concatenate([np.asarray(x).reshape(n, -1), np.ones((n, 1)), np.asarray(y)[:, None]], axis=1)


def _second_moments(rows: np.ndarray) -> np.ndarray:
    return rows.T @ rows


def sum_chunks(
    draw: Callable[[Any, int], np.ndarray],
    key: Any,
    tag: tuple[int, int],
    n: int,
    width: int,
    reduce: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the sum of reduce(draw(key, size)) over n sequences of `width` numbers each, in chunks of at most
    `ACCURACY.risks_chunk` numbers."""
    key = jax.random.fold_in(jax.random.fold_in(key, tag[0]), tag[1])
    chunk = max(1, min(n, ACCURACY.risks_chunk // width))
    total: Any = 0.0
    for i, start in enumerate(range(0, n, chunk)):
        size = min(chunk, n - start)
        total = total + reduce(draw(jax.random.fold_in(key, i), chunk)[:size])
    return total


def _repeat(
    task: SingleLocation, options: SimulationOptions, errors: Callable[[Any, int, int, int], Any]
) -> np.ndarray:
    """Return the mean squared error of each repeat, (repeats,), over `samples` sequences of every length, in chunks."""
    longest = task.longest
    if longest * options.d > ACCURACY.largest_sequence:
        raise InvalidParameter(
            f"simulate(d={options.d}): a sequence of {longest} tokens has {longest * options.d:.3g} numbers; "
            f"at most {ACCURACY.largest_sequence:.3g} are sampled at once."
        )
    means = np.zeros(options.repeats)
    key = jax.random.key(options.seed)
    for repeat in range(options.repeats):
        for length, probability in task.length_law:
            chunk = max(1, min(options.samples, ACCURACY.risks_chunk // (length * options.d)))
            total = sum_chunks(
                lambda k, n, repeat=repeat, length=length: np.asarray(errors(k, repeat, n, length)),
                key,
                (repeat, length),
                options.samples,
                max(1, ACCURACY.risks_chunk // chunk),
                np.sum,
            )
            means[repeat] += probability * float(total) / options.samples
        options.progress((repeat + 1) / options.repeats)
    return means


def attention_errors(
    task: SingleLocation,
    activation: type[Activation],
    constants: dict[str, float],
    key: Any,
    samples: int,
    k_star: np.ndarray,
    v_star: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
) -> float:
    """Return the mean squared error of attention with these weights over fresh sequences, averaged over the lengths."""
    mean = 0.0
    for length, probability in task.length_law:

        def draw(key: Any, n: int, length: int = length) -> np.ndarray:
            weights = (k_star, v_star, k, v)
            return np.asarray(_attention_error(type(task), activation, n, length, _law(task), constants, key, *weights))

        total = sum_chunks(draw, key, (length, 0), samples, length * len(k), np.sum)
        mean += probability * float(total) / samples
    return mean


def _measurement(
    task: SingleLocation, model: Spec | None, learner: Spec, options: SimulationOptions, means: np.ndarray, **more: Any
) -> Measurement:
    risk = mean_estimate(means)
    more.setdefault("status", Status.CONVERGED if np.all(np.isfinite(means)) else Status.DIVERGED)
    return Measurement(
        task,
        model,
        learner,
        {"risk": risk, "excess_risk": risk + (-task.noise_var)},
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
        **more,
    )


def _law(task: SingleLocation) -> dict[str, float]:
    return lower(task)[1]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sample(
    task: type[SingleLocation], n: int, length: int, law: dict[str, Any], key: Any, k_star: Any, v_star: Any
) -> Any:
    return task.draw(key, k_star, v_star, n, length, law)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _attention_error(
    task: type[SingleLocation],
    activation: type[Activation],
    n: int,
    length: int,
    law: dict[str, Any],
    constants: dict[str, Any],
    key: Any,
    k_star: Any,
    v_star: Any,
    k: Any,
    v: Any,
) -> Any:
    """eq:attention. Return (y - f(X))^2 of n fresh sequences, (n,)."""
    x, y, _ = task.draw(key, k_star, v_star, n, length, law)
    weights = jax.vmap(lambda scores: activation.weights(scores, constants))(x @ k)
    return (y - jnp.sum(weights * (x @ v), axis=-1)) ** 2


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _bayes_error(
    task: type[SingleLocation], n: int, length: int, law: dict[str, Any], key: Any, k_star: Any, v_star: Any
) -> Any:
    """Return (y - E[y | X])^2 of n fresh sequences, (n,), by the posterior of the relevant place."""
    x, y, _ = task.draw(key, k_star, v_star, n, length, law)
    posterior = jax.nn.softmax(task.place_scores(x, k_star, law), axis=-1)
    return (y - jnp.sum(posterior * (x @ v_star), axis=-1)) ** 2

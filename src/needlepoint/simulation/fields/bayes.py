"""The best predictor when the teachers are known, by Monte Carlo with d-dimensional sequences."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.lowering import Template
from needlepoint.core.options import SimulationOptions
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.simulation.fields.accuracy import ACCURACY
from needlepoint.simulation.fields.problem import check_dimension, check_size
from needlepoint.simulation.location.vectors import frames
from needlepoint.tasks.sequence import SequenceTask, noise_var_of


@rule("simulate", SequenceTask, None, BayesOptimal)
def simulate_known(task: SequenceTask, model: None, learner: BayesOptimal, options: SimulationOptions) -> Measurement:
    """Return the mean squared error of the posterior mean of the label, computed from the densities of whole vectors,
    on fresh sequences with fresh teachers in every repeat."""
    if learner.alpha is not None:
        raise NoTheory(
            f"no message passing for {learner!r} with {type(task).__name__}: the best predictor from samples is known "
            "for SpikedSLR and MaxSLR; BayesOptimal() knows the teachers."
        )
    check_size(task, 1, options.d)
    check_dimension(task, options.d)
    teachers = frames(np.random.default_rng([options.seed, 9]), options.repeats, options.d, len(task.teachers))
    means = np.zeros(options.repeats)
    for repeat in range(options.repeats):
        key = jax.random.fold_in(jax.random.key(options.seed), repeat)
        for length, probability in task.length_law:
            here = jax.random.fold_in(key, length)
            means[repeat] += probability * _error(task.at(length), teachers[repeat], here, options.samples)
        options.progress((repeat + 1) / options.repeats)
    risk, noise = mean_estimate(means), noise_var_of(task)
    return Measurement(
        task,
        model,
        learner,
        {"risk": risk} if noise is None else {"risk": risk, "excess_risk": risk + (-noise)},
        status=Status.CONVERGED if np.all(np.isfinite(means)) else Status.DIVERGED,
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
    )


def _error(task: SequenceTask, teachers: np.ndarray, key: Any, samples: int) -> float:
    """Return the mean squared error over `samples` sequences of one length, in chunks."""
    each = task.tokens * (teachers.shape[1] + task.places() * (len(task.teachers) + ACCURACY.noises))
    chunk, total = max(1, min(samples, ACCURACY.drawn_numbers // each)), 0.0
    for i, start in enumerate(range(0, samples, chunk)):
        found = _errors(task.template, chunk, task.numbers, jax.random.fold_in(key, i), teachers)
        total += float(np.sum(np.asarray(found)[: samples - start]))
    return total / samples


@functools.partial(jax.jit, static_argnums=(0, 1))
def _errors(template: Template, n: int, numbers: Any, key: Any, teachers: Any) -> Any:
    """Return |y - E[y | X]|^2 of n fresh sequences, (n,)."""
    task: SequenceTask = template.bind(numbers)
    x, y, _ = task.draw_vectors(key, teachers, n)
    # evenly spaced: Gauss-Hermite nodes are too far apart for a label that jumps with its noise
    nodes = np.linspace(-ACCURACY.noise_reach, ACCURACY.noise_reach, ACCURACY.noises)
    weights = np.exp(-(nodes**2) / 2)
    weights = weights / np.sum(weights)

    def one(x: Any, y: Any) -> Any:
        named = task.named(x @ teachers.T)

        def of_place(place: Any) -> Any:
            at = task.place_at(place)
            squares = jnp.sum((x - at.shift @ teachers) ** 2, axis=1)
            logs = -squares / (2 * at.spread**2) - x.shape[1] * jnp.log(at.spread)
            labels = jax.vmap(lambda e: jnp.asarray(task.label(named, place, e), float))(jnp.asarray(nodes))
            return jnp.sum(logs) + jnp.asarray(task.log_tilt(named, place), float), jnp.tensordot(weights, labels, 1)

        logs, labels = jax.vmap(of_place)(jnp.arange(task.places()))
        return jnp.sum((y - jnp.tensordot(jax.nn.softmax(logs), labels, 1)) ** 2)

    return jax.vmap(one)(x, y)

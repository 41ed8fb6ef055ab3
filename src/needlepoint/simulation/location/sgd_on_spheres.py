"""Online SGD on unit spheres, with d-dimensional vectors and fresh sequences from the task's sampler."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.answers.trajectories import scale_at, scale_of_step
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.lowering import lower
from needlepoint.core.options import SimulationOptions
from needlepoint.core.results import Measurement
from needlepoint.core.routes import routes
from needlepoint.learners import OnlineSGD, record_steps
from needlepoint.losses import squared_error
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.simulation.location.descent import project, trajectory_measurement
from needlepoint.simulation.location.free_norms import simulate_free_sgd
from needlepoint.simulation.location.vectors import starting_vectors
from needlepoint.tasks.single_location import SpikedSLR


@rule("simulate", SpikedSLR, KeyValueAttention, OnlineSGD, when=squared_error)
def simulate_sgd(
    task: SpikedSLR, model: KeyValueAttention, learner: OnlineSGD, options: SimulationOptions
) -> Measurement:
    """eq:sgd. Return the measured trajectories of SGD, with the gradient of the mean squared error of a fresh batch by
    automatic differentiation; with free norms those of eq:free-sgd."""
    if not model.unit_norm:
        return simulate_free_sgd(task, model, learner, options)
    learner.require_unit_starts()
    activation, known = model.activation, routes("quadrature on spheres", model=model)
    if not known:
        raise NoTheory(
            f"no simulation of OnlineSGD with {model!r}; the nearest is KeyValueAttention(Erf(...), unit_norm=True)."
        )
    length = task.fixed_length
    if length is None:
        raise NoTheory(f"no simulation of OnlineSGD with random lengths ({task!r}); give tokens as a whole number.")
    vectors = starting_vectors(learner, options.d, options.repeats, options.seed)
    law, constants = lower(task)[1], model.constants()
    state = tuple(jnp.asarray(x) for x in vectors)
    keys = jax.random.split(jax.random.key(options.seed), len(vectors.k))
    nodes = known[0].function(task, model)
    marks = record_steps(learner.steps, learner.record_every)
    history, done = [vectors.five()], 0
    sizes = (type(activation), learner.batch, length)
    for mark in marks[1:]:
        k, v = _advance(*sizes, law, constants, state, keys, float(done), mark - done, learner.lr, learner.schedule)
        state, done = (*state[:2], k, v), mark
        vectors = vectors._replace(k=np.asarray(k), v=np.asarray(v))
        history.append(vectors.five())
        options.progress(done / learner.steps)
    risk = _population_risks(task, model, learner, nodes, marks, history)
    return trajectory_measurement(task, model, learner, options, marks, history, risk)


def _population_risks(
    task: SpikedSLR,
    model: KeyValueAttention,
    learner: OnlineSGD,
    nodes: int,
    marks: list[int],
    history: list[np.ndarray],
) -> np.ndarray:
    """Return eq:elementwise-risk at the recorded overlaps, (runs, records)."""
    law = elementwise.constants(task, model)
    at = {**law, "scale": scale_at(law["scale"], learner.schedule, marks)}
    return np.asarray(_risks(type(model.activation), nodes, at, np.stack(history, axis=-1)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _risks(activation: type[Activation], nodes: int, law: dict[str, Any], five: Any) -> Any:
    one = jnp.ones_like(five[0])
    overlaps = (*five, one, one)
    return elementwise.excess_risk(lambda scores: activation.weights(scores, law), law, overlaps, nodes)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(
    activation: type[Activation],
    batch: int,
    length: int,
    law: dict[str, Any],
    constants: dict[str, Any],
    vectors: Any,
    keys: Any,
    done: Any,
    count: Any,
    lr: Any,
    schedule: Any,
) -> Any:
    r"""eq:sgd. Return k and v after `count` steps, (runs, d) each: a step is $\ell$ times the gradient of
    $\frac1B\sum_b(y_b - f(X_b))^2$, projected, and then the weights are normalised."""
    k_star, v_star, k, v = vectors

    def loss(k: Any, v: Any, x: Any, y: Any, scale: Any) -> Any:
        weights = activation.weights(x @ k, {**constants, "scale": scale})
        return jnp.mean((y - jnp.sum(weights * (x @ v), axis=-1)) ** 2)

    def one(t: Any, key: Any, k_star: Any, v_star: Any, k: Any, v: Any) -> Any:
        scale = scale_of_step(constants["scale"], schedule, t)
        x, y, _ = SpikedSLR.draw(jax.random.fold_in(key, t), k_star, v_star, batch, length, law)
        grad_k, grad_v = jax.grad(loss, argnums=(0, 1))(k, v, x, y, scale)
        return project(k, grad_k, lr), project(v, grad_v, lr)

    def step(i: Any, weights: Any) -> Any:
        t = done.astype(jnp.int64) + i
        return jax.vmap(functools.partial(one, t))(keys, k_star, v_star, *weights)

    return jax.lax.fori_loop(0, count, step, (k, v))

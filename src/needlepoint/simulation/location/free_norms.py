"""Training with free norms in d dimensions: online SGD on fresh sequences, gradient flow on a fixed sample."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate

from needlepoint.core.answers.trajectories import named, summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.lowering import lower
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import frame_coordinates
from needlepoint.core.results import Measurement, Trajectory
from needlepoint.learners import GradientFlow, OnlineSGD, record_steps
from needlepoint.losses import squared_error
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.simulation.location.accuracy import ACCURACY
from needlepoint.simulation.location.vectors import Vectors, starting_vectors
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR


@rule("simulate", MaxSLR, KeyValueAttention, OnlineSGD, when=squared_error)
def simulate_free_sgd(
    task: SingleLocation, model: KeyValueAttention, learner: OnlineSGD, options: SimulationOptions
) -> Measurement:
    """eq:free-sgd. Return the measured trajectories of SGD with free norms, with the gradient of the mean squared error
    of a fresh batch by automatic differentiation."""
    require_free_norms(task, model, learner)
    if learner.schedule > 0:
        raise NoTheory(f"no simulation of OnlineSGD(schedule={learner.schedule:g}) with {model!r}; schedule=0 has one.")
    vectors = starting_vectors(learner, options.d, options.repeats, options.seed)
    keys = jax.random.split(jax.random.key(options.seed), len(vectors.k))
    law, constants = lower(task)[1], model.constants()
    kinds = (type(task), type(model.activation), learner.batch, tuple(n for n, _ in task.length_law))
    shares = np.array([p for _, p in task.length_law])
    state = tuple(jnp.asarray(x) for x in vectors)
    marks = record_steps(learner.steps, learner.record_every)
    history, done = [_seven(vectors)], 0
    for mark in marks[1:]:
        k, v = _advance(*kinds, shares, law, constants, state, keys, done, mark - done, learner.lr)
        state, done = (*state[:2], k, v), mark
        history.append(_seven(vectors._replace(k=np.asarray(k), v=np.asarray(v))))
        options.progress(done / learner.steps)
    return _measured(task, model, learner, options, np.array(marks), np.stack(history, axis=-1))


@rule("simulate", SpikedSLR, KeyValueAttention, GradientFlow, when=squared_error)
@rule("simulate", MaxSLR, KeyValueAttention, GradientFlow, when=squared_error)
def simulate_flow(
    task: SingleLocation, model: KeyValueAttention, learner: GradientFlow, options: SimulationOptions
) -> Measurement:
    """eq:sample-flow. Return the measured gradient flow of k and v in R^d on the mean squared error over `samples`
    sequences of each length, which are drawn once per run.

    It follows the flow on the population risk up to a bias of order d / samples.
    """
    require_free_norms(task, model, learner)
    size = options.samples * options.d * sum(n for n, _ in task.length_law)
    if size > ACCURACY.largest_sample:
        raise InvalidParameter(
            f"simulate(d={options.d}, samples={options.samples}): a sample of {size:.3g} numbers is held at once, at "
            f"most {ACCURACY.largest_sample:.3g}; take a smaller d or fewer samples."
        )
    vectors = starting_vectors(learner, options.d, options.repeats, options.seed)
    times, d = learner.record_times(), options.d
    history = np.full((7, len(vectors.k), len(times)), np.nan)
    for run, start in enumerate(zip(*vectors, strict=True)):
        one = Vectors(*(x[None] for x in start))
        sample = _sample(task, options, run, one)

        def motion(_: float, weights: np.ndarray, sample: Any = sample) -> np.ndarray:
            return np.asarray(_velocity(type(model.activation), model.constants(), sample, weights[:d], weights[d:]))

        found = integrate.solve_ivp(
            motion,
            (0.0, times[-1]),
            np.concatenate([one.k[0], one.v[0]]),
            "RK45",
            times,
            rtol=ACCURACY.rtol,
            atol=1e-2 * ACCURACY.rtol,
        )
        for i, weights in enumerate(found.y.T):
            history[:, run, i] = _seven(one._replace(k=weights[None, :d], v=weights[None, d:]))[:, 0]
        options.progress((run + 1) / len(vectors.k))
    return _measured(task, model, learner, options, times, history)


def require_free_norms(task: SingleLocation, model: KeyValueAttention, learner: Any) -> None:
    if model.unit_norm:
        name = type(learner).__name__
        raise NoTheory(
            f"no simulation of {name} with {model!r} on {type(task).__name__}; the nearest are "
            f"simulate({type(task).__name__}, KeyValueAttention(...), {name}) with unit_norm=False, and "
            f"simulate(SpikedSLR, KeyValueAttention(Erf(...), unit_norm=True), "
            f"{'ProjectedDescent' if isinstance(learner, GradientFlow) else name})."
        )


def _seven(vectors: Vectors) -> np.ndarray:
    """Return the five overlaps and the two squared norms, (7, runs)."""
    squares = [np.einsum("rd,rd->r", x, x) for x in (vectors.k, vectors.v)]
    return np.concatenate([vectors.five(), np.stack(squares)])


def _measured(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: OnlineSGD | GradientFlow,
    options: SimulationOptions,
    marks: np.ndarray,
    seven: np.ndarray,
) -> Measurement:
    """Return a Measurement of the recorded overlaps (7, runs, records) and of the risks there."""
    scale = np.full(len(marks), getattr(model.activation, "scale", 1.0))
    trajectory = Trajectory(marks, scale, named(seven), _excess_risks(task, model, options, seven))
    gauge = getattr(model.activation, "odd", False) and not learner.given
    return Measurement(
        task,
        model,
        learner,
        **summarise(trajectory, task.noise_var, gauge=gauge, starts=len(learner.given) or 1),
        d=options.d,
        repeats=seven.shape[1],
        seed=options.seed,
    )


# --- sequences ----------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _advance(
    task: type[SingleLocation],
    activation: type[Activation],
    batch: int,
    lengths: tuple[int, ...],
    shares: Any,
    law: dict[str, Any],
    constants: dict[str, Any],
    vectors: Any,
    keys: Any,
    done: Any,
    count: Any,
    lr: Any,
) -> Any:
    r"""eq:free-sgd. Return k and v after `count` steps, (runs, d) each: $(k, v)\leftarrow(k, v) -
    \ell\nabla\frac1B\sum_b(y_b - f(X_b))^2$."""
    k_star, v_star, k, v = vectors

    def loss(weights: Any, batches: Any) -> Any:
        return sum(jnp.mean(chosen * _errors(activation, constants, x, y, *weights)) for chosen, x, y in batches)

    def one(t: Any, key: Any, k_star: Any, v_star: Any, k: Any, v: Any) -> Any:
        fresh = jax.random.split(jax.random.fold_in(key, t), len(lengths) + 1)
        which = jax.random.choice(fresh[-1], len(lengths), (batch,), p=shares)
        batches = []
        # no padding: for every place in the batch a sequence of each length is drawn, and one of them counts
        for i, length in enumerate(lengths):
            x, y, _ = task.draw(fresh[i], k_star, v_star, batch, length, law)
            batches.append((which == i, x, y))
        gradient = jax.grad(loss)((k, v), batches)
        return k - lr * gradient[0], v - lr * gradient[1]

    def step(i: Any, weights: Any) -> Any:
        return jax.vmap(functools.partial(one, done + i))(keys, k_star, v_star, *weights)

    return jax.lax.fori_loop(0, count, step, (k, v))


def _errors(activation: type[Activation], constants: dict[str, Any], x: Any, y: Any, k: Any, v: Any) -> Any:
    """eq:attention. Return (y - f(X))^2 of sequences (n, length, d), (n,)."""
    return (y - jnp.sum(activation.weights(x @ k, constants) * (x @ v), axis=-1)) ** 2


def _sample(
    task: SingleLocation, options: SimulationOptions, run: int, vectors: Vectors
) -> list[tuple[float, Any, Any]]:
    """Return (share, X, y) of each length."""
    key = jax.random.fold_in(jax.random.key(options.seed), run)
    drawn = []
    for length, share in task.length_law:
        one = jax.random.fold_in(key, length)
        teachers = (jnp.asarray(vectors.k_star[0]), jnp.asarray(vectors.v_star[0]))
        drawn.append((share, *_draw(type(task), options.samples, length, lower(task)[1], one, *teachers)[:2]))
    return drawn


_draw = jax.jit(
    lambda task, n, length, law, key, k_star, v_star: task.draw(key, k_star, v_star, n, length, law),
    static_argnums=(0, 1, 2),
)


@functools.partial(jax.jit, static_argnums=0)
def _velocity(activation: type[Activation], constants: dict[str, Any], sample: Any, k: Any, v: Any) -> Any:
    """eq:sample-flow. Return minus half the gradient of the mean squared error of the sample, k before v, (2 d,)."""

    def half(k: Any, v: Any) -> Any:
        return sum(share * jnp.mean(_errors(activation, constants, x, y, k, v)) for share, x, y in sample) / 2

    return -jnp.concatenate(jax.grad(half, argnums=(0, 1))(k, v))


def _excess_risks(
    task: SingleLocation, model: KeyValueAttention, options: SimulationOptions, seven: np.ndarray
) -> np.ndarray:
    """Return the excess risks, (runs, records): means over `samples` fresh sequences without noise per run.

    Only the part of a sequence in the span of the four vectors enters, so that it is drawn in four dimensions; all
    records use the same sequences.
    """
    with np.errstate(all="ignore"):  # a run that diverged has no vectors
        kappa, eta, k3, theta, nu, v3, v4 = frame_coordinates(seven[:5], seven[5], seven[6])
    k, v = np.stack([kappa, eta, k3, 0 * k3], axis=-1), np.stack([theta, nu, v3, v4], axis=-1)
    teachers = jnp.eye(4)[:2]
    law = {**lower(task)[1], "noise": 0.0}
    risks = np.zeros(seven.shape[1:])
    for run in range(len(risks)):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(options.seed), run), 1)
        for length, share in task.length_law:
            x, y, _ = _draw(type(task), options.samples, length, law, jax.random.fold_in(key, length), *teachers)
            means = _mean_errors(type(model.activation), model.constants(), x, y, k[run], v[run])
            risks[run] += share * np.asarray(means)
    return risks


@functools.partial(jax.jit, static_argnums=0)
def _mean_errors(activation: type[Activation], constants: dict[str, Any], x: Any, y: Any, k: Any, v: Any) -> Any:
    """Return the mean error at each record, (records,), one after the other because a sample is large."""
    return jax.lax.map(lambda w: jnp.mean(_errors(activation, constants, x, y, *w)), (k, v))

"""Training in time of models that say their fields: online SGD on fresh sequences, gradient flow on a fixed sample."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate

from needlepoint.core.answers.trajectories import summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.lowering import Template
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import flat_overlaps, result_names
from needlepoint.core.results import Measurement, Trajectory
from needlepoint.learners import GradientFlow, OnlineSGD, record_steps
from needlepoint.models.fields import FieldModel, informed
from needlepoint.simulation.fields.accuracy import ACCURACY
from needlepoint.simulation.fields.fresh import noise_floor
from needlepoint.simulation.fields.gauges import best_gauge, gauges
from needlepoint.simulation.fields.problem import (
    Kinds,
    check_dimension,
    check_shapes,
    draw,
    draw_data,
    kinds_and_numbers,
    local_loss,
)
from needlepoint.simulation.fields.vectors import Vectors, on_spheres, remainder, with_overlaps
from needlepoint.tasks.sequence import SequenceTask


@rule("simulate", SequenceTask, FieldModel, OnlineSGD)
def simulate_sgd(task: SequenceTask, model: FieldModel, learner: OnlineSGD, options: SimulationOptions) -> Measurement:
    """eq:field-sgd. Return the measured trajectories of SGD with free norms, with the gradient of the loss of a fresh
    batch by automatic differentiation."""
    if learner.schedule > 0:
        raise NoTheory(f"no simulation of OnlineSGD(schedule={learner.schedule:g}) with {model!r}; schedule=0 has one.")
    vectors = _starts(task, model, learner, options)
    runs = len(vectors.weights)
    keys = jax.random.split(jax.random.key(options.seed), runs)
    views = [task.at(length) for length, _ in task.length_law]
    laws = tuple(view.template for view in views), [view.numbers for view in views]
    shares = np.array([p for _, p in task.length_law])
    kinds, numbers = kinds_and_numbers(model, learner.loss)
    weights: Any = vectors.weights
    marks = record_steps(learner.steps, learner.record_every)
    history, done = [weights], 0
    for mark in marks[1:]:
        weights = _advance(
            kinds,
            laws[0],
            learner.batch,
            numbers,
            laws[1],
            shares,
            vectors.teachers,
            weights,
            keys,
            done,
            mark - done,
            learner.lr,
        )
        history.append(np.asarray(weights))
        done = mark
        options.progress(done / learner.steps)
    return _measured(task, model, learner, options, np.array(marks), vectors.teachers, np.stack(history, axis=1))


@rule("simulate", SequenceTask, FieldModel, GradientFlow)
def simulate_flow(
    task: SequenceTask, model: FieldModel, learner: GradientFlow, options: SimulationOptions
) -> Measurement:
    """eq:field-flow. Return the measured gradient flow of the weights in R^d on the mean loss over `samples` sequences
    of each length, which are drawn once per run.

    It follows the flow on the population risk up to a bias of order d / samples.
    """
    size = options.samples * options.d * sum(n for n, _ in task.length_law)
    if size > ACCURACY.largest_sample:
        raise InvalidParameter(
            f"simulate(d={options.d}, samples={options.samples}): a sample of {size:.3g} numbers is held at once, at "
            f"most {ACCURACY.largest_sample:.3g}; take a smaller d or fewer samples."
        )
    vectors = _starts(task, model, learner, options)
    kinds, numbers = kinds_and_numbers(model, learner.loss)
    times, shape = learner.record_times(), vectors.weights.shape[1:]
    history = np.full((len(vectors.weights), len(times), *shape), np.nan)
    for run, (teachers, start) in enumerate(zip(*vectors, strict=True)):
        key = jax.random.fold_in(jax.random.key(options.seed), run)
        sample = []
        for length, share in task.length_law:
            one = task.at(length)
            at = jax.random.fold_in(key, length)
            sample.append((share, *draw(one.template, options.samples, one.numbers, at, teachers)[:2]))

        def motion(_: float, weights: np.ndarray, sample: Any = sample) -> np.ndarray:
            return np.asarray(_velocity(kinds, numbers, sample, weights.reshape(shape))).ravel()

        found = integrate.solve_ivp(
            motion,
            (0.0, times[-1]),
            start.ravel(),
            "RK45",
            times,
            rtol=ACCURACY.rtol,
            atol=1e-2 * ACCURACY.rtol,
        )
        reached = found.y.T.reshape(-1, *shape)
        history[run, : len(reached)] = reached
        options.progress((run + 1) / len(vectors.weights))
    return _measured(task, model, learner, options, times, vectors.teachers, history)


def _starts(task: SequenceTask, model: FieldModel, learner: Any, options: SimulationOptions) -> Vectors:
    """Return where the runs start, `repeats` of each given start, after a check that the question can be asked."""
    name = type(learner).__name__
    if getattr(model, "unit_norm", False):
        raise NoTheory(f"no simulation of {name} with {model!r} on {type(task).__name__}; unit_norm=False has one.")
    check_dimension(task, options.d)
    rng = np.random.default_rng([options.seed, 9])
    if learner.given:
        parts = [with_overlaps(rng, task, model, o, options.repeats, options.d) for o in learner.given]
        vectors = Vectors(*(np.concatenate(x) for x in zip(*parts, strict=True)))
    elif learner.start == "sphere":
        vectors = on_spheres(rng, task, model, options.repeats, options.d)
    else:
        raise NoTheory(
            f"no simulation of {name}(start={learner.start!r}) with {model!r} on {type(task).__name__}; start='sphere' "
            "and given overlaps have one."
        )
    first = draw_data(task, task.longest, 1, jax.random.key(options.seed), vectors.teachers[0])
    check_shapes(task, model, first)
    learner.loss.check_labels(task, first.y)
    return vectors


def _measured(
    task: SequenceTask,
    model: FieldModel,
    learner: OnlineSGD | GradientFlow,
    options: SimulationOptions,
    marks: np.ndarray,
    teachers: np.ndarray,
    history: np.ndarray,
) -> Measurement:
    """Return a Measurement of the recorded weights (runs, records, P, d) and of the risks there."""
    M = np.einsum("rtpd,rsd->rtps", history, teachers)
    Q = np.einsum("rtpd,rtqd->rtpq", history, history)
    if not learner.given:
        allowed, at = gauges(model, task.longest), informed(task, model)
        for run in range(len(M)):
            gauge = best_gauge(M[run, -1], at, allowed)
            M[run] = [gauge(m) for m in M[run]]
            Q[run] = [gauge(gauge(q).T) for q in Q[run]]
    flat = np.array([[flat_overlaps(m, q) for m, q in zip(*pair, strict=True)] for pair in zip(M, Q, strict=True)])
    paths = dict(zip(result_names(model.labels, task.teachers), np.moveaxis(flat, -1, 0), strict=True))
    scale = np.full(len(marks), getattr(getattr(model, "activation", None), "scale", 1.0))
    trajectory = Trajectory(marks, scale, paths, _risks(task, model, learner, options, M, Q))
    return Measurement(
        task,
        model,
        learner,
        **summarise(trajectory, noise_floor(task, learner.loss), gauge=False, starts=len(learner.given) or 1),
        d=options.d,
        repeats=len(M),
        seed=options.seed,
    )


def _risks(
    task: SequenceTask,
    model: FieldModel,
    learner: OnlineSGD | GradientFlow,
    options: SimulationOptions,
    M: np.ndarray,
    Q: np.ndarray,
) -> np.ndarray:
    """Return the excess risks (runs, records), or the risks where there is no excess: means over `samples` fresh
    sequences a run, in the space that teachers and weights span; all records use the same ones.

    Where noise is added to the label, it is left out, which makes the mean more accurate.
    """
    S, P = M.shape[-1], M.shape[-2]
    finite = np.isfinite(Q).all(axis=(-1, -2))
    rest = np.full_like(Q, np.nan)
    rest[finite] = remainder(M[finite], Q[finite])
    weights = np.concatenate([M, rest], axis=-1)
    kinds, numbers = kinds_and_numbers(model, learner.loss)
    clean = noise_floor(task, learner.loss) is not None
    risks = np.zeros(M.shape[:2])
    for run in range(len(risks)):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(options.seed), run), 1)
        for length, share in task.length_law:
            one = task.at(length)
            here = jax.random.fold_in(key, length)
            law = (one.template, options.samples, clean)
            means = _mean_losses(kinds, law, numbers, one.numbers, here, np.eye(S + P)[:S], weights[run])
            risks[run] += share * np.asarray(means)
    return risks


# --- kernels --------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(
    kinds: Kinds,
    laws: tuple[Template, ...],
    batch: int,
    numbers: Any,
    law_numbers: Any,
    shares: Any,
    teachers: Any,
    weights: Any,
    keys: Any,
    done: Any,
    count: Any,
    lr: Any,
) -> Any:
    r"""eq:field-sgd. Return the weights (runs, P, d) after `count` steps: $w\leftarrow w - \ell\nabla\frac1B\sum_b
    m\,\ell(y_b, f(X_bw))$ with m the loss's `metric_scale`."""
    tasks = [law.bind(those) for law, those in zip(laws, law_numbers, strict=True)]

    def one(t: Any, key: Any, teachers: Any, weights: Any) -> Any:
        fresh = jax.random.split(jax.random.fold_in(key, t), len(tasks) + 1)
        which = jax.random.choice(fresh[-1], len(tasks), (batch,), p=shares)
        # no padding: for every place in the batch a sequence of each length is drawn, and one of them counts
        drawn = [task.draw_vectors(fresh[i], teachers, batch)[:2] for i, task in enumerate(tasks)]

        def loss(weights: Any) -> Any:
            return sum(
                jnp.mean((which == i) * _losses(kinds, numbers, x, y, weights)) for i, (x, y) in enumerate(drawn)
            )

        return weights - lr * jax.grad(loss)(weights)

    def step(i: Any, weights: Any) -> Any:
        return jax.vmap(functools.partial(one, done + i))(keys, teachers, weights)

    return jax.lax.fori_loop(0, count, step, weights)


def _losses(kinds: Kinds, numbers: Any, x: Any, y: Any, weights: Any) -> Any:
    """Return the losses of sequences (n, length, d), in the units of `risk`, (n,)."""
    one = functools.partial(local_loss, kinds, numbers)
    return kinds[1].bind(numbers[1]).metric_scale * jax.vmap(one)(x @ weights.T, y)


@functools.partial(jax.jit, static_argnums=0)
def _velocity(kinds: Kinds, numbers: Any, sample: Any, weights: Any) -> Any:
    """eq:field-flow. Return minus half the gradient of the sample's mean loss in the units of `risk`, (P, d)."""

    def half(weights: Any) -> Any:
        return sum(share * jnp.mean(_losses(kinds, numbers, x, y, weights)) for share, x, y in sample) / 2

    return -jax.grad(half)(weights)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _mean_losses(kinds: Kinds, law: Any, numbers: Any, law_numbers: Any, key: Any, teachers: Any, weights: Any) -> Any:
    """Return the mean loss at each record, (records,), one after the other because a sample is large."""
    template, n, clean = law
    task = template.bind(law_numbers)
    x, y, places = task.draw_vectors(key, teachers, n)
    if clean:
        y = jax.vmap(lambda fields, place: jnp.asarray(task.labelled(fields, place, 0.0), float))(
            x @ teachers.T, places
        )
    return jax.lax.map(lambda w: jnp.mean(_losses(kinds, numbers, x, y, w)), weights)

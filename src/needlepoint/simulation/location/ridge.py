"""Ridge training of attention on sampled data: L-BFGS from two or many starts, and what the minimum is worth."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import OFF_MANIFOLD, Overlaps
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import squared_error
from needlepoint.models.attention import KeyValueAttention
from needlepoint.simulation.location.ridge_amp import amp
from needlepoint.simulation.location.ridge_problem import Minimum, Problem, check_size, draw_problem
from needlepoint.simulation.location.risks import attention_errors
from needlepoint.simulation.location.signs import Signs, fix_sign, seven_overlaps
from needlepoint.simulation.location.vectors import frames
from needlepoint.simulation.minima import FITTED, are_apart, descend, lowest, notes_on_starts
from needlepoint.simulation.starts.lbfgs import minima_together
from needlepoint.simulation.starts.measures import (
    OF_A_START,
    check_starts,
    measures,
    names_of_starts,
    note_on_search,
)
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR


class Trained(NamedTuple):
    """A data set, its teachers (k*, v*) and the minimum reached from each start."""

    problem: Problem
    teachers: np.ndarray
    minima: dict[str, Minimum]

    @property
    def best(self) -> Minimum:
        return lowest(self.minima)

    @property
    def apart(self) -> bool:
        two = {name: self.minima[name] for name in ("random", "informed") if name in self.minima}
        return are_apart(two, self.problem.energy_at_zero)

    @property
    def fitted(self) -> bool:
        """Whether the minimum fits every label, up to rounding."""
        loss = self.problem.train_loss(self.best.weights) * self.problem.n / (2 * self.problem.d)
        return loss < FITTED * self.problem.energy_at_zero


class Run(NamedTuple):
    """What is kept of a repeat, without its data."""

    metrics: dict[str, float]
    overlaps: dict[str, float]
    unfinished: int
    fitted: bool


@rule("simulate", SpikedSLR, KeyValueAttention, Ridge, when=squared_error)
@rule("simulate", MaxSLR, KeyValueAttention, Ridge, when=squared_error)
@np.errstate(over="ignore", invalid="ignore")  # a run that overflows has an infinite energy, and the status says so
def simulate_ridge(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, options: SimulationOptions
) -> Measurement:
    """Return the measured minimum of eq:ridge: it is trained on fresh data and tested on fresh sequences in every
    repeat."""
    if learner.algorithm not in ("lbfgs", "amp"):
        raise NoTheory(f"no training by {learner.algorithm!r} on {type(task).__name__}; 'lbfgs' and 'amp' train it.")
    check_starts(learner, options)
    runs = []
    for repeat in range(options.repeats):
        runs.append(_run(task, model, learner, options, repeat))
        options.progress((repeat + 1) / options.repeats)
    metrics = {name: mean_estimate(np.array([run.metrics[name] for run in runs])) for name in runs[0].metrics}
    overlaps = {name: np.array([run.overlaps[name] for run in runs]) for name in runs[0].overlaps}
    estimates = {name: mean_estimate(x) for name, x in fix_sign(model.activation, overlaps).items()}
    unfinished = sum(run.unfinished for run in runs)
    finite = np.isfinite(metrics["energy"].value)
    return Measurement(
        task,
        model,
        learner,
        metrics,
        status=(Status.MAX_STEPS if unfinished else Status.CONVERGED) if finite else Status.DIVERGED,
        overlaps=Overlaps(**{name: e.value for name, e in estimates.items()}),
        overlaps_error={name: estimates[name].error for name in ("key", "value", "key_sq", "value_sq")},
        notes=tuple(_notes(learner, metrics, options, unfinished, sum(run.fitted for run in runs))),
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
    )


def _run(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, options: SimulationOptions, repeat: int
) -> Run:
    trained = train(task, model, learner, options.d, options.seed, repeat, options.starts)
    best, minima = trained.best, trained.minima

    def measured(minimum: Minimum) -> dict[str, float]:
        risk = _risk(task, model, trained.teachers, minimum.weights, options, repeat)
        train_loss = trained.problem.train_loss(minimum.weights)
        return {"risk": risk, "excess_risk": risk - task.noise_var, "train_loss": train_loss, "energy": minimum.energy}

    metrics, overlaps = measured(best), seven_overlaps(trained.teachers, best.weights)
    if learner.start == "both":
        metrics |= {f"energy_{start}": minima[start].energy for start in ("random", "informed")}
        metrics["starts_apart"] = float(trained.apart)
    if options.starts > 1:
        metrics |= {"off_manifold_sq": sum(overlaps[name] ** 2 for name in OFF_MANIFOLD)}
        metrics |= _of_starts(model, trained, measured)
    unfinished = sum(not minimum.converged for minimum in minima.values())
    return Run(metrics, overlaps, unfinished, trained.fitted)


def _of_starts(
    model: KeyValueAttention, trained: Trained, measured: Callable[[Minimum], dict[str, float]]
) -> dict[str, float]:
    signs, teachers = Signs.of(model.activation), trained.teachers

    def with_overlaps(minimum: Minimum) -> dict[str, float]:
        found = seven_overlaps(teachers, signs.fix_weights(teachers, minimum.weights))
        return {**measured(minimum), **{name: found[name] for name in OF_A_START}}

    fixed = functools.partial(signs.fix_weights, teachers)
    rounding = FITTED * trained.problem.energy_at_zero
    return measures(trained.minima, model.labels, with_overlaps, signs.changes, fixed, rounding)


@threadpool_limits.wrap(limits=1, user_api="blas")  # threads wait for each other longer than these products last
def train(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: Ridge,
    d: int,
    seed: int,
    repeat: int,
    starts: int = 1,
) -> Trained:
    """Return one repeat: fresh teachers and data, and the minima that the learner's starts lead to, of which `starts`
    are random."""
    if model.unit_norm:
        raise NoTheory(f"no simulation of Ridge with {model!r}: penalties set the norms; unit_norm=False has one.")
    n = round(learner.alpha * d)
    check_size(task, n, d)
    rng = np.random.default_rng([seed, 6, repeat])
    teachers = frames(rng, 1, d, 2)[0]
    key = jax.random.fold_in(jax.random.key(seed), repeat)
    problem = draw_problem(task, model.activation, learner.penalties, n, key, *teachers)
    random = rng.standard_normal((starts, 2, d))
    random /= np.linalg.norm(random, axis=2, keepdims=True)
    names = names_of_starts(learner, starts)
    wanted = {name: teachers if name == "informed" else random[i] for i, name in enumerate(names)}
    if starts > 1:
        return Trained(problem, teachers, minima_together(problem, wanted, Minimum))
    minimise = amp if learner.algorithm == "amp" else lbfgs
    return Trained(problem, teachers, {name: minimise(problem, weights) for name, weights in wanted.items()})


def lbfgs(problem: Problem, weights: np.ndarray) -> Minimum:
    """Return the minimum of eq:ridge that L-BFGS reaches from these weights."""
    return problem.minimum(*descend(problem.value_and_gradient, weights, problem.units, problem.tolerance))


def _risk(
    task: SingleLocation,
    model: KeyValueAttention,
    teachers: np.ndarray,
    weights: np.ndarray,
    options: SimulationOptions,
    repeat: int,
) -> float:
    """Return the mean squared error on fresh sequences, which are drawn in the span of the four vectors: the tokens are
    Gaussian, so that their other coordinates do not enter the error."""
    spanned = np.linalg.qr(np.concatenate([teachers, weights]).T)[1].T
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(options.seed), repeat), 1 << 20)
    return attention_errors(task, type(model.activation), model.constants(), key, options.samples, *spanned)


def _notes(
    learner: Ridge, metrics: dict[str, Any], options: SimulationOptions, unfinished: int, fitted: int
) -> list[str]:
    repeats, means = options.repeats, {name: estimate.value for name, estimate in metrics.items()}
    runs = repeats * len(names_of_starts(learner, options.starts))
    notes = notes_on_starts(learner.algorithm, unfinished, runs, repeats, means)
    if options.starts > 1:
        notes.append(note_on_search(options.starts, repeats, means))
    if min(learner.penalties) == 0.0:
        notes.append(
            f"with a penalty of 0 the minimum need not be unique, or reached by finite weights (every label is fitted "
            f"in {fitted} of {repeats} repeats); other starts may end elsewhere."
        )
    return notes

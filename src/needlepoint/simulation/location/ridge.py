"""Ridge training of attention on sampled data: L-BFGS from one or two starts, and what the minimum is worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import SEVEN, Overlaps, fix_gauge
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import squared_error
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.simulation.location.ridge_amp import amp
from needlepoint.simulation.location.ridge_problem import Minimum, Problem, check_size, draw_problem
from needlepoint.simulation.location.risks import attention_errors
from needlepoint.simulation.location.vectors import frames
from needlepoint.simulation.minima import FITTED, are_apart, descend, lowest, notes_on_starts
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR

_EVEN_GAUGE = ("key", "key_on_value", "key_dot_value")  # the overlaps that change sign with k alone


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
        return are_apart(self.minima, self.problem.energy_at_zero)

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
        notes=tuple(_notes(learner, metrics, options.repeats, unfinished, sum(run.fitted for run in runs))),
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
    )


def _run(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, options: SimulationOptions, repeat: int
) -> Run:
    trained = train(task, model, learner, options.d, options.seed, repeat)
    best, minima = trained.best, trained.minima
    risk = _risk(task, model, trained.teachers, best.weights, options, repeat)
    metrics = {"risk": risk, "excess_risk": risk - task.noise_var}
    metrics |= {"train_loss": trained.problem.train_loss(best.weights), "energy": best.energy}
    if len(minima) > 1:
        metrics |= {f"energy_{start}": minimum.energy for start, minimum in minima.items()}
        metrics["starts_apart"] = float(trained.apart)
    unfinished = sum(not minimum.converged for minimum in minima.values())
    return Run(metrics, _overlaps(trained.teachers, best.weights), unfinished, trained.fitted)


@threadpool_limits.wrap(limits=1, user_api="blas")  # threads wait for each other longer than these products last
def train(task: SingleLocation, model: KeyValueAttention, learner: Ridge, d: int, seed: int, repeat: int) -> Trained:
    """Return one repeat: fresh teachers and data, and the minima that the learner's starts lead to."""
    if model.unit_norm:
        raise NoTheory(f"no simulation of Ridge with {model!r}: penalties set the norms; unit_norm=False has one.")
    n = round(learner.alpha * d)
    check_size(task, n, d)
    rng = np.random.default_rng([seed, 6, repeat])
    teachers = frames(rng, 1, d, 2)[0]
    key = jax.random.fold_in(jax.random.key(seed), repeat)
    problem = draw_problem(task, model.activation, learner.penalties, n, key, *teachers)
    random = rng.standard_normal((2, d))
    starts = {"random": random / np.linalg.norm(random, axis=1, keepdims=True), "informed": teachers}
    wanted = starts if learner.start == "both" else {learner.start: starts[learner.start]}
    minimise = amp if learner.algorithm == "amp" else lbfgs
    return Trained(problem, teachers, {name: minimise(problem, weights) for name, weights in wanted.items()})


def lbfgs(problem: Problem, weights: np.ndarray) -> Minimum:
    """Return the minimum of eq:ridge that L-BFGS reaches from these weights."""
    return problem.minimum(*descend(problem.value_and_gradient, weights, problem.units, problem.tolerance))


def fix_sign(activation: Activation, overlaps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the overlaps of the repeats, (repeats,) each, with the gauge sign of larger overlap with the teachers.

    A sign that does not change the predictions is a gauge: a common sign of k and v if the activation is odd, the sign
    of k if it is even. With any other activation the overlaps are returned as they are.
    """
    scores = np.random.default_rng(0).standard_normal((8, 3))
    weights, mirrored = np.asarray(activation(scores)), np.asarray(activation(-scores))
    if np.allclose(mirrored, -weights, rtol=0.0, atol=1e-12):
        fixed = fix_gauge({name: x[:, None] for name, x in overlaps.items()})
        return {name: x[:, 0] for name, x in fixed.items()}
    if np.allclose(mirrored, weights, rtol=0.0, atol=1e-12):
        sign = np.where(overlaps["key"] < 0, -1.0, 1.0)
        return {name: sign * x if name in _EVEN_GAUGE else x for name, x in overlaps.items()}
    return overlaps


def _overlaps(teachers: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    (k_star, v_star), (k, v) = teachers, weights
    seven = (k @ k_star, v @ v_star, v @ k_star, k @ v_star, k @ v, k @ k, v @ v)
    return {name: float(x) for name, x in zip(SEVEN, seven, strict=True)}


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


def _notes(learner: Ridge, metrics: dict[str, Any], repeats: int, unfinished: int, fitted: int) -> list[str]:
    runs = repeats * (2 if learner.start == "both" else 1)
    means = {name: estimate.value for name, estimate in metrics.items()}
    notes = notes_on_starts(learner.algorithm, unfinished, runs, repeats, means)
    if min(learner.penalties) == 0.0:
        notes.append(
            f"with a penalty of 0 the minimum need not be unique, or reached by finite weights (every label is fitted "
            f"in {fitted} of {repeats} repeats); other starts may end elsewhere."
        )
    return notes

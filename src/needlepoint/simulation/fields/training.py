"""Ridge training of models that say their fields: L-BFGS or message passing from two starts, or L-BFGS from many."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import OFF_MANIFOLD, as_overlaps, flat_overlaps, result_names
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.models.fields import FieldModel, informed
from needlepoint.simulation.fields.amp import amp
from needlepoint.simulation.fields.fresh import fresh_metrics, in_their_span
from needlepoint.simulation.fields.gauges import Gauge, fix_gauge, gauges
from needlepoint.simulation.fields.problem import Minimum, Problem, check_size, draw_problem
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
from needlepoint.tasks.sequence import SequenceTask


class Trained(NamedTuple):
    """A data set, its teachers (S, d) and the minimum reached from each start."""

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
        problem = self.problem
        loss = problem.train_loss(self.best.weights) * problem.n / (problem.loss.metric_scale * problem.d)
        return loss < FITTED * problem.energy_at_zero


class Run(NamedTuple):
    """What is kept of a repeat, without its data; overlaps are in the order of `overlap_names`."""

    metrics: dict[str, float]
    overlaps: list[float]
    unfinished: int
    fitted: bool


@rule("simulate", SequenceTask, FieldModel, Ridge)
@np.errstate(over="ignore", invalid="ignore")  # a run that overflows has an infinite energy, and the status says so
def simulate_ridge(task: SequenceTask, model: FieldModel, learner: Ridge, options: SimulationOptions) -> Measurement:
    """eq:field-ridge. Return the measured minimum: it is trained on fresh data and tested on fresh sequences in every
    repeat."""
    check_learner(task, model, learner)
    check_starts(learner, options)
    allowed = gauges(model, task.longest)
    runs = []
    for repeat in range(options.repeats):
        runs.append(_run(task, model, learner, options, repeat, allowed))
        options.progress((repeat + 1) / options.repeats)
    metrics = {name: mean_estimate(np.array([run.metrics[name] for run in runs])) for name in runs[0].metrics}
    names = result_names(model.labels, task.teachers)
    found = dict(zip(names, map(mean_estimate, np.array([run.overlaps for run in runs]).T), strict=True))
    unfinished = sum(run.unfinished for run in runs)
    finite = np.isfinite(metrics["energy"].value)
    return Measurement(
        task,
        model,
        learner,
        metrics,
        status=(Status.MAX_STEPS if unfinished else Status.CONVERGED) if finite else Status.DIVERGED,
        overlaps=as_overlaps({name: e.value for name, e in found.items()}) if finite else None,
        overlaps_error={name: e.error for name, e in found.items()},
        notes=tuple(_notes(model, learner, metrics, options, unfinished, sum(run.fitted for run in runs))),
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
    )


def check_learner(task: SequenceTask, model: FieldModel, learner: Ridge) -> None:
    """Raise an error for what this rule does not train."""
    if learner.algorithm not in ("lbfgs", "amp"):
        raise NoTheory(f"no training by {learner.algorithm!r} on {type(task).__name__}; 'lbfgs' and 'amp' train it.")
    if isinstance(learner.lam, str):
        raise InvalidParameter(f"{learner!r}: lam is not chosen yet; take predict(...).resolved.")
    if getattr(model, "unit_norm", False):
        raise NoTheory(f"no simulation of Ridge with {model!r}: penalties set the norms; unit_norm=False has one.")


def _run(
    task: SequenceTask,
    model: FieldModel,
    learner: Ridge,
    options: SimulationOptions,
    repeat: int,
    allowed: list[Gauge],
) -> Run:
    trained = train(task, model, learner, options.d, options.seed, repeat, options.starts)
    best, minima = trained.best, trained.minima
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(options.seed), repeat), 1 << 20)

    def fixed(weights: np.ndarray) -> np.ndarray:
        return fix_gauge(weights, trained.teachers, informed(task, model), allowed)

    def measured(minimum: Minimum) -> dict[str, float]:
        inside = in_their_span(trained.teachers, minimum.weights)
        metrics = fresh_metrics(task, model, learner.loss, *inside, key, options.samples)
        return metrics | {"train_loss": trained.problem.train_loss(minimum.weights), "energy": minimum.energy}

    def overlaps(minimum: Minimum) -> list[float]:
        weights = fixed(minimum.weights)
        return flat_overlaps(weights @ trained.teachers.T, weights @ weights.T)

    metrics = measured(best)
    if learner.start == "both":
        metrics |= {f"energy_{start}": minima[start].energy for start in ("random", "informed")}
        metrics["starts_apart"] = float(trained.apart)
    if options.starts > 1:
        names = result_names(model.labels, task.teachers)

        def with_overlaps(minimum: Minimum) -> dict[str, float]:
            found = dict(zip(names, overlaps(minimum), strict=True))
            return measured(minimum) | {name: found[name] for name in OF_A_START if name in found}

        at_best = dict(zip(names, overlaps(best), strict=True))
        if set(OFF_MANIFOLD) <= set(names):
            metrics["off_manifold_sq"] = sum(at_best[name] ** 2 for name in OFF_MANIFOLD)
        rounding = FITTED * trained.problem.energy_at_zero
        metrics |= measures(minima, model.labels, with_overlaps, allowed, fixed, rounding)
    unfinished = sum(not minimum.converged for minimum in minima.values())
    return Run(metrics, overlaps(best), unfinished, trained.fitted)


@threadpool_limits.wrap(limits=1, user_api="blas")  # threads wait for each other longer than these products last
def train(
    task: SequenceTask, model: FieldModel, learner: Ridge, d: int, seed: int, repeat: int, starts: int = 1
) -> Trained:
    """Return one repeat: fresh teachers and data, and the minima that the learner's starts lead to, of which `starts`
    are random."""
    n = round(learner.alpha * d)
    check_size(task, n, d)
    rng = np.random.default_rng([seed, 7, repeat])
    teachers = frames(rng, 1, d, len(task.teachers))[0]
    key = jax.random.fold_in(jax.random.key(seed), repeat)
    problem = draw_problem(task, model, learner.loss, model.penalties(learner.lam), n, key, teachers)
    random = rng.standard_normal((starts, len(model.labels), d))
    random /= np.linalg.norm(random, axis=2, keepdims=True)
    names = names_of_starts(learner, starts)
    at_teachers = informed(task, model) @ teachers
    wanted = {name: at_teachers if name == "informed" else random[i] for i, name in enumerate(names)}
    if starts > 1:
        return Trained(problem, teachers, minima_together(problem, wanted, Minimum))
    minimise = amp if learner.algorithm == "amp" else lbfgs
    return Trained(problem, teachers, {name: minimise(problem, weights) for name, weights in wanted.items()})


def lbfgs(problem: Problem, weights: np.ndarray) -> Minimum:
    """Return the minimum of eq:field-ridge that L-BFGS reaches from these weights."""
    return problem.minimum(*descend(problem.value_and_gradient, weights, problem.units, problem.tolerance))


def _notes(
    model: FieldModel,
    learner: Ridge,
    metrics: dict[str, Any],
    options: SimulationOptions,
    unfinished: int,
    fitted: int,
) -> list[str]:
    repeats, means = options.repeats, {name: estimate.value for name, estimate in metrics.items()}
    runs = repeats * len(names_of_starts(learner, options.starts))
    notes = notes_on_starts(learner.algorithm, unfinished, runs, repeats, means)
    if options.starts > 1:
        notes.append(note_on_search(options.starts, repeats, means))
    if min(model.penalties(learner.lam)) == 0.0:
        notes.append(
            f"with a penalty of 0 the minimum need not be unique, or reached by finite weights (every label is fitted "
            f"in {fitted} of {repeats} repeats); other starts may end elsewhere."
        )
    return notes

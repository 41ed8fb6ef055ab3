"""The ground state of ridge training, by one step of replica symmetry breaking where replica symmetry fails."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from needlepoint.core.answers.doubts import LOWEST_MINIMUM
from needlepoint.core.answers.states import States
from needlepoint.core.dispatch import rule
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import FieldOverlaps, Overlaps, as_matrices, as_overlaps, flat_overlaps, result_names
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import Square
from needlepoint.models.fields import FieldModel
from needlepoint.tasks.sequence import SequenceTask, noise_var_of
from needlepoint.theory.fields.declared import check_declarations
from needlepoint.theory.fields.order import Order, Pattern
from needlepoint.theory.fields.population import losses
from needlepoint.theory.fields.ridge.equations import Equations
from needlepoint.theory.fields.states.accuracy import ACCURACY
from needlepoint.theory.fields.states.branch import Branch, Point, follow
from needlepoint.theory.fields.states.equations import StateEquations
from needlepoint.theory.fields.states.ground import GroundState, dimension, ground_state
from needlepoint.theory.fields.symmetry import patterns


@rule("predict_1rsb", SequenceTask, FieldModel, Ridge)
def predict_ground_state(
    task: SequenceTask, model: FieldModel, known: Prediction, options: PredictionOptions
) -> Prediction:
    """Return the ground state that one step of replica symmetry breaking finds, or the replica-symmetric prediction
    `known` with a note: states that hardly differ leave it as it is, and where no ground state is resolved its flag
    stands."""
    assert known.resolved is not None
    learner = cast("Ridge", known.resolved[2])
    start = _start(task, model, known)
    if known.stable and known.status in (Status.CONVERGED, Status.NOISE_LIMITED):
        return _with(
            known, f"replica symmetry is stable here (replicon {known.replicon:.3g}): there is nothing to break."
        )
    if known.status is Status.UNBOUNDED or start is None:
        return _with(known, "one step of replica symmetry breaking was not tried: there is no finite solution.")
    check_declarations(task, model, learner.loss)
    pattern, order = start
    problem = Equations(
        task, model, learner.loss, learner.alpha, model.penalties(learner.lam), pattern, 0, 1, options.seed
    )
    equations = StateEquations(problem, ACCURACY.coarse)
    direct = dimension(equations) == 1
    equations = replace(equations, levels=ACCURACY.coarse if direct else ACCURACY.coarse_else, follows=not direct)
    branch = follow(equations, order, lambda done: options.progress(0.1 + 0.5 * done))
    ground = None
    if branch.crossing is not None:
        ground = ground_state(branch, options.tol, lambda done: options.progress(0.6 + 0.4 * done))
        branch.why = branch.why or "the ground state is not resolved with more points"
    if ground is None or ground.status is Status.MAX_STEPS:
        return _unchanged(known, branch, options)
    return _prediction(task, model, learner, known, branch, ground)


def _start(task: SequenceTask, model: FieldModel, known: Prediction) -> tuple[Pattern, Order] | None:
    """Return the pattern of the replica-symmetric solution, and its order parameters; None if they are not finite."""
    if not isinstance(known.overlaps, Overlaps | FieldOverlaps):
        return None
    phases = patterns(task, model)
    pattern = next((p for p in phases if p.name == known.branch), phases[0])
    M, Q = as_matrices(known.overlaps, model.labels, task.teachers)
    V = np.diag([known.conjugates.get(f"{label}_susceptibility", math.nan) for label in model.labels])
    if not all(np.all(np.isfinite(matrix)) for matrix in (M, Q, V)):
        return None
    order = pattern.unpack(pattern.pack(Order(M * pattern.M, Q * pattern.Q, V)))
    return pattern, order


def _with(known: Prediction, note: str, **changed: object) -> Prediction:
    return replace(known, notes=(*known.notes, note), **changed)  # pyright: ignore[reportArgumentType]  # by name


def _unchanged(known: Prediction, branch: Branch, options: PredictionOptions) -> Prediction:
    """Return the replica-symmetric prediction: trusted where states hardly differ, else as it was."""
    tol = options.tol or ACCURACY.tolerance * abs(known.metrics["risk"].value)
    if not branch.exists:
        note = "one-step correction below 0.01 %: all states are one at the x that were tried"
        if known.status is not Status.UNSTABLE or (known.replicon or math.inf) >= 1.0:
            return _with(known, f"{note}.")
        return _trusted(known, 0.0, f"{note}, and the replica-symmetric answer stands.", tol)
    change, differ = _change(branch)
    resolved = [point for point in branch.points if point.resolved]
    said = f"up to x = {resolved[-1].x:.3g} states differ by at most {100 * differ:.1f} % of their squared norms"
    if differ > ACCURACY.small_apart or change > ACCURACY.small_change:
        return _with(known, f"no ground state was resolved by one step of replica symmetry breaking: {branch.why}.")
    note = f"one-step correction below {100 * change:.1g} %: {said}, and the replica-symmetric answer stands."
    return _trusted(known, change, note, tol)


def _trusted(known: Prediction, change: float, note: str, tol: float) -> Prediction:
    """Return a replica-symmetric prediction that counts as trusted up to this relative change of its metrics."""
    if known.status is not Status.UNSTABLE:
        return _with(known, note)
    wider = {
        name: replace(e, error=e.error + change * abs(e.value)) if name in _CHANGED else e
        for name, e in known.metrics.items()
    }
    enough = wider["risk"].error <= tol
    kept = tuple(n for n in known.notes if not n.startswith("not to be trusted") and n != LOWEST_MINIMUM)
    return replace(
        known,
        status=Status.CONVERGED if enough else Status.NOISE_LIMITED,
        stable=None,
        replicon=None,
        doubt={},
        metrics=wider,
        notes=(*kept, note),
    )


_CHANGED = ("risk", "excess_risk", "train_loss", "energy")


def _change(branch: Branch) -> tuple[float, float]:
    """Return the largest relative change of a metric along the resolved points, and the largest share in which states
    differ."""
    resolved = [point for point in branch.points if point.resolved]
    problem = branch.equations.problem

    def metrics(point: Point) -> np.ndarray:
        order = point.order
        found = losses(
            problem.task, problem.model, problem.loss, order.M, order.within, ACCURACY.test_points, 2, problem.seed
        )
        return np.array([found[:, 0].mean(), float(point.means.loss), point.energies.parts])

    first, *others = [metrics(point) for point in resolved]
    change = max((float(np.max(np.abs(other / first - 1))) for other in others), default=math.inf)
    return change, max(point.apart for point in resolved)


def _prediction(
    task: SequenceTask, model: FieldModel, learner: Ridge, known: Prediction, branch: Branch, ground: GroundState
) -> Prediction:
    """Return the ground state as a Prediction."""
    metrics = {"risk": ground.risk}
    noise = noise_var_of(task) if isinstance(learner.loss, Square) else None
    if noise is not None and isinstance(learner.loss, Square):
        metrics["excess_risk"] = ground.risk - learner.loss.weight * noise
    if ground.error_rate is not None:
        metrics["error_rate"] = ground.error_rate
    metrics |= {"train_loss": ground.train_loss, "energy": ground.energy}
    names = result_names(model.labels, task.teachers)
    values = dict(zip(names, flat_overlaps(ground.order.M, ground.order.within), strict=True))
    errors = dict(zip(names, flat_overlaps(ground.order_error.M, ground.order_error.within), strict=True))
    between = {
        label: Estimate(float(ground.order.between[i, i]), float(ground.order_error.between[i, i]))
        for i, label in enumerate(model.labels)
    }
    points = [point for point in branch.points if point.resolved]
    states = States(
        ground.x,
        between,
        np.array([point.x for point in points]),
        np.array([point.energies.state for point in points]),
        np.array([point.complexity for point in points]),
        np.array([point.energies.free for point in points]),
        ground.share,
    )
    symmetric = known.metrics.get("excess_risk", known.metrics["risk"])
    notes = (
        f"the ground state (lowest minimum) by one step of replica symmetry breaking, at x = {ground.x}; the "
        f"replica-symmetric answer is {symmetric.value:.4g} at the energy {known.metrics['energy'].value:.4g}. Its own "
        "stability is not known. One training run ends above it: simulate(..., starts=64) looks for it.",
    )
    if ground.status is Status.NOISE_LIMITED:
        notes += (f"the risk is known to {ground.risk.error:.2g} with the most points that are worth it.",)
    kept = tuple(note for note in known.notes if "best penalt" in note)
    return Prediction(
        known.task,
        known.model,
        known.learner,
        metrics,
        status=ground.status,
        overlaps=as_overlaps(values),
        overlaps_error=errors,
        branch="ground state",
        notes=(*notes, *kept),
        seed=known.seed,
        resolved=known.resolved,
        residual=ground.residual,
        conjugates={
            f"{name}_susceptibility": float(v)
            for name, v in zip(model.labels, np.diagonal(ground.order.V), strict=True)
        },
        states=states,
    )

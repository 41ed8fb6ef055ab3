"""Ridge training for any field law and output: the replica-symmetric prediction, and whether to trust it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from needlepoint.core.answers.doubts import LOWEST_MINIMUM
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import as_overlaps, flat_overlaps, result_names
from needlepoint.core.results import Prediction, Progress
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import Square
from needlepoint.models.fields import FieldModel, informed
from needlepoint.tasks.sequence import SequenceTask, noise_var_of
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.declared import check_declarations, kinked
from needlepoint.theory.fields.envelope import freedom
from needlepoint.theory.fields.law import parts
from needlepoint.theory.fields.order import Pattern
from needlepoint.theory.fields.ridge.penalties import Search, learner_lam, risk_of_zero
from needlepoint.theory.fields.ridge.solutions import Solution, solve
from needlepoint.theory.penalties.answers import raised
from needlepoint.theory.penalties.search import least_risk
from needlepoint.theory.penalties.sensitivity import Sensitivity


@rule("predict", SequenceTask, FieldModel, Ridge)
def predict_fields(task: SequenceTask, model: FieldModel, learner: Ridge, options: PredictionOptions) -> Prediction:
    """Return the branch of lowest energy of eq:field-equations; notes say what makes it doubtful."""
    require(task, model, learner)
    if isinstance(learner.lam, str):
        return at_best_penalties(task, model, learner, options)
    return prediction(task, model, learner, options, branches(task, model, learner, options))


def branches(
    task: SequenceTask,
    model: FieldModel,
    learner: Ridge,
    options: PredictionOptions,
    phases: Sequence[Pattern] | None = None,
) -> list[Solution]:
    """Return all solutions of the equations for a learner with given penalties, the best first; in these phases, or in
    all."""
    return solve(
        task,
        model,
        learner.loss,
        learner.alpha,
        model.penalties(learner.lam),
        informed(task, model),
        start=learner.start,
        tol=options.tol,
        seed=options.seed,
        progress=options.progress,
        phases=phases,
    )


def at_best_penalties(task: SequenceTask, model: FieldModel, learner: Ridge, options: PredictionOptions) -> Prediction:
    """Return the prediction at the penalties of least predicted risk. The risk's error includes how far it may be above
    the least.

    Where the solution at full accuracy is another than the one that the search followed, the penalties are sought again
    with every solution from the starts, and the lower of the two risks counts.
    """
    scale = risk_of_zero(task, model, learner)
    tol = options.tol or ACCURACY.tolerance * scale
    answers: list[Prediction] = []
    for follows in (True, False):
        early, late = (functools.partial(_part, options.progress, before) for before in (0.0, 0.5))
        best = least_risk(Search(task, model, learner, scale, options.seed, follows, early), tol / scale)
        shortfall, left = scale * best.shortfall, scale * best.left(tol / scale)
        resolved = learner.replace(lam=learner_lam(best.penalties), common=False)
        first, *others = branches(task, model, resolved, replace(options, tol=left, progress=late))
        risk, status = raised(first.risk, first.status, shortfall, tol)
        known = replace(first, risk=risk, status=status)
        notes = (*best.notes, best.how_known(scale))
        answers.append(prediction(task, model, learner, options, [known, *others], resolved, notes))
        if best.known is None or _same(best.known, first):
            break
    return min(answers, key=lambda answer: (not answer.ok, answer.risk.value))


def _part(progress: Progress, before: float, done: float) -> None:
    progress(before + done / 2)


def _same(followed: Sensitivity, solution: Solution) -> bool:
    """Return whether a solution is the one that the search followed."""
    pattern = solution.equations.pattern
    if followed.branch != pattern:
        return False
    x = pattern.pack(pattern.fixed(pattern.unpack(followed.x)))
    return bool(np.max(np.abs(solution.x - x)) < ACCURACY.response_near)


def require(task: SequenceTask, model: FieldModel, learner: Ridge) -> None:
    """Raise an error for questions that the equations do not cover, and for declarations that do not hold."""
    name = type(model).__name__
    if getattr(model, "unit_norm", False):
        raise NoTheory(f"no rule for Ridge with {model!r} (a penalty chooses the norms); unit_norm=False has one.")
    free = getattr(model, "free_constants", list)()
    if free:
        raise InvalidParameter(f"{model!r}: {free[0]} is None; Ridge needs its value.")
    if not isinstance(learner.lam, str):
        model.penalties(learner.lam)
    check_declarations(task, model, learner.loss)
    most = max(freedom(part.kind) for part in parts(task, model, learner.loss))
    if most > ACCURACY.large:
        raise NoTheory(
            f"{task!r} with {name}: every sequence is minimised over {most} fields, and beyond {ACCURACY.large} a "
            "point takes longer than minutes; take fewer tokens or columns, or simulate."
        )


def prediction(
    task: SequenceTask,
    model: FieldModel,
    learner: Ridge,
    options: PredictionOptions,
    found: list[Solution],
    resolved: Ridge | None = None,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """Return the first of the solutions as a Prediction, with everything that speaks against it. `resolved` is the
    learner with the penalties that were chosen, where it has not said them."""
    best = found[0]
    status, judged, doubts = best.status, best.stability, []
    if status is Status.NOISE_LIMITED:
        notes += (f"the risk is known to {best.risk.error:.2g} with the most points that are worth it.",)
    elif status is Status.MAX_STEPS:
        notes += (f"the iteration stopped where it still moves by {best.residual:.1g}.",)
    elif status is Status.UNBOUNDED:
        notes += ("some weights are held neither by a penalty nor by the samples; give a small penalty (lam=1e-3).",)
    if best.same_as is not None:
        smaller = best.same_as.equations
        names = zip(smaller.model.labels, smaller.penalties, strict=True)
        held = ", ".join(f"{name} {penalty:.4g}" for name, penalty in names)
        notes += (f"all heads are equal: they are one of {smaller.model!r} with the penalties {held}.",)
    for other in found[1:]:
        where = (
            f"{other.equations.pattern.name} branch" if other.equations.pattern.name != "unique" else "second solution"
        )
        notes += (
            f"there is a {where} (from the {other.start} start) of energy {other.energy.value:.6g} against "
            f"{best.energy.value:.6g}, risk {other.risk.value:.4g}.",
        )
    if any(kinked(part.kind.model, part.kind.tokens) for part in best.equations.parts):
        judged = None
        notes += ("the output has kinks, where derivatives say nothing: stability is not known.",)
    if judged is not None:
        doubts = [*judged.doubts]
        for other in found[1:]:
            if other.energy.value - best.energy.value <= best.energy.error + other.energy.error:
                doubts.append(
                    f"which of two solutions is lower is not decided (energies {best.energy} and {other.energy}, risks "
                    f"{best.risk} and {other.risk})"
                )
        if doubts:
            notes += (f"not to be trusted: {'; '.join(doubts)}.", LOWEST_MINIMUM)
            status = status if status is Status.MAX_STEPS else Status.UNSTABLE
    metrics = {"risk": best.risk}
    noise = noise_var_of(task) if isinstance(learner.loss, Square) else None
    if noise is not None and isinstance(learner.loss, Square):
        metrics["excess_risk"] = best.risk - learner.loss.weight * noise
    if best.error_rate is not None:
        metrics["error_rate"] = best.error_rate
    metrics |= {"train_loss": best.train_loss, "energy": best.energy}
    if judged is not None:
        metrics["jump_weight"] = Estimate(judged.jump_weight, 3 * judged.jump_error)
    names = result_names(model.labels, task.teachers)
    values = dict(zip(names, flat_overlaps(best.order.M, best.order.Q), strict=True))
    errors = dict(zip(names, flat_overlaps(best.order_error.M, best.order_error.Q), strict=True))
    pattern = best.equations.pattern.name
    return Prediction(
        task,
        model,
        learner,
        metrics,
        status=status,
        overlaps=as_overlaps(values),
        overlaps_error=errors,
        branch=pattern if pattern != "unique" else best.start if len(found) > 1 else "unique",
        notes=notes,
        seed=options.seed,
        resolved=(task, model, resolved or learner),
        stable=None if judged is None else not doubts,
        replicon=None if judged is None else judged.replicon,
        residual=best.residual,
        conjugates={
            f"{name}_susceptibility": float(v) for name, v in zip(model.labels, np.diagonal(best.order.V), strict=True)
        },
    )

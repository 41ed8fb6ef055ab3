"""Ridge-penalised attention from finitely many samples: the replica-symmetric prediction, and whether to trust it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from needlepoint.core.answers.doubts import LOWEST_MINIMUM, answers
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import Square
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.doubt import shares
from needlepoint.theory.location.ridge.penalty import best_penalties
from needlepoint.theory.location.ridge.solutions import Solution
from needlepoint.theory.location.ridge.solving import TOLERANCE, solve
from needlepoint.theory.penalties.answers import Trail, raised


def answers_for(task: SingleLocation, model: KeyValueAttention, learner: Ridge) -> bool:
    """Return whether the equations of this module are for the question: the square error, and one spread."""
    return learner.loss == Square() and task.label_var == 1.0


@rule("predict", SpikedSLR, KeyValueAttention, Ridge, when=answers_for)
@rule("predict", MaxSLR, KeyValueAttention, Ridge, when=answers_for)
def predict_ridge(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, options: PredictionOptions
) -> Prediction:
    """Return the branch of lowest energy; a note says if other branches, an unstable replica symmetry or jumps of the
    proximal map make it doubtful."""
    require_ridge(task, model)
    if isinstance(learner.lam, str):
        return at_best_penalties(task, model, learner, options)[0]
    return prediction(task, model, learner, learner, options, branches(task, model, learner, options))


def at_best_penalties(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: Ridge,
    options: PredictionOptions,
    trail: Trail | None = None,
    **near: Any,
) -> tuple[Prediction, Solution, Trail | None]:
    """Return the prediction at the penalties of least predicted risk, its solution, and what the search for them leaves
    for a neighbour's. The risk's error includes how far it may be above the least.

    Where the solution at full accuracy is another than the one that the search followed, the penalties are sought again
    with every solution from the starts, and the lower of the two risks counts.
    """
    tol = options.tol or TOLERANCE
    early = replace(options, progress=lambda done: options.progress(done / 2))
    answers: list[tuple[Prediction, Solution, Trail | None]] = []
    for follows in (True, False):
        best = best_penalties(
            task, model, learner, options.seed, tol, early.progress, trail=trail if follows else None, follows=follows
        )
        resolved = learner.replace(lam=best.penalties, common=False)
        late = replace(options, tol=best.left(tol), progress=lambda done: options.progress((1 + done) / 2))
        found = branches(task, model, resolved, late, follows=True, **(near if follows else {}))
        known, minima = _raised(found[0], best.shortfall, tol), found[0].equations.known
        answer = prediction(
            task, model, learner, resolved, options, [known, *found[1:]], (*best.notes, best.how_known())
        )
        found[0].equations.recall(minima)  # for the next point of a curve
        answers.append((answer, found[0], best.trail))
        if best.x is not None and np.max(np.abs(found[0].seed.x - best.x)) < ACCURACY.gap:
            break
    return min(answers, key=lambda answer: (not answer[0].ok, answer[1].excess_risk.value))


def _raised(solution: Solution, shortfall: float, tol: float) -> Solution:
    """Return the solution with the shortfall added to the error of its risk, and the status that follows."""
    risk, status = raised(solution.excess_risk, solution.status, shortfall, tol)
    return replace(solution, excess_risk=risk, status=status)


def branches(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, options: PredictionOptions, **near: Any
) -> list[Solution]:
    """Return all solutions of the equations for a learner with given penalties, the best first."""
    given = {"tol": options.tol or TOLERANCE, "seed": options.seed, "progress": options.progress}
    return solve(task, model, learner.alpha, learner.penalties, start=learner.start, **given, **near)


def require_ridge(task: SingleLocation, model: KeyValueAttention) -> None:
    """Raise an error for tasks and models that the equations do not cover."""
    if model.unit_norm:
        raise NoTheory(f"no rule for Ridge with {model!r} (a penalty chooses the norms); unit_norm=False has one.")
    if model.free_constants():
        raise InvalidParameter(f"{model!r}: {model.free_constants()[0]} is None; Ridge needs its value.")


def prediction(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: Ridge,
    resolved: Ridge,
    options: PredictionOptions,
    found: list[Solution],
    notes: tuple[str, ...] = (),
) -> Prediction:
    """Return the first of the solutions as a Prediction, with everything that speaks against it."""
    best = found[0]
    status, judged, doubts = best.status, best.stability, []
    if status is Status.UNBOUNDED:
        notes += (_unheld(best, resolved),)
    elif status is Status.NOISE_LIMITED and best.excess_risk.error > (options.tol or TOLERANCE):
        notes += (
            f"the excess risk is known to {best.excess_risk.error:.2g} with the most points that are worth it; "
            f"{options.tol or TOLERANCE:g} was asked for.",
        )
    elif status is Status.MAX_STEPS:
        notes += (f"the iteration stopped where it still moves by {best.residual:.1g}.",)
    if judged is not None:
        doubts = [*judged.doubts, *_apart(found)]
        if doubts:
            notes += (f"not to be trusted: {'; '.join(doubts)}.", LOWEST_MINIMUM)
            status = status if status is Status.MAX_STEPS else Status.UNSTABLE
    for solution in found:
        solution.equations.forget()
    order, error = best.order, best.order_error
    loss = task.label_var + task.noise_var  # of predicting zero
    given = {
        "risk": best.excess_risk + task.noise_var,
        "excess_risk": best.excess_risk,
        "train_loss": best.train_loss,
        "energy": best.energy,
    }
    doubt: dict[str, float] = {}
    if judged is not None and judged.doubts and status is Status.UNSTABLE:
        doubt = shares(judged)
        doubt["risk"] = doubt["excess_risk"] * abs(best.excess_risk.value) / max(given["risk"].value, 1e-300)
        doubt = {name: doubt[name] for name in given}
    metrics, empty = answers(
        given,
        doubt,
        {"risk": loss, "excess_risk": loss, "train_loss": loss, "energy": resolved.alpha * loss / 2},
    )
    notes += empty
    if judged is not None:
        metrics["jump_weight"] = Estimate(judged.jump_weight, 3 * judged.jump_error)
    return Prediction(
        task,
        model,
        learner,
        metrics,
        status=status,
        overlaps=Overlaps(order.m_k, order.m_v, key_sq=order.q_k, value_sq=order.q_v),
        overlaps_error={"key": error.m_k, "value": error.m_v, "key_sq": error.q_k, "value_sq": error.q_v},
        branch=best.start if len(found) > 1 else "unique",
        notes=notes,
        seed=options.seed,
        resolved=(task, model, resolved),
        stable=None if judged is None else not doubts,
        replicon=None if judged is None else judged.replicon,
        residual=best.residual,
        conjugates=conjugates(best),
        doubt=doubt,
    )


def conjugates(solution: Solution) -> dict[str, float]:
    """Return the conjugates by the names of their order parameters, and the susceptibilities V."""
    hat, order = solution.conjugate, solution.order
    return {
        "key": hat.m_k,
        "key_sq": hat.q_k,
        "key_response": hat.V_k,
        "value": hat.m_v,
        "value_sq": hat.q_v,
        "value_response": hat.V_v,
        "key_susceptibility": order.V_k,
        "value_susceptibility": order.V_v,
    }


def _apart(found: list[Solution]) -> list[str]:
    best, *others = found
    return [
        f"the {other.start} start ends elsewhere (excess risk {other.excess_risk.value:.4g}, energy "
        f"{other.energy.value:.6g} against {best.energy.value:.6g})"
        if other.start != best.start
        else f"the equations have a second solution (excess risk {other.excess_risk.value:.4g}, energy "
        f"{other.energy.value:.6g} against {best.energy.value:.6g})"
        for other in others
    ]


def _unheld(solution: Solution, learner: Ridge) -> str:
    """Return a note that names the weights that nothing holds: too few samples for penalties of zero."""
    names = [
        name
        for name, V in (("key", solution.order.V_k), ("value", solution.order.V_v))
        if math.log(V) > math.log(max(solution.order.V_k, solution.order.V_v)) / 2
    ]
    return (
        f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} held neither by the penalty nor by "
        f"alpha={learner.alpha:g} d samples: the training error reaches {solution.train_loss.value:.2g} and the "
        "minimum is not unique; give a small penalty (lam=1e-3) or more samples."
    )

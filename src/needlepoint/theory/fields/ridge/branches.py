"""The phases of a question one by one, and where they exchange their order."""

from __future__ import annotations

import math
from typing import NamedTuple

from needlepoint.core.dispatch import check_question, check_tolerance
from needlepoint.core.errors import InvalidParameter, NotConverged
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction
from needlepoint.learners import Ridge
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.precision import float64
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.ridge.prediction import branches, prediction, require
from needlepoint.theory.fields.ridge.solutions import Solution
from needlepoint.theory.fields.symmetry import patterns


@float64
def field_branches(
    task: SequenceTask, model: FieldModel, learner: Ridge, *, seed: int = 0, tol: float | None = None
) -> dict[str, Prediction]:
    """Return the solution of lowest energy in every phase, by the names of the teachers that it may be aligned with.

    A task and a model have phases if both declare a flip that changes nothing: in one the model is aligned with the
    teachers of the flip, in the other it is not. Without such flips there is one, "unique".

    >>> learner = ndl.Ridge(2.0, 0.04, loss=ndl.Square(0.25))
    >>> found = ndl.field_branches(ndl.PositionalSemantic(0.3), ndl.LowRankTied(), learner, tol=1e-3)
    >>> sorted(found), found["semantic"].energy < found["positional"].energy
    (['positional', 'semantic'], True)
    """
    check_question("field_branches", task, model, learner, seed)
    check_tolerance("field_branches", tol)
    for part, base in ((task, SequenceTask), (model, FieldModel), (learner, Ridge)):
        if not isinstance(part, base):
            raise InvalidParameter(f"field_branches({part!r}): give a SequenceTask, a FieldModel and Ridge(...).")
    if isinstance(learner.lam, str):
        raise InvalidParameter(
            "field_branches(lam='optimal'): the phases are compared at one penalty; give it, such as that of "
            "predict(...).resolved."
        )
    options = PredictionOptions(seed, tol)
    every = _phases(task, model, learner, options)
    return {name: prediction(task, model, learner, options, solutions) for name, solutions in every.items()}


def _phases(
    task: SequenceTask, model: FieldModel, learner: Ridge, options: PredictionOptions
) -> dict[str, list[Solution]]:
    """Return the solutions in every phase, that of lowest energy first."""
    require(task, model, learner)
    return {
        pattern.name: branches(task, model, learner, options, phases=[pattern]) for pattern in patterns(task, model)
    }


@float64
def energy_crossing(
    task: SequenceTask,
    model: FieldModel,
    learner: Ridge,
    between: tuple[float, float],
    *,
    seed: int = 0,
    tol: float | None = None,
) -> Estimate:
    r"""eq:field-crossing. Return the alpha between two bounds at which the energies of the two phases of lowest energy
    cross.

    The energies have the derivatives $\Phi$ by alpha, so that the crossing is a Newton step $-\Delta e/\Delta\Phi$ away
    from where they were last compared. The error is the sum of the errors of both energies there over the difference of
    the slopes there, less its own error, and what the curvature of the energies leaves of the last step.
    `learner.alpha` is not used.

    >>> learner = ndl.Ridge(1.0, 0.04, loss=ndl.Square(0.25))
    >>> found = ndl.energy_crossing(ndl.PositionalSemantic(0.3), ndl.LowRankTied(), learner, (1.1, 1.4), tol=1e-3)
    >>> 1.2 < found.value < 1.3
    True
    """
    options = PredictionOptions(seed, tol)
    low, high = (_gap(task, model, learner.replace(alpha=alpha), options) for alpha in between)
    if low.height.value * high.height.value > 0:
        raise InvalidParameter(
            f"energy_crossing(between={between}): the same phase is lower at both ends (differences "
            f"{low.height.value:.3g} and {high.height.value:.3g}); give bounds on both sides of the crossing."
        )
    # the straight line through the ends; then Newton's steps, or halves where these leave the interval
    bend = abs(high.slope.value - low.slope.value) / (high.alpha - low.alpha)
    share = low.height.value / (low.height.value - high.height.value)
    alpha = low.alpha + share * (high.alpha - low.alpha)
    for _ in range(ACCURACY.crossing_steps):
        here = _gap(task, model, learner.replace(alpha=alpha), options)
        step = here.height / here.slope if here.slope.value else Estimate(math.inf, math.inf)
        found = alpha - step
        left = bend * step.value**2 / (2 * max(abs(here.slope.value) - here.slope.error, 1e-300))
        low, high = (here, high) if here.height.value * low.height.value > 0 else (low, here)
        if abs(step.value) <= max(step.error, ACCURACY.crossing_step * (between[1] - between[0])):
            return Estimate(found.value, found.error + left)
        inside = low.alpha < found.value < high.alpha
        alpha = found.value if inside else (low.alpha + high.alpha) / 2
    return Estimate((low.alpha + high.alpha) / 2, high.alpha - low.alpha)


class Gap(NamedTuple):
    """The difference of the energies of two phases at an alpha, and of their derivatives by it."""

    alpha: float
    height: Estimate
    slope: Estimate


def _gap(task: SequenceTask, model: FieldModel, learner: Ridge, options: PredictionOptions) -> Gap:
    found = _phases(task, model, learner, options)
    if len(found) != 2:
        raise InvalidParameter(f"energy_crossing({task!r}): it has {len(found)} phases; a crossing needs two.")
    for name, solutions in found.items():
        if not solutions[0].solved:
            answer = prediction(task, model, learner, options, solutions)
            raise NotConverged(f"the {name} branch is not solved at alpha={learner.alpha:g}.", answer)
    first, second = (solutions[0] for solutions in found.values())
    return Gap(learner.alpha, first.energy - second.energy, first.envelope - second.envelope)

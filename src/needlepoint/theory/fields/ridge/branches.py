"""The phases of a question one by one, and where they exchange their order."""

from __future__ import annotations

import math
from typing import cast

from scipy import optimize

from needlepoint.core.dispatch import check_question, check_tolerance
from needlepoint.core.errors import InvalidParameter, NotConverged
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction
from needlepoint.learners import Ridge
from needlepoint.models.fields import FieldModel, informed
from needlepoint.numerics.precision import float64
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.ridge.prediction import prediction, require
from needlepoint.theory.fields.ridge.solutions import solve
from needlepoint.theory.fields.symmetry import patterns


@float64
def field_branches(
    task: SequenceTask, model: FieldModel, learner: Ridge, *, seed: int = 0, tol: float | None = None
) -> dict[str, Prediction]:
    """Return the solution of lowest energy in every phase, by the names of the teachers that it is aligned with.

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
    require(task, model, learner)
    options = PredictionOptions(seed, tol)
    found: dict[str, Prediction] = {}
    for pattern in patterns(task, model):
        solutions = solve(
            task,
            model,
            learner.loss,
            learner.alpha,
            model.penalties(learner.lam),
            informed(task, model),
            start=learner.start,
            tol=tol,
            seed=seed,
            phases=[pattern],
        )
        found[pattern.name] = prediction(task, model, learner, options, solutions)
    return found


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
    """Return the alpha between two bounds at which the energies of the two phases of lowest energy cross.

    The error is that of the difference of the energies over its slope. `learner.alpha` is not used.

    >>> learner = ndl.Ridge(1.0, 0.04, loss=ndl.Square(0.25))
    >>> found = ndl.energy_crossing(ndl.PositionalSemantic(0.3), ndl.LowRankTied(), learner, (1.1, 1.4), tol=1e-3)
    >>> 1.2 < found.value < 1.3
    True
    """
    low, high = between
    errors: dict[float, float] = {}

    def gap(alpha: float) -> float:
        found = field_branches(task, model, learner.replace(alpha=alpha), seed=seed, tol=tol)
        if len(found) != 2:
            raise InvalidParameter(f"energy_crossing({task!r}): it has {len(found)} phases; a crossing needs two.")
        for name, branch in found.items():
            if not math.isfinite(branch.energy.error):
                raise NotConverged(f"the {name} branch is not solved at alpha={alpha:g}.", branch)
        first, second = (branch.energy for branch in found.values())
        errors[alpha] = math.hypot(first.error, second.error)
        return first.value - second.value

    ends = [gap(low), gap(high)]
    if ends[0] * ends[1] > 0:
        raise InvalidParameter(
            f"energy_crossing(between={between}): the same phase is lower at both ends (differences {ends[0]:.3g} and "
            f"{ends[1]:.3g}); give bounds on both sides of the crossing."
        )
    width = 1e-3 * (high - low)
    root = cast("float", optimize.brentq(gap, low, high, xtol=width))
    slope = abs(ends[1] - ends[0]) / (high - low)
    return Estimate(root, max(errors.values()) / slope + width)

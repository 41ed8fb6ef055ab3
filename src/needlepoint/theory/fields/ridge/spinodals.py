"""Where the phases of a question end when they are followed in alpha, or are no longer to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from needlepoint.core.dispatch import check_question, check_tolerance
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.learners import Ridge
from needlepoint.models.fields import FieldModel, informed
from needlepoint.numerics.precision import float64
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.ridge.prediction import require
from needlepoint.theory.fields.ridge.solutions import Solution, followed, solve
from needlepoint.theory.fields.symmetry import patterns

STEP = 1.25
"""Factor by which alpha moves while the branch is there."""


@dataclass(frozen=True)
class Ending:
    """Where a branch ends in one direction: `alpha` with half the width of its bracket as error, and why; None if it
    goes on to the bound.

    >>> ndl.Ending(None, "it goes on to alpha=3").alpha is None
    True
    """

    alpha: Estimate | None
    reason: str


@dataclass(frozen=True)
class Spinodals:
    """The two ends of a branch that is followed in alpha.

    >>> below, above = ndl.Ending(ndl.Estimate(1.2, 0.1), "it ends"), ndl.Ending(None, "it goes on")
    >>> ndl.Spinodals("semantic", below, above).above.alpha is None
    True
    """

    branch: str
    below: Ending
    above: Ending


@float64
def field_spinodals(
    task: SequenceTask,
    model: FieldModel,
    learner: Ridge,
    between: tuple[float, float],
    *,
    width: float = 0.02,
    seed: int = 0,
    tol: float | None = None,
) -> dict[str, Spinodals]:
    """Return the ends of every phase, by its name, when it is followed from `learner.alpha` to both bounds.

    A branch ends where its equations have no solution nearby that their iteration holds, or where the solution is not
    to be trusted (its replicon, jumps, or a broken symmetry); the reason says which. The place is bracketed to `width`
    of alpha by each of two sets of points, and the error is half of what both brackets cover together.

    >>> learner = ndl.Ridge(2.0, 0.04, loss=ndl.Square(0.25))
    >>> found = ndl.field_spinodals(ndl.PositionalSemantic(0.3), ndl.LowRankTied(), learner, (1.9, 2.1), tol=1e-3)
    >>> found["semantic"].below.alpha is None
    True
    """
    check_question("field_spinodals", task, model, learner, seed)
    check_tolerance("field_spinodals", tol)
    for part, base in ((task, SequenceTask), (model, FieldModel), (learner, Ridge)):
        if not isinstance(part, base):
            raise InvalidParameter(f"field_spinodals({part!r}): give a SequenceTask, a FieldModel and Ridge(...).")
    low, high = between
    if not (0 < low <= learner.alpha <= high):
        raise InvalidParameter(
            f"field_spinodals(between={between}): give bounds on both sides of learner.alpha ({learner.alpha:g}), from "
            "where the branches are followed."
        )
    require(task, model, learner)
    found: dict[str, Spinodals] = {}
    for pattern in patterns(task, model):
        ends: list[tuple[_Bracket, _Bracket]] = []
        for one in (seed, seed + 1):
            start = solve(
                task,
                model,
                learner.loss,
                learner.alpha,
                model.penalties(learner.lam),
                informed(task, model),
                start=learner.start,
                tol=tol,
                seed=one,
                phases=[pattern],
            )[0]
            ends.append((_end(start, low, width, tol), _end(start, high, width, tol)))
        below, above = zip(*ends, strict=True)
        found[pattern.name] = Spinodals(pattern.name, _joined(below), _joined(above))
    return found


@dataclass(frozen=True)
class _Bracket:
    """The last alpha at which the branch is there, and the first at which it is not (None: it reaches the bound)."""

    there: float
    gone: float | None
    reason: str


def _joined(brackets: tuple[_Bracket, ...]) -> Ending:
    """Return the middle of what the brackets cover, with half of its width."""
    gone = [b.gone for b in brackets if b.gone is not None]
    if not gone:
        return Ending(None, brackets[0].reason)
    ends = [*gone, *(b.there for b in brackets)]
    reason = "; ".join(dict.fromkeys(b.reason for b in brackets))
    return Ending(Estimate((max(ends) + min(ends)) / 2, (max(ends) - min(ends)) / 2), reason)


def _end(start: Solution, bound: float, width: float, tol: float | None) -> _Bracket:
    """Return where the branch of this solution ends on the way to `bound`."""
    alpha, why = start.equations.alpha, _trouble(start, start)
    if why:
        return _Bracket(alpha, alpha, f"at alpha={alpha:g} already {why}")
    last, there, factor = start, alpha, STEP if bound > alpha else 1 / STEP
    while there != bound:
        ahead = min(there * factor, bound) if bound > alpha else max(there * factor, bound)
        here, why = _try(last, ahead, tol)
        if here is None:
            return _narrowed(last, there, ahead, why, lambda last, at: _try(last, at, tol), width)
        last, there = here, ahead
    return _Bracket(there, None, f"it goes on to alpha={bound:g}")


def _narrowed(
    last: Solution,
    there: float,
    gone: float,
    why: str,
    attempt: Callable[[Solution, float], tuple[Solution | None, str]],
    width: float,
) -> _Bracket:
    while abs(gone - there) > width * there:
        middle = (there * gone) ** 0.5
        here, reason = attempt(last, middle)
        if here is None:
            gone, why = middle, reason
        else:
            last, there = here, middle
    return _Bracket(there, gone, why)


def _try(last: Solution, alpha: float, tol: float | None) -> tuple[Solution | None, str]:
    here = followed(last, alpha, tol)
    if here is None:
        return None, "the iteration no longer holds it"
    why = _trouble(here, last)
    return (None, why) if why else (here, "")


def _trouble(here: Solution, before: Solution) -> str:
    """Return why a solution is not the branch of the one before, or not to be trusted; empty if nothing is wrong."""
    if not here.solved:
        return f"it is not solved ({here.status.name})"
    aligned, was = (float(np.max(np.abs(s.order.M))) for s in (here, before))
    if aligned < max(ACCURACY.apart, was / 2):
        return "its alignment with the teachers is lost"
    doubts = here.stability.doubts if here.stability is not None else []
    return f"it is not to be trusted: {doubts[0]}" if doubts else ""

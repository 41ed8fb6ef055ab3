"""Where phases end: brackets that say why, and branches that go on to the bounds."""

from typing import cast

import pytest

import needlepoint as ndl
from needlepoint.theory.fields.ridge import spinodals
from needlepoint.theory.fields.ridge.solutions import Solution
from needlepoint.theory.fields.ridge.spinodals import _Bracket, _joined, _narrowed

TASK, MODEL = ndl.PositionalSemantic(0.3, 0.5), ndl.LowRankTied()
LEARNER = ndl.Ridge(2.0, 0.04, loss=ndl.Square(0.25))


@pytest.mark.exact
def test_a_bracket_closes_around_the_place_where_the_branch_ends():
    """A branch that is there above 0.7 only."""

    def attempt(last, alpha):
        return (last, "") if alpha > 0.7 else (None, "it ends")

    anything = cast("Solution", object())  # `attempt` does not look at it
    found = _narrowed(anything, 1.0, 0.5, "first", attempt, 0.01)
    assert found.gone <= 0.7 < found.there
    assert found.there - found.gone <= 0.01 * found.there
    assert found.reason == "it ends"


@pytest.mark.exact
def test_two_brackets_are_one_error():
    end = _joined((_Bracket(1.0, 0.9, "a"), _Bracket(0.95, 0.85, "b")))
    assert end.alpha.value == pytest.approx(0.925)
    assert end.alpha.error == pytest.approx(0.075)
    assert end.reason == "a; b"
    assert _joined((_Bracket(1.0, None, "it goes on"),)).alpha is None
    # one set of points sees an end, the other none: the bracket reaches to where the other still had the branch
    assert _joined((_Bracket(1.0, 0.9, "a"), _Bracket(0.5, None, "on"))).alpha.error == pytest.approx(0.25)


def test_bounds_must_hold_the_start():
    with pytest.raises(ndl.InvalidParameter, match=r"give bounds on both sides of learner\.alpha"):
        ndl.field_spinodals(TASK, MODEL, LEARNER, (2.5, 3.0))
    with pytest.raises(ndl.InvalidParameter, match="give a SequenceTask"):
        ndl.field_spinodals(TASK, MODEL, ndl.Population(), (1.0, 3.0))


@pytest.mark.slow
def test_the_semantic_phase_ends_below_and_goes_on_above():
    found = ndl.field_spinodals(TASK, MODEL, LEARNER, (0.5, 2.4), width=0.05, tol=1e-3)
    assert set(found) == {"semantic", "positional"}
    below = found["semantic"].below
    assert below.alpha is not None
    assert below.alpha.error < 0.15
    # the phase is there at the energies' crossing and flagged at 0.7927
    assert 0.75 < below.alpha.value < 1.247
    assert found["semantic"].above.alpha is None
    assert spinodals.STEP > 1

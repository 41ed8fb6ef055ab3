"""The search for the best penalty of the attention-indexed model at more than one token."""

import math
from types import SimpleNamespace

import pytest

import needlepoint as ndl
from needlepoint.core.options import PredictionOptions
from needlepoint.theory.indexed import prediction

TASK, MODEL = ndl.AttentionIndexed(2, ndl.Wishart(0.5), noise_var=0.5), ndl.TiedAttention()


@pytest.mark.parametrize("best", [0.02, 0.3])
@pytest.mark.parametrize("unsolved", [-math.inf, -1.0, 0.0, math.nan])
@pytest.mark.parametrize("status", [ndl.Status.MAX_STEPS, ndl.Status.DIVERGED])
def test_a_point_that_is_not_solved_never_wins(monkeypatch, best, unsolved, status):
    """The risk is a bowl around `best`; below a third of it nothing is solved, and what is left there looks lower."""

    def solve(task, model, alpha, penalty, **options):
        solved = penalty > best / 3
        value = 1.0 + math.log(penalty / best) ** 2 / 10 if solved else unsolved
        return SimpleNamespace(status=ndl.Status.CONVERGED if solved else status, value=SimpleNamespace(test=value))

    monkeypatch.setattr(prediction, "solve", solve)
    lam, notes = prediction.best_penalty(TASK, MODEL, ndl.Ridge(0.5, "optimal"), PredictionOptions(0))
    assert lam == pytest.approx(best, rel=0.05)
    assert notes == ()

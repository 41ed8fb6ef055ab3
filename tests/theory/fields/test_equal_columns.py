"""Two heads where they are equal: the solution of one head with other penalties, and where a key all but vanishes."""

import pytest
from scipy.optimize import brentq

import needlepoint as ndl

TASK = ndl.Needles(2, snr=4.0, noise=0.1)
ONE, TWO = (ndl.MultiHead(h, ndl.Softmax()) for h in (1, 2))
STRONG = (1.2, 1.2)
"""Penalties on keys and values at which two heads are equal at alpha = 1."""


@pytest.mark.exact
def test_equal_heads_have_the_answer_of_one_head():
    two = ndl.predict(TASK, TWO, ndl.Ridge(1.0, STRONG), tol=0.01)
    one = ndl.predict(TASK, ONE, ndl.Ridge(1.0, (2 * STRONG[0], STRONG[1] / 2)), tol=0.01)
    assert (two.status, two.stable) == (ndl.Status.CONVERGED, True)
    assert any("all heads are equal" in note for note in two.notes)
    for name in ("excess_risk", "energy", "train_loss"):
        # both are the same equations on the same points; where the search began they stop at other digits
        assert abs(two.metrics[name].value - one.metrics[name].value) < 0.02 * one.metrics[name].error
    ours, theirs = dict(two.overlaps.items()), dict(one.overlaps.items())
    assert ours["value1_on_value"] == ours["value2_on_value"] == pytest.approx(theirs["value_on_value"] / 2, rel=1e-3)
    assert ours["value1_dot_value2"] == pytest.approx(theirs["value_sq"] / 4, rel=1e-3)
    assert ours["key1_dot_key2"] == pytest.approx(theirs["key_sq"], rel=1e-2, abs=1e-5)


@pytest.mark.negative
def test_where_heads_part_they_are_not_one():
    two = ndl.predict(TASK, TWO, ndl.Ridge(1.0, (0.5, 0.6)), tol=0.02)
    one = ndl.predict(TASK, ONE, ndl.Ridge(1.0, (1.0, 0.3)), tol=0.02)
    assert not any("all heads are equal" in note for note in two.notes)
    assert two.excess_risk.value + two.excess_risk.error < one.excess_risk.value - one.excess_risk.error
    assert two.energy.value < one.energy.value


def uniform(alpha, tokens=2, noise=0.1):
    """The least excess risk of regression on the mean of the tokens: of the label's variance 1 / tokens can be read
    there, and the rest is noise."""
    signal, rest = 1 / tokens, 1 - 1 / tokens
    left = brentq(lambda e: e - 1 / (1 / signal + alpha / (rest + noise**2 + e)), 0, signal)
    return rest + left


@pytest.mark.quadrature
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_a_head_without_a_key_is_regression_on_the_mean_token(alpha):
    """The best penalty of that is the variance of the noise. The symmetry that small keys seem to break at few points
    is not broken."""
    found = ndl.predict(TASK, ONE, ndl.Ridge(alpha, (20.0, 0.51)), tol=0.002)
    assert found.stable
    # the small key that is left reads a little; with a penalty of 1000 it reads nothing, and the gap is the same
    assert abs(found.excess_risk.value - uniform(alpha)) < 2 * found.excess_risk.error
    assert found.excess_risk.error < 0.002

"""Several heads: what they are where they are equal."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.numerics.precision import float64

SOFTMAX = ndl.Softmax()


def cost(penalties, weights):
    return np.array(penalties) @ np.sum(weights**2, axis=1) / 2


@pytest.mark.exact
@pytest.mark.parametrize("heads", [2, 3])
@float64
def test_equal_heads_are_one_head_that_costs_as_much(heads):
    rng = np.random.default_rng(0)
    model, lam = ndl.MultiHead(heads, SOFTMAX), (0.7, 0.3)
    one, factors = model.merged()
    tokens, weights = rng.standard_normal((3, 20)), rng.standard_normal((2, 20))
    many = factors @ weights
    np.testing.assert_allclose(model.outputs(tokens @ many.T), one.outputs(tokens @ weights.T), rtol=1e-12)
    penalties = model.merged().penalties(model.penalties(lam))
    assert penalties == pytest.approx((heads * lam[0], lam[1] / heads))
    assert cost(model.penalties(lam), many) == pytest.approx(cost(penalties, weights))


@pytest.mark.exact
def test_no_other_split_of_the_value_is_cheaper():
    rng = np.random.default_rng(1)
    weights = np.stack([np.zeros(20), rng.standard_normal(20)])
    model = ndl.MultiHead(2, SOFTMAX)
    least = model.merged().factors @ weights
    for share in (0.0, 0.3, 0.8):
        other = np.stack([*least[:2], share * weights[1], (1 - share) * weights[1]])
        assert cost(model.penalties(1.0), other) > cost(model.penalties(1.0), least)


@pytest.mark.negative
def test_at_the_penalties_of_one_head_equal_heads_cost_something_else():
    weights = np.random.default_rng(2).standard_normal((2, 20))
    model = ndl.MultiHead(2, SOFTMAX)
    one, factors = model.merged()
    at_the_same = cost(one.penalties((0.7, 0.3)), weights)
    assert cost(model.penalties((0.7, 0.3)), factors @ weights) != pytest.approx(at_the_same, rel=0.05)


def test_one_head_has_nothing_to_be_equal_to():
    assert ndl.MultiHead(1, SOFTMAX).merged() is None
    assert ndl.KeyValueAttention(SOFTMAX).merged() is None

"""What a flagged ridge prediction says of how far off it may be."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.ridge_doubt import shares
from needlepoint.theory.ridge_stability import Stability


def judged(replicon, jump_weight=0.0):
    return Stability(replicon, 0.01, jump_weight, 0.01, abs(jump_weight), 0.1, np.eye(3))


def test_nothing_is_said_where_nothing_speaks_against_it():
    assert shares(judged(0.5)) == {}


@pytest.mark.parametrize("name", ["excess_risk", "train_loss", "energy"])
def test_the_doubt_grows_with_the_replicon_and_with_jumps(name):
    said = [shares(judged(r))[name] for r in (1.0, 1.5, 4.0, 20.0)]
    assert said == sorted(said)
    assert 0 < said[0] < 0.2
    assert shares(judged(1.5, -0.8))[name] > said[1]
    assert shares(judged(0.3, -0.8))[name] == shares(judged(1.0, -0.8))[name]  # by the jumps alone


@pytest.mark.training
def test_training_in_the_unstable_region_is_within_the_doubt():
    """Linear attention, unstable: what is trained at d = 100 (three repeats) is as near to the prediction as its doubt
    says."""
    question = ndl.SpikedSLR(2, 10.0, noise=0.3), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(2.0, 0.05)
    said = ndl.predict(*question, tol=0.05, throw=False)
    assert said.status is ndl.Status.UNSTABLE
    assert set(said.doubt) == {"risk", "excess_risk", "train_loss", "energy"}
    assert said.doubt["risk"] < said.doubt["excess_risk"]
    found = ndl.simulate(*question, d=100, repeats=3, samples=4000)
    for name in ("excess_risk", "energy"):
        value, error = said.metrics[name].value, said.metrics[name].error
        off = abs(found.metrics[name].value - value) - 2 * found.metrics[name].error - (error if error < 1e9 else 0.0)
        assert off < said.doubt[name] * value, name
    assert "may be off" in str(said)

"""What a flagged ridge prediction says of how far off it may be."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.location.ridge.doubt import shares
from needlepoint.theory.location.ridge.stability import Stability


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


@pytest.mark.slow
@pytest.mark.training
def test_training_in_the_unstable_region_is_within_the_doubt():
    """Linear attention, unstable: what is trained at d = 100 is as near to the prediction as its doubt says. The
    training loss is so far away (twenty standard errors) that a twentieth of its doubt would not cover it."""
    question = ndl.SpikedSLR(2, 10.0, noise=0.3), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(2.0, 0.05)
    said = ndl.predict(*question, tol=0.05, throw=False)
    assert said.status is ndl.Status.UNSTABLE
    assert set(said.doubt) == {"risk", "excess_risk", "train_loss", "energy"}
    assert said.doubt["risk"] < said.doubt["excess_risk"]
    found = ndl.simulate(*question, d=100, repeats=16, samples=4000)

    def off(name):
        value, trained = said.metrics[name].value, found.metrics[name]
        assert trained.error < 0.07 * trained.value
        return abs(trained.value - value), 2 * trained.error

    for name in ("excess_risk", "energy", "train_loss"):
        gap, noise = off(name)
        assert gap < said.doubt[name] * said.metrics[name].value + noise, name
    gap, noise = off("train_loss")
    assert gap > said.doubt["train_loss"] * said.metrics["train_loss"].value / 20 + 3 * noise
    assert "may be off" in str(said)

"""Flows, the limit of SGD and the population optimum for any field law, against the rules of single-location tasks."""

import pytest

import needlepoint as ndl

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
START = ndl.Overlaps(0.2, 0.3, 0.1, 0.05, 0.1, 0.5, 0.6)
"""Off the manifold in all three ways."""


def agree(found, other, factor=1.5):
    for name, value in found.overlaps.items():
        gap = abs(value - getattr(other.overlaps, name))
        assert gap <= factor * (found.overlaps_error[name] + other.overlaps_error[name]) + 1e-9, name
    gap = abs(found.excess_risk.value - other.excess_risk.value)
    assert gap <= factor * (found.excess_risk.error + other.excess_risk.error)


@pytest.mark.parametrize(
    "task", [ndl.SpikedSLR(2, 2.0, noise=0.1), pytest.param(ndl.MaxSLR(2, 2.0, noise=0.1), marks=pytest.mark.slow)]
)
def test_gradient_flow_off_the_manifold(task):
    learner = ndl.GradientFlow(6.0, START, 1.0)
    found, other = (ndl.predict(task, SOFTMAX, learner, method=method) for method in ("fields", None))
    agree(found, other)
    assert found.exact
    assert max(found.overlaps_error.values()) < 0.01  # small enough to see a wrong rate
    wrong = ndl.predict(task.replace(snr=2.4), SOFTMAX, learner)
    with pytest.raises(AssertionError):
        agree(found, wrong)


def test_the_limit_of_sgd_has_the_noise_of_its_steps():
    task = ndl.MaxSLR(2, 2.0, noise=0.1)
    learner = ndl.OnlineSGD(lr=0.01, steps=200, batch=2, start=START, d=50, record_every=100)
    found, other = (ndl.predict(task, SOFTMAX, learner, method=method) for method in ("fields", None))
    agree(found, other)
    slower = ndl.predict(task, SOFTMAX, learner.replace(batch=20))  # less noise, other norms
    with pytest.raises(AssertionError):
        agree(found, slower)


@pytest.mark.parametrize("task", [ndl.SpikedSLR(3, 2.0), ndl.MaxSLR(3, 2.0)])
def test_the_optimum_is_that_of_the_closed_forms(task):
    found, other = (ndl.predict(task, SOFTMAX, ndl.Population(), method=method) for method in ("fields", None))
    gap = abs(found.excess_risk.value - other.excess_risk.value)
    assert gap <= found.excess_risk.error
    assert found.excess_risk.error < 0.02 * found.excess_risk.value
    assert abs(found.overlaps.key - other.overlaps.key) < 0.25
    assert found.overlaps.value == pytest.approx(1.0, abs=0.05)


def test_two_heads_beat_one_where_there_are_two_needles():
    task = ndl.Needles(3, 4.0)
    one, two = (ndl.predict(task, ndl.MultiHead(h, ndl.Softmax()), ndl.Population()).excess_risk for h in (1, 2))
    assert abs(two.value - 0.159) < 0.01
    # one head that serves one needle alone has 0.579; a lower one leans the value on the keys
    assert one.value + one.error < 0.579
    assert two.value + two.error < one.value - one.error


def test_flow_of_a_user_loss_needs_its_labels():
    learner = ndl.GradientFlow(1.0, START, 0.5, loss=ndl.Logistic())
    found = ndl.predict(ndl.SignSLR(2, 3.0), SOFTMAX, learner)
    assert found.trajectory.excess_risk[0, -1] < found.trajectory.excess_risk[0, 0]
    with pytest.raises(ndl.InvalidParameter, match="labels must be 1 or -1"):
        ndl.predict(ndl.SpikedSLR(2, 3.0), SOFTMAX, learner)

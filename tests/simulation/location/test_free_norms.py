"""Training with free norms in d dimensions against the differential equations, by z-scores with power."""

import functools
import math

import numpy as np
import pytest

import needlepoint as ndl

K = ndl.KeyValueAttention
SOFTMAX = K(ndl.Softmax())
SPIKED = ndl.SpikedSLR(2, 2.0, noise=0.1)
START = ndl.Overlaps(0.1, 0.1, key_sq=0.25, value_sq=0.25)
OFF = ndl.Overlaps(0.4, 0.5, 0.2, -0.1, 0.15, 0.6, 0.8)
MOVED = ("key", "value", "key_sq", "value_sq")
SAMPLES = 10_000
"""One number for most tests; with it and in four dimensions, where risks are measured, one draw is compiled."""


def sgd(eta, time, d, start=START, batch=1, records=1):
    steps = round(time * d)
    return ndl.OnlineSGD(eta / (2 * d), steps, batch, start, record_every=steps // records, d=d)


def precise(measured, names=MOVED):
    """Whether the standard errors are below 1 % of the values."""
    ratios = [measured.overlaps_error[n] / abs(getattr(measured.overlaps, n)) for n in names]
    return max(*ratios, measured.risk.error / measured.risk.value) < 0.01


@pytest.mark.training
@pytest.mark.parametrize(
    ("task", "model", "start"),
    [
        (SPIKED, SOFTMAX, START),
        pytest.param(
            ndl.SpikedSLR({1: 0.3, 2: 0.7}, 2.0, 0.6, 0.1), K(ndl.Erf(0.8, 0.1, 1.0)), OFF, marks=pytest.mark.slow
        ),
        pytest.param(ndl.MaxSLR({1: 0.3, 3: 0.7}, math.inf), SOFTMAX, OFF, marks=pytest.mark.slow),
        pytest.param(ndl.MaxSLR(3, 2.0, 0.1), K(ndl.Linear()), START, marks=pytest.mark.slow),
    ],
    ids=["softmax", "erf", "max softmax", "max linear"],
)
def test_flow_on_a_sample_follows_the_flow_of_the_population(task, model, start):
    """The bias, of order d / samples = 4e-4, is below the standard errors."""
    learner = ndl.GradientFlow(3.0, start, 1.5)
    measured = ndl.simulate(task, model, learner, d=4, repeats=16, samples=SAMPLES, seed=1)
    comparison = ndl.compare(ndl.predict(task, model, learner), measured)
    assert comparison.worst < 4
    assert precise(measured)
    # a flow that runs 10 % too fast is seen
    fast = ndl.predict(task, model, learner.replace(time=3.3))
    gaps = [abs(getattr(measured.overlaps, n) - getattr(fast.overlaps, n)) / measured.overlaps_error[n] for n in MOVED]
    assert max(gaps) > 6


@pytest.mark.training
@pytest.mark.parametrize("samples", [400, pytest.param(1600, marks=pytest.mark.slow)])
def test_the_bias_of_a_sample_falls_with_its_size(samples):
    """What the key learns of the sample beyond its teacher is about 1.8 d / samples here."""
    learner = ndl.GradientFlow(6.0, START, 6.0)
    limit = ndl.predict(SPIKED, SOFTMAX, learner).overlaps
    paths = ndl.simulate(SPIKED, SOFTMAX, learner, d=20, repeats=24, samples=samples).trajectory.overlaps
    beyond = paths["key_sq"][:, -1] - paths["key"][:, -1] ** 2 - (limit.key_sq - limit.key**2)
    se = beyond.std(ddof=1) / np.sqrt(24)
    assert abs(beyond.mean() - 1.8 * 20 / samples) < 4 * se
    assert beyond.mean() > 6 * se


@functools.cache
def measured_sgd(task, model, learner, repeats):
    return ndl.simulate(task, model, learner, d=learner.d, repeats=repeats, samples=SAMPLES, seed=2)


@pytest.mark.training
@pytest.mark.parametrize(
    ("task", "model", "start", "eta", "batch", "size"),
    [
        (SPIKED, SOFTMAX, START, 0.8, 1, (160, 160)),
        pytest.param(
            ndl.SpikedSLR({1: 0.3, 2: 0.7}, 2.0, 0.6, 0.3),
            K(ndl.Softplus()),
            OFF,
            0.8,
            1,
            (160, 160),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ndl.MaxSLR({1: 0.3, 2: 0.7}, 2.0, 0.3), K(ndl.Linear()), OFF, 0.3, 2, (400, 64), marks=pytest.mark.slow
        ),
        pytest.param(ndl.MaxSLR(3, math.inf, 0.3), SOFTMAX, OFF, 0.8, 2, (400, 64), marks=pytest.mark.slow),
    ],
    ids=["softmax", "softplus", "max linear", "max softmax"],
)
def test_sgd_follows_its_limit(task, model, start, eta, batch, size):
    """What is left of finite d, of order 1/d, is below the standard error of this many runs."""
    d, repeats = size
    learner = sgd(eta, 3.0, d, start, batch)
    measured = measured_sgd(task, model, learner, repeats)
    predicted = ndl.predict(task, model, learner)
    assert ndl.compare(predicted, measured).worst < 4
    assert precise(measured, ("value", "key_sq", "value_sq"))


@pytest.mark.negative
def test_a_wrong_limit_is_seen():
    """Without the noise of steps, with that of two sequences, and with half the step."""
    learner = sgd(0.8, 3.0, 160)
    measured = measured_sgd(SPIKED, SOFTMAX, learner, 160)
    for wrong in ({"batch": 10**9}, {"batch": 2}, {"lr": learner.lr / 2}):
        end = ndl.predict(SPIKED, SOFTMAX, learner.replace(**wrong)).overlaps
        gaps = [abs(getattr(measured.overlaps, n) - getattr(end, n)) / measured.overlaps_error[n] for n in MOVED]
        assert max(gaps) > 6


@pytest.mark.exact
def test_runs_do_not_depend_on_how_they_are_recorded():
    learner = ndl.OnlineSGD(0.0025, 20, 1, START, record_every=20, d=160)  # of the size that is compiled already
    coarse, fine = (measured_sgd(SPIKED, SOFTMAX, learner.replace(record_every=n), 160).trajectory for n in (20, 4))
    assert fine.steps.tolist() == [0, 4, 8, 12, 16, 20]
    for name in coarse.overlaps:
        np.testing.assert_array_equal(fine.overlaps[name][:, -1], coarse.overlaps[name][:, -1])
    np.testing.assert_allclose(fine.excess_risk[:, -1], coarse.excess_risk[:, -1], rtol=1e-12)


@pytest.mark.montecarlo
def test_recorded_risks_are_those_of_the_overlaps():
    """Fresh sequences in four dimensions against the population risk at the recorded overlaps."""
    task, model = ndl.SpikedSLR({1: 0.2, 2: 0.8}, 2.0, 0.7, 0.3), K(ndl.Erf(0.8, 0.1, 1.0))
    path = ndl.simulate(task, model, ndl.GradientFlow(0.5, OFF, 0.5), d=4, repeats=24, samples=SAMPLES).trajectory
    exact = np.array([ndl.excess_risk(task, model, path.end(run)).value for run in range(24)])
    gap = path.excess_risk[:, -1] - exact
    se = gap.std(ddof=1) / np.sqrt(24)
    assert abs(gap.mean()) < 5 * se
    assert se < 0.01 * exact.mean()


def test_runs_that_diverge_say_so():
    measured = ndl.simulate(SPIKED, K(ndl.Linear()), sgd(60.0, 5.0, 20), d=20, repeats=4, samples=SAMPLES)
    assert measured.status is ndl.Status.DIVERGED
    assert "runs diverged" in measured.notes[0]


def test_a_sample_that_does_not_fit_is_refused():
    with pytest.raises(ndl.InvalidParameter, match=r"a sample of 1e\+09 numbers is held at once, at most 1e\+08"):
        ndl.simulate(SPIKED, SOFTMAX, ndl.GradientFlow(1.0, START, 1.0), d=1000, repeats=1, samples=500_000)


@pytest.mark.slow
@pytest.mark.training
def test_sgd_at_the_tabulated_setting():
    """Sheet 02, section 7: eta = 0.3, d = 1000, to time 20, from 16 runs."""
    learner = sgd(0.3, 20.0, 1000, records=2)
    measured = ndl.simulate(SPIKED, SOFTMAX, learner, d=1000, repeats=16, seed=5)
    predicted = ndl.predict(SPIKED, SOFTMAX, learner)
    assert ndl.compare(predicted, measured).worst < 4
    assert precise(measured)
    without = ndl.predict(SPIKED, SOFTMAX, learner.replace(batch=10**9))
    gaps = [
        abs(getattr(measured.overlaps, n) - getattr(without.overlaps, n)) / measured.overlaps_error[n] for n in MOVED
    ]
    assert max(gaps) > 6

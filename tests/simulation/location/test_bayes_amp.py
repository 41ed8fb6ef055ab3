"""Message passing for the Bayes-optimal predictor: its channel, and its fixed points on data."""

import math

import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.simulation.location.bayes_amp import PlaceNoise
from needlepoint.theory.location.bayes.max_posterior import Race

SPIKED = ndl.SpikedSLR(2, 2.0, noise=0.1)
MAX = ndl.MaxSLR(2, math.inf, noise=0.1)


@pytest.mark.quadrature
@pytest.mark.parametrize(("snr", "s"), [(math.inf, 0.5), (2.0, 0.7), (30.0, 0.3), (0.3, 0.6), (0.5, 0.01)])
def test_the_channel_is_the_one_of_the_theory(snr, s):
    """Written twice, by different integrals; the tables of message passing are linear, good to 1e-5."""
    w = np.random.default_rng(0).standard_normal((50, 3))
    P, slope = PlaceNoise(snr, s)(w)
    others = ~np.eye(3, dtype=bool)
    wanted, exchange = Race(snr, s, 3)(w)
    np.testing.assert_allclose(P, wanted, atol=1e-5)
    np.testing.assert_allclose(-slope[:, others], exchange[:, others], atol=2e-5 / max(s, 0.1))
    np.testing.assert_allclose(slope.sum(axis=2), 0.0, atol=1e-12)


@pytest.mark.exact
def test_two_tokens_and_one():
    noise = PlaceNoise(math.inf, 0.4)
    P, slope = noise(np.array([[0.3, 0.0]]))
    at = 0.3 / (0.4 * math.sqrt(2))
    assert math.isclose(P[0, 0], special.ndtr(at), abs_tol=1e-5)
    assert math.isclose(slope[0, 0, 0], math.exp(-(at**2) / 2) / math.sqrt(2 * math.pi * 2 * 0.16), rel_tol=1e-4)
    P, slope = noise(np.array([[0.3]]))
    assert math.isclose(P[0, 0], 1.0, abs_tol=1e-5)
    assert slope[0, 0, 0] == 0


def compare_with_theory(task, alpha, d, repeats):
    """Rows of compare, and the measurement; key known to 1 %."""
    learner = ndl.BayesOptimal(alpha)
    predicted = ndl.predict(task, None, learner)
    measured = ndl.simulate(task, None, learner, d=d, repeats=repeats, samples=4000)
    rows = {row.metric: row for row in ndl.compare(predicted, measured).rows}
    assert {"excess_risk", "key", "value"} <= set(rows)
    assert measured.status is ndl.Status.CONVERGED
    assert rows["key"].measured_error < 0.0125 * predicted.overlaps.key + 0.003
    assert rows["excess_risk"].measured_error < 0.01 * task.label_var
    return rows, measured


@pytest.mark.training
@pytest.mark.parametrize(
    "task", [SPIKED, pytest.param(ndl.MaxSLR({1: 0.2, 2: 0.8}, math.inf, noise=0.1), marks=pytest.mark.slow)], ids=str
)
def test_message_passing_reaches_the_fixed_point(task):
    """AMP at d = 200; errors over 16 seeds. Its finite-size bias is below the joined error here."""
    rows, measured = compare_with_theory(task, 2.0, 200, 16)
    assert all(abs(row.z) < 4 for row in rows.values())
    # negative twin: half the data is another answer
    half = ndl.predict(task, None, ndl.BayesOptimal(1.0))
    assert abs(half.overlaps.key - measured.overlaps.key) > 8 * measured.overlaps_error["key"]


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.parametrize(
    ("task", "alpha"),
    [(MAX, 1.0), (MAX, 5.0), (ndl.MaxSLR(2, 2.0, noise=0.1), 5.0), (ndl.MaxSLR(3, math.inf, noise=0.1), 2.0)],
    ids=str,
)
def test_message_passing_at_a_larger_size(task, alpha):
    rows, _ = compare_with_theory(task, alpha, 500, 24)
    assert all(abs(row.z) < 4 for row in rows.values())


def test_bad_input_is_one_sentence():
    with pytest.raises(ndl.InvalidParameter, match="at most"):
        ndl.simulate(SPIKED, None, ndl.BayesOptimal(50.0), d=10_000, repeats=1)
    with pytest.raises(ndl.InvalidParameter, match="needs noise > 0"):
        ndl.simulate(ndl.MaxSLR(2, 2.0), None, ndl.BayesOptimal(2.0), d=20, repeats=1)

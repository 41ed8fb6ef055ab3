"""Ridge training on fields: the minimum, message passing, gauges, and what is reported."""

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.options import SimulationOptions
from needlepoint.core.specs import count, forget, real, spec
from needlepoint.models.fields import FieldModel, informed
from needlepoint.simulation.fields import amp, training
from needlepoint.simulation.fields.gauges import Gauge, fix_gauge, gauges
from needlepoint.simulation.location.vectors import frames
from needlepoint.tasks.sequence import SequenceTask, noise_var_of

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
PAIR = ndl.SeveralSLR(3, snr=3.0, noise=0.1)
NEEDLES = ndl.Needles(3, snr=4.0, noise=0.1)
HEADS = ndl.MultiHead(2, ndl.Softmax())
SIGNS = ndl.SignSLR(2, snr=3.0)
POSITIONAL = ndl.PositionalSemantic(0.3, 0.5)
QUARTER = ndl.Square(weight=0.25)
D = 40


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def simulate(*question, repeats=4, **more):
    return ndl.simulate(*question, **{"d": D, "samples": 4000, **more}, repeats=repeats)


# --- the minimum ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "model", "learner"),
    [
        (PAIR, SOFTMAX, ndl.Ridge(4.0, 0.3)),
        (NEEDLES, HEADS, ndl.Ridge(5.0, (0.2, 0.4))),
        (SIGNS, SOFTMAX, ndl.Ridge(6.0, 0.3, loss=ndl.Logistic())),
        (POSITIONAL, ndl.LowRankTied(), ndl.Ridge(2.0, 0.04, loss=QUARTER)),
    ],
    ids=["pair", "heads", "signs", "matrix"],
)
def test_training_ends_where_the_gradient_vanishes(task, model, learner):
    trained = training.train(task, model, learner, D, 0, 0)
    problem, best = trained.problem, trained.best
    assert all(minimum.converged for minimum in trained.minima.values())
    value, gradient = problem.value_and_gradient(best.weights)
    assert value == best.energy < problem.energy_at_zero
    assert np.linalg.norm(problem.units * gradient) <= problem.tolerance
    # a minimum: no small step goes below it
    for step in np.random.default_rng(0).standard_normal((5, *best.weights.shape)):
        assert problem.value_and_gradient(best.weights + 1e-3 * step)[0] > best.energy
    # passing messages from there ends there
    passed = amp.amp(problem, 0.9 * best.weights)
    assert passed.converged
    assert abs(passed.energy - best.energy) < 1e-9 * problem.energy_at_zero
    np.testing.assert_allclose(passed.weights, best.weights, atol=1e-4)


@pytest.mark.negative
def test_message_passing_with_too_small_forces_does_not_stay_at_the_minimum(monkeypatch):
    """The control of the test above: forces that are 10 % too small lead elsewhere."""
    monkeypatch.setattr(amp, "ACCURACY", replace(amp.ACCURACY, amp_steps=60))
    trained = training.train(PAIR, SOFTMAX, ndl.Ridge(4.0, 0.3), D, 0, 0)
    forces = amp._reply
    monkeypatch.setattr(amp, "_reply", lambda *args: (0.9 * forces(*args)[0], forces(*args)[1]))
    passed = amp.amp(trained.problem, trained.best.weights)
    assert not passed.converged
    assert passed.energy > trained.best.energy * (1 + 1e-4)


@pytest.mark.training
@pytest.mark.parametrize("task", [ndl.SpikedSLR(2, snr=2.0, noise=0.1), ndl.MaxSLR(2, snr=2.0, noise=0.1)], ids=str)
def test_the_general_rule_measures_what_the_one_of_single_location_tasks_does(task):
    learner = ndl.Ridge(4.0, 0.4)
    theirs = simulate(task, SOFTMAX, learner, repeats=16)
    mine = training.simulate_ridge(task, SOFTMAX, learner, SimulationOptions(D, 16, 1, samples=4000))
    assert list(mine.metrics) == list(theirs.metrics)
    for name in ("risk", "excess_risk", "train_loss", "energy"):
        a, b = mine.metrics[name], theirs.metrics[name]
        assert abs(a.value - b.value) < 4 * math.hypot(a.error, b.error), name
    assert isinstance(mine.overlaps, ndl.Overlaps)
    for name in ("key", "value", "key_sq", "value_sq"):
        gap = getattr(mine.overlaps, name) - getattr(theirs.overlaps, name)
        assert abs(gap) < 4 * math.hypot(mine.overlaps_error[name], theirs.overlaps_error[name]), name


@pytest.mark.contract
def test_other_losses_on_single_location_tasks_reach_the_general_rule():
    task = ndl.SpikedSLR(2, snr=2.0, noise=0.1)
    whole = simulate(task, SOFTMAX, ndl.Ridge(4.0, 0.4))
    half = simulate(task, SOFTMAX, ndl.Ridge(4.0, 0.2, loss=ndl.Square(weight=0.5)))
    assert set(whole.overlaps_error) < set(half.overlaps_error)  # the general rule has the errors of all overlaps
    # weight and penalty halved: the same minimum, at half the energy
    assert abs(2 * half.energy.value - whole.energy.value) < 4 * math.hypot(2 * half.energy.error, whole.energy.error)


def test_a_weight_of_the_squared_error_is_a_scale_of_energies_and_risks():
    one = training.simulate_ridge(PAIR, SOFTMAX, ndl.Ridge(4.0, 0.4), SimulationOptions(D, 2, samples=4000))
    two = simulate(PAIR, SOFTMAX, ndl.Ridge(4.0, 0.8, loss=ndl.Square(weight=2.0)), repeats=2)
    for name in ("risk", "excess_risk", "train_loss", "energy"):
        assert two.metrics[name].value == pytest.approx(2 * one.metrics[name].value, rel=1e-5), name
    assert two.risk.value - two.excess_risk.value == pytest.approx(2 * 0.1**2)


# --- what is reported -----------------------------------------------------------------------------


def test_sign_labels_have_an_error_rate_and_no_excess_risk():
    found = simulate(SIGNS, SOFTMAX, ndl.Ridge(6.0, 0.3, loss=ndl.Logistic()))
    assert "excess_risk" not in found.metrics
    assert 0.05 < found.error_rate.value < 0.4
    assert found.risk.value < math.log(2)
    assert found.status is ndl.Status.CONVERGED


def test_overlaps_of_heads_are_named_and_follow_the_needles():
    found = simulate(NEEDLES, HEADS, ndl.Ridge(5.0, 0.3))
    assert isinstance(found.overlaps, ndl.FieldOverlaps)
    assert set(found.overlaps_error) == set(dict(found.overlaps.items()))
    for head, needle in ((1, ""), (2, "2")):
        assert found.overlaps[f"key{head}_on_key{needle}"] > 0.3
        assert found.overlaps[f"value{head}_on_value{needle}"] > 0.5
    M, Q = found.overlaps.matrices(HEADS.labels, NEEDLES.teachers)
    assert np.linalg.eigvalsh(Q - M @ M.T)[0] > 0


def test_the_lower_of_two_starts_counts():
    both = simulate(POSITIONAL, ndl.LowRankTied(), ndl.Ridge(2.0, 0.04, loss=QUARTER), repeats=6)
    assert both.energy.value <= min(both.energy_random.value, both.energy_informed.value)
    alone = simulate(POSITIONAL, ndl.LowRankTied(), ndl.Ridge(2.0, 0.04, start="informed", loss=QUARTER), repeats=6)
    assert alone.energy.value == pytest.approx(both.energy_informed.value, rel=1e-12)
    assert "starts_apart" not in alone.metrics
    assert "two starts" in both.notes[0]


def test_the_same_seed_gives_the_same_numbers():
    first, again, other = (simulate(PAIR, SOFTMAX, ndl.Ridge(4.0, 0.3), repeats=2, seed=s) for s in (0, 0, 1))
    assert first.metrics == again.metrics
    assert first.energy != other.energy


def test_message_passing_by_name_ends_at_the_same_energies():
    question = PAIR, SOFTMAX, ndl.Ridge(4.0, 0.3, start="informed")
    found = [simulate(*question[:2], question[2].replace(algorithm=a), repeats=2) for a in ("lbfgs", "amp")]
    assert found[1].energy.value == pytest.approx(found[0].energy.value, rel=1e-9)
    assert found[1].risk.value == pytest.approx(found[0].risk.value, rel=1e-4)


# --- gauges ---------------------------------------------------------------------------------------


def test_gauges_are_what_the_output_does_not_see():
    assert gauges(SOFTMAX, 3) == [Gauge((0, 1), (1.0, 1.0))]
    odd = gauges(ndl.KeyValueAttention(ndl.Erf(0.5)), 3)
    assert [g.signs for g in odd] == [(1.0, 1.0), (-1.0, -1.0)]
    assert [g.order for g in gauges(HEADS, 3)] == [(0, 1, 2, 3), (1, 0, 3, 2)]
    odd_heads = gauges(ndl.MultiHead(2, ndl.Erf(0.5)), 3)
    assert len(odd_heads) == 8  # a sign of each head, and their exchange
    assert {g.signs for g in gauges(ndl.LowRankTied(2), 2)} == set(itertools.product((1.0, -1.0), repeat=2))


@pytest.mark.exact
def test_fixing_the_gauge_undoes_a_change_that_the_output_does_not_see():
    rng = np.random.default_rng(0)
    model = ndl.MultiHead(2, ndl.Erf(0.5))
    allowed, at = gauges(model, 3), informed(NEEDLES, model)
    teachers = frames(rng, 1, 9, 4)[0]
    weights = at @ teachers + 0.1 * rng.standard_normal((4, 9))
    for gauge in allowed:
        np.testing.assert_array_equal(fix_gauge(gauge(weights), teachers, at, allowed), weights)


def test_where_the_teachers_do_not_decide_the_sum_of_overlaps_is_positive():
    allowed = gauges(ndl.LowRankTied(), 2)
    teachers = frames(np.random.default_rng(0), 1, 6, 2)[0]
    weights = np.array([[-0.5, 0.2]]) @ teachers
    fixed = fix_gauge(weights, teachers, np.zeros((1, 2)), allowed)
    np.testing.assert_array_equal(fixed, -weights)


def test_informed_columns_take_the_teachers_of_their_names():
    np.testing.assert_array_equal(informed(PAIR, SOFTMAX), np.eye(2))
    np.testing.assert_array_equal(informed(PAIR, ndl.MultiHead(1, ndl.Softmax())), np.eye(2))
    np.testing.assert_array_equal(informed(NEEDLES, HEADS), np.eye(4))
    np.testing.assert_array_equal(informed(NEEDLES, SOFTMAX), np.eye(4)[[0, 2]])
    np.testing.assert_allclose(informed(POSITIONAL, ndl.LowRankTied()), [[math.sqrt(0.5)] * 2])
    two = informed(PAIR, HEADS)
    np.testing.assert_array_equal(two[[0, 2]], np.eye(2))
    np.testing.assert_allclose(two[[1, 3]], math.sqrt(0.5))


@pytest.mark.parametrize(
    ("task", "var"),
    [
        (PAIR, 0.01),
        (ndl.SpikedSLR({1: 0.5, 3: 0.5}, snr=1.0, noise=0.2), 0.04),
        (POSITIONAL, 0.0),
        (SIGNS, 0.0),
        (SIGNS.replace(noise=0.5), None),
    ],
    ids=str,
)
def test_noise_that_is_added_to_the_label_has_a_variance(task, var):
    assert noise_var_of(task) == (None if var is None else pytest.approx(var, rel=1e-12))


# --- what a user may declare, and what is refused -------------------------------------------------


def test_a_task_and_a_model_of_a_user_are_trained():
    @spec
    class Difference(SequenceTask):
        teachers = ("key", "value")
        tokens: int = count(lo=2)
        snr: float = real(lo=0.0)

        def shift(self, place):
            return {"key": jnp.sqrt(self.snr) * jnp.where(jnp.arange(self.tokens) == 0, 1.0, -1.0)}

        def label(self, fields, place, noise):
            return fields.value[0] - fields.value[1]

    @spec
    class Gated(FieldModel):
        gain: float = real(default=1.0)

        def columns(self):
            return ("key", "value")

        def output(self, fields):
            return jnp.sum(jnp.tanh(self.gain * fields.key) * fields.value)

    try:
        found = simulate(Difference(2, 4.0), Gated(), ndl.Ridge(6.0, 0.1))
        assert found.status is ndl.Status.CONVERGED
        assert found.overlaps.key > 0.3
        assert found.overlaps.value > 0.3
        assert found.risk.value < 1.5  # of 2 for the prediction 0
    finally:
        forget("Difference")
        forget("Gated")


@pytest.mark.parametrize(
    ("model", "learner", "error", "words"),
    [
        (SOFTMAX, ndl.Ridge(4.0, 0.3, algorithm="adam"), ndl.NoTheory, "no training by 'adam' on SeveralSLR"),
        (SOFTMAX, ndl.Ridge(4.0, "optimal"), ndl.InvalidParameter, "lam is not chosen yet"),
        (SOFTMAX, ndl.Ridge(4.0, (0.1, 0.2, 0.3)), ndl.InvalidParameter, "2 kinds of columns"),
        (SOFTMAX.replace(unit_norm=True), ndl.Ridge(4.0, 0.3), ndl.NoTheory, "penalties set the norms"),
        (SOFTMAX, ndl.Ridge(1e-3, 0.3), ndl.InvalidParameter, "at least one sequence"),
        (ndl.LowRankTied(), ndl.Ridge(4.0, 0.3), ndl.InvalidParameter, "the two must be of one shape"),
    ],
)
def test_what_is_not_trained_says_why(model, learner, error, words):
    with pytest.raises(error, match=words):
        simulate(PAIR, model, learner)

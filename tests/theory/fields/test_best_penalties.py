"""The best penalties for any field law: a closed form, the specialised search, and neighbours that are not better."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core import specs
from needlepoint.numerics.precision import float64
from needlepoint.theory.fields.order import Order, Pattern
from needlepoint.theory.fields.ridge.equations import Equations
from needlepoint.theory.fields.ridge.penalties import Search, risk_of_zero
from needlepoint.theory.fields.ridge.response import by_log_penalties, risk_at
from needlepoint.theory.fields.symmetry import patterns
from needlepoint.theory.penalties.accuracy import LOWEST

SPIKED = ndl.SpikedSLR(2, 2.0, noise=0.3)
SOFTMAX, LINEAR = (ndl.KeyValueAttention(a) for a in (ndl.Softmax(), ndl.Linear()))


class Plain(ndl.SequenceTask):
    """One token whose value is the label: the task of ordinary ridge regression."""

    teachers = ("value",)
    flips = (("value",),)
    tokens: int = ndl.count(lo=1, default=1)
    noise: float = ndl.real(lo=0.0, default=0.0)

    def label(self, fields, place, noise):
        return fields.value[0] + self.noise * noise


class Regression(ndl.FieldModel):
    flips = (("value",),)

    def columns(self):
        return ("value",)

    def output(self, fields):
        return fields.value[0]


class Opposites(ndl.SequenceTask):
    """Two tokens are shifted along k*, one up and one down; the label is the difference of their values."""

    teachers = ("key", "value")
    flips = (("value",),)
    tokens: int = ndl.count(lo=2, default=2)
    snr: float = ndl.real(lo=0.0, default=4.0)
    noise: float = ndl.real(lo=0.0, default=0.2)

    def shift(self, place):
        at = np.arange(self.tokens)
        return {"key": jnp.sqrt(self.snr) * (1.0 * (at == 0) - 1.0 * (at == 1))}

    def seen(self, place):
        return {"value": np.arange(self.tokens) < 2}

    def label(self, fields, place, noise):
        return (fields.value[0] - fields.value[1]) / np.sqrt(2) + self.noise * noise


class Gates(ndl.FieldModel):
    linear = ("value",)
    flips = (("value",),)

    def columns(self):
        return ("key", "value")

    def output(self, fields):
        return jnp.tanh(fields.key) @ fields.value


@pytest.fixture(autouse=True, scope="module")
def _declared():
    """The classes of this file have names while it runs."""
    classes = (Plain, Regression, Opposites, Gates)
    for one in classes:
        ndl.spec(one)
    yield
    for one in classes:
        specs.forget(one.__name__)


def least_excess(alpha, noise_var):
    """Ordinary ridge regression at the penalty of its posterior, noise_var: one fixed point of one number."""
    excess = 1.0
    for _ in range(10_000):
        excess = 1 / (1 + alpha / (noise_var + excess))
    return excess


@pytest.mark.exact
@pytest.mark.parametrize("common", [False, True])
def test_the_best_penalty_of_ridge_regression_is_the_variance_of_the_noise(common):
    learner = ndl.Ridge(2.0, "optimal", common=common)
    found = ndl.predict(Plain(noise=0.5), Regression(), learner)
    chosen = found.resolved[2]
    assert found.learner == learner
    assert chosen == ndl.Ridge(2.0, chosen.lam)
    (note,) = [n for n in found.notes if "the best penalty is known to a factor of" in n]
    factor = float(note.split("factor of ")[1].split(";")[0])
    assert abs(math.log(chosen.lam / 0.25)) <= 1.5 * math.log(factor)
    assert abs(found.excess_risk.value - least_excess(2.0, 0.25)) <= found.excess_risk.error
    assert found.excess_risk.error < 0.01 * found.excess_risk.value
    # another noise, whose best penalty and risk are others: both checks see it
    assert abs(math.log(chosen.lam / 0.30)) > 1.5 * math.log(factor)
    assert abs(found.excess_risk.value - least_excess(2.0, 0.30)) > found.excess_risk.error


def test_without_noise_the_best_penalty_is_at_the_bound_and_a_note_says_so():
    # a tolerance below what the last penalties before the bound cost
    found = ndl.predict(Plain(), Regression(), ndl.Ridge(2.0, "optimal"), tol=1e-6)
    assert found.resolved[2].lam == pytest.approx(LOWEST)
    assert any("sought between 0.001 and 1000, and ends at a bound" in note for note in found.notes)
    assert found.risk.value < 1e-5


def test_a_tolerance_that_cannot_be_met_is_said():
    found = ndl.predict(Plain(noise=0.5), Regression(), ndl.Ridge(2.0, "optimal"), tol=1e-7, throw=False)
    assert found.status is ndl.Status.NOISE_LIMITED
    assert 1e-7 < found.risk.error < 1e-3
    assert any("at most" in note and "above the least" in note for note in found.notes)


@pytest.mark.contract
def test_what_was_chosen_can_be_trained_swept_and_compared():
    learner, told = ndl.Ridge(2.0, "optimal"), []
    found = ndl.predict(Plain(noise=0.5), Regression(), learner, progress=told.append)
    assert told == sorted(told)
    assert len(told) > 4
    measured = ndl.simulate(*found.resolved, d=40, repeats=8)
    assert ndl.compare(found, measured).rows
    with pytest.raises(ndl.InvalidParameter, match="not chosen"):
        ndl.simulate(Plain(noise=0.5), Regression(), learner, d=40, repeats=2)
    study = ndl.sweep(Plain(noise=0.5), Regression(), learner, {"task.noise": [0.4, 0.6]})
    lams = [point.prediction.resolved[2].lam for point in study.points()]
    assert lams[0] < lams[1]
    assert study.to_dataframe()["resolved.lam"].tolist() == lams


@pytest.mark.exact
@pytest.mark.parametrize("model", [SOFTMAX, ndl.MultiHead(2, ndl.Softmax())], ids=["one head", "two heads"])
@float64
def test_the_penalties_enter_where_the_formula_says(model):
    """At fixed conjugates: the map with a changed penalty, against its derivative."""
    rng = np.random.default_rng(0)
    P, h = len(model.labels), 1e-4
    pattern = Pattern(((),) * P, ((), ()))
    A, B = rng.standard_normal((2, P, P))
    V, M = A @ A.T / P + 0.3 * np.eye(P), 0.5 * rng.standard_normal((P, 2))
    order = Order(M, M @ M.T + B @ B.T / P + 0.3 * np.eye(P), V)
    equations = Equations(SPIKED, model, ndl.Square(), 3.0, model.penalties((0.4, 0.7)), pattern, 9, 1, 0)
    found = by_log_penalties(equations, pattern.pack(order))
    held = np.linalg.inv(V) - np.diag(equations.penalties)
    for column, group in enumerate(model.groups):
        ends = []
        for sign in (1, -1):
            r = [
                p * math.exp(sign * h * (g == group)) for p, g in zip(equations.penalties, model.group_of, strict=True)
            ]
            new = np.linalg.inv(held + np.diag(r))
            turn = new @ np.linalg.inv(V)
            m = turn @ M
            ends.append(pattern.pack(Order(m, m @ m.T + turn @ (order.Q - M @ M.T) @ turn.T, new)))
        assert found[:, column] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-6)


@pytest.mark.exact
@float64
def test_the_gradient_is_that_of_solved_risks():
    learner, h = ndl.Ridge(4.0, "optimal"), 0.05
    search = Search(SPIKED, LINEAR, learner, risk_of_zero(SPIKED, LINEAR, learner))
    here = search(np.log([0.6, 3.0]))
    for axis in (0, 1):
        ends = [search(here.x + sign * h * np.eye(2)[axis], here) for sign in (1, -1)]
        slope = (ends[0].value - ends[1].value) / (2 * h)
        assert here.gradient[axis] == pytest.approx(slope, rel=0.03, abs=1e-4)
    # without the feedback of the fixed point it is another
    equations = search.equations(here.x, patterns(SPIKED, LINEAR)[0])
    own = by_log_penalties(equations, here.data.x)
    direct = risk_at(equations, 0, here.data.x)[1] @ own / search.scale
    assert not np.allclose(direct, here.gradient, rtol=0.03, atol=1e-4)


def agree(found, other):
    """Risks and penalties of two searches, each within the errors that it states."""
    gap = abs(found.excess_risk.value - other.excess_risk.value)
    assert gap <= found.excess_risk.error + other.excess_risk.error
    factors = [
        np.log([float(x) for x in note.split("factor of ")[1].split(";")[0].split(" and ")])
        for p in (found, other)
        for note in p.notes
        if "known to a factor" in note
    ]
    apart = np.abs(np.log(found.resolved[2].penalties) - np.log(other.resolved[2].penalties))
    assert np.all(apart <= 1.5 * (factors[0] + factors[1]))


@pytest.mark.slow
@pytest.mark.quadrature
@pytest.mark.parametrize(("model", "common"), [(LINEAR, True), (LINEAR, False), (SOFTMAX, False)])
def test_the_generic_search_ends_where_the_specialised_one_does(model, common):
    learner = ndl.Ridge(4.0, "optimal", common=common)
    found, other = (ndl.predict(SPIKED, model, learner, method=method) for method in ("fields", "location"))
    agree(found, other)
    assert found.excess_risk.error < 0.02  # it would see another question:
    with pytest.raises(AssertionError):
        agree(found, ndl.predict(SPIKED.replace(snr=2.6), model, learner))


def no_neighbour_is_better(question, answer, factors):
    """Neighbouring penalties, solved on their own, have no lower risk than the answer beyond the errors of both."""
    task, model, learner = question
    for factor in factors:
        lam = tuple(float(p * f) for p, f in zip(answer[0], factor, strict=True))
        other = ndl.predict(task, model, learner.replace(lam=lam, common=False), throw=False).risk
        assert answer[1].value <= other.value + answer[1].error + other.error, lam


@pytest.mark.slow
@pytest.mark.parametrize("far", [0.5, 1.5])
def test_no_neighbour_of_the_best_penalties_is_better(far):
    question = (Opposites(), Gates(), ndl.Ridge(4.0, "optimal"))
    found = ndl.predict(*question)
    rng = np.random.default_rng(0)
    best = found.resolved[2].penalties
    no_neighbour_is_better(question, (best, found.risk), np.exp(rng.normal(0, far, (8, 2))))
    # an answer that is off by a factor of five is beaten: by the best penalties, five times away from it
    wrong = ndl.predict(*question[:2], ndl.Ridge(4.0, tuple(5 * p for p in best)), throw=False).risk
    with pytest.raises(AssertionError):
        no_neighbour_is_better(question, (tuple(5 * p for p in best), wrong), [(0.2, 0.2)])


@pytest.mark.slow
def test_two_heads_may_have_one_penalty_for_all_columns():
    task, model = ndl.Needles(2, snr=3.0, noise=0.2), ndl.MultiHead(2, ndl.Softmax())
    found = ndl.predict(task, model, ndl.Ridge(4.0, "optimal", common=True), tol=0.03, throw=False)
    lam = found.resolved[2].lam
    assert isinstance(lam, float)
    for factor in (0.3, 3.0):
        other = ndl.predict(task, model, ndl.Ridge(4.0, factor * lam), tol=0.03)
        assert found.risk.value <= other.risk.value + found.risk.error + other.risk.error


@pytest.mark.slow
def test_the_phase_of_lower_energy_is_the_one_whose_penalty_is_sought():
    question = (ndl.PositionalSemantic(0.3), ndl.LowRankTied())
    learner = ndl.Ridge(2.0, "optimal", loss=ndl.Square(0.25))
    found = ndl.predict(*question, learner)
    assert found.branch == "semantic"
    no = [ndl.predict(*question, learner.replace(lam=f * found.resolved[2].lam)).risk for f in (0.5, 2.0)]
    assert all(found.risk.value <= other.value + found.risk.error + other.error for other in no)
    with pytest.raises(ndl.InvalidParameter, match="compared at one penalty"):
        ndl.field_branches(*question, learner)


@pytest.mark.slow
def test_a_contest_gives_every_model_its_own_best_penalties():
    found = ndl.contest(Opposites(), [Gates(), SOFTMAX], ndl.Ridge(4.0, "optimal"), tol=0.02)
    assert found.best.name == "Gates"
    pairs = [entry.penalties for entry in found.entries]
    assert all(len(pair) == 2 for pair in pairs)
    assert pairs[0] != pairs[1]

"""Many questions at once against one by one: numbers within their errors, everything else the same."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.curves import predict_curves, static_key
from needlepoint.theory.location.dynamics import descent
from needlepoint.theory.location.erf import many_optima
from needlepoint.theory.location.population import optimum

POPULATION = ndl.Population()
START = ndl.Overlaps(0.1, 0.2, -0.05, 0.15, 0.3)


def spiked(rng):
    return ndl.SpikedSLR(5, np.exp(rng.uniform(-2, 4)), rng.uniform(0.6, 1.4), rng.choice([0.0, 0.3]))


def maximal(rng):
    return ndl.MaxSLR(5, rng.choice([0.2, 1.0, 3.0, 20.0]), rng.choice([0.0, 0.3]))


def endless(rng):
    return ndl.MaxSLR({2: 0.4, 6: 0.6}, math.inf, rng.choice([0.0, 0.3]))


def given(rng):
    return ndl.Erf(rng.uniform(0.5, 2), rng.uniform(-1, 0.2), rng.uniform(0.3, 1.6))


def free_shift(rng):
    return ndl.Erf(1.0, None, rng.uniform(0.3, 1.6))


def questions(task, activation, count, seed=0):
    rng = np.random.default_rng(seed)
    return [(task(rng), ndl.KeyValueAttention(activation(rng)), POPULATION) for _ in range(count)]


@functools.cache
def one_by_one(asked):
    return [ndl.predict(*question, throw=False) for question in asked]


def gaps(batched, singles):
    """Differences of the risks in units of the joined stated errors."""
    pairs = zip(batched, singles, strict=True)
    return np.array([abs(a.risk.value - b.risk.value) / (a.risk.error + b.risk.error) for a, b in pairs])


def assert_same(batched, singles, places=1e-6):
    """`places`: of key and constants, relative; where the risk is flat they are known to the root of rounding."""
    assert np.all(gaps(batched, singles) <= 1.0)
    for a, b in zip(batched, singles, strict=True):
        assert (a.task, a.model, a.learner, a.seed, a.exact) == (b.task, b.model, b.learner, b.seed, b.exact)
        assert (a.status, a.branch, a.notes) == (b.status, b.branch, b.notes)
        assert set(a.metrics) == set(b.metrics)
        assert a.excess_risk.error <= 10 * b.excess_risk.error + 1e-12
        for (name, x), (_, y) in zip(a.overlaps.items(), b.overlaps.items(), strict=True):
            assert x == pytest.approx(y, rel=places, abs=1e-12), name
        mine, theirs = a.resolved[1].activation, b.resolved[1].activation
        assert (a.resolved[0], a.resolved[2]) == (b.resolved[0], b.resolved[2])
        for name in ("scale", "shift", "offset"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=places, abs=places)
        assert a.residual == pytest.approx(b.residual, abs=1e-8, nan_ok=True)


CASES = [
    (spiked, given),
    pytest.param(spiked, free_shift, marks=pytest.mark.slow),
    pytest.param(maximal, given, marks=pytest.mark.slow),
    pytest.param(maximal, free_shift, marks=pytest.mark.slow),
    pytest.param(endless, given, marks=pytest.mark.slow),
]


@pytest.fixture
def left_over(monkeypatch):
    """The questions that the batch left to the rule for one."""
    seen, plain = [], optimum.predict_population

    def watched(task, model, learner, options):
        seen.append((task, model, learner))
        return plain(task, model, learner, options)

    monkeypatch.setattr(optimum, "predict_population", watched)
    return seen


@pytest.mark.exact
@pytest.mark.parametrize(("task", "activation"), CASES, ids=lambda f: f.__name__)
def test_batched_equals_one_by_one(task, activation, left_over):
    asked = questions(task, activation, 12)
    first, second = predict_curves([asked[:9], asked[9:]])
    assert (len(first), len(second)) == (9, 3)
    # it would be no test if the batch solved nothing itself
    assert len(left_over) <= 4
    assert_same(first + second, one_by_one(tuple(asked)))


@pytest.mark.negative
def test_results_in_a_wrong_order_are_seen():
    asked = questions(spiked, given, 12)
    wrong = [*predict_curves([asked])[0]]
    wrong[2], wrong[3] = wrong[3], wrong[2]
    assert np.flatnonzero(gaps(wrong, one_by_one(tuple(asked))) > 1.0).tolist() == [2, 3]
    with pytest.raises(AssertionError):
        assert_same(wrong, one_by_one(tuple(asked)))


@pytest.mark.exact
def test_what_is_no_ordinary_minimum_is_left_to_the_rule_for_one(left_over):
    """A norm that has no best value and a best key of zero, among ordinary points."""
    ordinary = [
        (t, m.replace(activation=m.activation.replace(scale=1.0)), p) for t, m, p in questions(spiked, given, 5)
    ]
    pure = (ndl.SpikedSLR(5, 3.0), ndl.KeyValueAttention(ndl.Erf(1.0)), POPULATION)
    blind = (ndl.SpikedSLR(5, 0.0), ndl.KeyValueAttention(ndl.Erf(1.0, -0.5, 1.0)), POPULATION)
    asked = [ordinary[0], pure, *ordinary[1:3], blind, *ordinary[3:]]
    found = predict_curves([asked])[0]
    assert {pure, blind} <= set(left_over)
    assert len(left_over) < 4
    assert found[1].status is ndl.Status.UNBOUNDED
    assert found[4].overlaps.key == 0.0
    assert_same(found, one_by_one(tuple(asked)))


@pytest.mark.exact
def test_the_same_chunk_gives_the_same_bits_and_the_cut_into_curves_does_not_matter():
    asked = questions(spiked, free_shift, 12)
    once, twice = (predict_curves([asked[:5], [], asked[5:]], seed=3) for _ in range(2))
    assert [len(curve) for curve in once] == [5, 0, 7]
    flat, again = ([p for curve in curves for p in curve] for curves in (once, twice))
    assert [p.to_json() for p in flat] == [p.to_json() for p in again]
    assert {p.seed for p in flat} == {3}
    backwards = predict_curves([[q] for q in reversed(asked)], seed=3)
    assert_same([p for (p,) in reversed(backwards)], flat)


@pytest.mark.exact
def test_a_lower_minimum_next_door_is_found(monkeypatch):
    """With its own start replaced by a poor one, a point reaches its optimum from the neighbour's."""
    asked = [
        (ndl.SpikedSLR(5, snr), ndl.KeyValueAttention(ndl.Erf(1.0, None, 1.0)), POPULATION)
        for snr in (30.0, 31.0, 32.0)
    ]
    plain, lowest = many_optima._lowest, []

    def spoiled(batch, starts, tol):
        found = plain(batch, starts, tol)
        lowest.append(starts)
        return {i: e._replace(value=e.value + 0.1) if i == 1 and len(lowest) == 1 else e for i, e in found.items()}

    monkeypatch.setattr(many_optima, "_lowest", spoiled)
    found = predict_curves([asked])[0]
    assert {i for i, _ in lowest[1]} == {1}
    assert_same(found, one_by_one(tuple(asked)))


@pytest.mark.exact
@pytest.mark.parametrize(
    "start",
    [
        pytest.param("sphere", id="random"),
        pytest.param((START, ndl.Overlaps(0.3, -0.2)), id="two"),
        pytest.param(START, id="one", marks=pytest.mark.slow),
    ],
)
def test_descent_in_a_batch(start, monkeypatch):
    rng = np.random.default_rng(4)
    size = {"d": 30, "runs": 3} if start == "sphere" else {}
    asked = [
        (
            ndl.SpikedSLR(6, rng.uniform(1, 40), rng.uniform(0.6, 1.2), rng.choice([0.0, 0.2])),
            ndl.KeyValueAttention(ndl.Erf(rng.uniform(0.1, 1), rng.choice([0.0, -0.2])), unit_norm=True),
            ndl.ProjectedDescent(lr, 150, start, schedule=rng.choice([0.0, 1e-3]), record_every=40, **size),
        )
        for lr in (1e-3, 2e-3, 3e-3, 1e300, 1e-2)
    ]
    monkeypatch.setattr(descent, "ACCURACY", replace(descent.ACCURACY, runs=8))  # more than one call
    found = [p for curve in predict_curves([asked[:1], asked[1:]], seed=5) for p in curve]
    for batched, question in zip(found, asked, strict=True):
        single = ndl.predict(*question, seed=5, throw=False)
        assert (batched.status, batched.branch, batched.notes) == (single.status, single.branch, single.notes)
        assert batched.trajectory.branches == single.trajectory.branches
        np.testing.assert_array_equal(batched.trajectory.steps, single.trajectory.steps)
        np.testing.assert_array_equal(batched.trajectory.scale, single.trajectory.scale)
        for name, path in single.trajectory.overlaps.items():
            # two compilations of one recursion: rounding, that 150 steps amplify little
            np.testing.assert_allclose(batched.trajectory.overlaps[name], path, rtol=0, atol=1e-11)
        if single.status.ok:
            assert batched.risk.value == pytest.approx(single.risk.value, rel=1e-11)
            assert batched.risk.kind == single.risk.kind
    assert found[3].status is ndl.Status.DIVERGED


def test_keys_separate_what_cannot_be_solved_together():
    task, model = ndl.SpikedSLR(5, 2.0), ndl.KeyValueAttention(ndl.Erf(1.0, -0.5, 1.0))
    key = static_key(task, model, POPULATION)
    assert key is not None
    assert key == static_key(
        task.replace(snr=7.0, noise=0.3), model.replace(activation=ndl.Erf(2.0, 0.1, 0.4)), POPULATION
    )
    others = [
        (task.replace(tokens=6), model, POPULATION),
        (ndl.MaxSLR(5, 2.0), model, POPULATION),
        (ndl.MaxSLR(5, math.inf), model, POPULATION),
        (task, model.replace(activation=ndl.Erf(1.0, None, 1.0)), POPULATION),
    ]
    keys = [static_key(*question) for question in others]
    assert None not in keys
    assert len({key, *keys}) == 5
    path = ndl.ProjectedDescent(1e-3, 10, START)
    unit = model.replace(unit_norm=True)
    assert static_key(task, unit, path) == static_key(task, unit, path.replace(lr=2e-3)) is not None
    assert static_key(task, unit, path) != static_key(task, unit, path.replace(steps=11))
    for question in [
        (task, unit, POPULATION),
        (task, model, ndl.Population(within="all")),
        (task, ndl.KeyValueAttention(ndl.Softmax()), POPULATION),
        (task, model.replace(activation=ndl.Erf(None)), POPULATION),
        (task, model, path),
        (task, None, ndl.BayesOptimal()),
        (task, ndl.LinearRegression(), POPULATION),
    ]:
        assert static_key(*question) is None


def test_bad_calls():
    task, model = ndl.SpikedSLR(5, 2.0), ndl.KeyValueAttention(ndl.Erf(1.0, -0.5, 1.0))
    assert predict_curves([]) == []
    assert predict_curves([[], []]) == [[], []]
    with pytest.raises(ndl.InvalidParameter, match="one static key"):
        predict_curves([[(task, model, POPULATION)], [(task.replace(tokens=6), model, POPULATION)]])
    with pytest.raises(ndl.InvalidParameter, match="has none"):
        predict_curves([[(task, ndl.KeyValueAttention(ndl.Softmax()), POPULATION)]])
    with pytest.raises(ndl.InvalidParameter, match="tol"):
        predict_curves([[(task, model, POPULATION)]], tol=-1.0)
    with pytest.raises(ndl.InvalidParameter, match="seed"):
        predict_curves([[(task, model, POPULATION)]], seed=-1)


def test_progress_rises_to_one():
    seen = []
    predict_curves([questions(spiked, given, 12)], progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0

"""Learners: what they accept, the sentence they refuse with, and which steps are recorded."""

import itertools
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.learners import record_steps

pytestmark = pytest.mark.exact

UNIT = ndl.Overlaps(0.3, 0.2)
LONG = ndl.Overlaps(0.3, 0.2, key_sq=2.0)


def descent(**changes):
    return ndl.ProjectedDescent(**{"lr": 0.1, "steps": 10, "start": UNIT, **changes})


def sgd(**changes):
    return ndl.OnlineSGD(**{"lr": 0.1, "steps": 10, "batch": 5, "start": UNIT, "d": 20, **changes})


def flow(**changes):
    return ndl.GradientFlow(**{"time": 3.0, "start": LONG, "record_every": 1.0, **changes})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: descent(start="sphere"), r"ProjectedDescent\(start='sphere'\): needs d= and runs= "),
        (lambda: descent(start="sphere", d=10), "needs d= and runs="),
        (lambda: descent(start="manifold", runs=3), "needs d= and runs="),
        (lambda: sgd(start="sphere"), r"OnlineSGD\(start='sphere'\): needs d= and runs= "),
        (
            lambda: descent(start="manifold", d=2, runs=1),
            r"ProjectedDescent\(d=2\): d must be >= 3 for start='manifold'",
        ),
        (lambda: descent(start="sphere", d=1, runs=1), "d must be"),
        (lambda: descent(runs=3), r"ProjectedDescent\(runs=3\): a given start runs once each; give a tuple of starts"),
        (lambda: descent(start=LONG), r"start=...\): key_sq and value_sq must be 1"),
        (lambda: descent(start=(UNIT, LONG)), "key_sq and value_sq must be 1"),
        (sgd(start=LONG).require_unit_starts, r"OnlineSGD\(start=...\): key_sq and value_sq must be 1"),
        (lambda: sgd(d=None), r"OnlineSGD\(d=None\): d is needed .*; d >= 6"),
        (lambda: sgd(d=5), "d must be .*6"),
        (lambda: descent(start=()), "empty"),
        (lambda: descent(start="elsewhere"), "'sphere' or 'manifold'"),
        (lambda: descent(lr=0.0), "lr must be"),
        (lambda: descent(steps=0), "steps must be"),
        (lambda: descent(schedule=-1e-4), "schedule must be"),
        (lambda: descent(record_every=0), "record_every must be"),
        (lambda: sgd(batch=0), "batch must be"),
        (lambda: flow(time=0.0), r"GradientFlow\(time=0.0\): time must be > 0 and finite \(it is how long"),
        (lambda: flow(time=-1.0), "time must be"),
        (lambda: flow(time=math.inf), "time must be"),
        (lambda: flow(record_every=0.0), "record_every must be"),
        (lambda: flow(start=()), "empty"),
        (lambda: flow(start="sphere"), "start must be one of FieldOverlaps, Overlaps"),
        (lambda: flow(record_every=1e-9).record_times(), "at most 10,000,000 records"),
        (lambda: ndl.Population("somewhere"), "within must be"),
        (lambda: ndl.BayesOptimal(alpha=0.0), "alpha must be"),
        (lambda: ndl.BayesOptimal(d=1), "d must be"),
    ],
)
def test_what_is_refused_and_why(make, sentence):
    with pytest.raises(ndl.InvalidParameter, match=sentence):
        make()


def test_what_is_accepted():
    assert descent(start="sphere", d=2, runs=1).d == 2
    assert descent(start="manifold", d=3, runs=4).runs == 4
    assert sgd(start="manifold", d=6, runs=2).batch == 5
    assert descent(runs=1).start == UNIT
    assert sgd(runs=30).runs == 30  # the noise differs from run to run
    assert sgd(start=LONG).start == LONG  # with free norms; on spheres the rule refuses it
    assert flow(start=[LONG, UNIT]).given == (LONG, UNIT)
    assert flow(time=3) == flow()
    assert descent(start=[UNIT, UNIT]).start == (UNIT, UNIT)
    assert ndl.BayesOptimal() == ndl.BayesOptimal(alpha=None, d=None)
    assert ndl.Population() == ndl.Population(within="manifold")
    assert descent(lr=1, schedule=0) == descent(lr=1.0)


def test_starts_survive_json():
    from needlepoint.core.specs import from_json

    for learner in (descent(), descent(start=(UNIT, UNIT)), descent(start="sphere", d=8, runs=2), sgd(), flow()):
        assert from_json(learner.to_json()) == learner


@pytest.mark.parametrize(
    ("steps", "every", "marks"),
    [
        (10, 5, [0, 5, 10]),
        (10, 4, [0, 4, 8, 10]),
        (3, 1, [0, 1, 2, 3]),
        (3, 100, [0, 3]),
        (1, 1, [0, 1]),
    ],
)
def test_record_steps(steps, every, marks):
    assert record_steps(steps, every) == marks


def test_record_steps_always_begin_at_zero_and_end_at_the_last():
    for steps in range(1, 40):
        for every in range(1, 45):
            marks = record_steps(steps, every)
            assert (marks[0], marks[-1]) == (0, steps)
            gaps = [b - a for a, b in itertools.pairwise(marks)]
            assert all(g == every for g in gaps[:-1])
            assert 1 <= gaps[-1] <= every


@pytest.mark.parametrize(
    ("time", "every", "times"),
    [
        (3.0, 1.0, [0, 1, 2, 3]),
        (1.0, 0.4, [0, 0.4, 0.8, 1.0]),
        (0.3, 0.1, [0, 0.1, 0.2, 0.3]),  # 0.3 / 0.1 is not 3 in floating point
        (1.0, 5.0, [0, 1.0]),
    ],
)
def test_record_times(time, every, times):
    np.testing.assert_allclose(flow(time=time, record_every=every).record_times(), times, rtol=1e-15)

"""Answers of the first screen are those of the verbs, and training streams seed by seed."""

import pytest

import needlepoint as ndl
from needlepoint.core.errors import InvalidParameter
from needlepoint.explorer.questions.asking import read

TASK = ndl.SpikedSLR(tokens=2, snr=2.0, noise=0.3)
LINEAR = ndl.KeyValueAttention(ndl.Linear())


def answered(document):
    events = []
    read({"task": repr(TASK), "model": repr(LINEAR), **document}).answer(events.append, ())
    return events


def of(events, kind):
    return [event for event in events if event["event"] == kind]


def test_a_point_is_what_predict_says():
    (point,) = of(answered({"kind": "best", "alphas": [4]}), "point")
    expected = ndl.predict(TASK, LINEAR, ndl.Ridge(4, "optimal"))
    assert point["risk"] == [expected.risk.value, expected.risk.error]
    assert tuple(point["lam"]) == expected.resolved[2].lam
    assert (point["trusted"], point["status"]) == (True, "CONVERGED")
    (bayes,) = of(answered({"kind": "best", "model": "None", "alphas": [4]}), "point")
    assert bayes["risk"][0] == ndl.predict(TASK, None, ndl.BayesOptimal(4)).risk.value
    assert bayes["lam"] is None
    assert bayes["risk"][0] < point["risk"][0]


def test_risks_around_a_penalty_are_those_of_ridge_there():
    events = answered({"kind": "penalties", "alpha": 4, "lam": [0.9, 5.0], "factors": [0.5, 1, 2]})
    points = of(events, "point")
    assert [point["factor"] for point in points] == [0.5, 1, 2]
    expected = ndl.predict(TASK, LINEAR, ndl.Ridge(4, (0.45, 2.5)))
    assert points[0]["risk"][0] == pytest.approx(expected.risk.value, abs=expected.risk.error)
    assert points[0]["lam"] == [0.45, 2.5]


@pytest.mark.training
def test_training_streams_means_with_errors_and_scores():
    events = answered({"kind": "train", "learner": "Ridge(alpha=4, lam=2.0)", "d": 30, "repeats": 4, "seed": 7})
    measured = of(events, "measured")
    assert [m["repeats"] for m in measured] == [2, 3, 4]
    seeds = [ndl.simulate(TASK, LINEAR, ndl.Ridge(4, 2.0), d=30, repeats=1, seed=7 + i) for i in range(4)]
    mean = sum(s.risk.value for s in seeds) / 4
    risk = measured[-1]["metrics"]["risk"]
    assert risk["value"] == pytest.approx(mean, rel=1e-12)
    predicted = ndl.predict(TASK, LINEAR, ndl.Ridge(4, 2.0)).risk
    # the numerical error, a bound, is taken off the gap before it is counted in standard errors
    gap = max(0.0, abs(risk["value"] - predicted.value) - predicted.error)
    assert abs(risk["z"]) <= gap / risk["error"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"kind": "best", "alphas": []}, "a list of 1 to 64"),
        ({"kind": "best", "alphas": [True]}, "a number from"),
        ({"kind": "best", "alphas": [-1]}, "a number from"),
        ({"kind": "best", "alphas": [1], "more": 1}, "no field 'more'"),
        ({"kind": "best", "alphas": [1], "common": 1}, "true or false"),
        ({"kind": "penalties", "model": "None", "alpha": 1, "lam": [1], "factors": [1]}, "no penalty"),
        ({"kind": "train", "learner": "Population()", "d": 1, "repeats": 1}, "a whole number from 2"),
        ({"kind": "train", "learner": "Population()", "d": 10**9, "repeats": 1}, "a whole number from 2"),
        ({"kind": "train", "learner": "Population()", "d": 20.0, "repeats": 1}, "a whole number from 2"),
        ({"kind": "predict", "task": "Softmax()", "learner": "Population()"}, "is not a task"),
        ({"kind": 3}, "must be a text"),
    ],
)
def test_what_is_wrong_is_said(document, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        read({"task": repr(TASK), "model": repr(LINEAR), **document})

"""Predictions and measurements: metrics as attributes, JSON without NaN, means with standard errors."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FIVE, Overlaps
from needlepoint.core.results import Measurement, Prediction, Trajectory, mean_estimate
from needlepoint.core.specs import from_json, spec_id
from needlepoint.core.status import Status
from needlepoint.core.text.jsonio import dumps
from needlepoint.learners import Population
from needlepoint.models.activations import Erf
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import SpikedSLR

TASK, MODEL, LEARNER = SpikedSLR(2, 3.0, noise=0.5), KeyValueAttention(Erf(None), unit_norm=True), Population()
RISK, EXCESS = Estimate(1.25, 1e-9), Estimate(1.0, 1e-9)


def trajectory(bad=math.nan):
    overlaps = {name: np.full((2, 3), 0.1 * (i + 1)) for i, name in enumerate(FIVE)}
    risk = np.array([[3.0, 2.0, 1.0], [3.0, bad, bad]])
    return Trajectory(np.array([0, 5, 10]), np.array([1.0, 0.5, 0.25]), overlaps, risk, ("oracle", "other"))


def prediction(**changes):
    return Prediction(TASK, MODEL, LEARNER, {"risk": RISK, "excess_risk": EXCESS}, **changes)


# --- attributes --------------------------------------------------------------------------------


def test_metrics_are_attributes():
    p = prediction()
    assert p.risk is RISK
    assert p.excess_risk is EXCESS
    assert float(p.risk) == 1.25


def test_a_metric_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(AttributeError, match=r"^Prediction has no metric 'rsik'; it has risk, excess_risk\.$"):
        prediction().rsik  # noqa: B018
    with pytest.raises(AttributeError, match=r"^Measurement has no metric 'risk'; it has none\.$"):
        Measurement(TASK, MODEL, LEARNER, {}).risk  # noqa: B018
    assert not hasattr(prediction(), "energy")


def test_results_can_be_copied_and_sent_to_a_worker():
    p = prediction(overlaps=Overlaps(0.5, 0.1), overlaps_error={"key": 1e-9})
    for other in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert other.to_json() == p.to_json()
        assert other.risk == RISK


def test_the_id_is_that_of_the_question():
    assert prediction().id == spec_id(TASK, MODEL, LEARNER)
    assert prediction().id == prediction(status=Status.MAX_STEPS).id
    assert prediction().id != Prediction(TASK, None, LEARNER, {}).id


# --- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_json_has_no_nan(bad):
    failed = {"risk": Estimate(math.nan, math.inf), "excess_risk": Estimate(math.inf, math.inf)}
    results = [
        Prediction(
            TASK, MODEL, LEARNER, failed, Status.DIVERGED, trajectory=trajectory(bad), replicon=bad, residual=math.nan
        ),
        Measurement(TASK, MODEL, LEARNER, failed, Status.DIVERGED, overlaps_error={"key": bad}, d=10, repeats=2),
    ]
    for result in results:
        document = json.loads(dumps(result), parse_constant=pytest.fail)
        assert document == result.to_json()
        assert document["metrics"]["risk"] == {"value": None, "error": "inf", "kind": "numerical"}
        assert document["status"] == "DIVERGED"
        assert document["status_sentence"] == Status.DIVERGED.sentence


def test_a_prediction_in_json():
    resolved = (TASK, KeyValueAttention(Erf(0.5), unit_norm=True), LEARNER)
    p = prediction(
        resolved=resolved,
        exact=True,
        stable=True,
        overlaps=Overlaps(0.5, 0.1),
        overlaps_error={"key": 1e-9},
        branch="oracle",
        notes=("a note",),
        trajectory=trajectory(),
        seed=7,
    )
    document = json.loads(dumps(p))
    assert document["kind"] == "prediction"
    assert document["id"] == p.id
    assert tuple(from_json(document[part]) for part in ("task", "model", "learner")) == (TASK, MODEL, LEARNER)
    assert tuple(from_json(document["resolved"][part]) for part in ("task", "model", "learner")) == resolved
    assert document["overlaps"] == dict(Overlaps(0.5, 0.1).items())
    assert (document["exact"], document["stable"], document["seed"]) == (True, True, 7)
    assert (document["branch"], document["notes"]) == ("oracle", ["a note"])
    path = document["trajectory"]
    assert path["steps"] == [0, 5, 10]
    assert path["excess_risk"] == [[3.0, 2.0, 1.0], [3.0, None, None]]
    assert np.shape(path["overlaps"]["key"]) == np.shape(path["distance_to_manifold"]) == (2, 3)


def test_what_is_not_resolved_is_the_question_itself():
    document = json.loads(dumps(Prediction(TASK, None, LEARNER, {})))
    assert document["resolved"] == {"task": TASK.to_json(), "model": None, "learner": LEARNER.to_json()}
    assert document["overlaps"] is None
    assert document["trajectory"] is None


def test_a_measurement_in_json():
    document = json.loads(dumps(Measurement(TASK, MODEL, LEARNER, {"risk": RISK}, d=100, repeats=16)))
    assert (document["kind"], document["d"], document["repeats"]) == ("measurement", 100, 16)


# --- text --------------------------------------------------------------------------------------


def test_the_text_has_status_metrics_branch_and_notes():
    p = prediction(
        status=Status.NOISE_LIMITED,
        overlaps=Overlaps(0.5, 0.1),
        branch="oracle",
        notes=("a note",),
        trajectory=trajectory(),
    )
    text = str(p)
    assert text == repr(p)
    assert f"NOISE_LIMITED: {Status.NOISE_LIMITED.sentence}" in text
    assert "1.2500000000(10)" in text
    assert "key=0.5, value=0.1" in text
    assert "oracle 1, other 1 (of 2 runs)" in text
    assert text.splitlines()[-1].endswith("a note")


# --- trajectories ------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_trajectory():
    t = trajectory()
    assert t.runs == 2
    assert t.shares() == {"oracle": 1, "other": 1}
    np.testing.assert_allclose(t.distance_to_manifold, np.sqrt(0.3**2 + 0.4**2 + 0.5**2), rtol=1e-14)
    t.overlaps["key"][1, -1] = 0.25
    np.testing.assert_allclose(t.end(1).five(), [0.25, 0.2, 0.3, 0.4, 0.5], rtol=1e-15)
    np.testing.assert_allclose(t.end().five(), [0.1, 0.2, 0.3, 0.4, 0.5], rtol=1e-15)


# --- means -------------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_standard_error_is_that_of_the_mean():
    e = mean_estimate(np.array([1.0, 2.0, 3.0, 6.0]))
    assert e.value == 3.0
    assert e.error == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4), rel=1e-14)
    assert e.kind == "stderr"


def test_one_repeat_has_an_infinite_error():
    assert mean_estimate(np.array([2.0])) == Estimate(2.0, math.inf, "stderr")


@pytest.mark.montecarlo
def test_the_mean_squared_standard_error_is_the_variance_of_the_mean():
    """4000 means of 8 normals: the error of the mean of se^2 is sqrt(2/7/4000) = 0.8 %, of the variance 2.2 %."""
    samples = np.random.default_rng(0).standard_normal((4000, 8))
    estimates = [mean_estimate(row) for row in samples]
    mean_square = np.mean([e.error**2 for e in estimates])
    assert abs(mean_square * 8 - 1) < 5 * math.sqrt(2 / 7 / 4000)
    assert abs(np.var([e.value for e in estimates]) / mean_square - 1) < 5 * math.sqrt(2 / 4000 + 2 / 7 / 4000)


@pytest.mark.parametrize("status", [Status.MAX_STEPS, Status.DIVERGED, Status.INFEASIBLE])
def test_a_prediction_that_is_not_solved_has_no_error_bar(status):
    given = {"risk": Estimate(1.2, 1e-9), "excess_risk": Estimate(0.2, 0.0)}
    o = Overlaps(0.5, 0.4)
    p = Prediction(TASK, MODEL, LEARNER, given, status, o, {"key": 1e-3}, stable=True, replicon=0.5)
    assert [e.error for e in p.metrics.values()] == [math.inf, math.inf]
    assert p.risk.value == 1.2
    assert p.overlaps_error == {"key": math.inf}
    assert p.stable is None
    assert p.replicon is None


@pytest.mark.parametrize("status", [Status.CONVERGED, Status.UNSTABLE, Status.NOISE_LIMITED, Status.UNBOUNDED])
def test_other_predictions_keep_theirs(status):
    p = Prediction(TASK, MODEL, LEARNER, {"risk": Estimate(1.2, 1e-9)}, status, stable=False, replicon=2.0)
    assert p.risk == Estimate(1.2, 1e-9)
    assert (p.stable, p.replicon) == (False, 2.0)

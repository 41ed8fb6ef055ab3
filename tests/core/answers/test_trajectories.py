"""From recorded runs to metrics."""

import math

import numpy as np
import pytest

from needlepoint.core.answers.trajectories import named, scale_at, summarise
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FIVE, Overlaps
from needlepoint.core.results import Prediction, Trajectory
from needlepoint.core.status import Status
from needlepoint.core.text.jsonio import dumps
from needlepoint.learners import Population
from needlepoint.tasks.single_location import SpikedSLR


def trajectory(five, risk, steps=None):
    risk = np.asarray(risk, dtype=float)
    steps = np.arange(risk.shape[1]) if steps is None else np.asarray(steps)
    return Trajectory(steps, np.ones(len(steps)), named(np.asarray(five, dtype=float)), risk)


def constant(runs, records, *five):
    """(5, runs, records), constant along the path."""
    return np.broadcast_to(np.asarray(five, dtype=float)[:, None, None], (5, runs, records)).copy()


# --- scale -------------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_scale_at_a_record_is_that_of_the_step_before():
    """eq:schedule: step t (from 0) uses lambda / (1 + h t); record n follows step n - 1."""
    got = scale_at(2.0, 0.5, [0, 1, 2, 3, 10])
    np.testing.assert_allclose(got, [2.0, 2.0, 2.0 / 1.5, 2.0 / 2.0, 2.0 / 5.5], rtol=1e-15)


@pytest.mark.exact
def test_without_a_schedule_the_scale_is_constant():
    assert scale_at(0.3, 0.0, range(5)).tolist() == [0.3] * 5


@pytest.mark.negative
def test_a_schedule_that_starts_one_step_late_would_be_seen():
    late = 2.0 / (1.0 + 0.5 * np.arange(4))
    assert not np.allclose(scale_at(2.0, 0.5, range(4)), late)


def test_named_keeps_the_order_of_the_five():
    five = np.arange(5 * 2 * 3).reshape(5, 2, 3)
    arrays = named(five)
    assert tuple(arrays) == FIVE
    for name, row in zip(FIVE, five, strict=True):
        np.testing.assert_array_equal(arrays[name], row)
        assert arrays[name].dtype == float
    with pytest.raises(ValueError, match="zip"):
        named(five[:4])


# --- summaries ---------------------------------------------------------------------------------


@pytest.mark.exact
def test_metrics_are_means_at_the_last_record_with_standard_errors():
    five = constant(4, 3, 0.5, 0.4, 0.1, 0.05, 0.2)
    five[0, :, -1] = [0.1, 0.2, 0.3, 0.4]
    risk = np.array([[9, 9, 1], [9, 9, 2], [9, 9, 3], [9, 9, 6]])
    summary = summarise(trajectory(five, risk), noise_var=0.25, gauge=True)
    error = math.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    assert summary["status"] is Status.FINISHED
    assert summary["metrics"]["excess_risk"].value == 3.0
    assert summary["metrics"]["excess_risk"].error == pytest.approx(error, rel=1e-14)
    assert summary["metrics"]["excess_risk"].kind == "stderr"
    assert summary["metrics"]["risk"] == summary["metrics"]["excess_risk"] + 0.25
    assert summary["overlaps"].key == pytest.approx(0.25, rel=1e-14)
    assert summary["overlaps_error"]["key"] == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 20, rel=1e-13)
    assert summary["overlaps_error"]["value"] == pytest.approx(0.0, abs=1e-16)
    assert set(summary["overlaps_error"]) == set(FIVE)


@pytest.mark.exact
def test_runs_that_differ_by_the_sign_of_k_and_v_average_to_one_of_them():
    five = constant(2, 3, 0.5, 0.4, 0.1, 0.05, 0.2)
    five[:4, 1] *= -1  # all but k . v
    summary = summarise(trajectory(five, np.ones((2, 3))), 0.0, gauge=True)
    np.testing.assert_allclose(summary["overlaps"].five(), [0.5, 0.4, 0.1, 0.05, 0.2], rtol=1e-15)
    assert max(summary["overlaps_error"].values()) < 1e-15


@pytest.mark.exact
def test_given_numerical_errors_replace_standard_errors():
    numerical = {name: 1e-9 * i for i, name in enumerate((*FIVE, "excess_risk"), start=1)}
    summary = summarise(
        trajectory(constant(1, 2, 0.5, 0.4, 0, 0, 0), [[2.0, 1.0]]), 0.5, gauge=True, numerical=numerical
    )
    assert summary["metrics"] == {
        "risk": Estimate(1.5, numerical["excess_risk"] + math.ulp(1.5)),  # the rounding of adding the noise
        "excess_risk": Estimate(1.0, numerical["excess_risk"]),
    }
    assert summary["overlaps_error"] == {name: numerical[name] for name in FIVE}


def test_one_random_run_has_no_standard_error():
    summary = summarise(trajectory(constant(1, 2, 0.5, 0.4, 0, 0, 0), [[2.0, 1.0]]), 0.0, gauge=True)
    assert summary["metrics"]["risk"].error == math.inf


def test_a_summary_makes_a_result():
    summary = summarise(trajectory(constant(2, 2, 0.5, 0.25, 0, 0, 0), np.ones((2, 2))), 0.0, gauge=True)
    result = Prediction(SpikedSLR(2, 1), None, Population(), **summary)
    assert result.overlaps == Overlaps(0.5, 0.25)
    assert float(result.risk) == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_runs_that_diverged_make_the_summary_say_so(bad):
    risk = np.ones((4, 3))
    risk[2, 1:] = bad
    risk[3, 2] = bad
    path = trajectory(constant(4, 3, 0.5, 0.4, 0, 0, 0), risk, steps=[0, 50, 75])
    summary = summarise(path, 0.5, gauge=True)
    assert summary["status"] is Status.DIVERGED
    assert summary["notes"] == ("2 of 4 runs diverged; run 2 before step 50.",)
    assert summary["trajectory"] is path
    assert set(summary["metrics"]) == {"risk", "excess_risk"}
    for estimate in summary["metrics"].values():
        assert math.isnan(estimate.value)
        assert estimate.error == math.inf
    result = Prediction(SpikedSLR(2, 1), None, Population(), **summary)
    assert result.overlaps is None
    assert not result.status.ok
    assert "NaN" not in dumps(result)


def test_a_run_that_diverged_and_came_back_is_still_reported():
    risk = np.array([[1.0, math.nan, 1.0]])
    summary = summarise(trajectory(constant(1, 3, 0.5, 0.4, 0, 0, 0), risk, steps=[0, 5, 10]), 0.0, gauge=True)
    assert summary["status"] is Status.DIVERGED
    assert summary["notes"] == ("1 of 1 runs diverged; run 0 before step 5.",)


def test_diverged_deterministic_runs_do_not_need_their_errors():
    path = trajectory(constant(1, 2, 0.5, 0.4, 0, 0, 0), [[1.0, math.nan]])
    assert summarise(path, 0.0, gauge=True, numerical={"excess_risk": math.nan})["status"] is Status.DIVERGED


def test_the_sign_is_no_gauge_of_an_activation_that_is_not_odd():
    path = trajectory(constant(1, 2, -0.5, -0.6, 0, 0, 0), [[2.0, 1.0]])
    assert summarise(path, 0.0, gauge=False)["overlaps"].key == -0.5
    assert summarise(path, 0.0, gauge=True)["overlaps"].key == 0.5


# --- what a path did ---------------------------------------------------------------------------


def test_a_path_that_still_moves_says_so():
    rest = np.concatenate([np.geomspace(1.0, 0.1, 30), np.full(10, 0.1)])
    falling = np.geomspace(1.0, 1e-3, 40)
    circling = 5.0 + 3.0 * (-1.0) ** np.arange(40)
    risks = np.stack([rest, falling, circling])
    summary = summarise(trajectory(constant(3, 40, 0.5, 0.4, 0, 0, 0), risks), 0.0, gauge=False)
    assert summary["status"] is Status.FINISHED
    assert summary["notes"] == (
        "in 2 of 3 runs the excess risk still moves by over 10% in the last quarter of the records.",
    )
    alone = summarise(trajectory(constant(1, 40, 0.5, 0.4, 0, 0, 0), rest[None]), 0.0, gauge=False)
    assert alone["notes"] == ()


def test_a_step_far_too_long_is_not_called_converged():
    """lr = 1e6 said CONVERGED at a risk of 58.7 +- 9.6."""
    import needlepoint as ndl

    learner = ndl.ProjectedDescent(1e6, 60, "sphere", d=20, runs=8)
    model = ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
    found = ndl.predict(ndl.SpikedSLR(3, snr=4.0), model, learner)
    assert found.status is Status.FINISHED
    assert found.ok
    assert "still moves" in found.notes[0]


def test_a_stored_descent_that_says_converged_reads_as_finished():
    path = trajectory(constant(1, 3, 0.5, 0.4, 0, 0, 0), np.ones((1, 3)))
    old = Prediction(SpikedSLR(2, 1.0), None, Population(), {}, Status.CONVERGED, trajectory=path)
    assert old.status is Status.FINISHED
    assert Prediction(SpikedSLR(2, 1.0), None, Population(), {}, Status.CONVERGED).status is Status.CONVERGED


@pytest.mark.exact
def test_a_run_that_went_up_says_so():
    """The first run doubles its risk, the second stays: one of two."""
    risk = np.array([[1.0, 1.5, 2.0], [1.0, 1.0, 1.05]])
    summary = summarise(trajectory(constant(2, 3, 0.5, 0.5, 0, 0, 0), risk), 0.0, gauge=False)
    assert summary["notes"] == (
        "in 1 of 2 runs the excess risk ended over 10% above where it began: try a smaller lr.",
    )
    assert summary["status"] is Status.FINISHED
    down = summarise(trajectory(constant(2, 3, 0.5, 0.5, 0, 0, 0), risk[:, ::-1]), 0.0, gauge=False)
    assert down["notes"] == ()

"""Predicted against measured: z-scores that are standard normal where the theory holds, and not where it does not."""

import csv
import io
import json
import math

import numpy as np
import pytest
from scipy import stats

from needlepoint.core.answers.agreement import z_score
from needlepoint.core.answers.comparison import Comparison, Row
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Measurement, Prediction, mean_estimate
from needlepoint.core.text.jsonio import dumps
from needlepoint.learners import BayesOptimal, OnlineSGD, Population, ProjectedDescent
from needlepoint.models.activations import Erf, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.comparing import compare

TASK, MODEL, LEARNER = SpikedSLR(2, 3.0), KeyValueAttention(Softmax()), Population()


def predicted(value=1.0, error=0.0, kind="numerical", **changes):
    fields = {"task": TASK, "model": MODEL, "learner": LEARNER, "metrics": {"risk": Estimate(value, error, kind)}}
    return Prediction(**{**fields, **changes})


def measured(value=1.0, error=0.1, d=100, repeats=16, **changes):
    fields = {"task": TASK, "model": MODEL, "learner": LEARNER, "metrics": {"risk": Estimate(value, error, "stderr")}}
    return Measurement(**{**fields, "d": d, "repeats": repeats, **changes})


def simulated_z(count, repeats, seed, shift=0.0):
    """z of `count` comparisons of 1 with the mean of normals of mean 1 + shift standard errors."""
    samples = np.random.default_rng(seed).normal(1.0 + shift * 0.3 / math.sqrt(repeats), 0.3, (count, repeats))
    return np.array([z_score(Estimate(1.0), mean_estimate(row), repeats) for row in samples])


# --- the z-score -------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("repeats", [2, 4, 16, 100, 201])
@pytest.mark.parametrize("t", [0.01, 0.5, 1.0, 3.0, 10.0])
def test_the_students_t_becomes_the_normal_z_of_the_same_probability(t, repeats):
    z = z_score(Estimate(1.0), Estimate(1.0 + 0.25 * t, 0.25, "stderr"), repeats)
    t_exact = ((1.0 + 0.25 * t) - 1.0) / 0.25  # the rounding of the gap itself is not tested here
    assert stats.norm.sf(z) == pytest.approx(stats.t.sf(t_exact, repeats - 1), rel=1e-10)
    assert z < t_exact


@pytest.mark.exact
def test_many_repeats_need_no_correction():
    assert z_score(Estimate(1.0), Estimate(1.5, 0.25, "stderr"), 10_000) == 2.0
    # the correction left out beyond 200 is below 4 % up to z = 5
    assert z_score(Estimate(1.0), Estimate(1.0 + 5 * 0.25, 0.25, "stderr"), 201) == pytest.approx(5.0, rel=0.04)


@pytest.mark.exact
def test_z_is_odd_in_the_gap_and_increases_with_it():
    gaps = np.linspace(0.01, 30, 80)
    up = [z_score(Estimate(0.0), Estimate(g, 1.0, "stderr"), 8) for g in gaps]
    down = [z_score(Estimate(0.0), Estimate(-g, 1.0, "stderr"), 8) for g in gaps]
    assert down == [-z for z in up]
    assert (np.diff(up) > 0).all()


@pytest.mark.exact
def test_z_does_not_fall_where_the_tail_underflows():
    z = [z_score(Estimate(0.0), Estimate(10.0**k, 1.0, "stderr"), 40) for k in range(2, 40)]
    assert (np.diff(z) >= 0).all()
    assert all(map(math.isfinite, z))


@pytest.mark.exact
def test_numerical_errors_are_subtracted_from_the_gap():
    z = z_score(Estimate(1.0, 0.3), Estimate(1.5, 0.1, "stderr"), 10_000)
    assert z == pytest.approx((0.5 - 0.3) / 0.1, rel=1e-12)
    assert z_score(Estimate(1.5, 0.3), Estimate(1.0, 0.1, "stderr"), 10_000) == pytest.approx(-z, rel=1e-12)
    assert z_score(Estimate(1.0, 0.6), Estimate(1.5, 0.1, "stderr"), 10_000) == 0.0
    assert z_score(Estimate(1.0, 0.2), Estimate(1.5, 0.2, "numerical"), 10_000) == math.inf
    assert z_score(Estimate(1.0, 0.3), Estimate(1.5, 0.3, "numerical"), 10_000) == 0.0


@pytest.mark.exact
def test_standard_errors_join_in_quadrature():
    z = z_score(Estimate(1.0, 0.3, "stderr"), Estimate(2.0, 0.4, "stderr"), 10_000)
    assert z == pytest.approx(2.0, rel=1e-12)


@pytest.mark.exact
def test_z_without_any_standard_error():
    assert z_score(Estimate(1.0), Estimate(1.0, 0.0, "stderr"), 4) == 0.0
    assert z_score(Estimate(1.0), Estimate(1.1, 0.0, "stderr"), 4) == math.inf
    assert z_score(Estimate(1.0), Estimate(0.9, 0.0, "stderr"), 4) == -math.inf


def test_one_repeat_says_nothing():
    assert math.isnan(z_score(Estimate(1.0), mean_estimate(np.array([7.0])), 1))


@pytest.mark.parametrize(
    ("p", "m"),
    [
        (Estimate(math.nan, math.inf), Estimate(1.0, 0.1, "stderr")),
        (Estimate(1.0), Estimate(math.nan, 0.1, "stderr")),
        (Estimate(1.0), Estimate(math.inf, 0.1, "stderr")),
        (Estimate(1.0), Estimate(5.0, math.inf, "stderr")),
        (Estimate(1.0, math.inf), Estimate(5.0, 0.1, "stderr")),
        (Estimate(1.0, math.inf, "stderr"), Estimate(5.0, 0.1, "stderr")),
    ],
)
def test_a_number_that_is_missing_gives_no_z(p, m):
    """Least of all 0, which reads as perfect agreement."""
    assert math.isnan(z_score(p, m, 16))


# --- calibration -------------------------------------------------------------------------------


@pytest.mark.montecarlo
def test_z_is_standard_normal_where_the_prediction_is_right():
    """2500 comparisons with 16 repeats. A standard error wrong by a fifth would be seen, as checked below."""
    z = simulated_z(2500, 16, seed=0)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(z.mean()) < 5 / math.sqrt(2500)
    assert abs(z.var() - 1.0) < 5 * math.sqrt(2 / 2500)


@pytest.mark.negative
def test_a_standard_deviation_or_a_standard_error_a_fifth_off_would_be_seen():
    z = simulated_z(2500, 16, seed=0)
    assert stats.kstest(z / 4, "norm").pvalue < 1e-10  # a standard deviation where a standard error is meant
    assert stats.kstest(z * 1.25, "norm").pvalue < 1e-3
    assert stats.kstest(z / 1.25, "norm").pvalue < 1e-3
    assert stats.kstest(z + 0.1, "norm").pvalue < 1e-3


@pytest.mark.montecarlo
@pytest.mark.parametrize("repeats", [2, 4])
def test_few_repeats_are_corrected_by_student(repeats):
    """2000 comparisons: 5 % beyond 1.96 to within 5 * 0.49 %; uncorrected it would be 14 % at 4 repeats, 30 % at 2."""
    z = simulated_z(2000, repeats, seed=repeats)
    error = math.sqrt(0.05 * 0.95 / 2000)
    assert abs(np.mean(np.abs(z) > 1.959964) - 0.05) < 5 * error
    uncorrected = 2 * stats.t.sf(1.959964, repeats - 1)
    assert uncorrected > 0.05 + 10 * error


@pytest.mark.negative
def test_a_prediction_wrong_by_five_standard_errors_is_seen():
    """With 16 repeats t = 5 is z = 3.8; among 400 wrong predictions at most 1 in 20 passes |z| < 2."""
    z = simulated_z(400, 16, seed=5, shift=5.0)
    assert np.mean(z < 2.0) < 0.05
    assert np.median(z) > 3.0
    assert np.median(simulated_z(400, 16, seed=6, shift=-5.0)) < -3.0


# --- rows --------------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_row_a_metric_and_a_size():
    both = {"risk": Estimate(1.0, 1e-6), "excess_risk": Estimate(0.5, 1e-6), "energy": Estimate(0.0)}
    sizes = [
        measured(
            d=d, metrics={"excess_risk": Estimate(0.6, 0.1, "stderr"), "risk": Estimate(1.1, 0.1, "stderr")}, repeats=n
        )
        for d, n in ((50, 8), (100, 4))
    ]
    comparison = compare(predicted(metrics=both, exact=True), sizes)
    assert [(r.metric, r.d, r.repeats) for r in comparison.rows] == [
        ("risk", 50, 8),
        ("risk", 100, 4),
        ("excess_risk", 50, 8),
        ("excess_risk", 100, 4),
    ]
    row = comparison.rows[0]
    assert (row.predicted, row.predicted_error, row.measured, row.measured_error) == (1.0, 1e-6, 1.1, 0.1)
    assert row.gap == pytest.approx(0.1, rel=1e-12)
    assert row.z == z_score(both["risk"], sizes[0].metrics["risk"], 8)
    assert row.exact is True
    assert comparison.worst == max(abs(r.z) for r in comparison.rows)


def test_one_measurement_need_not_be_a_list():
    assert compare(predicted(), measured()).rows == compare(predicted(), [measured()]).rows
    assert compare(predicted(), (measured(),)).rows[0].exact is False


def test_overlaps_are_rows_where_both_sides_have_an_error():
    at = Overlaps(0.5, 0.1, 0.2)
    p = predicted(overlaps=at, overlaps_error={"key": 1e-9, "value": 1e-9})
    m = measured(overlaps=Overlaps(0.6, 0.1, 0.2), overlaps_error={"key": 0.05, "value_on_key": 0.05})
    rows = {r.metric: r for r in compare(p, m).rows}
    assert set(rows) == {"risk", "key"}
    assert rows["key"].z == z_score(Estimate(0.5, 1e-9), Estimate(0.6, 0.05, "stderr"), 16)
    # a chosen overlap has no error and is no comparison
    same = measured(overlaps=at, overlaps_error={"key": 0.05})
    assert {r.metric for r in compare(predicted(overlaps=at), same).rows} == {"risk"}
    with pytest.raises(InvalidParameter, match="simulate with overlaps="):
        compare(predicted(overlaps=at), m)
    assert {r.metric for r in compare(p, measured(overlaps=at)).rows} == {"risk"}


def test_random_predictions_join_their_standard_error():
    p = predicted(1.0, 0.3, "stderr", overlaps=Overlaps(0.5, 0.1), overlaps_error={"key": 0.03})
    m = measured(2.0, 0.4, overlaps=Overlaps(0.6, 0.1), overlaps_error={"key": 0.04}, repeats=10_000)
    rows = {r.metric: r for r in compare(p, m).rows}
    assert rows["risk"].z == pytest.approx(2.0, rel=1e-12)
    assert rows["key"].z == pytest.approx(2.0, rel=1e-12)


# --- another question --------------------------------------------------------------------------

START = Overlaps(0.5, 0.1)


def test_nothing_to_compare_is_refused():
    with pytest.raises(InvalidParameter, match=r"^compare\(measurements=\[\]\): at least one measurement is needed\.$"):
        compare(predicted(), [])


@pytest.mark.parametrize(
    "changes",
    [
        {"task": SpikedSLR(2, 3.5)},
        {"task": SpikedSLR(3, 3.0)},
        {"model": KeyValueAttention(Softmax(), unit_norm=True)},
        {"model": None},
        {"learner": BayesOptimal()},
    ],
    ids=["snr", "tokens", "unit_norm", "no model", "learner"],
)
def test_a_measurement_of_another_question_is_refused(changes):
    with pytest.raises(InvalidParameter, match=r"^compare: the measurement answers another question .*resolved\.$"):
        compare(predicted(), [measured(), measured(**changes)])


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (ProjectedDescent(0.1, 5, START), ProjectedDescent(0.2, 5, START)),
        (ProjectedDescent(0.1, 5, START), ProjectedDescent(0.1, 6, START)),
        (ProjectedDescent(0.1, 5, START), ProjectedDescent(0.1, 5, Overlaps(0.1, 0.5))),
        (OnlineSGD(0.1, 5, 4, START, d=50), OnlineSGD(0.1, 5, 8, START, d=50)),
        (BayesOptimal(alpha=1.0), BayesOptimal(alpha=2.0)),
        (Population("manifold"), Population("all")),
    ],
    ids=["lr", "steps", "start", "batch", "alpha", "within"],
)
def test_a_learner_with_other_settings_is_another_question(asked, answered):
    with pytest.raises(InvalidParameter, match="answers another question"):
        compare(predicted(learner=asked), measured(learner=answered))


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (BayesOptimal(), BayesOptimal(d=100)),
        (OnlineSGD(0.1, 5, 4, START, d=100, runs=20), OnlineSGD(0.1, 5, 4, START, d=100, runs=40)),
        (
            ProjectedDescent(0.1, 5, "sphere", d=100, runs=20),
            ProjectedDescent(0.1, 5, "sphere", d=100, runs=20),
        ),
    ],
    ids=["limit against finite d", "runs", "same"],
)
def test_the_size_of_a_sample_is_no_other_question(asked, answered):
    assert compare(predicted(learner=asked), measured(learner=answered)).rows


def test_the_resolved_question_is_the_one_to_simulate():
    free, chosen = KeyValueAttention(Erf(None), unit_norm=True), KeyValueAttention(Erf(0.5), unit_norm=True)
    p = predicted(model=free, resolved=(TASK, chosen, LEARNER))
    assert compare(p, measured(model=chosen)).rows
    with pytest.raises(InvalidParameter, match=r"simulate prediction\.resolved\.$"):
        compare(p, measured(model=free))


# --- extrapolation -----------------------------------------------------------------------------

SIZES = (50, 100, 200, 400)


@pytest.mark.exact
def test_the_fit_in_one_over_d_recovers_a_known_intercept():
    at = [measured(2.0 + 3.0 / d, 0.01 * (1 + i), d=d) for i, d in enumerate(SIZES)]
    comparison = compare(predicted(2.0), at)
    (fit,) = comparison.extrapolations
    assert fit.metric == "risk"
    assert fit.predicted == 2.0
    assert fit.extrapolated == pytest.approx(2.0, rel=1e-12)
    assert abs(fit.z_extrapolated) < 1e-9
    assert fit.chi2_per_dof < 1e-18
    # at each size alone, the same measurements disagree with the limit
    assert comparison.rows[0].z > 3
    assert comparison.worst < 1e-9


@pytest.mark.exact
def test_the_fit_is_weighted_least_squares():
    """Against numpy.polyfit with weights 1/se and the unscaled covariance."""
    rng = np.random.default_rng(2)
    se = rng.uniform(0.01, 0.1, len(SIZES))
    y = 2.0 + 3.0 / np.array(SIZES) + se * rng.standard_normal(len(SIZES))
    at = [measured(y[i], se[i], d=d, repeats=10_000) for i, d in enumerate(SIZES)]
    (fit,) = compare(predicted(1.9), at).extrapolations
    (slope, intercept), covariance = np.polyfit(1 / np.array(SIZES), y, 1, w=1 / se, cov="unscaled")
    assert fit.extrapolated == pytest.approx(intercept, rel=1e-10)
    assert fit.extrapolated_error == pytest.approx(
        math.sqrt(covariance[1, 1]), rel=1e-3
    )  # a correction is O(1/repeats)
    assert fit.z_extrapolated == pytest.approx((intercept - 1.9) / math.sqrt(covariance[1, 1]), rel=1e-3)
    residual = (y - intercept - slope / np.array(SIZES)) / se
    assert fit.chi2_per_dof == pytest.approx(residual @ residual / 2, rel=1e-8)


def test_extrapolation_needs_three_sizes_and_a_limit():
    three = [measured(d=d) for d in (50, 100, 200)]
    assert len(compare(predicted(), three).extrapolations) == 1
    assert compare(predicted(), three[:2]).extrapolations == ()
    assert compare(predicted(), [*three[:2], three[0]]).extrapolations == ()
    assert compare(predicted(exact=True), three).extrapolations == ()


@pytest.mark.parametrize("broken", [{"error": math.inf}, {"value": math.nan}, {"error": 0.0}])
def test_a_size_without_a_usable_error_gives_no_extrapolation(broken):
    at = [measured(d=50), measured(d=100), measured(d=200, **broken)]
    (fit,) = compare(predicted(), at).extrapolations
    assert math.isnan(fit.extrapolated)
    assert math.isnan(fit.z_extrapolated)
    assert not compare(predicted(), at).worst <= 5


def extrapolated_z(count, sizes, repeats, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    z = []
    for _ in range(count):
        at = []
        for d in sizes:
            e = mean_estimate(rng.normal(2.0 + 3.0 / d, 0.1, repeats))
            at.append(measured(e.value, e.error, d=d, repeats=repeats))
        z.append(compare(predicted(2.0 - shift), at).extrapolations[0].z_extrapolated)
    return np.array(z)


@pytest.mark.montecarlo
def test_the_extrapolated_z_has_unit_variance():
    """1500 fits with 16 repeats: the variance has error 0.037, and a standard error 20 % off gives 1.44 or 0.69.

    The weights are estimated too, which moves the variance by about 1/repeats: the other term of the bound.
    """
    z = extrapolated_z(1500, SIZES, 16, seed=3)
    assert abs(z.mean()) < 5 / math.sqrt(1500)
    assert abs(z.var() - 1.0) < 3 * math.sqrt(2 / 1500) + 1 / 16


@pytest.mark.montecarlo
def test_few_repeats_at_many_sizes_do_not_inflate_the_extrapolated_z():
    """1000 fits over 5 sizes with 4 repeats: weights from 3 degrees of freedom must not make the fit overconfident.

    The variance of z has error 0.045; without a correction for estimated weights it is 1.4.
    """
    z = extrapolated_z(1000, (50, 100, 200, 400, 800), 4, seed=4)
    assert z.var() < 1.0 + 5 * math.sqrt(2 / 1000)


@pytest.mark.negative
def test_a_limit_wrong_by_five_standard_errors_is_seen():
    """The intercept's standard error is the 0.1/sqrt(16) of a size times what the fit makes of it."""
    design = np.stack([np.ones(4), 1 / np.array(SIZES)], axis=1)
    error = 0.1 / 4 * math.sqrt(np.linalg.inv(design.T @ design)[0, 0])
    z = extrapolated_z(200, SIZES, 16, seed=5, shift=5 * error)
    assert np.median(z) > 3.0
    assert np.mean(z < 2.0) < 0.05


# --- the whole ---------------------------------------------------------------------------------


def row(metric, z, d=100):
    return Row(metric, d, 1.0, 0.0, "numerical", 1.0, 0.1, "stderr", 0.0, z, 16, False)


@pytest.mark.exact
def test_the_worst_z():
    assert Comparison((row("a", 1.0), row("b", -3.0))).worst == 3.0
    assert Comparison((row("a", 1.0), row("b", -math.inf))).worst == math.inf


@pytest.mark.parametrize("z", [(math.nan, 1.0), (1.0, math.nan), (math.nan,), (0.0, math.nan, 7.0)])
def test_a_missing_z_is_not_hidden_by_the_others(z):
    """A run that diverged has no z; the comparison must not look like its other rows alone."""
    worst = Comparison(tuple(row(str(i), x) for i, x in enumerate(z))).worst
    assert not math.isfinite(worst)


def test_json_and_csv():
    failed = predicted(math.nan, math.inf)
    comparison = compare(failed, [measured(d=d) for d in (50, 100, 200)])
    document = json.loads(dumps(comparison), parse_constant=pytest.fail)
    assert document == comparison.to_json()
    assert document["rows"][0]["z"] is None
    assert document["extrapolations"][0]["z_extrapolated"] is None
    comparison = compare(predicted(0.9), [measured(d=50), measured(d=100)])
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    assert [int(r["d"]) for r in rows] == [50, 100]
    assert [float(r["z"]) for r in rows] == [r.z for r in comparison.rows]
    assert {r["metric"] for r in rows} == {"risk"}


def test_the_text_shows_every_row_and_the_limit():
    comparison = compare(predicted(0.9), [measured(d=d) for d in (50, 100, 200)])
    lines = str(comparison).splitlines()
    assert repr(comparison) == str(comparison)
    assert len(lines) == 1 + 3 + 1
    assert "->inf" in lines[-1]
    assert all(line.endswith("limit") for line in lines[1:])


@pytest.mark.parametrize("kind", ["numerical", "stderr"])
def test_what_has_no_error_has_no_z(kind):
    unknown, known = Estimate(1.0, math.inf, kind), Estimate(2.0, 0.1, "stderr")
    assert math.isnan(z_score(unknown, known, 16))
    assert math.isnan(z_score(known, unknown, 16, 16))

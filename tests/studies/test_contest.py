"""Contests: both families, each model at its own best penalties, verdicts that say what is known."""

import dataclasses
import json
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.cli import run
from needlepoint.studies.verdicts import Contest, Entry

SOFTMAX, LINEAR = ndl.KeyValueAttention(ndl.Softmax()), ndl.KeyValueAttention(ndl.Linear())
SPIKED, WISHART = ndl.SpikedSLR(2, 2.0, noise=0.2), ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5)
TIED, DIRECT = ndl.TiedAttention(), ndl.DirectAttention()
QUESTIONS = {
    "ridge": (SPIKED, [SOFTMAX, LINEAR, None], ndl.Ridge(4.0, "optimal")),
    "population": (SPIKED, [SOFTMAX, LINEAR, ndl.LinearRegression(), None], ndl.Population()),
    "indexed": (WISHART, [TIED, DIRECT, None], ndl.Ridge(0.5, "optimal")),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_entry_is_its_own_prediction(name):
    task, models, learner = QUESTIONS[name]
    found = ndl.contest(task, models, learner)
    assert [e.model for e in found.entries] == models
    for entry in found.entries:
        if entry.model is not None:
            alone = ndl.predict(task, entry.model, learner)
            assert entry.risk(found.metric) == alone.metrics[found.metric]
            chosen = alone.resolved[2] if alone.resolved else learner
            assert entry.penalties == (None if name == "population" else tuple(np.atleast_1d(chosen.lam)))
    risks = [e.risk(found.metric).value for e in found.ranked(learner)]
    assert risks == sorted(risks)
    assert found.best.name in ("Softmax", "TiedAttention")
    assert found.verdict.startswith(f"{found.best.name} is best: ")
    assert found.verdict.endswith("; trusted.")
    # nothing passes the Bayes-optimal risk by more than the errors
    best, bound = found.best.risk(found.metric), found.bound(learner).risk(found.metric)
    assert best.value >= bound.value - best.error - bound.error


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_contest_shows_itself(name, tmp_path):
    found = ndl.contest(*QUESTIONS[name])
    document = json.loads(found.to_json(text=True))
    assert document["verdict"] == found.verdict
    assert len(document["table"]) == len(document["predictions"]) == len(found.entries)
    frame = found.to_dataframe()
    assert list(frame["model"]) == [row["model"] for row in found.table]
    assert found.verdict.split(":")[0] in found._repr_html_()
    for row in found.table:
        assert row["model"] in str(found)
    picture = ndl.plot(found, path=tmp_path / "contest.png")
    labels = [text.get_text().split("\n")[0] for text in picture.axes[0].get_yticklabels()]
    assert labels == [e.name for e in found.ranked(found.learners[0])]
    assert (tmp_path / "contest.png").stat().st_size > 5000
    assert found.plot().axes


def entry(name, value, error=0.01, kind="numerical", status=ndl.Status.CONVERGED, stable=True):
    metrics = {"excess_risk": ndl.Estimate(value, error, kind)}
    learner = ndl.Ridge(1.0, "optimal")
    resolved = (SPIKED, SOFTMAX, ndl.Ridge(1.0, (0.24, 0.68)))
    made = ndl.Prediction(SPIKED, SOFTMAX, learner, metrics, status=status, stable=stable, resolved=resolved)
    return Entry(name, SOFTMAX, learner, made)


def test_the_verdict_says_what_is_known():
    clear = Contest(SPIKED, (entry("A", 0.5), entry("B", 0.55)))
    assert clear.verdict == "A is best: penalties 0.24 / 0.68, excess risk 0.500(10), 0.050(20) below B; trusted."
    close = Contest(SPIKED, (entry("A", 0.5), entry("B", 0.515), entry("C", 0.6)))
    assert close.verdict.startswith("A and B cannot be told apart: A: penalties")
    assert "0.100(20) below C" in close.verdict
    doubtful = Contest(SPIKED, (entry("A", 0.5, status=ndl.Status.UNSTABLE, stable=False), entry("B", 0.6)))
    assert doubtful.verdict.endswith("A is not to be trusted (UNSTABLE).")
    assert [row["trusted"] for row in doubtful.table] == [False, True]
    unknown = Contest(SPIKED, (entry("A", 0.1, math.inf, status=ndl.Status.MAX_STEPS), entry("B", 0.6)))
    assert unknown.best.name == "B"  # what is not solved does not win
    assert "A is not to be trusted (MAX_STEPS)" in unknown.verdict
    assert "B and A cannot be told apart" in unknown.verdict


@pytest.mark.exact
def test_margins_are_in_units_of_their_error():
    bounds = Contest(SPIKED, (entry("A", 0.5), entry("B", 0.55)))
    row = bounds.table[1]
    assert (row["margin"].error, row["unit"]) == (pytest.approx(0.02), "bounds")  # bounds add
    assert row["margin_in_errors"] == pytest.approx(2.5)
    sampled = Contest(SPIKED, (entry("A", 0.5, kind="stderr"), entry("B", 0.55, kind="stderr")))
    row = sampled.table[1]
    assert (row["margin"].error, row["unit"]) == (pytest.approx(0.01 * math.sqrt(2)), "standard errors")
    assert "(3.5 standard errors) below B" in sampled.verdict
    near = Contest(SPIKED, (entry("A", 0.5, kind="stderr"), entry("B", 0.54, kind="stderr")))
    assert "cannot be told apart" in near.verdict  # 2.8 standard errors


def test_one_given_penalty_is_named_as_such():
    found = ndl.contest(SPIKED, [SOFTMAX, LINEAR], ndl.Ridge(4.0, 0.5))
    assert "lam='optimal' gives each its own" in found.verdict


def test_one_common_penalty_is_no_better():
    pair, one = (ndl.contest(SPIKED, [SOFTMAX, LINEAR], ndl.Ridge(4.0, "optimal"), common=c) for c in (None, True))
    assert {len(e.penalties) for e in pair.entries} == {2}
    assert {len(e.penalties) for e in one.entries} == {1}
    for two, single in zip(pair.entries, one.entries, strict=True):
        ours, theirs = two.risk("excess_risk"), single.risk("excess_risk")
        assert ours.value <= theirs.value + ours.error + theirs.error


def test_several_learners_are_curves(tmp_path):
    learners = [ndl.Ridge(alpha, "optimal") for alpha in (3.0, 5.0)]
    found = ndl.contest(SPIKED, {"mine": SOFTMAX, "other": LINEAR}, learners)
    assert found.verdict == "From alpha = 3 to 5 mine is best."
    assert len(found.table) == 4
    axis = ndl.plot(found, path=tmp_path / "curves.png").axes[0]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["mine", "other"]
    assert list(found.to_dataframe()["alpha"]) == [3.0, 3.0, 5.0, 5.0]


@pytest.mark.training
@pytest.mark.parametrize("name", QUESTIONS)
def test_training_gives_margins_in_standard_errors(name):
    task, models, learner = QUESTIONS[name]
    trained = [m for m in models if m is not None and not isinstance(m, ndl.LinearRegression)]
    told = []
    found = ndl.contest(task, trained, learner, d=30, repeats=4, samples=2000, progress=told.append)
    assert all(e.measurement.d == 30 for e in found.entries)
    assert {row["unit"] for row in found.table} == {"standard errors"}
    assert "at d = 30" in found.verdict
    assert told == sorted(told)
    assert len({e.measurement.seed for e in found.entries}) == len(trained)  # independent, as quadrature assumes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ndl.contest(SPIKED, SOFTMAX, ndl.Population()), "a list of at least two models"),
        (lambda: ndl.contest(SPIKED, [SOFTMAX], ndl.Population()), "at least two"),
        (lambda: ndl.contest(SPIKED, [SOFTMAX, SOFTMAX], ndl.Population()), "given twice"),
        (lambda: ndl.contest(SPIKED, [SOFTMAX, ndl.Softmax()], ndl.Population()), "every entry must be a model"),
        (lambda: ndl.contest(SPIKED, [SOFTMAX, ndl.TiedAttention], ndl.Population()), r"TiedAttention\(\)"),
        (lambda: ndl.contest(SPIKED, [SOFTMAX, LINEAR], "optimal"), "learner must be a learner"),
        (lambda: ndl.contest(SPIKED, [SOFTMAX, LINEAR], ndl.Population(), common=True), "common goes with"),
        (lambda: ndl.Ridge(2.0, 0.1, common=True), "common goes with lam='optimal'"),
    ],
)
def test_what_is_no_contest_is_refused_in_a_sentence(call, says):
    with pytest.raises(ndl.InvalidParameter, match=says):
        call()


def test_stored_specs_keep_their_ids():
    # written before `common` existed
    assert ndl.Ridge(5.0, "optimal").id == "608079831558572d"
    assert "common" not in ndl.Ridge(5.0, "optimal").to_json()
    one = ndl.Ridge(5.0, "optimal", common=True)
    assert one.to_json()["common"] is True
    assert one.id != ndl.Ridge(5.0, "optimal").id
    assert dataclasses.replace(one, common=False) == ndl.Ridge(5.0, "optimal")


ARGUMENTS = [
    "--task", "SpikedSLR(tokens=2, snr=2)", "--models", "KeyValueAttention(Softmax())",
    "--models", "KeyValueAttention(Linear())", "--models", "None", "--learner", "Population()",
]  # fmt: skip


def test_the_command_says_what_the_function_says(capsys, tmp_path):
    assert run(["contest", *ARGUMENTS, "--plot", str(tmp_path / "c.png")]) == 0
    printed = capsys.readouterr().out
    found = ndl.contest(ndl.SpikedSLR(2, 2.0), [SOFTMAX, LINEAR, None], ndl.Population())
    assert found.verdict in printed
    assert (tmp_path / "c.png").exists()
    assert run(["contest", *ARGUMENTS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == found.verdict
    assert run(["contest", *ARGUMENTS[:4], "--learner", "Population()"]) == 2
    assert "at least two" in capsys.readouterr().err
    assert run(["contest", "--task", "SpikedSLR(2, 2)", "--models", "Softmax()", "--learner", "Population()"]) == 2
    assert "--models" in capsys.readouterr().err

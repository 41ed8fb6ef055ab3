"""What a study shows besides the metrics: chosen penalties, and the share of runs by their end."""

import csv
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.results import Trajectory
from needlepoint.studies.derived import derived

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
SPIKED, WISHART = ndl.SpikedSLR(2, 2.0, noise=0.3), ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5)
ERF = ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
DESCENT = ndl.ProjectedDescent(0.05, 60, "sphere", d=20, runs=40, record_every=30)
SGD = ndl.OnlineSGD(0.05, 60, 5, "sphere", d=20, runs=10, record_every=30)


def table(study, path):
    study.to_csv(path)
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("task", "model", "alphas", "names"),
    [
        (SPIKED, ndl.KeyValueAttention(ndl.Linear()), [3.0, 5.0], ["resolved.lam_key", "resolved.lam_value"]),
        (WISHART, ndl.TiedAttention(), [0.4, 0.8], ["resolved.lam"]),
    ],
)
def test_chosen_penalties_are_columns_of_both_families(task, model, alphas, names, tmp_path):
    store = tmp_path / "study.needle"
    ndl.sweep(task, model, ndl.Ridge(1.0, "optimal"), {"learner.alpha": alphas}, store=store)
    study = ndl.open_study(store)  # what was chosen is read back from the file
    rows = table(study, tmp_path / "table.csv")
    for point, row in zip(study.points(), rows, strict=True):
        chosen = point.prediction.resolved[2].penalties
        assert [float(row[name]) for name in names] == pytest.approx(list(chosen[: len(names)]))
        assert f"{names[0]}_error" not in row
    frame = study.to_dataframe()
    assert set(names) <= set(frame.columns)
    assert set(names) <= set(study.to_xarray().data_vars)
    picture = ndl.plot(study, names[0], path=tmp_path / "lam.png")
    assert picture.axes[0].get_lines()


def test_given_penalties_are_no_columns():
    found = ndl.predict(SPIKED, ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(3.0, 0.5))
    assert derived(found) == {}


@pytest.mark.parametrize("learner", [DESCENT, SGD], ids=["descent", "sgd"])
def test_the_share_of_runs_by_end_is_a_metric_of_descents(learner, tmp_path):
    store = tmp_path / "study.needle"
    task = ndl.SpikedSLR(2, 10.0)
    ndl.sweep(task, ERF, learner, {"learner.lr": [0.02, 0.1]}, store=store, also=ndl.Simulation(d=20, repeats=2))
    study = ndl.open_study(store)
    rows = table(study, tmp_path / "table.csv")
    for point, row in zip(study.points(), rows, strict=True):
        path = point.prediction.trajectory
        counts = path.shares()
        for end in ("oracle", "swapped", "other", "diverged"):
            share = counts.get(end, 0) / path.runs
            assert float(row[f"share_{end}"]) == pytest.approx(share)
            # binomial, and not zero where all runs end alike
            assert float(row[f"share_{end}_error"]) == pytest.approx(
                math.sqrt(share * (1 - share) / path.runs), abs=1 / path.runs
            )
            assert float(row[f"share_{end}_error"]) > 0
        assert sum(float(row[f"share_{end}"]) for end in ("oracle", "swapped", "other", "diverged")) == pytest.approx(1)
        # two seeds of a simulation are pooled: all runs of both count
        (measured,) = point.measurements
        pooled = measured.trajectory
        assert float(row["measured_share_oracle"]) == pytest.approx(pooled.branches.count("oracle") / pooled.runs)
    for metric in ("share_oracle", "share_other"):
        picture = ndl.plot(study, metric, path=tmp_path / f"{metric}.png")
        assert picture.axes[0].get_ylabel() == f"share of runs that end {metric.removeprefix('share_')}"


def test_a_phase_diagram_of_ends(tmp_path):
    over = {"learner.lr": [0.02, 0.05, 0.1], "task.snr": [1.0, 5.0, 20.0]}
    study = ndl.sweep(ndl.SpikedSLR(2, 1.0), ERF, DESCENT, over)
    picture = ndl.plot(study, "share_oracle", x="snr", y="lr", path=tmp_path / "map.png")
    assert len(picture.axes) > 1  # the map and its colours


@pytest.mark.montecarlo
def test_the_error_of_a_share_is_that_of_repeated_draws():
    share, runs, rng = 0.3, 50, np.random.default_rng(0)
    drawn = [derived(made(tuple(rng.choice(["oracle", "other"], runs, p=[share, 1 - share])))) for _ in range(400)]
    values = np.array([d["share_oracle"].value for d in drawn])
    errors = np.array([d["share_oracle"].error for d in drawn])
    # the standard deviation of 400 draws is known to 1 / sqrt(800), 3.5 %
    assert np.std(values) == pytest.approx(errors.mean(), rel=0.15)


@pytest.mark.exact
def test_given_starts_are_not_random():
    start = (ndl.Overlaps(0.9, 0.9), ndl.Overlaps(0.1, 0.1))
    fixed = derived(made(("oracle", "other"), ndl.ProjectedDescent(0.1, 5, start)))
    assert fixed["share_oracle"] == ndl.Estimate(0.5, 0.0)
    assert derived(made(("oracle", "other")))["share_swapped"].error > 0


def made(branches, learner=DESCENT):
    steps, runs = np.array([0, 5]), len(branches)
    path = Trajectory(steps, np.ones(2), {"key": np.zeros((runs, 2))}, np.zeros((runs, 2)), branches)
    return ndl.Prediction(SPIKED, ERF, learner, {"risk": ndl.Estimate(1.0)}, trajectory=path)

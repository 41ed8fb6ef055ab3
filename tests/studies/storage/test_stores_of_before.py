"""Stores that were written before modules moved: they open, resume with nothing computed again, and export the same.

The files in tests/reference/stores are of NUMBERS_VERSION 2, both families of tasks, with predictions and simulations.
When the numbers change on purpose they are written anew: `sweep` each question of the table below into a fresh file.
"""

import csv
import shutil
from pathlib import Path

import pytest

import needlepoint as ndl

from questions import QUESTIONS
from reference_values import REFERENCE

STORES = REFERENCE / "stores"
NAMES = {
    "spiked-softmax-ridge": "spiked, softmax, ridge",
    "spiked-erf-SGD": "spiked, erf, SGD",
    "one_token-Bayes": "one token, Bayes",
    "two_tokens-tied-ridge": "two tokens, tied, ridge",
}


@pytest.fixture(params=NAMES)
def store(request, tmp_path):
    return Path(shutil.copy(STORES / f"{request.param}.sqlite", tmp_path))


@pytest.mark.contract
def test_a_sweep_resumes_with_nothing_computed_again(store):
    """The ids of its jobs are those that the same question has today."""
    asked = QUESTIONS[NAMES[store.stem]]
    with ndl.sweep(*asked.specs, asked.over, also=ndl.Simulation(repeats=2, **asked.simulation), store=store) as study:
        assert study.failures() == []
        assert study.store.counts() == {("done", "CONVERGED"): 6}
        assert study.run().reused == 6
        assert all(p.prediction.ok and len(p.measurements) == 1 for p in study.points())


@pytest.mark.contract
def test_it_exports_the_same_table(store, tmp_path):
    """What is stored to the last digit; z-scores are computed when they are asked for, to rounding. Descents that did
    their steps were called CONVERGED and are FINISHED now."""
    with ndl.open_study(store, readonly=True) as study:
        study.to_csv(tmp_path / "table.csv")
    now, before = (read(path) for path in (tmp_path / "table.csv", STORES / f"{store.stem}.csv"))
    new = {name for name in now[0] if "share_" in name}  # columns that were added since
    now = [{name: text for name, text in row.items() if name not in new} for row in now]
    assert [list(row) for row in now] == [list(row) for row in before]
    for a, b in zip(now, before, strict=True):
        if "learner.lr" in b:
            b |= {name: b[name].replace("CONVERGED", "FINISHED") for name in ("status", "measured_status")}
        scores = {name for name in a if name.startswith("z_") and a[name]}
        assert scores
        assert {k: v for k, v in a.items() if k not in scores} == {k: v for k, v in b.items() if k not in scores}
        for name in scores:
            assert float(a[name]) == pytest.approx(float(b[name]), rel=1e-9, abs=1e-9)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))

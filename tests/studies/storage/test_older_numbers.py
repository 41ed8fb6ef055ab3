"""Stores of older versions: they say which of their points are of older numbers, and compute these again when asked."""

import contextlib
import sqlite3

import pytest

import needlepoint as ndl
from needlepoint.studies.execution import jobs
from needlepoint.studies.storage import store as stores
from needlepoint.studies.storage.store import SCHEMA, Store
from needlepoint.studies.study import OLDER

QUESTION = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population())
OVER = {"task.snr": [1.0, 2.0, 3.0]}
ALSO = ndl.Simulation(d=4, repeats=2, samples=10, at={"task.snr": [1.0]})


@pytest.fixture(params=["another version", "another schema"])
def old(request, tmp_path, monkeypatch):
    """A store that older code has written: three predictions and two simulations."""
    path = tmp_path / "study.sqlite"
    with monkeypatch.context() as patch:
        for module in (jobs, stores):
            patch.setattr(module, "NUMBERS_VERSION", 1)
        ndl.sweep(*QUESTION, OVER, also=ALSO, store=path).close()
    if request.param == "another schema":  # before there were seals
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("DROP TABLE seals")
            db.execute("PRAGMA user_version = 1")
    return path


def test_ls_and_show_say_which_points_are_older(old, document, call):
    before = old.read_bytes()
    (row,) = document("study", "ls", old.parent)
    assert {k: row[k] for k in ("done", "failed", "older", "damaged")} == {
        "done": 0,
        "failed": 0,
        "older": 5,
        "damaged": 0,
    }
    assert "0 done, 0 failed, 5 of another version of the numbers, over task.snr" in call("study", "ls", old.parent)[1]
    shown = document("study", "show", old)
    assert shown["older"] == 5
    assert [(f["at"]["task.snr"], f["message"]) for f in shown["failures"]] == [(x, OLDER) for x in OVER["task.snr"]]
    text = call("study", "show", old)[1]
    assert "5 points are of another version of the numbers: study retry, study prune" in text
    assert old.read_bytes() == before  # looking changes nothing


def test_retry_computes_them_again_and_prune_removes_the_old(old, document, call):
    found = document("study", "retry", old)
    assert (found["done"], found["reused"], found["failed"]) == (5, 0, 0)
    with ndl.open_study(old, readonly=True) as study, ndl.sweep(*QUESTION, OVER, also=ALSO) as fresh:
        assert study.failures() == []
        for a, b in zip(study.points(), fresh.points(), strict=True):
            assert a.prediction.risk == b.prediction.risk
            assert [m.risk for m in a.measurements] == [m.risk for m in b.measurements]
        assert study.store.counts() == {("done", "CONVERGED"): 5, ("older", "CONVERGED"): 5}
        assert study.store._one("PRAGMA user_version") == SCHEMA
    assert document("study", "prune", old) == {"removed": 5}
    with Store(old) as store:
        assert store.counts() == {("done", "CONVERGED"): 5}
        assert store._one("SELECT count(*) FROM seals") == 5
    assert document("study", "prune", old) == {"removed": 0}
    assert document("study", "retry", old)["reused"] == 5


def test_a_sweep_says_that_it_computes_them_again(old, call, tmp_path):
    file = tmp_path / "study.toml"
    parts = zip(("task", "model", "learner"), QUESTION, strict=True)
    head = "\n".join(f'{name} = "{value!r}"' for name, value in parts)
    file.write_text(f'{head}\n[over]\n"task.snr" = {OVER["task.snr"]}\n')
    code, _, err = call("sweep", file)
    assert code == 0
    assert f"{old} has 5 points of another version of the numbers; this study's are computed again" in err
    with Store(old) as store:
        assert store.counts() == {("done", "CONVERGED"): 3, ("older", "CONVERGED"): 5}


@pytest.mark.negative
def test_points_of_this_version_are_not_older(tmp_path, document):
    path = tmp_path / "study.sqlite"
    ndl.sweep(*QUESTION, OVER, store=path).close()
    (row,) = document("study", "ls", tmp_path)
    assert (row["done"], row["older"]) == (3, 0)
    assert document("study", "show", path)["older"] == 0
    assert document("study", "prune", path) == {"removed": 0}
    assert document("study", "retry", path)["reused"] == 3

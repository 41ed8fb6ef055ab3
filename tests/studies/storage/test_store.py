"""The store: what is put in comes out bit for bit, nobody computes twice, and trouble is one sentence."""

import contextlib
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.results import Measurement, Prediction
from needlepoint.studies.execution.jobs import Job, Unit
from needlepoint.studies.execution.work import Outcome, _done, versions
from needlepoint.studies.storage import file, owners
from needlepoint.studies.storage.codec import encode
from needlepoint.studies.storage.store import MEMORY, SCHEMA, Store, StoreError

from waiting import until

LINEAR = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population())


def job(snr=1.0, **options):
    return Job("predict", (ndl.SpikedSLR(2, snr), *LINEAR[1:]), options)


def outcome(of, value=0.5, **more):
    result = Prediction(*of.question, {"risk": ndl.Estimate(value)}, **more)
    return _done({"id": of.id, "seed": 7}, result, 0.25)


def failure(of, message="it broke."):
    return Outcome(of.id, "failed", "ValueError", message, 7, 0.125)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as made:
        yield made


# --- putting and getting -------------------------------------------------------------------------


def bits(value):
    arrays = {}
    return json.dumps(encode(value, arrays)), {n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()}


def full_result():
    rng = np.random.default_rng(0)
    paths = {name: rng.standard_normal((2, 3)) for name in ("key", "value")}
    paths["key"][0, 1] = np.nan
    trajectory = ndl.Trajectory(np.arange(3), np.ones(3), paths, rng.standard_normal((2, 3)), ("oracle", "other"))
    metrics = {
        "risk": ndl.Estimate(0.1 + 0.2, 1e-300),
        "excess_risk": ndl.Estimate(math.nan, math.inf, "stderr"),
        "energy": ndl.Estimate(-math.inf, 0.0),
    }
    return Measurement(*LINEAR, metrics, trajectory=trajectory, notes=("é", "b"), seed=2**60, d=5, repeats=1)


@pytest.mark.exact
@pytest.mark.parametrize("place", ["file", "memory"])
def test_what_is_put_comes_out_bit_for_bit(place, tmp_path):
    asked, result = job(d=5), full_result()
    put = _done({"id": asked.id, "seed": 2**60}, result, 0.125)
    where = tmp_path / "s.sqlite" if place == "file" else MEMORY
    with Store(where) as store:
        assert store.get(asked.id) is None
        store.put(Unit([asked]), [put])
        got = store.get(asked.id)
        assert bits(got.result) == bits(result)
        assert (got.state, got.status, got.message, got.seed, got.seconds) == ("done", "FINISHED", "é b", 2**60, 0.125)
    if place == "file":
        with Store(where, readonly=True) as again:
            assert bits(again.get(asked.id).result) == bits(result)
            assert again.get(asked.id).document == put.document


def test_metrics_are_columns_that_other_programs_read(store):
    asked = job()
    store.put(Unit([asked]), [_done({"id": asked.id, "seed": 0}, full_result(), 0.0)])
    rows = store._db.execute("SELECT name, value, error, kind FROM metrics WHERE point = ?", (asked.id,)).fetchall()
    assert sorted(rows) == [
        ("energy", -math.inf, 0.0, "numerical"),
        ("excess_risk", None, math.inf, "stderr"),  # sqlite has no NaN
        ("risk", 0.1 + 0.2, 1e-300, "numerical"),
    ]


def test_a_row_says_what_was_asked_and_what_became_of_it(store):
    asked = job(3.0, seed=7)
    before = time.time()
    store.put(Unit([asked]), [outcome(asked, status=ndl.Status.UNBOUNDED, notes=("it runs away.",))])
    row = store.row(asked.id)
    assert json.loads(row["task"]) == asked.question[0].to_json()
    assert json.loads(row["learner"]) == {"type": "Population", "within": "manifold"}
    assert json.loads(row["options"]) == {"seed": 7}
    assert (row["verb"], row["chunk"], row["seed"], row["seconds"], row["times"]) == ("predict", "", 7, 0.25, 1)
    assert (row["state"], row["status"], row["message"]) == ("done", "UNBOUNDED", "it runs away.")
    from datetime import datetime

    # it is written in milliseconds
    assert before - 0.001 <= datetime.fromisoformat(row["finished"]).timestamp() <= time.time()
    document = store._db.execute("SELECT document FROM versions WHERE id = ?", (row["version"],)).fetchone()[0]
    assert json.loads(document) == versions()
    assert {"python", "needlepoint", "jax", "numpy"} <= set(json.loads(document))
    assert store.row("nothing") is None
    assert [r["id"] for r in store.rows()] == [asked.id]
    assert list(store.rows("state = 'failed'")) == []


def test_putting_again_replaces_all_of_a_point(store):
    asked = job()
    store.put(Unit([asked]), [_done({"id": asked.id, "seed": 0}, full_result(), 0.0)])
    store.put(Unit([asked]), [outcome(asked, 0.75)])
    assert store.get(asked.id).result.risk.value == 0.75
    assert store.row(asked.id)["times"] == 2
    count = "SELECT count(*) FROM {} WHERE point = ?"
    assert store._db.execute(count.format("metrics"), (asked.id,)).fetchone()[0] == 1
    assert store._db.execute(count.format("blobs"), (asked.id,)).fetchone()[0] == 0
    assert store.counts() == {("done", "CONVERGED"): 1}


def test_counts_and_states(store):
    jobs = [job(snr) for snr in (1, 2, 3, 4)]
    outcomes = [outcome(jobs[0]), outcome(jobs[1]), outcome(jobs[2], status=ndl.Status.MAX_STEPS), failure(jobs[3])]
    for one, got in zip(jobs, outcomes, strict=True):
        store.put(Unit([one]), [got])
    assert store.counts() == {("done", "CONVERGED"): 2, ("done", "MAX_STEPS"): 1, ("failed", "ValueError"): 1}
    assert store.state(jobs[2]) == ("done", "MAX_STEPS")
    assert store.state(jobs[3]) == ("failed", "ValueError")
    assert (store.get(jobs[3].id).message, store.get(jobs[3].id).seconds) == ("it broke.", 0.125)


def test_meta(store):
    assert store.meta("study") is None
    store.put_meta("study", {"a": [1, None, "é"]})
    assert store.meta("study") == {"a": [1, None, "é"]}
    store.put_meta("study", 2)
    assert store.meta("study") == 2


def test_the_writers_version_can_be_read(store):
    assert store.meta("written by") == versions()["needlepoint"]


def test_the_definition_of_a_study_is_read_without_opening_it_for_writing(path):
    with Store(path) as store:
        store.put_meta("study", {"x": 1})
    with Store(path, readonly=True) as store:
        assert store.meta("study") == {"x": 1}


# --- what is missing -----------------------------------------------------------------------------

JOBS = [job(snr) for snr in (1.0, 2.0, 3.0)]
CHUNK = Unit(JOBS, (3,))


def test_a_unit_is_missing_until_it_is_there(store):
    unit = Unit([JOBS[0]])
    assert store.missing(unit)
    store.put(unit, [outcome(JOBS[0])])
    assert not store.missing(unit)
    assert not store.missing(unit, retry=True)
    assert store.missing(Unit([JOBS[1]]))


def test_a_chunk_that_is_partly_there_is_missing(store):
    for one in JOBS[:2]:
        with store._writing():
            store._put(one, outcome(one), CHUNK.chunk)
    assert store.missing(CHUNK)
    store.put(CHUNK, [outcome(one) for one in JOBS])
    assert not store.missing(CHUNK)


def test_points_belong_to_their_company(store):
    store.put(CHUNK, [outcome(one) for one in JOBS])
    assert store.missing(Unit(JOBS, (1, 2)))
    assert store.missing(Unit(JOBS[::-1], (3,)))
    assert store.missing(Unit([JOBS[0]]))
    store.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
    assert store.missing(CHUNK)  # one of its points is another's now


def test_failed_points_are_missing_only_for_a_retry(store):
    store.put(CHUNK, [outcome(JOBS[0]), failure(JOBS[1]), outcome(JOBS[2])])
    assert not store.missing(CHUNK)
    assert store.missing(CHUNK, retry=True)
    flagged = Unit([job(9.0)])
    store.put(flagged, [outcome(flagged.jobs[0], status=ndl.Status.DIVERGED)])
    assert not store.missing(flagged, retry=True)  # an answer with a status is an answer


# --- claims --------------------------------------------------------------------------------------


def test_two_stores_on_one_file_cannot_claim_one_unit(path):
    unit, other = Unit([JOBS[0]]), Unit([JOBS[1]])
    with Store(path) as a, Store(path) as b:
        assert a.claim(unit)
        assert not b.claim(unit)
        assert a.claim(unit)  # one's own claim is no obstacle
        assert b.claim(other)
        assert not a.claim(other)
        a.release(unit)
        assert b.claim(unit)
        a.release(unit)  # not a's to give back
        assert not a.claim(unit)


def test_a_finished_unit_cannot_be_claimed_and_gives_its_claim_back(path):
    unit = Unit([JOBS[0]])
    with Store(path) as a, Store(path) as b:
        assert a.claim(unit)
        a.put(unit, [outcome(JOBS[0])])
        assert a._one("SELECT count(*) FROM claims") == 0
        assert not b.claim(unit)
        assert not b.missing(unit)
        a.put(unit, [failure(JOBS[0])])
        assert not b.claim(unit)
        assert b.claim(unit, retry=True)


def test_closing_gives_everything_back(path):
    units = [Unit([one]) for one in JOBS]
    with Store(path) as b:
        with Store(path) as a:
            assert all(a.claim(u) for u in units)
            assert not any(b.claim(u) for u in units)
        assert all(b.claim(u) for u in units)
        assert b._one("SELECT count(*) FROM owners") == 1
    with Store(path) as after:
        assert (after._one("SELECT count(*) FROM owners"), after._one("SELECT count(*) FROM claims")) == (0, 0)


def test_stores_in_memory_are_nobody_elses():
    unit = Unit([JOBS[0]])
    with Store() as a, Store() as b:
        assert a.claim(unit)
        assert b.claim(unit)
        a.put(unit, [outcome(JOBS[0])])
        assert b.missing(unit)


def claimed_by(store, unit, host, pid, born, seen):
    store._db.execute("INSERT INTO owners VALUES ('other', ?, ?, ?, ?)", (host, pid, born, seen))
    store._db.execute("INSERT INTO claims VALUES (?, 'other')", (unit.id,))


def finished_process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        born = owners.born_at(child.pid)
        child.communicate(b"\n")
    return child.pid, born


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="without /proc a pid is all there is")
def test_the_claim_of_a_dead_process_is_taken_over(store):
    unit = Unit([JOBS[0]])
    pid, born = finished_process()
    assert born
    claimed_by(store, unit, owners.this_host(), pid, born, time.time())
    assert store.claim(unit)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="without /proc a pid is all there is")
def test_a_number_that_was_given_out_again_is_not_taken_for_its_owner(store):
    ours = owners.born_at(os.getpid())
    claimed_by(store, Unit([JOBS[0]]), owners.this_host(), os.getpid(), str(int(ours) - 1), time.time())
    assert store.claim(Unit([JOBS[0]]))


def test_the_claim_of_a_living_process_is_respected(store):
    claimed_by(store, Unit([JOBS[0]]), owners.this_host(), os.getpid(), owners.born_at(os.getpid()), 0.0)
    assert not store.claim(Unit([JOBS[0]]))


@pytest.mark.parametrize(("age", "dead"), [(1.0, False), (1000.0, True)])
def test_a_process_elsewhere_is_alive_while_it_is_heard_of(store, age, dead):
    claimed_by(store, Unit([JOBS[0]]), "elsewhere", 1, "1", time.time() - age)
    assert store.claim(Unit([JOBS[0]])) == dead


def test_a_claim_without_an_owner_is_free(store):
    store._db.execute("INSERT INTO claims VALUES (?, 'nobody')", (JOBS[0].id,))
    assert store.claim(Unit([JOBS[0]]))


def test_a_process_that_dies_at_work_leaves_its_points_and_its_claim(path):
    """A real one: it stores a point, claims the next, and is gone without a word."""
    script = f"""
import os, sys
sys.path[:0] = [{os.path.dirname(__file__)!r}, {str(Path(__file__).parents[2])!r}]
from test_store import JOBS, Store, Unit, outcome
store = Store({str(path)!r})
for one in JOBS[:2]:
    assert store.claim(Unit([one]))
store.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
os._exit(9)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    with Store(path) as store:
        assert store._one("SELECT count(*) FROM claims") == 1
        assert not store.missing(Unit([JOBS[0]]))
        assert store.get(JOBS[0].id).result.risk.value == 0.5
        assert store.claim(Unit([JOBS[1]]))


def test_a_process_at_work_gives_signs_of_life(path, monkeypatch):
    monkeypatch.setattr(file, "_BEAT", 0.02)
    with Store(path) as store:
        assert store._one("SELECT count(*) FROM owners") == 0  # reading is no work
        store.claim(Unit([JOBS[0]]))
        first = store._one("SELECT seen FROM owners")
        until(lambda: store._one("SELECT seen FROM owners") > first, "a sign of life")


# --- other files ---------------------------------------------------------------------------------


def refused(phrase, *args, error=StoreError, **options):
    with pytest.raises(error, match=re.escape(phrase)) as caught:
        Store(*args, **options)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ndl.NeedlepointError)


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_is_no_database(path, readonly):
    path.write_bytes(b"snr,risk\n" * 1000)
    refused("it is not a sqlite file; give another name.", path, readonly=readonly)
    assert path.read_bytes() == b"snr,risk\n" * 1000


@pytest.mark.parametrize("readonly", [False, True])
def test_somebody_elses_database(path, readonly):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE points (x)")
    before = path.read_bytes()
    refused(f"{path} is not a needlepoint store; give another file.", path, readonly=readonly)
    assert path.read_bytes() == before


@pytest.mark.parametrize("readonly", [False, True])
def test_another_schema(path, readonly):
    with Store(path) as store:
        store._db.execute("PRAGMA user_version = 99")
    refused(
        f"{path} has schema 99 (needlepoint {versions()['needlepoint']}), this version reads schema {SCHEMA}; export",
        path,
        readonly=readonly,
    )


def test_a_missing_folder_and_a_folder_in_its_place(tmp_path):
    refused("the folder does not exist or may not be written", tmp_path / "none" / "s.sqlite")
    refused("the folder does not exist or may not be written", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_made_for_a_reader(path):
    for readonly in (False, True):
        refused(f"there is no store {path}.", path, create=False, readonly=readonly, error=ndl.InvalidParameter)
    assert not path.exists()


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with Store(path) as store:
        store.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
    with Store(path, create=False) as again:
        assert not again.missing(Unit([JOBS[0]]))


def test_a_damaged_file_is_one_sentence(path):
    with Store(path) as store:
        for snr in range(1, 200):
            store.put(Unit([job(snr)]), [outcome(job(snr))])
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\x55" * (len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(StoreError, match="the file is damaged; take a copy from before"), Store(path) as store:
        list(store.rows())


# --- reading only --------------------------------------------------------------------------------


def test_a_reader_writes_nothing(path):
    with Store(path) as store:
        store.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
    before = path.read_bytes()
    with Store(path, readonly=True) as reader:
        assert reader.get(JOBS[0].id).result.risk.value == 0.5
        for write in (
            lambda: reader.put(Unit([JOBS[1]]), [outcome(JOBS[1])]),
            lambda: reader.put_meta("study", 1),
            lambda: reader.claim(Unit([JOBS[1]])),
        ):
            with pytest.raises(StoreError, match=r"cannot write the store .*: it is read-only; .* are kept\."):
                write()
        assert reader.counts() == {("done", "CONVERGED"): 1}
    assert path.read_bytes() == before


def test_a_reader_sees_what_a_writer_has_finished(path):
    with Store(path) as writer, Store(path, readonly=True) as reader:
        assert reader.missing(Unit([JOBS[0]]))
        writer.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
        assert not reader.missing(Unit([JOBS[0]]))


def test_a_writer_that_is_kept_waiting_says_so(path, monkeypatch):
    monkeypatch.setattr(file, "_PATIENCE", 0.05)
    with Store(path) as a, Store(path) as b:
        a._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has held it for a minute"):
            b.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
        a._db.execute("COMMIT")
        b.put(Unit([JOBS[0]]), [outcome(JOBS[0])])
        assert not a.missing(Unit([JOBS[0]]))


# --- a full disk ---------------------------------------------------------------------------------


def large(of):
    """An outcome that takes some pages."""
    return _done({"id": of.id, "seed": 7}, (0.5, np.random.default_rng(0).standard_normal(5000)), 0.25)


def full(store):
    """No page more than there is now."""
    pages = store._one("PRAGMA page_count")
    store._db.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_one_sentence_and_loses_nothing(path):
    with Store(path) as store:
        store.put(Unit([JOBS[0]]), [large(JOBS[0])])
        full(store)
        with pytest.raises(StoreError) as caught:
            store.put(Unit([JOBS[1]]), [large(JOBS[1])])
        assert str(caught.value) == (
            f"cannot write the store {path}: the disk is full; the points stored so far are kept. "
            "Free some space and run again."
        )
        assert store.get(JOBS[0].id).result[0] == 0.5  # the same object can still read
        assert store.missing(Unit([JOBS[1]]))
    with Store(path, readonly=True) as again:
        assert again._one("PRAGMA integrity_check") == "ok"
        assert again.counts() == {("done", "CONVERGED"): 1}
        assert bits(again.get(JOBS[0].id).result) == bits(large(JOBS[0]).result)
    with Store(path) as freed:  # the limit belongs to the connection
        freed.put(Unit([JOBS[1]]), [large(JOBS[1])])
        assert freed.counts() == {("done", "CONVERGED"): 2}


def test_half_a_chunk_on_a_full_disk_is_computed_again(path):
    with Store(path) as store:
        full(store)
        store._db.execute(f"PRAGMA max_page_count = {store._one('PRAGMA page_count') + 16}")
        with pytest.raises(StoreError, match="the disk is full"):
            store.put(CHUNK, [large(one) for one in JOBS])
        assert [store.get(one.id) is not None for one in JOBS] == [True, False, False]
        assert store.missing(CHUNK)
    with Store(path) as again:
        assert again._one("PRAGMA integrity_check") == "ok"
        assert again.claim(CHUNK)
        again.put(CHUNK, [large(one) for one in JOBS])
        assert not again.missing(CHUNK)


def test_versions_are_recorded_after_a_full_disk(path):
    with Store(path) as store:
        full(store)
        with pytest.raises(StoreError, match="the disk is full"):
            store.put(Unit([JOBS[0]]), [large(JOBS[0])])
        store._db.execute("PRAGMA max_page_count = 100000")
        store.put(Unit([JOBS[0]]), [large(JOBS[0])])
        version = store.row(JOBS[0].id)["version"]
        assert store._one("SELECT document FROM versions WHERE id = ?", (version,)) == json.dumps(versions())

"""Several coordinators on one store, Ctrl-C, and stores that cannot be written."""

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import threading

import pytest

from needlepoint import cli
from needlepoint.studies.execution import executors
from needlepoint.studies.storage.store import SCHEMA, Store, StoreError
from needlepoint.studies.study import Study

from kill_cases import (
    NEEDS_PROC,
    STUDY,
    TASK,
    ask,
    count,
    ended,
    gone,
    moody_sweep,
    numbers,
    run,
    same,
    whole,
)
from waiting import until

pytestmark = NEEDS_PROC


def test_two_coordinators_share_the_points(start, tmp_path, moody, definition):
    store, meet = tmp_path / "study.sqlite", tmp_path / "meet"
    meet.mkdir()
    sweep = moody_sweep(moody, ["meets"] * 20)
    both = [start("-m", "script", definition(sweep), store, "serial", MEET=meet) for _ in range(2)]
    ends = [ended(process) for process in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    shares = [json.loads(out)["computed"] for _, out, _ in ends]
    assert min(shares) >= 1
    assert sum(shares) == 100
    assert count(store, "times = 1") == 100
    run(sweep, tmp_path / "reference.sqlite")
    same(store, tmp_path / "reference.sqlite", 100)


def test_one_coordinator_finishes_what_a_killed_one_had_taken(start, tmp_path, moody, definition):
    store, gate = tmp_path / "study.sqlite", tmp_path / "gate"
    sweep = moody_sweep(moody, ["waits"] + ["calm"] * 19)
    first = start("-m", "script", definition(sweep), store, "serial", GATE=gate)
    until(lambda: count(store) == 20 and ask(store, "SELECT * FROM claims"), "the claim of the first", first.pid)
    second = start("-m", "script", definition(sweep), store, "serial")
    until(lambda: count(store) == 99, "what the first has not taken", second.pid)
    assert second.poll() is None  # it waits for the first, which is alive
    first.kill()
    first.wait()
    code, out, err = ended(second)
    assert code == 0, err
    assert json.loads(out) == {"computed": 80, "failed": 0}
    assert count(store, "times = 1") == 100
    run(sweep, tmp_path / "reference.sqlite")
    same(store, tmp_path / "reference.sqlite", 100)


def test_a_new_store_waits_for_the_process_that_makes_it(tmp_path):
    path = tmp_path / "study.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.5, other.execute, ["ROLLBACK"])
        release.start()
        try:
            Store(path).close()
        finally:
            release.join()


MOODY_STUDY = f"""
task = "{TASK!r}"
model = "LinearRegression()"
learner = "Moody()"
over = [
  {{"task.snr" = 1.0, "learner.mood" = "calm"}},
  {{"task.snr" = 2.0, "learner.mood" = "spins"}},
]
"""


@pytest.mark.parametrize(
    "executor",
    [["serial"], pytest.param(["processes", "--workers", "1"], marks=pytest.mark.slow)],
    ids=["serial", "processes"],
)
def test_ctrl_c_keeps_what_is_done(start, tmp_path, executor):
    store = tmp_path / "study.sqlite"
    (tmp_path / "study.toml").write_text(MOODY_STUDY)
    # what a shell starts in the background ignores Ctrl-C, and so would what the tests start there
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    words = ["-c", f"{heard}; import moody; from needlepoint.cli import main; main()"]
    words += ["sweep", "study.toml", "--executor", *executor]
    process = start(*words, SPIN=10**13)
    until(lambda: count(store) == 1 and ask(store, "SELECT * FROM claims"), "rows", process.pid)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to workers too
    code, out, err = ended(process)  # the loop would take hours
    assert (code, out) == (130, "")
    said = [line for line in err.splitlines() if not re.match(r"\d+/\d+ points", line)]
    # the last word: an interrupt inside a garbage collection of jax is reported by Python and comes again
    assert said[-1] == "needlepoint: interrupted; what is done is kept in study.sqlite, and the same command goes on."
    assert len(said) == 1 or said[0].startswith("Exception ignored in")
    gone(process.pid)
    whole(store)
    assert count(store) == 1
    code, out, err = ended(start(*words, "--json", SPIN=0))
    assert code == 0, err
    assert [json.loads(out)[k] for k in ("done", "reused", "failed")] == [2, 1, 0]
    assert count(store, "times = 1") == 2


@pytest.fixture
def small_disk(monkeypatch):
    """Connections whose file cannot grow beyond some pages more than it has: a disk that is full."""
    pages = {"left": 40}
    connect = Store._connect

    def limited(self, *args, **kwargs):
        db = connect(self, *args, **kwargs)
        if pages["left"] is not None:
            (have,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {have + pages['left']}")
        return db

    monkeypatch.setattr(Store, "_connect", limited)
    return pages


FULL = "the disk is full; the points stored so far are kept. Free some space and run again."


def test_a_full_disk_in_the_middle_of_a_sweep(tmp_path, moody, calm, small_disk):
    store, sweep = tmp_path / "study.sqlite", moody_sweep(moody, ["calm"] * 40)
    with pytest.raises(StoreError) as caught:
        run(sweep, store)
    assert str(caught.value) == f"cannot write the store {store}: {FULL}"
    had = count(store)
    assert 10 < had < 200
    whole(store)
    small_disk["left"] = None
    tally = run(sweep, store)
    assert (tally.done, tally.reused, tally.failed) == (200, had, 0)
    same(store, calm, 200)
    assert count(store, "times > 1") == 0


def test_a_full_disk_on_the_command_line(tmp_path, small_disk, capsys):
    study, store = tmp_path / "study.toml", tmp_path / "study.sqlite"
    study.write_text(STUDY)
    assert cli.run(["sweep", str(study)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"needlepoint: StoreError: cannot write the store {store}: {FULL}\n"
    assert 10 < count(store) < 200
    whole(store)


def test_a_store_that_may_only_be_read(monkeypatch, moody, calm):
    rows = numbers(calm)
    monkeypatch.setattr(Store, "_connect", Store._connect_to_read)
    with Study(moody_sweep(moody, ["calm"] * 40), Store(calm)) as study:
        assert study.run().reused == 200  # all is there: nothing has to be written
        with pytest.raises(StoreError, match=r"it is read-only; the points stored so far are kept\..*\.$"):
            study.store.put_meta("study", {})
    with pytest.raises(StoreError, match="read-only"):
        run(moody_sweep(moody, ["waits"], None), calm)
    assert numbers(calm) == rows


@pytest.mark.parametrize("schema", [0, SCHEMA + 1])
def test_a_store_of_another_schema(tmp_path, capsys, schema):
    path = tmp_path / "study.sqlite"
    Store(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema}")
    before = path.read_bytes()
    for options in ({}, {"readonly": True}):
        with pytest.raises(StoreError) as caught:
            Store(path, **options)
        text = str(caught.value)
        assert text.startswith(f"{path} has schema {schema} (needlepoint ")
        assert text.endswith(".")
        assert "\n" not in text
    assert cli.run(["study", "show", str(path)]) == 2
    assert f"has schema {schema}" in capsys.readouterr().err
    assert path.read_bytes() == before


def lose(path, how):
    """Take a store away from under the process that writes it."""
    if how == "replaced":
        path.with_name("new").write_bytes(b"")
        path.with_name("new").replace(path)
        return
    if how == "moved":
        path.rename(path.with_name("elsewhere.sqlite"))
    for file in path.parent.glob(f"{path.name}*") if how == "removed" else ():
        file.unlink()


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_store_that_is_removed_during_a_run(tmp_path, moody, calm, how):
    store, sweep, lost = tmp_path / "study.sqlite", moody_sweep(moody, ["calm"] * 40), []

    def remove(tally):
        if tally.done == 60:
            lose(store, how)
            lost.append(tally.done)

    with pytest.raises(StoreError) as caught:
        run(sweep, store, report=remove)
    rescued = tmp_path / "study-rescued.sqlite"
    assert str(caught.value) == (
        f"{store} was removed while it was in use; the points computed so far are kept in {rescued}: move it back and "
        "run again."
    )
    assert lost == [60]
    had = count(rescued)
    assert 60 <= had <= 62
    whole(rescued)
    # moved back, it goes on and ends with the numbers of an undisturbed run
    rescued.replace(store)
    tally = run(sweep, store)
    assert (tally.done, tally.reused, tally.failed) == (200, had, 0)
    same(store, calm, 200)


def test_a_store_that_is_removed_at_the_end(tmp_path, moody):
    """After the last point was written; nothing would look at the file again."""
    store, sweep = tmp_path / "study.sqlite", moody_sweep(moody, ["calm"] * 2, None)

    def remove(tally):
        if tally.done == 2:
            lose(store, "removed")

    with pytest.raises(StoreError, match="was removed while it was in use"):
        run(sweep, store, report=remove)
    assert count(tmp_path / "study-rescued.sqlite") == 2


def test_a_removed_store_on_the_command_line(tmp_path, capsys, monkeypatch):
    study, store = tmp_path / "study.toml", tmp_path / "study.sqlite"
    study.write_text(STUDY)
    (tmp_path / "study-rescued.sqlite").write_text("of last time")
    honest, solved = executors.solve, []

    def solve(unit, *args):
        solved.append(unit)
        if len(solved) == 50:
            lose(store, "removed")
        return honest(unit, *args)

    monkeypatch.setattr(executors, "solve", solve)
    assert cli.run(["sweep", str(study)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    rescued = tmp_path / "study-rescued-2.sqlite"
    sentence = f"StoreError: {store} was removed while it was in use; the points computed so far are kept in {rescued}"
    assert err.splitlines()[-1] == f"needlepoint: {sentence}: move it back and run again."
    assert count(rescued) == 50


def test_a_folder_that_is_removed_with_its_store(tmp_path, moody, monkeypatch):
    place, work = tmp_path / "place", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)

    def remove(tally):
        if tally.done == 30:
            shutil.rmtree(place)

    with pytest.raises(StoreError, match=r"work/study-rescued\.sqlite: move it back and run again"):
        run(moody_sweep(moody, ["calm"] * 40, None), place / "study.sqlite", report=remove)
    assert count(work / "study-rescued.sqlite") in (30, 31)


def test_another_error_is_told_before_a_removed_store(tmp_path, moody):
    store = tmp_path / "study.sqlite"

    def stop(tally):
        lose(store, "removed")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(moody_sweep(moody, ["calm"] * 4, None), store, report=stop)
    assert count(tmp_path / "study-rescued.sqlite") == 1

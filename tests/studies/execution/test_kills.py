"""Killed coordinators and workers, several coordinators at once, Ctrl-C, full disks: every point is there once, and
its numbers are those of an undisturbed run, bit for bit."""

import json
import os
import signal

import pytest

import needlepoint as ndl
from needlepoint.studies.storage.store import Store
from needlepoint.studies.study import Study
from needlepoint.studies.sweeps import Sweep

from kill_cases import (
    MEASURED,
    NEEDS_PROC,
    SNR,
    STUDY,
    TASK,
    alive,
    ask,
    count,
    ended,
    gone,
    moody_sweep,
    run,
    same,
    whole,
)
from waiting import until

pytestmark = NEEDS_PROC


LIBRARY = {
    "task": TASK,
    "model": ndl.LinearRegression(),
    "learner": ndl.Population(),
    "over": {"task.snr": SNR},
    "also": MEASURED,
}
"""200 points of the library; the same as a file:"""


def kill_while_it_writes(process, store):
    """Kill it after the predictions and the first simulations; how many rows there are."""
    until(lambda: count(store) >= 60, "rows", process.pid)
    process.kill()
    process.wait()
    whole(store)
    rows = count(store)
    assert 60 <= rows < 200
    return rows


def test_a_serial_coordinator_is_killed(start, tmp_path, moody, calm, definition):
    store, sweep = tmp_path / "study.sqlite", moody_sweep(moody, ["calm"] * 40)
    had = kill_while_it_writes(start("-m", "script", definition(sweep), store, "serial", PAUSE=0.02), store)
    tally = run(sweep, store)
    assert (tally.done, tally.reused, tally.failed) == (200, had, 0)
    assert count(store, "times > 1") == 0
    same(store, calm, 200)


@pytest.mark.slow
def test_the_command_is_killed_and_goes_on(start, tmp_path):
    store, sweep = tmp_path / "study.sqlite", Sweep.of(**LIBRARY)
    (tmp_path / "study.toml").write_text(STUDY)
    words = ["-m", "needlepoint.cli", "sweep", "study.toml"]
    had = kill_while_it_writes(start(*words), store)
    code, out, err = ended(start(*words, "--json"))
    assert code == 0, err
    assert [json.loads(out)[k] for k in ("total", "done", "reused", "failed")] == [200, 200, had, 0]
    assert count(store, "times > 1") == 0
    run(sweep, tmp_path / "reference.sqlite")
    same(store, tmp_path / "reference.sqlite", 200)


@pytest.mark.slow
def test_a_coordinator_of_processes_is_killed(start, tmp_path, moody, definition):
    store, gate = tmp_path / "study.sqlite", tmp_path / "gate"
    sweep = moody_sweep(moody, ["calm"] * 20 + ["waits"] * 20)
    process = start("-m", "script", definition(sweep), store, "processes", GATE=gate)
    until(lambda: count(store) == 120, "rows up to the gate", process.pid)  # 40 predictions, 20 times 4 simulations
    assert len(alive(process.pid)) >= 3  # with two workers, both in the middle of a unit
    process.kill()
    process.wait()
    gone(process.pid)
    whole(store)
    assert count(store) == 120
    assert len(ask(store, "SELECT * FROM claims")) == 4  # those of the dead: two under way, two to follow
    tally = run(sweep, store)
    assert (tally.done, tally.reused) == (200, 120)
    assert count(store, "times > 1") == 0
    run(sweep, tmp_path / "reference.sqlite")
    same(store, tmp_path / "reference.sqlite", 200)


@pytest.mark.slow
def test_killed_workers_are_replaced_and_nothing_is_lost(tmp_path, moody, calm):
    pool, store, killed = ndl.Processes(2), tmp_path / "study.sqlite", []

    def kill(tally):
        if tally.done in (30, 90):  # among predictions, and among simulations
            busy = [w for w in pool._pool if w.number is not None and w.process.is_alive()]
            os.kill(busy[-1].process.pid, signal.SIGKILL)
            killed.append(busy[-1].process.pid)

    tally = run(moody_sweep(moody, ["calm"] * 40), store, pool, report=kill)
    assert len(set(killed)) == 2
    assert (tally.done, tally.reused, tally.failed) == (200, 0, 0)
    same(store, calm, 200)
    assert count(store, "times > 1") == 0
    assert not pool._pool


@pytest.mark.slow
def test_a_unit_that_kills_its_workers_fails_and_the_others_finish(tmp_path, moody):
    store = tmp_path / "study.sqlite"
    sweep = moody_sweep(moody, ["calm", "dies", "calm", "calm"], None)
    tally = run(sweep, store, ndl.Processes(2))
    assert (tally.done, tally.failed) == (4, 1)
    assert count(store, "state = 'done'") == 3
    ((status, message),) = ask(store, "SELECT status, message FROM points WHERE state = 'failed'")
    assert status == "WorkerLost"
    assert message == "its worker died 3 times (exit code -9)."
    with Study(sweep, Store(store)) as study:
        assert study.failures() == [({"learner.mood": "dies", "task.snr": SNR[1]}, message)]

"""Killed coordinators and workers, several coordinators at once, Ctrl-C, full disks: every point is there once, and
its numbers are those of an undisturbed run, bit for bit."""

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint import cli
from needlepoint.core import dispatch, specs
from needlepoint.studies.execution import executors
from needlepoint.studies.storage.store import SCHEMA, Store, StoreError
from needlepoint.studies.study import Study
from needlepoint.studies.sweeps import Sweep

import waiting
from waiting import until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")

TASK = ndl.SpikedSLR(2, 1.0, noise=0.3)
SNR = [round(0.1 + 0.2 * i, 3) for i in range(40)]
MEASURED = ndl.Simulation(d=4, repeats=4, samples=100)

HELPER = '''
"""Linear regression whose points wait, die or compute for ever if they are told to."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import time

import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Trajectory
from needlepoint.core.specs import Spec, choice, spec
from needlepoint.models.attention import LinearRegression
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.location.population.optimum import predict_linear


@spec
class Moody(Spec):
    """`waits`: a simulation waits until the file $GATE exists; `meets`: a prediction waits until two processes are
    here; `dies`: a prediction kills its process; `spins`: one compiled loop of $SPIN rounds."""

    family = "learner"
    mood: str = choice("calm", "waits", "meets", "dies", "spins", default="calm")


@rule("predict", SpikedSLR, LinearRegression, Moody)
def predict_moody(task, model, learner, options):
    if learner.mood == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if learner.mood == "meets" and "MEET" in os.environ:
        place = pathlib.Path(os.environ["MEET"])
        (place / str(os.getpid())).touch()
        while len(list(place.iterdir())) < 2:
            time.sleep(0.01)
    if learner.mood == "spins":
        _spin(int(os.environ.get("SPIN", "0")))
    made = predict_linear(task, model, learner, options)
    rng = np.random.default_rng(round(1000 * task.snr))
    path = Trajectory(np.arange(4), np.ones(4), {"key": rng.standard_normal((2, 4))}, rng.standard_normal((2, 4)))
    return dataclasses.replace(made, trajectory=path)


@rule("simulate", SpikedSLR, LinearRegression, Moody)
def simulate_moody(task, model, learner, options):
    time.sleep(float(os.environ.get("PAUSE", "0")))
    gate = os.environ.get("GATE")
    while learner.mood == "waits" and gate and not os.path.exists(gate):
        time.sleep(0.01)
    risk = Estimate(float(np.mean(np.random.default_rng(options.seed).standard_normal(1000) ** 2)), 0.1, "stderr")
    return Measurement(task, model, learner, {"risk": risk}, d=options.d, repeats=options.repeats, seed=options.seed)


def _spin(rounds):
    import jax

    with jax.enable_x64(True):
        end = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda i, x: x * 0.5 + i, 0.0))(rounds)
        with contextlib.suppress(KeyboardInterrupt):  # as deaf as compiled code that never looks
            end.block_until_ready()
'''

SCRIPT = """
import sys
from pathlib import Path
import moody
import needlepoint as ndl
from needlepoint.studies.study import Study
from needlepoint.studies.storage.store import Store
from needlepoint.studies.sweeps import Sweep
import json

if __name__ == "__main__":
    definition, store, executor = sys.argv[1:4]
    with Study(Sweep.from_json(json.loads(Path(definition).read_text())), Store(store)) as study:
        tally = study.run(executor, workers=2 if executor == "processes" else None)
        print(json.dumps({"computed": tally.done - tally.reused, "failed": tally.failed}))
"""


# --- tools ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moody(tmp_path_factory):
    """The helper as an importable module, here and in every process that is started; gone at the end."""
    folder = tmp_path_factory.mktemp("helper")
    (folder / "moody.py").write_text(HELPER)
    (folder / "script.py").write_text(SCRIPT)
    rules = dict(dispatch._RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # processes share small kernels too
        yield importlib.import_module("moody").Moody
    sys.modules.pop("moody", None)
    specs.forget("Moody")
    for key in [k for k in dispatch._RULES if k not in rules and k[3].__name__ == "Moody"]:
        del dispatch._RULES[key]


@pytest.fixture
def start(tmp_path, moody):
    """Start a process in a session of its own; nothing of it is left at the end."""
    begun = []

    def run(*args, **env):
        with open(tmp_path / f"out-{len(begun)}", "w") as out, open(tmp_path / f"err-{len(begun)}", "w") as err:
            process = subprocess.Popen(
                [sys.executable, *map(str, args)],
                stdout=out,
                stderr=err,
                cwd=tmp_path,
                start_new_session=True,
                env=os.environ | {name: str(value) for name, value in env.items()},
            )
        process.out, process.err = Path(out.name), Path(err.name)
        begun.append(process)
        return process

    yield run
    for process in begun:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(process):
    """Its exit code and what it said."""
    return waiting.ended(process), process.out.read_text(), process.err.read_text()


def gone(session):
    """Wait until no process of a session is left; workers of a dead coordinator look for it every second."""
    until(lambda: not alive(session), "the end of the workers", *alive(session))


def alive(session):
    """The processes of a session that are not dead."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, sid = stat.read_text().rpartition(")")[2].split()[:4]
            if int(sid) == session and state != "Z":
                found.add(int(stat.parent.name))
    return found


def ask(path, sql):
    """Rows of a store that others may be writing; none while it is not there yet."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as db:
            return db.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []


def count(path, where="1"):
    return sum(n for (n,) in ask(path, f"SELECT count(*) FROM points WHERE {where}"))


def whole(path):
    """The file is sound, and every row has all of its parts."""
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]
    metrics, arrays = (set(ask(path, f"SELECT point, name FROM {table}")) for table in ("metrics", "blobs"))
    rows = ask(path, "SELECT id, state, document FROM points")
    for name, state, document in rows:
        if state == "done":
            wanted = {k for k, _ in json.loads(document)["fields"]["metrics"]["$map"]}
            assert wanted
            assert wanted == {m for point, m in metrics if point == name}
        assert set(re.findall(r'"\$array": "([^"]+)"', document)) == {a for point, a in arrays if point == name}
    assert {point for point, _ in metrics | arrays} <= {name for name, _, _ in rows}


def numbers(path):
    """All that a run decides: every column but times of day, and the arrays."""
    columns = "id, verb, task, model, learner, options, chunk, state, status, message, seed, document"
    return [
        ask(path, f"SELECT {columns} FROM points ORDER BY id"),
        ask(path, "SELECT * FROM metrics ORDER BY point, name"),
        ask(path, "SELECT * FROM blobs ORDER BY point, name"),
    ]


def same(path, reference, total):
    """Every point is there exactly once and has the numbers of the reference."""
    whole(path)
    assert count(path) == total
    for mine, other in zip(numbers(path), numbers(reference), strict=True):
        assert mine == other
    assert ask(path, "SELECT * FROM claims") == []


def moody_sweep(moody, moods, also=MEASURED):
    """Points of the helper, in the order of the moods: a prediction each and (for 40 points, 160) simulations."""
    over = [{"learner.mood": mood, "task.snr": snr} for mood, snr in zip(moods, SNR, strict=False)]
    return Sweep.of(TASK, ndl.LinearRegression(), moody(), over, also)


def run(definition, path, *args, **options):
    with Study(definition, Store(path)) as study:
        return study.run(*args, **options)


@pytest.fixture(scope="module")
def calm(tmp_path_factory, moody):
    """An undisturbed run of 200 calm points."""
    path = tmp_path_factory.mktemp("calm") / "reference.sqlite"
    assert run(moody_sweep(moody, ["calm"] * 40), path).failed == 0
    return path


@pytest.fixture
def definition(tmp_path):
    """A file with the definition of a study, for the script."""

    def write(sweep):
        path = tmp_path / "definition.json"
        path.write_text(json.dumps(sweep.to_json()))
        return path

    return write


LIBRARY = {
    "task": TASK,
    "model": ndl.LinearRegression(),
    "learner": ndl.Population(),
    "over": {"task.snr": SNR},
    "also": MEASURED,
}
"""200 points of the library; the same as a file:"""

STUDY = f"""
task = "{TASK!r}"
model = "LinearRegression()"
learner = "Population()"

[over]
"task.snr" = {SNR}

[also]
d = 4
repeats = 4
samples = 100
"""


# --- the coordinator is killed -------------------------------------------------------------------


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


# --- a worker is killed --------------------------------------------------------------------------


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


# --- several coordinators ------------------------------------------------------------------------


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


# --- Ctrl-C --------------------------------------------------------------------------------------

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


# --- a store that cannot be written --------------------------------------------------------------


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


# --- a store that is removed ---------------------------------------------------------------------


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

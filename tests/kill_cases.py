"""Processes to be killed, and how they are waited for."""

import contextlib
import importlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint.core import dispatch, specs
from needlepoint.studies.storage.store import Store
from needlepoint.studies.study import Study
from needlepoint.studies.sweeps import Sweep

import waiting
from waiting import until

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


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

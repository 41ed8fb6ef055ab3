"""The same bits from this process, a pool and a cluster; budgets of memory and threads; activations of users; what is
refused, in one sentence."""

import contextlib
import importlib
import json
import os
import signal
import sqlite3
import sys

import jax
import pytest

import needlepoint as ndl
from needlepoint.core import dispatch, specs
from needlepoint.studies.execution import on_dask
from needlepoint.studies.execution.executors import Serial, executor_named
from needlepoint.studies.storage.store import Store
from needlepoint.studies.study import Study
from needlepoint.studies.sweeps import Sweep

import waiting

distributed = pytest.importorskip("distributed")

TASK = ndl.SpikedSLR(2, 2.0, noise=0.3)
SNR = [0.5, 1.0, 2.0, 4.0]
TWO = SNR[::3]

LEARNER = '''
"""Linear regression that takes all memory, or says what its process has."""

import dataclasses
import json
import os
import time

import numpy as np
from threadpoolctl import threadpool_info

from needlepoint.core.dispatch import rule
from needlepoint.core.specs import Spec, choice, spec
from needlepoint.models.attention import LinearRegression
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.location.population.optimum import predict_linear


@spec
class Hungry(Spec):
    family = "learner"
    appetite: str = choice("none", "memory", "threads", default="none")


@rule("predict", SpikedSLR, LinearRegression, Hungry)
def predict_hungry(task, model, learner, options):
    made = predict_linear(task, model, learner, options)
    if learner.appetite == "memory":
        held = [np.ones(25_000_000) for _ in range(8)]  # 1.6 GB, until somebody stops it
        while held:
            time.sleep(0.05)
    if learner.appetite == "threads":
        import scipy.linalg

        scipy.linalg.eigh(np.eye(3))
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        told = {"pid": os.getpid(), "blas": blas, "environment": [os.environ.get(name) for name in names]}
        made = dataclasses.replace(made, notes=(json.dumps(told),))
    return made
'''

ACTIVATION = '''
"""An activation that a user has written."""

import jax.numpy as jnp

import needlepoint as ndl


@ndl.activation("half_relu", form="elementwise")
def half_relu(scores):
    return 0.5 * jnp.maximum(scores, 0.0)
'''


# --- tools ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def kernels_are_compiled_once(tmp_path_factory):
    """Small kernels too are shared between the processes of this file, through JAX's cache on disk."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name.upper(), "0")
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        jax.config.update(name, 0.0)
        yield
    jax.config.update(name, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of modules that all processes can import."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "hungry.py").write_text(LEARNER)
    (folder / "users_activation.py").write_text(ACTIVATION)
    rules = dict(dispatch._RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield folder
    sys.modules.pop("hungry", None)
    specs.forget("Hungry")
    for key in [k for k in dispatch._RULES if k not in rules and k[3].__name__ == "Hungry"]:
        del dispatch._RULES[key]


@pytest.fixture
def hungry(folder):
    return importlib.import_module("hungry").Hungry


@pytest.fixture
def half_relu(folder):
    """The user's activation, registered for one test."""
    made = importlib.import_module("users_activation").half_relu
    yield made
    sys.modules.pop("users_activation", None)


@pytest.fixture(scope="module")
def cluster(folder, kernels_are_compiled_once):
    """Two processes of dask."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


def run(definition, path, *args, **options):
    with Study(definition, Store(path)) as study:
        return study.run(*args, **options)


def rows(path, sql):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def numbers(path):
    """All that a run decides: every column but times, and the arrays."""
    columns = "id, verb, task, model, learner, options, chunk, state, status, message, seed, document"
    return [
        rows(path, f"SELECT {columns} FROM points ORDER BY id"),
        rows(path, "SELECT * FROM metrics ORDER BY point, name"),
        rows(path, "SELECT * FROM blobs ORDER BY point, name"),
    ]


def same(path, reference):
    for mine, other in zip(numbers(path), numbers(reference), strict=True):
        assert mine == other


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


# --- the same bits -------------------------------------------------------------------------------


def mixed_sweep(optima):
    """Batches (descent with its trajectory), single points (linear), simulations; if asked erf and softmax too."""
    erf, unit = ndl.KeyValueAttention(ndl.Erf()), ndl.KeyValueAttention(ndl.Erf(scale=0.5), unit_norm=True)
    descent = ndl.ProjectedDescent(lr=0.1, steps=5, start="manifold", d=4, runs=2)
    softmax, linear = ndl.KeyValueAttention(ndl.Softmax()), ndl.LinearRegression()
    kinds = [(linear, ndl.Population()), (unit, descent)]
    kinds += [(softmax, ndl.Population()), (erf, ndl.Population())] * optima
    over = [{"model": model, "learner": learner, "task.snr": snr} for model, learner in kinds for snr in TWO]
    measured = ndl.Simulation(d=4, repeats=2, samples=100, at={"model": [linear, unit]})
    return Sweep.of(TASK, linear, ndl.Population(), over, measured)


@pytest.mark.parametrize("optima", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["descent", "both"])
def test_this_process_a_pool_and_a_cluster_have_the_same_bits(tmp_path, cluster, optima):
    sweep, serial = mixed_sweep(optima), tmp_path / "serial.sqlite"
    tally = run(sweep, serial)
    assert (tally.done, tally.failed) == ((8 if optima else 6) * len(TWO), 0)
    chunks = rows(serial, "SELECT count(*) FROM points WHERE chunk != '' GROUP BY chunk")
    assert chunks == [(len(TWO),)] * (2 if optima else 1)
    assert rows(serial, "SELECT count(*) FROM points WHERE chunk = '' AND verb = 'predict'") == [
        ((2 if optima else 1) * len(TWO),)
    ]
    assert rows(serial, "SELECT count(*) > 0 FROM blobs") == [(1,)]

    others = {"again": Serial(), "processes": ndl.Processes(2), "dask": on_dask.Dask(cluster.scheduler_address)}
    for name, executor in others.items():
        run(sweep, tmp_path / f"{name}.sqlite", executor)
        same(tmp_path / f"{name}.sqlite", serial)
    assert len(cluster.workers) == 2  # somebody else's cluster stays


# --- dask ----------------------------------------------------------------------------------------


def test_a_cluster_of_its_own_is_closed_again(tmp_path):
    sweep = Sweep.of(TASK, ndl.LinearRegression(), ndl.Population(), {"task.snr": SNR})
    dask, pids = on_dask.Dask(workers=1), set()
    tally = run(
        sweep, tmp_path / "dask.sqlite", dask, report=lambda _: pids.update(dask._client.run(os.getpid).values())
    )
    assert (tally.done, tally.failed) == (len(SNR), 0)
    (pid,) = pids
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    run(sweep, tmp_path / "serial.sqlite")
    same(tmp_path / "dask.sqlite", tmp_path / "serial.sqlite")


def test_a_killed_worker_of_dask_is_replaced(tmp_path, cluster):
    over = {"task.snr": [round(0.1 * i, 3) for i in range(1, 16)]}
    sweep = Sweep.of(TASK, ndl.LinearRegression(), ndl.Population(), over, ndl.Simulation(d=4, repeats=2, samples=100))
    killed = []
    with distributed.Client(cluster, set_as_default=False) as client:

        def kill(tally):
            if tally.done == 20 and not killed:
                killed.extend(client.run(os.getpid).values())
                os.kill(killed[0], signal.SIGKILL)

        tally = run(sweep, tmp_path / "dask.sqlite", on_dask.Dask(client), report=kill)
        assert len(killed) == 2
        assert (tally.done, tally.failed) == (45, 0)
        assert client.status == "running"  # somebody else's client stays open
    run(sweep, tmp_path / "serial.sqlite")
    same(tmp_path / "dask.sqlite", tmp_path / "serial.sqlite")
    assert rows(tmp_path / "dask.sqlite", "SELECT count(*) FROM points WHERE times > 1") == [(0,)]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense"])
def test_nobody_listens_at_the_address(monkeypatch, address):
    """It is refused where nobody listens, before dask begins to wait for an answer."""
    monkeypatch.setattr(on_dask, "_CONNECT", 0.5)
    monkeypatch.setattr(distributed.Client, "__init__", None)
    with pytest.raises(ndl.InvalidParameter) as caught:
        ndl.sweep(TASK, ndl.LinearRegression(), ndl.Population(), {"task.snr": SNR}, executor="dask", address=address)
    assert one_sentence(caught).startswith(f"no dask scheduler answers at '{address}'")


# --- memory and threads --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_unit_that_takes_too_much_memory_is_stopped_and_the_others_finish(tmp_path, hungry):
    over = [
        {"learner.appetite": a, "task.snr": s} for a, s in zip(("none", "memory", "none", "none"), SNR, strict=True)
    ]
    sweep = Sweep.of(TASK, ndl.LinearRegression(), hungry(), over)
    path = tmp_path / "study.sqlite"
    tally = run(sweep, path, ndl.Processes(2, memory="1.5 GB"))
    assert (tally.done, tally.failed) == (4, 1)
    ((learner, status, message),) = rows(path, "SELECT learner, status, message FROM points WHERE state = 'failed'")
    assert json.loads(learner)["appetite"] == "memory"
    assert (status, message) == ("WorkerLost", "it needs more than the 1.5 GB of memory allowed.")


@pytest.mark.parametrize(
    ("asked", "memory", "workers"), [(4, "800 MB", 1), (4, "1.5 GB", 2), (4, 3e9, 4), (2, "100 GB", 2), (1, None, 1)]
)
def test_as_many_workers_as_the_memory_allows(asked, memory, workers):
    pool = ndl.Processes(asked, memory)
    assert (pool.workers, pool.width) == (workers, 2 * workers)


def test_workers_have_one_thread_and_the_environment_stays(tmp_path, monkeypatch, hungry):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    sweep = Sweep.of(TASK, ndl.LinearRegression(), hungry("threads"), {"task.snr": [1.0]})
    run(sweep, tmp_path / "study.sqlite", ndl.Processes(1))
    assert dict(os.environ) == before
    ((note,),) = rows(tmp_path / "study.sqlite", "SELECT message FROM points")
    told = json.loads(note)
    assert told["pid"] != os.getpid()
    assert told["environment"] == ["1", "1", "1"]
    assert set(told["blas"]) == {1}


def test_a_serial_run_has_one_thread_too(folder):
    """The libraries that a point itself loads count, and are loaded after the first look at them."""
    code = """
import json, sys
import hungry
import needlepoint as ndl
s = ndl.sweep(ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), hungry.Hungry("threads"), {"task.snr": [1.0]})
print(next(s.points()).prediction.notes[0])
"""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(names, "2")}
    done = waiting.python(code, env=env)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["blas"]) == {1}


# --- activations of users ------------------------------------------------------------------------


def test_activations_of_a_module_reach_processes_and_dask(tmp_path, half_relu, cluster):
    model = ndl.KeyValueAttention(half_relu)
    sweep = Sweep.of(TASK, model, ndl.Population(), {"task.snr": [1.0, 2.0]})
    for name, executor in (("serial", "serial"), ("processes", ndl.Processes(1)), ("dask", on_dask.Dask(cluster))):
        tally = run(sweep, tmp_path / f"{name}.sqlite", executor)
        assert (tally.done, tally.failed) == (2, 0)
        same(tmp_path / f"{name}.sqlite", tmp_path / "serial.sqlite")


def test_an_activation_that_only_a_session_knows_says_what_to_do(tmp_path):
    code = f"""{ACTIVATION}
model = ndl.KeyValueAttention(half_relu)
study = ndl.sweep(
    ndl.SpikedSLR(2, 1.0), model, ndl.Population(), {{"task.snr": [1.0]}}, executor="processes", workers=1
)
print(study.failures()[0][1])
"""
    done = waiting.python(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sentence = done.stdout.strip()
    assert "half_relu" in sentence
    assert "module" in sentence
    assert sentence.endswith(".")


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("executor", "options", "phrase"),
    [
        ("processes", {"workers": 0}, "workers must be a whole number >= 1"),
        ("processes", {"workers": 1.5}, "workers must be a whole number >= 1"),
        ("processes", {"workers": "two"}, "workers must be a whole number >= 1"),
        ("processes", {"workers": True}, "workers must be a whole number >= 1"),
        ("processes", {"memory": "lots"}, "as '4 GB'"),
        ("processes", {"memory": "1 MB"}, "at least"),
        ("processes", {"memory": -1}, "at least"),
        ("processes", {"memory": float("nan")}, "at least"),
        ("processes", {"memory": "1.2.3 GB"}, "as '4 GB'"),
        ("processes", {"address": "tcp://127.0.0.1:8786"}, "executor='dask'"),
        ("serial", {"address": "tcp://127.0.0.1:8786"}, "executor='dask'"),
        ("serial", {"workers": 2}, "say 'processes'"),
        ("dask", {"workers": 0}, "workers must be a whole number >= 1"),
        ("dask", {"workers": "two"}, "workers must be a whole number >= 1"),
        ("dusk", {}, "did you mean 'dask'?"),
    ],
)
def test_bad_values_are_one_sentence_each(executor, options, phrase):
    with pytest.raises(ndl.InvalidParameter) as caught:
        executor_named(executor, **options)
    assert phrase in one_sentence(caught)


def test_dask_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ndl.InvalidParameter, match=r"pip install 'needlepoint\[dask\]'\.$"):
        executor_named("dask")


@pytest.mark.slow
def test_a_script_without_a_guard_is_one_sentence(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import needlepoint as ndl\n"
        "question = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population())\n"
        "ndl.sweep(*question, {'task.snr': [1, 2, 3]}, executor='processes', workers=1)\n"
    )
    done = waiting.program([sys.executable, script])
    assert done.returncode == 1
    assert "InvalidParameter: workers die before they begin" in done.stderr
    assert "if __name__ == '__main__'" in done.stderr.splitlines()[-1]


def test_a_pool_that_was_stopped_knows_nothing_of_its_last_run():
    """Units are numbered from 1 in every run: what a number did before must not be held against it."""
    pool = ndl.Processes(workers=1)
    pool._deaths[1], pool._stillborn = 2, 3
    pool._too_large.add(1)
    pool.stop()
    assert (pool._deaths, pool._too_large, pool._stillborn) == ({}, set(), 0)

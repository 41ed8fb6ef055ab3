"""Damaged stores: whatever is wrong with the file is one sentence, or a point marked damaged that `retry` repairs."""

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import typer

import needlepoint as ndl
from needlepoint.cli import studies as cli_studies
from needlepoint.core import dispatch, specs
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import one_line
from needlepoint.core.results import Measurement, Prediction, Trajectory
from needlepoint.core.specs import Spec, spec
from needlepoint.studies.storage.store import Store

QUESTION = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression())
SNR = [1.0, 2.0, 3.0]
TEXT = ("verb", "task", "model", "learner", "options", "chunk", "state", "status", "message", "document")


@pytest.fixture(scope="module")
def learner():
    """A learner whose results have everything that is stored, and cost nothing; forgotten at the end."""
    rules, registry = dict(dispatch._RULES), dict(specs._REGISTRY)

    @spec
    class Drawn(Spec):
        family: ClassVar[str] = "learner"

    def numbers(seed):
        rng = np.random.default_rng(seed)
        paths = {name: rng.uniform(-0.3, 0.3, (1, 4)) for name in ndl.core.overlaps.FIVE}
        return rng, Trajectory(np.arange(4), np.ones(4), paths, rng.uniform(0, 1, (1, 4)), ("oracle",))

    @rule("predict", ndl.SpikedSLR, ndl.LinearRegression, Drawn)
    def predict(task, model, learner, options):
        rng, path = numbers(int(task.snr))
        metrics = {"risk": ndl.Estimate(rng.uniform()), "excess_risk": ndl.Estimate(rng.uniform(), 1e-9)}
        return Prediction(task, model, learner, metrics, trajectory=path, notes=("drawn.",), seed=options.seed)

    @rule("simulate", ndl.SpikedSLR, ndl.LinearRegression, Drawn)
    def simulate(task, model, learner, options):
        rng, path = numbers(options.seed)
        metrics = {"risk": ndl.Estimate(rng.uniform(), np.inf, "stderr")}
        values = {"risk": rng.uniform(size=1)}
        return Measurement(task, model, learner, metrics, trajectory=path, values=values, d=options.d, repeats=1)

    yield Drawn
    dispatch._RULES.clear()
    dispatch._RULES.update(rules)
    specs._REGISTRY.clear()
    specs._REGISTRY.update(registry)


@pytest.fixture(scope="module")
def sound(tmp_path_factory, learner):
    """A store of three places with two seeds each."""
    path = tmp_path_factory.mktemp("sound") / "study.sqlite"
    also = ndl.Simulation(d=4, repeats=2, samples=10)
    with ndl.sweep(*QUESTION, learner(), {"task.snr": SNR}, also=also, store=path):
        pass
    return path


def change(path, *statements):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def numbers(path):
    """All that a study says, and the columns that other programs read."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        texts = [c for c in TEXT if c != "message"]
        rows = db.execute(f"SELECT id, {', '.join(texts)} FROM points ORDER BY id").fetchall()
        return rows, *(db.execute(f"SELECT * FROM {t} ORDER BY 1, 2").fetchall() for t in ("metrics", "blobs"))


# --- what is changed -----------------------------------------------------------------------------

ONE = "(SELECT id FROM points WHERE verb = 'predict' ORDER BY id LIMIT 1)"
SEED = "(SELECT id FROM points WHERE verb = 'simulate' ORDER BY id LIMIT 1)"
OTHER = "(SELECT id FROM points WHERE verb = 'predict' ORDER BY id DESC LIMIT 1)"
VALUES = {"nothing": "NULL", "a number": "7", "bytes": "x'00ff80'", "another word": "'nonsense'", "empty": "''"}
FILE = {  # what no row can be read without: one sentence
    **{
        f"no table {t}": (f"DROP TABLE {t}",)
        for t in ("meta", "versions", "points", "metrics", "blobs", "owners", "claims", "seals")
    },
    "no column document": ("ALTER TABLE points DROP COLUMN document",),
    "no column data": ("ALTER TABLE blobs DROP COLUMN data",),
    "no column seal": ("ALTER TABLE seals DROP COLUMN seal",),
    "another column": ("ALTER TABLE points ADD COLUMN extra TEXT",),
    "a column of another name": ("ALTER TABLE metrics RENAME COLUMN error TO wrong",),
    "another program's file": ("PRAGMA application_id = 5",),
    "another schema": ("PRAGMA user_version = 99",),
}
DEFINITION = {  # the rows are sound, but what they are for is not known
    **{f"study is {k}": (f"UPDATE meta SET value = {v} WHERE key = 'study'",) for k, v in VALUES.items()},
    "study is cut": ("UPDATE meta SET value = substr(value, 1, 100) WHERE key = 'study'",),
    "study is another document": ("UPDATE meta SET value = '{\"a\": [1]}' WHERE key = 'study'",),
    "study is a list": ("UPDATE meta SET value = '[1, 2]' WHERE key = 'study'",),
    "study has other paths": (
        "UPDATE meta SET value = replace(value, 'task.snr', 'task.nothing') WHERE key = 'study'",
    ),
    "study has another task": ("UPDATE meta SET value = replace(value, 'SpikedSLR', 'Spiked') WHERE key = 'study'",),
    "study has words for numbers": ("UPDATE meta SET value = replace(value, '2.0', '\"x\"') WHERE key = 'study'",),
}
ROWS = {  # some points are damaged, and can be computed again
    **{
        f"{column} is {kind}": (f"UPDATE points SET {column} = {value} WHERE id = {ONE}",)
        for column in (*TEXT, "seed", "seconds")
        for kind, value in VALUES.items()
        if (column, kind) not in {("model", ""), ("chunk", "empty"), ("message", "empty")}
    },
    "document is cut": (f"UPDATE points SET document = substr(document, 1, 200) WHERE id = {ONE}",),
    "a cut document of a seed": (f"UPDATE points SET document = substr(document, 1, 90) WHERE id = {SEED}",),
    "a digit of the document": ("UPDATE points SET document = replace(document, '0.', '1.') WHERE verb = 'predict'",),
    "another status": (f"UPDATE points SET document = replace(document, 'FINISHED', 'FINE') WHERE id = {ONE}",),
    "another type": (f"UPDATE points SET document = replace(document, 'Prediction', 'Oracle') WHERE id = {ONE}",),
    "another spec": (f"UPDATE points SET document = replace(document, 'SpikedSLR', 'Spiked') WHERE id = {ONE}",),
    "the document of another point": (
        f"UPDATE points SET document = (SELECT document FROM points WHERE id = {OTHER}) WHERE id = {ONE}",
    ),
    "another id": (f"UPDATE points SET id = 'nobody' WHERE id = {ONE}",),
    "swapped ids": (
        "CREATE TEMP TABLE two AS SELECT id FROM points WHERE verb = 'predict' ORDER BY id LIMIT 2",
        "UPDATE points SET id = 'x' WHERE id = (SELECT min(id) FROM two)",
        "UPDATE points SET id = (SELECT min(id) FROM two) WHERE id = (SELECT max(id) FROM two)",
        "UPDATE points SET id = (SELECT max(id) FROM two) WHERE id = 'x'",
    ),
    "no arrays": ("DELETE FROM blobs",),
    "no arrays of a seed": (f"DELETE FROM blobs WHERE point = {SEED}",),
    "arrays are nothing": (f"UPDATE blobs SET data = NULL WHERE point = {ONE}",),
    "arrays are words": (f"UPDATE blobs SET data = 'words' WHERE point = {ONE}",),
    "arrays are cut": (f"UPDATE blobs SET data = substr(data, 1, 100) WHERE point = {ONE}",),
    "arrays of another place": (
        f"UPDATE blobs SET data = (SELECT data FROM blobs WHERE name = 'trajectory.steps') WHERE point = {ONE}",
    ),
    "arrays of other names": (f"UPDATE blobs SET name = 'x' || name WHERE point = {ONE}",),
    "no metrics": ("DELETE FROM metrics",),
    "metrics are words": ("UPDATE metrics SET value = 'x', error = NULL, kind = 3",),
    "metrics of other names": (f"UPDATE metrics SET name = 'x' || name WHERE point = {ONE}",),
    "no seals": ("DELETE FROM seals",),
    "another seal": (f"UPDATE seals SET seal = 'x' WHERE point = {ONE}",),
    "seal is nothing": (f"UPDATE seals SET seal = NULL, arrays = NULL, numbers = NULL WHERE point = {ONE}",),
    "seal is a number": ("UPDATE seals SET seal = 4, arrays = 5",),
    "no points": ("DELETE FROM points",),
    "one point less": (f"DELETE FROM points WHERE id = {ONE}",),
}
HARMLESS = {  # nothing that a number depends on
    **{f"times is {k}": (f"UPDATE points SET times = {v}",) for k, v in VALUES.items()},
    **{f"finished is {k}": (f"UPDATE points SET finished = {v}",) for k, v in VALUES.items()},
    **{f"version is {k}": (f"UPDATE points SET version = {v}",) for k, v in VALUES.items()},
    "no versions": ("DELETE FROM versions",),
    "versions are words": ("UPDATE versions SET document = 'words'",),
    "claims of nobody": ("INSERT INTO claims SELECT id, NULL FROM points", "INSERT INTO claims VALUES ('x', 5)"),
    "claims of a damaged owner": (
        "INSERT INTO owners VALUES ('o', NULL, 'words', 7, 'never')",
        "INSERT INTO claims SELECT id, 'o' FROM points",
        f"DELETE FROM points WHERE id = {ONE}",
    ),
    "a plot that is words": ("INSERT OR REPLACE INTO meta VALUES ('plot', '\"words\"')",),
    "a plot that is cut": ("INSERT OR REPLACE INTO meta VALUES ('plot', '{\"metric\": ')",),
    "a plot of something else": ("INSERT OR REPLACE INTO meta VALUES ('plot', '{\"colour\": 1}')",),
    "no writer": ("DELETE FROM meta WHERE key = 'written by'",),
    "a writer that is cut": ("UPDATE meta SET value = '\"0.' WHERE key = 'written by'",),
}
MUTATIONS = {**FILE, **DEFINITION, **ROWS, **HARMLESS}


@pytest.fixture
def damaged(tmp_path, sound):
    """A copy of the store, changed; beside another that is sound."""

    def make(name):
        path = tmp_path / "study.sqlite"
        shutil.copy(sound, path)
        shutil.copy(sound, tmp_path / "other.sqlite")
        change(path, *MUTATIONS[name])
        return path

    return make


def said(capsys, command, *paths):
    """Exit code and output of a command of `study`: a defect would raise, and trouble is one sentence.

    The command is called as a function, because reading the words of the command line takes longer than all the rest.
    """
    code, sentence = 0, ""
    try:
        getattr(cli_studies, command)(*map(Path, paths))
    except typer.Exit as left:
        code = left.exit_code
    except ndl.NeedlepointError as error:
        code, sentence = 2, f"needlepoint: {one_line(error)}\n"
    out, err = capsys.readouterr()
    err += sentence
    assert code in (0, 2, 3), err
    if code == 2:
        assert out == ""
        assert err.startswith("needlepoint: StoreError: " if "StoreError" in err else "needlepoint: ")
        assert err.count("\n") == 1
        assert err.rstrip()[-1] in ".?"
    return code, out, err


def quick(name):
    """One way of being wrong for each column; the other ways are with the long checks."""
    words = [f" is {kind}" for kind in VALUES if kind != "bytes"]
    return name not in ROWS or "document" in name or not any(map(name.endswith, words))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if quick(name) else pytest.mark.slow) for name in MUTATIONS]
)
def test_a_damaged_store_is_a_sentence_or_a_point_that_retry_repairs(name, damaged, sound, capsys):
    path = damaged(name)
    # the folder can be listed, with what is sound in it
    code, out, _ = said(capsys, "ls", path.parent)
    assert code == 0
    lines = dict(line.split(": ", 1) for line in out.splitlines())
    assert set(lines) == {str(path), str(path.with_name("other.sqlite"))}
    assert lines[str(path.with_name("other.sqlite"))] == "9 done, 0 failed, over task.snr"
    # it can be looked at
    shown, text, _ = said(capsys, "show", path)
    exported, _, _ = said(capsys, "export", path, path.with_suffix(".csv"))
    assert shown == exported == (2 if name in {**FILE, **DEFINITION} else 0)
    assert ("no result" in text) is (name in ROWS or "damaged owner" in name)
    # and repaired
    code, _, _ = said(capsys, "retry", path)
    if name in {**FILE, **DEFINITION}:
        assert code == 2
        return
    assert code == 0
    assert numbers_of_the_study(path) == numbers_of_the_study(sound)
    with ndl.open_study(path) as study:
        assert study.failures() == []
        assert study.run().reused == 9


def numbers_of_the_study(path):
    """What the study's own jobs have; rows under ids that no job has stay where they are."""
    with ndl.open_study(path, readonly=True) as study:
        definition, found = study.definition, {}
        for at in definition.axes.points():
            prediction = definition.prediction(at)
            for job in [prediction, *(j for jobs in definition.simulations(at, prediction) for j in jobs)]:
                found[job.id] = study.store.row(job.id)["document"]
        wanted = tuple(found)
    rows, metrics, blobs = numbers(path)
    return [r for r in rows if r[0] in wanted], *([r for r in t if r[0] in wanted] for t in (metrics, blobs))


@pytest.mark.parametrize("name", ["document is cut", "no arrays", "a digit of the document", "chunk is nothing"])
def test_what_a_run_without_retry_does(name, damaged, capsys):
    """A row that is seen to be damaged is computed again; arrays are looked at when they are read."""
    path = damaged(name)
    with ndl.open_study(path) as study:
        study.run()
        left = study.failures()
    assert len(left) == (3 if name == "no arrays" else 0)
    assert all("is damaged; `study retry`" in why for _, why in left)


@pytest.mark.parametrize("name", DEFINITION)
def test_a_sweep_brings_back_the_definition_and_keeps_the_points(name, damaged, learner):
    path = damaged(name)
    also = ndl.Simulation(d=4, repeats=2, samples=10)
    with ndl.sweep(*QUESTION, learner(), {"task.snr": SNR}, also=also, store=path) as study:
        assert {row["times"] for row in study.store.rows()} == {1}
        assert study.failures() == []
    with ndl.open_study(path, readonly=True) as again:
        assert again.definition == study.definition


@pytest.mark.parametrize("name", [n for n in HARMLESS if "plot" in n])
def test_a_picture_of_a_damaged_plan_is_one_sentence(name, damaged, capsys):
    path = damaged(name)
    code, _, err = said(capsys, "export", path, path.with_suffix(".svg"))
    assert code == 2
    assert "is damaged" in err


def test_bytes_that_are_overwritten(tmp_path, sound, capsys):
    """Damage below the level of tables: sqlite notices, or a seal does."""
    whole = bytearray(sound.read_bytes())
    rng = np.random.default_rng(0)
    for i in range(10):
        path, data = tmp_path / f"{i}.sqlite", bytearray(whole)
        begin = int(rng.integers(100, len(data) - 64))
        data[begin : begin + 64] = rng.bytes(64)
        path.write_bytes(data)
        for command in (("show",), ("export", tmp_path / "t.csv"), ("retry",)):
            said(capsys, command[0], path, *command[1:])
        path.unlink()
    assert said(capsys, "ls", tmp_path)[0] == 0


@pytest.mark.parametrize("size", [0, 1, 15, 100, 4096, 5000])
def test_a_file_that_is_cut(tmp_path, sound, size, capsys):
    path = tmp_path / "study.sqlite"
    path.write_bytes(sound.read_bytes()[:size])
    for command in ("show", "retry"):
        assert said(capsys, command, path)[0] == 2
    assert said(capsys, "ls", tmp_path)[0] == 0


def test_a_point_is_damaged_in_python_too(damaged):
    path = damaged("document is cut")
    with ndl.open_study(path, readonly=True) as study:
        (failure,) = study.failures()
        assert failure[1] == (
            "what is stored of this point is damaged; `study retry` (or sweep with retry) computes it again."
        )
        assert sum(p.prediction is None for p in study.points()) == 1
    with Store(path) as store:
        assert store.counts() == {("done", "FINISHED"): 9}  # counting does not read

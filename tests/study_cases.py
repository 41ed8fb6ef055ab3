"""Studies that the tests of sweeps share."""

import pytest

import needlepoint as ndl
from needlepoint.studies.execution import executors

TASK, LEARNER = ndl.SpikedSLR(2, 1.0, noise=0.3), ndl.Population()


LINEAR, SOFTMAX = ndl.LinearRegression(), ndl.KeyValueAttention(ndl.Softmax())


BASE = (TASK, SOFTMAX, LEARNER)


OVER = {"task.snr": [1, 2, 5], "task.noise": [0.1, 0.3]}


ALSO = ndl.Simulation(d=(5, 6), repeats=3, samples=50)


HARD = (ndl.MaxSLR(2, 1.0), SOFTMAX, LEARNER)


def swept(over=OVER, base=BASE, **options):
    return ndl.sweep(*base, over, **options)


def documents(study):
    """What the store has of each point, without when and how long."""
    kept = ("id", "verb", "task", "model", "learner", "options", "chunk", "state", "status", "message", "seed")
    rows = {row["id"]: [row[name] for name in (*kept, "document")] for row in study.store.rows()}
    blobs = study.store._db.execute("SELECT point, name, data FROM blobs ORDER BY point, name").fetchall()
    metrics = study.store._db.execute("SELECT * FROM metrics ORDER BY point, name").fetchall()
    return rows, blobs, metrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.sqlite"


@pytest.fixture
def computed(monkeypatch):
    """The jobs that are computed, call by call."""
    calls = []

    def watched(unit, *args):
        calls.extend(unit["calls"])
        return honest(unit, *args)

    honest = executors.solve
    monkeypatch.setattr(executors, "solve", watched)
    return calls

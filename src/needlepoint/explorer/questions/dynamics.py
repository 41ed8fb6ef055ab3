"""Training dynamics: the flow of erf attention on the (key, value) square, and runs of gradient descent over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.reading import Reader

SIDE = 21
"""Arrows along each side of the square."""

STEPS, RECORDS = 20_000, 200
"""The most steps of a run, and how many points of its path are sent."""


@dataclass(frozen=True)
class Flow:
    """The velocity of both overlaps on a grid, with fixed points and the line where the key turns."""

    task: Any
    model: Any

    @classmethod
    def read(cls, reader: Reader) -> Flow:
        return cls(reader.spec("task", "task"), reader.spec("model", "model"))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        grid = np.linspace(-1.0, 1.0, SIDE)
        key, value = np.meshgrid(grid, grid)
        key_dot, value_dot = ndl.vector_field(self.task, self.model, key, value)
        line = np.linspace(-1.0, 1.0, 81)
        points = [*ndl.fixed_points(self.task, self.model)]
        emit(
            {
                "event": "flow",
                "grid": grid,
                "key_dot": key_dot,
                "value_dot": value_dot,
                "nullcline": [line, ndl.nullcline(self.task, self.model, line)],
                "points": [_point(p) for p in points],
                "swapped": _point(ndl.swapped_minimum(self.task, self.model)),
                "oracle": _point(ndl.oracle_point(self.task, self.model)),
            }
        )


def _point(point: Any) -> dict[str, Any]:
    overlaps = dict(point.overlaps.items())
    return {"key": overlaps["key"], "value": overlaps["value"], "kind": point.kind, "excess": point.excess_risk}


@dataclass(frozen=True)
class Run:
    """A run of projected gradient descent from given overlaps; with `d`, trained with vectors of that dimension too."""

    task: Any
    model: Any
    key: float
    value: float
    lr: float
    steps: int
    d: int

    @classmethod
    def read(cls, reader: Reader) -> Run:
        task, model = reader.spec("task", "task"), reader.spec("model", "model")
        start = reader.number("key", -1.0, 1.0), reader.number("value", -1.0, 1.0)
        lr, steps = reader.number("lr", 1e-6, 10.0), reader.whole("steps", 1, STEPS)
        return cls(task, model, *start, lr, steps, reader.whole("d", 0, 1000, 0))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        every = max(1, self.steps // RECORDS)
        start = ndl.Overlaps(key=self.key, value=self.value)
        learner = ndl.ProjectedDescent(lr=self.lr, steps=self.steps, start=start, record_every=every)
        found = ndl.predict(self.task, self.model, learner, throw=False, progress=False)
        emit({"event": "path", "of": "theory", "status": found.status.name, **_path(found.trajectory)})
        if self.d:

            def share(done: float) -> None:
                emit({"event": "progress", "done": done})

            trained = ndl.simulate(self.task, self.model, learner, d=self.d, repeats=1, seed=1, progress=share)
            emit({"event": "path", "of": "training", "status": trained.status.name, **_path(trained.trajectory)})


def _path(path: Any) -> dict[str, Any]:
    return {
        "steps": path.steps,
        "key": path.overlaps["key"][0],
        "value": path.overlaps["value"][0],
        "excess": path.excess_risk[0],
        "end": list(path.branches),
    }

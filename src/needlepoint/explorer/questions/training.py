""" "Check this": training at one point, seed by seed, beside the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.contests import summary
from needlepoint.explorer.questions.reading import Reader, finite

SIZE, REPEATS = 2000, 256
"""The largest d and the most seeds that the page may ask for."""


@dataclass(frozen=True)
class Train:
    """Training with one seed after the other; after each, the mean with its standard error and the z-score.

    Seed i gives what `ndl.simulate(..., d=d, repeats=1, seed=seed + i)` says.
    """

    task: Any
    model: Any
    learner: Any
    d: int
    repeats: int
    seed: int

    @classmethod
    def read(cls, reader: Reader) -> Train:
        specs = reader.spec("task", "task"), reader.spec("model", "model"), reader.spec("learner", "learner")
        sizes = reader.whole("d", 2, SIZE), reader.whole("repeats", 1, REPEATS)
        return cls(*specs, *sizes, reader.whole("seed", 0, 2**31, 1))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl
        from needlepoint.studies.pooling import pooled

        prediction = ndl.predict(self.task, self.model, self.learner, throw=False, progress=False)
        emit({"event": "prediction", **summary(prediction)})
        if not prediction.status.ok:
            emit({"event": "note", "sentence": f"nothing to train: {prediction.status.sentence}"})
            return
        specs = prediction.resolved or (self.task, self.model, self.learner)
        population = type(self.learner).__name__ == "Population"
        at: dict[str, Any] = {"overlaps": prediction.overlaps} if population else {}
        parts: list[Any] = []
        for i in range(self.repeats):
            parts.append(ndl.simulate(*specs, d=self.d, repeats=1, seed=self.seed + i, progress=False, **at))
            if len(parts) > 1:
                emit({"event": "measured", **self.measured(prediction, pooled(parts))})
            emit({"event": "progress", "done": (i + 1) / self.repeats})

    def measured(self, prediction: Any, measurement: Any) -> dict[str, Any]:
        import needlepoint as ndl

        rows = {row.metric: row for row in ndl.compare(prediction, measurement, progress=False).rows}
        return {
            "repeats": measurement.repeats,
            "d": self.d,
            "metrics": {
                name: {
                    "value": finite(e.value),
                    "error": finite(e.error),
                    "z": finite(rows[name].z) if name in rows else None,
                }
                for name, e in measurement.metrics.items()
            },
        }

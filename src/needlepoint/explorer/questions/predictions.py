"""Any question that the command line takes: its prediction as a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.contests import summary
from needlepoint.explorer.questions.reading import Reader


@dataclass(frozen=True)
class Predict:
    """What `ndl.predict(task, model, learner)` says, in short and as printed."""

    task: Any
    model: Any
    learner: Any

    @classmethod
    def read(cls, reader: Reader) -> Predict:
        return cls(reader.spec("task", "task"), reader.spec("model", "model"), reader.spec("learner", "learner"))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        def share(done: float) -> None:
            emit({"event": "progress", "done": done})

        found = ndl.predict(self.task, self.model, self.learner, throw=False, progress=share)
        emit({"event": "prediction", "text": str(found), **summary(found)})

"""The table of questions: kind -> the class that reads and answers it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from needlepoint.core.errors import UnknownName
from needlepoint.explorer.questions.reading import Reader

Emit = Callable[[dict[str, Any]], None]
"""Called in the worker with each event of an answer: a JSON object with "event"."""


class Question(Protocol):
    """A question that has been checked: `answer` computes it in a worker and says what it finds, piece by piece."""

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None: ...


KINDS = {
    "hello": ("catalogue", "Hello"),
    "best": ("contests", "Best"),
    "penalties": ("contests", "Penalties"),
    "train": ("training", "Train"),
    "predict": ("predictions", "Predict"),
    "flow": ("dynamics", "Flow"),
    "run": ("dynamics", "Run"),
    "spectrum": ("spectra", "LearnedSpectrum"),
    "trained spectrum": ("spectra", "TrainedSpectra"),
    "eigenvalues": ("spectra", "Eigenvalues"),
    "map": ("maps", "Map"),
    "files": ("files", "Files"),
    "study": ("files", "StudyFile"),
    "heads": ("heads", "Heads"),
    "losses": ("heads", "Losses"),
}
"""Kind -> module and class; a module is imported when its kind is first asked for."""

WITH_MATRIX = ("eigenvalues",)
"""Kinds that may carry a matrix, and so more bytes."""


def read(document: Any) -> Question:
    """Return the question of a JSON document; raise one sentence where it is none."""
    reader = Reader(document)
    if reader.kind not in KINDS:
        raise UnknownName("kind of question", reader.kind, KINDS)
    module, name = KINDS[reader.kind]
    made = getattr(importlib.import_module(f"needlepoint.explorer.questions.{module}"), name)
    question = made.read(reader)
    reader.done()
    return question

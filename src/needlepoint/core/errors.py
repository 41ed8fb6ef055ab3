"""Errors that give the call, the value, the admissible set, the reason and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NeedlepointError(Exception):
    """Base of everything this library raises on purpose."""


class InvalidParameter(NeedlepointError, ValueError):
    """A value outside its admissible set."""


class UnknownName(InvalidParameter):
    """A name that is not registered; the message carries the nearest one that is."""

    def __init__(self, what: str, name: object, known: Iterable[str]):
        known = sorted(known)
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}."
        super().__init__(f"unknown {what} {name!r}: {hint}")


class NoTheory(NeedlepointError, LookupError):
    """No rule covers this combination of task, model and learner."""


class NotConverged(NeedlepointError, ArithmeticError):
    """A solver or a run stopped without an answer; `result` is what it had."""

    def __init__(self, message: str, result: object = None):
        super().__init__(message)
        self.result = result


def one_line(error: BaseException) -> str:
    """The sentence a user reads: class name and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"

"""What is asked, what was answered, and how the two routes are compared."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import needlepoint as ndl

RELATIVE = 1e-9
"""A reference known to this share of its value tests any error."""
BELOW = 0.3
"""So much of the reported error the reference may be off by itself."""

LONGEST = 120.0
"""Seconds after which a question counts as not answered."""


@dataclass(frozen=True)
class Question:
    """A call that a reader can repeat: `ndl.verb(*parts, **options)`."""

    verb: str
    parts: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [repr(p) for p in self.parts] + [f"{k}={v!r}" for k, v in self.options.items()]
        return f"{self.verb}({', '.join(shown)})"

    def ask(self) -> Any:
        more = {"throw": False} if self.verb == "predict" else {}
        return getattr(ndl, self.verb)(*self.parts, **self.options, **more)


@dataclass(frozen=True)
class Row:
    """One number beside the number that it should be, each with its error. `kind` is that of the reported error; the
    reference's error is a bound, or one standard error where the reported one is."""

    metric: str
    value: float
    error: float
    reference: float
    reference_error: float
    kind: str = "numerical"

    @property
    def ratio(self) -> float:
        """How many errors, of both sides joined, the two are apart."""
        if not math.isfinite(self.value) or not math.isfinite(self.reference):
            same = self.value == self.reference or (math.isnan(self.value) and math.isinf(self.error))
            return 0.0 if same else math.inf
        apart = abs(self.value - self.reference)
        if apart == 0.0 or math.isinf(self.error):
            return 0.0
        sides = (self.error, self.reference_error)
        joined = math.hypot(*sides) if self.kind == "stderr" else sum(sides)
        return apart / joined if joined > 0 else math.inf

    @property
    def tested(self) -> bool:
        """Whether the reference is good enough to tell. A reported error of infinity claims nothing."""
        if math.isinf(self.error) or math.isinf(self.reference_error):
            return False
        if math.isinf(self.value):
            return True
        return self.reference_error <= max(BELOW * self.error, RELATIVE * abs(self.value)) or self.ratio > 3


@dataclass(frozen=True)
class Check:
    """Random questions to some rules, and the second route.

    `rules` are keys of the dispatch table without the verb, by name: (task, model, learner). `draw` makes question
    number i; `compare` gets the question and its answer. `quick` are the numbers that every test run asks.
    """

    name: str
    rules: tuple[tuple[str, str, str], ...]
    points: int
    route: str
    draw: Callable[[int], Question]
    compare: Callable[[Question, Any], Iterable[Row]]
    quick: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A line of the file."""

    check: str
    index: int
    call: str
    status: str
    seconds: float
    reference_seconds: float
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Answer:
        return cls(**{**line, "rows": tuple(Row(**row) for row in line["rows"])})


class TooLong(Exception):
    """A question was not answered in the time given."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, as soon as Python is back from compiled code."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def answer(check: Check, index: int, seconds: float = LONGEST) -> Answer:
    """Ask question number `index` by both routes. What the library refuses with a reason is no answer and no fault."""
    question = check.draw(index)
    began = time.process_time()

    def without(reason: str) -> Answer:
        return Answer(check.name, index, str(question), reason, time.process_time() - began, 0.0, ())

    try:
        with at_most(seconds):
            found = question.ask()
    except ndl.NeedlepointError as refused:
        return without(f"refused: {refused}")
    except TooLong:
        return without(f"slow: no answer in {seconds:g} s")
    asked = time.process_time()
    rows = tuple(check.compare(question, found))
    status = getattr(getattr(found, "status", None), "name", "CONVERGED")
    return Answer(check.name, index, str(question), status, asked - began, time.process_time() - asked, rows)


def metric_rows(found: Any, references: dict[str, tuple[float, float]]) -> list[Row]:
    """Rows of a prediction's metrics and overlaps against (value, error) by name."""
    rows = []
    for name, (value, error) in references.items():
        if name in found.metrics:
            e = found.metrics[name]
            rows.append(Row(name, e.value, e.error, value, error, e.kind))
        else:
            kind = next(iter(found.metrics.values())).kind
            rows.append(Row(name, getattr(found.overlaps, name), found.overlaps_error[name], value, error, kind))
    return rows

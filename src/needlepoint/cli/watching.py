"""What a person sees while figures are computed: a bar in a terminal, in a pipe a line every few seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from needlepoint.papers.work import Queue

LINES = 5.0
"""Seconds between two lines of progress where standard error is not a terminal."""

_FAITH = (
    30.0  # seconds for which the figures' own costs count beside the rate seen so far in the estimate of what is left
)
_NAMED = 3  # most figures that a line names as being computed


class Watch:
    """How far the figures are: `show` is given the queue after every unit, `text` says it in one line."""

    def __init__(self, figures: int, workers: int):
        self.figures, self.workers, self.drawn = figures, max(1, workers), 0
        self._began = time.monotonic()
        self._spent = self._cost = 0.0
        self._current: list[str] = []

    def show(self, queue: Queue) -> None:
        self._spent, self._cost = queue.spent, queue.cost
        self._current = [one.figure.id for one in queue.current if one.figure is not None]

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def fraction(self) -> float:
        return self._spent / self._cost if self._cost else 1.0

    @property
    def left(self) -> float:
        """Return the seconds left: costs over the rate so far, which begins as one second of cost a core and second."""
        rate = (self._spent + self.workers * _FAITH) / (self.elapsed + _FAITH)
        return (self._cost - self._spent) / rate

    def text(self) -> str:
        now = ", ".join(self._current[:_NAMED]) + (", ..." if len(self._current) > _NAMED else "")
        doing = f"computing {now}" if now else "drawing"
        left = f", about {duration(self.left)} left" if self._spent < self._cost else ""
        return f"{100 * self.fraction:3.0f} %, {self.drawn} of {self.figures} figures{left}; {doing}"


def duration(seconds: float) -> str:
    """Return a time as a person says it: to ten seconds, or to minutes from five of them on."""
    if seconds >= 300:
        return f"{seconds / 60:.0f} min"
    tens = max(10, 10 * round(seconds / 10))
    return f"{tens // 60} min {tens % 60:02d} s" if tens >= 60 else f"{tens} s"


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[Any]:
    """Yield a function that prints a line; progress is shown between the lines for as long as this context lasts."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        with _ticking(watch):
            yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with Progress(BarColumn(30), TextColumn("{task.description}"), console=console, transient=True) as bar:
        row = bar.add_task(watch.text(), total=1.0)
        with _ticking(watch, 0.5, lambda text: bar.update(row, completed=watch.fraction, description=text)):
            yield lambda text: bar.console.print(text, markup=False, highlight=False)


@contextlib.contextmanager
def _ticking(watch: Watch, every: float | None = None, show: Any = None) -> Iterator[None]:
    """Call `show` with the text of the watch every few seconds, from a thread: a single point may take a minute."""
    stop = threading.Event()

    def line(text: str) -> None:
        clock = f"{int(watch.elapsed) // 60}:{int(watch.elapsed) % 60:02d}"
        print(f"{clock:>6} {text}", file=sys.stderr, flush=True)

    def tick() -> None:
        while not stop.wait(every or LINES):
            (show or line)(watch.text())

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

"""Progress of a long computation, shown to whoever is watching: a bar on a terminal or in a notebook, lines in a pipe.

A thread of its own looks at the clock, so that something is shown also while the computation is inside compiled code.
It starts after two seconds; what is over before then shows nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import html
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO, TypeVar, cast

from needlepoint.core.errors import InvalidParameter, shown

Shown = bool | Callable[[float], None] | None
"""What a verb takes as `progress`: None shows it where a person is watching, True wherever it is called, False nowhere;
a function is called with the fraction done, and nothing is shown."""

SILENCE = "NEEDLEPOINT_PROGRESS"
"""Variable of the environment that silences all progress when it is "off", for scripts and logs."""

_F = TypeVar("_F", bound=Callable[..., Any])
_showing = threading.Lock()  # held by the one display of this process


@dataclass(frozen=True)
class Timing:
    """When something is shown, in seconds.

    patience  how long a computation may take before anything appears
    tick      how often a bar is brought up to date
    line      how often a line is written where there is no bar
    known     fraction done, from which the time left is estimated
    """

    patience: float = 2.0
    tick: float = 0.25
    line: float = 5.0
    known: float = 0.03


TIMING = Timing()


class Display(Protocol):
    """Where progress is shown; `fraction` is None as long as it is not known."""

    def show(self, text: str, fraction: float | None, seconds: float) -> None: ...
    def close(self, text: str, seconds: float, done: bool) -> None: ...


class Update(Protocol):
    """How a computation says how far it is, and optionally what it is doing."""

    def __call__(self, fraction: float, text: str | None = None, /) -> None: ...


# --- displays ------------------------------------------------------------------------------------


class Lines:
    """A line every few seconds, for a pipe or a file."""

    def __init__(self, stream: TextIO):
        self.stream, self.said = stream, -TIMING.line

    def show(self, text: str, fraction: float | None, seconds: float) -> None:
        if seconds - self.said >= TIMING.line:
            self.said = seconds
            self._write(summary(text, fraction, seconds))

    def close(self, text: str, seconds: float, done: bool) -> None:
        self._write(f"{text}: {'done' if done else 'stopped'} after {duration(seconds)}")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever was reading has gone
            print(f"needlepoint: {line}", file=self.stream, flush=True)


class Bar:
    """A bar on a terminal, which leaves nothing behind."""

    def __init__(self, stream: TextIO):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.description}"))
        quiet: dict[str, Any] = {
            "transient": True,
            "auto_refresh": False,
            "redirect_stdout": False,
            "redirect_stderr": False,
        }
        self.bar = Progress(*columns, console=Console(file=stream), **quiet)
        self.row = self.bar.add_task("", total=None)
        self.bar.start()

    def show(self, text: str, fraction: float | None, seconds: float) -> None:
        from rich.markup import escape

        known: dict[str, Any] = {} if fraction is None else {"total": 1.0, "completed": fraction}
        self.bar.update(self.row, description=escape(summary(text, fraction, seconds)), refresh=True, **known)

    def close(self, text: str, seconds: float, done: bool) -> None:
        self.bar.stop()


class Cell:
    """A bar below the cell of a notebook, empty when it is over."""

    def __init__(self) -> None:
        module: Any = importlib.import_module("IPython.display")  # there is one: we are in it
        self.html: Any = module.HTML
        self.handle: Any = module.display(self.html(""), display_id=True)

    def show(self, text: str, fraction: float | None, seconds: float) -> None:
        value = "" if fraction is None else f' value="{fraction:.4f}"'
        words = html.escape(summary(text, fraction, seconds))
        self.handle.update(self.html(f"<progress{value}></progress> {words}"))

    def close(self, text: str, seconds: float, done: bool) -> None:
        self.handle.update(self.html(""))


def summary(text: str, fraction: float | None, seconds: float) -> str:
    """Return one line: what is done, how much of it, for how long, and about how long it will take."""
    parts = [text if fraction is None else f"{text}: {100 * fraction:.0f} %", duration(seconds)]
    if fraction is not None and TIMING.known <= fraction < 1:
        parts.append(f"about {duration(seconds * (1 - fraction) / fraction)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a length of time in words: 12 s, 3 min 05 s, 2 h 07 min."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


# --- who is watching -----------------------------------------------------------------------------


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, without importing IPython."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


def on_terminal(stream: Any) -> bool:
    """Return whether a stream, which may be None or closed, goes to a terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _display(stream: TextIO) -> Display:
    if in_notebook():
        return Cell()
    return Bar(stream) if on_terminal(stream) else Lines(stream)


# --- the watch -----------------------------------------------------------------------------------


@dataclass
class Watch:
    """How far one computation is, and the display that opens when it takes long."""

    text: str
    make: Callable[[], Display]
    clock: Callable[[], float] = time.monotonic
    fraction: float | None = None
    display: Display | None = None
    began: float = field(init=False)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def update(self, fraction: float, text: str | None = None, /) -> None:
        self.fraction = min(max(float(fraction), 0.0), 1.0)
        self.text = text or self.text

    def tick(self) -> None:
        """Bring the display up to date, and open it if it is time."""
        seconds = self.clock() - self.began
        if seconds < TIMING.patience:
            return
        if self.display is None:
            self.display = self.make()
        self.display.show(self.text, self.fraction, seconds)

    def run(self) -> None:
        """Tick until the computation has ended; a display that fails is given up, never the computation."""
        if self.ended.wait(TIMING.patience):
            return
        with contextlib.suppress(Exception):
            self.tick()
            while not self.ended.wait(TIMING.tick):
                self.tick()

    def close(self, done: bool) -> None:
        if self.display is not None:
            with contextlib.suppress(Exception):
                self.display.close(self.text, self.clock() - self.began, done)


def check_progress(verb: str, progress: Any) -> None:
    """Raise one sentence if `progress` is neither None, True or False, nor a function."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InvalidParameter(
            f"{verb}(progress={shown(progress)}): progress must be None (shown if you are watching), True, False, or "
            "a function of the fraction done."
        )


@contextlib.contextmanager
def watched(text: str, progress: Shown = None) -> Generator[Update]:
    """Yield a function that takes the fraction done, and show it as `progress` says (see `Shown`), on standard error.

    One display is open at a time: what is watched inside something that is watched shows nothing of its own.
    """
    check_progress(text, progress)
    if callable(progress):
        call = progress
        yield lambda fraction, said=None, /: call(fraction)
        return
    stream = sys.stderr
    wanted = progress or (progress is None and (on_terminal(stream) or in_notebook()))
    wanted = wanted and os.environ.get(SILENCE, "").lower() != "off"
    if not wanted or stream is None or not _showing.acquire(blocking=False):
        yield lambda fraction, said=None, /: None
        return
    watch = Watch(text, lambda: _display(stream))
    # a notebook knows by the context of a thread below which cell it displays
    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch.run,), daemon=True)
    done = False
    try:
        thread.start()
        yield watch.update
        done = True
    finally:
        watch.ended.set()
        thread.join()
        watch.close(done)
        _showing.release()


def watching(name: str) -> Callable[[_F], _F]:
    """Return a decorator for a function that takes `progress`: a caller may give all that `Shown` admits, and the
    function itself always gets a function of the fraction done."""

    def wrap(function: _F) -> _F:
        @functools.wraps(function)
        def inside(*args: Any, progress: Shown = None, **options: Any) -> Any:
            with watched(name, progress) as update:
                return function(*args, progress=update, **options)

        return cast("_F", inside)

    return wrap

"""Ctrl-C on the command line: at the next point that is done, or within seconds, and never in the midst of a library.

An interrupt is not raised where it arrives, because that may be inside compiled code which does not survive it. It is
remembered, and raised when a point is done; a computation that takes longer is ended with the process. A store is whole
at every moment, so nothing that was finished is lost either way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

INTERRUPTED = 130
_GRACE = 3.0  # seconds after Ctrl-C in which the point that is computed may come to its end

Check = Callable[[], None]
"""Raises KeyboardInterrupt if Ctrl-C was pressed."""


@contextlib.contextmanager
def interruptible(path: Path) -> Iterator[Check]:
    """Ctrl-C ends what is computed here within seconds, and says that what is done is kept."""
    kept = f"interrupted; what is done is kept in {path}, and the same command goes on."
    try:
        with stopping(kept) as check:
            yield check
    except KeyboardInterrupt:
        print(f"needlepoint: {kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def stopping(sentence: str) -> Iterator[Check]:
    """Remember Ctrl-C for `check`; end the process if nothing has asked within seconds, or at a second Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    pressed, ended = threading.Event(), threading.Event()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    def watch() -> None:
        with ours:
            if not _heard(ours):
                return
            ours.settimeout(_GRACE)
            try:
                again = _heard(ours)
            except TimeoutError:
                again = True
            if again and not ended.is_set():
                _leave(sentence)

    # what ignores the signal, such as a program in the background of a shell, goes on ignoring it
    handled = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.set()) if handled else None
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield check
    finally:
        ended.set()
        if handled:
            signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(before)
        theirs.close()
        watcher.join()


def _heard(signals: socket.socket) -> bool:
    """Wait for Ctrl-C; False if there is nothing to wait for any more."""
    while heard := signals.recv(64):
        if signal.SIGINT in heard:
            return True
    return False


def _leave(sentence: str) -> None:
    """End the process from the outside, workers first: the main thread is inside something that does not listen."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.kill()
    shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # the bar has hidden the cursor
    print(f"{shown}needlepoint: {sentence}", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)

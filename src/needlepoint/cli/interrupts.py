"""Ctrl-C on the command line: it takes effect when the next point is finished, or else after a few seconds.

KeyboardInterrupt is not raised where the signal arrives, because that may be inside compiled code, which would crash.
The signal is remembered and raised when a point is finished; if that takes too long, the whole process is ended. The
store is consistent at every moment, so nothing that was finished is lost either way.
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
_GRACE = 3.0  # seconds after Ctrl-C in which the current point may finish before the process is ended

Check = Callable[[], None]
"""Raises KeyboardInterrupt if Ctrl-C was pressed."""


@contextlib.contextmanager
def interruptible(path: Path) -> Iterator[Check]:
    """Yield a `check` that raises after Ctrl-C, and exit with a message that finished points are kept in `path`."""
    kept = f"interrupted; what is done is kept in {path}, and the same command goes on."
    try:
        with stopping(kept) as check:
            yield check
    except KeyboardInterrupt:
        print(f"needlepoint: {kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def stopping(sentence: str) -> Iterator[Check]:
    """Yield a `check` that raises KeyboardInterrupt after Ctrl-C.

    The process is ended with `sentence` if this context has not ended `_GRACE` seconds later, or at a second Ctrl-C.
    Python runs signal handlers in the main thread only, which may be busy in compiled code; the byte that it writes
    to a socket on every signal (`set_wakeup_fd`) reaches the thread `watch` at once.
    """
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

    # a process that was started to ignore the signal, such as one in the background of a shell, goes on ignoring it
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
    """Wait for Ctrl-C and return True; return False when the other end of the socket is closed."""
    while heard := signals.recv(64):
        if signal.SIGINT in heard:
            return True
    return False


def _leave(sentence: str) -> None:
    """End the process at once, its workers first, because the main thread is in code that cannot be interrupted."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.kill()
    shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # shows the cursor again, which the progress bar has hidden
    print(f"{shown}needlepoint: {sentence}", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)

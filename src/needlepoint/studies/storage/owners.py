"""Which processes work on a store: they are identified by machine, process number and start time."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SILENCE = 30.0
"""Seconds without an update (see `file._BEAT`) after which a process on another machine counts as dead."""


def alive(owner: Sequence[Any]) -> bool:
    """Return whether the process of a row (host, pid, born, seen) is running; False for a damaged row."""
    host, pid, born, seen = owner
    if host == this_host() and born:
        return isinstance(pid, int) and born_at(pid) == born
    return isinstance(seen, float) and time.time() - seen < SILENCE


def this_host() -> str:
    return socket.gethostname()


def born_at(pid: int) -> str:
    """Return when a process on this machine started, as text; empty if it is not running.

    The time is compared because the system gives the number of a dead process to a new one.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2 :].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, ValueError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "alive"  # without /proc the start time is unknown, so the process number has to do

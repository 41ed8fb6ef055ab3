"""Who works on a store: processes are known by machine, number and time of birth."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SILENCE = 30.0
"""Seconds without a sign of life after which a process on another machine counts as dead."""


def alive(owner: Sequence[Any]) -> bool:
    """Whether the process of a row (host, pid, born, seen) is at work; a row that is damaged is nobody's."""
    host, pid, born, seen = owner
    if host == this_host() and born:
        return isinstance(pid, int) and born_at(pid) == born
    return isinstance(seen, float) and time.time() - seen < SILENCE


def this_host() -> str:
    return socket.gethostname()


def born_at(pid: int) -> str:
    """When a process on this machine started, so that a number given out again is not taken for it; empty: dead."""
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
    return "alive"  # no /proc here: the number is all there is

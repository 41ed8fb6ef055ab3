"""What this machine has: cores, and memory that is free or held by a process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from needlepoint.core.errors import InvalidParameter, shown

WORKER_BYTES = 700e6
"""Bytes of memory that a worker holds before it has computed anything, with some room."""

_SHARE = 0.8  # share of the free memory that the workers may take if the user gives no budget


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resident(pid: int) -> float:
    """Return the bytes of memory that a process holds; 0 where the system does not tell."""
    try:
        return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0


def free_memory() -> float:
    """Return the bytes of memory that are free; 4 GB where the system does not tell."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return float(found[1]) * 1024 if found else 4e9


_UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def bytes_of(memory: float | str | None) -> float:
    """Return a memory budget in bytes, from a number or a text such as '4 GB'; None gives `_SHARE` of what is free."""
    if memory is None:
        return _SHARE * free_memory()
    text = memory if isinstance(memory, str) else shown(memory)
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([KMGT]?B)?\s*", text, re.IGNORECASE)
    try:
        size = float(found[1]) * _UNITS[(found[2] or "").upper()] if found else 0.0
    except ValueError:
        size = 0.0
    if not WORKER_BYTES <= size < 1e18:
        raise InvalidParameter(
            f"Processes(memory={shown(memory)}): memory must be at least {WORKER_BYTES / 1e6:.0f} MB (what one worker "
            "takes), in bytes or as '4 GB'."
        )
    return size

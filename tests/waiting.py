"""Waiting in tests: for as long as there is progress, however slow the machine is.

A process makes progress while it runs or waits for a processor. It is stuck when it sleeps without having used a
noticeable share of a processor for minutes; it is lost when it has used far more processor time than its work needs.
Neither depends on how many other programs there are, as seconds on the clock do.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

STUCK = 180.0
"""Seconds in which something that is waited for sleeps and uses less than `NOTICEABLE` seconds of a processor."""

NOTICEABLE = 1.0
MOST = 600.0
"""Seconds of processor time after which what is waited for counts as lost."""

_PROC = Path("/proc/self/stat").exists()
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def _tree(roots):
    """The processes given and their descendants: {pid: (state, seconds of processor time)}."""
    found, children = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid, state, parent = int(stat.parent.name), fields[0], int(fields[1])
            found[pid] = (state, sum(map(int, fields[11:15])) / _TICK)
            children.setdefault(parent, []).append(pid)
    wanted, queue = {}, list(roots)
    while queue:
        pid = queue.pop()
        if pid in found and pid not in wanted:
            wanted[pid] = found[pid]
            queue += children.get(pid, [])
    return wanted


class Patience:
    """Asked again and again whether what is waited for still makes progress."""

    def __init__(self, *pids):
        self.pids = pids or (os.getpid(),)
        self.first = self.marked = self._used()
        self.since = time.monotonic()

    def _used(self):
        tree = _tree(self.pids) if _PROC else {}
        self.runs = not _PROC or any(state in "RD" for state, _ in tree.values())
        return sum(seconds for _, seconds in tree.values())

    def lost(self):
        """Why there is no hope any more; empty while there is."""
        used = self._used()
        if used - self.first > MOST:
            return f"not after {MOST:g} s of processor time"
        if self.runs or abs(used - self.marked) > NOTICEABLE:  # less than before: a child has ended
            self.marked, self.since = used, time.monotonic()
        return f"asleep for {STUCK:g} s" if time.monotonic() - self.since > STUCK else ""


def until(condition, what, *pids):
    """Wait for the condition while the processes (this one, if none is given) make progress."""
    patience, looked = Patience(*pids), time.monotonic()
    while not (found := condition()):
        time.sleep(0.01)
        if time.monotonic() - looked > 0.5:
            why, looked = patience.lost(), time.monotonic()
            # what came true while we looked counts
            assert not why or condition(), f"{what}: {why}"
    return found


def ended(process):
    """The exit code of a process that was started, however long it takes while it makes progress."""
    until(lambda: process.poll() is not None, f"the end of {process.args}", process.pid)
    return process.returncode


def program(words, check=False, **options):
    """`subprocess.run` with the output captured as text, and with a patience that does not depend on the clock."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, **options) as process:
        texts = {}

        def finished():
            # the pipes are emptied while we wait, so that a talkative program does not wait for us
            with contextlib.suppress(subprocess.TimeoutExpired):
                texts["out"], texts["err"] = process.communicate(timeout=0.2)
            return bool(texts)

        try:
            until(finished, f"the end of {words}", process.pid)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise AssertionError(f"{words} ended with {process.returncode}: {texts['err']}")
    return subprocess.CompletedProcess(words, process.returncode, texts["out"], texts["err"])


def python(code, *args, **options):
    """A Python program in a process of its own."""
    return program([sys.executable, "-c", code, *map(str, args)], **options)

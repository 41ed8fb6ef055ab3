"""One worker as the server sees it: started, asked, watched, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from needlepoint.explorer.limits import Limits
from needlepoint.explorer.settings import Settings
from needlepoint.studies.execution.machine import resident

LOOK = 0.5
"""Seconds between two looks at the memory of a worker that computes."""

LAST = ("done", "refused", "failed")
"""Events after which a worker is free again."""

_LINE = 64_000_000  # bytes of one event; a refined map has some 100,000


def ended(sentence: str) -> dict[str, Any]:
    """Return the event of a computation that was stopped, with the reason."""
    return {"event": "refused", "sentence": sentence}


class Worker:
    """A process of `workers.worker`. `free` says whether it can be asked."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.free = True

    @classmethod
    async def start(cls, settings: Settings) -> Worker:
        """Start a process with one thread for linear algebra, in a session of its own, so that it is killed whole."""
        pipe = asyncio.subprocess.PIPE
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "needlepoint.explorer.workers.worker"),
            stdin=pipe,
            stdout=pipe,
            env={**os.environ, **one, "NEEDLEPOINT_PROGRESS": "off"},
            limit=_LINE,
            start_new_session=True,
        )
        worker = cls(process)
        worker._tell(settings.for_workers())
        return worker

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def pid(self) -> int:
        return self.process.pid

    def _tell(self, document: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(document).encode() + b"\n")

    async def ask(self, document: Any, limits: Limits) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of an answer. A worker that takes too long or too much memory is killed, and says so; one
        that is left before the end has to be killed by whoever leaves it."""
        self.free = False
        self._tell(document)
        until = asyncio.get_running_loop().time() + limits.seconds
        assert self.process.stdout is not None
        line = asyncio.ensure_future(self.process.stdout.readline())
        try:
            while True:
                await asyncio.wait({line}, timeout=LOOK)
                if line.done():
                    event = json.loads(line.result() or b'{"event": "lost"}')
                    if event["event"] == "lost":
                        self.kill()
                        yield {"event": "failed", "sentence": "the worker ended without an answer; ask again."}
                        return
                    if event["event"] == "broken":
                        self.kill()
                        yield ended(event["sentence"])
                        return
                    if event["event"] != "ready":
                        self.free = event["event"] in LAST
                        yield event
                        if self.free:
                            return
                    line = asyncio.ensure_future(self.process.stdout.readline())
                elif asyncio.get_running_loop().time() > until:
                    self.kill()
                    yield ended(f"this took more than {limits.seconds:g} s and was stopped; ask for something smaller.")
                    return
                elif resident(self.pid) > limits.memory:
                    self.kill()
                    yield ended(f"this took more than {limits.memory / 1e6:.0f} MB and was stopped; ask for less.")
                    return
        finally:
            line.cancel()

    def kill(self) -> None:
        """End the process and everything that it started, at once."""
        self.free = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

"""All workers of one explorer: some compute, one stands by with everything imported, the rest of the questions wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from needlepoint.explorer.settings import Settings
from needlepoint.explorer.workers.handle import Worker
from needlepoint.studies.execution.machine import resident


class Busy(Exception):
    """Too many questions wait."""


class Crew:
    """Answers questions in worker processes; at most `limits.workers` at a time, and `limits.queue` wait."""

    def __init__(self, settings: Settings):
        self.settings, self.limits = settings, settings.limits
        self.slots = asyncio.Semaphore(self.limits.workers)
        self.waiting = 0
        self.idle: list[Worker] = []
        self.busy: set[Worker] = set()
        self.closed = False
        self._starting = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def answer(self, document: Any) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of an answer; raise Busy at once where the queue is full.

        Whoever stops iterating stops the work: its worker is killed and the one that stands by takes its place.
        """
        if self.slots.locked() and self.waiting >= self.limits.queue:
            raise Busy
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        worker: Worker | None = None
        try:
            worker = await self._taken()
            yield {"event": "started", "worker": worker.pid}
            async with contextlib.aclosing(worker.ask(document, self.limits)) as events:
                async for event in events:
                    yield event
        finally:
            self.slots.release()
            if worker is not None:
                self._back(worker)
            self.stand_by()

    def stand_by(self) -> None:
        """Start a worker if none is idle, without waiting for it."""
        most = self.limits.workers + 1
        there = len(self.idle) + self._starting
        if self.closed or there >= 1 or there + len(self.busy) >= most:
            return
        self._starting += 1
        self._beside(self._start())

    def _beside(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something that nobody waits for until the crew is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, worker: Worker) -> None:
        """Kill a worker, and note its end when it comes."""
        worker.kill()
        self._beside(worker.process.wait())

    async def _start(self) -> None:
        try:
            worker = await Worker.start(self.settings)
        finally:
            self._starting -= 1
        if self.closed:
            worker.kill()
            await worker.process.wait()
        else:
            self.idle.append(worker)

    async def _taken(self) -> Worker:
        """Return an idle worker, the one that answered last first, because its kernels are compiled."""
        while self._starting and not self.idle:
            await asyncio.sleep(0.005)
        while self.idle:
            worker = self.idle.pop()
            if worker.alive:
                break
        else:
            worker = await Worker.start(self.settings)
        self.busy.add(worker)
        self.stand_by()
        return worker

    def _back(self, worker: Worker) -> None:
        self.busy.discard(worker)
        if worker.free and worker.alive and not self.closed and resident(worker.pid) < self.limits.kept:
            self.idle.append(worker)
        else:
            self._end(worker)
        while len(self.idle) > self.limits.workers:
            self._end(self.idle.pop(0))

    async def close(self) -> None:
        """Kill every worker."""
        self.closed = True
        for worker in (*self.idle, *self.busy):
            self._end(worker)
        await asyncio.gather(*self._tasks, return_exceptions=True)

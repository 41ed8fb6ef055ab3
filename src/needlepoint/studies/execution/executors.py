"""Who computes: this process, a pool of processes on this machine, or (on_dask.py) a cluster.

An executor is given units as plain data and gives back outcomes; it knows nothing of stores and plans, so that the
results are the same whichever it is.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from needlepoint.core.errors import InvalidParameter, UnknownName, shown
from needlepoint.core.kinds import is_whole
from needlepoint.core.results import Progress, silent
from needlepoint.studies.execution.machine import WORKER_BYTES, bytes_of, cores, resident
from needlepoint.studies.execution.work import PLAIN, Outcome, solve

Finished = tuple[int, list[Outcome] | str]
"""The number of a unit, and its outcomes or the reason why there are none."""

_DEATHS = 3  # a unit whose worker has died this many times is given up: the unit itself is the likely cause
_STILLBORN = 3  # workers in a row that may die before they report ready; more means that no worker can start at all
_LOOK = 0.5  # seconds between two measurements of the memory that the workers hold


class Executor(Protocol):
    """What computes units: they go in by `submit` and come out of `wait`, in any order.

    `width` is how many units should be submitted and not yet finished at any time.
    """

    name: str

    @property
    def width(self) -> int: ...

    def start(self) -> None: ...

    def submit(self, number: int, unit: dict[str, Any]) -> None: ...

    def wait(self, timeout: float) -> list[Finished]: ...

    def stop(self) -> None:
        """Abandon all units and release all processes, without waiting for anything to finish."""


@dataclass
class Serial:
    """Computes in this process, one unit after another.

    >>> ndl.Serial().width
    1
    """

    name: str = "serial"
    width: int = 1
    within: Progress = field(default=silent, repr=False)
    """Called with how many jobs of the unit under way are done, in fractions too."""
    _queue: deque[tuple[int, dict[str, Any]]] = field(default_factory=deque, repr=False)

    def start(self) -> None:
        pass

    def submit(self, number: int, unit: dict[str, Any]) -> None:
        self._queue.append((number, unit))

    def wait(self, timeout: float) -> list[Finished]:
        if not self._queue:
            time.sleep(timeout)
            return []
        number, unit = self._queue.popleft()
        return [(number, solve(unit, lambda fraction: self.within(fraction * len(unit["calls"]))))]

    def stop(self) -> None:
        self._queue.clear()


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    number: int | None = None  # the unit it works on; None if it is idle
    ready: bool = False  # whether it has reported that it has started


class Processes:
    """A pool of processes on this machine: spawned, one BLAS thread each, within a budget of memory.

    `workers` is None for one per core, and less where memory is short. `memory` is in bytes or as "4 GB"; None is 80 %
    of what is free. A worker that dies is replaced and its unit given to another. If all workers together exceed the
    budget, the largest is stopped and its unit is computed later, while no other unit is.

    >>> ndl.Processes(workers=2).width
    4
    """

    name = "processes"

    def __init__(self, workers: int | None = None, memory: float | str | None = None):
        if workers is not None and (not is_whole(workers) or workers < 1):
            raise InvalidParameter(f"Processes(workers={shown(workers)}): workers must be a whole number >= 1.")
        self.memory = bytes_of(memory)
        fitting = max(1, int(self.memory // WORKER_BYTES))
        self.workers = min(int(workers) if workers else cores(), fitting)
        self._pool: list[_Worker] = []
        self._units: dict[int, dict[str, Any]] = {}
        self._waiting: deque[int] = deque()
        self._alone: deque[int] = deque()
        self._deaths: dict[int, int] = {}
        self._too_large: set[int] = set()
        self._looked = 0.0
        self._stillborn = 0

    @property
    def width(self) -> int:
        return 2 * self.workers

    def start(self) -> None:
        while len(self._pool) < self.workers:
            self._pool.append(self._spawn())

    def _spawn(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        before = {name: os.environ.get(name) for name in PLAIN}
        os.environ.update(PLAIN)  # the child inherits these; BLAS reads the number of threads once, when it is loaded
        try:
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            with _deaf():
                process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        theirs.close()
        return _Worker(process, ours)

    def submit(self, number: int, unit: dict[str, Any]) -> None:
        self._units[number] = unit
        self._waiting.append(number)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give units to idle workers.

        A unit that is to be computed alone waits until all workers are idle; no other unit is given out until then, nor
        while it is computed.
        """
        idle = [w for w in self._pool if w.number is None]
        lonely = any(w.number in self._too_large for w in self._pool if w.number is not None)
        for worker in idle:
            if lonely or (self._alone and len(idle) < len(self._pool)):
                return
            queue = self._alone or self._waiting
            if not queue:
                return
            lonely = queue is self._alone
            self._give(worker, queue.popleft())

    def _give(self, worker: _Worker, number: int) -> None:
        worker.number = number
        with contextlib.suppress(OSError):  # the worker has just died; `wait` notices by its sentinel and replaces it
            worker.pipe.send((number, self._units[number]))

    def wait(self, timeout: float) -> list[Finished]:
        if not self._units:
            time.sleep(timeout)
            return []
        finished = []
        ready = wait([w.pipe for w in self._pool] + [w.process.sentinel for w in self._pool], min(timeout, _LOOK))
        for worker in list(self._pool):
            if worker.pipe in ready:
                with contextlib.suppress(EOFError, OSError):
                    number, outcomes = worker.pipe.recv()
                    if number is None:
                        worker.ready, self._stillborn = True, 0
                    else:
                        worker.number = None
                        finished.append(self._finish(number, outcomes))
            if not worker.process.is_alive():
                finished += self._bury(worker)
        finished += self._watch_memory()
        self._hand_out()
        return finished

    def _finish(self, number: int, outcomes: list[Outcome] | str) -> Finished:
        del self._units[number]
        self._deaths.pop(number, None)
        self._too_large.discard(number)
        return number, outcomes

    def _bury(self, worker: _Worker) -> list[Finished]:
        """Replace a dead worker and queue its unit again; return the unit as failed after `_DEATHS` attempts."""
        self._pool.remove(worker)
        worker.pipe.close()
        worker.process.join()
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn > _STILLBORN:
                raise InvalidParameter(
                    "workers die before they begin: a script that uses processes must be a file, and what it does must "
                    "stand under `if __name__ == '__main__':` (each worker imports it)."
                )
        self._pool.append(self._spawn())
        number = worker.number
        if number is None:
            return []
        if not worker.ready:
            self._waiting.appendleft(number)
            return []
        self._deaths[number] = self._deaths.get(number, 0) + 1
        if self._deaths[number] >= _DEATHS:
            code = worker.process.exitcode
            return [self._finish(number, f"its worker died {_DEATHS} times (exit code {code}).")]
        self._waiting.appendleft(number)
        return []

    def _watch_memory(self) -> list[Finished]:
        if time.monotonic() - self._looked < _LOOK:
            return []
        self._looked = time.monotonic()
        sizes = {id(w): resident(w.process.pid) for w in self._pool}
        if sum(sizes.values()) <= self.memory:
            return []
        largest = max(self._pool, key=lambda w: sizes[id(w)])
        number = largest.number
        self._pool.remove(largest)
        largest.process.kill()
        largest.process.join()
        largest.pipe.close()
        self._pool.append(self._spawn())
        if number is None:
            return []
        if number in self._too_large or len(self._pool) == 1:
            return [self._finish(number, f"it needs more than the {self.memory / 1e9:.3g} GB of memory allowed.")]
        self._too_large.add(number)
        self._alone.append(number)
        return []

    def stop(self) -> None:
        for worker in self._pool:
            worker.process.kill()
        for worker in self._pool:
            worker.process.join()
            worker.pipe.close()
        self._pool.clear()
        for kept in (self._units, self._waiting, self._alone, self._deaths, self._too_large):
            kept.clear()  # the next run numbers its units from 1 again
        self._stillborn = 0


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Block Ctrl-C inside this context.

    Processes started here inherit the block, so that Ctrl-C cannot kill them while they start. This process receives a
    Ctrl-C from meanwhile when the context ends.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection) -> None:
    """Compute units from the pipe until it closes, or until the coordinating process is gone. Runs in a worker."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes of a terminal; the coordinator acts on it
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    pipe.send((None, None))
    while True:
        try:
            number, unit = pipe.recv()
        except EOFError:
            return
        pipe.send((number, solve(unit)))


@contextlib.contextmanager
def started(executor: Executor) -> Iterator[Executor]:
    """Start the executor for the time of this context; it is stopped at the end, whatever happens."""
    try:
        executor.start()
        yield executor
    finally:
        executor.stop()


NAMES = ("serial", "processes", "dask")


def executor_named(
    executor: str | Executor,
    *,
    workers: int | None = None,
    memory: float | str | None = None,
    address: str | None = None,
) -> Executor:
    """Return the executor of this name, or the one given; the options are as in `sweep`."""
    if not isinstance(executor, str):
        if isinstance(executor, type) or not hasattr(executor, "submit"):
            names = ", ".join(NAMES)
            raise InvalidParameter(f"executor={shown(executor)}: one of {names}, or Processes(...), Dask(...).")
        if any(given is not None for given in (workers, memory, address)):
            raise InvalidParameter(f"executor={executor!r} is made already; give workers, memory and address to it.")
        return executor
    if executor not in NAMES:
        raise UnknownName("executor", executor, NAMES)
    if address is not None and (executor != "dask" or not isinstance(address, str)):
        raise InvalidParameter(f"address={address!r}: only executor='dask' has an address, tcp://...")
    if memory is not None and executor != "processes":
        raise InvalidParameter(f"memory={memory!r}: only the executor 'processes' has a budget of memory.")
    if executor == "serial":
        if workers not in (None, 1):
            raise InvalidParameter(f"workers={shown(workers)}: the serial executor is one process; say 'processes'.")
        return Serial()
    if executor == "processes":
        return Processes(workers, memory)
    from needlepoint.studies.execution.on_dask import Dask

    return Dask(address, workers=workers)

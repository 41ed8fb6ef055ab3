"""The coordinator: hands out what is missing, stores what comes back, and can be stopped at any moment."""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from needlepoint.core.results import Result
from needlepoint.core.status import Status
from needlepoint.learners import Population
from needlepoint.studies.execution.executors import Executor
from needlepoint.studies.execution.jobs import Job, Unit
from needlepoint.studies.execution.work import Outcome, message
from needlepoint.studies.storage.store import Store

_POLL = 0.2  # seconds to wait for finished units before looking again at the units that other processes have claimed


@dataclass
class Tally:
    """How far a run is, in numbers of jobs.

    total    jobs that are known of; refinement adds to them
    done     jobs with an outcome, of whatever kind
    reused   those of `done` that were in the store already
    failed   those of `done` without a result
    flagged  those of `done` whose result says that it cannot be used as it is
    last     status of the latest job, or what is being waited for
    job      the latest job
    began    time.monotonic() at the start
    """

    total: int
    done: int = 0
    reused: int = 0
    failed: int = 0
    flagged: int = 0
    last: str = ""
    job: Job | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float:
        """Return jobs computed per second; those that were in the store already do not count."""
        return (self.done - self.reused) / max(time.monotonic() - self.began, 1e-9)

    @property
    def left(self) -> float:
        """Return the seconds left at the rate so far; infinite while nothing has been computed."""
        return (self.total - self.done) / self.rate if self.rate else float("inf")

    @property
    def words(self) -> str:
        """Return how far the run is, without times: 12/40 points, 0 failed, 1 flagged, last CONVERGED."""
        last = f", last {self.last}" if self.last else ""
        return f"{self.done:,}/{self.total:,} points, {self.failed} failed, {self.flagged} flagged{last}"

    def count(self, job: Job, state: str, status: str, result: Callable[[], Result]) -> None:
        """Count a job. `result` is only called where the status alone does not say whether the result can be used."""
        self.done += 1
        self.job = job
        self.total = max(self.total, self.done)
        self.failed += state != "done"
        if state == "done" and status not in (Status.CONVERGED.name, Status.FINISHED.name):
            self.flagged += status != Status.UNBOUNDED.name or not result().ok
        self.last = status


Report = Callable[[Tally], None]


def silent(_: Tally) -> None:
    """The report that shows nothing."""


def run(
    units: Iterable[Unit], store: Store, executor: Executor, tally: Tally, report: Report = silent, retry: bool = False
) -> None:
    """Compute the units that the store does not have, and wait for those that another process has claimed.

    With `retry`, jobs that failed are computed again. Nothing is lost when this is interrupted: finished jobs are in
    the store, and the claims on unfinished units are given up.
    """
    source, others = iter(units), deque[Unit]()
    under_way: dict[int, Unit] = {}
    number = 0
    try:
        while True:
            while len(under_way) < executor.width:
                unit = _next(source, others, store, tally, report, retry)
                if unit is None:
                    break
                number += 1
                refused = _follow(unit, store)
                if refused is not None:
                    _store(unit, refused, store, tally, report)
                    continue
                under_way[number] = unit
                executor.submit(number, message(unit, _followed(unit, store)))
            if not under_way and not others:
                return
            if not under_way:
                tally.last = f"waiting for another process ({len(others)} units)"
                report(tally)
            for done, outcomes in executor.wait(_POLL):
                unit = under_way.pop(done)
                if isinstance(outcomes, str):
                    outcomes = [Outcome(job.id, "failed", "WorkerLost", outcomes) for job in unit.jobs]
                _store(unit, outcomes, store, tally, report)
    finally:
        for unit in under_way.values():
            store.release(unit)


def _next(
    source: Iterator[Unit], others: deque[Unit], store: Store, tally: Tally, report: Report, retry: bool
) -> Unit | None:
    """Return the next unit that this process is to compute, and claim it; None if there is none now.

    New units come first, then `others`, which another process had claimed when they were last looked at.
    """
    waiting = len(others)
    for unit in itertools.chain(source, (others.popleft() for _ in range(waiting))):
        if not store.missing(unit, retry):
            _found(unit, store, tally, report)
        elif store.claim(unit, retry):
            return unit
        else:
            others.append(unit)
    return None


def _found(unit: Unit, store: Store, tally: Tally, report: Report) -> None:
    for job in unit.jobs:
        state, status = store.state(job)
        tally.reused += 1
        tally.count(job, state, status, functools.partial(_stored, store, job))
    report(tally)


def _stored(store: Store, job: Job) -> Result:
    outcome = store.get(job.id)
    assert outcome is not None
    return outcome.result


def _store(unit: Unit, outcomes: list[Outcome], store: Store, tally: Tally, report: Report) -> None:
    store.put(unit, outcomes)
    for job, outcome in zip(unit.jobs, outcomes, strict=True):
        tally.count(job, outcome.state, outcome.status, lambda outcome=outcome: outcome.result)
    report(tally)


def _follow(unit: Unit, store: Store) -> list[Outcome] | None:
    """Return failed outcomes if the prediction that a job follows failed or has no weights to measure at; else None."""
    for job in unit.jobs:
        if job.follow is None:
            continue
        before = store.get(job.follow.id)
        if before is None or before.state != "done":
            why = before.message if before else "it has not been computed."
            return [Outcome(j.id, "failed", "NoPrediction", f"its prediction failed: {why}") for j in unit.jobs]
        result = before.result
        weights = not isinstance(result.learner, Population) or result.overlaps is not None
        if not weights and not result.status.ok:
            why = f"its prediction is {result.status.name} and has no weights to measure at."
            return [Outcome(j.id, "failed", "NoPrediction", why) for j in unit.jobs]
    return None


def _followed(unit: Unit, store: Store) -> dict[str, Result]:
    """Return the predictions that the jobs of a unit follow, by job id."""
    wanted: dict[str, Job] = {job.follow.id: job.follow for job in unit.jobs if job.follow is not None}
    found = {name: store.get(name) for name in wanted}
    return {name: outcome.result for name, outcome in found.items() if outcome is not None}

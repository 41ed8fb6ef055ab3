"""The computing of several figures at once, from one queue of units: no core waits for the last point of a figure
before it begins the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import canonical
from needlepoint.papers.figures import Figure, Point, Record, Size
from needlepoint.studies.execution.executors import Executor, Serial
from needlepoint.studies.execution.jobs import Job, Unit
from needlepoint.studies.execution.running import Tally, run
from needlepoint.studies.execution.work import Outcome
from needlepoint.studies.storage.store import Store
from needlepoint.studies.sweeps import plan

Say = Callable[[str, float], None]
"""Called with what has been computed and the fraction of the figure done."""


def quiet(_: str, __: float) -> None:
    """The callback that shows nothing."""


SHARES = {"simulate": 5.0}
"""How much longer a call of a verb takes than a prediction, roughly; only the estimate of the time left uses it."""


def jobs_of(points: Sequence[Point]) -> list[Job]:
    """Return one job per point; a point that follows a prediction needs that prediction before it."""
    predictions: dict[Any, Job] = {}
    jobs = []
    for point in points:
        before = predictions.get(point.question) if point.follow else None
        if point.follow and before is None:
            raise ValueError(f"point {point.label!r} follows a prediction that does not come before it")
        jobs.append(Job(point.verb, point.question, point.options, before))
        if point.verb == "predict":
            predictions.setdefault(point.question, jobs[-1])
    return jobs


@dataclass(eq=False)
class Asked:
    """Points to be computed and their jobs, in the same order.

    cost  seconds of one core that all of it takes, roughly
    left  ids of the jobs that are not finished yet
    """

    points: Sequence[Point]
    figure: Figure | None = None
    size: Size = "quick"
    jobs: Sequence[Job] = ()
    left: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.jobs = self.jobs or jobs_of(self.points)

    @property
    def cost(self) -> float:
        return self.figure.cost if self.figure else 1.0

    @property
    def labels(self) -> dict[str, str]:
        """Return what each job is called, by its id."""
        pairs = reversed(list(zip(self.points, self.jobs, strict=True)))
        return {job.id: f"{point.verb} {point.label}".strip() for point, job in pairs}

    def records(self, store: Store) -> tuple[list[Record], float]:
        """Return one record per point from the store, and the seconds that computing them took, over all cores."""
        found = {name: _answer(store, name, label) for name, label in self.labels.items()}
        records = [Record(p, found[job.id].result) for p, job in zip(self.points, self.jobs, strict=True)]
        return records, sum(outcome.seconds for outcome in found.values())


def _answer(store: Store, name: str, label: str) -> Outcome:
    outcome = store.get(name)
    assert outcome is not None
    if outcome.state != "done":
        why = outcome.message.removeprefix(f"{outcome.status}: ")
        raise InvalidParameter(f"{label} failed: {outcome.status}: {why}")
    return outcome


class Queue:
    """The units of several figures in their order, as an iterator for `run`.

    A simulation that follows a prediction can only begin when that is finished. So the iterator stops when no unit can
    begin now, and gives more when it is asked again after `finish`. Points that the store has are left out.

    total, units  how many jobs are to be computed, and in how many units
    cost          seconds of one core that they take, roughly
    last          the latest job that was finished
    """

    def __init__(self, asked: Sequence[Asked], store: Store):
        self.asked = asked
        self._finished: set[str] = set()
        self._waiting: list[Unit] = []
        self._unit_of: dict[str, Unit] = {}
        self._weights: dict[str, float] = {}
        for one in asked:
            fresh = {job.id: job for job in one.jobs if job.id not in self._finished}
            there = {name for name in fresh if self._has(store, name)}
            self._finished |= there
            one.left = {name for name in fresh if name not in there}
            new = [i for i in one.left if i not in self._unit_of]
            share = sum(SHARES.get(fresh[i].verb, 1.0) for i in new) or 1.0
            whole = one.cost * len(new) / len({job.id for job in one.jobs})
            self._weights |= {i: whole * SHARES.get(fresh[i].verb, 1.0) / share for i in new}
            for unit in _units(one, [job for job in fresh.values() if job.id in one.left and job.id in new]):
                self._waiting.append(unit)
                self._unit_of |= {job.id: unit for job in unit.jobs}
        self.total = len(self._unit_of)
        self.units = len(self._waiting)
        self.cost = sum(self._weights.values())
        self.last: Job | None = None

    @staticmethod
    def _has(store: Store, name: str) -> bool:
        outcome = store.get(name)
        return outcome is not None and outcome.state == "done"

    def __iter__(self) -> Iterator[Unit]:
        return self

    def __next__(self) -> Unit:
        for i, unit in enumerate(self._waiting):
            if all(job.follow is None or job.follow.id in self._finished for job in unit.jobs):
                return self._waiting.pop(i)
        raise StopIteration

    def finish(self, job: Job) -> list[Asked]:
        """Take note that the unit of this job has been stored; return the figures that are complete by that."""
        self.last = job
        mine = {other.id for other in self._unit_of[job.id].jobs}
        self._finished |= mine
        complete = []
        for one in self.asked:
            if one.left & mine:
                one.left -= mine
                complete += [] if one.left else [one]
        return complete

    @property
    def spent(self) -> float:
        """Return the part of `cost` that has been computed, in the same unit (seconds of one core, roughly)."""
        return sum(w for name, w in self._weights.items() if name in self._finished)

    @property
    def current(self) -> list[Asked]:
        """Return the figures that have been begun and are not complete; the first that is not, if none is begun."""
        begun = [one for one in self.asked if one.left and len(one.left) < len({job.id for job in one.jobs})]
        return begun or [one for one in self.asked if one.left][:1]


def _units(one: Asked, jobs: Sequence[Job]) -> Iterator[Unit]:
    """Yield the units of a figure: predictions curve by curve, other calls, then simulations."""
    wanted = {job.id for job in jobs}
    curves: dict[str, dict[str, list[tuple[float, Job]]]] = {}
    for point, job in zip(one.points, one.jobs, strict=True):
        if point.verb == "predict" and job.id in wanted:
            wanted.discard(job.id)
            # a batch is solved with one set of options, so that curves of other options are planned apart
            group = curves.setdefault(canonical(dict(job.options)), {})
            group.setdefault(point.label, []).append((float(point.x or 0), job))
    for group in curves.values():
        ordered = (sorted(curve, key=lambda pair: pair[0]) for curve in group.values())
        yield from plan((job for _, job in curve) for curve in ordered)
    for verbs in (True, False):
        yield from (Unit([job]) for job in jobs if job.id in wanted and (job.verb != "simulate") == verbs)


def compute_all(
    queue: Queue,
    store: Store,
    executor: Executor,
    complete: Callable[[Asked], None],
    report: Callable[[Queue], None] = lambda queue: None,
) -> None:
    """Compute what the store does not have.

    `complete` is called with each figure when all its points are in the store, `report` whenever a unit is stored.
    """
    for one in queue.asked:
        if not one.left:
            complete(one)

    def stored(tally: Tally) -> None:
        if tally.job is not None:
            for one in queue.finish(tally.job):
                complete(one)
        report(queue)

    run(queue, store, executor, Tally(queue.total), stored, retry=True)


def compute(
    points: Sequence[Point], say: Say = quiet, store: Store | None = None, executor: Executor | None = None
) -> list[Record]:
    """Return one record per point, from the store or computed; points with equal calls share one result."""
    asked = Asked(points)
    labels = asked.labels
    say(labels[asked.jobs[0].id] if asked.jobs else "", 0.0)

    def report(queue: Queue) -> None:
        if queue.last is not None:
            say(labels[queue.last.id], (len(labels) - len(asked.left)) / len(labels))

    with contextlib.ExitStack() as stack:
        kept = store or stack.enter_context(Store())
        compute_all(Queue([asked], kept), kept, executor or Serial(), lambda one: None, report)
        records, _ = asked.records(kept)
    say("drawing", 1.0)
    return records

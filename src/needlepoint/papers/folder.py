"""What a folder of figures holds. Its report covers all points in its store, whichever run has computed them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from needlepoint.core.specs import NUMBERS_VERSION
from needlepoint.papers.figures import Figure, Point, Record, Size
from needlepoint.papers.runner import Agreement, Reproduced, agreement
from needlepoint.papers.work import jobs_of
from needlepoint.studies.execution.jobs import Job, digest
from needlepoint.studies.storage.codec import decode, encode
from needlepoint.studies.storage.store import Store, StoreError


@dataclass(frozen=True)
class Held:
    """One figure at one size: its points, their jobs, and the ids of those that are done in the store (`there`)."""

    figure: Figure
    size: Size
    points: Sequence[Point]
    jobs: Sequence[Job]
    there: frozenset[str]

    @property
    def missing(self) -> int:
        return len({job.id for job in self.jobs} - self.there)

    @property
    def key(self) -> str:
        return f"figure {self.figure.id} {self.size}"

    @property
    def mark(self) -> str:
        """Return a hash of the points that are done, which tells whether rows that were kept are up to date."""
        return digest(NUMBERS_VERSION, sorted(self.there))


def held(figure: Figure, size: Size, done: set[str]) -> Held:
    """Return what the store has of a figure, given the ids of all jobs that are done."""
    points, jobs = _planned(figure, size)
    return Held(figure, size, points, jobs, frozenset(job.id for job in jobs if job.id in done))


@functools.cache
def _planned(figure: Figure, size: Size) -> tuple[Sequence[Point], Sequence[Job]]:
    """Return the points of a figure and their jobs; kept, because their ids are hashes that take a while."""
    points = figure.points(size)
    return points, jobs_of(points)


def remember(store: Store, done: Reproduced) -> None:
    """Store the comparisons of a finished figure, so that a later run need not make them again."""
    here = held(done.figure, done.size, store.ids("done"))
    document = {"mark": here.mark, "files": [f.name for f in done.files], "troubles": list(done.troubles)}
    document |= {"seconds": done.seconds, "rows": [encode(asdict(row), {}) for row in done.agreement]}
    store.put_meta(here.key, document)
    store.put_meta(f"drawn {done.figure.id}", done.size)


def everything(
    store: Store, figures: Sequence[Figure], out: Path, done: Sequence[Reproduced], thorough: bool = True
) -> list[Reproduced]:
    """Return all figures with points in the store: those of this run (`done`) and those that earlier runs finished.

    With `thorough`, unfinished figures are added with what there is of them; of their simulations only those that no
    other figure shows.
    """
    now = {(r.figure.id, r.size): r for r in done}
    there, covered = store.ids("done"), set[str]()
    found: list[Reproduced] = []
    unfinished: list[Held] = []
    for figure in figures:
        drawn = _recall(store, f"drawn {figure.id}")
        for size in sorted(get_args(Size), key=lambda size: size != drawn):
            here = held(figure, size, there)
            one = now.get((figure.id, size)) or _finished(store, here, out, drawn == size)
            if one is None:
                unfinished.append(here)
                continue
            found.append(one)
            covered |= here.there
    if thorough:
        found += [one for here in unfinished if (one := _unfinished(store, here, covered)) is not None]
    return found


def strangers(store: Store, figures: Sequence[Figure]) -> int:
    """Return how many points in the store no figure of this version asks for."""
    asked = {job.id for figure in figures for size in get_args(Size) for job in _planned(figure, size)[1]}
    return len(store.ids() - asked)


def _finished(store: Store, here: Held, out: Path, drawn: bool) -> Reproduced | None:
    """Return what an earlier run kept of a figure; None if none finished it, or its points have changed since."""
    kept = _recall(store, here.key)
    try:
        if kept["mark"] != here.mark:
            return None
        rows = tuple(Agreement(**decode(row, {})) for row in kept["rows"])
        troubles, seconds = tuple(map(str, kept["troubles"])), float(kept["seconds"])
        names = [str(name) for name in kept["files"]] if drawn else []
    except (TypeError, KeyError, ValueError):
        return None
    files = tuple(out / name for name in names if (out / name).is_file())
    return Reproduced(here.figure, files, rows, troubles, seconds, here.size)


def _unfinished(store: Store, here: Held, covered: set[str]) -> Reproduced | None:
    """Return what there is of an unfinished figure; None if it has no comparison that others do not show."""
    records = []
    for point, job in zip(here.points, here.jobs, strict=True):
        wanted = job.id in here.there and (point.verb == "predict" or job.id not in covered)
        answer = store.get(job.id) if wanted else None
        if answer is not None and answer.state == "done":
            records.append(Record(point, answer.result))
    rows = tuple(agreement(records))
    covered |= here.there
    return Reproduced(here.figure, (), rows, (), 0.0, here.size, here.missing) if rows else None


def _recall(store: Store, key: str) -> Any:
    """Return what the store keeps under a key; None if there is nothing or it cannot be read."""
    try:
        return store.meta(key)
    except StoreError:
        return None

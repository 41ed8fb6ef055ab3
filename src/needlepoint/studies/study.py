"""A study: thousands of points as one object, kept in one file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.errors import InvalidParameter, NeedlepointError, shown
from needlepoint.core.options import REPLICA_SYMMETRIC
from needlepoint.core.progress import Shown, watched
from needlepoint.core.results import Measurement, Prediction
from needlepoint.core.specs import Spec
from needlepoint.core.text.drawing import draw
from needlepoint.core.text.parsing import PARTS
from needlepoint.core.text.showing import picture, table
from needlepoint.studies import tables
from needlepoint.studies.axes import LIMIT, At
from needlepoint.studies.execution.executors import Executor, Serial, executor_named, started
from needlepoint.studies.execution.jobs import Job
from needlepoint.studies.execution.running import Report, Tally, run, silent
from needlepoint.studies.points import StudyPoint
from needlepoint.studies.pooling import pooled
from needlepoint.studies.refining import Refine
from needlepoint.studies.storage.store import MEMORY, Store, StoreError
from needlepoint.studies.sweeps import Simulation, Sweep

OLDER = "computed with another version of the numbers; `study retry` (or the sweep) computes it again."
"""The message of a point whose row in the store is of another `NUMBERS_VERSION`."""


_LONGEST_NAME = 4096  # characters of a path; no file system takes more


class _NotComputed(Exception):
    """Raised where refinement asks for a point that has not been computed yet."""


class Study:
    """A sweep and the store of its points. `run` computes what is missing; everything else reads.

    >>> study = ndl.sweep(ndl.SpikedSLR(2, snr=1.0), None, ndl.BayesOptimal(), {"task.snr": [1.0, 2.0]})
    >>> study.axes
    {'task.snr': (1.0, 2.0)}
    """

    def __init__(self, definition: Sweep, store: Store):
        self.definition, self.store = definition, store
        self._comparisons: dict[Hashable, Comparison] = {}
        # (verb, task, model, learner) whose stored answers are of another NUMBERS_VERSION; None: not yet read
        self._older: set[tuple[Any, ...]] | None = None

    # --- computing -------------------------------------------------------------------------------

    def run(
        self,
        executor: str | Executor = "serial",
        *,
        workers: int | None = None,
        memory: float | str | None = None,
        address: str | None = None,
        retry: bool = False,
        report: Report = silent,
        progress: Shown = None,
    ) -> Tally:
        """Compute what is missing (with `retry` also what failed); return the tally. The options are as in `sweep`."""
        chosen = executor_named(executor, workers=workers, memory=memory, address=address)
        s, tally = self.definition, Tally(len(self.definition))
        self._comparisons.clear()  # points may be computed again, which makes their comparisons stale
        self._older = None
        with watched("sweep", progress) as update, started(chosen):

            def say(tally: Tally, under_way: float = 0.0) -> None:
                update((tally.done + under_way) / max(tally.total, 1), tally.words)

            def both(tally: Tally) -> None:
                say(tally)
                report(tally)

            if isinstance(chosen, Serial):
                chosen.within = lambda jobs: say(tally, jobs)
            run(s.theory_units(), self.store, chosen, tally, both, retry)
            if s.refine is not None:
                for new in s.refine.stages(s.axes, self._prediction):
                    tally.total += len(new)
                    run(s.theory_units(new), self.store, chosen, tally, both, retry)
            if s.also is not None:
                run(s.simulation_units(), self.store, chosen, tally, both, retry)
        return tally

    # --- reading ---------------------------------------------------------------------------------

    @property
    def paths(self) -> tuple[str, ...]:
        return self.definition.axes.paths

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Return the values of each axis by its path; for a list of points, the columns of the list."""
        return dict(zip(self.paths, self.definition.axes.values, strict=True))

    @property
    def grid(self) -> bool:
        """Return whether the points are the full grid of the axes, the last varying fastest."""
        return self.definition.axes.grid and self.definition.refine is None

    def __len__(self) -> int:
        return sum(1 for _ in self._places())

    def points(self) -> Iterator[StudyPoint]:
        """Yield every point with what is known there, in the order of the grid, refined points last."""
        return (self._point(at) for at in self._places())

    def _places(self) -> Iterator[At]:
        s = self.definition
        yield from s.axes.points()
        if s.refine is not None:
            with contextlib.suppress(_NotComputed):  # the next points depend on predictions that are still missing
                for new in s.refine.stages(s.axes, self._prediction):
                    yield from new

    def _point(self, at: At) -> StudyPoint:
        s = self.definition
        job = s.prediction(at)
        prediction, why = self._result(job)
        assert prediction is None or isinstance(prediction, Prediction)
        measured, used = [], [job.id]
        for jobs in s.simulations(at, job):
            found = [self._result(one) for one in jobs]
            parts = [r for r, _ in found if isinstance(r, Measurement)]
            reasons = [text for r, text in found if r is None]
            why = why or (f"{len(reasons)} of {len(jobs)} seeds: {reasons[0]}" if reasons else "")
            used += [one.id for one, (r, _) in zip(jobs, found, strict=True) if r is not None]
            if parts:
                measured.append(pooled(parts))
        place = dict(zip(s.axes.paths, at, strict=True))
        return StudyPoint(place, prediction, tuple(measured), why, tuple(used), self._comparisons)

    def _result(self, job: Job) -> tuple[Any, str]:
        outcome = self.store.get(job.id)
        if outcome is None:
            return None, OLDER if self._is_older(job) else "not computed yet."
        return (outcome.result, "") if outcome.state == "done" else (None, outcome.message)

    def _is_older(self, job: Job) -> bool:
        """Return whether the store has an answer to this question from another `NUMBERS_VERSION`."""
        if self._older is None:
            self._older = self.store.older()
        return (job.verb, *(job.text[part] for part in PARTS)) in self._older

    def _prediction(self, at: At) -> Prediction | None:
        outcome = self.store.get(self.definition.prediction(at).id)
        if outcome is None:
            raise _NotComputed
        return outcome.result if outcome.state == "done" else None

    def failures(self) -> list[tuple[dict[str, Any], str]]:
        """Return (swept values, reason) of every point that lacks a prediction or a measurement."""
        return [(dict(p.at), p.message) for p in self.points() if p.message]

    @property
    def worst(self) -> float:
        """Return the largest |z| of theory against simulation over all points; NaN if there is none or any is NaN."""
        found = [c.worst for p in self.points() if (c := p.comparison) is not None]
        return math.nan if any(map(math.isnan, found)) else max(found, default=math.nan)

    # --- tables ----------------------------------------------------------------------------------

    def to_xarray(self) -> Any:
        """Return an xarray.Dataset whose dimensions are the axes, and `d` for simulations.

        A list of points, or a refined grid, has the one dimension `point` instead of the axes.
        """
        return tables.to_xarray(self)

    def to_netcdf(self, path: str | Path) -> None:
        tables.to_netcdf(self, path)

    def to_dataframe(self) -> Any:
        """Return a pandas.DataFrame with one row per point and, with simulation, per d."""
        return tables.to_dataframe(self)

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file with one row per point and, with simulation, per d."""
        tables.to_csv(self, path)

    def __str__(self) -> str:
        task, model, learner = self.definition.axes.base
        lines = [f"Study: {shown(task)}, {shown(model)}, {shown(learner)}"]
        lines += [f"  over          {path}: {_shown(values)}" for path, values in self.axes.items()]
        if self.definition.also is not None:
            lines.append(f"  also          {self.definition.also}")
        if self.definition.refine is not None:
            lines.append(f"  refine        {self.definition.refine}")
        for (state, status), n in sorted(self.store.counts().items()):
            lines.append(f"  {state:<13} {n} {status}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *lines = str(self).splitlines()
        shown = table([line.strip().split(None, 1) for line in lines], caption=head)
        # with simulations the picture would have z-scores, which may have to be computed
        return shown if self.definition.also is not None else shown + picture(self)

    def plot(self, *args: Any, ax: Any = None, **options: Any) -> Any:
        """Draw it, on `ax` if that is given: the same as `ndl.plot(study, ...)`."""
        return draw(self, *args, ax=ax, **options)

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *error: Any) -> None:
        self.store.__exit__(*error)


def _shown(values: tuple[Any, ...]) -> str:
    shown = [f"{v:.6g}" if isinstance(v, float) else repr(v) for v in values]
    return ", ".join(shown) if len(shown) <= 6 else f"{shown[0]}, {shown[1]}, ..., {shown[-1]} ({len(shown)} values)"


def sweep(
    task: Spec,
    model: Spec | None,
    learner: Spec,
    over: Any,
    *,
    also: Simulation | None = None,
    refine: Refine | None = None,
    seed: int = 0,
    tol: float | None = None,
    ansatz: str = REPLICA_SYMMETRIC,
    store: str | Path | None = None,
    executor: str | Executor = "serial",
    workers: int | None = None,
    memory: float | str | None = None,
    address: str | None = None,
    retry: bool = False,
    limit: float = LIMIT,
    report: Report = silent,
    progress: Shown = None,
) -> Study:
    """Compute predictions, and with `also` simulations, over many values of any fields; return them as a Study.

    task      what is to be learned, such as SpikedSLR(tokens=2, snr=1)
    model     what is trained; None for learners without a model
    learner   how it is trained
    over      a grid {path: values} or a list of points [{path: value}, ...], with paths such as "task.snr"
    also      Simulation(d=..., repeats=...) to simulate at the points too
    refine    Refine(on=..., levels=...) to add points between those of the grid where the answer changes
    seed      seed of the predictions and, together with that of `also`, of the simulations
    tol       bound on a residual or on an integral's error; None is the solver's own choice
    ansatz    as in `predict`: "1rsb" answers for the lowest minimum where replica symmetry fails
    store     sqlite file that keeps all points; None keeps them in memory
    executor  "serial", "processes", "dask", or an executor such as Processes(...) or Dask(...)
    workers   number of worker processes; None is one per core ("processes") or dask's own choice ("dask")
    memory    memory of all workers together, in bytes or as "4 GB", for "processes"; None is 80 % of what is free
    address   address of a running dask scheduler, such as "tcp://host:8786"; None starts one on this machine
    retry     whether points that failed before are computed again
    limit     largest number of predictions and simulations together; a sweep with more is refused
    report    function that is called with the Tally, how far the run is, whenever points are finished
    progress  as in `predict`: shown after two seconds if a person is watching; True always, False never

    What is in the store already is not computed again, and an interrupted sweep goes on where it was. Points that fail
    stay in the study, with their reason.

    >>> over = {"task.snr": [1.0, 2.0, 4.0]}
    >>> study = ndl.sweep(ndl.SpikedSLR(2, snr=1.0), None, ndl.BayesOptimal(), over)
    >>> [f"{point.prediction.excess_risk.value:.4f}" for point in study.points()]
    ['0.3249', '0.2248', '0.1155']
    """
    if store is not None:
        _check_name("sweep(store", store)
    definition = Sweep.of(task, model, learner, over, also, refine, seed, tol, limit, ansatz=ansatz)
    study = Study(definition, Store(MEMORY if store is None else store))
    try:
        study.store.put_meta("study", definition.to_json())
        where = {"workers": workers, "memory": memory, "address": address}
        study.run(executor, **where, retry=retry, report=report, progress=progress)
    except BaseException:
        study.close()
        raise
    return study


def open_study(path: str | Path, *, readonly: bool = False) -> Study:
    """Return the study in a store that `sweep` has written; `readonly` opens it without writing to it.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "study.sqlite"
    >>> asked = ndl.SpikedSLR(2, snr=1.0), None, ndl.BayesOptimal()
    >>> ndl.sweep(*asked, {"task.snr": [1.0, 2.0]}, store=path).close()
    >>> with ndl.open_study(path, readonly=True) as study:
    ...     print(len(list(study.points())))
    2
    """
    _check_name("open_study(path", path)
    store = Store(path, create=False, readonly=readonly)
    try:
        document = store.meta("study")
    except StoreError:
        store.close()
        raise
    if document is None:
        store.close()
        raise InvalidParameter(f"{path} has points but no study; `reproduce` keeps the points of figures there.")
    try:
        return Study(Sweep.from_json(document), store)
    except NeedlepointError:  # its message is clear already, for example that an activation is not known here
        store.close()
        raise
    except Exception as error:
        store.close()
        raise StoreError(
            f"{path} is damaged: the definition of its study cannot be read ({type(error).__name__}); run the sweep "
            "again with this store, which keeps its points."
        ) from None


def _check_name(where: str, path: Any) -> None:
    """Raise one sentence for what cannot be the name of a file, because of its type or its length."""
    if not isinstance(path, (str, Path)) or len(str(path)) > _LONGEST_NAME:
        raise InvalidParameter(f"{where}={shown(path)}): give the name of a file, such as study.sqlite.")

"""What a worker does with a unit: the only place where a study computes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

import needlepoint as ndl
from needlepoint.core.errors import NeedlepointError, UnknownName, one_line
from needlepoint.core.results import Progress, Result, silent
from needlepoint.core.specs import Spec, from_json
from needlepoint.learners import Population
from needlepoint.studies.execution.jobs import Unit
from needlepoint.studies.storage.codec import Arrays, decode, encode

PLAIN = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NPROC": "1"}
"""Environment of a worker: one thread for BLAS and (NPROC) for XLA, because there is one worker per core."""


@dataclass
class Outcome:
    """What became of a job, as it is stored.

    id         of the job
    state      "done" if there is a result (of whatever status), "failed" if there is none
    status     status of the result, or the name of the error
    message    notes of the result, or the sentence of the error
    seed       seed of the call
    seconds    time it took
    metrics    (name, value, error, kind) of every metric
    document   the result as JSON, whose arrays are in `arrays`
    """

    id: str
    state: str
    status: str
    message: str = ""
    seed: int = 0
    seconds: float = 0.0
    metrics: list[tuple[str, float, float, str]] = field(default_factory=list)
    document: str = ""
    arrays: Arrays = field(default_factory=dict)

    @functools.cached_property
    def result(self) -> Any:
        return decode(json.loads(self.document), self.arrays)


def message(unit: Unit, followed: dict[str, Any]) -> dict[str, Any]:
    """Return the unit as plain data for a worker; `followed` has the predictions that its jobs follow, by job id."""
    calls = []
    for job in unit.jobs:
        specs, options = job.question, dict(job.options)
        if job.follow is not None:
            chosen = followed[job.follow.id]
            specs = chosen.resolved or job.question  # without `resolved` there was nothing for the library to choose
            if isinstance(chosen.learner, Population):  # every other learner finds its weights by training
                options["overlaps"] = chosen.overlaps
        arrays: Arrays = {}
        calls.append(
            {
                "id": job.id,
                "verb": job.verb,
                "specs": [None if s is None else s.to_json() for s in specs],
                "options": encode(options, arrays),
                "arrays": arrays,
                "seed": int(options.get("seed", 0)),
            }
        )
    homes = {m for job in unit.jobs for s in job.question if s is not None for m in _homes(s)}
    return {"calls": calls, "curves": unit.curves, "imports": sorted(homes)}


def _homes(spec: Spec) -> set[str]:
    """Return the modules outside this package that define the spec and its nested specs, such as a user's activation;
    a worker has to import them."""
    found = {type(spec).__module__}
    for value in vars(spec).values():
        if isinstance(value, Spec):
            found |= _homes(value)
    return {m for m in found if not m.startswith("needlepoint.") and m != "__main__"}


def solve(unit: dict[str, Any], progress: Progress = silent) -> list[Outcome]:
    """Return the outcomes of a unit, one per job in order; a job that fails has an outcome too."""
    for module in unit["imports"]:
        with contextlib.suppress(ImportError):  # reading the spec fails below, with a better message
            importlib.import_module(module)
    # with one BLAS thread sums are taken in one order, so that every executor gives the same bits
    with _libraries().limit(limits=1):
        if unit["curves"]:
            found = _together(unit, progress)
            if isinstance(found, list):
                return found
            alone = [_alone(call, progress) for call in unit["calls"]]
            for outcome in alone:  # the numbers are as good as in a batch, but the defect should be seen
                outcome.message = f"{outcome.message} {found}".strip()
            return alone
        return [_alone(call, progress) for call in unit["calls"]]


def _together(unit: dict[str, Any], progress: Progress) -> list[Outcome] | str:
    """Return the outcomes of curves solved in one batch, or a text if the batch failed and each job is to be computed
    alone.

    The text is empty where a point of the batch is refused, as its own outcome will say so; for a defect it says which.
    """
    from needlepoint.theory.curves import predict_curves

    start, calls = time.perf_counter(), unit["calls"]
    try:
        options = decode(calls[0]["options"], calls[0]["arrays"])
        questions = iter([_specs(call) for call in calls])
        curves = [[next(questions) for _ in range(count)] for count in unit["curves"]]
        results = [r for curve in predict_curves(curves, progress=progress, **options) for r in curve]
        share = (time.perf_counter() - start) / len(calls)
        return [_done(call, result, share) for call, result in zip(calls, results, strict=True)]
    except NeedlepointError:
        return ""
    except Exception as error:  # a defect; points that it does not concern still get their answer alone
        return f"Solved alone, because the batch failed: {one_line(error)}"


def _alone(call: dict[str, Any], progress: Progress) -> Outcome:
    start = time.perf_counter()
    try:
        specs, options = _specs(call), decode(call["options"], call["arrays"])
        if call["verb"] == "predict":
            options.update(throw=False, progress=progress)
        elif call["verb"] == "simulate":
            options.update(progress=progress)
        else:
            specs = tuple(s for s in specs if s is not None)
        return _done(call, getattr(ndl, call["verb"])(*specs, **options), time.perf_counter() - start)
    except UnknownName as error:
        status, text = type(error).__name__, f"{error} A worker knows what is defined in a module it can import."
    except NeedlepointError as error:
        status, text = type(error).__name__, str(error)
    except MemoryError:
        status, text = "MemoryError", "this needs more memory than there is."
    except Exception as error:  # a defect is recorded at its point and must not stop the other points
        status, text = type(error).__name__, one_line(error)
    return Outcome(call["id"], "failed", status, text, call["seed"], time.perf_counter() - start)


def _specs(call: dict[str, Any]) -> Any:
    return tuple(None if s is None else from_json(s) for s in call["specs"])


def _done(call: dict[str, Any], result: Any, seconds: float) -> Outcome:
    arrays: Arrays = {}
    document = json.dumps(encode(result, arrays), allow_nan=False)
    metrics, status, notes = [], "CONVERGED", ""
    if isinstance(result, Result):
        metrics = [(name, e.value, e.error, e.kind) for name, e in result.metrics.items()]
        status, notes = result.status.name, " ".join(result.notes)
    return Outcome(call["id"], "done", status, notes, call["seed"], seconds, metrics, document, arrays)


@functools.cache
def _libraries() -> Any:
    """Return the controller of all BLAS libraries of this process; none is loaded later than here."""
    import scipy.linalg  # noqa: F401  # imported first because SciPy brings a BLAS of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that determine the numbers, by name."""
    import platform
    from importlib.metadata import version

    packages = {name: version(name) for name in ("needlepoint", "jax", "jaxlib", "numpy", "scipy")}
    return {"python": platform.python_version(), **packages}

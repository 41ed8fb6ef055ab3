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
"""Environment of a worker: one thread for BLAS and (NPROC) for XLA, because there is a worker a core."""


@dataclass
class Outcome:
    """What became of a job. `state` is done or failed; a result whose status is not CONVERGED is done."""

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
    """The unit as plain data; `followed` has the results of the predictions that its jobs follow."""
    calls = []
    for job in unit.jobs:
        specs, options = job.question, dict(job.options)
        if job.follow is not None:
            chosen = followed[job.follow.id]
            specs = chosen.resolved or job.question  # nothing to choose: the question as it is
            if isinstance(chosen.learner, Population):  # the others find their weights by training
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
    """Modules that a worker has to import to know this spec: those of a user's activations."""
    found = {type(spec).__module__}
    for value in vars(spec).values():
        if isinstance(value, Spec):
            found |= _homes(value)
    return {m for m in found if not m.startswith("needlepoint.") and m != "__main__"}


def solve(unit: dict[str, Any], progress: Progress = silent) -> list[Outcome]:
    """The outcomes of a unit, in order; a job that fails is an outcome too."""
    for module in unit["imports"]:
        with contextlib.suppress(ImportError):  # the spec itself will say that it is unknown
            importlib.import_module(module)
    # one BLAS thread: sums then have one order, and every executor the same bits
    with _libraries().limit(limits=1):
        if unit["curves"]:
            found = _together(unit, progress)
            if isinstance(found, list):
                return found
            alone = [_alone(call, progress) for call in unit["calls"]]
            for outcome in alone:  # the numbers are as good, but somebody should know
                outcome.message = f"{outcome.message} {found}".strip()
            return alone
        return [_alone(call, progress) for call in unit["calls"]]


def _together(unit: dict[str, Any], progress: Progress) -> list[Outcome] | str:
    """Curves in one batch; why not, where one of its points cannot be asked and each has to answer for itself."""
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
    except Exception as error:  # a defect; the points it does not concern go on
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
    except Exception as error:  # a defect: the point says so, and the others go on
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
    """The BLAS libraries of this process; all are loaded with the package."""
    import scipy.linalg  # noqa: F401  # it brings a BLAS of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    import platform
    from importlib.metadata import version

    packages = {name: version(name) for name in ("needlepoint", "jax", "jaxlib", "numpy", "scipy")}
    return {"python": platform.python_version(), **packages}

"""One measurement from many: every seed of a point was simulated as a job of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from needlepoint.core.answers.spectra import TrainedSpectrum
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FieldOverlaps
from needlepoint.core.results import Measurement, Trajectory, mean_estimate


def pooled(parts: Sequence[Measurement]) -> Measurement:
    """Return one measurement with means over the seeds and their standard errors.

    Where nothing is random, so that the seeds only differ by rounding, the error stays a numerical one.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    bad = [p for p in parts if not p.status.ok]
    shared = [name for name in first.metrics if all(name in p.metrics for p in parts)]
    metrics = {name: _pool([p.metrics[name] for p in parts]) for name in shared}
    return Measurement(
        first.task,
        first.model,
        first.learner,
        metrics,
        status=bad[0].status if bad else first.status,
        **_overlaps(parts),
        trajectory=_trajectory(parts),
        branch=first.branch if len({p.branch for p in parts}) == 1 else None,
        notes=_notes(parts),
        seed=first.seed,
        d=first.d,
        repeats=len(parts),
        spectrum=_spectrum(parts),
        values=_values(parts),
    )


def _pool(estimates: Sequence[Estimate]) -> Estimate:
    values = np.array([e.value for e in estimates])
    if all(e.kind == "numerical" for e in estimates) and np.all(np.isfinite(values)):
        # nothing is random here: the spread of the seeds is rounding and is added to the numerical error
        return Estimate(float(np.mean(values)), float(max(e.error for e in estimates) + np.ptp(values)))
    return mean_estimate(values)


def _overlaps(parts: Sequence[Measurement]) -> dict[str, Any]:
    found = [p.overlaps for p in parts if p.overlaps is not None]
    if len(found) < len(parts):
        return {}
    rows = [dict(o.items()) for o in found]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    if all(np.ptp(x) == 0 for x in columns.values()):
        return {"overlaps": found[0], "overlaps_error": parts[0].overlaps_error}
    errors = {name: mean_estimate(columns[name]).error for name in parts[0].overlaps_error}
    means = {name: float(np.mean(x)) for name, x in columns.items()}
    pooled = FieldOverlaps(means) if isinstance(found[0], FieldOverlaps) else type(found[0])(**means)
    return {"overlaps": pooled, "overlaps_error": errors}


def _notes(parts: Sequence[Measurement]) -> tuple[str, ...]:
    """Return every note once; a note that not all seeds have is given with the number of seeds that do."""
    times = Counter(note for p in parts for note in dict.fromkeys(p.notes))
    return tuple(note if n == len(parts) else f"{note} ({n} of {len(parts)} seeds)" for note, n in times.items())


def _spectrum(parts: Sequence[Measurement]) -> TrainedSpectrum | None:
    """Return the eigenvalues (seeds, d) of all seeds; None unless every seed has them."""
    found = [p.spectrum for p in parts if p.spectrum is not None]
    if len(found) < len(parts):
        return None
    return TrainedSpectrum(np.concatenate([s.eigenvalues for s in found]), np.concatenate([s.target for s in found]))


def _values(parts: Sequence[Measurement]) -> dict[str, np.ndarray]:
    """Return the values (seeds,) of each metric, in the order of the rows of the spectrum."""
    shared = [name for name in parts[0].values if all(name in p.values for p in parts)]
    return {name: np.concatenate([p.values[name] for p in parts]) for name in shared}


def _trajectory(parts: Sequence[Measurement]) -> Trajectory | None:
    paths = [p.trajectory for p in parts if p.trajectory is not None]
    if len(paths) < len(parts):
        return None
    first = paths[0]
    return Trajectory(
        first.steps,
        first.scale,
        {name: np.concatenate([p.overlaps[name] for p in paths]) for name in first.overlaps},
        np.concatenate([p.excess_risk for p in paths]),
        tuple(b for p in paths for b in p.branches),
    )

"""From recorded runs to metrics, in the same way for theory and for simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FIVE, SEVEN, as_overlaps, fix_gauge
from needlepoint.core.results import Trajectory, stratified_estimate
from needlepoint.core.status import Status

LATE, MOVING = 0.25, 0.1
"""A run has not come to rest if its excess risk moves by more than MOVING of its last value over the last share LATE of
the records."""

FEWEST = 8
"""Records below which a path says too little of where it is going."""


def scale_at(scale: float, schedule: float, steps: Any) -> np.ndarray:
    """eq:schedule. Return the scale of the step that led to each record, $\\lambda_t = \\lambda/(1 + h t)$.

    The record at step s follows step t = s - 1, as steps are counted from 0; the record at 0 takes the scale of t = 0.
    """
    return scale_of_step(scale, schedule, np.maximum(np.asarray(steps, dtype=float) - 1.0, 0.0))


def scale_of_step(scale: Any, schedule: Any, t: Any) -> Any:
    """Return the scale at step t, eq:schedule; the arguments may be numbers, arrays or traced by JAX."""
    return scale / (1.0 + schedule * t)


def named(paths: np.ndarray) -> dict[str, np.ndarray]:
    """Return arrays (runs, records) by name of the overlap.

    `paths` is (5, runs, records) where k and v have unit norm, and (7, runs, records) where their norms are free.
    """
    names = SEVEN if len(paths) == len(SEVEN) else FIVE
    return dict(zip(names, np.asarray(paths, dtype=float), strict=True))


def summarise(
    trajectory: Trajectory,
    noise_var: float | None,
    *,
    gauge: bool,
    starts: int = 1,
    numerical: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Return metrics and mean overlaps at the last record, as keyword arguments of a result.

    noise_var  what noisy labels add to the excess risk; None where there is no excess risk, and the trajectory has the
               risk in its place
    gauge      True where the risk does not depend on the sign of (k, v) and the runs chose it at random (random starts,
               odd activation): the sign is then fixed run by run before averaging
    starts     runs come in this many equal groups, one per given start; the spread between groups is no error
    numerical  errors by name for deterministic runs; None takes standard errors over the runs

    The status is DIVERGED if any run left the finite numbers and FINISHED otherwise: a run that did its steps has not
    necessarily arrived anywhere, and a note says so where its risk still moves.
    """
    finite = np.all(np.isfinite(trajectory.excess_risk), axis=1)
    if not finite.all():
        run = int(np.flatnonzero(~finite)[0])
        first = int(np.flatnonzero(~np.isfinite(trajectory.excess_risk[run]))[0])
        at = trajectory.steps[first]
        when = f"step {at}" if np.issubdtype(trajectory.steps.dtype, np.integer) else f"time {at:.6g}"
        note = f"{int((~finite).sum())} of {trajectory.runs} runs diverged; run {run} before {when}."
        names = ("risk",) if noise_var is None else ("risk", "excess_risk")
        nothing = {name: Estimate(np.nan, np.inf) for name in names}
        return {"metrics": nothing, "status": Status.DIVERGED, "notes": (note,), "trajectory": trajectory}
    end = trajectory.excess_risk[:, -1]
    paths = fix_gauge(trajectory.overlaps) if gauge else trajectory.overlaps
    overlaps = {name: x[:, -1] for name, x in paths.items()}
    if numerical is None:
        excess = stratified_estimate(end, starts)
        errors = {name: stratified_estimate(x, starts).error for name, x in overlaps.items()}
    else:
        excess = Estimate(float(np.mean(end)), numerical["excess_risk"])
        errors = {name: numerical[name] for name in overlaps}
    return {
        "metrics": {"risk": excess} if noise_var is None else {"risk": excess + noise_var, "excess_risk": excess},
        "status": Status.FINISHED,
        "notes": (*_still_moving(trajectory), *_risen(trajectory)),
        "overlaps": as_overlaps({name: float(np.mean(x)) for name, x in overlaps.items()}),
        "overlaps_error": errors,
        "trajectory": trajectory,
    }


def _still_moving(trajectory: Trajectory) -> tuple[str, ...]:
    """Return a note on how many runs have not come to rest, if any."""
    records = trajectory.excess_risk.shape[1]
    late = trajectory.excess_risk[:, -max(2, math.ceil(LATE * records)) :]
    if records < FEWEST:
        return ()
    end = np.abs(late[:, -1])
    moving = np.ptp(late, axis=1) > MOVING * np.maximum(end, np.finfo(float).tiny)
    count = int(moving.sum())
    if not count:
        return ()
    where = "" if trajectory.runs == 1 else f"in {count} of {trajectory.runs} runs "
    return (f"{where}the excess risk still moves by over {MOVING:.0%} in the last quarter of the records.",)


def _risen(trajectory: Trajectory) -> tuple[str, ...]:
    """Return a note on how many runs ended at a higher risk than they began with, if any."""
    first, last = trajectory.excess_risk[:, 0], trajectory.excess_risk[:, -1]
    count = int(np.sum(last > (1 + MOVING) * np.maximum(first, np.finfo(float).tiny)))
    if not count:
        return ()
    where = "" if trajectory.runs == 1 else f"in {count} of {trajectory.runs} runs "
    return (f"{where}the excess risk ended over {MOVING:.0%} above where it began: try a smaller lr.",)

"""From recorded runs to metrics: what theory and simulation say about a trajectory in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FIVE, Overlaps, fix_gauge
from needlepoint.core.results import Trajectory, stratified_estimate
from needlepoint.core.status import Status

SEVEN = (*FIVE, "key_sq", "value_sq")
"""kappa, nu, theta, eta, rho, q_k, q_v: the order of the overlap vector where the norms are free."""


def scale_at(scale: float, schedule: float, steps: Any) -> np.ndarray:
    """eq:schedule. The scale of the step that led to each record: $\\lambda_t = \\lambda/(1 + h t)$, t from 0."""
    return scale_of_step(scale, schedule, np.maximum(np.asarray(steps, dtype=float) - 1.0, 0.0))


def scale_of_step(scale: Any, schedule: Any, t: Any) -> Any:
    """eq:schedule at step t; the numbers may be traced."""
    return scale / (1.0 + schedule * t)


def named(paths: np.ndarray) -> dict[str, np.ndarray]:
    """(5, runs, records) on unit spheres, (7, runs, records) with free norms, as named arrays of runs x records."""
    names = SEVEN if len(paths) == len(SEVEN) else FIVE
    return dict(zip(names, np.asarray(paths, dtype=float), strict=True))


def summarise(
    trajectory: Trajectory, noise_var: float, *, gauge: bool, starts: int = 1, numerical: dict[str, float] | None = None
) -> dict[str, Any]:
    """Metrics and mean overlaps at the last record, as keyword arguments of a result.

    The errors are standard errors over runs; where `numerical` gives errors by name (deterministic
    runs from given starts), those instead. Where the sign of (k, v) is a `gauge` (random starts, odd activation)
    it is fixed run by run before averaging. Runs come in `starts` equal groups, and the spread between groups is
    no error. Runs that left the finite numbers make the status DIVERGED.
    """
    finite = np.all(np.isfinite(trajectory.excess_risk), axis=1)
    if not finite.all():
        run = int(np.flatnonzero(~finite)[0])
        first = int(np.flatnonzero(~np.isfinite(trajectory.excess_risk[run]))[0])
        at = trajectory.steps[first]
        when = f"step {at}" if np.issubdtype(trajectory.steps.dtype, np.integer) else f"time {at:.6g}"
        note = f"{int((~finite).sum())} of {trajectory.runs} runs diverged; run {run} before {when}."
        nothing = {name: Estimate(np.nan, np.inf) for name in ("risk", "excess_risk")}
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
        "metrics": {"risk": excess + noise_var, "excess_risk": excess},
        "status": Status.CONVERGED,
        "overlaps": Overlaps(**{name: float(np.mean(x)) for name, x in overlaps.items()}),
        "overlaps_error": errors,
        "trajectory": trajectory,
    }

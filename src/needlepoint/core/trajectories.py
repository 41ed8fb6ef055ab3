"""From recorded runs to metrics: what theory and simulation say about a trajectory in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FIVE, Overlaps, fix_gauge
from needlepoint.core.results import Trajectory, mean_estimate
from needlepoint.core.status import Status


def scale_at(scale: float, schedule: float, steps: Any) -> np.ndarray:
    """eq:schedule. The scale of the step that led to each record: $\\lambda_t = \\lambda/(1 + h t)$, t from 0."""
    last = np.maximum(np.asarray(steps, dtype=float) - 1.0, 0.0)
    return scale / (1.0 + schedule * last)


def named(five: np.ndarray) -> dict[str, np.ndarray]:
    """(5, runs, records) as named arrays of runs x records."""
    return dict(zip(FIVE, np.asarray(five, dtype=float), strict=True))


def summarise(
    trajectory: Trajectory, noise_var: float, *, odd: bool, numerical: dict[str, float] | None = None
) -> dict[str, Any]:
    """Metrics and mean overlaps at the last record, as keyword arguments of a result.

    The errors are standard errors over runs; where `numerical` gives errors by name (deterministic
    runs from given starts), those instead. With an `odd` activation the sign of (k, v) is a gauge, fixed run
    by run before averaging. Runs that left the finite numbers make the status DIVERGED.
    """
    finite = np.all(np.isfinite(trajectory.excess_risk), axis=1)
    if not finite.all():
        run = int(np.flatnonzero(~finite)[0])
        first = int(np.flatnonzero(~np.isfinite(trajectory.excess_risk[run]))[0])
        note = (
            f"{int((~finite).sum())} of {trajectory.runs} runs diverged; run {run} before step "
            f"{int(trajectory.steps[first])}."
        )
        nothing = {name: Estimate(np.nan, np.inf) for name in ("risk", "excess_risk")}
        return {"metrics": nothing, "status": Status.DIVERGED, "notes": (note,), "trajectory": trajectory}
    end = trajectory.excess_risk[:, -1]
    paths = fix_gauge(trajectory.overlaps) if odd else trajectory.overlaps
    overlaps = {name: x[:, -1] for name, x in paths.items()}
    if numerical is None:
        excess = mean_estimate(end)
        errors = {name: mean_estimate(x).error for name, x in overlaps.items()}
    else:
        excess = Estimate(float(np.mean(end)), numerical["excess_risk"])
        errors = {name: numerical[name] for name in FIVE}
    return {
        "metrics": {"risk": excess + noise_var, "excess_risk": excess},
        "status": Status.CONVERGED,
        "overlaps": Overlaps(**{name: float(np.mean(x)) for name, x in overlaps.items()}),
        "overlaps_error": errors,
        "trajectory": trajectory,
    }

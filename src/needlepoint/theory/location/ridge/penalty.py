"""The penalties that make the predicted risk least."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize

from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.solutions import Solution
from needlepoint.theory.location.ridge.solving import solve

LOWEST, HIGHEST = 1e-3, 1e3
"""Bounds of the search for the penalties."""


def best_penalties(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, seed: int = 0, progress: Progress = silent
) -> tuple[tuple[float, float], tuple[str, ...]]:
    """Return the (lam_key, lam_value) of least predicted risk, and notes for the user.

    All penalties are solved with the same integration points, so that the risk is a smooth function of them up to the
    residual of the iteration; each solution is continued from the last.
    """
    last: list[Solution] = []
    low, high = math.log(LOWEST), math.log(HIGHEST)

    def risk(x: Any) -> float:
        x = np.clip(x, low, high)
        penalties = (math.exp(x[0]), math.exp(x[1]))
        given = {"start": learner.start, "tol": ACCURACY.penalty_tolerance, "seed": seed, "careful": False}
        found = solve(task, model, learner.alpha, penalties, near={1.0: last[0]} if last else {}, **given)[0]
        if found.status is not Status.CONVERGED:
            return 10.0  # more than predicting zero costs
        last[:] = [found]
        return found.excess_risk.value

    values = [(risk([math.log(lam)] * 2), math.log(lam)) for lam in ACCURACY.penalty_grid]
    progress(0.1)
    best = min(values)[1]
    simplex = np.array([[best, best], [best + 0.7, best], [best, best + 0.7]])
    options = {"initial_simplex": simplex, "xatol": ACCURACY.penalty_step, "fatol": 1e-6, "maxfev": 150}
    found = optimize.minimize(risk, simplex[0], method="Nelder-Mead", options=options)
    progress(0.2)
    x = np.clip(found.x, low, high)
    ends = [
        n for n, v in zip(("lam_key", "lam_value"), x, strict=True) if min(v - low, high - v) < ACCURACY.penalty_step
    ]
    notes = tuple(f"{name} is sought between {LOWEST:g} and {HIGHEST:g}, and ends at a bound." for name in ends)
    return (float(np.exp(x[0])), float(np.exp(x[1]))), notes

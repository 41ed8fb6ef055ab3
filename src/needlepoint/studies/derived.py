"""Numbers that a study shows besides the metrics: the penalties that were chosen, and where runs of a descent ended."""

from __future__ import annotations

import math

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Prediction, Result
from needlepoint.learners import OnlineSGD, ProjectedDescent, Ridge
from needlepoint.models.fields import FieldModel

ENDS = ("oracle", "swapped", "other", "diverged")
"""Where a run of a descent can end; every one is a column, so that a sweep has zeros and no gaps."""

IN_WORDS = {
    "resolved.lam": "best penalty",
    **{f"share_{end}": f"share of runs that end {end}" for end in ENDS},
}
"""What a picture calls these numbers, and `resolved.lam_key` for every kind of columns: see `in_words`."""


def in_words(name: str) -> str | None:
    """Return what a picture calls one of these numbers; None for other names."""
    prefix = "resolved.lam_"
    return f"best penalty on the {name.removeprefix(prefix)}" if name.startswith(prefix) else IN_WORDS.get(name)


def derived(result: Result) -> dict[str, Estimate]:
    """Return these numbers by name: `resolved.lam_key` and `resolved.lam_value`, one for every kind of columns (or
    `resolved.lam`, on a model with one penalty) where the library chose them, and `share_oracle`, `share_swapped`,
    `share_other` and `share_diverged` of the runs of a descent."""
    return {**_penalties(result), **_shares(result)}


def _penalties(result: Result) -> dict[str, Estimate]:
    asked = result.learner
    if not isinstance(result, Prediction) or not isinstance(asked, Ridge) or not isinstance(asked.lam, str):
        return {}
    chosen = result.resolved[2] if result.resolved else None
    if not isinstance(chosen, Ridge) or isinstance(chosen.lam, str):
        return {}
    # how well they are known is a factor of its own, in the notes: the risk is flat at its minimum
    groups = result.model.groups if isinstance(result.model, FieldModel) else ()
    if len(groups) < 2:
        return {"resolved.lam": Estimate(chosen.penalties[0])}
    each = chosen.lam if isinstance(chosen.lam, tuple) else (chosen.lam,) * len(groups)
    return {f"resolved.lam_{group}": Estimate(x) for group, x in zip(groups, each, strict=True)}


def _shares(result: Result) -> dict[str, Estimate]:
    """Return the share of runs by their end, with binomial standard errors where the starts are random.

    Of n runs that all end alike the error is not zero: it is that of (k + 1) / (n + 2).
    """
    path = result.trajectory
    if path is None or not path.branches:
        return {}
    runs, counts, learner = len(path.branches), path.shares(), result.learner
    # a descent along the mean gradient from a given start has nothing random in it
    drawn = isinstance(learner, ProjectedDescent) and isinstance(learner.start, str)
    random = drawn or isinstance(learner, OnlineSGD)
    found = {}
    for end in dict.fromkeys((*ENDS, *counts)):
        count = counts.get(end, 0)
        near = (count + 1) / (runs + 2)
        found[f"share_{end}"] = (
            Estimate(count / runs, math.sqrt(near * (1 - near) / runs), "stderr") if random else Estimate(count / runs)
        )
    return found

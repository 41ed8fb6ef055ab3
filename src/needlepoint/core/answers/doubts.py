"""Numbers that say nothing, because they may be off by all of themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from needlepoint.core.estimates import Estimate

_SMALL = 1e-2  # of a metric's scale: an error below this is small whatever the value is


def answers(
    metrics: Mapping[str, Estimate], shares: Mapping[str, float], scales: Mapping[str, float]
) -> tuple[dict[str, Estimate], tuple[str, ...]]:
    """The metrics without those that say nothing, because they may be off by all of themselves: their error is
    infinite, and a note names them. What is small beside its scale and known to be small is an answer."""
    kept: dict[str, Estimate] = {}
    refused: list[str] = []
    for name, estimate in metrics.items():
        size = max(abs(estimate.value), _SMALL * scales[name])
        nothing = size < estimate.error < math.inf or shares.get(name, 0.0) * abs(estimate.value) > size
        kept[name] = Estimate(estimate.value, math.inf, estimate.kind) if nothing else estimate
        refused += [name] if nothing else []
    if not refused:
        return kept, ()
    return kept, (f"nothing is known of {', '.join(refused)}, which may be off by more than the whole value.",)

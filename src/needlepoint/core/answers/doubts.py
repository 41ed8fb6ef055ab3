"""Metrics whose error exceeds their value: they carry no information and are withheld."""

from __future__ import annotations

import math
from collections.abc import Mapping

from needlepoint.core.estimates import Estimate

_SMALL = 1e-2  # share of a metric's scale; an error below it is small, however close to zero the value is


LOWEST_MINIMUM = (
    "predict(..., ansatz='1rsb') answers for the lowest minimum, and simulate(..., starts=64) trains for it."
)
"""What the note of a flagged ridge prediction says to call."""


def answers(
    metrics: Mapping[str, Estimate], shares: Mapping[str, float], scales: Mapping[str, float]
) -> tuple[dict[str, Estimate], tuple[str, ...]]:
    """Return the metrics, with an infinite error where they carry no information, and the notes that name these.

    A metric carries no information if its error, or its expected deviation from training (`shares`, as a share of the
    value), is larger than the value. A value near zero that is known to within `_SMALL` of its scale (`scales`) is
    kept: that it is small is an answer.
    """
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

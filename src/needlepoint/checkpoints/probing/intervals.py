"""Confidence intervals of a share."""

from __future__ import annotations

import math

_Z = 1.959964  # of the normal law, for 95 %


def wilson(hits: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of which `hits` of `count` independent cases were seen."""
    if count == 0:
        return 0.0, 1.0
    share = float(hits) / count
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)

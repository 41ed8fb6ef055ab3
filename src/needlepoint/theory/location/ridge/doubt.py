"""How far off a ridge prediction may be where replica symmetry is unstable or its proximal map jumps."""

from __future__ import annotations

import math

from needlepoint.theory.location.ridge.stability import Stability

# log(1 + share) is a constant, plus a second one where the proximal map jumps, plus a third times log(replicon). The
# numbers are fitted so that nine of ten settings of `benchmarks/ridge_doubt.py` are closer than this share
_SHARES = {
    "excess_risk": (0.02, 0.12, 0.33),
    "train_loss": (0.1, 0.45, 2.0),
    "energy": (0.02, 0.14, 0.52),
}


def shares(judged: Stability) -> dict[str, float]:
    """eq:ridge-doubt. Return how far off each metric may be, as a share of its value.

    In nine of ten settings training was closer than this to the predicted excess risk, training loss and energy.
    Empty where neither the replicon nor jumps give reason for doubt.
    """
    if not judged.doubts:
        return {}
    return {
        name: math.expm1(constant + jumps * judged.jumping + slope * math.log(max(judged.replicon, 1.0)))
        for name, (constant, jumps, slope) in _SHARES.items()
    }

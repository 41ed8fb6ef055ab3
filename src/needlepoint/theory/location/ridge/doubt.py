"""How far off a ridge prediction may be where replica symmetry is unstable or its proximal map jumps."""

from __future__ import annotations

import math

from needlepoint.theory.location.ridge.stability import Stability

# The logarithm of 1 + share: a constant, more of it where the proximal map jumps, and a multiple of the logarithm of
# the replicon; nine of ten settings of `benchmarks/ridge_doubt.py` are closer
_SHARES = {
    "excess_risk": (0.02, 0.12, 0.33),
    "train_loss": (0.1, 0.45, 2.0),
    "energy": (0.02, 0.14, 0.52),
}


def shares(judged: Stability) -> dict[str, float]:
    """eq:ridge-doubt. How far training was from the predictions of excess risk, training loss and energy, nine times
    out of ten, at this replicon: shares of their values. Empty where neither the replicon nor a jump speaks against
    them.
    """
    if not judged.doubts:
        return {}
    return {
        name: math.expm1(constant + jumps * judged.jumping + slope * math.log(max(judged.replicon, 1.0)))
        for name, (constant, jumps, slope) in _SHARES.items()
    }

"""How far off a ridge prediction may be where replica symmetry is unstable or its proximal map jumps."""

from __future__ import annotations

import math

from needlepoint.theory.ridge_stability import Stability

# eq:ridge-doubt. log(1 + share) is a constant, more of it where the proximal map jumps, and a multiple of the logarithm
# of the replicon; nine of ten settings of `benchmarks/ridge_doubt.py` are closer
_SHARES = {
    "excess_risk": (0.0, 0.14, 0.3),
    "train_loss": (0.395, 0.0, 1.89),
    "energy": (0.034, 0.078, 0.553),
}


def shares(judged: Stability) -> dict[str, float]:
    """How far training was from the predictions of excess risk, training loss and energy, nine times out of ten, at
    this replicon: shares of their values. Empty where neither the replicon nor a jump speaks against them."""
    if not judged.doubts:
        return {}
    return {
        name: math.expm1(constant + jumps * judged.jumping + slope * math.log(max(judged.replicon, 1.0)))
        for name, (constant, jumps, slope) in _SHARES.items()
    }

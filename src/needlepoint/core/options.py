"""What a rule is given besides its three specs."""

from __future__ import annotations

from dataclasses import dataclass

from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Progress, silent


@dataclass(frozen=True)
class PredictionOptions:
    """What `predict` hands to its rule.

    seed      of the integration and of what is random in the learner
    tol       what a residual or an integral's error is to stay below; None is the solver's own choice
    progress  is called with the fraction that is done
    """

    seed: int = 0
    tol: float | None = None
    progress: Progress = silent


@dataclass(frozen=True)
class SimulationOptions:
    """What `simulate` hands to its rule.

    d, repeats  dimension of a token, and how often everything is drawn anew
    overlaps    of the weights to measure at, where the learner does not choose them
    samples     test sequences a repeat
    """

    d: int
    repeats: int
    seed: int = 0
    overlaps: Overlaps | None = None
    samples: int = 20_000
    progress: Progress = silent

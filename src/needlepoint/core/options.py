"""What a rule is given besides its three specs."""

from __future__ import annotations

from dataclasses import dataclass

from needlepoint.core.overlaps import FieldOverlaps, Overlaps
from needlepoint.core.results import Progress, silent

REPLICA_SYMMETRIC, ONE_STEP = "rs", "1rsb"
"""The ansatz of a prediction: whether minima of the training objective are one state, or many."""


@dataclass(frozen=True)
class PredictionOptions:
    """What `predict` hands to its rule.

    seed      seed of a random integration and of what is random in the learner
    tol       bound on a residual or on an integral's error; None is the solver's own choice
    progress  function that is called with the fraction done, from 0 to 1
    """

    seed: int = 0
    tol: float | None = None
    progress: Progress = silent


@dataclass(frozen=True)
class SimulationOptions:
    """What `simulate` hands to its rule.

    d         dimension of a token
    repeats   how often everything is drawn anew, independently
    seed      seed of all random draws; each repeat derives its own from it
    overlaps  overlaps of the weights to measure at, where the learner does not find the weights itself
    samples   number of test sequences per repeat
    progress  function that is called with the fraction done, from 0 to 1
    starts    number of random weights from which the minimum is sought
    """

    d: int
    repeats: int
    seed: int = 0
    overlaps: Overlaps | FieldOverlaps | None = None
    samples: int = 20_000
    progress: Progress = silent
    starts: int = 1

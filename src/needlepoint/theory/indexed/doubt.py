"""What speaks against a prediction of the attention-indexed model, and how far off it may then be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from needlepoint.models.attention import TiedAttention
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Eigenvalues
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.equations import Model
from needlepoint.theory.indexed.solutions import Solution

MANY = 1e-3
"""Share of sequences with more than one minimum above which a solution is not trusted."""


HEAVY = 0.05
"""Concentration of the target (a twelfth of the scores' excess kurtosis) above which scores are not Gaussian enough."""

# how far off a metric may be, as a share of its value, is this times the square root of the target's concentration;
# nine of ten settings of `benchmarks/indexed_doubt.py heavy` are closer
_HEAVY = {
    "risk": 0.24,
    "clean_risk": 0.3,
    "train_loss": 0.3,
    "energy": 0.15,
    "estimation_error": 0.31,
    "rank_fraction": 0.17,
}


# the same where sequences have several minima: a constant, and a multiple of the square root of the share of such
# sequences; nine of ten settings of `benchmarks/indexed_doubt.py minima` are closer
_MINIMA = {
    "risk": (0.1, 0.2),
    "clean_risk": (0.11, 0.3),
    "train_loss": (0.55, 7.0),
    "energy": (0.12, 3.2),
    "estimation_error": (0.25, 0.8),
    "rank_fraction": (0.08, 0.0),
}


@dataclass(frozen=True)
class Doubts:
    """Reasons in words, whether the solution is unstable (replica symmetry, or several minima), and how far off each
    metric may be as a share of its value (empty where that was not calibrated by training)."""

    reasons: tuple[str, ...] = ()
    unstable: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)


def doubts(task: AttentionIndexed, model: Model, found: Solution) -> Doubts:
    """Return what speaks against a solution of the equations. The shares of several reasons add up."""
    rank, rivals = found.value.rank, found.value.rivals
    reasons, shares, trained = [], [], True
    if found.replicon >= 1:
        reasons.append(f"replica symmetry is unstable (replicon {found.replicon:.3g} >= 1)")
        trained = False  # the calibration by training had no such setting
    if rivals > MANY:
        reasons.append(f"{100 * rivals:.2g} % of sequences have more than one minimum")
        shares.append(minima_shares(rivals))
    unstable = bool(reasons)
    heavy = not_gaussian(task)
    if heavy:
        reasons += heavy
        shares.append(heavy_shares(task.target.concentration))
    if isinstance(model, TiedAttention) and rank > model.width_ratio:
        reasons.append(f"the solution has rank {rank:.3g} d, and W is only {model.width_ratio:g} d wide")
        trained = False
    total = {name: sum(s[name] for s in shares) for name in _HEAVY} if shares and trained else {}
    return Doubts(tuple(reasons), unstable, total)


def not_gaussian(task: AttentionIndexed) -> tuple[str, ...]:
    """Return the reason why scores are not Gaussian: several tokens, and a target with few important directions."""
    c = task.target.concentration
    if task.tokens == 1 or c < HEAVY:
        return ()
    return (f"the scores are not Gaussian (excess kurtosis {12 * c:.2g}: {1 / c:.2g} directions carry them)",)


def advice(task: AttentionIndexed) -> tuple[str, ...]:
    """Return a note on a long list of eigenvalues: the limit has many of each, but the user may mean one of each."""
    if not isinstance(task.target, Eigenvalues) or task.tokens == 1:
        return ()
    d = task.target.smallest_d
    c = task.target.concentration_at(d)
    if d < ACCURACY.whole_spectrum or c < HEAVY:
        return ()
    off = 100 * heavy_shares(c)["risk"]
    return (
        f"this is the limit of many eigenvalues of each size; with one of the rarest, at d={d}, scores have an excess "
        f"kurtosis of {12 * c:.2g}, and the risk of training may be off by {off:.2g} %.",
    )


def heavy_shares(concentration: float) -> dict[str, float]:
    """Return the share of its value by which each metric may be off at this concentration of the target: training was
    closer in nine of ten settings."""
    return {name: share * math.sqrt(concentration) for name, share in _HEAVY.items()}


def minima_shares(rivals: float) -> dict[str, float]:
    """Return the same shares where this part of the sequences has more than one minimum."""
    return {name: constant + slope * math.sqrt(rivals) for name, (constant, slope) in _MINIMA.items()}

"""What speaks against a prediction of the attention-indexed model, and how far off it may then be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from needlepoint.core.estimates import Estimate
from needlepoint.models.attention import TiedAttention
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Eigenvalues
from needlepoint.theory.indexed_equations import Model
from needlepoint.theory.indexed_solutions import Solution

MANY = 1e-3
"""A share of sequences with more than one minimum beyond this is not trusted."""

_LIST = 20  # eigenvalues from which on a list is taken for a whole spectrum rather than for kinds of eigenvalues
_SMALL = 1e-2  # of a metric's scale: an error below this is small whatever the value is

HEAVY = 0.05
"""Scores with an excess kurtosis above twelve times this are not taken for Gaussian."""

# shares of a value, times the root of the concentration; nine of ten settings of `benchmarks/indexed_doubt.py heavy`
# are closer
_HEAVY = {
    "risk": 0.24,
    "clean_risk": 0.28,
    "train_loss": 0.29,
    "energy": 0.15,
    "estimation_error": 0.31,
    "rank_fraction": 0.16,
}


# shares of a value where sequences have several minima or the replicon is 1 or more; nine of ten settings of
# `benchmarks/indexed_doubt.py minima` are closer
_MINIMA = {
    "risk": 0.2,
    "clean_risk": 0.2,
    "train_loss": 0.2,
    "energy": 0.2,
    "estimation_error": 0.2,
    "rank_fraction": 0.2,
}


@dataclass(frozen=True)
class Doubts:
    """Reasons in words, whether replica symmetry is among them, and how far off each metric may be as a share of its
    value (empty where training was not asked)."""

    reasons: tuple[str, ...] = ()
    unstable: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)


def doubts(task: AttentionIndexed, model: Model, found: Solution) -> Doubts:
    """What speaks against a solution of the equations. Shares of several reasons add up."""
    rank, rivals = found.value.rank, found.value.rivals
    reasons, shares = [], []
    if found.replicon >= 1:
        reasons.append(f"replica symmetry is unstable (replicon {found.replicon:.3g} >= 1)")
    if rivals > MANY:
        reasons.append(f"{100 * rivals:.2g} % of sequences have more than one minimum")
    if reasons:
        shares.append(_MINIMA)
    unstable = bool(reasons)
    heavy = not_gaussian(task)
    if heavy:
        reasons += heavy
        shares.append(heavy_shares(task.target.concentration))
    if isinstance(model, TiedAttention) and rank > model.width_ratio:
        reasons.append(f"the solution has rank {rank:.3g} d, and W is only {model.width_ratio:g} d wide")
        shares.clear()  # nothing like it was trained
    return Doubts(tuple(reasons), unstable, {name: sum(s[name] for s in shares) for name in _HEAVY} if shares else {})


def not_gaussian(task: AttentionIndexed) -> tuple[str, ...]:
    """The reason that a heavy spectrum is, with several tokens."""
    c = task.target.concentration
    if task.tokens == 1 or c < HEAVY:
        return ()
    return (f"the scores are not Gaussian (excess kurtosis {12 * c:.2g}: {1 / c:.2g} directions carry them)",)


def advice(task: AttentionIndexed) -> tuple[str, ...]:
    """A note on a long list of eigenvalues, which is one law in the limit and another with one of each."""
    if not isinstance(task.target, Eigenvalues) or task.tokens == 1:
        return ()
    d = task.target.smallest_d
    c = task.target.concentration_at(d)
    if d < _LIST or c < HEAVY:
        return ()
    off = 100 * heavy_shares(c)["risk"]
    return (
        f"this is the limit of many eigenvalues of each size; with one of the rarest, at d={d}, scores have an excess "
        f"kurtosis of {12 * c:.2g}, and the risk of training may be off by {off:.2g} %.",
    )


def heavy_shares(concentration: float) -> dict[str, float]:
    """How far off the metrics were in training, nine times out of ten, at this concentration of the target."""
    return {name: share * math.sqrt(concentration) for name, share in _HEAVY.items()}


def answers(
    metrics: Mapping[str, Estimate], shares: Mapping[str, float], scales: Mapping[str, float]
) -> tuple[dict[str, Estimate], tuple[str, ...]]:
    """The metrics without those that say nothing, because they may be off by all of themselves: their error is
    infinite, and a note names them. What is small beside its scale and known to be small is an answer."""
    kept, refused = {}, []
    for name, estimate in metrics.items():
        size = max(abs(estimate.value), _SMALL * scales[name])
        nothing = size < estimate.error < math.inf or shares.get(name, 0.0) > 1
        kept[name] = Estimate(estimate.value, math.inf, estimate.kind) if nothing else estimate
        refused += [name] if nothing else []
    if not refused:
        return kept, ()
    return kept, (f"nothing is known of {', '.join(refused)}: the error is larger than the value.",)

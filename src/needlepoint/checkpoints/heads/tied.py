"""The law of tied attention beside a head: the largest p values of a Wishart matrix with noise and a cut."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from needlepoint.checkpoints.heads.null import null_draws, product_null
from needlepoint.numerics.freeprob import MarchenkoPastur

NOISES = np.geomspace(0.02, 4.0, 40)
"""Noise levels delta that are tried, 15 % apart; what is found is said with the whole range that fits as well."""
CUTS = np.linspace(0.0, 1.0, 11)
"""Cuts that are tried with each, as fractions of the largest that leaves p values."""
_DRAWS, _SEED = 200, 20_240_612  # of the null, for how far from its law pure heads are


@dataclass(frozen=True)
class TiedFit:
    """The tied law that is nearest to a head: `noise` and its range that fits as well, the distances of the spectrum
    from it and from the null, and `sentence` on whether the two can be told apart (`distinct`)."""

    noise: float
    least: float
    most: float
    distance: float
    null_distance: float
    distinct: bool
    sentence: str


@functools.lru_cache(maxsize=64)
def tied_values(p: int, d: int) -> np.ndarray:
    r"""eq:tied-head. Return the p sorted values of $(x - \epsilon)_+$, x from a Wishart law of ratio p/d with noise
    $\delta$, for all `NOISES` and `CUTS` (noises, cuts, p). A cut is a fraction of the quantile at 1 - p/d, so that at
    least p of d values are left, of which the largest p are taken."""
    law = MarchenkoPastur(p / d)
    levels = 1 - (np.arange(p) + 0.5) / d
    rows = []
    for noise in NOISES:
        values = law.quantiles(np.append(levels, 1 - p / d), float(noise))
        rows.append(values[:-1] - CUTS[:, None] * max(values[-1], 0.0))
    return np.array(rows)


def distance(values: np.ndarray, law: np.ndarray) -> np.ndarray:
    r"""eq:law-distance. Return $\min_\sigma|s - \sigma\ell|/|s|$ for sorted values s (p) and one or many laws $\ell$
    (..., p): the share of a spectrum that a law does not explain, whatever its scale."""
    match = law @ values / np.linalg.norm(law, axis=-1)
    return np.sqrt(np.maximum(1 - match**2 / (values @ values), 0.0))


@functools.lru_cache(maxsize=64)
def _noise_of_distance(p: int, d: int) -> float:
    """Return the distance from the null's law that 99 % of pure draws stay below; laws nearer to each other than this
    are not told apart."""
    law = product_null(p, d).values
    draws = null_draws(p, d, _DRAWS, np.random.default_rng(_SEED))
    return float(np.quantile([distance(row, law) for row in draws], 0.99))


def fit_tied(values: np.ndarray, d: int, symmetric: float) -> TiedFit:
    """Return the tied law nearest to singular values (largest first) of a head in a model of width d, of whose map the
    share `symmetric` is symmetric."""
    p = len(values)
    spread = _noise_of_distance(p, d)
    null = float(distance(values, product_null(p, d).values))
    found = distance(values, tied_values(p, d)).min(axis=1)
    best = int(np.argmin(found))
    near = NOISES[found <= found[best] + spread]
    tied = float(found[best])
    distinct = abs(null - tied) > spread
    better = "the tied law is nearer, with two more numbers to choose" if tied < null else "the product null is nearer"
    told = better if distinct else "the two cannot be told apart by this head's singular values"
    sentence = (
        f"Distance from the tied law {100 * tied:.1f} % (noise {NOISES[best]:.2g}; {near.min():.2g} to "
        f"{near.max():.2g} does as well), from the product null {100 * null:.1f} % (pure draws: up to "
        f"{100 * spread:.1f} %): {told}. One head does not identify noise and cut; a tied map is symmetric, and "
        f"{100 * symmetric:.0f} % of this one is (independent weights: 50 %)."
    )
    return TiedFit(float(NOISES[best]), float(near.min()), float(near.max()), tied, null, distinct, sentence)

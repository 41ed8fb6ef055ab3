"""The Bayes risk of the spiked task with known teachers: integrals over a token and over the u of Schwinger."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from needlepoint.core.estimates import Estimate
from needlepoint.numerics.gaussian import lattice
from needlepoint.numerics.radial import log_radial_density
from needlepoint.tasks.single_location import SpikedSLR

_REACH, _TIES, _FAR = 9.5, 6.5, 16.0  # standard deviations of the relevant token that are integrated over; see _reach
_STEP_U, _STEP_LOG = 0.2, 0.3  # of u, and of a log-weight between neighbouring nodes
_DEEP = 120.0  # a log-ratio that no other token reaches in a risk above 1e-30
_LARGEST_LINE, _LARGEST_TABLE = 200_000, 200_000_000  # nodes
_CHUNK = 4_000_000
_ROUNDING = 1e-12


class Token(NamedTuple):
    """Nodes of one token: log-likelihood ratio, and the weights of another token and of E_J[(v* . X)^2 ...] / G."""

    log_ratio: np.ndarray
    other: np.ndarray
    relevant: np.ndarray


def bayes_excess_risk(task: SpikedSLR, length: int, d: int) -> Estimate:
    r"""eq:bayes-risk. $R = (L-1)G\int du\,E_o[Te^{-T}]\,E'_J[e^{-T}]\,E_o[e^{-T}]^{L-2}$, $T = e^u f_J/f_o$.

    Positive terms only, so a risk of 1e-25 keeps its digits, and the power is taken of a number whose distance to 1 is
    computed. Both sums converge exponentially, so the change when every step is doubled is far above what is left.
    The error is infinite where the table would be too large.
    """
    G = task.label_var
    if length == 1:
        return Estimate(0.0)
    if task.snr == 0 and G == 1:
        value = (length - 1) / length
        return Estimate(value, 4 * float(np.finfo(float).eps) * value)
    fine, coarse = (_integral(task, length, d, coarseness) for coarseness in (1.0, 2.0))
    if not math.isfinite(fine - coarse):
        return Estimate(math.nan, math.inf)
    # a density is the exponential of terms of the size of d log d
    rounding = _ROUNDING + 16 * float(np.finfo(float).eps) * d * math.log(d) * (G != 1)
    # the relevant token is beyond the nodes, or another one is and is taken for it, which is as likely
    cut = 2 * G * float(special.ndtr(-(_reach(math.sqrt(task.snr)) if G == 1 else _REACH)))
    return Estimate(fine, abs(fine - coarse) + rounding * fine + cut)


def _integral(task: SpikedSLR, length: int, d: int, coarseness: float) -> float:
    token = _token(task.snr, task.relevant_std, d, coarseness)
    if token is None:
        return math.nan
    log_ratio = token.log_ratio
    step = coarseness * _STEP_U
    low, high = -log_ratio.max() - 38.0 - math.log(length), -log_ratio.min() + 5.0
    if (high - low) / step * len(log_ratio) > _LARGEST_TABLE:
        return math.nan
    u, total = lattice(low, high, step), 0.0
    for block in np.array_split(u, max(1, math.ceil(len(u) * len(log_ratio) / _CHUNK))):
        t = np.exp(np.minimum(block[:, None] + log_ratio, 700.0))
        gone = -np.expm1(-t)
        tied = (t * (1 - gone)) @ token.other
        left = (1 - gone) @ token.relevant
        # outside the nodes a token that is not relevant has no weight
        with np.errstate(divide="ignore"):
            others = np.exp((length - 2) * np.log1p(-np.minimum(gone @ token.other, 1.0))) if length > 2 else 1.0
        total += step * float(np.sum(tied * left * others))
    return (length - 1) * task.label_var * total


def _reach(m: float) -> float:
    """Standard deviations below the mean m that have nodes: to well beyond m / 2, where two tokens are mistaken for
    each other, unless that is so far that the risk is below 1e-40."""
    return min(max(_REACH, m / 2 + _TIES), _FAR)


@functools.lru_cache(maxsize=64)
def _token(snr: float, gamma: float, d: int, coarseness: float) -> Token | None:
    r"""eq:bayes-distance. $\log f_J/f_o = -d\log\gamma + \frac{m^2}{2(1-G)} - c\rho^2$, $c = \frac12(\frac1G - 1)$,
    with $\rho$ the distance to $x_0 = \frac{m}{1-G}k^*$; $E_J[(v^*\cdot X)^2h] = G\,E[h]$ over the law with two more
    dimensions. At $\gamma = 1$ the log-ratio is $ma - m^2/2$.

    Nodes cover the relevant token: elsewhere another token has no weight, by $E_o[T; \ldots] = e^uP_J(\ldots)$.
    """
    m, G = math.sqrt(snr), gamma**2
    if G == 1:
        a = lattice(m - _reach(m), m + _REACH, coarseness * min(0.1, _STEP_LOG / max(m, 1e-300)))
        step = a[1] - a[0]
        other, relevant = (step * np.exp(-((a - c) ** 2) / 2) / math.sqrt(2 * math.pi) for c in (0.0, m))
        return Token(m * a - m * m / 2, other, relevant)
    nodes = _distances(m, gamma, d, coarseness)
    if nodes is None:
        return None
    # notation: near is rho less the length of x_0 for another token, mine the same in units of the relevant one
    mine, weight, offset = *nodes, m / abs(1 - G)
    near = gamma * mine - math.copysign(m, 1 - G)
    return Token(
        _log_ratio(near, m, gamma, d),
        weight * gamma * np.exp(log_radial_density(near, offset, d)),
        weight * np.exp(log_radial_density(mine, gamma * offset, d + 2)),
    )


def _log_ratio(near: np.ndarray, m: float, gamma: float, d: int) -> np.ndarray:
    """eq:bayes-distance at rho = |x_0| + near."""
    G = gamma**2
    slope = math.copysign(m / G, 1 - G)  # 2 c |x_0|
    return -d * math.log(gamma) - m * m / (2 * G) - near * ((1 / G - 1) / 2 * near + slope)


def _distances(m: float, gamma: float, d: int, coarseness: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Nodes and weights for the distance of the relevant token, less its offset and in units of its spread."""
    G = gamma**2
    offset = gamma * m / abs(1 - G)
    centre = (d + 1) / (math.hypot(offset, math.sqrt(d + 1)) + offset)  # of the law with two more dimensions
    low, high = centre - _REACH - 1, centre + _REACH
    if G > 1:  # the log-ratio grows with the distance
        excess = _DEEP + d * math.log(gamma) + m * m / (2 * G) - m * m / (2 * (1 - G)) * (1 / G)
        high = min(high, math.sqrt(excess / ((1 - 1 / G) / 2)) / gamma - offset)
    step = coarseness * min(0.2, _STEP_LOG / (abs(1 - G) * (offset + high)))
    if (high - low) / step > _LARGEST_LINE or high <= -offset:
        return None
    if offset + low > 0:
        nodes = lattice(low, high, step)
        return nodes, np.full(len(nodes), nodes[1] - nodes[0])
    # distances of log(1 + e^t): the density is smooth in t down to a distance of 0
    t = lattice(-38.0 / d - 2.0, high + offset, step)
    distance = np.logaddexp(0.0, t)
    return distance - offset, (t[1] - t[0]) * -np.expm1(-distance)

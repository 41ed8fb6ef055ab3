"""The Bayes risk of the spiked task with known teachers: integrals over one token and Schwinger's u."""

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
from needlepoint.theory.location.bayes.accuracy import ACCURACY


class Token(NamedTuple):
    """Nodes of one token: log-likelihood ratio, and the weights of another token and of E_J[(v* . X)^2 ...] / G."""

    log_ratio: np.ndarray
    other: np.ndarray
    relevant: np.ndarray


def bayes_excess_risk(task: SpikedSLR, length: int, d: int) -> Estimate:
    r"""eq:bayes-risk. Return the Bayes excess risk at one length; the error is infinite if tables would be too large.

    $R = (L-1)G\int du\,E_o[Te^{-T}]\,E'_J[e^{-T}]\,E_o[e^{-T}]^{L-2}$, $T = e^u f_J/f_o$.

    All terms are positive, and the power is taken of a number whose distance to 1 is computed, so that a risk of 1e-25
    loses no digits. Both sums converge exponentially, so that the change when every step is doubled is far above the
    true error.
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
    # densities are exponentials of terms as large as d log d, whose rounding they multiply
    rounding = ACCURACY.spiked_teachers_rounding + 16 * float(np.finfo(float).eps) * d * math.log(d) * (G != 1)
    # the relevant token may lie beyond the nodes, or another one that is taken for it, which is as likely
    cut = 2 * G * float(special.ndtr(-(_reach(math.sqrt(task.snr)) if G == 1 else ACCURACY.reach)))
    return Estimate(fine, abs(fine - coarse) + rounding * fine + cut)


def _integral(task: SpikedSLR, length: int, d: int, coarseness: float) -> float:
    token = _token(task.snr, task.relevant_std, d, coarseness)
    if token is None:
        return math.nan
    log_ratio = token.log_ratio
    step = coarseness * ACCURACY.step_u
    low, high = -log_ratio.max() - 38.0 - math.log(length), -log_ratio.min() + 5.0
    if (high - low) / step * len(log_ratio) > ACCURACY.largest_table:
        return math.nan
    u, total = lattice(low, high, step), 0.0
    for block in np.array_split(u, max(1, math.ceil(len(u) * len(log_ratio) / ACCURACY.spiked_teachers_chunk))):
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
    """Return how many standard deviations below its mean m the relevant token has nodes.

    They go well beyond m / 2, where two tokens are mistaken for each other, unless that is so far that the risk is
    below 1e-40.
    """
    return min(max(ACCURACY.reach, m / 2 + ACCURACY.ties), ACCURACY.spiked_teachers_far)


@functools.lru_cache(maxsize=64)
def _token(snr: float, gamma: float, d: int, coarseness: float) -> Token | None:
    r"""eq:bayes-distance. Return the nodes of one token, arrays (nodes,); None where there would be too many.

    $\log f_J/f_o = -d\log\gamma + \frac{m^2}{2(1-G)} - c\rho^2$, $c = \frac12(\frac1G - 1)$,
    with $\rho$ the distance to $x_0 = \frac{m}{1-G}k^*$; $E_J[(v^*\cdot X)^2h] = G\,E[h]$ over the law with two more
    dimensions. At $\gamma = 1$ the log-ratio is $ma - m^2/2$.

    Nodes cover the law of the relevant token: elsewhere another token has no weight, by $E_o[T; \ldots] =
    e^uP_J(\ldots)$.
    """
    m, G = math.sqrt(snr), gamma**2
    if G == 1:
        a = lattice(m - _reach(m), m + ACCURACY.reach, coarseness * min(0.1, ACCURACY.step_log / max(m, 1e-300)))
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
    """Return the log-ratio of eq:bayes-distance at rho = |x_0| + near, shaped like `near`."""
    G = gamma**2
    slope = math.copysign(m / G, 1 - G)  # 2 c |x_0|
    return -d * math.log(gamma) - m * m / (2 * G) - near * ((1 / G - 1) / 2 * near + slope)


def _distances(m: float, gamma: float, d: int, coarseness: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return nodes and weights for the distance of the relevant token to x_0, less |x_0| and over gamma; or None."""
    G = gamma**2
    offset = gamma * m / abs(1 - G)
    centre = (d + 1) / (math.hypot(offset, math.sqrt(d + 1)) + offset)  # of the distance in d + 2 dimensions
    low, high = centre - ACCURACY.reach - 1, centre + ACCURACY.reach
    if G > 1:  # the log-ratio grows with the distance
        excess = ACCURACY.deep + d * math.log(gamma) + m * m / (2 * G) - m * m / (2 * (1 - G)) * (1 / G)
        high = min(high, math.sqrt(excess / ((1 - 1 / G) / 2)) / gamma - offset)
    step = coarseness * min(0.2, ACCURACY.step_log / (abs(1 - G) * (offset + high)))
    if (high - low) / step > ACCURACY.largest_line or high <= -offset:
        return None
    if offset + low > 0:
        nodes = lattice(low, high, step)
        return nodes, np.full(len(nodes), nodes[1] - nodes[0])
    # substitute distance = log(1 + e^t): the density is smooth in t down to distance 0
    t = lattice(-38.0 / d - 2.0, high + offset, step)
    distance = np.logaddexp(0.0, t)
    return distance - offset, (t[1] - t[0]) * -np.expm1(-distance)

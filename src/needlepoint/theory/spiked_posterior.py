"""Means over the posterior of the place when key and value are known in part, on spiked tokens of any length.

Given the label the tokens are independent, so that a power of 1 / sum of their weights is an integral of products, as
for normalised kernels: tables over (u, label) whatever the length, positive terms only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from needlepoint.numerics.gaussian import lattice, trapezoid_rule

REACH = 9.0
"""Standard deviations that are integrated over."""

_U_STEP = 0.2
_TABLE = 0.01  # step of the tables that are interpolated, to 1e-10


class PosteriorMeans(NamedTuple):
    r"""$E\sum\pi_l^2$, $E\sum\pi_l^2\zeta_l^2$ with $\zeta_l = (y - w_{z,l})/\sqrt T$, and
    $E\log\sum_le^{\sqrt\mu w_{\chi,l} - \zeta_l^2/2}$."""

    squares: float
    residuals: float
    log_sum: float


def posterior_means(
    snr: float, law: Sequence[tuple[int, float]], noise_var: float, key: float, value: float, coarseness: float = 1.0
) -> PosteriorMeans:
    r"""eq:posterior-means. $\pi_l\propto\exp(\sqrt\mu w_{\chi,l})N(y; w_{z,l}, T)$ at overlaps $q_k, q_v$, by
    $\psi_{j,a}(u, y) = E[\zeta^a(e^uw)^je^{-e^uw}|y]$ of a token that is not relevant and the same of the relevant one.
    """
    # notation: T variance of the label given the value field, s2 = mu q_k of the key's log-weight, spread of zeta
    T = noise_var + 1.0 - value
    s2, total = snr * key, 1.0 + noise_var
    s, spread = math.sqrt(s2), math.sqrt(value / T)
    longest = max(n for n, _ in law)
    low, high = -(s2 + REACH * s) - 38.0 - math.log(longest), REACH**2 / 2 + REACH * s + 5.0
    u = lattice(low, high, coarseness * _U_STEP)
    step_u = u[1] - u[0]
    # zeta: as far as a token may be heavier than e^-u, as fine as the steepest of these and its own spread need
    farthest = min(
        math.sqrt(2 * (high + s2 + REACH * s + 38.0)), REACH * (math.sqrt(total) + math.sqrt(value)) / math.sqrt(T)
    )
    zeta = lattice(-farthest, farthest, coarseness * min(0.35 / farthest, 0.25 * spread, 0.25))
    y = lattice(0.0, REACH * math.sqrt(total), coarseness * 0.2 * min(1.0, max(math.sqrt(value), 0.15 * math.sqrt(T))))
    weight_y = np.exp(-(y**2) / (2 * total))
    weight_y[0] /= 2  # both signs of y alike
    weight_y /= weight_y.sum()
    step = zeta[1] - zeta[0]
    other = step * _normal(zeta - y[:, None] / math.sqrt(T), spread)
    mean, deviation = y[:, None] * math.sqrt(T) / (value + T), math.sqrt(value / (value + T))
    relevant = step * _normal(zeta - mean, deviation)
    # what lies outside the lattice weighs nothing
    rest = np.clip(1.0 - other.sum(axis=1), 0.0, 1.0)
    powers = _powers(s)
    at = np.subtract.outer(u, zeta**2 / 2)
    kept, squares = (table(at) for table in powers)
    none, twice, far = kept @ other.T + rest, squares @ other.T, (squares * zeta**2) @ other.T
    kept, squares = (table(at + s2) for table in powers)
    r_none, r_twice, r_far = kept @ relevant.T, squares @ relevant.T, (squares * zeta**2) @ relevant.T
    none = np.clip(none, 0.0, 1.0)
    found = np.zeros(3)
    for n, p in law:
        others = none ** max(n - 2, 0)
        all_others = none ** (n - 1)
        parts = [r_twice * all_others + (n - 1) * twice * r_none * others]
        parts += [r_far * all_others + (n - 1) * far * r_none * others]
        parts += [np.exp(-np.exp(np.minimum(u, 700.0)))[:, None] - r_none * all_others]
        found += p * step_u * np.array([float((part @ weight_y).sum()) for part in parts])
    return PosteriorMeans(*found.tolist())


def _normal(x: np.ndarray, deviation: float) -> np.ndarray:
    return np.exp(-((x / deviation) ** 2) / 2) / (math.sqrt(2 * math.pi) * deviation)


def _powers(s: float) -> list[Callable[[np.ndarray], np.ndarray]]:
    r"""$t\mapsto E[e^{-e^{t + sg}}]$ and $E[e^{2(t + sg)}e^{-e^{t + sg}}]$, from tables by cubic interpolation."""
    g, w = trapezoid_rule(64) if s > 0 else (np.zeros(1), np.ones(1))
    low, high = -42.0 - REACH * s, 7.0 + REACH * s  # below, a weight is nothing; above, nothing is left
    t = np.arange(low, high, _TABLE)
    x = np.exp(t)[:, None] * np.exp(s * g)
    die = np.exp(-np.minimum(x, 800.0))
    moment = [(x**j * die) @ w for j in range(4)]
    # derivatives in t: m_j' = j m_j - m_(j+1)
    pairs = ((moment[0], -moment[1]), (moment[2], 2 * moment[2] - moment[3]))
    return [_Table(low, value, slope) for value, slope in pairs]


@dataclass(frozen=True)
class _Table:
    """A function by its values and slopes on a lattice; constant beyond its ends."""

    low: float
    value: np.ndarray
    slope: np.ndarray

    def __call__(self, t: np.ndarray) -> np.ndarray:
        place = np.clip((t - self.low) / _TABLE, 0.0, len(self.value) - 1.000001)
        i = place.astype(np.int64)
        x = place - i
        a, b, c, d = self.value[i], self.value[i + 1], _TABLE * self.slope[i], _TABLE * self.slope[i + 1]
        return a + x * (c + x * (3 * (b - a) - 2 * c - d + x * (2 * (a - b) + c + d)))

"""From the few means of the weights to the risk, written out from the regression of the value fields on the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import needlepoint as ndl

ROUNDING = 4e-14


@dataclass(frozen=True)
class SpikedMeans:
    """The relevant token first, xi its score's fluctuation: E sigma_1, E sigma_1 xi_1, E xi_1 s, E sigma_1^2,
    E sum_{l>1} sigma_l^2, E sigma_1 s and E s^2 with s = sum_l sigma_l xi_l."""

    first: float
    first_xi: float
    xi_sum: float
    first_sq: float
    others_sq: float
    first_sum: float
    sum_sq: float


@dataclass(frozen=True)
class MaxMeans:
    """E sigma_J, E g_J sum sigma x, E g_J sum sigma g, E sum sigma^2, E (sum sigma chi)^2; chi = key x + s g."""

    winner: float
    g_x: float
    g_g: float
    squares: float
    sum_sq: float


def spiked_risk(task: ndl.SpikedSLR, m: SpikedMeans, o: ndl.Overlaps) -> tuple[float, float]:
    """E (v*.X_1 - sum sigma_l v.X_l)^2, and the rounding of this sum."""
    G, shift, q = task.relevant_std**2, np.sqrt(task.snr) * o.value_on_key, o.key_sq
    rho, eta = (o.key_dot_value / q, o.key_on_value / q) if q > 0 else (0.0, 0.0)
    terms = [
        eta**2 * G * q,
        -2 * eta * (shift * m.first_xi + rho * m.xi_sum),
        shift**2 * m.first_sq,
        2 * shift * rho * m.first_sum,
        rho**2 * m.sum_sq,
        G * (1 - eta * o.key_on_value),
        -2 * G * (o.value - eta * o.key_dot_value) * m.first,
        (o.value_sq - rho * o.key_dot_value) * (G * m.first_sq + m.others_sq),
    ]
    return float(np.sum(terms)), ROUNDING * float(np.sum(np.abs(terms)))


def max_risk(m: MaxMeans, o: ndl.Overlaps) -> tuple[float, float]:
    """The same for the max task: the key's part beyond its teacher is s g."""
    q = o.key_sq
    s = np.sqrt(max(q - o.key**2, 0.0))
    a, b = (o.key_on_value / s, (o.key_dot_value - o.key * o.value_on_key) / s) if s > 1e-8 * np.sqrt(q) else (0.0, 0.0)
    rho = o.key_dot_value / q if q > 0 else 0.0
    terms = [
        1.0,
        -2 * (o.value - a * b) * m.winner,
        -2 * a * o.value_on_key * m.g_x,
        -2 * a * b * m.g_g,
        (o.value_sq - rho * o.key_dot_value) * m.squares,
        rho**2 * m.sum_sq,
    ]
    return float(np.sum(terms)), ROUNDING * float(np.sum(np.abs(terms)))

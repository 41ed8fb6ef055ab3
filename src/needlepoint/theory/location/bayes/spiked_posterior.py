"""Means over the posterior of the place when key and value are known in part, on spiked tokens of any length.

Given the label the tokens are independent, so that a power of 1 / sum of their weights is an integral over u of
products, as in `moments.kernels`: tables over (u, label) serve every length, and all terms are positive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from needlepoint.core.errors import NoTheory
from needlepoint.models.activations import Softmax
from needlepoint.numerics.gaussian import lattice, trapezoid_rule
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.location.bayes.accuracy import ACCURACY
from needlepoint.theory.location.moments import kernels as kernel_moments

REACH = 9.0
"""Integrals over a normal variable go to this many standard deviations on either side."""

SMALLEST = 1e-5
"""Least value overlap q_v: below it the lattice that resolves the spread of zeta does not fit into memory."""


class FieldMeans(NamedTuple):
    r"""$E|g_k|^2$ and $E|g_v|^2$ of the scores of one sequence, $E\log Z$ of its evidence, and $E|\sigma|^2$ of the
    place without the label; arrays (rows,), a row for each scrambling (one where nothing is sampled)."""

    key: np.ndarray
    value: np.ndarray
    log_evidence: np.ndarray
    weights_sq: np.ndarray


class PosteriorMeans(NamedTuple):
    r"""$E\sum\pi_l^2$, $E\sum\pi_l^2\zeta_l^2$ with $\zeta_l = (y - w_{z,l})/\sqrt T$, and
    $E\log\sum_le^{\sqrt\mu w_{\chi,l} - \zeta_l^2/2}$."""

    squares: float
    residuals: float
    log_sum: float


def field_means(task: SpikedSLR, q: np.ndarray, final: bool) -> FieldMeans:
    r"""eq:spiked-scores. Return the means over one sequence at overlaps q = (q_k, q_v), arrays (1,).

    $E|g_k|^2 = \mu E\sum\pi_l^2$, $E|g_v|^2 = \frac1TE\sum\pi_l^2\zeta_l^2$ and $Z = \frac1L\sum_le^{\sqrt\mu
    w_{\chi,l} - \mu q_k/2}N(y; w_{z,l}, T)$. Steps are twice as wide unless `final`. Without the label the place is
    softmax attention with key $\sqrt\mu\hat k$.
    """
    snr, law, (key, value) = task.snr, task.length_law, map(float, q)
    T = task.noise_var + 1.0 - value
    means = posterior_means(snr, law, task.noise_var, key, value, 1.0 if final else 2.0)
    evidence = means.log_sum - sum(p * math.log(n) for n, p in law) - snr * key / 2 - 0.5 * math.log(2 * math.pi * T)
    place = kernel_moments.spiked(task, lambda x: Softmax.log_kernel(x, np), math.sqrt(snr) * key, snr * key)
    assert place is not None  # softmax has tables at these norms
    found = snr * means.squares, means.residuals / T, evidence, place.weight_sq + place.others_sq
    return FieldMeans(*(np.array([x]) for x in found))


def posterior_means(
    snr: float, law: Sequence[tuple[int, float]], noise_var: float, key: float, value: float, coarseness: float = 1.0
) -> PosteriorMeans:
    r"""eq:posterior-means. Return the means over the posterior of the place, averaged over the law of lengths.

    $\pi_l\propto\exp(\sqrt\mu w_{\chi,l})N(y; w_{z,l}, T)$ at overlaps $q_k, q_v$, by $\psi_{j,a}(u, y) =
    E[\zeta^a(e^uw)^je^{-e^uw}|y]$ of a token that is not relevant and the same of the relevant one.
    """
    if value < SMALLEST:
        raise NoTheory(f"no integrals for a value overlap of {value:.2g}; from {SMALLEST:g} on: take a larger alpha.")
    # notation: T variance of the label given the value field, s2 = mu q_k variance of a log-weight, spread that of zeta
    T = noise_var + 1.0 - value
    s2, total = snr * key, 1.0 + noise_var
    s, spread = math.sqrt(s2), math.sqrt(value / T)
    longest = max(n for n, _ in law)
    low, high = -(s2 + REACH * s) - 38.0 - math.log(longest), REACH**2 / 2 + REACH * s + 5.0
    u = lattice(low, high, coarseness * ACCURACY.u_step)
    step_u = u[1] - u[0]
    # zeta goes as far as the weight of a token may exceed e^-u; its step resolves the steepest weight and its own law
    farthest = min(
        math.sqrt(2 * (high + s2 + REACH * s + 38.0)), REACH * (math.sqrt(total) + math.sqrt(value)) / math.sqrt(T)
    )
    zeta = lattice(0.0, farthest, coarseness * min(0.35 / farthest, 0.25 * spread, 0.25))
    y = lattice(0.0, REACH * math.sqrt(total), coarseness * 0.2 * min(1.0, max(math.sqrt(value), 0.15 * math.sqrt(T))))
    weight_y = np.exp(-(y**2) / (2 * total))
    weight_y[0] /= 2  # the integrand is even in y
    weight_y /= weight_y.sum()
    other = _density(zeta, y[:, None] / math.sqrt(T), spread)
    mean, deviation = y[:, None] * math.sqrt(T) / (value + T), math.sqrt(value / (value + T))
    relevant = _density(zeta, mean, deviation)
    # tokens with zeta outside the lattice have no weight
    rest = np.clip(1.0 - other.sum(axis=1), 0.0, 1.0)
    table = _powers(s, coarseness)
    at = np.subtract.outer(u, zeta**2 / 2)
    kept, squares = _parts(table(at))
    none, twice, far = kept @ other.T + rest, squares @ other.T, (squares * zeta**2) @ other.T
    kept, squares = _parts(table(at + s2))
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


def _density(zeta: np.ndarray, mean: np.ndarray, deviation: float) -> np.ndarray:
    """Return a normal law on the lattice zeta >= 0, (y, zeta), both signs added: all that counts is zeta^2."""
    both = np.exp(-(((zeta - mean) / deviation) ** 2) / 2) + np.exp(-(((zeta + mean) / deviation) ** 2) / 2)
    both[:, 0] /= 2
    return (zeta[1] - zeta[0]) * both / (math.sqrt(2 * math.pi) * deviation)


def _parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ascontiguousarray(np.real(x)), np.ascontiguousarray(np.imag(x))  # for fast matrix products


def _powers(s: float, coarseness: float) -> Table:
    r"""Return the table of $t\mapsto E[e^{-e^{t + sg}}] + iE[e^{2(t + sg)}e^{-e^{t + sg}}]$: one look-up gives both."""
    step = coarseness * ACCURACY.table
    low, high = -42.0 - REACH * s, 7.0 + REACH * s  # below, e^t is negligible; above, its exponential is
    t = lattice(low, high, step)
    # in proportion to s, so that s g has fine steps, but no more than fit into memory
    nodes = min(math.ceil(max(2.0, s) / coarseness) * ACCURACY.nodes, max(64, ACCURACY.largest // len(t)))
    g, w = trapezoid_rule(nodes) if s > 0 else (np.zeros(1), np.ones(1))
    x = np.exp(t)[:, None] * np.exp(s * g)
    moment = [np.exp(-np.minimum(x, 800.0))]
    for _ in range(3):
        moment.append(x * moment[-1])
    kept, once, twice, thrice = (m @ w for m in moment)
    # derivatives in t: m_j' = j m_j - m_(j+1)
    return Table(low, step, kept + 1j * twice, -once + 1j * (2 * twice - thrice))


@dataclass(frozen=True)
class Table:
    """A function, interpolated by cubics from its values and slopes on a lattice; constant beyond its ends."""

    low: float
    step: float
    value: np.ndarray
    slope: np.ndarray

    def __call__(self, t: np.ndarray) -> np.ndarray:
        place = np.clip((t - self.low) / self.step, 0.0, len(self.value) - 1.000001)
        i = place.astype(np.int64)
        x = place - i
        a, b, c, d = self.value[i], self.value[i + 1], self.step * self.slope[i], self.step * self.slope[i + 1]
        return a + x * (c + x * (3 * (b - a) - 2 * c - d + x * (2 * (a - b) + c + d)))

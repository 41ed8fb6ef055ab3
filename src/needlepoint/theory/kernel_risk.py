"""Normalised-kernel attention (softmax, softplus) on spiked tokens: its risk at any length."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.models.activations import KernelActivation
from needlepoint.tasks.single_location import SpikedSLR

REACH = 9.5  # standard deviations of a score that are integrated over
_TABLE = 20_000_000  # largest number of (u, score) pairs; beyond it the kernel is too steep for this route

LogKernel = Callable[[np.ndarray], np.ndarray]


def excess_risk(task: SpikedSLR, activation: type[KernelActivation], overlaps: Overlaps) -> Estimate:
    """eq:kernel-risk over the law of lengths; the error is the change when every step is doubled."""

    def log_kernel(scores: np.ndarray) -> np.ndarray:
        return activation.log_kernel(scores, np)

    value, coarse = (_mixed(task, log_kernel, overlaps, step) for step in (1.0, 2.0))
    terms = task.snr * overlaps.value_on_key**2 + task.relevant_std**2 + overlaps.value_sq
    return Estimate(value, abs(value - coarse) + 64 * np.finfo(float).eps * (abs(value) + terms))


def _mixed(task: SpikedSLR, log_kernel: LogKernel, overlaps: Overlaps, coarseness: float) -> float:
    step, relevant, other = token_transforms(task, log_kernel, overlaps, coarseness)
    return sum(p * _risk_at_length(task, overlaps, n, step, relevant, other) for n, p in task.length_law)


def token_transforms(
    task: SpikedSLR, log_kernel: LogKernel, overlaps: Overlaps, coarseness: float
) -> tuple[float, np.ndarray, np.ndarray]:
    r"""eq:kernel-moments. $\psi_{j,a}(u) = E[\xi^aT^je^{-T}]$, $T = e^uw(\chi)$, $j, a = 0, 1, 2$, for the relevant
    token ($\chi = m\kappa + \xi$, $\xi\sim N(0, \gamma^2q_k)$) and another one ($\chi = \xi\sim N(0, q_k)$).

    Step in u and two arrays (j, a, u). Trapezoid rules in the score and in u are exact to rounding for smooth
    kernels; positive terms only, so that small masses keep their digits.
    """
    m, norm, gamma = math.sqrt(task.snr), math.sqrt(overlaps.key_sq), task.relevant_std
    steepness = norm * max(1.0, gamma)
    x = np.arange(-REACH, REACH, coarseness * min(0.1, 0.25 / max(steepness, 1e-300)))
    weights = (x[1] - x[0]) * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    log_w = [log_kernel(m * overlaps.key + gamma * norm * x), log_kernel(norm * x)]
    longest = max(n for n, _ in task.length_law)
    step = 0.2 * coarseness
    low = -max(float(w.max()) for w in log_w) - 38.0 - math.log(longest)
    high = -min(float(w.min()) for w in log_w) + 5.0
    if (high - low) / step * len(x) > _TABLE:
        return math.nan, np.ones((3, 3, 1)), np.ones((3, 3, 1))
    u = np.arange(low, high, step)
    moments = []
    for log_weight, std in zip(log_w, (gamma, 1.0), strict=True):
        powers = np.stack([weights * (std * norm * x) ** a for a in range(3)], axis=1)
        t = np.exp(np.minimum(u[:, None] + log_weight, 700.0))
        survive = np.exp(-t)
        moments.append(np.stack([(t**j * survive) @ powers for j in range(3)]).transpose(0, 2, 1))
    return step, moments[0], moments[1]


def _risk_at_length(
    task: SpikedSLR, overlaps: Overlaps, length: int, step: float, r: np.ndarray, p: np.ndarray
) -> float:
    r"""eq:kernel-risk. eq:field-risk with every mean of weights an integral over $u$: $E[g\sigma_l] = \int du\,E[gT_l
    e^{-\sum T}]$ and $E[g\sigma_l\sigma_m] = \int du\,E[gT_lT_me^{-\sum T}]$, which factorise over tokens.
    """
    # notation: r and p as in eq:kernel-moments; n other tokens; a = eta / q_k, b = rho / q_k
    n, G, m_theta = length - 1, task.relevant_std**2, math.sqrt(task.snr) * overlaps.value_on_key
    empty = np.clip(p[0, 0], 0.0, 1.0)
    all_others, but_one = empty**n, empty ** max(n - 1, 0)
    but_two = empty ** max(n - 2, 0)

    def mean(integrand: np.ndarray) -> float:
        return step * float(np.sum(integrand))

    weight = mean(r[1, 0] * all_others)
    weight_xi = mean(r[1, 1] * all_others)
    xi_mu = mean(r[1, 2] * all_others + n * r[0, 1] * p[1, 1] * but_one)
    weight_sq = mean(r[2, 0] * all_others)
    others_sq = mean(n * p[2, 0] * r[0, 0] * but_one)
    weight_mu = mean(r[2, 1] * all_others + n * r[1, 0] * p[1, 1] * but_one)
    mu_sq = mean(
        r[2, 2] * all_others
        + n * (p[2, 2] * r[0, 0] + 2 * r[1, 1] * p[1, 1]) * but_one
        + n * (n - 1) * p[1, 1] ** 2 * r[0, 0] * but_two
    )
    key_sq, eta, rho = overlaps.key_sq, overlaps.key_on_value, overlaps.key_dot_value
    a, b = (eta / key_sq, rho / key_sq) if key_sq > 0 else (0.0, 0.0)
    k11, k12, k22 = 1 - eta * a, overlaps.value - rho * a, overlaps.value_sq - rho * b
    residual = a * a * G * key_sq - 2 * a * (b * xi_mu + m_theta * weight_xi)
    residual += b * b * mu_sq + 2 * b * m_theta * weight_mu + m_theta**2 * weight_sq
    return residual + G * (k11 - 2 * k12 * weight) + k22 * (G * weight_sq + others_sq)

"""The Bayes risk at given teachers by Mellin transforms: e^-T = (1/2 pi i) int Gamma(s) T^-s ds.

A token's log-likelihood ratio is a quadratic form of Gaussian numbers, so that its moments E w^-s are closed at every
complex s, and each transform of the formula 1/W = int exp(-t W) dt is a one-dimensional Fourier integral.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

import needlepoint as ndl

Moment = Callable[[np.ndarray], np.ndarray]
"""log E[... w^-s] at complex s."""


def transform(moment: Moment, power: int, c: float, u: np.ndarray, step: float) -> np.ndarray:
    """E[... T^power e^-T] with T = e^u w, along Re s = c; for power 0 and c < 0 the pole at s = 0 is passed: the
    result is then E[... (e^-T - 1)]."""
    half = np.arange(0.0, 40.0, step)
    log_terms = special.loggamma(c + 1j * half + power) + moment(c + 1j * half)
    kept = log_terms.real > log_terms[0].real - 45.0
    half, log_terms = half[kept], log_terms[kept]
    weights = np.where(half == 0, 0.5, 1.0) * np.exp(log_terms - log_terms[0].real)
    found = [np.real(np.exp(-1j * np.outer(part, half)) @ weights) for part in np.array_split(u, 1 + len(u) // 1000)]
    return np.concatenate(found) * step / math.pi * np.exp(log_terms[0].real - c * u)


def spiked_moments(task: ndl.SpikedSLR, d: int) -> tuple[Moment, Moment]:
    """log E w^-s of another token, and log E (v*.x)^2 w^-s of the relevant one, w = e^l as in the definition of l."""
    G, m = task.relevant_std**2, math.sqrt(task.snr)

    def other(s: np.ndarray) -> np.ndarray:
        A = 1 + s * (1 - 1 / G)
        return -d / 2 * np.log(A) + s * m * m / (2 * G) + (s * m / G) ** 2 / (2 * A)

    def relevant(s: np.ndarray) -> np.ndarray:
        A = 1 - s * (1 - G)
        return math.log(G) - (d + 2) / 2 * np.log(A) - s * m * m / 2 + G * (s * m) ** 2 / (2 * A)

    return other, relevant


def spiked_bayes(task: ndl.SpikedSLR, d: int) -> tuple[float, float]:
    """The Bayes excess risk at dimension d."""
    other, relevant = spiked_moments(task, d)
    wide, narrow = (f(math.sqrt(curvature(other, -0.5)), math.sqrt(curvature(relevant, 0.5))) for f in (max, min))
    reach = 60.0 + math.log(task.longest) + 14 * wide

    def at(step: float) -> float:
        du = step * 0.2 * max(1.0, narrow / 3)
        u = np.arange(-reach, reach, du) - mean_log(other)
        dw = step * math.pi / (2 * reach + 10)
        pair = transform(other, 1, -0.5, u, dw) * transform(relevant, 0, 0.5, u, dw)
        miss = np.clip(-transform(other, 0, -0.5, u, dw), 0.0, 1 - 1e-15)
        return sum(
            share * (n - 1) * du * float(np.sum(pair * np.exp((n - 2) * np.log1p(-miss))))
            for n, share in task.length_law
            if n > 1
        )

    fine, coarse = at(1.0), at(1.3)
    # phases are rounded, and their errors grow like the root of the length
    return fine, abs(fine - coarse) + 1e-14 * math.sqrt(10 + task.longest) * abs(fine)


def mean_log(moment: Moment) -> float:
    """The mean of log w of another token under the law tilted half way: where ties are."""
    up, down = (float(np.real(moment(np.array([-0.5 + h + 0j]))[0])) for h in (1e-4, -1e-4))
    return -(up - down) / 2e-4


def curvature(moment: Moment, at: float) -> float:
    """The variance of log w under the law tilted to `at`."""
    values = [float(np.real(moment(np.array([at + x + 0j]))[0])) for x in (1e-3, 0.0, -1e-3)]
    return max(0.0, (values[0] - 2 * values[1] + values[2]) / 1e-6)


def max_bayes(task: ndl.MaxSLR) -> tuple[float, float]:
    """L (L - 1) int du E[T e^-T]^2 E[e^-T]^(L - 2), T = e^(u + snr chi)."""
    if math.isinf(task.snr):
        return 0.0, 0.0
    mu = task.snr

    def moment(s: np.ndarray) -> np.ndarray:
        return (s * mu) ** 2 / 2

    reach = 45.0 + 10 * mu + math.log(task.longest)
    past = -min(0.5, 1 / mu if mu > 0 else 0.5)

    def at(step: float) -> float:
        du = step * 0.2 * max(1.0, mu / 4)
        u = np.arange(-reach, reach, du)
        dw = step * min(math.pi / (2 * reach + 10), -past / 8)
        one = transform(moment, 1, 0.0, u, dw)
        miss = np.clip(-transform(moment, 0, past, u, dw), 0.0, 1 - 1e-15)
        return sum(
            share * n * (n - 1) * du * float(np.sum(one**2 * np.exp((n - 2) * np.log1p(-miss))))
            for n, share in task.length_law
            if n > 1
        )

    fine, coarse = at(1.0), at(1.2)
    # phases are rounded, and their errors grow like the root of the length
    return fine, abs(fine - coarse) + 1e-14 * math.sqrt(10 + task.longest) * abs(fine)

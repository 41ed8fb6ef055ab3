"""Normalised kernels, with or without a sink, by 1/W = int exp(-t W) dt on Gauss-Legendre panels.

The weights are w(chi_l) / (sink + sum_j w(chi_j)). For the max task the place is written in the same way, so that a
token enters by T = e^u w(chi) and S = e^(v + snr x); at an infinite snr S is a step, and its mean a running integral.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.honesty.references.means import MaxMeans, SpikedMeans, max_risk, spiked_risk
from benchmarks.honesty.references.panels import legendre, line, normal_density

import needlepoint as ndl

REACH = 9.0
LOW = 36.0  # e-folds below which a weight is nothing
_BLOCK = 20_000_000

LogKernel = Callable[[np.ndarray], np.ndarray]


def log_kernel_of(activation: Any) -> tuple[LogKernel, float]:
    """The logarithm of w, and the sink."""
    if isinstance(activation, ndl.Softmax):
        return lambda x: x, 0.0
    if isinstance(activation, ndl.Softplus):
        # log log(1 + e^x); far left log(1 + e^x) is e^x (1 - e^x / 2)
        return lambda x: np.where(
            x < -15, x - np.exp(np.minimum(x, 0)) / 2, np.log(np.logaddexp(0.0, np.maximum(x, -15)))
        ), 0.0
    assert type(activation).__name__ == "sink_softmax"
    return lambda x: x, 1.0


def _u_line(low: float, high: float, sink: float, width: float) -> tuple[np.ndarray, np.ndarray]:
    """u = log t between the logarithms of the largest and the least kernel; a sink ends it at e^u = 40."""
    top = -low + 5.0 if sink == 0 else min(-low + 5.0, 4.0)
    return line(-high - LOW, max(top, -high), width)


def spiked_means(task: ndl.SpikedSLR, activation: Any, key: float, key_sq: float, fine: float) -> SpikedMeans:
    """The seven means, averaged over lengths; `fine` scales the widths of all panels."""
    log_w, sink = log_kernel_of(activation)
    tau, shift = math.sqrt(key_sq), math.sqrt(task.snr) * key
    width = fine * min(1.5, 2.0 / max(tau, 1e-9))
    z, weight = line(-REACH, REACH, width)
    zr, weight_r = line(-REACH, REACH, min(width, fine * 2.0 / max(tau * task.relevant_std, 1e-9)))
    other, relevant = log_w(tau * z), log_w(shift + tau * task.relevant_std * zr)
    most = math.log(max(n for n, _ in task.length_law))
    low, high = min(other.min(), relevant.min()), max(other.max(), relevant.max()) + most
    u, du = _u_line(low, high, sink, fine * 2.0)
    p = _transforms(u, other, z, weight * normal_density(z), tau)
    r = _transforms(u, relevant, zr, weight_r * normal_density(zr), tau * task.relevant_std)
    damp = du * np.exp(-sink * np.exp(np.minimum(u, 700)))
    total = np.zeros(7)
    log_p = np.where(p["miss"] < 0.5, np.log1p(-np.minimum(p["miss"], 0.5)), np.log(np.maximum(p[0, 0], 1e-300)))
    for length, share in task.length_law:
        n = length - 1

        def power(k: int) -> np.ndarray:
            return np.exp(k * log_p)

        parts = [
            r[1, 0] * power(n),
            r[1, 1] * power(n),
            r[1, 2] * power(n) + (n * r[0, 1] * p[1, 1] * power(n - 1) if n else 0.0),
            r[2, 0] * power(n),
            n * p[2, 0] * r[0, 0] * power(n - 1) if n else np.zeros_like(u),
            r[2, 1] * power(n) + (n * r[1, 0] * p[1, 1] * power(n - 1) if n else 0.0),
            r[2, 2] * power(n)
            + (n * (p[2, 2] * r[0, 0] + 2 * r[1, 1] * p[1, 1]) * power(n - 1) if n else 0.0)
            + (n * (n - 1) * p[1, 1] ** 2 * r[0, 0] * power(n - 2) if n > 1 else 0.0),
        ]
        total += share * np.array([float(damp @ x) for x in parts])
    return SpikedMeans(*total)


def _transforms(u: np.ndarray, log_w: np.ndarray, z: np.ndarray, weight: np.ndarray, tau: float) -> Any:
    """E[xi^a T^j e^-T] at every u, keyed (j, a), and miss = 1 - E e^-T."""
    found: dict[Any, list[np.ndarray]] = {}
    xi = tau * z
    columns = np.stack([weight, weight * xi, weight * xi**2], axis=1)
    for block in np.array_split(u, max(1, len(u) * len(z) // _BLOCK)):
        T = np.exp(np.minimum(block[:, None] + log_w, 300.0))
        keep = np.exp(-T)
        for j in range(3):
            means = (T**j * keep) @ columns if j else keep @ columns
            for a in range(3):
                found.setdefault((j, a), []).append(means[:, a])
        # E xi e^-T = E xi (e^-T - 1): the mean of xi alone is zero
        gone = -np.expm1(-T) @ columns
        found.setdefault("miss", []).append(gone[:, 0])
        found[0, 1][-1] = -gone[:, 1]
    return {k: np.concatenate(v) for k, v in found.items()}


def spiked(task: ndl.SpikedSLR, activation: Any, o: ndl.Overlaps) -> tuple[float, float]:
    """The excess risk and its error: the change under wider panels, and rounding."""
    (fine, rounding), (coarse, _) = (
        spiked_risk(task, spiked_means(task, activation, o.key, o.key_sq, step), o) for step in (1.0, 1.25)
    )
    long = 4e-16 * task.longest
    return fine, abs(fine - coarse) + rounding + long


def bayes(task: Any, fine: float) -> float:
    """The Bayes excess risk with known teachers at relevant_std=1: E sum over the wrong places of their posterior, by
    positive terms and 1 - E e^-T, so that long sequences keep their digits."""
    spiked = isinstance(task, ndl.SpikedSLR)
    tau = math.sqrt(task.snr) if spiked else task.snr
    # ties tilt both laws towards each other: far more than nine standard deviations count at a large snr
    far = REACH + (tau if spiked else 0.0)
    z, weight = line(-far, far, fine * min(1.2, 1.6 / max(tau, 1e-9)))
    weight = weight * normal_density(z)
    most = math.log(task.longest)
    u, du = _u_line(-far * tau, far * tau + (task.snr if spiked else 0.0) + most, 0.0, fine * 1.6)
    p = _transforms(u, tau * z, z, weight, tau)
    r = _transforms(u, tau * (z + tau), z, weight, tau) if spiked else p
    log_p = np.where(p["miss"] < 0.5, np.log1p(-np.minimum(p["miss"], 0.5)), np.log(np.maximum(p[0, 0], 1e-300)))
    total = 0.0
    for length, share in task.length_law:
        n = length - 1
        if n and spiked:
            total += share * n * float(du @ (p[1, 0] * r[0, 0] * np.exp((n - 1) * log_p)))
        elif n:
            total += share * length * n * float(du @ (p[1, 0] ** 2 * np.exp((n - 1) * log_p)))
    return total


# --- the max task -------------------------------------------------------------------------------


def max_means(task: ndl.MaxSLR, activation: Any, o: ndl.Overlaps, fine: float) -> MaxMeans:
    log_w, sink = log_kernel_of(activation)
    key, s = o.key, math.sqrt(max(o.key_sq - o.key**2, 0.0))
    sharp = 1.0 if math.isinf(task.snr) else task.snr
    width = fine * min(1.5, 2.0 / max(abs(key), 1e-9), 2.0 / max(sharp, 1e-9))
    x, wx = line(-REACH, REACH, width)
    g, wg = line(-REACH, REACH, fine * min(1.5, 2.0 / max(s, 1e-9)))
    wx, wg = wx * normal_density(x), wg * normal_density(g)
    if s == 0:  # the score does not know g
        g, wg = np.zeros(1), np.ones(1)
    score = key * x[:, None] + s * g
    lw = log_w(score)
    most = math.log(task.longest)
    u, du = _u_line(float(lw.min()), float(lw.max()) + most, sink, fine * 2.0)
    du = du * np.exp(-sink * np.exp(np.minimum(u, 700)))
    B = _given_x(u, lw, g, wg)  # (i, b) -> (u, x)
    slower, wins, dv = _place(task.snr, x, wx, fine, most)  # (v, x) each, weights of v
    total = np.zeros(5)
    psi = {
        "wins_10": B[1, 0] @ wins.T,
        "wins_1x1": (B[1, 1] * x) @ wins.T,
        "wins_12": B[1, 2] @ wins.T,
        "wins_01": B[0, 1] @ wins.T,
        "slow_1x": (B[1, 0] * x) @ slower.T,
        "slow_11": B[1, 1] @ slower.T,
        "slow_00": B[0, 0] @ slower.T,
    }
    plain = {k: B[k] @ wx for k in B}
    chi = key * x
    plain_11 = (B[1, 0] * chi + s * B[1, 1]) @ wx
    plain_22 = (B[2, 0] * chi**2 + 2 * s * chi * B[2, 1] + s * s * B[2, 2]) @ wx
    log_p = np.log(np.maximum(plain[0, 0], 1e-300))
    log_slow = np.log(np.maximum(psi["slow_00"], 1e-300))
    weights = du[:, None] * dv
    for L, share in task.length_law:
        n = L - 1
        one, two = np.exp(n * log_slow), np.exp((n - 1) * log_slow) * n if n else 0.0
        winner = L * float(np.sum(weights * psi["wins_10"] * one))
        g_x = L * float(np.sum(weights * (psi["wins_1x1"] * one + psi["wins_01"] * psi["slow_1x"] * two)))
        g_g = L * float(np.sum(weights * (psi["wins_12"] * one + psi["wins_01"] * psi["slow_11"] * two)))
        if task.snr == 0:  # any place is as likely, which _place leaves to be said here
            winner, g_x, g_g = winner / L, g_x / L, g_g / L
        squares = L * float(du @ (plain[2, 0] * np.exp(n * log_p)))
        pair = n * plain_11**2 * np.exp((n - 1) * log_p) if n else 0.0
        sums = L * float(du @ (plain_22 * np.exp(n * log_p) + pair))
        total += share * np.array([winner, g_x, g_g, squares, sums])
    return MaxMeans(*total)


def _given_x(u: np.ndarray, lw: np.ndarray, g: np.ndarray, wg: np.ndarray) -> Any:
    """E_g[g^b T^i e^-T] at every (u, x)."""
    columns = np.stack([wg, wg * g, wg * g * g], axis=1)
    found: dict[Any, list[np.ndarray]] = {}
    for block in np.array_split(u, max(1, len(u) * lw.size // _BLOCK)):
        T = np.exp(np.minimum(block[:, None, None] + lw, 300.0))
        keep = np.exp(-T)
        means = {0: keep @ columns, 1: (T * keep) @ columns, 2: (T * T * keep) @ columns}
        for i in range(3):
            for b in range(3):
                found.setdefault((i, b), []).append(means[i][..., b])
    return {k: np.concatenate(v) for k, v in found.items()}


def _place(
    snr: float, x: np.ndarray, wx: np.ndarray, fine: float, most: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows over v that integrate a function of x: tokens that are slower, the token that wins; and weights of v."""
    if snr == 0.0:
        return wx[None], wx[None], np.ones(1)
    if math.isinf(snr):
        # the utility is x itself, on the same panels: slower is a running integral of each panel's polynomial
        nodes = legendre(12)[0]
        run = _running(nodes)
        count = len(x) // 12
        slower = np.zeros((len(x), len(x)))
        half = np.repeat(np.diff(_ends(x)) / 2, 12)
        for i in range(count):
            rows = slice(12 * i, 12 * i + 12)
            slower[rows, : 12 * i] = wx[: 12 * i]
            slower[rows, rows] = run * half[rows][0] * normal_density(x[rows])
        return slower, np.diag(normal_density(x)), wx / normal_density(x)
    v, dv = line(-snr * REACH - most - LOW, snr * REACH + 5.0, fine * 2.0)
    S = np.exp(np.minimum(v[:, None] + snr * x, 300.0))
    return np.exp(-S) * wx, S * np.exp(-S) * wx, dv


def _ends(x: np.ndarray) -> np.ndarray:
    nodes = legendre(12)[0]
    first, last = x[0::12], x[11::12]
    half = (last - first) / (nodes[-1] - nodes[0])
    middle = (first + last) / 2
    return np.append(middle - half, middle[-1] + half[-1])


def _running(nodes: np.ndarray) -> np.ndarray:
    """Integrals from -1 to each node of the polynomials that are 1 at one node and 0 at the others."""
    V = np.polynomial.legendre.legvander(nodes, len(nodes) - 1)
    P = np.polynomial.legendre.legvander(nodes, len(nodes))
    k = np.arange(1, len(nodes))
    integral = np.empty_like(V)
    integral[:, 0] = nodes + 1
    integral[:, 1:] = (P[:, k + 1] - P[:, k - 1]) / (2 * k + 1)
    return integral @ np.linalg.inv(V)


def maximal(task: ndl.MaxSLR, activation: Any, o: ndl.Overlaps) -> tuple[float, float]:
    """The excess risk and its error."""
    (fine, rounding), (coarse, _) = (max_risk(max_means(task, activation, o, step), o) for step in (1.0, 1.25))
    return fine, abs(fine - coarse) + rounding + 4e-15 * task.longest

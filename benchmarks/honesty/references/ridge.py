"""The ridge equations again: other points, sixteen times as many, and proximal maps by halving or by a dense scan."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from benchmarks.honesty.references.kernels import max_means, spiked_means
from benchmarks.honesty.references.max_elementwise import means as max_elementwise_means
from benchmarks.honesty.references.means import SpikedMeans
from scipy import special
from scipy.stats import qmc

import needlepoint as ndl

SETTLED = 1e-2
"""Largest step of the map, in any coordinate, at a point that counts as found; other points leave less."""

NAMES = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")


class Fields(NamedTuple):
    """Standard normals of one scrambling: label, values, scores, key fields of the max task; and weights."""

    label: np.ndarray
    values: np.ndarray
    scores: np.ndarray
    keys: np.ndarray
    weight: np.ndarray


def fields(task: Any, length: int, log2: int, seed: int) -> Fields:
    most = isinstance(task, ndl.MaxSLR)
    dims = 1 + 2 * length + (length if most else 0)
    u = qmc.Sobol(dims, scramble=True, rng=np.random.default_rng(seed)).random_base2(log2)
    z = special.ndtri(np.clip(u, 1e-12, 1 - 1e-12)).T
    keys, weight = z[1 + 2 * length :], np.full(z.shape[1], 1.0)
    if most and math.isinf(task.snr):
        # the largest first, wherever it was: every sample counts
        first = np.argmax(keys, axis=0)
        keys = keys.copy()
        n = np.arange(keys.shape[1])
        keys[0], keys[first, n] = keys[first, n], keys[0].copy()
    elif most:
        weight = length * special.softmax(task.snr * keys, axis=0)[0]
    return Fields(z[0], z[1 : 1 + length], z[1 + length : 1 + 2 * length], keys, weight / weight.mean())


def linear_proximal(y: np.ndarray, wx: np.ndarray, wz: np.ndarray, Vk: float, Vv: float) -> tuple[np.ndarray, ...]:
    """chi, residual for 1 + chi: stationarity says S + w Z = S0 + ..., one increasing equation in w = rho r."""
    rho = math.sqrt(Vk * Vv)
    S0, Z0 = (1 + wx) / math.sqrt(Vk), wz / math.sqrt(Vv)
    plus, minus = ((S0 + Z0) ** 2).sum(axis=0) / 2, ((S0 - Z0) ** 2).sum(axis=0) / 2
    low, high = np.full_like(y, -1.0), np.full_like(y, 1.0)
    for _ in range(54):
        w = (low + high) / 2
        up = w - rho * y + rho**2 / 2 * (plus / (1 - w) ** 2 - minus / (1 + w) ** 2) > 0
        low, high = np.where(up, low, w), np.where(up, w, high)
    w = (low + high) / 2
    chi = math.sqrt(Vk) * (S0 + w * Z0) / (1 - w * w) - 1
    return chi, w / rho


def pair_proximal(y: np.ndarray, wx: np.ndarray, wz: np.ndarray, Vk: float, Vv: float) -> tuple[np.ndarray, ...]:
    """Softmax over two tokens: the difference of the scores on a dense scan, then Newton's method."""
    t0, a, b = wx[0] - wx[1], y - wz[1], wz[0] - wz[1]

    def height(t: np.ndarray) -> np.ndarray:
        s = special.expit(t)
        return (a - b * s) ** 2 / (2 * (1 + Vv * (1 - 2 * s * (1 - s)))) + (t - t0) ** 2 / (4 * Vk)

    best, lowest = t0.copy(), height(t0)
    reach = 2 * np.sqrt(Vk * lowest) + 1e-9  # beyond it the second term alone is larger
    for share in np.linspace(-1, 1, 81):
        t = t0 + share * reach
        h = height(t)
        best, lowest = np.where(h < lowest, t, best), np.minimum(h, lowest)
    step = reach / 40
    for _ in range(48):  # golden sections around the lowest
        left, right = best - step, best + step
        for t in (left, right):
            h = height(t)
            best, lowest = np.where(h < lowest, t, best), np.minimum(h, lowest)
        step = step * 0.6
    s = special.expit(best)
    move = (best - t0) / 2
    r = (a - b * s) / (1 + Vv * (1 - 2 * s * (1 - s)))
    return wx + np.stack([move, -move]), r


def weights(activation: Any, chi: np.ndarray) -> np.ndarray:
    return 1 + chi if isinstance(activation, ndl.Linear) else special.softmax(chi, axis=0)


def step(task: Any, activation: Any, learner: Any, length: int, x: np.ndarray, at: Fields) -> tuple[np.ndarray, float]:
    """The order parameters that these become, and the mean squared residual."""
    m_k, q_k, V_k, m_v, q_v, V_v = x
    alpha, noise = learner.alpha, task.noise_var
    most = isinstance(task, ndl.MaxSLR)
    y = math.sqrt(1 + noise) * at.label
    s_v, s_k = math.sqrt(q_v - m_v**2 / (1 + noise)), math.sqrt(q_k - m_k**2 if most else q_k)
    wz = np.concatenate([(m_v * y / (1 + noise) + s_v * at.values[0])[None], math.sqrt(q_v) * at.values[1:]])
    wx = s_k * at.scores
    if most:
        wx = wx + m_k * at.keys
    else:
        wx[0] += math.sqrt(task.snr) * m_k
    solve = linear_proximal if isinstance(activation, ndl.Linear) else pair_proximal
    chi, r = solve(y, wx, wz, V_k, V_v)
    g_k, g_v = (chi - wx) / V_k, r * weights(activation, chi)

    def mean(f: np.ndarray) -> float:
        return float(np.mean(at.weight * f))

    q_hat_k, q_hat_v = alpha * mean((g_k**2).sum(axis=0)), alpha * mean((g_v**2).sum(axis=0))
    V_hat_k = -alpha / s_k * mean((g_k * at.scores).sum(axis=0))
    V_hat_v = -alpha * mean(g_v[0] * at.values[0] / s_v + (g_v[1:] * at.values[1:]).sum(axis=0) / math.sqrt(q_v))
    m_hat_v = alpha / (1 + noise) * mean(g_v[0] * (y - m_v / s_v * at.values[0]))
    if most:
        m_hat_k = alpha * mean((g_k * at.keys).sum(axis=0)) + m_k * V_hat_k
    else:
        m_hat_k = alpha * math.sqrt(task.snr) * mean(g_k[0])
    r_k, r_v = learner.penalties
    new_k, new_v = 1 / (r_k + V_hat_k), 1 / (r_v + V_hat_v)
    new = np.array(
        [
            m_hat_k * new_k,
            (m_hat_k**2 + q_hat_k) * new_k**2,
            new_k,
            m_hat_v * new_v,
            (m_hat_v**2 + q_hat_v) * new_v**2,
            new_v,
        ]
    )
    return new, mean(r * r)


def coordinates(x: np.ndarray) -> np.ndarray:
    return np.array(
        [x[0], math.log(x[1] - x[0] ** 2), math.log(x[2]), x[3], math.log(x[4] - x[3] ** 2), math.log(x[5])]
    )


def order(c: np.ndarray) -> np.ndarray:
    return np.array(
        [c[0], c[0] ** 2 + math.exp(c[1]), math.exp(c[2]), c[3], c[3] ** 2 + math.exp(c[4]), math.exp(c[5])]
    )


def risk(task: Any, activation: Any, x: np.ndarray) -> float:
    """1 - 2 m_v A + q_v B with the means of the population risk's references."""
    m_k, q_k, _, m_v, q_v, _ = x
    if isinstance(activation, ndl.Linear):
        n = sum(p * (length - 1) for length, p in task.length_law)
        if isinstance(task, ndl.SpikedSLR):
            A, B = 1 + math.sqrt(task.snr) * m_k, (1 + math.sqrt(task.snr) * m_k) ** 2 + q_k + n * (1 + q_k)
        else:
            A, B = max_elementwise_means(task, activation, m_k, q_k, 1.2).winner, (n + 1) * (1 + q_k)
        return 1 - 2 * m_v * A + q_v * B
    if isinstance(task, ndl.SpikedSLR):
        found: SpikedMeans = spiked_means(task, activation, m_k, q_k, 1.2)
        return 1 - 2 * m_v * found.first + q_v * (found.first_sq + found.others_sq)
    most = max_means(task, activation, ndl.Overlaps(m_k, 0.0, key_sq=q_k), 1.4)
    return 1 - 2 * m_v * most.winner + q_v * most.squares


def fixed_point(task: Any, activation: Any, learner: Any, start: np.ndarray, log2: int, scramblings: int) -> Any:
    """(value, three standard errors) of each number, at the fixed point near the start; nothing if it is not found."""
    length = task.fixed_length
    c = coordinates(start)

    def map_of(c: np.ndarray, at: Fields) -> np.ndarray:
        return coordinates(step(task, activation, learner, length, order(c), at)[0])

    rough = [fields(task, length, min(14, log2), 900 + seed) for seed in range(4)]

    def pooled(c: np.ndarray) -> np.ndarray:
        return np.mean([map_of(c, at) for at in rough], axis=0)

    def inverse(c: np.ndarray, width: float) -> np.ndarray:
        here = pooled(c)
        J = np.stack([(pooled(c + h) - here) / width for h in width * np.eye(6)], axis=1)
        return np.linalg.inv(np.eye(6) - J)

    solve = inverse(c, 1e-3)
    newton = c + solve @ (pooled(c) - c)
    if not np.max(np.abs(pooled(newton) - newton)) < SETTLED:
        # where minima jump, slopes over so small a distance are noise: the plain map is followed, and they are wider
        for _ in range(60):
            c = c + 0.5 * (pooled(c) - c)
        if not np.max(np.abs(pooled(c) - c)) < SETTLED:
            return {}
        solve = inverse(c, 3e-2)
    ends: list[tuple[np.ndarray, float]] = []
    for _ in range(2):
        ends = []
        for seed in range(scramblings):
            at = fields(task, length, log2, 1000 + seed)
            new, train = step(task, activation, learner, length, order(c), at)
            ends.append((c + solve @ (coordinates(new) - c), train))
        c = np.mean([e for e, _ in ends], axis=0)
    rows = []
    r_k, r_v = learner.penalties
    for end, train in ends:
        x = order(end)
        energy = learner.alpha / 2 * train + r_k / 2 * x[1] + r_v / 2 * x[4]
        rows.append([risk(task, activation, x), train, energy, x[0], x[3], x[1], x[4]])
    names = ("excess_risk", "train_loss", "energy", "key", "value", "key_sq", "value_sq")
    values, spread = np.mean(rows, axis=0), 3 * np.std(rows, axis=0, ddof=1) / math.sqrt(scramblings)
    return {n: (float(v), float(e)) for n, v, e in zip(names, values, spread, strict=True)}

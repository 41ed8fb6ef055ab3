"""Learning from samples at its best, for up to two tokens, from derivatives of the free energy.

The library averages squared scores. Here E log Z is an integral over one or two Gaussian numbers, because the logarithm
of the ratio of two places' likelihoods is N(-s^2/2, s^2) given the rest; the scores follow from
d E log Z / d q = E |g|^2 / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.honesty.references.panels import around, line, normal_density, panels
from scipy import special

import needlepoint as ndl

REACH = 9.0
_TEN = ((1, 5 / 6), (2, -5 / 21), (3, 5 / 84), (4, -5 / 504), (5, 1 / 1260))


def derivative(f: Callable[[float], float], x: float, h: float) -> float:
    """Central differences of tenth order."""
    return sum(c * (f(x + k * h) - f(x - k * h)) for k, c in _TEN) / h


def _normal_line(width: float) -> tuple[np.ndarray, np.ndarray]:
    z, w = line(-REACH, REACH, width)
    return z, w * normal_density(z)


_STEEP = 1.5


def _mean(kind: str, s: float, b: np.ndarray, fine: float) -> np.ndarray:
    """E softplus(X - b), or E expit(X - b)^2, X ~ N(-s^2/2, s^2). Where the law is wide against the bend at b, the
    kink or the step is taken in closed form, and the bend in units of its own."""
    if s < _STEEP:
        z, w = _normal_line(fine * 1.5)
        y = -(s**2) / 2 + s * z - b[:, None]
        return (np.logaddexp(0.0, y) if kind == "softplus" else special.expit(y) ** 2) @ w
    over = (-(s**2) / 2 - b) / s  # the mean of X - b in its standard deviations
    half, w = line(0.0, 40.0, fine * 2.5)
    y, w = np.concatenate([-half[::-1], half]), np.concatenate([w[::-1], w])
    law = normal_density(y / s - over[:, None]) / s
    if kind == "softplus":
        return s * (over * special.ndtr(over) + normal_density(over)) + law @ (w * np.log1p(np.exp(-np.abs(y))))
    return special.ndtr(over) + law @ (w * (special.expit(y) ** 2 - (y > 0)))


class Spiked:
    """pi_2 = expit(X), X ~ N(-s^2/2, s^2) with s^2 = 2 snr q_k + 2 q_v h^2 / T; heat equations give derivatives."""

    def __init__(self, task: ndl.SpikedSLR, fine: float):
        self.task, self.fine = task, fine

    def squared(self, variance: np.ndarray) -> np.ndarray:
        """E expit(X)^2."""
        return np.array([_mean("square", math.sqrt(v), np.zeros(1), self.fine)[0] for v in variance])

    def scores(self, q_k: float, q_v: float) -> tuple[float, float]:
        mu, noise = self.task.snr, self.task.noise_var
        T = noise + 1 - q_v
        two = sum(p for n, p in self.task.length_law if n == 2)
        h, w = _h_line(math.sqrt(2 * q_v / T), self.fine)
        square = self.squared(2 * mu * q_k + 2 * q_v / T * h**2)
        key = mu * (1 - 2 * two * float(w @ square))
        return key, 1 / T - two * 2 * (1 + noise) / T**2 * float(w @ (h**2 * square))

    def risk(self, q_k: float, q_v: float) -> float:
        one = sum(p for n, p in self.task.length_law if n == 1)
        square = float(self.squared(np.array([2 * self.task.snr * q_k]))[0])
        # with the place drawn from its posterior E pi_2 = 2 E pi_1 pi_2, so that E pi_1 pi_2 = E pi_2^2
        return 1 - q_v * (one + (1 - one) * (1 - 2 * square))


def _h_line(c: float, fine: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of |h| with weights of both signs, fine where c |h| is of order one."""
    h, w = panels(around([(0.0, 1.0 / max(c, 1.0))], 0.0, REACH, fine * 1.0))
    return h, 2 * w * normal_density(h)


class Maximal:
    """E log Z = 2 E P(delta) log(P + (1 - P) e^X), X ~ N(-s^2/2, s^2), s^2 = 2 q_v h^2 / T, delta ~ N(0, 2 q_k)."""

    def __init__(self, task: ndl.MaxSLR, fine: float):
        self.task, self.fine = task, fine

    def chances(self, q_k: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows P(delta) and 1 - P at nodes of delta, and their weights."""
        rest, mu = math.sqrt(2 * (1 - q_k)), self.task.snr
        width = max(rest, 0.0 if math.isinf(mu) else 1.5 / max(mu, 1e-9)) / math.sqrt(2 * q_k)
        z, w = panels(around([(0.0, min(width, 1.0))], -REACH, REACH, self.fine * 1.5), 12)
        delta = math.sqrt(2 * q_k) * z
        if math.isinf(mu):
            high, low = special.ndtr(delta / rest), special.ndtr(-delta / rest)
        else:
            n, wn = _normal_line(self.fine * min(1.0, 2.5 / max(1e-9, mu * rest)))
            at = mu * (delta[:, None] + rest * n)
            high, low = special.expit(at) @ wn, special.expit(-at) @ wn
        return np.maximum(np.stack([high, low]), 1e-300), w * normal_density(z)

    def evidence(self, q_k: float, q_v: float) -> float:
        """But for what does not contain q_k."""
        (high, low), weight = self.chances(q_k)
        h, wh = _h_line(math.sqrt(2 * q_v / (self.task.noise_var + 1 - q_v)), self.fine)
        c = math.sqrt(2 * q_v / (self.task.noise_var + 1 - q_v))
        b = np.log(high) - np.log(low)
        bend = sum(w * _mean("softplus", c * x, b, self.fine) for x, w in zip(h, wh, strict=True))
        return float((weight * 2 * high) @ (np.log(high) + bend))

    def scores(self, q_k: float, q_v: float) -> tuple[float, float]:
        two = sum(p for n, p in self.task.length_law if n == 2)
        T, c = self.task.noise_var + 1 - q_v, math.sqrt(2 * q_v / (self.task.noise_var + 1 - q_v))
        # near q_k = 0 the evidence is almost linear in q_k, and short steps would only add rounding
        step = 0.012 * self.fine * min(q_k, 1 - q_k) if q_k > 0.01 else 0.15 * q_k
        key = 2 * derivative(lambda q: self.evidence(q, q_v), q_k, step)
        (high, low), weight = self.chances(q_k)
        b = np.log(high) - np.log(low)
        h, wh = _h_line(c, self.fine)
        square = sum(w * x * x * _mean("square", c * x, b, self.fine) for x, w in zip(h, wh, strict=True))
        off = 2 * (1 + self.task.noise_var) / T**2 * float((weight * 2 * high) @ square)
        return two * key, 1 / T - two * off

    def risk(self, q_k: float, q_v: float) -> float:
        one = sum(p for n, p in self.task.length_law if n == 1)
        (high, low), weight = self.chances(q_k)
        return 1 - q_v * (one + (1 - one) * (1 - 2 * float(weight @ (high * low))))


def fixed_point(task: Any, alpha: float, start: tuple[float, float], fine: float) -> dict[str, float]:
    """The fixed point near the start by Newton's method in log(q / (1 - q))."""
    means = Spiked(task, fine) if isinstance(task, ndl.SpikedSLR) else Maximal(task, fine)

    def residual(x: np.ndarray) -> np.ndarray:
        q = special.expit(x)
        return np.log(alpha * np.maximum(means.scores(*map(float, q)), 1e-300)) - x

    x = special.logit(np.array(start))
    for _ in range(2):
        r = residual(x)
        J = np.stack([(residual(x + h) - r) / 1e-4 for h in 1e-4 * np.eye(2)], axis=1)
        x = x - np.linalg.solve(J, r)
    q_k, q_v = map(float, special.expit(x))
    return {"key": q_k, "value": q_v, "excess_risk": means.risk(q_k, q_v)}

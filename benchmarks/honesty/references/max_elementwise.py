"""Element-wise attention on the max task: a mean over the score of the winner's chances given the score."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.honesty.references.means import MaxMeans, max_risk
from benchmarks.honesty.references.panels import around, line, normal_density, panels
from scipy import interpolate, special

import needlepoint as ndl

REACH = 9.0
_GUMBEL = (-4.2, 42.0)  # beyond these the law of the Gumbel variable is below 1e-18

Function = Callable[[np.ndarray], np.ndarray]


def sigma_of(activation: Any) -> tuple[Function, list[tuple[float, float]]]:
    """The activation, and where it turns: (score, width)."""
    if isinstance(activation, ndl.Erf):
        a, b, o = (float(x) for x in (activation.scale, activation.shift, activation.offset))  # type: ignore[arg-type]

        def sigma(x: np.ndarray) -> np.ndarray:
            t = a * x + b
            return np.where(t > 0, (o + 1) - special.erfc(np.abs(t)), (o - 1) + special.erfc(np.abs(t)))

        return sigma, [(-b / a, 1 / a)]
    if isinstance(activation, ndl.Linear):
        return lambda x: 1 + x, []
    return lambda x: 2 * special.expit(x), [(0.0, 1.0)]


def winner(task: ndl.MaxSLR, fine: float) -> Function:
    """W(x): how many of the tokens with key field x win, in the mean over the lengths; E W = 1."""
    law = task.length_law
    if task.snr == 0:
        return lambda x: np.ones_like(x)
    if math.isinf(task.snr):
        return lambda x: sum(p * n * np.exp((n - 1) * special.log_ndtr(x)) for n, p in law)  # type: ignore[return-value]
    mu = task.snr
    gumbel, weight = line(*_GUMBEL, fine * min(1.5, 1.5 * max(mu, 0.05)))
    weight = weight * np.exp(-gumbel - np.exp(-gumbel))
    slow = _slower(mu, fine)
    x = np.linspace(-REACH - 1, REACH + 1, round(700 / fine))
    y = x[:, None] + gumbel / mu
    log_slower = np.log1p(-np.exp(slow(y)))
    table = np.zeros_like(x)
    for n, p in law:
        table += p * n * np.exp((n - 1) * log_slower) @ weight
    return interpolate.make_interp_spline(x, table, k=7)


def _slower(mu: float, fine: float) -> Function:
    """log P(utility > y) of one token, utility = key field + Gumbel / snr."""
    step = 0.02 * max(1.0, 1 / mu) * fine
    y = np.arange(-12.0 + _GUMBEL[0] / mu, 11.0 + _GUMBEL[1] / mu, step)
    if mu > 0.5:
        g, w = line(*_GUMBEL, fine * min(1.0, mu))
        w = w * np.exp(-g - np.exp(-g))
        beyond = special.ndtr(g / mu - y[:, None]) @ w
    else:
        x, w = line(-12.0, 12.0, fine * 1.0)
        beyond = -np.expm1(-np.exp(np.minimum(mu * (x - y[:, None]), 300.0))) @ (w * normal_density(x))
    # at the low end the chance is 1 to rounding, and log1p of its negative must stay finite
    beyond = np.minimum(beyond, 1 - 1e-16)
    spline = interpolate.make_interp_spline(y, np.log(np.maximum(beyond, 1e-300)), k=7)
    return lambda at: np.minimum(spline(np.clip(at, y[0], y[-1])), -1e-16)


def means(task: ndl.MaxSLR, activation: Any, key: float, key_sq: float, fine: float) -> MaxMeans:
    sigma, turns = sigma_of(activation)
    tokens = sum(p * n for n, p in task.length_law)
    pairs = sum(p * n * (n - 1) for n, p in task.length_law)
    if key_sq == 0:
        w = float(sigma(np.zeros(1))[0])
        return MaxMeans(w, 0.0, w, tokens * w * w, 0.0)
    tau, s = math.sqrt(key_sq), math.sqrt(max(key_sq - key**2, 0.0))
    ends = around([(x / tau, w / tau) for x, w in turns], -REACH - 1, REACH + 1, fine * 1.0)
    unit, weight = panels(ends, 16)
    chi, weight = tau * unit, weight * normal_density(unit)
    z, wz = line(-REACH, REACH, fine * 1.0) if s > 0 else (np.zeros(1), np.ones(1))
    wz = wz * normal_density(z) if s > 0 else wz
    x = (key * chi / key_sq)[:, None] + s / tau * z
    g = (s * chi / key_sq)[:, None] - key / tau * z
    W = winner(task, fine)(np.clip(x, -REACH - 1, REACH + 1)) * wz
    out = sigma(chi) * weight
    return MaxMeans(
        float(out @ W.sum(axis=1)),
        float(out @ (W * g * x).sum(axis=1)),
        float(out @ (W * g * g).sum(axis=1)),
        tokens * float(weight @ sigma(chi) ** 2),
        tokens * float(weight @ (sigma(chi) * chi) ** 2) + pairs * float(out @ chi) ** 2,
    )


def maximal(task: ndl.MaxSLR, activation: Any, o: ndl.Overlaps) -> tuple[float, float]:
    """The excess risk and its error: the change under wider panels, and rounding."""
    (fine, rounding), (coarse, _) = (
        max_risk(means(task, activation, o.key, o.key_sq, step), o) for step in (1.0, 1.25)
    )
    return fine, 2 * abs(fine - coarse) + 2 * rounding

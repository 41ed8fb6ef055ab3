"""Element-wise attention on the spiked task in 40 digits: three means a token, conditioned on its score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from benchmarks.honesty.references.panels import DIGITS, Precise, around, precise_panels

import needlepoint as ndl

REACH = 14.0  # standard deviations; what is beyond is below 1e-42


def sigma_of(activation: Any) -> tuple[Callable[[Precise], Precise], list[tuple[float, float]]]:
    """The activation in many digits, and where it turns: (score, width)."""
    if isinstance(activation, ndl.Erf):
        scale, shift, offset = (float(x) for x in (activation.scale, activation.shift, activation.offset))  # type: ignore[arg-type]
        a, b, o = mp.mpf(scale), mp.mpf(shift), mp.mpf(offset)

        def sigma(x: Precise) -> Precise:
            at = a * x + b
            # 1 + erf of a negative number keeps its digits as erfc
            return (o + 1) - mp.erfc(at) if at > 0 else (o - 1) + mp.erfc(-at)

        return sigma, [(-shift / scale, 1 / scale)]
    if isinstance(activation, ndl.Linear):
        return lambda x: 1 + x, []
    return lambda x: 2 / (1 + mp.exp(-x)), [(0.0, 1.0)]


def token_means(
    activation: Any, shift: Precise, spread: Precise, o: dict[str, Precise], relevant: bool
) -> tuple[Precise, Precise, Precise]:
    """E[F], E[F^2], E[z* F] of F = sigma(score) (v . x), x = shift k* + spread Z."""
    sigma, turns = sigma_of(activation)
    q = o["key_sq"]
    tau = spread * mp.sqrt(q)
    along, on_label = (o["key_dot_value"] / q, o["key_on_value"] / q) if q > 0 else (mp.mpf(0), mp.mpf(0))
    m = shift * o["value_on_key"]
    rest = spread**2 * (o["value_sq"] - o["key_dot_value"] * along)
    common = spread**2 * (o["value"] - o["key_dot_value"] * on_label)
    if tau == 0:
        w = sigma(shift * o["key"])
        return w * m, w * w * (m * m + rest), w * common if relevant else mp.mpf(0)
    centre = float(shift * o["key"])
    ends = around([((x - centre) / float(tau), w / float(tau)) for x, w in turns], -REACH, REACH, 1.0)
    first = second = label = mp.mpf(0)
    for z, weight in precise_panels(ends):
        p = weight * mp.exp(-z * z / 2)
        w, xi = sigma(shift * o["key"] + tau * z), tau * z
        mean = m + along * xi
        first += p * w * mean
        second += p * w * w * (mean * mean + rest)
        label += p * w * (on_label * xi * mean + common)
    norm = 1 / mp.sqrt(2 * mp.pi)
    return norm * first, norm * second, norm * label


def excess_risk(task: ndl.SpikedSLR, activation: Any, overlaps: ndl.Overlaps) -> tuple[float, float]:
    """The sum over tokens that coincide, with its error: what 40 digits leave."""
    with mp.workdps(DIGITS):
        o = {name: mp.mpf(value) for name, value in overlaps.items()}
        gamma, m = mp.mpf(task.relevant_std), mp.sqrt(mp.mpf(task.snr))
        f, square, label = token_means(activation, m, gamma, o, True)
        g, other, _ = token_means(activation, mp.mpf(0), mp.mpf(1), o, False)
        n = mp.fsum(mp.mpf(p) * (length - 1) for length, p in task.length_law)
        pairs = mp.fsum(mp.mpf(p) * (length - 1) * (length - 2) for length, p in task.length_law)
        risk = gamma**2 - 2 * label + square + n * (other + 2 * f * g) + pairs * g * g
        sizes = gamma**2 + 2 * abs(label) + square + n * (other + 2 * abs(f * g)) + pairs * g * g
        # the shares of lengths are doubles: their sum is 1 to rounding only, which the library sees as well
        return float(risk), float(1e-20 * sizes) + float(np.spacing(float(risk)))

"""The Tracy-Widom law of real matrices: where the largest singular value of a random matrix falls."""

from __future__ import annotations

import functools

import numpy as np
from scipy import optimize, special

from needlepoint.core.errors import InvalidParameter

_NODES = 40
"""Gauss nodes of the determinant; with 40, it is right to 12 digits for s from -6 on."""
_REACH = 16.0
"""Where the integral ends: the Airy function at s + 8 is below 1e-10 for every s asked for."""


def cumulative(s: float) -> float:
    r"""eq:tracy-widom. Return $F_1(s) = \det(1 - K_s)$ on $L^2(s, \infty)$, with the kernel
    $K_s(x, y) = \frac12\mathrm{Ai}\left(\frac{x + y}2\right)$ (Ferrari and Spohn), by Gauss quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    x = s + _REACH * (nodes + 1) / 2
    root = np.sqrt(_REACH * weights / 2)
    kernel = 0.5 * special.airy((x[:, None] + x[None, :]) / 2)[0]
    return float(np.linalg.det(np.eye(_NODES) - root[:, None] * kernel * root[None, :]))


@functools.cache
def quantile(level: float) -> float:
    """Return the value that a Tracy-Widom variable stays below with probability `level`, from 0.001 to 0.9999."""
    if not 0.001 <= level <= 0.9999:
        raise InvalidParameter(f"level={level}: a probability from 0.001 to 0.9999 is expected.")
    return float(optimize.brentq(lambda s: cumulative(s) - level, -6.0, 8.0, xtol=1e-10))  # pyright: ignore

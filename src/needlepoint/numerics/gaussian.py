"""Gaussian expectations: a trapezoid rule on the line and scrambled Sobol points in many dimensions."""

from __future__ import annotations

import functools

import numpy as np
from scipy import special

from needlepoint.numerics.sobol import sobol_points

REACH = 9.0
"""The trapezoid rule spans -REACH to REACH; the Gaussian mass beyond is 2e-19."""


@functools.cache
def trapezoid_rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n + 1 nodes and weights with sum w f(x) -> E f(N(0,1)), exponentially fast in n for smooth f.

    For an integrand that grows like exp(a y^2) on the imaginary axis the error at step h is about
    exp(-2 pi^2 / (h^2 (1 + 2 a))): 64 nodes reach rounding for f = erf(g x)^2 up to g = 0.9, and the
    number needed grows like sqrt(1 + 4 g^2). The rule with n/2 nodes is every second node.
    """
    step = 2 * REACH / n
    nodes = -REACH + step * np.arange(n + 1)
    weights = step * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    return _frozen(nodes), _frozen(weights)


def lattice(low: float, high: float, step: float) -> np.ndarray:
    """Return low, low + step, ... below high: exact multiples (numpy's arange rounds its step to the size of low)."""
    return low + step * np.arange(max(1, int(np.ceil((high - low) / step))))


@functools.cache
def legendre_rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n Gauss-Legendre nodes and weights on (0, 1)."""
    x, w = np.polynomial.legendre.leggauss(n)
    return _frozen((x + 1) / 2), _frozen(w / 2)


def first_largest(normals: np.ndarray) -> np.ndarray:
    """Map independent normals (..., count, n) to as many that are conditioned on the first of `count` being the
    largest. Unlike a permutation by argmax the map is smooth, as Sobol points need it."""
    log_below = special.log_ndtr(normals[..., :1, :]) / normals.shape[-2]
    others = special.ndtri_exp(special.log_ndtr(normals[..., 1:, :]) + log_below)
    return np.concatenate([special.ndtri_exp(log_below), others], axis=-2)


def _frozen(x: np.ndarray) -> np.ndarray:
    x.setflags(write=False)  # these arrays are cached and shared
    return x


def sobol_normals(dimension: int, log2_points: int, scrambles: int, seed: int) -> np.ndarray:
    """Return standard normals from Sobol points, (scrambles, 2**log2_points, dimension); each scrambling is an unbiased
    rule of integration."""
    rng = np.random.default_rng([seed, dimension, log2_points])
    blocks = []
    for _ in range(scrambles):
        uniforms = sobol_points(dimension, log2_points, rng)
        blocks.append(special.ndtri(np.clip(uniforms, 2.0**-60, 1 - 2.0**-53)))
    return np.stack(blocks)

"""Gauss-Legendre panels: what most references integrate with, where the library has lattices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from scipy import optimize, special

DIGITS = 40

Precise = Any
"""A number of mpmath, which has no types."""


def root(f: Callable[[float], float], low: float, high: float, xtol: float = 1e-14) -> float:
    """A root between two points of different sign."""
    found: Any = optimize.brentq(f, low, high, xtol=xtol, rtol=np.float64(1e-15))
    return float(found)


@functools.cache
def legendre(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(n)


def panels(ends: np.ndarray, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of n-point rules between neighbouring `ends`."""
    ends = np.unique(np.asarray(ends, dtype=float))
    x, w = legendre(n)
    half, middle = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    return (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()


def line(low: float, high: float, width: float, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Panels of about one width."""
    return panels(np.linspace(low, high, max(2, math.ceil((high - low) / width) + 1)), n)


def around(points: list[tuple[float, float]], low: float, high: float, width: float) -> np.ndarray:
    """Ends of panels of at most `width` that are refined around each (point, scale), ever coarser away from it."""
    ends = set(np.linspace(low, high, max(2, math.ceil((high - low) / width) + 1)))
    for point, scale in points:
        step = min(scale, width) / 2
        reach = [i * step for i in range(17)]
        while reach[-1] < 2 * width and reach[-1] < high - low:
            reach.append(reach[-1] * 1.6)
        ends |= {point + s * r for r in reach for s in (1, -1)}
    return np.array(sorted(e for e in ends if low <= e <= high))


def gauss(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A rule for a standard normal variable."""
    return _gauss(n)


@functools.cache
def _gauss(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / w.sum()


def normal_density(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


@functools.cache
def precise_legendre(n: int) -> list[tuple[Precise, Precise]]:
    """n-point rule in 40 digits, by Newton's method from the double-precision one."""
    with mp.workdps(DIGITS + 5):
        found = []
        for x0 in special.roots_legendre(n)[0]:
            x = mp.mpf(float(x0))
            for _ in range(6):
                p, slope = _legendre_at(n, x)
                x -= p / slope
            slope = _legendre_at(n, x)[1]
            found.append((x, 2 / ((1 - x * x) * slope**2)))
        return found


def _legendre_at(n: int, x: Precise) -> tuple[Precise, Precise]:
    before, p = mp.mpf(1), x
    for k in range(2, n + 1):
        before, p = p, ((2 * k - 1) * x * p - (k - 1) * before) / k
    return p, n * (x * p - before) / (x * x - 1)


def precise_panels(ends: np.ndarray, n: int = 30) -> list[tuple[Precise, Precise]]:
    """`panels` in 40 digits."""
    nodes = []
    for a, b in itertools.pairwise(ends):
        middle, half = (mp.mpf(float(a)) + mp.mpf(float(b))) / 2, (mp.mpf(float(b)) - mp.mpf(float(a))) / 2
        nodes += [(middle + half * x, half * w) for x, w in precise_legendre(n)]
    return nodes

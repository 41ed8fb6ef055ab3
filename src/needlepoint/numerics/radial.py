"""The law of the distance of a Gaussian vector from a fixed point, in logarithms and at any dimension."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

_LARGE_ORDER = 40.0  # orders from here on use the uniform expansion
_LARGE_ARGUMENT = 1e4  # arguments beyond use the expansion for large arguments, at lower orders
_TERMS = 10  # of both expansions


def log_radial_density(near: np.ndarray, offset: float, d: int) -> np.ndarray:
    r"""Return the $\log$ of the density of $\rho = |z - c|$, $z\sim N(0, I_d)$, $|c|$ = `offset`, at $\rho$ = offset +
    near, in the shape of `near`:
    $\rho(\rho/|c|)^\nu e^{-(\rho^2+|c|^2)/2}I_\nu(|c|\rho)$ with $\nu = d/2 - 1$."""
    nu, rho = d / 2 - 1, offset + near
    with np.errstate(divide="ignore"):
        powers = (2 * nu + 1) * np.log(rho)
    return powers - nu * math.log(2.0) - near**2 / 2 + log_reduced_bessel(nu, offset * rho)


def log_reduced_bessel(nu: float, z: np.ndarray) -> np.ndarray:
    r"""Return $\log\big[(z/2)^{-\nu}I_\nu(z)e^{-z}\big]$ for $\nu\ge0$, $z\ge0$, in the shape of z, also where a factor
    by itself would overflow or underflow."""
    if nu >= _LARGE_ORDER:
        return _debye(nu, z)
    found = np.full(z.shape, -math.lgamma(nu + 1))
    small, large = z**2 < 4 * (nu + 1), z > _LARGE_ARGUMENT
    found[small] += np.log(special.hyp0f1(nu + 1, z[small] ** 2 / 4)) - z[small]
    middle = ~(small | large)
    found[middle] = np.log(special.ive(nu, z[middle])) - nu * np.log(z[middle] / 2)
    far = z[large]
    series, term = np.ones_like(far), np.ones_like(far)
    for k in range(1, _TERMS):
        term = -term * (4 * nu**2 - (2 * k - 1) ** 2) / (8 * k * far)
        series = series + term
    found[large] = np.log(series) - 0.5 * np.log(2 * math.pi * far) - nu * np.log(far / 2)
    return found


def _debye(nu: float, z: np.ndarray) -> np.ndarray:
    """Return the same by the uniform expansion for large orders (DLMF 10.41)."""
    ratio = z / nu
    root = np.hypot(1.0, ratio)
    p = 1 / root
    series = sum(np.polynomial.polynomial.polyval(p, u) / nu**k for k, u in enumerate(_debye_polynomials()))
    # nu (root + log(ratio / (1 + root))) - z - nu log(z / 2), with root - ratio = 1 / (root + ratio)
    exponent = nu * (1 / (root + ratio) - np.log1p(root) - math.log(nu / 2))
    return exponent - 0.5 * np.log(2 * math.pi * nu * root) + np.log(series)


@functools.cache
def _debye_polynomials() -> tuple[np.ndarray, ...]:
    """Return coefficients of u_0 = 1, u_{k+1}(p) = p^2 (1 - p^2) u_k'(p) / 2 + int_0^p (1 - 5 t^2) u_k(t) dt / 8."""
    poly = np.polynomial.polynomial
    found: list[np.ndarray] = [np.ones(1)]
    for _ in range(_TERMS):
        u = found[-1]
        first = poly.polymul([0.0, 0.0, 0.5, 0.0, -0.5], poly.polyder(u))
        found.append(poly.polyadd(first, poly.polyint(poly.polymul([1.0, 0.0, -5.0], u)) / 8))
    return tuple(found)

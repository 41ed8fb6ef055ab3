"""Means of erf and of its square under a Gaussian, in closed form, with their derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc

from needlepoint.numerics.gaussian import legendre_rule

_NODES = 24  # of Gauss-Legendre: exact to rounding for every (t, g), see the tests against 30-digit quadrature
_TWO_OVER_SQRT_PI = 2 / np.sqrt(np.pi)


class ErfMean(NamedTuple):
    """e and its first two derivatives in t."""

    e: Any
    de: Any
    dde: Any


class ErfSquareMean(NamedTuple):
    """zeta and its first two derivatives in t."""

    zeta: Any
    dzeta: Any
    ddzeta: Any


def erf_mean(t: Any, g: Any) -> ErfMean:
    r"""eq:erf-mean. Return $e(t, g) = E\,\mathrm{erf}(t + gN) = \mathrm{erf}(u)$ and its derivatives by t.

    $u = ts$, $s = (1 + 2g^2)^{-1/2}$, $e' = sp$, $e'' = -2us^2p$ with $p = \frac{2}{\sqrt\pi}e^{-u^2}$.
    """
    s = 1 / jnp.sqrt(1 + 2 * g * g)
    u = t * s
    p = _TWO_OVER_SQRT_PI * jnp.exp(-u * u)
    return ErfMean(erf(u), s * p, -2 * u * s * s * p)


def erf_square_mean(t: Any, g: Any) -> ErfSquareMean:
    r"""eq:zeta-derivatives. Return $\zeta$ and its derivatives by t, $\zeta' = 2spq$, $\zeta'' = 2s^2(c\,p\,p_c -
    2u\,p\,q)$.

    $c = (1 + 4g^2)^{-1/2}$, $p_c = \frac{2}{\sqrt\pi}e^{-u^2c^2}$, $q = \mathrm{erf}(uc)$.
    """
    d1, d2 = _zeta_derivatives(t, g)
    return ErfSquareMean(zeta(t, g), d1, d2)


def _zeta_derivatives(t: Any, g: Any) -> tuple[Any, Any]:
    s = 1 / jnp.sqrt(1 + 2 * g * g)
    c = 1 / jnp.sqrt(1 + 4 * g * g)
    u = t * s
    p = _TWO_OVER_SQRT_PI * jnp.exp(-u * u)
    p_c = _TWO_OVER_SQRT_PI * jnp.exp(-(u * u) * (c * c))
    q = erf(u * c)
    return 2 * s * p * q, 2 * s * s * (c * p * p_c - 2 * u * p * q)


def zeta(t: Any, g: Any) -> Any:
    r"""eq:zeta. Return $\zeta(t, g) = E\,\mathrm{erf}^2(t + gN) = \zeta(0, g) - \frac{4c}{\pi}\int_0^1
    \frac{\mathrm{expm1}(-u^2(1 + c^2x^2))}{1 + c^2x^2}dx$, $\zeta(0, g) = \frac2\pi\arcsin\frac{2g^2}{1 + 2g^2}$.

    Equal to $1 - 8\,T_{Owen}(\sqrt2\,u, c)$; this form keeps its relative accuracy at small t and g. Even in t,
    not symmetric in (t, g).
    """
    return _zeta(jnp.asarray(t, dtype=float), jnp.asarray(g, dtype=float))


@jax.custom_jvp
def _zeta(t: Any, g: Any) -> Any:
    t, g = jnp.broadcast_arrays(t, g)
    s = 1 / jnp.sqrt(1 + 2 * g * g)
    c = 1 / jnp.sqrt(1 + 4 * g * g)
    u = t * s
    x, w = (a.reshape((-1,) + (1,) * u.ndim) for a in legendre_rule(_NODES))
    a = 1 + (c * x) ** 2
    at_zero = (2 / np.pi) * _correlation_angle(g)
    return at_zero - (4 / np.pi) * c * jnp.sum(w * jnp.expm1(-u * u * a) / a, axis=0)


def _correlation_angle(g: Any) -> Any:
    r"""Return $\arcsin\frac{2g^2}{1+2g^2} = \frac\pi2 - 2\arctan\frac1{\sqrt{1+4g^2}}$: the first form is accurate for
    g < 1, the second above."""
    wide = g * g > 1
    narrow_sq = jnp.where(wide, 1.0, g * g)
    near_zero = jnp.arcsin(2 * narrow_sq / (1 + 2 * narrow_sq))
    return jnp.where(wide, np.pi / 2 - 2 * jnp.arctan(1 / jnp.sqrt(1 + 4 * g * g)), near_zero)


@_zeta.defjvp
def _zeta_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # the derivative in g is g zeta'' (the heat equation in the variance g^2)
    (t, g), (t_dot, g_dot) = primals, tangents
    d1, d2 = _zeta_derivatives(t, g)
    return _zeta(t, g), d1 * t_dot + g * d2 * g_dot


class ShiftedErfMeans(NamedTuple):
    """E (1 + erf) and E (1 + erf)^2."""

    first: Any
    second: Any


def shifted_erf_means(t: Any, g: Any) -> ShiftedErfMeans:
    r"""eq:shifted-erf. Return the means of $1 + \mathrm{erf}(t + gN)$ and of its square, accurate at negative t too:
    $\mathrm{erfc}(-u)$ and $\mathrm{erfc}(-u)^2 + \frac2\pi\int_0^{\arcsin r}\exp\big(-\frac{2u^2}{1+\sin\theta}\big)
    d\theta$, $r = 2g^2/(1+2g^2)$, positive terms only.
    """
    t, g = jnp.broadcast_arrays(jnp.asarray(t, dtype=float), jnp.asarray(g, dtype=float))
    u = t / jnp.sqrt(1 + 2 * g * g)
    top = _correlation_angle(g)
    x, w = (a.reshape((-1,) + (1,) * u.ndim) for a in legendre_rule(_NODES))
    tail = top * jnp.sum(w * jnp.exp(-2 * u * u / (1 + jnp.sin(top * x))), axis=0)
    first = erfc(-u)
    return ShiftedErfMeans(first, first**2 + (2 / np.pi) * tail)

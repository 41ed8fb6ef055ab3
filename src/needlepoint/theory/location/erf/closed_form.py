"""Erf attention on single-location regression: the excess risk in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from needlepoint.channels.elementwise import constants as constants
from needlepoint.core.routes import route
from needlepoint.models.activations import Erf
from needlepoint.numerics.erf_moments import erf_mean, erf_square_mean


class WeightMoments(NamedTuple):
    """s1 = E sigma and s2 = E sigma^2 of one token, with first and second derivatives in its mean score."""

    s1: Any
    ds1: Any
    dds1: Any
    s2: Any
    ds2: Any
    dds2: Any


def weight_moments(score: Any, spread: Any, c: Mapping[str, Any]) -> WeightMoments:
    r"""eq:weight-moments. Return the moments of one token's weight $\sigma = o + \mathrm{erf}(\lambda\chi + b)$.

    $\chi \sim N(score, spread^2)$; $S_1 = o + e$, $S_2 = o^2 + 2oe + \zeta$ at $(\lambda\,score + b, \lambda\,spread)$,
    derivatives in the mean of $\chi$.
    """
    scale, offset = c["scale"], c["offset"]
    t, g = scale * score + c["shift"], scale * spread
    e, z = erf_mean(t, g), erf_square_mean(t, g)
    return WeightMoments(
        s1=offset + e.e,
        ds1=scale * e.de,
        dds1=scale**2 * e.dde,
        s2=offset**2 + 2 * offset * e.e + z.zeta,
        ds2=scale * (2 * offset * e.de + z.dzeta),
        dds2=scale**2 * (2 * offset * e.dde + z.ddzeta),
    )


def excess_risk(c: Mapping[str, Any], overlaps: Sequence[Any]) -> Any:
    r"""eq:erf-risk. Return the excess risk, an array of the shape that the overlaps broadcast to.

    With $m = \sqrt{snr}$, $G = \gamma^2$, moments of the relevant token and (barred) of another one:

    $R = G[1 - 2\nu S_1 - 2m\theta\eta S_1' - 2G\eta\rho S_1''] + (m^2\theta^2 + Gq_v)S_2 + 2Gm\theta\rho S_2'
    + G^2\rho^2S_2'' + E[L-1](q_v\bar S_2 + \rho^2\bar S_2'' + 2\rho\bar S_1'(m\theta S_1 + G\rho S_1'))
    + E[(L-1)(L-2)](\rho\bar S_1')^2$.

    `overlaps` are (kappa, nu, theta, eta, rho, q_k, q_v), arrays that broadcast together.
    """
    # notation: kappa, nu, theta, eta, rho as in core.symbols; G and m as above
    kappa, nu, theta, eta, rho, key_sq, value_sq = overlaps
    m, gamma = jnp.sqrt(c["task.snr"]), c["task.relevant_std"]
    G, norm = gamma**2, jnp.sqrt(key_sq)
    a = weight_moments(m * kappa, gamma * norm, c)
    b = weight_moments(jnp.zeros_like(norm), norm, c)

    label = G * (1 - 2 * nu * a.s1 - 2 * m * theta * eta * a.ds1 - 2 * G * eta * rho * a.dds1)
    relevant = (m**2 * theta**2 + G * value_sq) * a.s2 + 2 * G * m * theta * rho * a.ds2 + G**2 * rho**2 * a.dds2
    mean_other = rho * b.ds1
    mean_relevant = m * theta * a.s1 + G * rho * a.ds1
    others = value_sq * b.s2 + rho**2 * b.dds2 + 2 * mean_other * mean_relevant
    return label + relevant + c["task.others"] * others + c["task.pairs"] * mean_other**2


@route("risk on spheres", activation=Erf, when=lambda model: model.unit_norm)
def unit_excess_risk(c: Mapping[str, Any], five: Any) -> Any:
    """Return eq:erf-risk on the unit spheres, from (kappa, nu, theta, eta, rho)."""
    kappa, nu, theta, eta, rho = five
    one = jnp.ones_like(kappa)
    return excess_risk(c, (kappa, nu, theta, eta, rho, one, one))

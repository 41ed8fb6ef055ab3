"""Element-wise attention on spiked tokens as one-dimensional Gaussian means of its activation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from needlepoint.core.lowering import lower
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.gaussian import trapezoid_rule
from needlepoint.tasks.single_location import SingleLocation


def constants(task: SingleLocation, model: KeyValueAttention) -> dict[str, float]:
    """Return every number of the problem, which JAX traces: the task's, its length moments, the activation's."""
    return {**lower(task, "task.")[1], **task.length_moments(), **model.constants()}


class TokenMoments(NamedTuple):
    """Means of F = sigma(k . x) (v . x) for one token: F, F^2, and (v* . x) F."""

    first: Any
    second: Any
    cross: Any


def token_moments(
    sigma: Callable[[Any], Any], overlaps: Sequence[Any], mean: Any, std: Any, nodes: int
) -> TokenMoments:
    r"""eq:token-moments. Return the three means for one token, in the shape that `overlaps` broadcast to.

    Conditioned on the score, $k\cdot x = m\kappa + \xi$, the value fields are Gaussian: $v\cdot x = m\theta +
    \xi\rho/q_k + \ldots$, $v^*\cdot x = \xi\eta/q_k + \ldots$, so three means over $\xi$ remain.

    `overlaps` are (kappa, nu, theta, eta, rho, q_k, q_v), arrays that broadcast together; x = m k* + std Z.
    """
    # notation: kappa, nu, theta, eta, rho as in core.symbols
    kappa, nu, theta, eta, rho, key_sq, value_sq = overlaps
    ndim = max(jnp.ndim(a) for a in (*overlaps, mean, std))
    x, w = (a.reshape((-1,) + (1,) * ndim) for a in trapezoid_rule(nodes))
    norm = jnp.sqrt(jnp.where(key_sq > 0, key_sq, 1.0))  # 1 at k = 0, where the quotients below would be 0 / 0
    weight = sigma(mean * kappa + std * jnp.where(key_sq > 0, norm, 0.0) * x)
    value_mean = mean * theta + std * (rho / norm) * x
    star_mean = std * (eta / norm) * x
    value_var = std**2 * (value_sq - (rho / norm) ** 2)
    covariance = std**2 * (nu - rho * eta / norm**2)
    return TokenMoments(
        first=jnp.sum(w * weight * value_mean, axis=0),
        second=jnp.sum(w * weight**2 * (value_mean**2 + value_var), axis=0),
        cross=jnp.sum(w * weight * (star_mean * value_mean + covariance), axis=0),
    )


def excess_risk(sigma: Callable[[Any], Any], law: Mapping[str, Any], overlaps: Sequence[Any], nodes: int) -> Any:
    r"""eq:elementwise-risk. Return the excess risk, in the shape that `overlaps` broadcast to.

    $R = \gamma^2 - 2E[z^*F] + E[F^2] + E[L-1](EF_o^2 + 2EF\,EF_o) + E[(L-1)(L-2)](EF_o)^2$, with $F$ of the relevant
    token and $F_o$ of another one.

    `law` has task.snr, task.relevant_std, task.others, task.pairs (see SpikedSLR.length_moments).
    """
    relevant = token_moments(sigma, overlaps, jnp.sqrt(law["task.snr"]), law["task.relevant_std"], nodes)
    other = token_moments(sigma, overlaps, 0.0, 1.0, nodes)
    return (
        law["task.relevant_std"] ** 2
        - 2 * relevant.cross
        + relevant.second
        + law["task.others"] * (other.second + 2 * relevant.first * other.first)
        + law["task.pairs"] * other.first**2
    )

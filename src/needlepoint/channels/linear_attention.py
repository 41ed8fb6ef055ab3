"""Linear attention: its proximal map is one root of one equation, and its response is closed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from needlepoint.channels.replies import Channel, Divergence, Reply, Response, Sample
from needlepoint.numerics.arrays import Array

_ROOT_STEPS, _ROOT_FOUND = 60, 1e-13  # most steps, and the step of w in (-1, 1) that ends them; most need ten or twenty


def linear_scores(channel: Channel, sample: Sample) -> Array:
    r"""eq:linear-proximal. Return the scores at the minimum of eq:proximal, (tokens, n).

    With $S_0 = (1 + w_\chi)/\sqrt{V_k}$, $Z_0 = w_z/\sqrt{V_v}$, $\rho = \sqrt{V_kV_v}$, $p = (S_0 + Z_0)/\sqrt2$ and
    $n = (S_0 - Z_0)/\sqrt2$, $w = \rho r$ is the one root in $(-1, 1)$ of $w - \rho y +
    \frac{\rho^2}2\left[\frac{|p|^2}{(1 - w)^2} - \frac{|n|^2}{(1 + w)^2}\right]$, and $S = (S_0 + wZ_0)/(1 - w^2)$.
    """
    S, Z = (1 + sample.w_chi) / jnp.sqrt(channel.V_k), sample.w_z / jnp.sqrt(channel.V_v)
    rho = jnp.sqrt(channel.V_k * channel.V_v)
    p_sq, n_sq = jnp.sum((S + Z) ** 2, axis=0) / 2, jnp.sum((S - Z) ** 2, axis=0) / 2

    def slope(w: Array) -> tuple[Array, Array]:
        plus, minus = p_sq / (1 - w) ** 2, n_sq / (1 + w) ** 2
        value = w - rho * sample.y + rho**2 / 2 * (plus - minus)
        return value, 1 + rho**2 * (plus / (1 - w) + minus / (1 + w))

    def step(state: Any) -> Any:
        steps, w, low, high, _ = state
        value, rise = slope(w)
        low, high = jnp.where(value < 0, w, low), jnp.where(value < 0, high, w)
        new = w - value / rise
        new = jnp.where((new >= low) & (new <= high), new, (low + high) / 2)
        return steps + 1, new, low, high, jnp.max(jnp.abs(new - w))

    def moves(state: Any) -> Any:
        return (state[-1] > _ROOT_FOUND) & (state[0] < _ROOT_STEPS)

    ones = jnp.ones_like(sample.y)
    _, w, *_ = jax.lax.while_loop(moves, step, (0, 0.0 * ones, -ones, ones, jnp.inf))
    return jnp.sqrt(channel.V_k) * (S + w * Z) / ((1 - w) * (1 + w)) - 1


def linear_response(channel: Channel, at: Reply) -> tuple[Response, Divergence]:
    r"""eq:linear-response. Return the derivatives of the forces by the fields, and their divergences.

    With $S = (1 + \chi)/\sqrt{V_k}$, $Z = z/\sqrt{V_v}$, $F = 1 +
    \frac{\rho^2}2\left[\frac{|S + Z|^2}{1 - w} + \frac{|S - Z|^2}{1 + w}\right]$, $a = Z + wS$, $b = S + wZ$ and
    $f = \frac{\rho^2}{F(1 - w^2)^2}$: $G_{kk} = \frac1{V_k}\left[\frac{w^2}{1 - w^2} - faa^T\right]$, $G_{vk} =
    \frac1\rho\left[\frac w{1 - w^2} - fba^T\right]$, $G_{vv} = \frac1{V_v}\left[\frac{w^2}{1 - w^2} - fbb^T\right]$,
    $\partial_yg_{v,1} = \sqrt{V_k}\frac{b_1}{F(1 - w^2)}$.
    """
    S, Z = at.weights / jnp.sqrt(channel.V_k), at.values / jnp.sqrt(channel.V_v)
    rho = jnp.sqrt(channel.V_k * channel.V_v)
    w = rho * at.residual
    room = (1 - w) * (1 + w)
    F = 1 + rho**2 / 2 * (jnp.sum((S + Z) ** 2, axis=0) / (1 - w) + jnp.sum((S - Z) ** 2, axis=0) / (1 + w))
    a, b, f = Z + w * S, S + w * Z, rho**2 / (F * room**2)
    unit, even = jnp.eye(len(S))[:, :, None], w**2 / room

    def block(scale: Array, along: Array, left: Array, right: Array) -> Array:
        return (along * unit - f * left[:, None] * right[None, :]) / scale

    def divergence(scale: Array, pull: Array) -> Array:
        return (len(S) * even - f * jnp.sum(pull**2, axis=0)) / scale

    full = Response(block(channel.V_k, even, a, a), block(rho, w / room, b, a), block(channel.V_v, even, b, b))
    label = jnp.sqrt(channel.V_k) * b[0] / (F * room)
    return full, Divergence(-divergence(channel.V_k, a), -divergence(channel.V_v, b), label)

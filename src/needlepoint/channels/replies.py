r"""What one sequence does in the fields of all others: the types that all proximal maps through attention share.

The loss is the squared error everywhere in these maps: because of it the values are eliminated in closed form, and
the force on them is the residual times the weights. Arrays have the samples last: scores and values (tokens, n), labels
(n,).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from needlepoint.models.activations import Activation
from needlepoint.numerics.arrays import Array

DISTINCT = 1e-3
"""Two points are different minima if a score differs by more than this, relative to 1 + the largest score."""


class Channel(NamedTuple):
    """The activation's constants `c`, and the susceptibilities of its scores (V_k) and values (V_v)."""

    c: dict[str, Any]
    V_k: Array
    V_v: Array


class Sample(NamedTuple):
    """The fields of sequences: labels (n,), score fields and value fields (tokens, n)."""

    y: Array
    w_chi: Array
    w_z: Array


class Minima(NamedTuple):
    """What a search found: `scores` at the lowest minimum and at the next lowest (`rival`, the same if there is none),
    both (tokens, n); the `gap` of their envelopes (n,), infinite if there is no rival; and `left`, the slope that is
    left times V_k, about the distance to the minimum (n,)."""

    scores: Array
    rival: Array
    gap: Array
    left: Array


class Reply(NamedTuple):
    """A sequence at given scores: weights and values (tokens, n), training residual and Moreau envelope (n,), and the
    forces g_k on the scores and g_v on the values (tokens, n)."""

    weights: Array
    values: Array
    residual: Array
    envelope: Array
    g_k: Array
    g_v: Array


class Divergence(NamedTuple):
    """Minus the divergences of the forces by their own fields, and the derivative of g_v on the first token by y."""

    k: Array
    v: Array
    label: Array


class Response(NamedTuple):
    """Derivatives (tokens, tokens, n) of the forces by the fields: of g_k by w_chi, of g_v by w_chi (that of g_k by w_z
    is its transpose) and of g_v by w_z."""

    kk: Array
    vk: Array
    vv: Array


def activation_weights(activation: type[Activation], c: dict[str, Any], scores: Any) -> Any:
    """Return the weights of every sequence, (tokens, n), at scores (tokens, n)."""
    return jax.vmap(lambda one: activation.weights(one, c), in_axes=-1, out_axes=-1)(scores)


def reply(activation: type[Activation], channel: Channel, sample: Sample, scores: Array) -> Reply:
    r"""eq:proximal. Return the weights, values, residual, envelope and forces at given scores (tokens, n).

    $h(\chi) = \frac{(y - s\cdot w_z)^2}{2(1 + V_v|s|^2)} + \frac{|\chi - w_\chi|^2}{2V_k}$, $s = \sigma(\chi)$; $r =
    \frac{y - s\cdot w_z}{1 + V_v|s|^2}$ is the training residual, $z = w_z + V_vrs$, $g_k = (\chi - w_\chi)/V_k$ and
    $g_v = rs$.
    """
    s = activation_weights(activation, channel.c, scores)
    away = scores - sample.w_chi
    stretch = 1 + channel.V_v * jnp.sum(s**2, axis=0)
    misfit = sample.y - jnp.sum(s * sample.w_z, axis=0)
    r = misfit / stretch
    envelope = 0.5 * misfit * r + jnp.sum(away**2, axis=0) / (2 * channel.V_k)
    return Reply(s, sample.w_z + channel.V_v * r * s, r, envelope, away / channel.V_k, r * s)

r"""What one sequence does in the fields of all others: the words that every proximal map through attention shares.

Arrays have the samples last: scores and values (tokens, n), labels (n,).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from needlepoint.models.activations import Activation

DISTINCT = 1e-3
"""Scores that differ by more, relative to their size, are two minima."""


class Channel(NamedTuple):
    """One activation with its susceptibilities; `c` has the activation's constants."""

    c: dict[str, Any]
    V_k: Any
    V_v: Any


class Sample(NamedTuple):
    """The fields of sequences: labels (n,), score fields and value fields (tokens, n)."""

    y: Any
    w_chi: Any
    w_z: Any


class Minima(NamedTuple):
    """The scores at the minimum, those of the next best minimum that was found (or the same), the gap between their
    envelopes, infinite where there is one minimum only, and how far the minimum may be: the slope left times V_k."""

    scores: Any
    rival: Any
    gap: Any
    left: Any


class Reply(NamedTuple):
    """What the sequence does at given scores: weights, values, training residual, Moreau envelope, and the forces
    g_k on the scores and g_v on the values."""

    weights: Any
    values: Any
    residual: Any
    envelope: Any
    g_k: Any
    g_v: Any


class Divergence(NamedTuple):
    """Minus the divergences of the forces by their own fields, and the derivative of g_v on the first token by y."""

    k: Any
    v: Any
    label: Any


class Response(NamedTuple):
    """How the forces follow the fields: derivatives (tokens, tokens, n) of g_k by w_chi, of g_v by w_chi (that of g_k
    by w_z is its transpose) and of g_v by w_z."""

    kk: Any
    vk: Any
    vv: Any


def activation_weights(activation: type[Activation], c: dict[str, Any], scores: Any) -> Any:
    """(tokens, n): the weights of every sequence at scores (tokens, n)."""
    return jax.vmap(lambda one: activation.weights(one, c), in_axes=-1, out_axes=-1)(scores)


def reply(activation: type[Activation], channel: Channel, sample: Sample, scores: Any) -> Reply:
    r"""eq:proximal. $h(\chi) = \frac{(y - s\cdot w_z)^2}{2(1 + V_v|s|^2)} + \frac{|\chi - w_\chi|^2}{2V_k}$, $s =
    \sigma(\chi)$; $r = \frac{y - s\cdot w_z}{1 + V_v|s|^2}$ is the training residual, $z = w_z + V_vrs$, $g_k =
    (\chi - w_\chi)/V_k$ and $g_v = rs$.
    """
    s = activation_weights(activation, channel.c, scores)
    away = scores - sample.w_chi
    stretch = 1 + channel.V_v * jnp.sum(s**2, axis=0)
    misfit = sample.y - jnp.sum(s * sample.w_z, axis=0)
    r = misfit / stretch
    envelope = 0.5 * misfit * r + jnp.sum(away**2, axis=0) / (2 * channel.V_k)
    return Reply(s, sample.w_z + channel.V_v * r * s, r, envelope, away / channel.V_k, r * s)

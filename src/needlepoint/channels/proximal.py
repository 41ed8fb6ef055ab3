r"""The proximal map through attention: what one sequence does to its own scores and values.

Given the fields that the rest of the data makes, $w_\chi$ and $w_z$, and their susceptibilities $V_k$ and $V_v$, the
scores of a training sequence minimise its loss plus the cost of leaving the fields. The values are eliminated in
closed form. Arrays have the samples last: scores and values (tokens, n), labels (n,).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from needlepoint.channels.any_activation import general_response, refine, search, starts_of
from needlepoint.channels.linear_attention import linear_response, linear_scores
from needlepoint.channels.replies import Channel, Minima, Response, Sample, reply
from needlepoint.channels.softmax_pair import pair_scores
from needlepoint.models.activations import Activation, Linear, Softmax
from needlepoint.numerics.arrays import Array


def proximal(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    """Return the minimum of eq:proximal for every sample: exactly for linear attention, by a search in one dimension
    for softmax over two tokens, by Newton's method from several starts for the rest.
    """
    alone = jnp.full_like(sample.y, jnp.inf)
    if issubclass(activation, Linear):
        scores = linear_scores(channel, sample)
        return Minima(scores, scores, alone, jnp.zeros_like(sample.y))
    if issubclass(activation, Softmax) and len(sample.w_chi) == 1:
        return Minima(sample.w_chi, sample.w_chi, alone, jnp.zeros_like(sample.y))
    if issubclass(activation, Softmax) and len(sample.w_chi) == 2:
        return pair_scores(channel, sample)
    return search(activation, channel, sample, starts_of(activation, channel.c, sample))


def followed(activation: type[Activation], channel: Channel, sample: Sample, near: Minima) -> Minima:
    """Return the two minima that Newton's method reaches from those of `near`, which is known at fields close by.

    This costs a fifth of a search, but does not see a lower minimum that has appeared elsewhere.
    """
    return refine(activation, channel, sample, jnp.stack([near.scores, near.rival]))


@functools.partial(jax.jit, static_argnums=0)
def patient(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    """Return the same by many more steps, for the few samples that did not converge in a batch."""
    return search(activation, channel, sample, starts_of(activation, channel.c, sample), patience=8)


def response(activation: type[Activation], channel: Channel, sample: Sample, scores: Array) -> Response:
    """Return the derivatives of the forces by the fields at a minimum, (tokens, tokens, n) each."""
    if issubclass(activation, Linear):
        return linear_response(channel, reply(activation, channel, sample, scores))[0]
    return general_response(activation, channel, sample, scores)

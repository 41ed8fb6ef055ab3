r"""The proximal map through attention: what one sequence does to its own scores and values.

Given the fields that the rest of the data makes, $w_\chi$ and $w_z$, and their susceptibilities $V_k$ and $V_v$, the
scores of a training sequence minimise its loss plus the cost of leaving the fields. The values are eliminated in
closed form. Arrays have the samples last: scores and values (tokens, n), labels (n,).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from needlepoint.channels.any_activation import AFTER, refine, search, starts_of, two_lowest
from needlepoint.channels.linear_attention import linear_response, linear_scores
from needlepoint.channels.replies import Channel, Divergence, Minima, Reply, Response, Sample, reply
from needlepoint.channels.softmax_pair import pair_scores
from needlepoint.core.routes import GENERIC, ONE_DIMENSION, route, the
from needlepoint.models.activations import Activation, Linear, Softmax
from needlepoint.numerics.arrays import Array


def proximal(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    """Return the minimum of eq:proximal for every sample: exactly for linear attention, by a search in one dimension
    for softmax over two tokens, by Newton's method from several starts for the rest.
    """
    return the("proximal", activation=activation, tokens=len(sample.w_chi))(activation, channel, sample)


@route("proximal", activation=Linear)
def _of_linear(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    return _single(linear_scores(channel, sample))


@route("proximal", activation=Softmax, name="alone", when=lambda tokens: tokens == 1)
def _alone(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    return _single(sample.w_chi)  # the weight is 1 whatever the score


@route("proximal", activation=Softmax, name="pair", cost=ONE_DIMENSION, when=lambda tokens: tokens == 2)
def _pair(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    return pair_scores(channel, sample)


@route("proximal", name="newton", cost=GENERIC)
def _newton(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    return search(activation, channel, sample, starts_of(activation, channel.c, sample))


def followed(
    activation: type[Activation], channel: Channel, sample: Sample, near: Minima, steps: int = AFTER
) -> Minima:
    """Return the two minima that Newton's method reaches from those of `near`, which is known at fields close by.

    This costs a fifth of a search, but does not see a lower minimum that has appeared elsewhere.
    """
    return refine(activation, channel, sample, jnp.stack([near.scores, near.rival]), steps)


def lowest(activation: type[Activation], channel: Channel, sample: Sample, one: Minima, other: Minima) -> Minima:
    """Return the two lowest minima of those that two searches have found at the same fields."""
    points = jnp.stack([one.scores, other.scores, one.rival, other.rival])
    value = jax.vmap(lambda chi: reply(activation, channel, sample, chi).envelope)(points)
    best, rival, gap = two_lowest(points, value)
    return Minima(best, rival, gap, jnp.where(value[1] < value[0], other.left, one.left))


def _single(scores: Array) -> Minima:
    """Return a minimum that has no rival and is exact."""
    n = jnp.zeros_like(scores[0])
    return Minima(scores, scores, n + jnp.inf, n)


@functools.partial(jax.jit, static_argnums=0)
def patient(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    """Return the same by many more steps, for the few samples that did not converge in a batch."""
    return search(activation, channel, sample, starts_of(activation, channel.c, sample), patience=8)


def response(activation: type[Activation], channel: Channel, sample: Sample, scores: Array) -> Response:
    """Return the derivatives of the forces by the fields at a minimum, (tokens, tokens, n) each."""
    return the("response", activation=activation)(activation, channel, sample, scores)


@route("response", activation=Linear)
def _response_of_linear(activation: type[Activation], channel: Channel, sample: Sample, scores: Array) -> Response:
    return linear_response(channel, reply(activation, channel, sample, scores))[0]


def divergence(activation: type[Activation], channel: Channel, at: Reply) -> Divergence:
    """Return minus the divergences of the forces by their own fields at a minimum, where these have no jumps."""
    return the("divergence", activation=activation)(channel, at)


@route("divergence", activation=Linear)
def _divergence_of_linear(channel: Channel, at: Reply) -> Divergence:
    return linear_response(channel, at)[1]

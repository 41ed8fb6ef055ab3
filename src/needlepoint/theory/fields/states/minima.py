"""The lowest minimum of every sequence, inside a compiled kernel: by the proximal maps of attention, or by Newton."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.any_activation import two_lowest
from needlepoint.channels.proximal import followed, proximal
from needlepoint.channels.replies import Channel, Minima, Sample
from needlepoint.core.routes import GENERIC, ONE_DIMENSION, best, route
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.arrays import Array
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.envelope import descended, split, start_at
from needlepoint.theory.fields.law import Kind, Numbers, Sequences


class Low(NamedTuple):
    """Searched fields at the lowest minimum and at the next lowest, both (freedom, n)."""

    chi: Array
    rival: Array


@route("minima of sequences", name="attention", model=KeyValueAttention, when=lambda plain: plain)
def of_attention(kind: Kind, numbers: Numbers, V: Array, seq: Sequences, near: Low | None) -> Low:
    """Return the minima by the proximal map of the activation. It is for the square loss, tokens of spread 1 and
    susceptibilities without an entry between key and value."""
    activation = kind.model.value.activation
    c = {name.removeprefix("activation."): x for name, x in numbers[1].items()}
    channel = Channel(c, V[0, 0], V[1, 1])
    sample = Sample(seq.y, seq.columns[:, 0], seq.columns[:, 1])
    if near is None or is_direct(kind):
        found = proximal(type(activation), channel, sample)
    else:
        none = jnp.zeros_like(seq.y)
        found = followed(type(activation), channel, sample, Minima(near.chi, near.rival, none, none))
    return Low(found.scores, found.rival)


def is_direct(kind: Kind) -> bool:
    """Return whether the proximal map of attention is at most a search in one dimension, which nothing can shorten."""
    return best("proximal", activation=type(kind.model.value.activation), tokens=kind.tokens).cost <= ONE_DIMENSION


@route("minima of sequences", name="newton", cost=GENERIC)
def by_newton(kind: Kind, numbers: Numbers, V: Array, seq: Sequences, near: Low | None) -> Low:
    """Return the minima that Newton's method reaches from the field, zero and one field moved at a time, and then from
    the two lowest; or only from the two that were lowest nearby."""
    if near is None:
        field = start_at(kind, seq)
        x = np.array(split(kind).x, int)
        spread = jnp.std(seq.columns, axis=(0, 2))[x]
        reach = ACCURACY.far * jnp.tile(jnp.maximum(spread, 1.0), kind.tokens)
        moves = jnp.concatenate([jnp.diag(reach), -jnp.diag(reach)])
        moved = field + moves[:, :, None]
        starts = jnp.concatenate([jnp.stack([field, jnp.zeros_like(field)]), moved])
        chi, rival = _reached(kind, numbers, V, seq, starts, ACCURACY.rough)
    else:
        chi, rival = near
    return Low(*_reached(kind, numbers, V, seq, jnp.stack([chi, rival]), ACCURACY.fine))


def _reached(kind: Kind, numbers: Numbers, V: Array, seq: Sequences, starts: Array, steps: Any) -> tuple[Array, Array]:
    ends = jax.lax.map(lambda start: descended(kind, numbers, V, seq, start, steps), starts)
    return two_lowest(ends.chi, ends.height)[:2]

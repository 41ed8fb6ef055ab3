"""The means over the fields of a training sequence that the replica-symmetric equations need."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.any_activation import AFTER
from needlepoint.channels.proximal import divergence, followed, lowest, patient, proximal
from needlepoint.channels.replies import Channel, Divergence, Minima, Reply, Sample, reply
from needlepoint.models.activations import Activation
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.sequences import Base, Order, Points, base_normals, fields, sequences_of

ROWS, BLOCK = 8, 512
"""Rows (scramblings) and points per row that one call of a kernel computes."""

SOFTENING = 0.03
"""Width over which the two lowest minima of a sample are averaged, as a share of the mean Moreau envelope. It keeps the
means continuous where the proximal map jumps from one minimum to the other. The bias is of second order in it."""


class Conjugate(NamedTuple):
    """The conjugate (hat) of each order parameter, under the same name."""

    m_k: Any
    q_k: Any
    V_k: Any
    m_v: Any
    q_v: Any
    V_v: Any


class Means(NamedTuple):
    """The conjugates divided by alpha, the mean squared training residual and the mean Moreau envelope."""

    conjugate: Conjugate
    residual_sq: Any
    envelope: Any


@functools.lru_cache(maxsize=32)
def blocks(points: Points) -> tuple[Base, ...]:
    """Return the normals in blocks of ROWS scramblings and BLOCK Sobol points, the relevant token first.

    All blocks have one shape, so that a kernel compiles once. A single scrambling is repeated to fill all rows.
    """
    base = base_normals(points)
    if points.scrambles == 1:
        base = Base(*(np.repeat(x, ROWS, axis=0) for x in base))
    count = max(1, 2**points.log2_points // BLOCK)
    parts = zip(*(np.split(x, count, axis=-1) for x in base), strict=True)
    return tuple(Base(*(jnp.asarray(x) for x in part)) for part in parts)


# --- means over the fields ----------------------------------------------------------------------


def settled(
    task_type: type[SingleLocation],
    activation: type[Activation],
    law: Any,
    c: Any,
    order: Order,
    base: Base,
    near: Minima | None = None,
    steps: int = AFTER,
) -> Minima:
    """Return the proximal map of every sample; those that did not converge are solved again, with more steps.

    With `near`, the minima at an order close by, these are followed by so many steps instead of being searched for.
    """
    if near is None:
        found = _minima(task_type, activation, law, c, order, base)
    else:
        found = _followed(task_type, activation, steps, law, c, order, base, near)
        if steps < AFTER and np.count_nonzero(np.asarray(found.left) > ACCURACY.far) > ACCURACY.late:
            found = _followed(task_type, activation, steps, law, c, order, base, found)
    late = np.nonzero(np.asarray(found.left) > ACCURACY.far)
    count = late[0].size
    if not count:
        return found
    sample = _fields_of_all(task_type, law, order, base)
    scores, rival, gap, left = (np.array(x) for x in found)
    for start in range(0, count, ACCURACY.late):
        mine = slice(start, min(start + ACCURACY.late, count))
        # always as many, so that it compiles once
        rows, columns = (np.resize(index[mine], ACCURACY.late) for index in late)
        picked = Sample(*(np.moveaxis(np.asarray(x)[rows, ..., columns], 0, -1) for x in sample))
        again = patient(activation, Channel(c, order.V_k[rows], order.V_v[rows]), picked)
        rows, columns, size = late[0][mine], late[1][mine], mine.stop - start
        scores[rows, :, columns] = np.asarray(again.scores)[:, :size].T
        rival[rows, :, columns] = np.asarray(again.rival)[:, :size].T
        gap[rows, columns], left[rows, columns] = np.asarray(again.gap)[:size], np.asarray(again.left)[:size]
    return Minima(scores, rival, gap, left)


@functools.partial(jax.jit, static_argnums=0)
def _fields_of_all(task_type: type[SingleLocation], law: Any, order: Order, base: Base) -> Sample:
    return jax.vmap(lambda o, b: fields(task_type, law, o, b))(order, base)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _minima(
    task_type: type[SingleLocation], activation: type[Activation], law: Any, c: Any, order: Order, base: Base
) -> Minima:
    def one(order: Order, base: Base) -> Minima:
        return proximal(activation, Channel(c, order.V_k, order.V_v), fields(task_type, law, order, base))

    return jax.vmap(one)(order, base)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _followed(
    task_type: type[SingleLocation],
    activation: type[Activation],
    steps: int,
    law: Any,
    c: Any,
    order: Order,
    base: Base,
    near: Minima,
) -> Minima:
    def one(order: Order, base: Base, near: Minima) -> Minima:
        return followed(activation, Channel(c, order.V_k, order.V_v), fields(task_type, law, order, base), near, steps)

    return jax.vmap(one)(order, base, near)


@functools.partial(jax.jit, static_argnums=(0, 1))
def joined(
    task_type: type[SingleLocation],
    activation: type[Activation],
    law: Any,
    c: Any,
    order: Order,
    base: Base,
    one: Minima,
    other: Minima,
) -> Minima:
    """Return the two lowest minima of every sample that either of two searches at the same order has found."""

    def mine(order: Order, base: Base, one: Minima, other: Minima) -> Minima:
        return lowest(activation, Channel(c, order.V_k, order.V_v), fields(task_type, law, order, base), one, other)

    return jax.vmap(mine)(order, base, one, other)


@functools.partial(jax.jit, static_argnums=(0, 1))
def means(
    task_type: type[SingleLocation],
    activation: type[Activation],
    law: dict[str, Any],
    c: dict[str, Any],
    order: Order,
    base: Base,
    found: Minima,
) -> Means:
    r"""eq:ridge-conjugates. Return the means over the fields that give the conjugates divided by $\alpha$, (rows,).

    $\hat q = \alpha E|g|^2$; by Stein's lemma, which includes the jumps of the proximal map, $\hat V_k = -\alpha
    E[g_k\cdot g]/s$ with $s$ the spread of $w_\chi$, $\hat V_v$ alike, $\hat m_v = \frac\alpha{1 + \Delta^2}E[g_{v,1}(y
    - m_vh_1/s_v)]$; $\hat m_k = \alpha\sqrt\mu Eg_{k,1}$ (spiked), $\alpha E[g_k\cdot\chi^*] + m_k\hat V_k = \alpha\mu
    E[g_{k,1} - p\cdot g_k]$ (max). Each row has its own scrambling.
    """

    mine = sequences_of(task_type)

    def one(order: Order, base: Base, found: Minima) -> Means:
        sample, channel = fields(task_type, law, order, base), Channel(c, order.V_k, order.V_v)
        place, weight = mine.place(law, base)
        T = 1 + law["noise"] ** 2
        rest_k = mine.scatter(order)
        rest_v = jnp.sqrt(order.q_v - order.m_v**2 / T)

        def stein(at: Reply) -> Divergence:
            V_k = -jnp.sum(at.g_k * base.score, axis=0) / rest_k
            others = jnp.sum(at.g_v[1:] * base.value[1:], axis=0) / jnp.sqrt(order.q_v)
            V_v = -(others + at.g_v[0] * base.value[0] / rest_v)
            return Divergence(V_k, V_v, at.g_v[0] * (sample.y - order.m_v * base.value[0] / rest_v) / T)

        def integrands(at: Reply) -> Means:
            V_k, V_v, m_v = forms = stein(at)
            if not activation.jumps:
                # without jumps derivatives are right too; the mean of the two estimators is used because their errors
                # nearly cancel in the risk
                exact = divergence(activation, channel, at)
                V_k, V_v, m_v = ((a + b) / 2 for a, b in zip(forms, exact, strict=True))
            m_k = mine.pull(law, order, base, place, at.g_k, V_k)
            q_k, q_v = jnp.sum(at.g_k**2, axis=0), jnp.sum(at.g_v**2, axis=0)
            return Means(Conjugate(m_k, q_k, V_k, m_v, q_v, V_v), at.residual**2, at.envelope)

        at = reply(activation, channel, sample, found.scores)
        values = integrands(at)
        if activation.jumps:  # two minima of almost equal height are averaged, see SOFTENING
            other = integrands(reply(activation, channel, sample, found.rival))
            share = jax.nn.sigmoid(-found.gap / (SOFTENING * jnp.mean(at.envelope)))
            values = jax.tree.map(lambda a, b: (1 - share) * a + share * b, values, other)
        return jax.tree.map(lambda x: jnp.mean(weight * x), values)

    return jax.vmap(one)(order, base, found)

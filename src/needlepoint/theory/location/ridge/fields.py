"""The fields of a training sequence in the limit, and the means over them that the replica-symmetric equations need."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from needlepoint.channels.linear_attention import linear_response
from needlepoint.channels.proximal import followed, patient, proximal
from needlepoint.channels.replies import Channel, Divergence, Minima, Reply, Sample, reply
from needlepoint.models.activations import Activation, Linear, Softmax
from needlepoint.numerics.gaussian import first_largest, sobol_normals
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.ridge.accuracy import ACCURACY

ROWS, BLOCK = 8, 512
"""Rows (scramblings) and points per row that one call of a kernel computes."""

SOFTENING = 0.03
"""Width over which the two lowest minima of a sample are averaged, as a share of the mean Moreau envelope. It keeps the
means continuous where the proximal map jumps from one minimum to the other. The bias is of second order in it."""


class Order(NamedTuple):
    """Overlaps with the teachers (m), squared norms (q) and susceptibilities (V) of the key (k) and the value (v)."""

    m_k: Any
    q_k: Any
    V_k: Any
    m_v: Any
    q_v: Any
    V_v: Any


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


class Base(NamedTuple):
    """Standard normals that n sequences are made of: scramblings on the first axis, sequences on the last."""

    label: Any  # (scrambles, n)
    value: Any  # (scrambles, tokens, n)
    score: Any  # (scrambles, tokens, n)
    star: Any  # (scrambles, tokens, n): the teacher's scores on the max task; zero tokens on the spiked task


class Points(NamedTuple):
    """What determines the normals: the kind of sequence, and the rule of integration. Hashable, the key of a cache."""

    task_type: type[SingleLocation]
    infinite: bool  # whether it is the max task at an infinite snr
    softmax: bool
    length: int
    log2_points: int
    scrambles: int
    seed: int

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of normals for the label and the values, for the scores, and for the teacher's scores.

        Softmax does not change if all scores shift together, so only their differences are integrated over.
        """
        free = self.length - 1 if self.softmax else self.length
        if issubclass(self.task_type, SpikedSLR):
            return 1 + self.length, free, 0
        # `first_largest` needs one normal per token; softmax over two tokens needs only their difference
        return 1 + self.length, free, self.length if self.length > 2 else free


def points(
    task: SingleLocation, activation: type[Activation], length: int, log2_points: int, scrambles: int, seed: int
) -> Points:
    infinite = isinstance(task, MaxSLR) and bool(np.isinf(task.snr))
    return Points(type(task), infinite, issubclass(activation, Softmax), length, log2_points, scrambles, seed)


@functools.lru_cache(maxsize=32)
def blocks(points: Points) -> tuple[Base, ...]:
    """Return the normals in blocks of ROWS scramblings and BLOCK Sobol points, the relevant token first.

    All blocks have one shape, so that a kernel compiles once. A single scrambling is repeated to fill all rows.
    """
    base = _base_normals(points)
    if points.scrambles == 1:
        base = Base(*(np.repeat(x, ROWS, axis=0) for x in base))
    count = max(1, 2**points.log2_points // BLOCK)
    parts = zip(*(np.split(x, count, axis=-1) for x in base), strict=True)
    return tuple(Base(*(jnp.asarray(x) for x in part)) for part in parts)


def _base_normals(points: Points) -> Base:
    task_type, infinite, _, length, log2_points, scrambles, seed = points
    counts = points.counts
    normals = np.swapaxes(sobol_normals(sum(counts), log2_points, scrambles, seed), 1, 2)
    label_value, score, star = np.split(normals, np.cumsum(counts)[:2], axis=1)
    # the first coordinates of a Sobol sequence are the most uniform: they go to the label and the values
    score = _whole(score, length)
    if issubclass(task_type, SpikedSLR):
        star = star[:, :0]
    elif star.shape[1] == length:
        star = first_largest(star)
    else:
        half = np.abs(star) / np.sqrt(2) if star.shape[1] else np.zeros((scrambles, 1, normals.shape[-1]))
        star = np.concatenate([half, -half], axis=1)[:, :length]
    if star.shape[1] > 1 and not infinite:  # in half of the samples another token than the relevant has the top score
        star[:, :2, 1::2] = star[:, 1::-1, 1::2]
    return Base(*(np.ascontiguousarray(x) for x in (label_value[:, 0], label_value[:, 1:], score, star)))


def _whole(normals: np.ndarray, length: int) -> np.ndarray:
    """Return normals for every token, (scrambles, length, n).

    Given length - 1 normals, a Helmert matrix maps them to `length` normals that sum to zero.
    """
    if normals.shape[1] == length:
        return normals
    if length == 1:
        return np.zeros((normals.shape[0], 1, normals.shape[2]))
    directions = linalg.helmert(length)  # (length - 1, length), orthonormal, each row sums to zero
    return np.einsum("il,sin->sln", directions, normals)


# --- means over the fields ----------------------------------------------------------------------


def fields(task_type: type[SingleLocation], law: dict[str, Any], order: Order, base: Base) -> Sample:
    r"""eq:ridge-fields. Return the labels (n,) and the score and value fields (tokens, n) of one scrambling.

    $y = \sqrt{1 + \Delta^2}a$, $w_{z,l} = \sqrt{q_v}h_l$ except $w_{z,1} = \frac{m_vy}{1 + \Delta^2} + \sqrt{q_v -
    \frac{m_v^2}{1 + \Delta^2}}h_1$; spiked $w_\chi = \sqrt{q_k}g + \sqrt\mu m_ke_1$, max $w_\chi = m_k\chi^* +
    \sqrt{q_k - m_k^2}g$.
    """
    T = 1 + law["noise"] ** 2
    y = jnp.sqrt(T) * base.label
    first = (jnp.arange(base.value.shape[0]) == 0)[:, None]
    rest = jnp.sqrt(order.q_v - order.m_v**2 / T)
    w_z = jnp.where(first, order.m_v * y / T + rest * base.value, jnp.sqrt(order.q_v) * base.value)
    if issubclass(task_type, SpikedSLR):
        w_chi = jnp.sqrt(order.q_k) * base.score + jnp.sqrt(law["snr"]) * order.m_k * first
    else:
        w_chi = order.m_k * base.star + jnp.sqrt(order.q_k - order.m_k**2) * base.score
    return Sample(y, w_chi, w_z)


def place(law: dict[str, Any], base: Base) -> tuple[Any, Any]:
    """Return, for the max task, the posterior of the relevant place (tokens, n) and the weight of each sample (n,).

    The relevant token is the first. At a finite snr half of the samples have the largest score there and half have it
    elsewhere; the weight makes each case as frequent as its posterior says. Scores drawn without this order would have
    weights that are almost an indicator function. At an infinite snr the posterior is None and all weights are 1.
    """
    if "snr" not in law:  # an infinite snr is not among the traced numbers; the first is the largest by construction
        return None, jnp.ones_like(base.label)
    p = jax.nn.softmax(law["snr"] * base.star, axis=0)
    others = len(p) - 1
    share = jnp.where(p[0] >= jnp.max(p, axis=0), 2.0, 2.0 * others) if others else 1.0
    return p, share * p[0]


def settled(
    task_type: type[SingleLocation],
    activation: type[Activation],
    law: Any,
    c: Any,
    order: Order,
    base: Base,
    near: Minima | None = None,
) -> Minima:
    """Return the proximal map of every sample; those that did not converge are solved again, with more steps.

    With `near`, the minima at an order close by, these are followed instead of being searched for.
    """
    if near is None:
        found = _minima(task_type, activation, law, c, order, base)
    else:
        found = _followed(task_type, activation, law, c, order, base, near)
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


@functools.partial(jax.jit, static_argnums=(0, 1))
def _followed(
    task_type: type[SingleLocation],
    activation: type[Activation],
    law: Any,
    c: Any,
    order: Order,
    base: Base,
    near: Minima,
) -> Minima:
    def one(order: Order, base: Base, near: Minima) -> Minima:
        return followed(activation, Channel(c, order.V_k, order.V_v), fields(task_type, law, order, base), near)

    return jax.vmap(one)(order, base, near)


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

    spiked = issubclass(task_type, SpikedSLR)

    def one(order: Order, base: Base, found: Minima) -> Means:
        sample, channel = fields(task_type, law, order, base), Channel(c, order.V_k, order.V_v)
        p, weight = (None, jnp.ones_like(base.label)) if spiked else place(law, base)
        T = 1 + law["noise"] ** 2
        rest_k = jnp.sqrt(order.q_k if spiked else order.q_k - order.m_k**2)
        rest_v = jnp.sqrt(order.q_v - order.m_v**2 / T)

        def stein(at: Reply) -> Divergence:
            V_k = -jnp.sum(at.g_k * base.score, axis=0) / rest_k
            others = jnp.sum(at.g_v[1:] * base.value[1:], axis=0) / jnp.sqrt(order.q_v)
            V_v = -(others + at.g_v[0] * base.value[0] / rest_v)
            return Divergence(V_k, V_v, at.g_v[0] * (sample.y - order.m_v * base.value[0] / rest_v) / T)

        def integrands(at: Reply) -> Means:
            V_k, V_v, m_v = forms = stein(at)
            if issubclass(activation, Linear):
                # linear attention never jumps, so that derivatives are right too; the mean of the two estimators is
                # used because their errors nearly cancel in the risk
                V_k, V_v, m_v = ((a + b) / 2 for a, b in zip(forms, linear_response(channel, at)[1], strict=True))
            m_k = (
                jnp.sum(at.g_k * base.star, axis=0) + order.m_k * V_k
                if not spiked
                else jnp.sqrt(law["snr"]) * at.g_k[0]
            )
            if p is not None:  # the second estimator of m_k scatters less at a small snr
                here = law["snr"] * (at.g_k[0] - jnp.sum(p * at.g_k, axis=0))
                m_k = (ACCURACY.even_snr * here + law["snr"] * m_k) / (ACCURACY.even_snr + law["snr"])
            q_k, q_v = jnp.sum(at.g_k**2, axis=0), jnp.sum(at.g_v**2, axis=0)
            return Means(Conjugate(m_k, q_k, V_k, m_v, q_v, V_v), at.residual**2, at.envelope)

        at = reply(activation, channel, sample, found.scores)
        values = integrands(at)
        if not issubclass(activation, Linear):  # two minima of almost equal height are averaged, see SOFTENING
            other = integrands(reply(activation, channel, sample, found.rival))
            share = jax.nn.sigmoid(-found.gap / (SOFTENING * jnp.mean(at.envelope)))
            values = jax.tree.map(lambda a, b: (1 - share) * a + share * b, values, other)
        return jax.tree.map(lambda x: jnp.mean(weight * x), values)

    return jax.vmap(one)(order, base, found)

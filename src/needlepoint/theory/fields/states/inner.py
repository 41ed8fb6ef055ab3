r"""Means over the states of a sequence: the inner average of one step of replica symmetry breaking.

A sequence's fields have a part that all states share, drawn at the overlaps $Q_0$ between states, and one of
covariance $Q_1 - Q_0$ in which states differ. A state counts with the weight $e^{-x\mathcal E}$ of its envelope.
Logarithms, ratios and squares of inner means are biased when these have finitely many points: every one is taken with
all of them and with the two halves, and $2F - (F_A + F_B)/2$ is free of the first order of that bias.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from needlepoint.numerics.arrays import Array
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.numerics.sobol import sobol_points
from needlepoint.theory.fields.envelope import at
from needlepoint.theory.fields.law import Kind, Numbers, Sequences, fields
from needlepoint.theory.fields.states.accuracy import ACCURACY
from needlepoint.theory.fields.states.minima import Low

Search = Callable[[Kind, Numbers, Array, Sequences, Low | None], Low]
"""A route of the table for "minima of sequences"."""


class Normals(NamedTuple):
    """Standard normals in chunks: of the shared part of the fields, (chunks, dimension, c), and of what states differ
    in, (chunks, tokens, P, 2, inner, c), the two halves along the fourth axis."""

    outer: Array
    inner: Array


class Means(NamedTuple):
    r"""Derivatives of the mean of $\psi_0 = -\frac1x\log\langle e^{-x\mathcal E}\rangle$ by M and by what Q_0 and Q_1
    share; means of $\sum s^2gg^\top$ with forces averaged over states (`between`) and not (`within`); means of
    $\psi_0$, of the envelope and of the loss; and the effective share of the inner points."""

    by_M: Array
    by_Q: Array
    between: Array
    within: Array
    psi: Array
    envelope: Array
    loss: Array
    share: Array


@functools.lru_cache(maxsize=24)
def normals(kind_normals: int, tokens: int, columns: int, levels: tuple[int, int], scrambles: int, seed: int, row: int):
    """Return the normals of one scrambling with 2**levels[0] outer and 2**levels[1] inner points.

    The inner points of every outer one are two Sobol sets of half the size, shifted by uniforms of their own, so that
    what they are wrong by averages out between outer points.
    """
    log2_outer, log2_inner = levels
    outer = sobol_normals(kind_normals, log2_outer, scrambles, seed)[row].T  # (dimension, n)
    n, half = 2**log2_outer, 2 ** (log2_inner - 1)
    rng = np.random.default_rng([seed, 11, row, log2_outer, log2_inner])
    size = min(n, max(1, ACCURACY.kernel // (2 * half)))
    chunks, dimension = n // size, tokens * columns
    inner = np.empty((chunks, dimension, 2, half, size))
    for side in range(2):
        points = sobol_points(dimension, log2_inner - 1, rng).T[None, :, :, None]  # (1, dimension, half, 1)
        shift = rng.random((chunks, dimension, 1, size))
        u = (points + shift) % 1.0
        inner[:, :, side] = special.ndtri(np.clip(u, 2.0**-53, 1 - 2.0**-53))
    inner = inner.reshape(chunks, tokens, columns, 2, half, size)
    return Normals(jnp.asarray(np.stack(np.split(outer, chunks, axis=-1))), jnp.asarray(inner))


@functools.partial(jax.jit, static_argnums=(0, 1))
def means(
    kind: Kind,
    search: Search,
    numbers: Numbers,
    M: Array,
    Q: Array,
    root: Array,
    V: Array,
    x: Array,
    points: Normals,
    near: Low | None,
) -> tuple[Means, Low | None]:
    r"""eq:state-means. Return the means over outer points, and the minima (chunks, freedom, n), from which the next
    search may begin.

    `Q` is Q_0, `root` a root of Q_1 - Q_0. The derivative of an envelope by the fields is minus the force, $g =
    (s^2V)^{-1}(\lambda - \omega)$, so that those of $\psi_0$ are minus its mean over states, pulled back through the
    law of the shared fields.
    """

    def chunk(given: Any) -> tuple[Means, Low]:
        outer, inner, before = given
        seq, pull_back = _shared(kind, numbers, M, Q, outer)
        many = _spread_out(seq, root, inner)
        low = search(kind, numbers, V, many, before)
        found = at(kind, numbers, V, many, low.chi)
        s2 = many.spread[:, None, None] ** 2
        forces = jnp.einsum("pq,lqn->lpn", jnp.linalg.inv(V), found.fields - many.columns) / s2
        _, model, loss = kind.bound(numbers)
        costs = jax.vmap(lambda y, f: loss.cost(y, model.outputs(f)), -1)(many.y, found.fields)
        shape = inner.shape[2:]  # (2, inner, c)
        height = found.height.reshape(shape)
        least = jnp.min(height, axis=(0, 1))
        weight = jnp.exp(-x * (height - least))
        weights = jnp.sum(weight, axis=1)  # (2, c)

        def ratio(values: Array) -> Callable[[Array], Array]:
            """Return a function that takes the mean over states by all points, or by one half."""
            sums = jnp.sum(weight * values.reshape(*values.shape[:-1], *shape), axis=-2)  # (..., 2, c)
            return lambda pick: jnp.sum(sums * pick, axis=-2) / jnp.sum(weights * pick, axis=-2)

        outer_weight = seq.weight / seq.weight.shape[-1]
        force = ratio(forces)
        mean_force = unbiased(force)

        def product(pick: Array) -> Array:
            g = force(pick)
            return jnp.einsum("l,lpc,lqc->pqc", seq.spread**2, g, g)

        products = jnp.einsum("l,lpn,lqn->pqn", seq.spread**2, forces, forces)
        psi = least - unbiased(lambda pick: jnp.log(jnp.sum(weights * pick, axis=-2) / jnp.sum(pick) / shape[1])) / x
        by_M, by_Q = pull_back(-mean_force * outer_weight)
        share = jnp.sum(weights, axis=0) ** 2 / jnp.sum(weight**2, axis=(0, 1)) / (shape[0] * shape[1])
        averages = (unbiased(product), unbiased(ratio(products)), psi, unbiased(ratio(found.height)))
        averages += (unbiased(ratio(costs)), share)
        return Means(by_M, by_Q, *(jnp.sum(outer_weight * a, axis=-1) for a in averages)), low

    parts, low = jax.lax.map(chunk, (points.outer, points.inner, near))
    return Means(*(jnp.mean(part, axis=0) for part in parts)), low


def unbiased(function: Callable[[Array], Array]) -> Array:
    """Return 2 F - (F_A + F_B) / 2 for a function of which halves are taken, (2, 1)."""
    both, one, other = (jnp.array(pick)[:, None] for pick in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)))
    return 2 * function(both) - (function(one) + function(other)) / 2


def _shared(
    kind: Kind, numbers: Numbers, M: Array, Q: Array, outer: Array
) -> tuple[Sequences, Callable[[Array], tuple[Array, Array]]]:
    """Return the sequences that all states share, and a function from derivatives by the fields of their columns
    (tokens, P, c) to those by M and Q."""

    def drawn(M: Array, Q: Array) -> tuple[Array, Sequences]:
        seq = fields(kind, numbers, M, Q, outer)
        return seq.columns, seq

    _, pull, seq = jax.vjp(drawn, M, Q, has_aux=True)
    return seq, pull


def _spread_out(seq: Sequences, root: Array, inner: Array) -> Sequences:
    """Return every sequence in all of its states, (..., 2 * inner * c), with the samples of one half and one inner
    point together."""
    shape = inner.shape[2:]

    def repeated(x: Array) -> Array:
        return jnp.broadcast_to(x[..., None, None, :], (*x.shape[:-1], *shape)).reshape(*x.shape[:-1], -1)

    apart = jnp.einsum("pq,lqhic->lphic", root, inner) * seq.spread[:, None, None, None, None]
    columns = seq.columns[:, :, None, None, :] + apart
    return Sequences(
        repeated(seq.y),
        repeated(seq.weight),
        seq.spread,
        repeated(seq.teachers),
        columns.reshape(*columns.shape[:2], -1),
    )

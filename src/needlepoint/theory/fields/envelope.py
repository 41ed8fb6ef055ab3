r"""The proximal map of one sequence: what it does to its own fields, and what that costs.

Given the fields $\omega$ that the rest of the data makes and their susceptibility $V$, the fields of a training
sequence minimise its loss plus the cost of leaving $\omega$. Columns in which the output is linear are eliminated in
closed form under the square loss. Arrays have the samples last.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.losses import Square
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.positive_solve import solve_positive
from needlepoint.theory.fields.law import Kind, Numbers, Sequences, fields

SETTLED = 1e-9
"""Newton steps end where every coordinate moves by less than this, relative to 1 + the largest."""

ROUNDING = 1e-14
"""A step may raise the envelope by this share of it. Closer to the minimum than 1e-8 the envelope is constant up to
rounding; without this a few samples of a block would be retried there to the last step, and all others with them."""


class Split(NamedTuple):
    """Columns that are searched over (x), and those that are eliminated (z)."""

    x: tuple[int, ...]
    z: tuple[int, ...]


@functools.cache
def split(kind: Kind) -> Split:
    """Return which columns are eliminated: those that the model calls linear, for a scalar output under the square
    loss."""
    model = kind.model.value
    every = range(kind.columns)
    shape = jax.eval_shape(lambda f: jnp.asarray(model.outputs(f)), jnp.zeros((kind.tokens, kind.columns))).shape
    if shape or not isinstance(kind.loss.value, Square):
        return Split(tuple(every), ())
    z = tuple(p for p in every if model.group_of[p] in model.linear)
    return Split(tuple(p for p in every if p not in z), z)


def freedom(kind: Kind) -> int:
    """Return the dimension of the search: tokens times the columns that are not eliminated."""
    return kind.tokens * len(split(kind).x)


class Searched(NamedTuple):
    """A sequence at given searched fields: the envelope (n,), and all fields at the minimum over the others (tokens, P,
    n)."""

    height: Array
    fields: Array


def at(kind: Kind, numbers: Numbers, V: Array, seq: Sequences, chi: Array) -> Searched:
    r"""eq:envelope. Return $\ell(y, f(\lambda)) + \frac12\sum_l(\lambda_l - \omega_l)^\top(s_l^2V)^{-1}(\lambda_l -
    \omega_l)$ at searched fields `chi` (freedom, n), least over the eliminated ones, and all fields there.

    With $w = \omega_z + V_{zx}V_{xx}^{-1}(\chi - \omega_x)$, $V_{z|x} = V_{zz} - V_{zx}V_{xx}^{-1}V_{xz}$ and $a =
    \partial f/\partial z$ the part of $z$ is $\frac{(y - f(\chi, w))^2}{2(1/weight + \sum_ls_l^2a_l^\top V_{z|x}a_l)}$.
    """
    _, model, loss = kind.bound(numbers)
    x, z = (np.array(part, int) for part in split(kind))
    omega = seq.columns
    chi = chi.reshape(kind.tokens, len(x), -1)
    away, s2 = chi - omega[:, x], seq.spread[:, None] ** 2
    inverse = jnp.linalg.inv(V[np.ix_(x, x)])
    cost = jnp.sum(jnp.einsum("lpn,pq,lqn->ln", away, inverse, away) / s2, axis=0) / 2
    if not len(z):
        found = jax.vmap(lambda y, f: loss.cost(y, model.outputs(f)), -1)(seq.y, chi)
        return Searched(found + cost, chi)
    gain = V[np.ix_(z, x)] @ inverse
    w = omega[:, z] + jnp.einsum("zx,lxn->lzn", gain, away)
    back = np.argsort(np.concatenate([x, z]))

    def output(chi: Array, w: Array) -> Array:
        return model.outputs(jnp.concatenate([chi, w], axis=1)[:, back])

    f, a = jax.vmap(jax.value_and_grad(output, argnums=1), -1, -1)(chi, w)
    left = V[np.ix_(z, z)] - gain @ V[np.ix_(x, z)]
    moved = s2[:, :, None] * jnp.einsum("zw,lwn->lzn", left, a)
    pull = (seq.y - f) / (1 / loss.weight + jnp.sum(a * moved, axis=(0, 1)))
    whole = jnp.concatenate([chi, w + moved * pull], axis=1)[:, back]
    return Searched((seq.y - f) * pull / 2 + cost, whole)


def start_at(kind: Kind, seq: Sequences) -> Array:
    """Return the fields themselves as searched fields, (freedom, n)."""
    return seq.columns[:, np.array(split(kind).x, int)].reshape(freedom(kind), -1)


class Descended(NamedTuple):
    """Searched fields (freedom, n), the envelope there (n,), and the last step, relative to 1 + the largest (n,)."""

    chi: Array
    height: Array
    left: Array


@functools.partial(jax.jit, static_argnums=0)
def descend(
    kind: Kind, numbers: Numbers, M: Array, Q: Array, V: Array, base: Array, start: Array, steps: Array
) -> Descended:
    """Return where Newton's method leads in the fields that the normals `base` make, as `descended` does."""
    return descended(kind, numbers, V, fields(kind, numbers, M, Q, base), start, steps)


def descended(kind: Kind, numbers: Numbers, V: Array, seq: Sequences, start: Array, steps: Any) -> Descended:
    """Return where Newton's method leads from `start` (freedom, n) in at most so many steps, with a Hessian made
    positive; a step that would increase the envelope is retried shorter."""

    def slope(chi: Array) -> tuple[Array, Array]:
        def total(c: Array) -> tuple[Array, Array]:
            height = at(kind, numbers, V, seq, c).height
            return jnp.sum(height), height

        return jax.grad(total, has_aux=True)(chi)

    units = jnp.eye(start.shape[0])

    def newton(chi: Array) -> tuple[Array, Array]:
        """Return the envelope and Newton's step, both from one evaluation."""
        (here, height), (bend, _) = jax.vmap(
            lambda e: jax.jvp(slope, (chi,), (jnp.broadcast_to(e[:, None], chi.shape),)), out_axes=(None, 0)
        )(units)
        return height, -solve_positive(bend, here)

    def size(chi: Array, move: Array) -> Array:
        return jnp.max(jnp.abs(move), axis=0) / (1 + jnp.max(jnp.abs(chi), axis=0))

    def step(state: Any) -> Any:
        count, chi, value, move, fraction = state
        new = chi + fraction * move
        new_value, new_move = newton(new)
        lower = (new_value <= value + ROUNDING * jnp.abs(value)) | (count < 0)
        chi, value, move = (jnp.where(lower, a, b) for a, b in ((new, chi), (new_value, value), (new_move, move)))
        return count + 1, chi, value, move, jnp.where(lower, jnp.minimum(1.0, 4 * fraction), fraction / 4)

    def unsettled(state: Any) -> Any:
        count, chi, _, move, fraction = state
        return (count < 0) | ((count < steps) & jnp.any((size(chi, move) > SETTLED) & (fraction > 1e-6)))

    # round -1 moves nowhere and looks at the start: so the kernel has the envelope's derivatives only once
    still = (-1, start, jnp.zeros(start.shape[1]), jnp.zeros_like(start), jnp.ones(start.shape[1]))
    _, chi, value, move, _ = jax.lax.while_loop(unsettled, step, still)
    return Descended(chi, value, size(chi, move))


class Averages(NamedTuple):
    """Derivatives of the mean envelope by M, Q and V, its value, and the mean loss at the minimum."""

    by_M: Array
    by_Q: Array
    by_V: Array
    envelope: Array
    loss: Array


@functools.partial(jax.jit, static_argnums=0)
def averages(
    kind: Kind, numbers: Numbers, M: Array, Q: Array, V: Array, base: Array, chi: Array, rival: Array, share: Array
) -> Averages:
    r"""eq:field-conjugates. Return the gradient of $\Phi(M, Q, V) = E[g\,\mathcal E(\omega, y; V)]$ at frozen minima.

    The derivative through the fields $\omega$ at fixed searched fields is Stein's form of the conjugates, jumps
    included. `share` (n,) is the weight of the `rival` minimum.
    """

    # both minima are columns of one array, so that the kernel has the envelope's derivatives only once
    both, weights = jnp.concatenate([chi, rival], axis=1), jnp.concatenate([1 - share, share]) / len(share)

    def phi(M: Array, Q: Array, V: Array) -> tuple[Array, Array]:
        seq = fields(kind, numbers, M, Q, base)
        seq = seq._replace(
            **{name: jnp.concatenate([x, x], axis=-1) for name, x in seq._asdict().items() if name != "spread"}
        )
        found = at(kind, numbers, V, seq, both)
        _, model, loss = kind.bound(numbers)
        costs = jax.vmap(lambda y, f: loss.cost(y, model.outputs(f)), -1)(seq.y, found.fields)
        weight = seq.weight * weights
        return jnp.sum(weight * found.height), jnp.sum(weight * costs)

    (envelope, loss), (by_M, by_Q, by_V) = jax.value_and_grad(phi, argnums=(0, 1, 2), has_aux=True)(M, Q, V)
    return Averages(by_M, (by_Q + by_Q.T) / 2, (by_V + by_V.T) / 2, envelope, loss)

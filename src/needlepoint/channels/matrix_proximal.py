r"""The proximal map through a matrix of attention weights: what one sequence does to its own scores.

The scores of T tokens are a symmetric matrix. Row-wise softmax does not change if a multiple of the all-ones matrix is
added to it; in an orthonormal basis of the rest the scores are N = (T^2 + T - 2)/2 coordinates. Arrays have the samples
last: (N, n).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.numerics.arrays import Array
from needlepoint.numerics.positive_solve import solve_positive

_STEPS = 60  # most Newton steps; most samples converge in six
_FAR = 1e-6  # step, relative to 1 + the largest coordinate, after which one last step is enough


@functools.cache
def basis(tokens: int) -> np.ndarray:
    """Return an orthonormal basis of the symmetric matrices that are orthogonal to the all-ones matrix, (N, T, T).

    For two tokens the first coordinate is unchanged if the tokens are swapped, and the second changes sign.
    """
    T = tokens
    if T == 1:
        return np.ones((1, 1, 1))
    found = [np.ones((T, T)) / T]
    ordered = [(a, b) for a in range(T) for b in range(a + 1, T)] + [(a, a) for a in range(T)]
    for a, b in ordered:
        new = np.zeros((T, T))
        new[a, b] = new[b, a] = -1.0
        for _ in range(2):  # a second pass removes the rounding of the first
            for old in found:
                new = new - np.sum(new * old) * old
        size = np.linalg.norm(new)
        if size > 1e-8:
            found.append(new / size)
    return np.array(found[1:])


class Pull(NamedTuple):
    """Loss (n,), its gradient (N, n) and Hessian (N, N, n) in the coordinates of the scores."""

    loss: Array
    slope: Array
    bend: Array


def attention(tokens: int, beta: Array, scores: Array) -> Array:
    """Return the row-wise softmax (T, T, n) of scores in coordinates (N, n)."""
    z = jnp.einsum("iab,in->abn", basis(tokens), scores)
    return jax.nn.softmax(beta * z, axis=1)


def loss(tokens: int, beta: Array, labels: Array, scores: Array) -> Array:
    """Return the squared distance of the attention from the labels, (n,)."""
    if tokens == 2:
        e = _diagonal(labels) - jax.nn.sigmoid(beta * _gaps(scores))
        return 2 * (e[0] ** 2 + e[1] ** 2)
    return jnp.sum((labels - attention(tokens, beta, scores)) ** 2, axis=(0, 1))


def pull(tokens: int, beta: Array, labels: Array, scores: Array) -> Pull:
    """eq:matrix-pull. Return the loss with its derivatives; two tokens are two sigmoids, which is much faster."""
    return pair_pull(beta, labels, scores) if tokens == 2 else any_pull(tokens, beta, labels, scores)


def _gaps(scores: Array) -> Array:
    """Return, for each of two tokens, its score with itself minus its score with the other, (2, n)."""
    odd = basis(2)[1, 0, 0] * scores[1]
    return jnp.stack([scores[0] + odd, scores[0] - odd])


def _diagonal(labels: Array) -> Array:
    return jnp.stack([labels[0, 0], labels[1, 1]])


def pair_pull(beta: Array, labels: Array, scores: Array) -> Pull:
    """eq:matrix-pull. Return the loss with its derivatives for two tokens."""
    p = jax.nn.sigmoid(beta * _gaps(scores))
    e = _diagonal(labels) - p
    first = beta * p * (1 - p)
    slope = -4 * e * first
    bend = 4 * first**2 - 4 * e * beta * first * (1 - 2 * p)
    r = basis(2)[1, 0, 0]
    even, odd = bend[0] + bend[1], r * (bend[0] - bend[1])
    return Pull(
        2 * (e[0] ** 2 + e[1] ** 2),
        jnp.stack([slope[0] + slope[1], r * (slope[0] - slope[1])]),
        jnp.stack([jnp.stack([even, odd]), jnp.stack([odd, r**2 * even])]),
    )


def any_pull(tokens: int, beta: Array, labels: Array, scores: Array) -> Pull:
    r"""eq:matrix-pull. Return the loss with its derivatives for any number of tokens.

    With $p$ a row of the attention, $e$ its residual and $f = p(e - p\cdot e)$: the gradient is $-2\beta f$ and the
    Hessian $2\beta^2[JJ - \mathrm{diag}f + fp^\top + pf^\top]$, $J = \mathrm{diag}p - pp^\top$.
    """
    B = jnp.asarray(basis(tokens))
    p = attention(tokens, beta, scores)
    e = labels - p
    f = p * (e - jnp.sum(p * e, axis=1, keepdims=True))
    eye = jnp.eye(tokens)[None, :, :, None]
    J = eye * p[:, :, None] - p[:, :, None] * p[:, None, :]
    H = jnp.einsum("abcn,acdn->abdn", J, J) - eye * f[:, :, None] + f[:, :, None] * p[:, None, :]
    H = 2 * beta**2 * (H + p[:, :, None] * f[:, None, :])
    bend = jnp.einsum("iab,abdn,jad->ijn", B, H, B)
    return Pull(jnp.sum(e**2, axis=(0, 1)), -2 * beta * jnp.einsum("iab,abn->in", B, f), bend)


class Nearest(NamedTuple):
    """The scores (N, n) at the minimum, its height (n,), and the size of the last step towards it (n,)."""

    scores: Array
    height: Array
    left: Array


def descend(tokens: int, beta: Array, Sigma: Array, labels: Array, fields: Array, start: Array) -> Nearest:
    r"""eq:matrix-proximal. Return a minimum of $\ell(z) + \frac{|z - \omega|^2}{4\Sigma}$ for every sample, by Newton's
    method from `start` with a Hessian made positive; a step that would increase the height is retried shorter."""
    stiff = jnp.eye(fields.shape[0])[:, :, None] / (2 * Sigma)

    def height(z: Array) -> Array:
        return loss(tokens, beta, labels, z) + jnp.sum((z - fields) ** 2, axis=0) / (4 * Sigma)

    def newton(z: Array) -> Array:
        at = pull(tokens, beta, labels, z)
        return -solve_positive(at.bend + stiff, at.slope + (z - fields) / (2 * Sigma))

    def step(state: Any) -> Any:
        count, z, value, move, fraction = state
        new = z + fraction * move
        new_value = height(new)
        lower = new_value <= value
        z, value = jnp.where(lower, new, z), jnp.where(lower, new_value, value)
        fraction = jnp.where(lower, jnp.minimum(1.0, 4 * fraction), fraction / 4)
        return count + 1, z, value, newton(z), fraction

    def far(z: Array, move: Array) -> Array:
        return jnp.max(jnp.abs(move), axis=0) > _FAR * (1 + jnp.max(jnp.abs(z), axis=0))

    def unsettled(state: Any) -> Any:
        return (state[0] < _STEPS) & jnp.any(far(state[1], state[3]))

    state = (0, start, height(start), newton(start), jnp.ones_like(labels[0, 0]))
    _, z, value, move, _ = jax.lax.while_loop(unsettled, step, state)
    return Nearest(jnp.where(far(z, move), z, z + move), value, jnp.max(jnp.abs(move), axis=0))

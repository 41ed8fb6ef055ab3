"""The fields of a sequence of the attention-indexed model, and the means over them that its equations need."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.matrix_proximal import attention, descend, pull
from needlepoint.channels.proximal import solve_positive
from needlepoint.numerics.gaussian import sobol_normals

BLOCK = 4096
"""Nodes that are computed at once: one shape, so that a number of tokens compiles once."""

_CUT = 1e-11  # weight of a node, relative to the largest, below which it is left out
_FAR = 1e-4  # distance to a minimum, relative to its size, that is not settled
_APART = 1e-3  # minima whose coordinates differ by more, relative to their size, are two


class State(NamedTuple):
    """Overlaps of the learned matrix with the target and itself, and its susceptibility."""

    m: Any
    q: Any
    Sigma: Any


class Means(NamedTuple):
    """Conjugates over alpha, training and test losses, the square of the response, the share of sequences with more
    than one minimum, and of those that are not settled in one."""

    m: Any
    q: Any
    Sigma: Any
    train: Any
    test: Any
    clean: Any
    response: Any
    rivals: Any
    left: Any


class Base(NamedTuple):
    """Weights (n,) and standard normals (N, n) of the labels' scores and of what is added to them."""

    weight: Any
    label: Any
    noise: Any


@functools.lru_cache(maxsize=8)
def lattice(spacing: float) -> tuple[Base, ...]:
    """Two tokens: the points (k + 1/2) spacing of a lattice in four dimensions, of which a quarter is enough. The loss
    does not change if all scores change sign, or if the tokens are swapped."""
    half = np.arange(0.5, math.sqrt(-2 * math.log(_CUT)) / spacing) * spacing
    both = np.concatenate([-half[::-1], half])
    x1, x2, y1, y2 = (g.ravel() for g in np.meshgrid(half, half, both, both, indexing="ij"))
    weight = np.exp(-(x1**2 + x2**2 + y1**2 + y2**2) / 2)
    # the farthest last: the few blocks that they fill take the most steps
    kept = np.argsort(-weight, kind="stable")[: np.count_nonzero(weight > _CUT)]
    return _blocks(weight[kept], np.stack([x1, x2])[:, kept], np.stack([y1, y2])[:, kept])


@functools.lru_cache(maxsize=8)
def scrambled(dimension: int, log2_points: int, scrambles: int, seed: int) -> tuple[tuple[Base, ...], ...]:
    """Any number of tokens: scrambled Sobol points, the blocks of every scrambling."""
    normals = np.swapaxes(sobol_normals(2 * dimension, log2_points, scrambles, seed), 1, 2)
    return tuple(_blocks(np.ones(one.shape[1]), one[:dimension], one[dimension:]) for one in normals)


def _blocks(weight: np.ndarray, label: np.ndarray, noise: np.ndarray) -> tuple[Base, ...]:
    """Blocks of one size, the last filled up with nodes of weight zero."""
    weight = weight / weight.sum()
    missing = -weight.size % BLOCK
    parts = [np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)]) for a in (weight, label, noise)]
    count = parts[0].size // BLOCK
    split = (np.split(a, count, axis=-1) for a in parts)
    return tuple(Base(*(jnp.asarray(a) for a in part)) for part in zip(*split, strict=True))


@functools.partial(jax.jit, static_argnums=0)
def means(tokens: int, law: dict[str, Any], state: State, base: Base) -> Means:
    r"""eq:indexed-conjugates. Labels of $z^0 = \sqrt{2Q}x$, fields $\omega = \frac mQz^0 + s\xi$ with $\xi = \sqrt2y$
    and $s^2 = q - m^2/Q$; with $g = (z^* - \omega)/\Sigma$ at the minimum of eq:matrix-proximal: $\hat q = \alpha
    E|g|^2$, $\hat\Sigma = -\frac\alpha sE[g\cdot\xi]$, $\hat m = \alpha E[g\cdot(\frac{z^0}Q - \frac m{Qs}\xi)]$. A
    block's part.
    """
    beta, beta_star, Q = law["beta"], law["beta_star"], law["Q"]
    s = jnp.sqrt(state.q - state.m**2 / Q)
    z0, xi = jnp.sqrt(2 * Q) * base.label, jnp.sqrt(2.0) * base.noise
    omega = state.m / Q * z0 + s * xi
    labels = attention(tokens, beta_star, z0)

    # from the field and from the labels; the lower one counts
    starts = jnp.stack([omega, beta_star / beta * z0])
    ends = jax.lax.map(lambda x: descend(tokens, beta, state.Sigma, labels, omega, x), starts)
    first = ends.height[0] <= ends.height[1]
    z, left = jnp.where(first, *ends.scores), jnp.where(first, *ends.left)
    gap = jnp.max(jnp.abs(ends.scores[0] - ends.scores[1]), axis=0)
    rivals = gap > _APART * (1 + jnp.max(jnp.abs(z), axis=0))
    g = (z - omega) / state.Sigma
    # how g follows omega: ((1 + 2 Sigma H)^-1 - 1) / Sigma
    bend = pull(tokens, beta, labels, z).bend
    unit = jnp.broadcast_to(jnp.eye(len(z))[:, :, None], bend.shape)
    moved = solve_positive(unit + 2 * state.Sigma * bend, unit)
    response = jnp.sum(((moved - unit) / state.Sigma) ** 2, axis=(0, 1))
    test, clean = test_losses(tokens, law, state.m, state.q, base)

    def mean(x: Any) -> Any:
        return jnp.sum(base.weight * x)

    def dot(a: Any, b: Any) -> Any:
        return mean(jnp.sum(a * b, axis=0))

    return Means(
        dot(g, z0 / Q - state.m / (Q * s) * xi),
        dot(g, g),
        -dot(g, xi) / s,
        mean(jnp.sum((labels - attention(tokens, beta, z)) ** 2, axis=(0, 1))),
        test,
        clean,
        mean(response),
        mean(rivals),
        mean(left > _FAR * (1 + jnp.max(jnp.abs(z), axis=0))),
    )


@functools.partial(jax.jit, static_argnums=0)
def test_losses(tokens: int, law: dict[str, Any], m: Any, q: Any, base: Base) -> tuple[Any, Any]:
    """The mean loss of a fresh sequence with noisy and with clean labels. A block's part."""
    xi = jnp.sqrt(2.0) * base.noise

    def loss(Q: Any) -> Any:
        z0 = jnp.sqrt(2 * Q) * base.label
        labels = attention(tokens, law["beta_star"], z0)
        mine = attention(tokens, law["beta"], m / Q * z0 + jnp.sqrt(q - m**2 / Q) * xi)
        return jnp.sum(base.weight * jnp.sum((labels - mine) ** 2, axis=(0, 1)))

    return loss(law["Q"]), loss(law["Q0"])

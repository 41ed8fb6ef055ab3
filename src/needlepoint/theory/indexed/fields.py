"""The fields of a sequence of the attention-indexed model, and the means over them that its equations need."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.matrix_proximal import attention, descend, loss, pull
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.theory.indexed.accuracy import ACCURACY

BLOCK = 1024
"""Nodes that are computed at once: blocks have one shape, so that every number of tokens compiles once."""

RADIUS = math.sqrt(-2 * math.log(ACCURACY.cut))
"""Radius of a lattice, where the Gaussian weight is ACCURACY.cut."""


class State(NamedTuple):
    """Overlaps of the learned matrix with the target (m) and with itself (q), and its susceptibility (Sigma)."""

    m: Any
    q: Any
    Sigma: Any


class Means(NamedTuple):
    """Means over the fields: the conjugates divided by alpha, the training loss, the shares of sequences with more than
    one minimum (`rivals`) and of those that did not converge (`left`). The equations do not need the others: the mean
    square of the response, and the test losses with noisy (`test`) and clean labels."""

    m: Any
    q: Any
    Sigma: Any
    train: Any
    rivals: Any
    left: Any
    response: Any = math.nan
    test: Any = math.nan
    clean: Any = math.nan


class Base(NamedTuple):
    """Nodes: weights (n,), and standard normals (N, n) for the scores behind the labels and for the independent part of
    the fields."""

    weight: Any
    label: Any
    noise: Any


@functools.lru_cache(maxsize=8)
def lattice(spacing: float) -> tuple[Base, ...]:
    """Return the blocks of nodes for two tokens: the points (k + 1/2) spacing of a lattice in four dimensions.

    A quarter of them is enough, because the loss does not change if all scores change sign or if the tokens are
    swapped.
    """
    half = np.arange(0.5, RADIUS / spacing) * spacing
    both = np.concatenate([-half[::-1], half])
    x1, x2, y1, y2 = (g.ravel() for g in np.meshgrid(half, half, both, both, indexing="ij"))
    weight = np.exp(-(x1**2 + x2**2 + y1**2 + y2**2) / 2)
    # the farthest nodes come last, so that only the few blocks that they fill take many steps
    kept = np.argsort(-weight, kind="stable")[: np.count_nonzero(weight > ACCURACY.cut)]
    return _blocks(weight[kept], np.stack([x1, x2])[:, kept], np.stack([y1, y2])[:, kept])


@functools.lru_cache(maxsize=8)
def scrambled(dimension: int, log2_points: int, scrambles: int, seed: int) -> tuple[tuple[Base, ...], ...]:
    """Return the blocks of nodes of every scrambling of Sobol points, for any number of tokens."""
    normals = map(_white, np.swapaxes(sobol_normals(2 * dimension, log2_points, scrambles, seed), 1, 2))
    return tuple(_blocks(np.ones(one.shape[1]), one[:dimension], one[dimension:]) for one in normals)


def _white(normals: np.ndarray) -> np.ndarray:
    """Return the points shifted and rescaled to mean 0 and covariance 1, (dimension, n): means of functions that are
    almost linear in them then differ far less between scramblings."""
    centred = normals - normals.mean(axis=1, keepdims=True)
    return np.linalg.solve(np.linalg.cholesky(np.cov(centred, bias=True)), centred)


def _blocks(weight: np.ndarray, label: np.ndarray, noise: np.ndarray) -> tuple[Base, ...]:
    """Return blocks of BLOCK nodes, the last one filled up with nodes of weight zero."""
    weight = weight / weight.sum()
    missing = -weight.size % BLOCK
    parts = [np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)]) for a in (weight, label, noise)]
    count = parts[0].size // BLOCK
    split = (np.split(a, count, axis=-1) for a in parts)
    return tuple(Base(*(jnp.asarray(a) for a in part)) for part in zip(*split, strict=True))


def starts(law: dict[str, Any], state: State, base: Base) -> Any:
    """Return two starts of the search for minima, (2, N, n): the fields, and the scores that reproduce the labels."""
    z0, _, omega = _fields(law, state, base)
    return jnp.stack([omega, law["beta_star"] / law["beta"] * z0])


def _fields(law: dict[str, Any], state: State, base: Base) -> tuple[Any, Any, Any]:
    Q = law["Q"]
    z0, xi = jnp.sqrt(2 * Q) * base.label, jnp.sqrt(2.0) * base.noise
    return z0, xi, state.m / Q * z0 + jnp.sqrt(state.q - state.m**2 / Q) * xi


@functools.partial(jax.jit, static_argnums=0)
def means(tokens: int, law: dict[str, Any], state: State, base: Base, known: Any) -> tuple[Means, Any]:
    r"""eq:indexed-conjugates. Return a block's part of the means, and the two minima (2, N, n) of every sequence that
    were reached from those that are `known`; the lower of the two enters the means.

    Labels of $z^0 = \sqrt{2Q}x$, fields $\omega = \frac mQz^0 + s\xi$ with $\xi = \sqrt2y$ and $s^2 = q - m^2/Q$; with
    $g = (z^* - \omega)/\Sigma$ at the minimum of eq:matrix-proximal: $\hat q = \alpha E|g|^2$, $\hat\Sigma =
    -\frac\alpha sE[g\cdot\xi]$, $\hat m = \alpha E[g\cdot(\frac{z^0}Q - \frac m{Qs}\xi)]$.
    """
    beta, Q = law["beta"], law["Q"]
    z0, xi, omega = _fields(law, state, base)
    s = jnp.sqrt(state.q - state.m**2 / Q)
    labels = attention(tokens, law["beta_star"], z0)
    ends = jax.lax.map(lambda x: descend(tokens, beta, state.Sigma, labels, omega, x), known)
    first = ends.height[0] <= ends.height[1]
    z, left = jnp.where(first, *ends.scores), jnp.where(first, *ends.left)
    gap = jnp.max(jnp.abs(ends.scores[0] - ends.scores[1]), axis=0)
    rivals = gap > ACCURACY.apart * (1 + jnp.max(jnp.abs(z), axis=0))
    g = (z - omega) / state.Sigma

    def mean(x: Any) -> Any:
        return jnp.sum(base.weight * x)

    def dot(a: Any, b: Any) -> Any:
        return mean(jnp.sum(a * b, axis=0))

    found = Means(
        dot(g, z0 / Q - state.m / (Q * s) * xi),
        dot(g, g),
        -dot(g, xi) / s,
        mean(loss(tokens, beta, labels, z)),
        mean(rivals),
        mean(left > ACCURACY.far * (1 + jnp.max(jnp.abs(z), axis=0))),
    )
    return found, ends.scores


@functools.partial(jax.jit, static_argnums=0)
def means_of_nothing(tokens: int, law: dict[str, Any], base: Base) -> Means:
    r"""eq:indexed-conjugates where nothing is learned. Return a block's part of the means at $q = m = \Sigma = 0$:
    there $g = -2\nabla\ell$ at scores of 0 and $\hat\Sigma = 4\alpha E\,\mathrm{tr}H$."""

    def at(Q: Any) -> Any:
        z0 = jnp.sqrt(2 * Q) * base.label
        return z0, pull(tokens, law["beta"], attention(tokens, law["beta_star"], z0), jnp.zeros_like(z0))

    (z0, noisy), (_, clean) = at(law["Q"]), at(law["Q0"])
    terms = (
        -2 * jnp.sum(noisy.slope * z0, axis=0) / law["Q"],
        4 * jnp.sum(noisy.slope**2, axis=0),
        4 * jnp.trace(noisy.bend),
        noisy.loss,
        jnp.zeros_like(noisy.loss),
        jnp.zeros_like(noisy.loss),
        4 * jnp.sum(noisy.bend**2, axis=(0, 1)),
        noisy.loss,
        clean.loss,
    )
    return Means(*(jnp.sum(base.weight * x) for x in terms))


@functools.partial(jax.jit, static_argnums=0)
def response(tokens: int, law: dict[str, Any], state: State, base: Base, minima: Any) -> Any:
    r"""Return a block's part of $E|\partial_\omega g|^2$, with $\partial_\omega g = ((1 + 2\Sigma H)^{-1} -
    1)/\Sigma$."""
    z0, _, omega = _fields(law, state, base)
    labels = attention(tokens, law["beta_star"], z0)

    def height(z: Any) -> Any:
        return loss(tokens, law["beta"], labels, z) + jnp.sum((z - omega) ** 2, axis=0) / (4 * state.Sigma)

    z = jnp.where(height(minima[0]) <= height(minima[1]), *minima)
    bend = jnp.moveaxis(pull(tokens, law["beta"], labels, z).bend, -1, 0)
    moved = jnp.linalg.inv(jnp.eye(len(z)) + 2 * state.Sigma * bend)
    return jnp.sum(base.weight * jnp.sum(((moved - jnp.eye(len(z))) / state.Sigma) ** 2, axis=(1, 2)))


@functools.partial(jax.jit, static_argnums=0)
def test_losses(tokens: int, law: dict[str, Any], m: Any, q: Any, base: Base) -> tuple[Any, Any]:
    """Return a block's part of the mean losses of a fresh sequence, with noisy and with clean labels."""
    xi = jnp.sqrt(2.0) * base.noise

    def mean(Q: Any) -> Any:
        z0 = jnp.sqrt(2 * Q) * base.label
        labels = attention(tokens, law["beta_star"], z0)
        mine = m / Q * z0 + jnp.sqrt(jnp.maximum(q - m**2 / Q, 0.0)) * xi
        return jnp.sum(base.weight * loss(tokens, law["beta"], labels, mine))

    return mean(law["Q"]), mean(law["Q0"])

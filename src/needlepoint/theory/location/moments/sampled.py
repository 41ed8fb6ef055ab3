"""Means of attention weights by scrambled Sobol points over the scores: any activation, any task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.errors import NoTheory
from needlepoint.core.routes import SAMPLED, route, the
from needlepoint.models.activations import Activation
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.moments.accuracy import ACCURACY
from needlepoint.theory.location.moments.weight_moments import MaxMoments, Moments, SpikedMoments


@route("sampled means", name="shifted", cost=SAMPLED, task=SpikedSLR)
@functools.partial(jax.jit, static_argnums=0)
def _spiked(activation: type[Activation], c: dict[str, Any], key: Any, norm: Any, normals: Any) -> SpikedMoments:
    """Return the seven means of eq:field-risk over these points, with the first token relevant."""
    first = jnp.arange(normals.shape[-1]) == 0
    spread = jnp.where(first, c["task.relevant_std"], 1.0)
    xi = norm * spread * normals
    scores = xi + jnp.sqrt(c["task.snr"]) * key * first
    sigma = jax.vmap(lambda one: activation.weights(one, c))(scores)
    mu, weight = jnp.sum(sigma * xi, axis=-1), sigma[:, 0]
    samples = SpikedMoments(
        weight=weight,
        weight_xi=weight * xi[:, 0],
        xi_mu=xi[:, 0] * mu,
        weight_sq=weight**2,
        others_sq=jnp.sum(sigma[:, 1:] ** 2, axis=-1),
        weight_mu=weight * mu,
        mu_sq=mu**2,
    )
    return SpikedMoments(*map(jnp.mean, samples))


@route("sampled means", name="tilted", cost=SAMPLED, task=MaxSLR)
@functools.partial(jax.jit, static_argnums=0)
def _maximal(activation: type[Activation], c: dict[str, Any], key: Any, norm: Any, normals: Any) -> MaxMoments:
    """Return the five means of eq:max-risk over these points, summed over the place with its probabilities."""
    star, g = jnp.split(normals, 2, axis=-1)
    rest_sq = norm**2 - key**2
    scores = key * star + jnp.sqrt(jnp.where(rest_sq > 0, rest_sq, 0.0)) * g
    if "task.snr" in c:
        place = jax.nn.softmax(c["task.snr"] * star, axis=-1)
    else:  # an infinite snr is left out of the constants: the place is the argmax
        place = jnp.arange(star.shape[-1]) == jnp.argmax(star, axis=-1)[:, None]
    sigma = jax.vmap(lambda one: activation.weights(one, c))(scores)
    g_place = jnp.sum(place * g, axis=-1)
    samples = MaxMoments(
        weight=jnp.sum(place * sigma, axis=-1),
        rest_star=g_place * jnp.sum(sigma * star, axis=-1),
        rest_rest=g_place * jnp.sum(sigma * g, axis=-1),
        weights_sq=jnp.sum(sigma**2, axis=-1),
        scores_sq=jnp.sum(sigma * scores, axis=-1) ** 2,
    )
    return MaxMoments(*map(jnp.mean, samples))


def scrambles(
    task: SingleLocation,
    activation: type[Activation],
    c: dict[str, Any],
    key: float,
    key_sq: float,
    log2_points: int,
    count: int,
    seed: int = 0,
) -> list[Moments]:
    """Return the means by each of `count` independent scramblings of 2**log2_points points, as a list."""
    totals: list[Any] = [None] * count
    kernel = the("sampled means", task=task)
    for length, probability in task.length_law:
        for i, normals in enumerate(_normals(task, length, log2_points, count, seed)):
            found = _one(kernel, activation, c, key, key_sq, normals)
            before = totals[i] or [0.0] * len(found)
            totals[i] = type(found)(*(a + probability * x for a, x in zip(before, found, strict=True)))
    return [type(row)(*map(float, row)) for row in totals]


def _normals(task: SingleLocation, length: int, log2_points: int, count: int, seed: int) -> np.ndarray:
    dimension = length * (2 if task.tilted else 1)  # where places depend on it, the teacher's scores too
    if dimension > ACCURACY.largest_dimension:
        raise NoTheory(
            f"no quasi-Monte-Carlo rule for {length} tokens; it goes up to "
            f"{ACCURACY.largest_dimension * length // dimension}."
        )
    size = count * dimension * 2**log2_points
    return (_cached_normals if size <= ACCURACY.chunk else sobol_normals)(dimension, log2_points, count, seed)


_cached_normals = functools.lru_cache(maxsize=8)(sobol_normals)


def _one(
    kernel: Callable[..., Moments],
    activation: type[Activation],
    c: dict[str, Any],
    key: float,
    key_sq: float,
    block: np.ndarray,
) -> Moments:
    """Return the means over one scrambling, in equal chunks that fit into memory."""
    pieces = 1
    while block.size > pieces * ACCURACY.chunk and pieces < len(block):
        pieces *= 2
    means = [kernel(activation, c, key, np.sqrt(key_sq), part) for part in np.split(block, pieces)]
    return type(means[0])(*np.mean([[float(x) for x in m] for m in means], axis=0))

"""The rates of eq:location-flow and eq:location-sgd for element-wise activations, at any length.

The residual is a sum over tokens, so every mean is made of means over one token. Tokens of the max task are
independent given the utility of the winner (eq:race); those of the spiked task are independent as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.routes import the
from needlepoint.models.activations import Activation
from needlepoint.numerics.gaussian import trapezoid_rule
from needlepoint.tasks.single_location import SingleLocation, SpikedSLR
from needlepoint.theory.location.dynamics.accuracy import ACCURACY
from needlepoint.theory.location.dynamics.rates import Rates, given_scores
from needlepoint.theory.location.moments import place_race

_MAX_NODES = {1: (0.15, 48), 2: (0.2, 36)}  # by coarseness: step of k*.x, nodes of the rest of the score
_HERMITE = (np.array([-math.sqrt(3), 0.0, math.sqrt(3)]), np.array([1.0, 4.0, 1.0]) / 6)


class TokenRule(NamedTuple):
    """Score coordinates of one token, (lattice, nodes, p), with weights (lattice, nodes); and matrices (lattice,
    utilities) from the lattice of k*.x to the winner's utility, `winning` for the relevant token (times the step of the
    utilities) and `losing` for another one."""

    coordinates: np.ndarray
    weights: np.ndarray
    winning: np.ndarray
    losing: np.ndarray


def token_rule(task: SingleLocation, coarseness: int) -> tuple[type[SingleLocation], TokenRule]:
    """Return the task whose rule applies, and the rule.

    At snr 0 the place of the max task is uniform and independent of the scores, so the rule of the spiked task applies.
    """
    if task.tilt == 0:
        x, w = trapezoid_rule(ACCURACY.spiked_nodes // coarseness)
        return SpikedSLR, TokenRule(x[None, :, None], w[None], np.ones((1, 1)), np.ones((1, 1)))
    return type(task), _max_rule(task.tilt, task.longest, coarseness)


@functools.lru_cache(maxsize=32)
def _max_rule(snr: float, longest: int, coarseness: int) -> TokenRule:
    step, nodes = _MAX_NODES[coarseness]
    x = -place_race.REACH + step * np.arange(int(2 * place_race.REACH / step) + 1)
    g, w = trapezoid_rule(nodes)
    step_y, winning, losing = place_race.race(snr, step, len(x), longest)
    each = np.eye(len(x))
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    coordinates = np.stack(np.broadcast_arrays(x[:, None], g), axis=-1)
    return TokenRule(coordinates, density[:, None] * w, step_y * winning(each), losing(each))


@functools.partial(jax.jit, static_argnums=(0, 1))
def elementwise_rates(
    task: type[SingleLocation],
    activation: type[Activation],
    lengths: Any,
    probabilities: Any,
    c: Mapping[str, Any],
    seven: Any,
    rule: TokenRule,
) -> Rates:
    r"""eq:token-sums. Return the rates at seven overlaps, averaged over the lengths.

    With $r = \sum_le_l$, $e_J = y - \sigma_Jz_J$ and $e_l = -\sigma_lz_l$ for another token, and $Q = \sum_lQ_l$:
    $E[rQ]$ and $E[r^2Q]$ from $E[e^jQ]$ and $E[e^j]$ of one token, $j = 0, 1, 2$.
    """
    # notation: a, A means of e^j and e^j Q for the relevant token, b, B for another one
    relevant, other = (_token_means(task, activation, c, seven, rule, first) for first in (True, False))
    A, a = (x @ rule.winning for x in relevant)
    B, b = (x @ rule.losing for x in other)
    in_turn = the("relevant token", task=task)(c).in_turn
    total: Any = 0.0
    for length, probability in zip(lengths, probabilities, strict=True):
        n = length - 1.0
        s, t = _sums(b, n), _sums(b, n - 1)
        mean = A[0] * s[0] + n * B[0] * a[0] * t[0]
        first = A[1] * s[0] + A[0] * s[1] + n * (B[1] * a[0] * t[0] + B[0] * (a[1] * t[0] + a[0] * t[1]))
        second = A[2] * s[0] + 2 * A[1] * s[1] + A[0] * s[2]
        second = second + n * (B[2] * a[0] * t[0] + 2 * B[1] * (a[1] * t[0] + a[0] * t[1]))
        second = second + n * B[0] * (a[2] * t[0] + 2 * a[1] * t[1] + a[0] * t[2])
        means = jnp.sum(jnp.stack([first, second + c["task.noise"] ** 2 * mean]), axis=-1)
        total = total + probability * (length if in_turn else 1.0) * means
    (Gx, Gy, Gs, Gz, wx, wy, wz, ws), (GG, Gw, ww, one) = total[0, :8], total[1, 8:]
    noise = jnp.concatenate([jnp.zeros(4), jnp.stack([Gw, GG, ww])])
    return Rates(jnp.stack([Gx, wy, wx, Gy, Gz + ws, 2 * Gs, 2 * wz]), noise, one - c["task.noise"] ** 2)


def _sums(b: Any, n: Any) -> tuple[Any, Any, Any]:
    """Return the means of the powers 0, 1, 2 of the sum of e over n tokens; b_0 is the total measure of one token."""

    def power(k: Any) -> Any:
        return b[0] ** jnp.maximum(k, 0.0)

    return power(n), n * b[1] * power(n - 1), n * b[2] * power(n - 1) + n * (n - 1) * b[1] ** 2 * power(n - 2)


def _token_means(
    task: type[SingleLocation],
    activation: type[Activation],
    c: Mapping[str, Any],
    seven: Any,
    rule: TokenRule,
    own: bool,
) -> tuple[Any, Any]:
    """Return E[e^j Q] (3, 12, lattice) and E[e^j] (3, lattice) of the relevant token (`own`) or of another one."""
    given = given_scores(task, seven)
    size = 4 - len(given.score)  # how many of (k*.x, v*.x, v.x) are random given the coordinates
    values, vectors = jnp.linalg.eigh(given.rest[3 - size :, 3 - size :])
    scale = vectors * jnp.sqrt(jnp.maximum(values, 0.0))  # rounding can make them negative
    grid = np.stack(np.meshgrid(*[_HERMITE[0]] * size, indexing="ij"), axis=-1).reshape(-1, size)
    grid_weights = functools.reduce(np.multiply.outer, [_HERMITE[1]] * size).ravel()
    rest = jnp.zeros((len(grid), 3)).at[:, 3 - size :].set(grid @ scale.T)

    relevant = the("relevant token", task=task)(c)
    spread, m = (relevant.spread, relevant.shift) if own else (1.0, 0.0)
    score = spread * (rule.coordinates @ given.score) + m * seven[0]
    fields = spread * ((rule.coordinates @ given.along.T)[:, :, None] + rest)
    x, y, z = (fields[..., i] + shift for i, shift in enumerate((m, 0.0, m * seven[2])))
    w, slope = jax.jvp(lambda s: activation.weights(s[..., None], c)[..., 0], (score,), (jnp.ones_like(score),))
    score, w, slope = (jnp.broadcast_to(q[..., None], z.shape) for q in (score, w, slope))
    G, t = slope * z, spread**2
    e = (y if own else 0.0) - w * z
    one = jnp.full_like(z, 1.0 if own else 0.0)
    Q = jnp.stack([G * x, G * y, G * score, G * z, w * x, w * y, w * z, w * score, t * G**2, t * G * w, t * w**2, one])
    law = rule.weights[..., None] * grid_weights
    weighted = jnp.stack([law, law * e, law * e**2])
    return jnp.einsum("jxnr,qxnr->jqx", weighted, Q), jnp.sum(weighted, axis=(2, 3))

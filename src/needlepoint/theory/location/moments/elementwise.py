"""Means of element-wise attention weights: one-dimensional integrals, in closed form for erf."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from needlepoint.core.routes import ONE_DIMENSION, route, the
from needlepoint.models.activations import Activation, Erf
from needlepoint.numerics.erf_moments import shifted_erf_means
from needlepoint.numerics.gaussian import trapezoid_rule
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.erf.closed_form import WeightMoments, weight_moments
from needlepoint.theory.location.moments.accuracy import ACCURACY
from needlepoint.theory.location.moments.place_race import Winner
from needlepoint.theory.location.moments.weight_moments import MaxMoments, SpikedMoments

Sigma = Callable[[Any], Any]


def elementwise_means(
    activation: type[Activation],
    task: type[SingleLocation],
    nodes: int,
    winner: Winner | None,
    c: dict[str, Any],
    free: dict[str, Any],
    key: Any,
    key_sq: Any,
) -> Any:
    """Return the means of an element-wise activation; 0 nodes: the closed form of erf. `free` overrides constants, and
    `winner` is the rule of eq:winner where the place depends on the fields."""
    means = the("means of element-wise weights", task=task, activation=activation, nodes=nodes)
    return means(activation, {**c, **free}, winner, key, key_sq, nodes)


def _closed(nodes: int) -> bool:
    return nodes == 0


@route("means of element-wise weights", task=SpikedSLR, activation=Erf, when=_closed)
def _spiked_erf(activation: type[Erf], c: Any, winner: None, key: Any, key_sq: Any, nodes: int) -> SpikedMoments:
    return spiked_erf(c, key, key_sq)


@route("means of element-wise weights", task=MaxSLR, activation=Erf, when=_closed)
def _maximal_erf(activation: type[Erf], c: Any, winner: Winner, key: Any, key_sq: Any, nodes: int) -> MaxMoments:
    return maximal_erf(c, winner, key, key_sq)


@route("means of element-wise weights", name="quadrature", cost=ONE_DIMENSION, task=SpikedSLR, form="elementwise")
def _spiked(activation: type[Activation], c: Any, winner: None, key: Any, key_sq: Any, nodes: int) -> SpikedMoments:
    return spiked(lambda scores: activation.weights(scores, c), c, key, key_sq, nodes)


@route("means of element-wise weights", name="quadrature", cost=ONE_DIMENSION, task=MaxSLR, form="elementwise")
def _maximal(activation: type[Activation], c: Any, winner: Winner, key: Any, key_sq: Any, nodes: int) -> MaxMoments:
    return maximal(lambda scores: activation.weights(scores, c), c, winner, key, key_sq, nodes)


def spiked(sigma: Sigma, law: Mapping[str, Any], key: Any, key_sq: Any, nodes: int) -> SpikedMoments:
    r"""eq:elementwise-means. Return the seven means of eq:field-risk for any element-wise `sigma`, by quadrature.

    Tokens are independent, so every mean is made of $E\sigma^i\xi^a$ of the relevant token and of another one. `law`
    is what `channels.elementwise.constants` returns; `nodes` are those of the trapezoid rule.
    """
    x, w = trapezoid_rule(nodes)
    m, gamma, norm = jnp.sqrt(law["task.snr"]), law["task.relevant_std"], jnp.sqrt(key_sq)
    xi, other = gamma * norm * x, norm * x
    r = [[jnp.sum(w * sigma(m * key + xi) ** i * xi**a) for a in range(3)] for i in range(3)]
    o = [[jnp.sum(w * sigma(other) ** i * other**a) for a in range(3)] for i in range(3)]
    return _join_spiked(r, o, law)


def spiked_erf(c: Mapping[str, Any], key: Any, key_sq: Any) -> SpikedMoments:
    r"""eq:elementwise-means. Return the seven means of eq:field-risk for erf, in closed form.

    $E\xi\sigma = \tau^2S_1'$, $E\xi^2\sigma = \tau^2S_1 + \tau^4S_1''$ with the variance $\tau^2$ of the score, by
    Stein's lemma from eq:weight-moments.
    """
    norm = jnp.sqrt(key_sq)
    m, gamma = jnp.sqrt(c["task.snr"]), c["task.relevant_std"]
    r = _stein(_erf_weights(m * key, gamma * norm, c), gamma**2 * key_sq)
    o = _stein(_erf_weights(jnp.zeros_like(norm), norm, c), key_sq)
    return _join_spiked(r, o, c)


def _erf_weights(score: Any, spread: Any, c: Mapping[str, Any]) -> WeightMoments:
    """Return eq:weight-moments, accurate also where erf nearly cancels an offset of 1 or -1 (eq:shifted-erf)."""
    w, offset = weight_moments(score, spread, c), c["offset"]
    sign = jnp.where(offset >= 0, 1.0, -1.0)
    beyond = offset - sign
    shifted = shifted_erf_means(sign * (c["scale"] * score + c["shift"]), c["scale"] * spread)
    large = jnp.abs(offset) > 0.5
    s1 = beyond + sign * shifted.first
    s2 = beyond**2 + 2 * beyond * sign * shifted.first + shifted.second
    return w._replace(s1=jnp.where(large, s1, w.s1), s2=jnp.where(large, s2, w.s2))


def _stein(w: Any, v: Any) -> list[list[Any]]:
    """Return E sigma^i xi^a (rows i, columns a, from 0 to 2) for xi of variance v, by Stein's lemma."""
    return [
        [1.0, 0.0, v],
        [w.s1, v * w.ds1, v * w.s1 + v**2 * w.dds1],
        [w.s2, v * w.ds2, v * w.s2 + v**2 * w.dds2],
    ]


def _join_spiked(r: Any, o: Any, law: Mapping[str, Any]) -> SpikedMoments:
    n, pairs = law["task.others"], law["task.pairs"]
    return SpikedMoments(
        weight=r[1][0],
        weight_xi=r[1][1],
        xi_mu=r[1][2],
        weight_sq=r[2][0],
        others_sq=n * o[2][0],
        weight_mu=r[2][1] + n * r[1][0] * o[1][1],
        mu_sq=r[2][2] + n * (o[2][2] + 2 * r[1][1] * o[1][1]) + pairs * o[1][1] ** 2,
    )


def maximal(sigma: Sigma, law: Mapping[str, Any], winner: Winner, key: Any, key_sq: Any, nodes: int) -> MaxMoments:
    r"""eq:max-elementwise. Return the five means of eq:max-risk for any element-wise `sigma`, by quadrature.

    $E\sigma_J$, $E\chi^*_Jg_J\sigma_J$ and $E g_J^2\sigma_J$ over the law of $\chi^*_J$ (`winner`, the rule of
    eq:winner) and $g\sim N(0, 1)$. The two squares do not depend on $J$: there a score is plainly $N(0, q_k)$.
    """
    x, w_x = winner.x, winner.weight
    g, w_g = trapezoid_rule(nodes)
    rest = _rest(key_sq - key**2)
    weight = sigma(key * x[:, None] + rest * g)
    means = [weight @ (w_g * g**a) for a in range(3)]
    score = jnp.sqrt(key_sq) * g
    plain = [[jnp.sum(w_g * sigma(score) ** i * score**a) for a in range(3)] for i in range(3)]
    stars = (w_x @ means[0], w_x @ (x * means[1]), w_x @ means[2])
    return _join_max(stars, plain, law)


def maximal_erf(c: Mapping[str, Any], winner: Winner, key: Any, key_sq: Any) -> MaxMoments:
    """eq:max-elementwise. Return the five means of eq:max-risk for erf: one integral is left, over the winner's law.

    Where erf is too steep for the lattice of that law, eq:steep-erf takes its place.
    """
    rest, norm = _rest(key_sq - key**2), jnp.sqrt(key_sq)
    narrow = c["scale"] / jnp.sqrt(1 + 2 * (c["scale"] * rest) ** 2)  # factor in u = slope x + turn, eq:erf-mean
    slope, turn = narrow * key, narrow / c["scale"] * c["shift"]
    steep = jnp.abs(slope) > ACCURACY.steep
    x, w_x = winner.x, winner.weight
    at = _erf_weights(jnp.where(steep, 0.0, key) * x, rest, c)
    smooth = (w_x @ at.s1, w_x @ (x * rest * at.ds1), w_x @ (at.s1 + rest**2 * at.dds1))
    sharp = _steep_erf(winner, jnp.where(steep, slope, 2 * ACCURACY.steep), turn, rest * narrow, c["offset"])
    stars = [jnp.where(steep, b, a) for a, b in zip(smooth, sharp, strict=True)]
    return _join_max(stars, _stein(_erf_weights(jnp.zeros_like(norm), norm, c), key_sq), c)


def _steep_erf(winner: Winner, slope: Any, turn: Any, spread: Any, offset: Any) -> tuple[Any, Any, Any]:
    r"""eq:steep-erf. Return $E\sigma_J$, $E\chi^*_Jg_J\sigma_J$ and $E g_J^2\sigma_J$ where erf is steep in $\chi^*_J$.

    $E\,\mathrm{erf}(ax + b) = \pm E_t[P(x > x_t) - P(x < x_t)]$, $x_t = (t - b)/a$ and $t\sim N(0, \frac12)$, and
    $E\,h(x)\,p(ax + b) = \frac2{|a|}E_t[h(x_t)f(x_t)]$ with the density $f$ of $x$.
    """
    t = ACCURACY.step_t * jnp.arange(-ACCURACY.last_t, ACCURACY.last_t + 1)
    w = ACCURACY.step_t * jnp.exp(-(t**2)) / math.sqrt(math.pi)
    x = (t - turn) / slope
    below = jnp.clip(_quintic(winner.fine, x, winner.below, winner.density, winner.slope), 0.0, 1.0)
    density = jnp.maximum(_quintic(winner.fine, x, winner.density, winner.slope, winner.bend), 0.0)
    under, over = (w @ jnp.where((slope > 0) == first, below, 1 - below) for first in (True, False))
    # E(1 + erf) = 2 `over` and E(1 - erf) = 2 `under`: as in eq:shifted-erf nothing cancels for an offset of 1 or -1
    sign = jnp.where(offset >= 0, 1.0, -1.0)
    weight = offset - sign + 2 * sign * jnp.where(offset >= 0, over, under)
    bump = 2 / jnp.abs(slope) * w * density
    return weight, spread * (bump @ x), weight + spread**2 * (bump @ (-2 * t))


def _quintic(nodes: Any, x: Any, value: Any, slope: Any, bend: Any) -> Any:
    """Return the quintic interpolant at x of a value and its first two derivatives on a lattice; constant beyond it."""
    step = (nodes[-1] - nodes[0]) / (len(nodes) - 1)  # the difference of two neighbours would carry their rounding
    at = jnp.clip((x - nodes[0]) / step, 0.0, len(nodes) - 1.0)
    i = jnp.clip(jnp.floor(at).astype(int), 0, len(nodes) - 2)
    s = at - i
    r = 1 - s
    left = value[i] * (1 + 3 * s + 6 * s**2) + step * slope[i] * s * (1 + 3 * s) + step**2 * bend[i] * s**2 / 2
    j = i + 1
    right = value[j] * (1 + 3 * r + 6 * r**2) - step * slope[j] * r * (1 + 3 * r) + step**2 * bend[j] * r**2 / 2
    return r**3 * left + s**3 * right


def _rest(square: Any) -> Any:
    """Return the norm of the part of k beyond k*, from its square; its derivative is 0, not NaN, where it vanishes."""
    present = square > 0
    return jnp.where(present, jnp.sqrt(jnp.where(present, square, 1.0)), 0.0)


def _join_max(stars: Any, plain: Any, law: Mapping[str, Any]) -> MaxMoments:
    count = law["task.others"] + 1.0
    pairs = law["task.pairs"] + 2 * law["task.others"]  # E[L (L - 1)]
    weight, rest_star, rest_rest = stars
    return MaxMoments(weight, rest_star, rest_rest, count * plain[2][0], count * plain[2][2] + pairs * plain[1][1] ** 2)

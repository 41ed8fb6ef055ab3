"""Softmax over two tokens: its proximal map is a search in one dimension."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from needlepoint.channels.replies import DISTINCT, Channel, Minima, Sample
from needlepoint.numerics.arrays import Array

_PAIR_GRID = 10.0  # the scan ends here: weights beyond are within 5e-5 of 0 or 1, and the field itself is also a start
_PAIR_STEPS = 10  # Newton steps from each start


def pair_scores(channel: Channel, sample: Sample) -> Minima:
    r"""eq:pair-proximal. Return the lowest minimum of eq:proximal for two tokens, and the next lowest.

    Softmax depends on $t = \chi_1 - \chi_2$ only, and the sum of the scores stays that of the fields. A scan in $t$
    finds the valleys, and a safeguarded Newton iteration starts in the two deepest and at the field itself.
    """
    a, b = sample.y - sample.w_z[1], sample.w_z[0] - sample.w_z[1]
    t0 = sample.w_chi[0] - sample.w_chi[1]
    V_k, V_v = channel.V_k, channel.V_v

    def height(t: Array, s: Array) -> Array:
        return (a - b * s) ** 2 / (2 * (1 + V_v * (1 - 2 * s * (1 - s)))) + (t - t0) ** 2 / (4 * V_k)

    def slopes(t: Array) -> tuple[Array, Array, Array]:
        s = jax.nn.sigmoid(t)
        ds = s * (1 - s)
        d2s = ds * (1 - 2 * s)
        stretch, d_stretch = 1 + V_v * (1 - 2 * ds), -2 * V_v * (1 - 2 * s)
        misfit = a - b * s
        r = misfit / stretch
        # u = misfit^2 / (2 stretch) as a function of s
        u_s = -b * r - r * r * d_stretch / 2
        r_s = (-b - r * d_stretch) / stretch
        u_ss = -b * r_s - r * r_s * d_stretch - 2 * V_v * r * r
        value = misfit * r / 2 + (t - t0) ** 2 / (4 * V_k)
        return value, u_s * ds + (t - t0) / (2 * V_k), u_ss * ds**2 + u_s * d2s + 1 / (2 * V_k)

    grid = jnp.linspace(-_PAIR_GRID, _PAIR_GRID, 21)
    shares = jax.nn.sigmoid(grid)
    # the lowest two grid points that are no higher than their neighbours; values are not kept, to save memory, and the
    # scan is a loop of the compiled code, because unrolled it would take most of the time to compile
    far = jnp.full_like(t0, jnp.inf)

    def look(i: Any, state: Any) -> Any:
        first, second, t1, t2, before, here = state
        ahead = jnp.minimum(i + 1, len(grid) - 1)
        after = jnp.where(i + 1 < len(grid), height(grid[ahead], shares[ahead]), jnp.inf)
        valley = jnp.where((here <= before) & (here <= after), here, jnp.inf)
        lead, follow = valley < first, valley < second
        second, t2 = (
            jnp.where(lead, first, jnp.where(follow, valley, second)),
            jnp.where(lead, t1, jnp.where(follow, grid[i], t2)),
        )
        return jnp.where(lead, valley, first), second, jnp.where(lead, grid[i], t1), t2, here, after

    scanned = jax.lax.fori_loop(0, len(grid), look, (far, far, t0, t0, far, height(grid[0], shares[0])))
    t1, t2 = scanned[2:4]

    def step(_: Any, state: Any) -> Any:
        t, value, slope, bend, reach = state
        # a step that increased the value is undone below and tried shorter
        move = jnp.where(bend > 0, -slope / bend, -slope * 2 * V_k)
        new = t + jnp.clip(move, -reach, reach)
        new_value, new_slope, new_bend = slopes(new)
        lower = new_value <= value
        reach = jnp.where(lower, jnp.minimum(2 * reach, 2.0), jnp.minimum(reach, jnp.abs(new - t)) / 4)
        keep = functools.partial(jnp.where, lower)
        return keep(new, t), keep(new_value, value), keep(new_slope, slope), keep(new_bend, bend), reach

    starts = jnp.stack([t1, t2, t0])
    value, slope, bend = slopes(starts)
    state = (starts, value, slope, bend, jnp.full_like(starts, 1.0))
    t, value, slope, _, _ = jax.lax.fori_loop(0, _PAIR_STEPS, step, state)
    order = jnp.argmin(value, axis=0)
    best, lowest = jnp.take_along_axis(t, order[None], axis=0)[0], jnp.min(value, axis=0)
    apart = jnp.abs(t - best) > DISTINCT * (1 + jnp.abs(best))
    others = jnp.where(apart, value, jnp.inf)
    gap = jnp.min(others, axis=0) - lowest
    rival = jnp.take_along_axis(t, jnp.argmin(others, axis=0)[None], axis=0)[0]
    rival = jnp.where(jnp.isfinite(gap), rival, best)
    centre = (sample.w_chi[0] + sample.w_chi[1]) / 2
    scores, other = (jnp.stack([centre + x / 2, centre - x / 2]) for x in (best, rival))
    left = V_k * jnp.abs(jnp.take_along_axis(slope, order[None], axis=0)[0])
    return Minima(scores, other, gap, left)

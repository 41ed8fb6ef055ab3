"""How the predicted risk changes with the penalties for any field law and output: derivatives of the fixed point."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.numerics.arrays import Array
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.law import Kind, Numbers, fields, normals
from needlepoint.theory.fields.order import Order
from needlepoint.theory.fields.ridge.equations import Equations
from needlepoint.theory.penalties.sensitivity import Sensitivity
from needlepoint.theory.penalties.sensitivity import sensitivities as of_any

_STEP = 1e-5  # of differences of closed forms: coordinates from order parameters and back


def sensitivities(equations: Equations, x: np.ndarray, scale: float) -> list[Sensitivity]:
    """Return the sensitivity at each of the fixed points x (rows, k), a Newton step closer to the exact one: one row if
    the equations have one scrambling, otherwise a row for each. The risk is in units of `scale`."""

    def risk(equations: Equations, row: int, end: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = risk_at(equations, row, end)
        return value / scale, slope / scale

    return of_any(equations, x, by_log_penalties, risk, equations.pattern)


def by_log_penalties(equations: Equations, value: np.ndarray) -> np.ndarray:
    r"""eq:field-response. Return $\partial F/\partial\log r_g$ at F = `value` (k,) for every kind of columns g, (k, G).

    $V = (r + \hat V)^{-1}$ alone has the penalties in it. With $D_g$ the penalties of the columns of kind g on the
    diagonal, $\partial V = -VD_gV$, $\partial M = -VD_gM$ and $\partial R = -(VD_gR + RD_gV)$, $R = Q - MM^\top$.
    """
    pattern, (M, Q, V) = equations.pattern, equations.pattern.unpack(value)
    rest, found = Q - M @ M.T, []
    for group in equations.model.groups:
        here = [g == group for g in equations.model.group_of]
        D = np.diag(np.where(here, equations.penalties, 0.0))
        move = (-V @ D @ M, -V @ D @ rest - rest @ D @ V, -V @ D @ V)
        sides = []
        for sign in (1, -1):
            m, r, v = (x + sign * _STEP * dx for x, dx in zip((M, rest, V), move, strict=True))
            sides.append(pattern.pack(Order(m, r + m @ m.T, v)))
        found.append((sides[0] - sides[1]) / (2 * _STEP))
    return np.stack(found, axis=-1)


def risk_at(equations: Equations, row: int, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the population risk at coordinates x (k,) by the points of one scrambling, and its derivatives (k,)."""
    order, value = equations.pattern.unpack(x), 0.0
    by_M, by_Q = np.zeros_like(order.M), np.zeros_like(order.Q)
    for probability, kind, numbers in equations.parts:
        # other points than those of the equations, which the solution has adapted to
        level, seed = ACCURACY.response_points, equations.seed + 1
        blocks = normals(kind.normals, level, equations.scrambles, seed)[row if equations.scrambles > 1 else 0]
        for base in blocks:
            loss, slopes = _loss_and_slopes(kind, numbers, order.M, order.Q, base)
            share = equations.loss.metric_scale * probability / len(blocks)
            value += share * float(loss)
            by_M, by_Q = by_M + share * np.asarray(slopes[0]), by_Q + share * np.asarray(slopes[1])
    slope = np.zeros_like(x)
    for i, unit in enumerate(np.eye(x.size)):
        ahead, behind = (equations.pattern.unpack(x + sign * _STEP * unit) for sign in (1, -1))
        slope[i] = (np.sum(by_M * (ahead.M - behind.M)) + np.sum(by_Q * (ahead.Q - behind.Q))) / (2 * _STEP)
    return value, slope


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_slopes(kind: Kind, numbers: Numbers, M: Array, Q: Array, base: Array) -> Any:
    """Return the mean loss at overlaps M and Q, and its derivatives by both."""

    def mean(M: Array, Q: Array) -> Array:
        seq = fields(kind, numbers, M, Q, base)
        _, model, loss = kind.bound(numbers)
        cost = jax.vmap(lambda y, f: loss.cost(y, model.outputs(f)), -1)(seq.y, seq.columns)
        return jnp.mean(seq.weight * cost)

    return jax.value_and_grad(mean, argnums=(0, 1))(M, Q)

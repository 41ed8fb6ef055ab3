"""How the predicted risk of ridge training changes with the penalties: derivatives of the fixed point.

They cost one Jacobian of the map, because the penalties enter it explicitly.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.equations import Equations, unpack
from needlepoint.theory.location.ridge.solutions import value_form


@dataclass(frozen=True)
class Sensitivity:
    """A fixed point x (6,), the excess risk there, its derivatives by (log lam_key, log lam_value), (2,), those of the
    point, (6, 2), and the Jacobian (6, 6) of the map."""

    x: np.ndarray
    risk: float
    gradient: np.ndarray
    moves: np.ndarray
    slope: np.ndarray

    @property
    def is_held(self) -> bool:
        """Whether the flow of the map stays at this point: no eigenvalue of the Jacobian has a real part above 1."""
        return bool(np.max(np.linalg.eigvals(self.slope).real) < 1.0)


def sensitivities(equations: Equations, x: np.ndarray) -> list[Sensitivity]:
    """Return the sensitivity at each of the fixed points x (rows, 6), a Newton step closer to the exact one: one row if
    the equations have one scrambling, otherwise a row for each scrambling."""
    values, slopes = _linearised(equations, x)
    return [_sensitivity(equations, *row) for row in zip(x, values, slopes, strict=True)]


def _sensitivity(equations: Equations, x: np.ndarray, value: np.ndarray, slope: np.ndarray) -> Sensitivity:
    inverse = np.linalg.inv(np.eye(x.size) - slope)
    end = x + np.clip(inverse @ (value - x), -ACCURACY.trend, ACCURACY.trend)
    moves = inverse @ by_log_penalties(equations, value)
    risk, slope_of_risk = risk_at(equations, end)
    return Sensitivity(end, risk, slope_of_risk @ moves, moves, slope)


def _linearised(equations: Equations, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the map's values (rows, 6) and its Jacobians (rows, 6, 6) at x, by central differences.

    Where the proximal map jumps, the derivative comes from samples that change their minimum within the step: a short
    step sees none of them or one, whose weight over the step is large. So the step is much wider than Newton's.
    """
    step, axes = ACCURACY.response_step, np.eye(x.shape[1])
    if equations.scrambles == 1:  # all rows are the same problem: one call has the differences of all coordinates
        rows = np.concatenate([x + step * axes, x])
        up = equations.map(rows)
        with equations.following(unpack(rows)):
            down = equations.map(x - step * axes)
        return up[-1:], ((up[:-1] - down).T / (2 * step))[None]
    values = equations.map(x)
    with equations.following(unpack(x)):
        moved = [(equations.map(x + step * e) - equations.map(x - step * e)) / (2 * step) for e in axes]
    return values, np.stack(moved, axis=-1)


def by_log_penalties(equations: Equations, value: np.ndarray) -> np.ndarray:
    r"""eq:penalty-response. Return $\partial F/\partial\log r$ at F = `value` (6,), shape (6, 2).

    $V = 1/(r + \hat V)$ alone has the penalty in it, so that $\partial\log V/\partial\log r = -rV$, and $m = \hat mV$
    and $\log(q - m^2) = \log\hat q + 2\log V$ follow. With it $dx/d\log r = (1 - F')^{-1}\partial F/\partial\log r$.
    """
    found = np.zeros((6, 2))
    for column, penalty in enumerate(equations.penalties):
        m, _, log_V = value[3 * column : 3 * column + 3]
        found[3 * column : 3 * column + 3, column] = -penalty * np.exp(log_V) * np.array([m, 2.0, 1.0])
    return found


def risk_at(equations: Equations, x: np.ndarray) -> tuple[float, np.ndarray]:
    """eq:ridge-test. Return the excess risk at coordinates x (6,) and its derivatives by them, (6,).

    Those by the value's are closed forms; those by the key's are central differences of A and B.
    """
    form = functools.partial(value_form, equations.task, equations.model)
    order, step = unpack(x), ACCURACY.risk_step
    spread_k, spread_v = order.q_k - order.m_k**2, order.q_v - order.m_v**2
    (A, B), _ = form(float(order.m_k), float(order.q_k))
    mine = np.array([-2 * order.m_v, order.q_v])
    h = step * np.sqrt(order.q_k)
    ahead, behind = (form(float(m), float(m**2 + spread_k))[0] for m in (order.m_k + h, order.m_k - h))
    wider, tighter = (form(float(order.m_k), float(order.m_k**2 + spread_k * np.exp(s)))[0] for s in (step, -step))
    gradient = np.array(
        [
            mine @ (ahead - behind) / (2 * h),
            mine @ (wider - tighter) / (2 * step),
            0.0,
            -2 * A + 2 * order.m_v * B,
            spread_v * B,
            0.0,
        ]
    )
    return equations.task.label_var + float(mine @ np.array([A, B])), gradient

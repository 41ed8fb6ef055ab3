"""How the predicted risk of ridge training changes with the penalties: derivatives of the fixed point."""

from __future__ import annotations

import functools

import numpy as np

from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.equations import Equations, unpack
from needlepoint.theory.location.ridge.solutions import value_form
from needlepoint.theory.penalties.sensitivity import Sensitivity
from needlepoint.theory.penalties.sensitivity import sensitivities as of_any


def sensitivities(equations: Equations, x: np.ndarray) -> list[Sensitivity]:
    """Return the sensitivity at each of the fixed points x (rows, 6), a Newton step closer to the exact one: one row if
    the equations have one scrambling, otherwise a row for each scrambling. The risk is the excess risk."""
    return of_any(equations, x, by_log_penalties, lambda equations, row, end: risk_at(equations, end))


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

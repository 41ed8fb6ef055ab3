"""Multi-start minimisation of a smooth function of few variables, finished by Newton on its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from needlepoint.core.status import Status

ValueAndGrad = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class Minimum:
    """The lowest minimum found; `residual` is the gradient's largest component there."""

    x: np.ndarray
    value: float
    residual: float
    value_error: float
    """How much lower the minimum may be: gradient times the Newton step that is left."""
    status: Status
    others: tuple[float, ...]
    """The values that all starts reached, lowest first."""


def minimise(
    value_and_grad: ValueAndGrad,
    starts: np.ndarray,
    *,
    tol: float = 1e-9,
    polish_steps: int = 12,
) -> Minimum:
    """BFGS from every start, then Newton steps from the best one.

    The Newton step uses the pseudo-inverse of the Hessian, so directions along which the function is
    constant (norms, rotations of a frame) are left alone; a step that raises the value is refused.
    """
    ends = [
        optimize.minimize(value_and_grad, x0, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000})
        for x0 in starts
    ]
    ends.sort(key=lambda end: end.fun if np.isfinite(end.fun) else np.inf)
    x, value = ends[0].x, float(ends[0].fun)
    gradient = value_and_grad(x)[1]
    for _ in range(polish_steps):
        step = _newton_step(value_and_grad, x, gradient)
        new_value, new_gradient = value_and_grad(x - step)
        better = np.max(np.abs(new_gradient)) < np.max(np.abs(gradient))
        if not (better and new_value <= value + 1e-12 * max(1.0, abs(value))):
            break
        x, value, gradient = x - step, float(new_value), new_gradient
    residual = float(np.max(np.abs(gradient)))
    value_error = float(np.abs(gradient) @ np.abs(_newton_step(value_and_grad, x, gradient)))
    if not np.isfinite(value):
        status = Status.DIVERGED
    else:
        # relative to how steep the function is where the search began, so that a descent without end is no minimum
        steepness = np.nanmax([np.max(np.abs(value_and_grad(x0)[1])) for x0 in starts])
        status = Status.CONVERGED if residual <= tol * max(1.0, float(steepness)) else Status.MAX_STEPS
    return Minimum(x, value, residual, value_error, status, tuple(float(e.fun) for e in ends))


def _newton_step(value_and_grad: ValueAndGrad, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(_hessian(value_and_grad, x), rcond=1e-10, hermitian=True) @ gradient


def _hessian(value_and_grad: ValueAndGrad, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences of the gradient: good to 1e-10, all that a contraction to its zero needs."""
    rows = [(value_and_grad(x + step * e)[1] - value_and_grad(x - step * e)[1]) / (2 * step) for e in np.eye(len(x))]
    hessian = np.array(rows)
    return (hessian + hessian.T) / 2

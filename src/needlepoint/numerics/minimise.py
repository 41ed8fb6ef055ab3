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
    """How much lower the true minimum may be: the gradient times the Newton step that is left."""
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
    """Return the lowest minimum that BFGS reaches from `starts` (runs, k), refined by Newton steps.

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
    if not np.isfinite(value):
        return Minimum(x, value, residual, np.inf, Status.DIVERGED, tuple(float(e.fun) for e in ends))
    if not np.isfinite(residual):  # without a gradient nothing is known of the distance to a minimum
        return Minimum(x, value, np.inf, np.inf, Status.MAX_STEPS, tuple(float(e.fun) for e in ends))
    value_error = float(np.abs(gradient) @ np.abs(_newton_step(value_and_grad, x, gradient)))
    # the gradient is compared with the steepest one at the starts, so that a descent without end is not a minimum
    slopes = [float(np.max(np.abs(value_and_grad(x0)[1]))) for x0 in starts]
    steepness = max((slope for slope in slopes if np.isfinite(slope)), default=1.0)
    status = Status.CONVERGED if residual <= tol * max(1.0, steepness) else Status.MAX_STEPS
    value_error = value_error if np.isfinite(value_error) else np.inf
    return Minimum(x, value, residual, value_error, status, tuple(float(e.fun) for e in ends))


def _newton_step(value_and_grad: ValueAndGrad, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(_hessian(value_and_grad, x), rcond=1e-10, hermitian=True) @ gradient


def _hessian(value_and_grad: ValueAndGrad, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Return the Hessian (k, k) by central differences of the gradient, to 1e-10: enough for Newton's method."""
    rows = [(value_and_grad(x + step * e)[1] - value_and_grad(x - step * e)[1]) / (2 * step) for e in np.eye(len(x))]
    hessian = np.array(rows)
    return (hessian + hessian.T) / 2


def newton(
    value: Callable[[np.ndarray], float],
    start: np.ndarray,
    *,
    tol: float = 1e-9,
    steps: tuple[float, float] = (1e-3, 1e-5),
    radius: float = 0.7,
    most: int = 40,
) -> Minimum:
    """Return the minimum that Newton's method reaches with values alone, for few variables of order one and values
    exact to rounding.

    Gradient and Hessian are central differences with the first of `steps`; the end is polished with gradients by the
    second.
    No move is longer than `radius`, which halves when a move does not descend.
    """
    x, lowest = np.asarray(start, dtype=float), value(np.asarray(start, dtype=float))
    gradient, hessian = np.full(len(x), np.inf), np.eye(len(x))
    # a gradient by differences has the rounding error of the values over the step
    enough = max(tol, 64 * np.finfo(float).eps * max(1.0, abs(lowest)) / steps[1])
    for attempt in range(6):
        rough = steps[0] * (10 if attempt % 2 else 1)  # a long valley needs wider differences for its curvature
        x, lowest, hessian = _descend(value, x, lowest, rough, radius, most)
        x, lowest, gradient = _polish(value, x, lowest, hessian, steps[1], 10 * rough)
        further = _along_valley(value, x, lowest, hessian)
        if further is None and np.max(np.abs(gradient)) <= enough:
            break
        if further is not None:
            x, lowest = further
        elif attempt:
            break
    residual = float(np.max(np.abs(gradient)))
    value_error = float(np.abs(gradient @ _descent(gradient, hessian)))
    if not np.isfinite(lowest):
        status = Status.DIVERGED
    else:
        # at the bottom of a flat valley the value has converged long before the position
        known = value_error <= 1e-2 * tol and residual <= 1e3 * tol
        status = Status.CONVERGED if residual <= enough or known else Status.MAX_STEPS
    return Minimum(x, float(lowest), residual, value_error, status, (float(lowest),))


Function = Callable[[np.ndarray], float]


def _descend(
    value: Function, x: np.ndarray, lowest: float, rough: float, radius: float, most: int
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return point, value and last Hessian after Newton moves with differences of step `rough`, until a move is about
    as short as that."""
    hessian = np.eye(len(x))
    for _ in range(most):
        with np.errstate(invalid="ignore"):
            gradient, found = _differences(value, x, lowest, rough)
        if not np.all(np.isfinite(found)):
            break  # at the edge of where the function is finite
        hessian = found
        move = _descent(gradient, hessian, 16 * float(np.finfo(float).eps) * abs(lowest) / rough**2)
        length = float(np.linalg.norm(move))
        if length < 3 * rough or radius < rough or not np.isfinite(length):
            break
        trial = x + move * min(1.0, radius / length)
        new = value(trial)
        if new < lowest:
            x, lowest = trial, new
        else:
            radius = min(radius, length) / 2
    return x, lowest, hessian


def _along_valley(
    value: Function, x: np.ndarray, lowest: float, hessian: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Return a lower point along the flattest direction, which differences at x may miss, or None."""
    if len(x) < 2:
        return None
    flat = np.linalg.eigh(hessian)[1][:, np.argmin(np.abs(np.linalg.eigvalsh(hessian)))]
    trials = [x + step * flat for step in (0.03, -0.03, 0.3, -0.3)]
    values = [value(trial) for trial in trials]
    best = int(np.argmin(values))
    margin = 64 * np.finfo(float).eps * max(1.0, abs(lowest))
    return (trials[best], values[best]) if values[best] < lowest - margin else None


def _polish(
    value: Function, x: np.ndarray, lowest: float, hessian: np.ndarray, fine: float, longest: float
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return point, value and gradient after moves with this Hessian and finer gradients, as long as these shrink."""
    gradient = _slopes(value, x, fine)
    for _ in range(6):
        trial = x + _descent(gradient, hessian)
        if not np.linalg.norm(trial - x) < longest:
            break
        new, new_gradient = value(trial), _slopes(value, trial, fine)
        if not np.max(np.abs(new_gradient)) < np.max(np.abs(gradient)):
            break
        x, lowest, gradient = trial, new, new_gradient
    return x, lowest, gradient


def _slopes(value: Function, x: np.ndarray, step: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        slopes = [(value(x + step * e) - value(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    return np.nan_to_num(np.array(slopes), nan=np.inf)


def _differences(value: Function, x: np.ndarray, here: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient (k,) and Hessian (k, k) by central differences."""
    e = step * np.eye(len(x))
    plus, minus = np.array([value(x + d) for d in e]), np.array([value(x - d) for d in e])
    hessian = np.diag(plus - 2 * here + minus)
    for i in range(len(x)):
        for j in range(i):
            joint = value(x + e[i] + e[j]) + value(x - e[i] - e[j])
            hessian[i, j] = hessian[j, i] = (joint - plus[i] - plus[j] - minus[i] - minus[j] + 2 * here) / 2
    return (plus - minus) / (2 * step), hessian / step**2


def _descent(gradient: np.ndarray, hessian: np.ndarray, noise: float = 0.0) -> np.ndarray:
    """Return the Newton move (k,), reversed to lead downhill where the curvature is negative, and zero along flat
    directions."""
    values, vectors = np.linalg.eigh(hessian)
    size = np.abs(values)
    usable = size > max(noise, 1e-10 * float(size.max()), 1e-300)
    return -vectors @ np.where(usable, (vectors.T @ gradient) / np.where(usable, size, 1.0), 0.0)

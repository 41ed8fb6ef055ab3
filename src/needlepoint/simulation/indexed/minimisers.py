"""Minimisers of the attention-indexed objective: L-BFGS and Adam in the weights, FISTA in the matrix."""

from __future__ import annotations

import math

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.simulation.indexed.accuracy import ACCURACY
from needlepoint.simulation.indexed.problem import Minimum, Problem, soften
from needlepoint.simulation.minima import descend


def lbfgs(problem: Problem, weights: np.ndarray) -> Minimum:
    """Return the minimum of eq:indexed-energy that L-BFGS reaches from these weights. It has converged if the norm of
    the gradient, in the problem's unit, is below its tolerance."""
    found = descend(problem.value_and_gradient, weights, problem.weights_unit, problem.tolerance)
    return _at(problem, *found)


def adam(problem: Problem, weights: np.ndarray) -> Minimum:
    """Return the minimum of eq:indexed-energy that Adam reaches from these weights, on all sequences at once.

    Its step falls geometrically to 1e-3 of the first one; it stops and has converged by the criterion of L-BFGS.
    """
    unit, mean, square = problem.weights_unit, np.zeros_like(weights), np.zeros_like(weights)
    step, enough = 0, problem.tolerance
    for step in range(1, ACCURACY.adam_steps + 1):
        gradient = unit * problem.value_and_gradient(weights)[1]
        if np.linalg.norm(gradient) <= enough:
            break
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        rate = ACCURACY.adam_rate * ACCURACY.adam_decay ** (step / ACCURACY.adam_steps)
        ratio = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-300)
        weights = weights - rate * ratio
    return _at(problem, weights, step)


def fista(problem: Problem) -> Minimum:
    r"""eq:indexed-fista. Return the minimum over $S \ge 0$ by FISTA.

    $S\leftarrow(Y - \frac1\Lambda(\nabla E(Y) + \frac{\tilde\lambda}dI))_+$ with $Y$ ahead of $S$ by its momentum,
    which restarts when it points uphill. For one token the problem is convex in $S \ge 0$, and the width of W plays no
    part.

    It has converged if the problem's residual is below its tolerance.
    """
    if not problem.tied or problem.task.tokens > 1:
        raise InvalidParameter(
            f"algorithm='fista': {problem.model!r} with tokens={problem.task.tokens} is not a convex problem in "
            "S >= 0; it needs TiedAttention and tokens=1 (lbfgs and amp do the others)."
        )
    d, enough = problem.d, problem.tolerance
    curvature = ACCURACY.margin * _largest_curvature(problem)
    S = Y = np.zeros((d, d))
    momentum, step = 1.0, 0
    for step in range(1, ACCURACY.minimisers_steps + 1):
        new = soften(Y - problem.fit(Y)[1] / curvature, problem.trace_penalty / (d * curvature))
        # the step from Y in the units of the residual: a cheap first check before the residual at the new point
        moved = float(np.linalg.norm(new - Y)) * curvature * math.sqrt(d) * problem.unit
        uphill = np.sum((Y - new) * (new - S)) > 0
        after = 1.0 if uphill else (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        Y = new if uphill else new + (momentum - 1) / after * (new - S)
        S, momentum = new, after
        if moved <= enough and problem.residual(S) <= enough:
            return Minimum(S, problem.energy(S), True, step)
    return Minimum(S, problem.energy(S), False, step)


def _largest_curvature(problem: Problem) -> float:
    """Return the largest curvature of the squared error of one token as a function of S, by power iteration: its
    gradient is linear in S."""
    constant = problem.fit(np.zeros((problem.d, problem.d)))[1]
    V, size = np.diag(np.linspace(-1.0, 1.0, problem.d)), 1.0
    for _ in range(ACCURACY.power_steps):
        V = problem.fit(V / np.linalg.norm(V))[1] - constant
        size = float(np.linalg.norm(V))
    return size


def _at(problem: Problem, weights: np.ndarray, steps: int) -> Minimum:
    value, gradient = problem.value_and_gradient(weights)
    converged = problem.weights_unit * np.linalg.norm(gradient) <= problem.tolerance
    return Minimum(problem.matrix(weights), value, bool(converged), steps)

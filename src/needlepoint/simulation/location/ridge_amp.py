"""Message passing for ridge training: every sequence responds to the fields that the other sequences make."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.proximal import proximal
from needlepoint.channels.replies import Channel, Sample, reply
from needlepoint.models.activations import Activation
from needlepoint.simulation.location.accuracy import ACCURACY
from needlepoint.simulation.location.ridge_problem import Minimum, Problem, backward, forward, local_loss


def amp(problem: Problem, weights: np.ndarray) -> Minimum:
    r"""eq:ridge-amp. Return the stationary point of eq:ridge that message passing reaches from these weights.

    $w = Xk - Vg^{old}$, $\Lambda = -\frac1d\sum\mathrm{div}\,g$ with $g$ of eq:proximal at $w$, $k \leftarrow(X^\top
    g/d + \Lambda k)/(r + \Lambda)$ and $V\leftarrow1/(r + \Lambda)$, for key and value, damped.

    Its fixed points are stationary points of eq:ridge whatever V is. It stops where V would be negative.
    """
    r, d = problem.penalties, problem.d
    V = problem.units[:, 0] ** 2
    old = [np.zeros((len(part.y), 2, part.x.shape[1])) for part in problem.data]
    step = 0
    while step < ACCURACY.ridge_amp_steps:
        step += 1
        pulled, Lam, new = np.zeros((2, d)), np.zeros(2), []
        for part, g in zip(problem.data, old, strict=True):
            fields = forward(part.x, weights) - V[:, None] * g
            answer, divergences = problem.local(_answer, part, fields, V)
            g = ACCURACY.ridge_amp_damping * g + (1 - ACCURACY.ridge_amp_damping) * answer
            pulled += backward(part.x, g) / d
            Lam -= divergences.sum(axis=0) / d
            new.append(g)
        old = new
        if not np.all(r + Lam > 0) or not np.all(np.isfinite(pulled)):
            break
        target = (pulled + Lam[:, None] * weights) / (r + Lam)[:, None]
        moved = float(np.linalg.norm((target - weights) / problem.units))
        if moved <= problem.tolerance:
            minimum = problem.minimum(target, step)
            if minimum.converged:
                return minimum
        weights = ACCURACY.ridge_amp_damping * weights + (1 - ACCURACY.ridge_amp_damping) * target
        V = ACCURACY.ridge_amp_damping * V + (1 - ACCURACY.ridge_amp_damping) / (r + Lam)
    return problem.minimum(weights, step)._replace(converged=False)


@functools.partial(jax.jit, static_argnums=0)
def _answer(activation: type[Activation], constants: Any, fields: Any, y: Any, V: Any) -> Any:
    r"""Return g of eq:proximal, (n, 2, length), and its divergences in the two fields, (n, 2).

    With $A = \sqrt V\,\nabla^2\ell\sqrt V$ at the proximal point, $\partial g/\partial w = -V^{-1/2}(1 - (1 +
    A)^{-1})V^{-1/2}$.
    """
    length = fields.shape[2]
    channel, sample = Channel(constants, *V), Sample(y, fields[:, 0].T, fields[:, 1].T)
    scores = proximal(activation, channel, sample).scores
    at = reply(activation, channel, sample, scores)
    inside = jnp.stack([scores.T, at.values.T], axis=1)
    curvature = jax.vmap(jax.hessian(functools.partial(local_loss, activation, constants)))(inside, y)
    root = jnp.repeat(jnp.sqrt(V), length)
    A = root[:, None] * curvature.reshape(-1, 2 * length, 2 * length) * root
    kept = jnp.diagonal(jnp.linalg.inv(jnp.eye(2 * length) + A), axis1=1, axis2=2)
    divergences = (kept.reshape(-1, 2, length).sum(axis=2) - length) / V
    return jnp.stack([at.g_k.T, at.g_v.T], axis=1), divergences

"""Message passing for ridge training: every sequence replies to the fields that the other sequences make."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.models.fields import FieldModel
from needlepoint.simulation.fields.accuracy import ACCURACY
from needlepoint.simulation.fields.problem import Kinds, Minimum, Problem, backward, forward, local_loss

_SHORTENED = 2.0 ** -np.arange(10)  # parts of a Newton step that are tried


def amp(problem: Problem, weights: np.ndarray) -> Minimum:
    r"""eq:field-amp. Return the stationary point of eq:field-ridge that message passing reaches from these weights.

    $\omega_l = X_lw - s_l^2Vg_l^{old}$, $g$ the force at the proximal point of $\omega$, $A = -\frac1d\sum\sum_l
    s_l^2\,\partial g_l/\partial\omega_l$, $V = (r + A)^{-1}$ and $w\leftarrow V(Aw + X^\top g/d)$, damped.

    Its fixed points are stationary points of eq:field-ridge whatever V is. V keeps entries between columns of one kind
    only: with entries between a key and a value it diverges. Far from a minimum A may be negative, and is raised.
    """
    r, d, damping = np.diag(problem.penalties), problem.d, ACCURACY.amp_damping
    pattern = same_kind(problem.model)
    V = np.diag(problem.units[:, 0] ** 2)
    old = [np.zeros((*part.x.shape[:2], len(r))) for part in problem.data]
    step = 0
    while step < ACCURACY.amp_steps:
        step += 1
        pulled, A, new = np.zeros((len(r), d)), np.zeros_like(r), []
        root = np.linalg.cholesky(V)
        for part, g in zip(problem.data, old, strict=True):
            fields = forward(part.x, weights) - part.spread[..., None] ** 2 * (g @ V)
            reply, responses = problem.local(_reply, part, fields, root)
            g = damping * g + (1 - damping) * reply
            pulled += backward(part.x, g) / d
            A -= pattern * responses.sum(axis=0) / d
            new.append(g)
        old = new
        if not (np.all(np.isfinite(pulled)) and np.all(np.isfinite(A))):
            break
        A = _not_below(r + A, ACCURACY.amp_least * float(np.min(problem.penalties))) - r
        if not np.linalg.eigvalsh(r + A)[0] > 0:
            break
        target = np.linalg.solve(r + A, pulled + A @ weights)
        moved = float(np.linalg.norm((target - weights) / problem.units))
        if moved <= problem.tolerance:
            minimum = problem.minimum(target, step)
            if minimum.converged:
                return minimum
        weights = damping * weights + (1 - damping) * target
        V = damping * V + (1 - damping) * np.linalg.inv(r + A)
    return problem.minimum(weights, step)._replace(converged=False)


def _not_below(matrix: np.ndarray, least: float) -> np.ndarray:
    """Return a symmetric matrix with the eigenvalues below `least` raised to it."""
    values, vectors = np.linalg.eigh(matrix)
    return matrix if values[0] >= least else (vectors * np.maximum(values, least)) @ vectors.T


def same_kind(model: FieldModel) -> np.ndarray:
    """Return 1 where two columns are of one kind, (P, P)."""
    kinds = np.array(model.group_of)
    return (kinds[:, None] == kinds[None, :]).astype(float)


@functools.partial(jax.jit, static_argnums=0)
def _reply(kinds: Kinds, numbers: Any, fields: Any, y: Any, spread: Any, root: Any) -> Any:
    r"""Return the forces g (n, length, P) at the proximal points, and the sums over tokens of $s_l^2\,\partial
    g_l/\partial\omega_l$, (n, P, P).

    The proximal point is $\omega_l + s_lRu_l$ with $V = RR^\top$, where u is the minimum of the loss there plus
    $|u|^2/2$, found by Newton's method from 0. With H the Hessian of the loss and K the blocks $s_l^2V$, $\partial
    g/\partial\omega = -(1 + HK)^{-1}H$.
    """
    length, P = fields.shape[1:]
    size = length * P

    def one(omega: Any, y: Any, s: Any) -> Any:
        scale = jax.scipy.linalg.block_diag(*(s[i] * root for i in range(length)))

        def loss(flat: Any) -> Any:
            return local_loss(kinds, numbers, flat.reshape(length, P), y)

        def cost(u: Any) -> Any:
            return loss(omega.ravel() + scale @ u) + jnp.sum(u**2) / 2

        def improve(state: Any) -> Any:
            u, _, count = state
            slope = jax.grad(cost)(u)
            values, vectors = jnp.linalg.eigh(jax.hessian(cost)(u))
            # directions of negative curvature are followed downhill; the term |u|^2/2 sets the scale of 1
            step = -vectors @ ((vectors.T @ slope) / jnp.maximum(jnp.abs(values), 0.1))
            tried = u + _SHORTENED[:, None] * step
            now = cost(u)
            # the longest part that does not ascend, up to rounding, by which alone the last steps differ
            fine = jax.vmap(cost)(tried) <= now + 1e-14 * (1 + jnp.abs(now))
            return tried[jnp.argmax(fine)], jnp.linalg.norm(slope), count + 1

        def unfinished(state: Any) -> Any:
            return (state[1] > ACCURACY.newton_tolerance) & (state[2] < ACCURACY.newton_steps)

        u, _, _ = jax.lax.while_loop(unfinished, improve, (jnp.zeros(size), jnp.inf, 0))
        point = omega.ravel() + scale @ u
        H = jax.hessian(loss)(point)
        G = -jnp.linalg.solve(jnp.eye(size) + H @ (scale @ scale.T), H)
        blocks = jnp.einsum("lplq->lpq", G.reshape(length, P, length, P))
        response = jnp.einsum("l,lpq->pq", s**2, blocks)
        return -jax.grad(loss)(point).reshape(length, P), (response + response.T) / 2

    return jax.vmap(one)(fields, y, spread)

"""How the population loss pulls at the overlaps: the rates of gradient flow, and the noise of single steps."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.losses import Loss
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields.law import Kind, Numbers, Part, parts, with_roots

LOG2_POINTS, SCRAMBLES = 13, 8
"""Points of each scrambling, and scramblings: with four of 2^12, three standard errors were too little for slow
modes."""


class Rates(NamedTuple):
    """Mean loss, the drift of M (P, S) and of Q (P, P), and what the squares of steps add to Q (P, P)."""

    loss: Array
    M: Array
    Q: Array
    noise: Array


@functools.partial(jax.jit, static_argnums=0)
def _rates(kind: Kind, numbers: Numbers, M: Array, root: Array, base: Array) -> Rates:
    r"""eq:field-rates. Return $E\ell$, $-E\sum_lg_l\lambda_l^{*\top}$, $-(B + B^\top)$ with $B = E\sum_lg_l
    \lambda_l^\top$, and $E\sum_ls_l^2g_lg_l^\top$, where $g_l = \partial\ell/\partial\lambda_l$.

    No derivative of the root of Q - M M^T is needed, so that its edge is harmless.
    """
    seq = with_roots(kind, numbers, M, jnp.broadcast_to(root, (kind.tokens, *root.shape)), base)
    _, model, loss = kind.bound(numbers)
    cost, g = jax.vmap(jax.value_and_grad(lambda f, y: loss.cost(y, model.outputs(f))), (-1, -1), -1)(
        seq.columns, seq.y
    )
    weight = seq.weight / base.shape[-1]
    B = jnp.einsum("lpn,lqn,n->pq", g, seq.columns, weight)
    noise = jnp.einsum("l,lpn,lqn,n->pq", seq.spread**2, g, g, weight)
    return Rates(jnp.sum(weight * cost), -jnp.einsum("lpn,lsn,n->ps", g, seq.teachers, weight), -(B + B.T), noise)


class Pull:
    """The rates of a question by one of several scramblings."""

    def __init__(
        self,
        task: SequenceTask,
        model: FieldModel,
        loss: Loss,
        seed: int = 0,
        log2_points: int = LOG2_POINTS,
        scrambles: int = SCRAMBLES,
    ) -> None:
        # drifts need the fields along all teachers, so that none is integrated out
        self.parts = [_all_seen(part) for part in parts(task, model, loss)]
        self.normals = [
            np.swapaxes(sobol_normals(part.kind.normals, log2_points, scrambles, seed), 1, 2) for part in self.parts
        ]
        self.scrambles = scrambles

    def at(self, M: np.ndarray, Q: np.ndarray, scrambling: int) -> Rates:
        values, vectors = np.linalg.eigh(Q - M @ M.T)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        total = None
        for (probability, kind, numbers), base in zip(self.parts, self.normals, strict=True):
            found = _rates(kind, numbers, M, root, base[scrambling])
            mine = [probability * np.asarray(x) for x in found]
            total = mine if total is None else [a + b for a, b in zip(total, mine, strict=True)]
        assert total is not None
        return Rates(*total)


def _all_seen(part: Part) -> Part:
    seen = tuple(tuple(True for _ in row) for row in part.kind.seen)
    return part._replace(kind=replace(part.kind, seen=seen))

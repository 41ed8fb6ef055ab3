"""Is the replica-symmetric answer to be trusted? Its replicon, and how much the proximal map jumps."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.proximal import Channel, Minima, curvature, response
from needlepoint.models.activations import Activation
from needlepoint.tasks.single_location import SingleLocation, SpikedSLR
from needlepoint.theory.ridge_equations import Equations, averaged
from needlepoint.theory.ridge_fields import Base, Order, fields, place

_FLAT = 1e-4  # slope times V_k below which a rival is a minimum


class Responses(NamedTuple):
    """Means of the derivatives of the forces, over a scrambling each: squares of the blocks, and minus the traces."""

    kk: Any
    kv: Any
    vv: Any
    trace_k: Any
    trace_v: Any
    rivals: Any


@dataclass(frozen=True)
class Stability:
    """`replicon` is below 1 where the replica-symmetric point is stable; `jump_weight` is what jumps of the
    proximal map add to the conjugate of a susceptibility, over the rest of it, and `jump_share` over all that holds the
    weight, penalty included; `rivals` the share of samples with more
    than one minimum. Errors are standard errors over the scramblings."""

    replicon: float
    replicon_error: float
    jump_weight: float
    jump_error: float
    jump_share: float
    rivals: float
    matrix: np.ndarray


@functools.partial(jax.jit, static_argnums=(0, 1))
def _responses(
    task_type: type[SingleLocation],
    activation: type[Activation],
    law: dict[str, Any],
    c: dict[str, Any],
    order: Order,
    base: Base,
    found: Minima,
) -> Responses:
    def one(order: Order, base: Base, found: Minima) -> Responses:
        sample, channel = fields(task_type, law, order, base), Channel(c, order.V_k, order.V_v)
        weight = jnp.ones_like(base.label) if issubclass(task_type, SpikedSLR) else place(law, base)[1]
        G = response(activation, channel, sample, found.scores)

        def mean(x: Any) -> Any:
            return jnp.mean(weight * x)

        def square(block: Any) -> Any:
            return mean(jnp.sum(block**2, axis=(0, 1)))

        slope = curvature(activation, channel, sample, found.rival).slope
        rivals = jnp.isfinite(found.gap) & (jnp.max(jnp.abs(slope), axis=0) * order.V_k < _FLAT)
        return Responses(
            square(G.kk),
            square(G.vk),
            square(G.vv),
            -mean(jnp.trace(G.kk)),
            -mean(jnp.trace(G.vv)),
            mean(rivals),
        )

    return jax.vmap(one)(order, base, found)


def stability(equations: Equations, order: Order) -> Stability:
    r"""eq:replicon. $A = \alpha\begin{pmatrix}V_k^2E|G_{kk}|^2 & V_k^2E|G_{kv}|^2\\V_v^2E|G_{vk}|^2 &
    V_v^2E|G_{vv}|^2\end{pmatrix}$; the replicon is its spectral radius. The jump weight is $\hat V$ by Stein's lemma
    over $\hat V$ by the derivative, minus 1: the derivative does not see the jumps. One order a scrambling.
    """
    samples = equations.samples(order)
    parts = [(p, _responses(*equations.kinds, *equations.numbers, order, base, found)) for p, base, found in samples]
    total, stein = averaged(parts), equations.means(order, samples).conjugate
    rows = order.m_k.size
    A = np.empty((rows, 2, 2))
    A[:, 0, 0], A[:, 0, 1] = order.V_k**2 * total.kk, order.V_k**2 * total.kv
    A[:, 1, 0], A[:, 1, 1] = order.V_v**2 * total.kv, order.V_v**2 * total.vv
    A *= equations.alpha
    replicons = np.max(np.abs(np.linalg.eigvals(A)), axis=1)
    # the two sides see the same jumps; the larger weight counts
    weights = np.stack([stein.V_k / np.mean(total.trace_k) - 1, stein.V_v / np.mean(total.trace_v) - 1])
    weights -= np.stack([total.trace_k / np.mean(total.trace_k) - 1, total.trace_v / np.mean(total.trace_v) - 1])
    lam = np.array(equations.penalties)
    held = lam + equations.alpha * np.abs([np.mean(total.trace_k), np.mean(total.trace_v)])
    shares = np.abs(weights.mean(axis=1)) * (held - lam) / held
    means, errors = weights.mean(axis=1), weights.std(axis=1, ddof=1) / np.sqrt(rows)
    worst = int(np.argmax(np.abs(means)))
    return Stability(
        float(np.max(np.abs(np.linalg.eigvals(A.mean(axis=0))))),
        float(replicons.std(ddof=1) / np.sqrt(rows)),
        float(means[worst]),
        float(errors[worst]),
        float(np.max(shares)),
        float(np.mean(total.rivals)),
        A.mean(axis=0),
    )

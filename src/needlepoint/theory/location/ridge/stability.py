"""Is the replica-symmetric answer to be trusted? Its replicon, and how much the proximal map jumps."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.any_activation import curvature
from needlepoint.channels.proximal import response
from needlepoint.channels.replies import Channel, Minima
from needlepoint.models.activations import Activation
from needlepoint.numerics.arrays import Array
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.equations import COARSE, Equations
from needlepoint.theory.location.ridge.sequences import Base, Order, fields, sequences_of

JUMPS, SHARE = 0.15, 0.03
"""A solution is not trusted if its jump weight exceeds JUMPS by three standard errors and its jump share exceeds SHARE
(the penalty then does not hold the weights firmly): beyond, training from different starts was seen to disagree."""


class Responses(NamedTuple):
    """Means of the derivatives of the forces, (rows,): squared norms of their blocks, minus their traces, and the share
    of samples with a rival minimum."""

    kk: Array
    kv: Array
    vv: Array
    trace_k: Array
    trace_v: Array
    rivals: Array


@dataclass(frozen=True)
class Stability:
    """What is known of the stability of a replica-symmetric solution, with standard errors over the scramblings.

    `replicon`: below 1 where the solution is stable. `jump_weight`: the part of the conjugate of a susceptibility that
    comes from jumps of the proximal map, relative to the rest of it; `jump_share`: the same relative to all that holds
    the weight, penalty included. `rivals`: the share of samples with more than one minimum. `matrix`: A of eq:replicon.
    """

    replicon: float
    replicon_error: float
    jump_weight: float
    jump_error: float
    jump_share: float
    rivals: float
    matrix: np.ndarray

    @property
    def is_clear(self) -> bool:
        """Whether it is stable beyond doubt, so that more points are not needed to decide."""
        return self.replicon + 5 * self.replicon_error < ACCURACY.clear and self.rivals == 0

    @property
    def jumping(self) -> bool:
        """Whether jumps of the proximal map are too important for the answer to be trusted."""
        return abs(self.jump_weight) - 3 * self.jump_error > JUMPS and self.jump_share > SHARE

    @property
    def doubts(self) -> list[str]:
        """Return what speaks against the replica-symmetric answer; empty if nothing does."""
        found = []
        if self.replicon >= 1:
            found.append(f"replica symmetry is unstable (replicon {self.replicon:.3g} >= 1)")
        if self.jumping:
            found.append(
                f"the proximal map jumps (jump weight {self.jump_weight:.2g}, {100 * self.rivals:.2g} % of samples "
                "have more than one minimum)"
            )
        return found

    @property
    def hopeless(self) -> bool:
        """Whether there are doubts that more points would not remove."""
        return bool(self.doubts) and not 1 <= self.replicon < 1 + 5 * self.replicon_error


def judge(equations: Equations, order: Order, near: Stability | None = None) -> Stability:
    """Return the stability at `order`, which has one row per scrambling.

    Few points are used where they leave no doubt, otherwise `ACCURACY.stability_points`; these at once where a
    neighbour's stability (`near`) was not clear.
    """
    judged, mine = None, equations.log2_points
    # the solution's own level has its minima computed already
    enough = mine if ACCURACY.stability_points <= mine <= ACCURACY.spare_points else ACCURACY.stability_points
    levels = (COARSE, enough) if near is None or near.is_clear else (enough,)
    for level in levels if equations.is_cheap else (min(ACCURACY.stability_points, mine),):
        judged = stability(equations if level == mine else replace(equations, log2_points=level), order)
        if judged.is_clear:
            break
    assert judged is not None
    return judged


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
        weight = sequences_of(task_type).place(law, base)[1]
        G = response(activation, channel, sample, found.scores)

        def mean(x: Array) -> Array:
            return jnp.mean(weight * x)

        def square(block: Array) -> Array:
            return mean(jnp.sum(block**2, axis=(0, 1)))

        rivals = jnp.isfinite(found.gap)
        if activation.jumps:  # otherwise there is one minimum and no rivals
            slope = curvature(activation, channel, sample, found.rival).slope
            rivals &= jnp.max(jnp.abs(slope), axis=0) * order.V_k < ACCURACY.flat
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
    r"""eq:replicon. Return the stability at `order`, which has one row per scrambling.

    $A = \alpha\begin{pmatrix}V_k^2E|G_{kk}|^2 & V_k^2E|G_{kv}|^2\\V_v^2E|G_{vk}|^2 & V_v^2E|G_{vv}|^2\end{pmatrix}$;
    the replicon is its spectral radius. The jump weight is $\hat V$ by Stein's lemma over $\hat V$ by the derivative,
    minus 1: the derivative does not include the jumps.
    """
    total, stein = equations.averaged(_responses, order), equations.means(order).conjugate
    rows = order.m_k.size
    A = np.empty((rows, 2, 2))
    A[:, 0, 0], A[:, 0, 1] = order.V_k**2 * total.kk, order.V_k**2 * total.kv
    A[:, 1, 0], A[:, 1, 1] = order.V_v**2 * total.kv, order.V_v**2 * total.vv
    A *= equations.alpha
    replicons = np.max(np.abs(np.linalg.eigvals(A)), axis=1)
    # key and value jump together, so the larger weight counts; where forces are constant there is no weight to divide
    slopes, stein = np.stack([total.trace_k, total.trace_v]), np.stack([stein.V_k, stein.V_v])
    typical = slopes.mean(axis=1, keepdims=True)
    idle = equations.alpha * np.abs(typical) * np.mean([order.V_k, order.V_v], axis=1, keepdims=True) < ACCURACY.idle
    weights = np.where(idle, 0.0, (stein - slopes) / np.where(idle, 1.0, typical))
    lam = np.array(equations.penalties)
    held = lam + equations.alpha * np.abs(typical[:, 0])
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

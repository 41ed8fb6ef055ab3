"""Is a replica-symmetric answer to be trusted? The spectral radius of its replicon operator, and its jumps."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from needlepoint.numerics.arrays import Array
from needlepoint.theory.fields import envelope
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.law import Kind, Numbers, fields, normals
from needlepoint.theory.fields.order import Order, Pattern
from needlepoint.theory.fields.ridge.equations import Equations, minima

JUMPS, SHARE = 0.15, 0.03
"""A solution is not trusted if its jump weight exceeds JUMPS by three standard errors and its jump share exceeds SHARE:
the values of the key-value theory, beyond which training from different starts was seen to disagree."""


@dataclass(frozen=True)
class Stability:
    """What is known of the stability of a solution, with standard errors over the scramblings.

    `replicon`: below 1 where the solution is stable. `jump_weight`: the part of a susceptibility's conjugate that comes
    from jumps of the proximal map, relative to the rest of it; `jump_share`: the same relative to all that holds the
    weight. `rivals`: the share of samples with more than one minimum. `breaking`: the largest factor by which the
    equations without symmetries multiply a perturbation; above 1 a symmetry that was declared is broken.
    """

    replicon: float
    replicon_error: float
    jump_weight: float
    jump_error: float
    jump_share: float
    rivals: float
    breaking: float = 0.0

    @property
    def doubts(self) -> list[str]:
        """Return what speaks against the replica-symmetric answer; empty if nothing does."""
        found = []
        if self.breaking > BREAKS:
            found.append(f"a symmetry is broken (perturbations that it forbids grow by {self.breaking:.3g} a step)")
        if self.replicon >= 1:
            found.append(f"replica symmetry is unstable (replicon {self.replicon:.3g} >= 1)")
        if abs(self.jump_weight) - 3 * self.jump_error > JUMPS and self.jump_share > SHARE:
            found.append(
                f"the proximal map jumps (jump weight {self.jump_weight:.2g}, {100 * self.rivals:.2g} % of samples "
                "have more than one minimum)"
            )
        return found


BREAKS = 1.05
"""Growth of perturbations off the pattern beyond which a symmetry counts as broken: above 1 by more than the few points
leave open."""


def breaking(equations: Equations, order: Order) -> float:
    """Return the largest real part of the eigenvalues of the map without any symmetry, at a solution that has them.

    A declared flip leaves the equations in its pattern, but training leaves it where the pattern is unstable.
    """
    pattern = Pattern(tuple(() for _ in equations.pattern.columns), tuple(() for _ in equations.pattern.teachers))
    if pattern.M.all() and equations.pattern.M.all() and equations.pattern.Q.all():
        return 0.0
    free = replace(equations, pattern=pattern, log2_points=ACCURACY.coarse, scrambles=1)
    slope = free.slope(pattern.pack(order))
    return float(np.max(np.linalg.eigvals(slope).real)) if np.all(np.isfinite(slope)) else 0.0


class Responses(NamedTuple):
    """Means of G (x) G, (P, P, P, P), and of minus the trace of G over tokens, (P, P)."""

    square: np.ndarray
    trace: np.ndarray


@functools.partial(jax.jit, static_argnums=0)
def _hessians(
    kind: Kind, numbers: Numbers, M: Array, Q: Array, V: Array, base: Array, chi: Array
) -> tuple[Array, Array, Array]:
    """Return the Hessians of the loss in the fields at the minimum, (n, tokens P, tokens P), the weights of the
    sequences (n,) and the spreads (tokens,)."""
    seq = fields(kind, numbers, M, Q, base)
    _, model, loss = kind.bound(numbers)
    lam = envelope.at(kind, numbers, V, seq, chi).fields
    shape = (kind.tokens, kind.columns)

    def one(y: Array, lam: Array) -> Array:
        return jax.hessian(lambda f: loss.cost(y, model.outputs(f.reshape(shape))))(lam.ravel())

    return jax.vmap(one, (-1, -1))(seq.y, lam), seq.weight, seq.spread


def _responses(kind: Kind, numbers: Numbers, order: Order, base: Array, chi: np.ndarray) -> Responses:
    r"""eq:field-replicon. Return $E\sum_{ll'}s_l^2s_{l'}^2G_{ll'}\otimes G_{ll'}$ and $-E\sum_ls_l^2G_{ll}$ with $G =
    -(1 + HK)^{-1}H$, $H$ the Hessian of the loss in the fields at the minimum, $K = \mathrm{diag}(s_l^2)\otimes V$.

    The small systems are solved outside of the kernel: within it they would take seconds to compile.
    """
    H, weight, spread = (np.asarray(x) for x in _hessians(kind, numbers, *order, base, chi))
    n, tokens, P = len(H), kind.tokens, kind.columns
    if not np.all(np.isfinite(H)):
        return Responses(np.full((P, P, P, P), np.nan), np.full((P, P), np.nan))
    K = np.kron(np.diag(spread**2), order.V)
    G = -np.linalg.solve(np.eye(tokens * P) + H @ K, H).reshape(n, tokens, P, tokens, P)
    scaled = G * (spread**2)[:, None, None, None] * (spread**2)[:, None]
    # rows and columns of the operator are pairs of columns: (l m) is summed over with the sequences
    flat = np.moveaxis(scaled, (2, 4), (0, 1)).reshape(P * P, -1)
    weighted = np.moveaxis(G * weight[:, None, None, None, None], (2, 4), (0, 1)).reshape(P * P, -1)
    square = (flat @ weighted.T / n).reshape(P, P, P, P)  # [p, q, r, s] = E sum s_l^2 s_m^2 G_lpmq G_lrms
    trace = -np.einsum("nlplq,n,l->pq", G, weight, spread**2) / n
    return Responses(np.moveaxis(square, 2, 1), trace)


def judge(equations: Equations, rows: list[Order]) -> Stability:
    """Return the stability of a solution, whose `rows` are the order parameters by each scrambling."""
    level = max(equations.log2_points, min(ACCURACY.stability_points, equations.log2_points + 2))
    finer = replace(equations, log2_points=level)
    alpha, penalties = equations.alpha, np.array(equations.penalties)
    operators, weights, shares, rivals = [], [], [], []
    for i, order in enumerate(rows):
        square, trace, stein, several = 0.0, 0.0, 0.0, 0.0
        for probability, kind, numbers in finer.parts:
            blocks = normals(kind.normals, level, equations.scrambles, equations.seed)[i]
            for base in blocks:
                low = minima(kind, numbers, order, base)
                found = _responses(kind, numbers, order, base, low.chi)
                means = envelope.averages(kind, numbers, *order, base, low.chi, low.chi, np.zeros_like(low.gap))
                part = probability / len(blocks)
                square = square + part * np.asarray(found.square)
                trace = trace + part * np.diagonal(np.asarray(found.trace))
                stein = stein + part * 2 * np.diagonal(np.asarray(means.by_Q))
                several += part * float(np.mean(np.isfinite(low.gap)))
        P = len(order.V)
        middle = np.asarray(square).reshape(P * P, P * P)
        operators.append(alpha * np.kron(order.V, order.V) @ middle)
        weights.append((stein, trace))
        rivals.append(several)
    stein, trace = (np.array([w[i] for w in weights]) for i in (0, 1))
    typical = trace.mean(axis=0)
    idle = alpha * np.abs(typical) * np.diagonal(rows[0].V) < 1e-9
    jumps = np.where(idle, 0.0, (stein - trace) / np.where(idle, 1.0, typical))
    held = penalties + alpha * np.abs(typical)
    means, errors = jumps.mean(axis=0), jumps.std(axis=0, ddof=1) / np.sqrt(len(rows))
    shares = np.abs(means) * alpha * np.abs(typical) / held
    worst = int(np.argmax(np.abs(means)))
    radii = [float(np.max(np.abs(np.linalg.eigvals(o)))) for o in operators]
    return Stability(
        float(np.max(np.abs(np.linalg.eigvals(np.mean(operators, axis=0))))),
        float(np.std(radii, ddof=1) / np.sqrt(len(radii))),
        float(means[worst]),
        float(errors[worst]),
        float(np.max(shares)),
        float(np.mean(rivals)),
        breaking(equations, Order(*(np.mean([row[i] for row in rows], axis=0) for i in range(3)))),
    )

"""The replica-symmetric equations of ridge-penalised attention: their map, and its fixed points."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from needlepoint.channels.proximal import Minima
from needlepoint.core.lowering import lower
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.ridge_fields import ROWS, Base, Conjugate, Means, Order, blocks, means, settled

COARSE = 9
"""log2 of the points that the branches are sought with, and of the fewest a scrambling."""

SCRAMBLES = ROWS

# coordinates: m, log(q - m^2), log V of the key, then of the value
UNINFORMED = (0.02, math.log(0.3), 0.0, 0.02, math.log(0.3), 0.0)
INFORMED = (1.0, math.log(0.1), math.log(0.2), 1.0, math.log(0.1), math.log(0.2))

_STEEPEST = 25.0  # |log V| beyond which a weight is not held by penalty or data
_MOST = 150
_ENOUGH = 1e-3  # steps below this may stall: samples whose minima come and go make small jumps


@dataclass(frozen=True)
class Equations:
    """The equations of one problem with one rule of integration: 2**log2_points points a scrambling."""

    task: SingleLocation
    model: KeyValueAttention
    alpha: float
    penalties: tuple[float, float]
    log2_points: int
    scrambles: int
    seed: int

    @functools.cached_property
    def blocks(self) -> list[tuple[float, Base]]:
        """(weight, normals) of every block of every length."""
        found = []
        for length, p in self.task.length_law:
            parts = blocks(self.task, type(self.model.activation), length, self.log2_points, self.scrambles, self.seed)
            found += [(p / len(parts), part) for part in parts]
        return found

    def samples(self, order: Order) -> list[tuple[float, Base, Minima]]:
        """(weight, normals, proximal map) of every block. Row i of `order` uses scrambling i, or the only one."""
        rows = _filled(order)
        return [(p, base, settled(*self.kinds, *self.numbers, rows, base)) for p, base in self.blocks]

    def means(self, order: Order, samples: list[tuple[float, Base, Minima]] | None = None) -> Means:
        """Means over the fields, averaged over the lengths; every entry an array over the rows of `order`."""
        rows, count = _filled(order), np.size(order.m_k)
        parts = [
            (p, means(*self.kinds, *self.numbers, rows, base, found))
            for p, base, found in samples or self.samples(order)
        ]
        return jax.tree.map(lambda x: x[:count], averaged(parts))

    @property
    def kinds(self) -> tuple[type[SingleLocation], type[Activation]]:
        """What fixes a compiled kernel besides the lengths."""
        return type(self.task), type(self.model.activation)

    @functools.cached_property
    def numbers(self) -> tuple[dict[str, float], dict[str, float]]:
        """The constants of the task and of the activation, to be traced."""
        return lower(self.task)[1], self.model.constants()

    def conjugates(self, found: Means) -> Conjugate:
        return Conjugate(*(self.alpha * x for x in found.conjugate))

    def map(self, x: np.ndarray) -> np.ndarray:
        r"""eq:ridge-equations. $V = \frac1{r + \hat V}$, $m = \hat mV$, $q = (\hat m^2 + \hat q)V^2$ for the key and
        for the value, in the coordinates $m$, $\log(q - m^2)$, $\log V$: (rows, 6).
        """
        self.known[:] = [(x.copy(), self.means(unpack(x)))]
        return self.updated(self.conjugates(self.known[0][1]))

    @functools.cached_property
    def known(self) -> list[tuple[np.ndarray, Means]]:
        """The means at the last point of the map, which is often the one that is asked for next."""
        return []

    def means_at(self, x: np.ndarray) -> Means:
        """The means at coordinates (rows, 6)."""
        if self.known and np.array_equal(self.known[0][0], x):
            return self.known[0][1]
        return self.means(unpack(x))

    def updated(self, hat: Conjugate) -> np.ndarray:
        columns: list[Any] = []
        for m, q, V, lam in (
            (hat.m_k, hat.q_k, hat.V_k, self.penalties[0]),
            (hat.m_v, hat.q_v, hat.V_v, self.penalties[1]),
        ):
            # a negative curvature means that nothing holds the weight; the solver sees V at its bound
            log_V = -np.log(np.maximum(lam + V, math.exp(-_STEEPEST)))
            columns += [m * np.exp(log_V), np.log(np.maximum(q, 1e-300)) + 2 * log_V, log_V]
        return np.stack(columns, axis=-1)

    def solve(self, x: np.ndarray, tol: float, slope: np.ndarray | None = None, most: int = _MOST) -> FixedPoints:
        return anderson(self.map, x, tol=tol, most=most, slope=slope, enough=_ENOUGH)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """The Jacobian of the map at one point (6,)."""
        return jacobian(self.map, x)

    def energy(self, order: Order, found: Means) -> np.ndarray:
        r"""eq:ridge-energy. $f = \frac\alpha2E r^2 + \frac{r_k}2q_k + \frac{r_v}2q_v$: the objective over d."""
        lam_k, lam_v = self.penalties
        return self.alpha * found.residual_sq / 2 + lam_k * order.q_k / 2 + lam_v * order.q_v / 2

    def free_energy(self, order: Order, hat: Conjugate, found: Means) -> np.ndarray:
        r"""eq:ridge-free-energy. $\sum_{a=k,v}\left[m\hat m - \frac{q\hat V}2 + \frac{V\hat q}2 - \frac{\hat m^2 + \hat
        q}{2(r + \hat V)}\right] + \alpha E[M]$; at the fixed point it is the energy.
        """
        total = self.alpha * found.envelope
        for (m, q, V), (mh, qh, Vh), lam in zip(
            (order[:3], order[3:]), (hat[:3], hat[3:]), self.penalties, strict=True
        ):
            total = total + m * mh - q * Vh / 2 + V * qh / 2 - (mh**2 + qh) / (2 * (lam + Vh))
        return total


def _filled(order: Order) -> Order:
    """The rows repeated to the number that kernels are compiled for."""
    return Order(*(np.resize(np.asarray(x, dtype=float), ROWS) for x in order))


T = TypeVar("T", bound=tuple)


def averaged(parts: list[tuple[float, T]]) -> T:
    """The weighted sum of trees of arrays."""
    weighted = [jax.tree.map(lambda x, p=p: p * np.asarray(x), part) for p, part in parts]
    return jax.tree.map(lambda *xs: sum(xs), *weighted)


def unpack(x: np.ndarray) -> Order:
    """The order parameters of coordinates (rows, 6)."""
    m_k, s_k, V_k, m_v, s_v, V_v = (x[..., i] for i in range(6))
    return Order(m_k, m_k**2 + np.exp(s_k), np.exp(V_k), m_v, m_v**2 + np.exp(s_v), np.exp(V_v))


def pack(order: Order) -> np.ndarray:
    """The coordinates (rows, 6) of order parameters."""
    columns = [
        order.m_k,
        np.log(order.q_k - np.square(order.m_k)),
        np.log(order.V_k),
        order.m_v,
        np.log(order.q_v - np.square(order.m_v)),
        np.log(order.V_v),
    ]
    return np.stack([np.asarray(c, dtype=float) for c in columns], axis=-1)

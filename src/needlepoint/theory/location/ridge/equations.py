"""The replica-symmetric equations of ridge-penalised attention: their map, and its fixed points."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import numpy as np

from needlepoint.channels.replies import Minima
from needlepoint.core.lowering import lower
from needlepoint.models.activations import Activation, Linear, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian, linearised_alone, linearised_rows, settle
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.fields import ROWS, Base, Conjugate, Means, Order, blocks, means, points, settled

COARSE = 9
"""log2 of the points that the branches are sought with, and of the fewest a scrambling."""

SCRAMBLES = ROWS

# coordinates: m, log(q - m^2), log V of the key, then of the value. Susceptibilities are small: a sequence that can
# hardly move its fields has one minimum, and pulls the weights the right way
UNINFORMED = (0.02, math.log(0.3), math.log(0.1), 0.02, math.log(0.3), math.log(0.1))
INFORMED = (1.0, math.log(0.1), math.log(0.2), 1.0, math.log(0.1), math.log(0.2))

_LEAST = math.log(1e-10)  # a weight whose square is smaller counts as this: it vanishes, and its logarithm has no limit
_STEEPEST = 25.0  # |log V| beyond which a weight is not held by penalty or data
_LINEAR = 0.05  # distance from a fixed point within which coordinates and what depends on them are nearly linear
_MOST, _FLOW, _POOLED = 150, 60, 40  # steps of the iteration, along the flow, along the flow of the mean map
T = TypeVar("T", bound=tuple)

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
            activation = type(self.model.activation)
            parts = blocks(points(self.task, activation, length, self.log2_points, self.scrambles, self.seed))
            found += [(p / len(parts), part) for part in parts]
        return found

    def minima(self, order: Order) -> list[Minima]:
        """The proximal map of every block. Row i of `order` uses scrambling i, or the only one."""
        rows = _filled(order)
        return self._once(
            "minima", rows, lambda: [settled(*self.kinds, *self.numbers, rows, base) for _, base in self.blocks]
        )

    def _once(self, name: str, order: Order, compute: Callable[[], Any]) -> Any:
        """What was computed last under this name, if at the same order: the map, the solution and its stability ask
        for the same."""
        kept = self._kept.get(name)
        if kept is None or not _same(kept[0], order):
            kept = self._kept[name] = order, compute()
        return kept[1]

    @functools.cached_property
    def _kept(self) -> dict[str, tuple[Order, Any]]:
        return {}

    def forget(self) -> None:
        """Free what is large and can be found again."""
        self._kept.clear()

    def means(self, order: Order) -> Means:
        """Means over the fields, averaged over the lengths; every entry an array over the rows of `order`."""
        return self._once("means", order, lambda: self.averaged(means, order))

    def averaged(self, function: Callable[..., T], order: Order) -> T:
        """The average over blocks of a mean over fields at their minima, over the first rows that `order` fills."""
        rows, count = _filled(order), np.size(order.m_k)
        parts = [
            (p, function(*self.kinds, *self.numbers, rows, base, found))
            for (p, base), found in zip(self.blocks, self.minima(order), strict=True)
        ]
        weighted = [jax.tree.map(lambda x, p=p: p * np.asarray(x)[:count], part) for p, part in parts]
        return jax.tree.map(lambda *xs: sum(xs), *weighted)

    @property
    def kinds(self) -> tuple[type[SingleLocation], type[Activation]]:
        """What fixes a compiled kernel besides the lengths."""
        return type(self.task), type(self.model.activation)

    @property
    def is_cheap(self) -> bool:
        """Is the proximal map one-dimensional?"""
        activation = self.kinds[1]
        return issubclass(activation, Linear) or (issubclass(activation, Softmax) and self.task.longest <= 2)

    @property
    def is_smooth(self) -> bool:
        """Does every sample have one minimum, so that the means have no jumps?"""
        return issubclass(self.kinds[1], Linear)

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
        return self.updated(self.conjugates(self.means(unpack(x))))

    def updated(self, hat: Conjugate) -> np.ndarray:
        columns: list[Any] = []
        for m, q, V, lam in (
            (hat.m_k, hat.q_k, hat.V_k, self.penalties[0]),
            (hat.m_v, hat.q_v, hat.V_v, self.penalties[1]),
        ):
            # a negative curvature means that nothing holds the weight; the solver sees V at its bound
            log_V = -np.log(np.maximum(lam + V, math.exp(-_STEEPEST)))
            columns += [m * np.exp(log_V), np.maximum(np.log(np.maximum(q, 1e-300)) + 2 * log_V, _LEAST), log_V]
        return np.stack(columns, axis=-1)

    def solve(
        self,
        x: np.ndarray,
        tol: float,
        slope: np.ndarray | None = None,
        most: int = _MOST,
        close: np.ndarray | float = 0.0,
    ) -> FixedPoints:
        return anderson(self.map, x, tol=tol, most=most, slope=slope, enough=_ENOUGH, close=close)

    def settle(self, x: np.ndarray, tol: float, most: int = _FLOW) -> FixedPoints:
        """Where the flow of the map leads from `x`, (1, 6) if all rows use one scrambling or a row a scrambling."""
        linearised = linearised_alone if self.scrambles == 1 else linearised_rows
        return settle(linearised(self.map), x, tol=tol, most=most, enough=_ENOUGH)

    def settle_pooled(self, x: np.ndarray, tol: float, most: int = _POOLED) -> tuple[FixedPoints, float]:
        """Where the flow of the mean map of all scramblings leads from `x` (6,), and by how much to widen what differs
        between the rows: these are where each scrambling by itself would be, to first order, drawn together so that
        what is computed from them is of first order too.

        Near the end of a branch some scramblings have lost it while their mean has not.
        """

        def pooled(at: np.ndarray) -> np.ndarray:
            return self.map(np.repeat(at, self.scrambles, axis=0)).mean(axis=0, keepdims=True)

        found = settle(linearised_rows(pooled), x[None], tol=tol, most=most, enough=_ENOUGH)
        slope = linearised_rows(pooled)(found.x)[1][0]
        steps = self.map(np.repeat(found.x, self.scrambles, axis=0)) - found.x
        away = np.linalg.solve(np.eye(x.size) - slope, steps.T).T
        widen = max(1.0, float(np.max(np.abs(away))) / _LINEAR)
        rows = found.x + away / widen
        return FixedPoints(rows, np.repeat(found.residual, self.scrambles), found.steps, rows), widen

    def slope(self, x: np.ndarray) -> np.ndarray:
        """The Jacobian of the map at one point (6,), by the first scrambling."""
        return jacobian(replace(self, scrambles=1).map if self.scrambles > 1 else self.map, x)

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


def _same(one: Order, other: Order) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


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

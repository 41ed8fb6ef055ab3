"""The replica-symmetric equations of ridge-penalised attention: their map, and its fixed points."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import numpy as np

from needlepoint.channels.any_activation import AFTER
from needlepoint.channels.replies import Minima
from needlepoint.core.lowering import lower
from needlepoint.core.routes import ONE_DIMENSION, best
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian, linearised_alone, linearised_rows, settle
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.fields import ROWS, Conjugate, Means, blocks, joined, means, settled
from needlepoint.theory.location.ridge.sequences import Base, Order, points

COARSE = 9
"""log2 of the points per scrambling with which branches are searched for: the fewest that are used."""

SCRAMBLES = ROWS

# coordinates (6,): m, log(q - m^2), log V of the key, then of the value. Starts have small susceptibilities V: a
# sequence that can hardly move its fields has one minimum, and pulls the weights the right way
UNINFORMED = (0.02, math.log(0.3), math.log(0.1), 0.02, math.log(0.3), math.log(0.1))
INFORMED = (1.0, math.log(0.1), math.log(0.2), 1.0, math.log(0.1), math.log(0.2))

T = TypeVar("T", bound=tuple)


@dataclass(frozen=True)
class Equations:
    """The equations of one problem with one rule of integration: `scrambles` times 2**log2_points Sobol points."""

    task: SingleLocation
    model: KeyValueAttention
    alpha: float
    penalties: tuple[float, float]
    log2_points: int
    scrambles: int
    seed: int
    follows: bool = False
    """Whether minima of sequences are followed from step to step of an iteration, and searched for again only at its
    end, where lower ones are joined to them: a fraction of the cost where every search is Newton's method from many
    starts, but two more kernels to compile, which pays in searches of many solutions."""

    @functools.cached_property
    def blocks(self) -> list[tuple[float, Base]]:
        """Return (weight, normals) of every block of every length."""
        found = []
        for length, p in self.task.length_law:
            activation = type(self.model.activation)
            parts = blocks(points(self.task, activation, length, self.log2_points, self.scrambles, self.seed))
            found += [(p / len(parts), part) for part in parts]
        return found

    def minima(self, order: Order) -> list[Minima]:
        """Return the proximal map of every block. Row i of `order` uses scrambling i, or the only one."""
        rows, last = _filled(order), self.known

        def settled_from(near: Sequence[Minima | None]) -> list[Minima]:
            parts, steps = zip(self.blocks, near, strict=True), ACCURACY.followed_steps if self.follows else AFTER
            return [settled(*self.kinds, *self.numbers, rows, base, before, steps) for (_, base), before in parts]

        def compute() -> list[Minima]:
            if self._following:
                return settled_from(self._following[-1] or last or [None] * len(self.blocks))
            found = settled_from([None] * len(self.blocks))
            if not self._can_follow or not last:
                return found
            # a search misses minima now and then that were found close by: both count, so that the map does not jump
            parts = zip(self.blocks, found, settled_from(last), strict=True)
            return [joined(*self.kinds, *self.numbers, rows, base, *both) for (_, base), *both in parts]

        return self._once("minima", rows, compute)

    def _once(self, name: str, order: Order, compute: Callable[[], Any]) -> Any:
        """Return `compute()`, or its last result under this name if that was at the same order.

        The map, the solution and its stability ask for the same minima and means one after the other.
        """
        kept = self._kept.get(name)
        if kept is None or kept[0] is None or not _same(kept[0], order):
            kept = self._kept[name] = order, compute()
        return kept[1]

    @functools.cached_property
    def _kept(self) -> dict[str, tuple[Order | None, Any]]:
        return {}

    @property
    def known(self) -> list[Minima]:
        """Return the minima of the last call, or what was recalled; empty where there are none."""
        return self._kept.get("minima", (None, []))[1] or self._kept.get("near", (None, []))[1]

    def recall(self, near: Sequence[Minima]) -> None:
        """Forget everything, and follow minima from `near` where minima are followed."""
        self.forget()
        if near and self._can_follow:
            self._kept["near"] = None, list(near)

    def forget(self) -> None:
        """Free the cached minima and means, which are large and can be computed again."""
        self._kept.clear()

    def means(self, order: Order) -> Means:
        """Return the means over the fields and over the lengths; every entry is an array over the rows of `order`."""
        return self._once("means", order, lambda: self.averaged(means, order))

    def averaged(self, function: Callable[..., T], order: Order) -> T:
        """Return the weighted sum over blocks of `function`, a mean over fields at their minima; entries are (rows,)
        for the rows of `order`, without those that were added to fill a kernel."""
        rows, count = _filled(order), np.size(order.m_k)
        parts = [
            (p, function(*self.kinds, *self.numbers, rows, base, found))
            for (p, base), found in zip(self.blocks, self.minima(order), strict=True)
        ]
        weighted = [jax.tree.map(lambda x, p=p: p * np.asarray(x)[:count], part) for p, part in parts]
        return jax.tree.map(lambda *xs: sum(xs), *weighted)

    @property
    def kinds(self) -> tuple[type[SingleLocation], type[Activation]]:
        """Return the types of task and activation, which with the lengths determine a compiled kernel."""
        return type(self.task), type(self.model.activation)

    @property
    def is_cheap(self) -> bool:
        """Is the proximal map at most one-dimensional?"""
        return best("proximal", activation=self.kinds[1], tokens=self.task.longest).cost <= ONE_DIMENSION

    @property
    def _can_follow(self) -> bool:
        return self.follows and not self.is_cheap

    @property
    def is_smooth(self) -> bool:
        """Does every sample have one minimum, so that the means have no jumps?"""
        return not self.kinds[1].jumps

    @functools.cached_property
    def numbers(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the constants of the task and of the activation, which JAX traces."""
        return lower(self.task)[1], self.model.constants()

    def conjugates(self, found: Means) -> Conjugate:
        return Conjugate(*(self.alpha * x for x in found.conjugate))

    def map(self, x: np.ndarray) -> np.ndarray:
        r"""eq:ridge-equations. Return the coordinates after one step of the equations, (rows, 6).

        $V = \frac1{r + \hat V}$, $m = \hat mV$, $q = (\hat m^2 + \hat q)V^2$ for the key and for the value, in the
        coordinates $m$, $\log(q - m^2)$, $\log V$.
        """
        return self.updated(self.conjugates(self.means(unpack(x))))

    def nearby(self, x: np.ndarray) -> np.ndarray:
        """Return the same at coordinates so close to those of the last call that minima of sequences are followed from
        there. It is for differences: the values that these start from are those of a search."""
        if self.is_cheap:
            return self.map(x)
        self._following.append([])
        try:
            return self.map(x)
        finally:
            self._following.pop()

    def updated(self, hat: Conjugate) -> np.ndarray:
        columns: list[Any] = []
        for m, q, V, lam in (
            (hat.m_k, hat.q_k, hat.V_k, self.penalties[0]),
            (hat.m_v, hat.q_v, hat.V_v, self.penalties[1]),
        ):
            # where the curvature lam + V is negative nothing holds the weight, and 1 / (lam + V) is set to its bound
            log_V = -np.log(np.maximum(lam + V, math.exp(-ACCURACY.largest_log_susceptibility)))
            columns += [
                m * np.exp(log_V),
                np.maximum(np.log(np.maximum(q, 1e-300)) + 2 * log_V, ACCURACY.least_log_spread),
                log_V,
            ]
        return np.stack(columns, axis=-1)

    def solve(
        self,
        x: np.ndarray,
        tol: float,
        slope: np.ndarray | None = None,
        most: int = ACCURACY.solve_steps,
        close: np.ndarray | float = 0.0,
    ) -> FixedPoints:
        def iterate(x: np.ndarray, most: int) -> FixedPoints:
            return anderson(self.map, x, tol=tol, most=most, slope=slope, enough=ACCURACY.jumping_step, close=close)

        return self._confirmed(iterate, x, most, tol)

    def settle(
        self, x: np.ndarray, tol: float, most: int = ACCURACY.settle_steps, near: Sequence[Minima] = ()
    ) -> FixedPoints:
        """Return where the flow of the map leads from `x`: (1, 6) if there is one scrambling, else a row for each.

        Where minima are followed, it begins from those of `near`, or with a search.
        """
        if self._can_follow:
            self.recall(near)
        alone = self.scrambles == 1
        linearised = linearised_alone(self.map) if alone else linearised_rows(self.map, nearby=self.nearby)

        def iterate(x: np.ndarray, most: int) -> FixedPoints:
            return settle(linearised, x, tol=tol, most=most, enough=ACCURACY.jumping_step)

        return self._confirmed(iterate, x, most, tol)

    def _confirmed(
        self, iterate: Callable[[np.ndarray, int], FixedPoints], x: np.ndarray, most: int, tol: float
    ) -> FixedPoints:
        """Return where an iteration of at most so many steps from `x` (rows, 6) ends.

        If minima are followed, a search from all starts at its end joins those that are lower, and the residual is
        taken with them; where that moved it, the iteration goes on from there.
        """
        if not self._can_follow:
            return iterate(x, most)
        best, steps = None, 0
        for _ in range(ACCURACY.searches):
            with self.following():
                ended = iterate(x, most)
            found = iterate(ended.x, 1)
            steps += ended.steps + found.steps
            if best is None or np.max(found.residual) < np.max(best.residual):
                best = found
            # far below the differences between scramblings, which are 0 where there is one
            quiet = min(ACCURACY.quiet * np.max(np.std(found.x, axis=0)), ACCURACY.jumping_step)
            same = np.all(found.residual <= np.maximum(ended.residual + tol, quiet))
            if same or np.any(ended.residual > max(tol, ACCURACY.jumping_step)):  # nor would more of the same end
                break
            x = found.ahead
        assert best is not None
        return best._replace(steps=steps)

    @contextlib.contextmanager
    def following(self, around: Sequence[Minima] = ()) -> Iterator[None]:
        """Follow the minima of sequences from call to call, or all calls from those of `around`, instead of searching
        for them, as long as this context lasts and where `follows` says so."""
        if not self._can_follow:
            yield
            return
        self._following.append(list(around))
        try:
            yield
        finally:
            self.recall(self._following.pop() or self.known)

    def near(self, x: np.ndarray) -> contextlib.AbstractContextManager[None]:
        """Return a context in which minima are followed from the last known ones, which are taken to be near
        coordinates `x` (rows, 6), or from those that a search finds there."""
        if self._can_follow and not self.known:
            self.minima(unpack(x))
        return self.following(self.known)

    @functools.cached_property
    def _following(self) -> list[list[Minima]]:
        """Return a list that is empty unless minima are followed, else has those that all calls begin from, if any; the
        dataclass itself is frozen."""
        return []

    def settle_pooled(self, x: np.ndarray, tol: float) -> tuple[FixedPoints, float]:
        """Return fixed points (scrambles, 6) around that of the scramblings' mean map, which the flow reaches from `x`
        (6,), and a factor for the differences between the rows.

        The rows are each scrambling's own fixed point to first order. Where these are far apart they are drawn
        together by the factor, so that what is computed from them is of first order too; errors that come from the
        differences between rows must be multiplied by it. Near the end of a branch some scramblings have no fixed
        point of their own while their mean map still has one.
        """

        def pooled(of_rows: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
            return lambda at: of_rows(np.repeat(at, self.scrambles, axis=0)).mean(axis=0, keepdims=True)

        most = ACCURACY.pooled_steps if self.is_cheap else ACCURACY.pooled_steps_dear
        linearised = linearised_rows(pooled(self.map), nearby=pooled(self.nearby))
        found = settle(linearised, x[None], tol=tol, most=most, enough=ACCURACY.jumping_step)
        slope = linearised(found.x)[1][0]
        steps = self.map(np.repeat(found.x, self.scrambles, axis=0)) - found.x
        away = np.linalg.solve(np.eye(x.size) - slope, steps.T).T
        widen = max(1.0, float(np.max(np.abs(away))) / ACCURACY.linear)
        rows = found.x + away / widen
        return FixedPoints(rows, np.repeat(found.residual, self.scrambles), found.steps, rows), widen

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Return the Jacobian of the map at one point (6,), shape (6, 6), by the first scrambling."""
        return jacobian(replace(self, scrambles=1).map if self.scrambles > 1 else self.map, x)

    def energy(self, order: Order, found: Means) -> np.ndarray:
        r"""eq:ridge-energy. Return the training objective over d, (rows,): $f = \frac\alpha2E r^2 + \frac{r_k}2q_k +
        \frac{r_v}2q_v$."""
        lam_k, lam_v = self.penalties
        return self.alpha * found.residual_sq / 2 + lam_k * order.q_k / 2 + lam_v * order.q_v / 2

    def free_energy(self, order: Order, hat: Conjugate, found: Means) -> np.ndarray:
        r"""eq:ridge-free-energy. Return the free energy, (rows,); at a fixed point it equals the energy.

        $\sum_{a=k,v}\left[m\hat m - \frac{q\hat V}2 + \frac{V\hat q}2 - \frac{\hat m^2 + \hat q}{2(r + \hat V)}\right]
        + \alpha E[M]$.
        """
        total = self.alpha * found.envelope
        for (m, q, V), (mh, qh, Vh), lam in zip(
            (order[:3], order[3:]), (hat[:3], hat[3:]), self.penalties, strict=True
        ):
            total = total + m * mh - q * Vh / 2 + V * qh / 2 - (mh**2 + qh) / (2 * (lam + Vh))
        return total


def _filled(order: Order) -> Order:
    """Return the rows repeated to ROWS, the number that kernels are compiled for."""
    return Order(*(np.resize(np.asarray(x, dtype=float), ROWS) for x in order))


def _same(one: Order, other: Order) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def unpack(x: np.ndarray) -> Order:
    """Return the order parameters, each (rows,), of coordinates (rows, 6)."""
    m_k, s_k, V_k, m_v, s_v, V_v = (x[..., i] for i in range(6))
    return Order(m_k, m_k**2 + np.exp(s_k), np.exp(V_k), m_v, m_v**2 + np.exp(s_v), np.exp(V_v))


def pack(order: Order) -> np.ndarray:
    """Return the coordinates (rows, 6) of order parameters."""
    columns = [
        order.m_k,
        np.log(order.q_k - np.square(order.m_k)),
        np.log(order.V_k),
        order.m_v,
        np.log(order.q_v - np.square(order.m_v)),
        np.log(order.V_v),
    ]
    return np.stack([np.asarray(c, dtype=float) for c in columns], axis=-1)

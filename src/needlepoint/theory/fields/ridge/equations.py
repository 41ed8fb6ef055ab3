"""The replica-symmetric equations of ridge training for any field law and output: their map, and its fixed points."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from needlepoint.losses import Loss
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.fixed_points import FixedPoints, anderson, linearised_alone, settle
from needlepoint.tasks.sequence import SequenceTask
from needlepoint.theory.fields import envelope
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.law import Kind, Numbers, Part, fields, normals, parts
from needlepoint.theory.fields.order import Conjugates, Order, Pattern


class Minima(NamedTuple):
    """Searched fields at the lowest minimum and at the next lowest (the same if there is none), both (freedom, n), the
    envelope at the lowest (n,), its difference from the next (n,), infinite if there is no rival, and the last step of
    the search (n,)."""

    chi: np.ndarray
    rival: np.ndarray
    height: np.ndarray
    gap: np.ndarray
    left: np.ndarray


class Means(NamedTuple):
    """Conjugates over alpha, mean envelope and mean loss at the minimum."""

    conjugates: Conjugates
    envelope: float
    loss: float


@dataclass(frozen=True)
class Equations:
    """The equations of one problem with one rule of integration: `scrambles` times 2**log2_points Sobol points."""

    task: SequenceTask
    model: FieldModel
    loss: Loss
    alpha: float
    penalties: tuple[float, ...]
    pattern: Pattern
    log2_points: int
    scrambles: int
    seed: int

    @functools.cached_property
    def parts(self) -> list[Part]:
        return parts(self.task, self.model, self.loss)

    @property
    def freedom(self) -> int:
        return max(envelope.freedom(part.kind) for part in self.parts)

    @functools.cached_property
    def _near(self) -> dict[tuple[int, int, int], Minima]:
        """Return the last minima of every block, from which the next search begins."""
        return {}

    def forget(self) -> None:
        """Let the next search for minima begin from all starts."""
        self._near.clear()

    def means(self, order: Order, scrambling: int = 0) -> Means:
        """Return the means over the fields, by the points of one scrambling."""
        total = None
        for i, part in enumerate(self.parts):
            blocks = normals(part.kind.normals, self.log2_points, self.scrambles, self.seed)[scrambling]
            for j, base in enumerate(blocks):
                key = (scrambling, i, j)
                low = minima(part.kind, part.numbers, order, base, self._near.get(key))
                self._near[key] = low
                share = part.probability / len(blocks)
                found = _averages(part.kind, part.numbers, order, base, low)
                weighted = [share * np.asarray(x) for x in found]
                total = weighted if total is None else [a + b for a, b in zip(total, weighted, strict=True)]
        assert total is not None
        by_M, by_Q, by_V, height, loss = total
        return Means(Conjugates(-by_M, -2 * by_V, 2 * by_Q), float(height), float(loss))

    def conjugates(self, found: Means) -> Conjugates:
        """Return the conjugates, with zeros where a symmetry says so."""
        masks = (self.pattern.M, self.pattern.Q, self.pattern.Q)
        return Conjugates(*(self.alpha * x * mask for x, mask in zip(found.conjugates, masks, strict=True)))

    def map(self, x: np.ndarray) -> np.ndarray:
        """eq:field-equations. Return the coordinates after one step of the equations, (rows, k); row i is computed with
        scrambling i, or with the only one."""
        r, found = np.array(self.penalties), []
        for i, row in enumerate(x):
            means = self.means(self.pattern.unpack(row), i if self.scrambles > 1 else 0)
            found.append(self.pattern.pack(self.pattern.updated(self.conjugates(means), r)))
        return np.stack(found)

    def near(self, x: np.ndarray) -> contextlib.AbstractContextManager[None]:
        """Return a context that changes nothing: minima are followed from call to call in any case."""
        return contextlib.nullcontext()

    def settle(self, x: np.ndarray) -> FixedPoints:
        """Return where the flow of the map leads from x (k,), by one scrambling."""
        return settle(
            linearised_alone(self.map),
            x[None],
            tol=ACCURACY.found,
            most=ACCURACY.settle_steps,
            enough=ACCURACY.jumping_step,
        )

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Return the Jacobian of the map at x (k,), by the first scrambling."""
        alone = self if self.scrambles == 1 else replace(self, scrambles=1)
        return linearised_alone(alone.map)(x[None])[1][0]

    def solve(self, x: np.ndarray, slope: np.ndarray, tol: float) -> FixedPoints:
        """Return each scrambling's fixed point near x (scrambles, k)."""
        every = np.repeat(slope[None], len(x), axis=0)
        return anderson(self.map, x, tol=tol, most=ACCURACY.solve_steps, slope=every, enough=ACCURACY.jumping_step)

    def energy(self, order: Order, found: Means) -> float:
        r"""eq:field-energy. Return the objective over d: $\alpha E\,\ell + \frac12\sum_pr_pQ_{pp}$."""
        return self.alpha * found.loss + float(np.diagonal(order.Q) @ np.array(self.penalties)) / 2

    def free_energy(self, order: Order, found: Means) -> float:
        r"""eq:field-free-energy. Return $\mathrm{tr}M^\top\hat m - \frac12\mathrm{tr}Q\hat V +
        \frac12\mathrm{tr}V\hat q - \frac12\mathrm{tr}(\hat m\hat m^\top + \hat q)(r + \hat V)^{-1} + \alpha\Phi$: the
        energy at a fixed point, and stationary there."""
        hat = self.conjugates(found)
        held = np.linalg.inv(np.diag(self.penalties) + hat.V)
        total = np.sum(order.M * hat.M) - np.sum(order.Q * hat.V) / 2 + np.sum(order.V * hat.Q) / 2
        return float(total - np.sum((hat.M @ hat.M.T + hat.Q) * held) / 2 + self.alpha * found.envelope)


def minima(kind: Kind, numbers: Numbers, order: Order, base: Array, near: Minima | None = None) -> Minima:
    """Return the lowest minimum of every sample and the next lowest: from the field, zero and one field moved at a time
    and then from the two lowest, or only from the two that were lowest `near`by."""
    descend = functools.partial(envelope.descend, kind, numbers, *order, base)
    if near is None:
        rough = [descend(start, ACCURACY.rough) for start in _starts(kind, numbers, order, base)]
        chi, rival, _ = _two_lowest(np.stack([r.chi for r in rough]), np.stack([r.height for r in rough]))
    else:
        chi, rival = near.chi, near.rival
    several = not np.array_equal(chi, rival)
    fine = [descend(start, ACCURACY.fine) for start in ((chi, rival) if several else (chi,))]
    chi, rival, gap = _two_lowest(np.stack([f.chi for f in fine]), np.stack([f.height for f in fine]))
    heights = np.stack([f.height for f in fine])
    left = np.take_along_axis(np.stack([f.left for f in fine]), np.argmin(heights, axis=0)[None], axis=0)[0]
    return Minima(chi, rival, np.min(heights, axis=0), gap, left)


def _starts(kind: Kind, numbers: Numbers, order: Order, base: Array) -> list[np.ndarray]:
    """Return the starts of the search for minima, each (freedom, n)."""
    field = np.asarray(_field(kind, numbers, order.M, order.Q, base))
    x = envelope.split(kind).x
    spread = np.sqrt(np.diagonal(order.Q))[list(x)]
    reach = ACCURACY.far * np.tile(np.maximum(spread, 1.0), kind.tokens)
    moved = [field + sign * (reach * e)[:, None] for e in np.eye(len(field)) for sign in (1.0, -1.0)]
    return [field, np.zeros_like(field), *moved]


@functools.partial(jax.jit, static_argnums=0)
def _field(kind: Kind, numbers: Numbers, M: Array, Q: Array, base: Array) -> Array:
    return envelope.start_at(kind, fields(kind, numbers, M, Q, base))


def _two_lowest(points: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the lowest of `points` (m, k, n), the next lowest that is distinct from it (itself if there is none), and
    the difference of their heights (n,)."""

    def take(which: np.ndarray) -> np.ndarray:
        return np.take_along_axis(points, which[None, None], axis=0)[0]

    best = take(np.argmin(heights, axis=0))
    size = 1 + np.max(np.abs(best), axis=0)
    others = np.where(np.max(np.abs(points - best), axis=1) > ACCURACY.distinct * size, heights, np.inf)
    gap = np.min(others, axis=0) - np.min(heights, axis=0)
    return best, np.where(np.isfinite(gap), take(np.argmin(others, axis=0)), best), gap


def _averages(kind: Kind, numbers: Numbers, order: Order, base: Array, low: Minima) -> envelope.Averages:
    """Return the means at the minima. Two of almost equal height are averaged, see `ACCURACY.softening`."""
    none = np.zeros_like(low.gap)
    if not np.any(np.isfinite(low.gap)):
        return envelope.averages(kind, numbers, *order, base, low.chi, low.chi, none)
    width = ACCURACY.softening * float(np.mean(low.height))
    share = 1 / (1 + np.exp(np.minimum(low.gap / width, 700.0)))
    return envelope.averages(kind, numbers, *order, base, low.chi, low.rival, share)


def starting_points(pattern: Pattern, informed: np.ndarray) -> Mapping[str, np.ndarray]:
    """Return coordinates (k,) from which branches are searched for: overlaps near zero, and near the teachers.

    Susceptibilities are small there: a sequence that can hardly move its fields has one minimum, and pulls the weights
    the right way.
    """
    P, M = len(pattern.columns), informed * pattern.M

    def point(M: np.ndarray, rest: float, V: float) -> np.ndarray:
        return pattern.pack(Order(M, M @ M.T + rest * np.eye(P), V * np.eye(P)))

    return {"uninformed": point(0.02 * M, 0.3, 0.1), "informed": point(M, 0.1, 0.2)}

r"""One step of replica symmetry breaking: the map of the order parameters at one breaking parameter x, its free energy
and the derivative of that by x."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from needlepoint.core.routes import the
from needlepoint.losses import Square
from needlepoint.theory.fields.law import Part
from needlepoint.theory.fields.order import LARGEST_SUSCEPTIBILITY, LEAST_SPREAD, Pattern
from needlepoint.theory.fields.ridge.equations import Equations
from needlepoint.theory.fields.states.inner import Means, Search, means, normals
from needlepoint.theory.fields.states.minima import Low


class StateOrder(NamedTuple):
    """Overlaps with the teachers M (P, S), products of the columns of two states and of one with itself, and
    susceptibilities V inside a state, (P, P) each."""

    M: np.ndarray
    between: np.ndarray
    within: np.ndarray
    V: np.ndarray


class Hats(NamedTuple):
    """Conjugates: of M, of the products between and within states, and of what both share (the response of the mean
    forces to the fields of all states)."""

    M: np.ndarray
    between: np.ndarray
    within: np.ndarray
    shared: np.ndarray


class Energies(NamedTuple):
    r"""The free energy Phi, its explicit derivative by x, the energy of a state $E = \Phi + x\Phi'$, and the same from
    its parts, $\alpha E\,\ell + \frac12\sum_pr_pQ_{1,pp}$: the two are equal at a fixed point."""

    free: float
    slope: float
    state: float
    parts: float

    def complexity(self, x: float) -> float:
        r"""Return $\Sigma = x^2\Phi'$."""
        return x**2 * self.slope


@dataclass(frozen=True)
class StateEquations:
    """The equations of one problem with one rule of integration: 2**levels[0] outer and 2**levels[1] inner points for
    each of the `scrambles` of the replica-symmetric `problem`."""

    problem: Equations
    levels: tuple[int, int]
    follows: bool = False
    """Whether searches for minima begin from those of the last call, where they are searches in several dimensions."""

    @property
    def pattern(self) -> Pattern:
        return self.problem.pattern

    @property
    def parts(self) -> list[Part]:
        return self.problem.parts

    @functools.cached_property
    def search(self) -> Search:
        """Return the route by which minima of sequences are found."""
        problem = self.problem
        spreads = [np.asarray(part.kind.task.value.place_at(part.kind.place).spread) for part in self.parts]
        plain = problem.loss == Square() and not np.any(self.pattern.below) and all(np.all(s == 1.0) for s in spreads)
        return the("minima of sequences", task=problem.task, model=problem.model, plain=plain)

    @functools.cached_property
    def _near(self) -> dict[tuple[int, int], Low | None]:
        return {}

    def means(self, order: StateOrder, x: float, row: int = 0) -> Means:
        """Return the means over the fields, by the points of one scrambling."""
        total: list[np.ndarray] | None = None
        root = self.pattern.root(self.pattern.packed(order.within - order.between))
        for i, part in enumerate(self.parts):
            kind = part.kind
            points = normals(
                kind.normals, kind.tokens, kind.columns, self.levels, self.problem.scrambles, self.problem.seed, row
            )
            near = self._near.get((row, i)) if self.follows else None
            found, low = means(kind, self.search, part.numbers, order.M, order.between, root, order.V, x, points, near)
            if self.follows:
                self._near[row, i] = low
            weighted = [part.probability * np.asarray(a) for a in found]
            total = weighted if total is None else [a + b for a, b in zip(total, weighted, strict=True)]
        assert total is not None
        return Means(*total)

    def hats(self, found: Means) -> Hats:
        """Return the conjugates, with zeros where a symmetry says so."""
        alpha, Q = self.problem.alpha, self.pattern.Q
        by_M, by_Q, between, within = (np.asarray(x) for x in found[:4])
        shared = alpha * (by_Q + by_Q.T) * Q
        return Hats(-alpha * by_M * self.pattern.M, alpha * between * Q, alpha * within * Q, shared)

    def curvatures(self, hat: Hats, x: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r"""Return $A_0 = r + \hat V_0$, $A = A_0 + x(\hat q_1 - \hat q_0)$ and $\hat q_1 - \hat q_0$; eigenvalues are
        raised to where something still holds the weights."""
        between = _at_least(hat.within - hat.between, 0.0)
        held = _at_least(np.diag(self.problem.penalties) + hat.shared, 1 / LARGEST_SUSCEPTIBILITY)
        return held, held + x * between, between

    def updated(self, hat: Hats, x: float) -> StateOrder:
        r"""eq:state-equations. Return $V = A^{-1}$, $M = A_0^{-1}\hat m$, $Q_0 = A_0^{-1}(\hat m\hat m^\top + \hat
        q_0)A_0^{-1}$ and $Q_1 = Q_0 + A_0^{-1}(\hat q_1 - \hat q_0)A^{-1}$."""
        A0, A, apart = self.curvatures(hat, x)
        V0, V = np.linalg.inv(A0), np.linalg.inv(A)
        M = V0 @ hat.M
        between = V0 @ _at_least(hat.between, LEAST_SPREAD**2) @ V0 + M @ M.T
        rest = V0 @ apart @ V
        return StateOrder(M, between, between + (rest + rest.T) / 2, V)

    def pack(self, order: StateOrder) -> np.ndarray:
        """Return the coordinates (k,): M, and roots of Q_0 - M M^T, of Q_1 - Q_0 and of V."""
        pattern = self.pattern
        matrices = (order.between - order.M @ order.M.T, order.within - order.between, order.V)
        return np.concatenate([order.M[pattern.M], *map(pattern.packed, matrices)])

    def unpack(self, coordinates: np.ndarray) -> StateOrder:
        pattern = self.pattern
        count = len(pattern.columns) + int(pattern.below.sum())
        first, *rest = np.split(coordinates, int(pattern.M.sum()) + count * np.arange(3))
        M = np.zeros(pattern.M.shape)
        M[pattern.M] = first
        between, apart, V = (root @ root.T for root in map(pattern.root, rest))
        between = between + M @ M.T
        return StateOrder(M, between, between + apart, V)

    def map(self, rows: np.ndarray, x: float) -> np.ndarray:
        """Return the coordinates (rows, k) after one step of the equations at x; row i is computed with scrambling i,
        or with the only one."""
        many, found = self.problem.scrambles > 1, []
        for i, row in enumerate(rows):
            hat = self.hats(self.means(self.unpack(row), x, i if many else 0))
            found.append(self.pack(self.updated(hat, x)))
        return np.stack(found)

    def energies(self, order: StateOrder, found: Means, x: float) -> Energies:
        r"""eq:state-free-energy. Return the free energy per d, $\mathrm{tr}M^\top\hat m +
        \frac12\mathrm{tr}[V\hat q_1 - Q_1\hat V + x(Q_1\hat q_1 - Q_0\hat q_0)] + \frac1{2x}\log\frac{\det A_0}{\det A}
        - \frac12\mathrm{tr}(\hat m\hat m^\top + \hat q_0)A_0^{-1} + \alpha E\psi_0$, and its derivative by x."""
        hat = self.hats(found)
        A0, A, apart = self.curvatures(hat, x)
        r, V0 = np.diag(self.problem.penalties), np.linalg.inv(A0)
        alpha, Q0, Q1 = self.problem.alpha, order.between, order.within
        grown = (np.linalg.slogdet(A0)[1] - np.linalg.slogdet(A)[1]) / (2 * x)
        products = (np.sum(Q1 * hat.within) - np.sum(Q0 * hat.between)) / 2
        pulled = hat.M @ hat.M.T + hat.between
        free = np.sum(order.M * hat.M) + np.sum(order.V * hat.within) / 2 - np.sum(Q1 * (A - r)) / 2 + x * products
        free = free + grown - np.sum(pulled * V0) / 2 + alpha * found.psi
        slope = products - grown / x - np.sum(V0 * apart) / (2 * x) - np.sum((V0 @ pulled @ V0) * apart) / 2
        slope = slope + alpha * (found.envelope - found.psi) / x
        parts = alpha * found.loss + float(np.diagonal(Q1) @ np.array(self.problem.penalties)) / 2
        return Energies(float(free), float(slope), float(free + x * slope), float(parts))


def _at_least(matrix: np.ndarray, least: float) -> np.ndarray:
    """Return the symmetric part of a matrix with eigenvalues raised to `least`."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, least)) @ vectors.T

"""Solutions in which columns are equal, such as two heads that do the same: those of a smaller model.

The differences of equal columns vanish, Q is singular, and the logarithms among the coordinates have no limit. The
smaller model has equations that are regular there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from needlepoint.models.fields import Merged
from needlepoint.theory.fields.order import LEAST_SPREAD, Order, Pattern
from needlepoint.theory.fields.ridge.equations import Equations
from needlepoint.theory.fields.symmetry import patterns

AT_THE_BOUND = 10.0
"""Columns are equal if the squares of their differences, off the teachers, are below this many squares of LEAST_SPREAD,
at which the coordinates end. Where heads part they are larger by factors of hundreds."""


@dataclass(frozen=True)
class EqualColumns:
    """The smaller model that a solution `order` of `equations` (those of the larger one) amounts to."""

    equations: Equations
    order: Order
    merged: Merged

    @property
    def _back(self) -> np.ndarray:
        return np.linalg.pinv(self.merged.factors)

    @property
    def _apart(self) -> np.ndarray:
        """Return the projector (P, P) on differences of columns that are equal."""
        return np.eye(len(self.merged.factors)) - self.merged.factors @ self._back

    def smaller(self) -> tuple[Equations, np.ndarray]:
        """Return the equations of the smaller model and the solution's coordinates in them."""
        large, back = self.equations, self._back
        penalties = self.merged.penalties(large.penalties)
        pattern = _pattern_of(large, self.merged)
        equations = replace(large, model=self.merged.model, penalties=penalties, pattern=pattern)
        M, Q, V = self.order
        return equations, pattern.pack(Order(back @ M, back @ Q @ back.T, back @ V @ back.T))

    def embedded(self, order: Order) -> Order:
        """Return a solution of the smaller model as one of the larger: w = A w' has the products A Q' A^T and the
        susceptibilities A V' A^T. Those of the differences are what the larger model's equations found."""
        A, apart = self.merged.factors, self._apart
        M, Q, V = order
        return Order(A @ M, A @ Q @ A.T + LEAST_SPREAD**2 * apart, A @ V @ A.T + apart @ self.order.V @ apart)

    def error(self, order: Order) -> Order:
        """Return the errors of the embedded solution."""
        A = self.merged.factors
        M, Q, V = order
        return Order(A @ M, A @ Q @ A.T, A @ V @ A.T)


def equal_columns(equations: Equations, x: np.ndarray) -> EqualColumns | None:
    """Return the smaller model that the solution at x (k,) amounts to; None if its columns differ."""
    merged = equations.model.merged()
    if merged is None:
        return None
    order = equations.pattern.unpack(x)
    found = EqualColumns(equations, order, merged)
    spread = found._apart @ (order.Q - order.M @ order.M.T) @ found._apart
    return found if np.max(np.linalg.eigvalsh(spread)) < AT_THE_BOUND * LEAST_SPREAD**2 else None


def _pattern_of(equations: Equations, merged: Merged) -> Pattern:
    every = patterns(equations.task, merged.model)
    return next((p for p in every if p.name == equations.pattern.name), every[0])

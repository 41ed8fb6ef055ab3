"""What a search for the best key asks: the least risk over v at a key, whatever the activation."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.routes import ONE_DIMENSION, SAMPLED, TABLES, Route, best, route, the
from needlepoint.models.activations import Activation, Erf, KernelActivation, Linear
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.moments import sampled as sampled_moments
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.moments.place_race import winner_law
from needlepoint.theory.location.moments.weight_moments import Moments
from needlepoint.theory.location.population import risk as population_risk
from needlepoint.theory.location.population.accuracy import ACCURACY

SCAN, SEARCH, FINAL = 4.0, 2.0, 1.0
"""Coarseness of the tables in the three stages of a search: a factor on every step."""

_QMC_POINTS = {SCAN: 9, SEARCH: 13, FINAL: 14}  # log2 of the points, where means are sampled


_LINE = 64  # nodes on a line at the coarsest


class TooSteep(Exception):
    """A kernel is too steep for its tables at this norm of the key."""


@dataclass(frozen=True)
class Point:
    """A key on the manifold and the free constants; `index` is where on the grid of norms it was scanned."""

    index: int
    scale: float
    alignment: float
    constants: dict[str, float]

    @property
    def key(self) -> float:
        return self.scale * self.alignment


@dataclass(frozen=True)
class Question:
    """What is minimised: the risk of this model over its key (and value), with these constants free."""

    task: SingleLocation
    model: KeyValueAttention

    @property
    def activation(self) -> type[Activation]:
        return type(self.model.activation)

    @property
    def erf(self) -> bool:
        return issubclass(self.activation, Erf)

    @property
    def free(self) -> list[str]:
        return self.model.free_constants()

    @property
    def kind(self) -> str:
        """Return "rough" where the risk may have kinks (functions of the user, sampled means), otherwise "smooth"."""
        return "smooth" if self.model.activation.smooth and not self.sampled else "rough"

    @property
    def tabled(self) -> bool:
        """Return whether the means come from tables, whose errors differ for keys along k* and beside it."""
        return self._means.cost == TABLES

    @property
    def sampled(self) -> bool:
        """Return whether the means are sampled, for want of formulas and tables."""
        return self._means.cost == SAMPLED

    @property
    def _means(self) -> Route:
        return best("means at a key", task=self.task, model=self.model)

    @functools.cached_property
    def constants(self) -> dict[str, float]:
        return elementwise.constants(self.task, self.model)

    def moments(
        self, free: Mapping[str, float], key: float, key_sq: float, coarseness: float = FINAL, rest: bool = False
    ) -> Moments:
        """Return the means at this key; `rest=False` allows to skip those that the manifold does not need."""
        return self._means.function(self, free, key, key_sq, coarseness, rest)

    def elementwise_call(self, coarseness: float) -> tuple[Any, ...]:
        """Return the first five arguments of `population_risk.elementwise_of`."""
        refine, nodes = the("quadrature at a key", activation=self.activation)(coarseness)
        winner = winner_law(self.task, refine) if self.task.tilted else None
        return self.activation, type(self.task), nodes, winner, self.constants

    def many_forms(
        self, norm: np.ndarray, key: np.ndarray, free: Mapping[str, Any], coarseness: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (A, B) of eq:value-form, shaped like `norm`, for an element-wise activation."""
        call = self.elementwise_call(coarseness)
        flat = {n: np.broadcast_to(x, norm.shape).ravel() for n, x in free.items()}
        found = population_risk.elementwise_forms(*call, flat, key.ravel(), norm.ravel() ** 2, self.task.label_var)
        A, B = (np.asarray(x).reshape(norm.shape) for x in found)
        return A, B

    # --- on the manifold -----------------------------------------------------------------------

    def value_form(
        self, free: Mapping[str, float], key: float, key_sq: float, coarseness: float
    ) -> tuple[float, float]:
        """Return (A, B) of eq:value-form at one key."""
        return weight_moments.on_manifold(self.task.label_var, self.moments(free, key, key_sq, coarseness))

    def least(self, form: tuple[float, float]) -> tuple[float, float]:
        """Return the least excess risk over v, and v . v* there, from (A, B)."""
        (A, B), G = form, self.task.label_var
        if self.model.unit_norm:
            value = 1.0 if A >= 0 else -1.0
            return G - 2 * value * A + B, value
        value = A / B if B > 0 else 0.0
        return G - A * value, value

    def value(self, point: Point, coarseness: float) -> float:
        """Return the least risk over v at a point; infinite where a kernel is too steep for its tables."""
        try:
            return self.least(self.value_form(point.constants, point.key, point.scale**2, coarseness))[0]
        except TooSteep:
            return math.inf


# --- the means of an activation, by its form ---------------------------------------------------


@route("means at a key", name="elementwise", cost=ONE_DIMENSION, form="elementwise")
def elementwise_at(
    question: Question, free: Mapping[str, float], key: float, key_sq: float, coarseness: float, rest: bool
) -> Moments:
    found = population_risk.elementwise_of(*question.elementwise_call(coarseness), dict(free), key, key_sq)
    return type(found)(*map(float, found))


@route("means at a key", name="tables", cost=TABLES, activation=KernelActivation)
def tabled_at(
    question: Question, free: Mapping[str, float], key: float, key_sq: float, coarseness: float, rest: bool
) -> Moments:
    kernel: Any = question.activation
    while coarseness <= SCAN:  # where fine tables are too large, coarser ones still beat sampling
        tables = population_risk.kernel_of(question.task, kernel, key, key_sq, coarseness, rest)
        if tables is not None:
            return tables
        coarseness *= 2
    raise TooSteep


@route("means at a key", name="qmc", cost=SAMPLED)
def sampled_at(
    question: Question, free: Mapping[str, float], key: float, key_sq: float, coarseness: float, rest: bool
) -> Moments:
    points = min(_QMC_POINTS[coarseness], max(9, ACCURACY.qmc_budget - int(math.log2(question.task.longest))))
    c = {**question.constants, **free}
    return sampled_moments.scrambles(question.task, question.activation, c, key, key_sq, points, 1)[0]


@route("quadrature at a key", activation=Erf)
def _for_erf(coarseness: float) -> tuple[int, int]:
    """Return how finely the law of the winner's score is resolved, and the nodes on a line (0: the closed form)."""
    return {SCAN: 1, SEARCH: 2, FINAL: 4}[coarseness], 0


@route("quadrature at a key", name="polynomial", activation=Linear)
def _for_linear(coarseness: float) -> tuple[int, int]:
    return 1, _LINE  # the rules are exact for polynomials


@route("quadrature at a key", name="lines", cost=ONE_DIMENSION, form="elementwise")
def _for_any(coarseness: float) -> tuple[int, int]:
    refine = {SCAN: 1, SEARCH: 4, FINAL: 16}[coarseness]
    return refine, _LINE * refine

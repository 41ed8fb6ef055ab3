"""Rules of integration over the fields of a sequence of the attention-indexed model, and losses at given overlaps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import special

from needlepoint.core.errors import NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.fields import RADIUS, Base, lattice, scrambled

Rule = tuple[Base, ...]
"""A rule of integration: blocks of nodes."""

MOST_TOKENS = 6
"""Most tokens T for which equations are iterated: their means are over T(T + 1) - 2 dimensions."""

MOST_IN_A_ROW = 2000
"""Most tokens for which a test error is computed: it is a mean over one row of scores."""

STEEPEST = 10.0
"""Inverse temperature of the labels above which no lattice is used: too few nodes fall on so steep a step."""

SMOOTH, JUMPING = (0.5, 0.2), (2.0, 1.0)
"""The error of a lattice is the larger of these multiples of the last change and of the change before. SMOOTH is for
analytic integrands, JUMPING for minima that jump between nodes, where changes fall slowly and can be small by chance.
"""


class Levels(Sequence[tuple[Rule, ...]]):
    """Rules of integration from coarse to fine, each built when it is asked for."""

    def __init__(self, makers: Sequence[Callable[[], tuple[Rule, ...]]]) -> None:
        self.makers = makers

    def __len__(self) -> int:
        return len(self.makers)

    def __getitem__(self, place: Any) -> Any:
        return Levels(self.makers[place]) if isinstance(place, slice) else self.makers[place]()

    def __iter__(self) -> Iterator[tuple[Rule, ...]]:
        return (make() for make in self.makers)


def on_lattice(task: AttentionIndexed) -> bool:
    """Whether means are sums over a lattice, rather than over scrambled Sobol points."""
    return task.tokens == 2 and task.beta_star <= STEEPEST


def rule_levels(task: AttentionIndexed, seed: int) -> Levels:
    """Return the rules from coarse to fine: one lattice for two tokens, several scramblings of Sobol points for more
    tokens and for labels that are almost steps."""
    if task.tokens > MOST_TOKENS:
        raise NoTheory(
            f"{task!r}: the equations of {task.tokens} tokens are not iterated, those of at most {MOST_TOKENS} are; "
            "BayesOptimal and Ridge(lam=0) below interpolation are answered, and simulate(...) trains any number."
        )
    if on_lattice(task):
        sharp = max(1.0, math.sqrt(task.beta_star))  # steeper labels need a finer lattice
        spacings = [h / sharp for h in ACCURACY.spacings if _nodes(h / sharp) <= ACCURACY.nodes]
        return Levels([functools.partial(_one_lattice, h) for h in spacings])
    return Levels(
        [
            functools.partial(scrambled, round(task.components), level, ACCURACY.scrambles, seed)
            for level in ACCURACY.levels
        ]
    )


def _one_lattice(spacing: float) -> tuple[Rule, ...]:
    return (lattice(spacing),)


def _nodes(spacing: float) -> float:
    """Return about how many nodes a lattice has: they fill a quarter of a ball in four dimensions."""
    return math.pi**2 / 8 * (RADIUS / spacing) ** 4


def combined(
    rows: np.ndarray, coarser: Sequence[np.ndarray], falls: tuple[float, float] = SMOOTH
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (k,) of values (rules, k) and its error.

    For several scramblings this is three standard errors. A single lattice is compared with the last two `coarser` ones
    (k,), because one change can be small by chance; `falls` are the multiples of the changes, see SMOOTH.
    """
    values = rows.mean(axis=0)
    if len(rows) > 1:
        return values, 3 * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    if len(coarser) < 2:
        return values, np.full_like(values, np.inf)
    last, before = np.abs(values - coarser[-1]), np.abs(coarser[-1] - coarser[-2])
    return values, np.maximum(falls[0] * last, falls[1] * before) + ACCURACY.cut_off * np.abs(values)


def losses(task: AttentionIndexed, beta: float, m: float, q: float, seed: int) -> tuple[Estimate, Estimate]:
    """Return the mean losses on noisy and on clean labels of scores with overlaps m and q, at temperature 1 / beta."""
    Q0 = task.target.law.square
    Q = Q0 + task.noise_var / 2
    if task.tokens == 1:
        return Estimate(2 * (Q - 2 * m + q), 0.0), Estimate(2 * (Q0 - 2 * m + q), 0.0)
    by = _losses_of_pairs if task.tokens == 2 else _losses_by_rows
    return by(task, beta, m, q, seed)


def _losses_of_pairs(task: AttentionIndexed, beta: float, m: float, q: float, _: int) -> tuple[Estimate, Estimate]:
    r"""eq:indexed-rows for two tokens. Return the losses $4E(s(\beta^*u^0) - s(\beta u))^2$ with noisy and clean
    labels, by lattices in the plane: $s$ is the logistic function, and $u^0$, $u$ are Gaussian score differences of
    variances $3Q$ and $3q$ and covariance $3m$."""
    Q0 = task.target.law.square
    found = []
    for Q in (Q0 + task.noise_var / 2, Q0):
        coarse, middle, fine = (_pair_loss(task.beta_star, beta, Q, m, q, n) for n in ACCURACY.planes)
        # sums converge very fast for a smooth function but like 1/n for a step; one change can be small by chance
        error = (
            max(abs(fine - middle), abs(middle - coarse) * ACCURACY.planes[0] / ACCURACY.planes[2])
            + ACCURACY.pair_rounding
        )
        found.append(Estimate(fine, error))
    return found[0], found[1]


def _pair_loss(beta_star: float, beta: float, Q: float, m: float, q: float, nodes: int) -> float:
    x = np.linspace(-ACCURACY.edge, ACCURACY.edge, nodes)
    weights = np.exp(-(x**2) / 2)
    weights /= weights.sum()
    away = m / math.sqrt(Q) * x[:, None] + math.sqrt(max(q - m * m / Q, 0.0)) * x[None, :]
    step = special.expit(beta_star * math.sqrt(3 * Q) * x)[:, None] - special.expit(beta * math.sqrt(3.0) * away)
    return 4 * float(weights @ step**2 @ weights)


def _losses_by_rows(task: AttentionIndexed, beta: float, m: float, q: float, seed: int) -> tuple[Estimate, Estimate]:
    r"""eq:indexed-rows. Return the losses $T\,E|\mathrm{softmax}(\beta^*z^0) - \mathrm{softmax}(\beta z)|^2$ with noisy
    and clean labels, a mean over one row: its scores are independent, of variances $Q$ and $q$ and covariance $m$ off
    the diagonal, and twice these on it."""
    T, Q0 = task.tokens, task.target.law.square
    if T > MOST_IN_A_ROW:
        raise NoTheory(
            f"{task!r}: test errors of {T} tokens are not computed, those of at most {MOST_IN_A_ROW} are; "
            "thresholds(...) needs none."
        )
    points = int(np.clip(math.log2(ACCURACY.rows / (2 * T)), 8, ACCURACY.levels[-1]))
    diagonal = np.where(np.arange(T) == 0, math.sqrt(2.0), 1.0)
    rows = []
    for normals in sobol_normals(2 * T, points, ACCURACY.scrambles, seed):
        x, y = diagonal * normals[:, :T], diagonal * normals[:, T:]
        rows.append([_row_loss(task.beta_star, beta, Q, m, q, x, y) for Q in (Q0 + task.noise_var / 2, Q0)])
    values, errors = combined(T * np.array(rows), ())
    return Estimate(float(values[0]), float(errors[0])), Estimate(float(values[1]), float(errors[1]))


def _row_loss(beta_star: float, beta: float, Q: float, m: float, q: float, x: np.ndarray, y: np.ndarray) -> float:
    z0 = math.sqrt(Q) * x
    z = m / Q * z0 + math.sqrt(max(q - m * m / Q, 0.0)) * y
    return float(np.mean(np.sum((special.softmax(beta_star * z0, axis=1) - special.softmax(beta * z, axis=1)) ** 2, 1)))

"""Rules of integration over the fields of a sequence of the attention-indexed model, and losses at given overlaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from needlepoint.core.errors import NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed_fields import Base, lattice, scrambled, test_losses

Rule = tuple[Base, ...]
"""Blocks of nodes."""

MOST_TOKENS = 6

_SPACINGS = (1.0, 0.8, 0.6, 0.5, 0.42, 0.36, 0.31)  # of the lattice for two tokens, at inverse temperature 1
_LEVELS = (10, 12, 14)  # log2 of the Sobol points a scrambling
_SCRAMBLES = 8
_FALLS = (0.5, 0.2)  # the error of a lattice is at most so much of the last change, and of the one before
_CUT_OFF = 1e-6  # the part of a mean that is lost beyond the lattice's radius, at most


def rule_levels(task: AttentionIndexed, seed: int) -> list[tuple[Rule, ...]]:
    """From coarse to fine: one lattice for two tokens, several scramblings of Sobol points for more."""
    if task.tokens > MOST_TOKENS:
        raise NoTheory(
            f"{task!r}: the means over {task.tokens} tokens are not computed, at most {MOST_TOKENS} are; "
            "simulate(...) trains any number."
        )
    if task.tokens == 2:
        sharp = max(1.0, math.sqrt(task.beta_star))  # steeper labels need a finer lattice
        return [(lattice(h / sharp),) for h in _SPACINGS]
    return [scrambled(round(task.components), level, _SCRAMBLES, seed) for level in _LEVELS]


def combined(rows: np.ndarray, coarser: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of (rules, k) values and its error: three standard errors of several scramblings. One lattice is
    compared with the two `coarser` ones before it (k,), because one change can be small by chance."""
    values = rows.mean(axis=0)
    if len(rows) > 1:
        return values, 3 * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    if len(coarser) < 2:
        return values, np.full_like(values, np.inf)
    last, before = np.abs(values - coarser[-1]), np.abs(coarser[-1] - coarser[-2])
    return values, np.maximum(_FALLS[0] * last, _FALLS[1] * before) + _CUT_OFF * np.abs(values)


def losses(task: AttentionIndexed, beta: float, m: float, q: float, seed: int) -> tuple[Estimate, Estimate]:
    """The mean loss on noisy and on clean labels of scores with the overlaps m and q, at inverse temperature beta."""
    Q0 = task.target.law.square
    Q = Q0 + task.noise_var / 2
    if task.tokens == 1:
        return Estimate(2 * (Q - 2 * m + q), 0.0), Estimate(2 * (Q0 - 2 * m + q), 0.0)
    numbers = {"beta": beta, "beta_star": task.beta_star, "Q": Q, "Q0": Q0}
    *coarser, fine = (
        np.array([_sum(test_losses(task.tokens, numbers, m, q, base) for base in rule) for rule in rules])
        for rules in rule_levels(task, seed)[:3]
    )
    values, errors = combined(fine, [rows.mean(axis=0) for rows in coarser])
    return Estimate(float(values[0]), float(errors[0])), Estimate(float(values[1]), float(errors[1]))


def _sum(parts: Iterable[tuple[Any, Any]]) -> np.ndarray:
    return np.sum([[float(x) for x in part] for part in parts], axis=0)

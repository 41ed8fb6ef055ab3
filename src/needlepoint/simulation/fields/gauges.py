"""Gauges: exchanges and changes of sign of the columns that the output does not see."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.models.fields import FieldModel
from needlepoint.simulation.fields.accuracy import ACCURACY


class Gauge(NamedTuple):
    """New column p is `signs[p]` times old column `order[p]`."""

    order: tuple[int, ...]
    signs: tuple[float, ...]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows, one a column, (P, ...), after the change."""
        signs = np.array(self.signs).reshape(-1, *[1] * (rows.ndim - 1))
        return signs * rows[list(self.order)]


def gauges(model: FieldModel, length: int) -> list[Gauge]:
    """Return the changes that leave the output of random sequences of this length as it is; the first is none at all.

    Columns of one kind are exchanged, together in all kinds that have as many, as heads are; signs are changed.
    """
    fields = np.random.default_rng(0).standard_normal((ACCURACY.gauge_sequences, length, len(model.labels)))
    tried = list(_changes(model))
    changed = np.stack([np.moveaxis(g(np.moveaxis(fields, -1, 0)), 0, -1) for g in tried])
    outputs = np.asarray(_outputs(model, changed))
    gaps = np.max(np.abs(outputs - outputs[0]).reshape(len(tried), -1), axis=1)
    kept = gaps <= ACCURACY.gauge_tolerance * np.max(np.abs(outputs[0]))
    return [gauge for gauge, keep in zip(tried, kept, strict=True) if keep]


def fix_gauge(weights: np.ndarray, teachers: np.ndarray, informed: np.ndarray, allowed: list[Gauge]) -> np.ndarray:
    """Return the weights (P, d) in the gauge of `best_gauge` for their overlaps with the teachers (S, d)."""
    return best_gauge(weights @ teachers.T, informed, allowed)(weights)


def best_gauge(M: np.ndarray, informed: np.ndarray, allowed: list[Gauge]) -> Gauge:
    """Return the gauge in which overlaps M (P, S) with the teachers are most like the `informed` ones (P, S); of
    several that are equally like them, the one of largest sum."""
    tie = 1e-9 * float(np.linalg.norm(M)) * max(1.0, float(np.linalg.norm(informed)))

    def score(gauge: Gauge) -> tuple[float, float]:
        like = float(np.sum(gauge(M) * informed))
        return (round(like / tie) if tie > 0 else 0.0, float(np.sum(gauge(M))))

    return max(allowed, key=score)


def _changes(model: FieldModel) -> Iterator[Gauge]:
    groups = model.group_of
    size = len(groups)
    orders = list(_orders(groups))
    if 2**size * len(orders) <= ACCURACY.most_gauges:
        signs = list(itertools.product((1.0, -1.0), repeat=size))
    else:
        by_kind = [
            dict(zip(model.groups, s, strict=True)) for s in itertools.product((1.0, -1.0), repeat=len(model.groups))
        ]
        signs = [tuple(chosen[name] for name in groups) for chosen in by_kind]
    return (Gauge(order, sign) for order in orders for sign in signs)


def _orders(groups: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
    """Return the exchanges of columns; the first is none. More of a kind than 5 stay in their order."""
    counts = {name: groups.count(name) for name in groups}
    sizes = sorted({c for c in counts.values() if c > 1 and math.factorial(c) <= 120})
    for chosen in itertools.product(*(itertools.permutations(range(c)) for c in sizes)):
        by_size = dict(zip(sizes, chosen, strict=True))
        order: list[int] = []
        for name, count in counts.items():
            start = groups.index(name)
            order += [start + i for i in by_size.get(count, range(count))]
        yield tuple(order)


def _outputs(model: FieldModel, fields: np.ndarray) -> np.ndarray:
    """Return the outputs (changes, sequences, ...) at fields (changes, sequences, length, P)."""
    return jax.jit(jax.vmap(jax.vmap(lambda h: jnp.asarray(model.outputs(h)))))(fields)

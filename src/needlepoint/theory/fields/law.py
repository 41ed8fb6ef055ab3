"""The law of the fields of a sequence: from standard normals to labels and to the fields of the student's columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.lowering import Template, lower
from needlepoint.losses import Loss
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.tasks.sequence import SequenceTask

BLOCK = 256
"""Sobol points that one call of a kernel computes. With twice as many the arrays of two heads leave the nearest cache,
and a point takes 1.7 times as long."""

Numbers = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
"""The traced numbers of a task, a model and a loss."""


@dataclass(frozen=True)
class Kind:
    """What a compiled kernel knows of a question: task (of one length), model and loss without their traced numbers,
    the place, and which fields are seen there."""

    task: Template
    model: Template
    loss: Template
    place: int
    seen: tuple[tuple[bool, ...], ...]

    @property
    def mask(self) -> np.ndarray:
        """Return which of the teachers' fields are seen, (tokens, S)."""
        return np.array(self.seen)

    @property
    def tokens(self) -> int:
        return len(self.seen)

    @property
    def columns(self) -> int:
        return len(self.model.value.labels)

    @property
    def normals(self) -> int:
        """Return how many standard normals make a sequence: label noise, seen fields of the teachers, the rest."""
        return 1 + int(self.mask.sum()) + self.tokens * self.columns

    def bound(self, numbers: Numbers) -> tuple[Any, Any, Any]:
        """Return task, model and loss with these numbers."""
        return self.task.bind(numbers[0]), self.model.bind(numbers[1]), self.loss.bind(numbers[2])


class Part(NamedTuple):
    """A length and a place, with their probability."""

    probability: float
    kind: Kind
    numbers: Numbers


def parts(task: SequenceTask, model: FieldModel, loss: Loss) -> list[Part]:
    """Return the lengths and places that a mean is taken over; places that are alike are one."""
    found = []
    for length, p in task.length_law:
        here = task.at(length)
        places = 1 if here.exchangeable else here.places()
        for place in range(places):
            seen = tuple(tuple(bool(x) for x in row) for row in here.seen_at(place))
            kind = Kind(Template(here), Template(model), Template(loss), place, seen)
            found.append(Part(p / places, kind, (lower(here)[1], lower(model)[1], lower(loss)[1])))
    return found


@functools.lru_cache(maxsize=64)
def normals(dimension: int, log2_points: int, scrambles: int, seed: int) -> tuple[tuple[Array, ...], ...]:
    """Return standard normals (dimension, BLOCK) by scrambling and block."""
    count = max(1, 2**log2_points // BLOCK)
    found = np.swapaxes(sobol_normals(dimension, log2_points, scrambles, seed), 1, 2)
    return tuple(tuple(jnp.asarray(b) for b in np.split(one, count, axis=-1)) for one in found)


class Sequences(NamedTuple):
    """Fields of n sequences: the label (..., n), the weight (n,), the spread (tokens,), the teachers' fields (tokens,
    S, n) with what is not seen at its mean, and the fields of the columns (tokens, P, n)."""

    y: Array
    weight: Array
    spread: Array
    teachers: Array
    columns: Array


def fields(kind: Kind, numbers: Numbers, M: Array, Q: Array, base: Array) -> Sequences:
    r"""eq:field-law. Return labels and fields of the sequences that the normals `base` (dimension, n) make.

    $\omega_l = Mc_l + s_lM_lz_l + s_l(Q - M_lM_l^\top)^{1/2}\xi_l$, $M_l$ the overlaps with the teachers that are seen
    at token $l$: what the label does not look at is integrated out.
    """
    mask = jnp.asarray(kind.mask, float)
    M_l = M[None] * mask[:, None, :]
    return with_roots(kind, numbers, M, jnp.linalg.cholesky(Q[None] - jnp.einsum("lps,lqs->lpq", M_l, M_l)), base)


def with_roots(kind: Kind, numbers: Numbers, M: Array, roots: Array, base: Array) -> Sequences:
    """Return the same from given roots (tokens, P, P) of the covariances of what is left of the columns' fields."""
    task = kind.task.bind(numbers[0])
    mask, n = kind.mask, base.shape[-1]
    tokens, teachers = mask.shape
    at = task.place_at(kind.place)
    count = int(mask.sum())
    z = jnp.zeros((tokens * teachers, n)).at[np.flatnonzero(mask)].set(base[1 : 1 + count])
    z = z.reshape(tokens, teachers, n)
    rest = base[1 + count :].reshape(tokens, kind.columns, n)
    spread = at.spread[:, None, None]
    hidden = at.shift[:, :, None] + spread * z
    y = jax.vmap(lambda f, e: jnp.asarray(task.labelled(f, kind.place, e), float), (-1, -1), -1)(hidden, base[0])
    weight = jnp.ones(n)
    if task.tilted:
        weight = jnp.exp(jax.vmap(lambda f: task.log_tilt(task.named(f), kind.place), -1)(hidden))
    mean = jnp.einsum("ps,ls->lp", M, at.shift)[:, :, None]
    scattered = jnp.einsum("ps,lsn->lpn", M, z) + jnp.einsum("lpq,lqn->lpn", roots, rest)
    return Sequences(y, weight, at.spread, hidden, mean + spread * scattered)

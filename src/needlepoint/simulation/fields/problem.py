"""A training set of a task that says its fields, the objective on it and the objective's gradient."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import Template, lower
from needlepoint.losses import Loss
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.arrays import Array
from needlepoint.simulation.fields.accuracy import ACCURACY
from needlepoint.simulation.starts.products import blocks, fields_of, pulled_by
from needlepoint.tasks.sequence import SequenceTask


class Data(NamedTuple):
    """Sequences of one length: tokens x (n, length, d), labels y (n, ...), and the spread of each token (n, length)."""

    x: np.ndarray
    y: np.ndarray
    spread: np.ndarray


class Minimum(NamedTuple):
    """Where training ended: weights (P, d), their energy, whether the gradient vanished, and after how many
    evaluations."""

    weights: np.ndarray
    energy: float
    converged: bool
    steps: int


@dataclass(frozen=True, eq=False)
class Problem:
    """eq:field-ridge on one data set. `weights` are (P, d), a row for each column of the model; fields are (n,
    length, P)."""

    model: FieldModel
    loss: Loss
    penalties: np.ndarray
    data: list[Data]

    @property
    def d(self) -> int:
        return self.data[0].x.shape[2]

    @property
    def n(self) -> int:
        return sum(len(part.y) for part in self.data)

    @functools.cached_property
    def energy_at_zero(self) -> float:
        """The objective at weights 0, the scale of energies; a tiny share of n/d where these fit all labels."""
        zero = np.zeros((len(self.penalties), self.d))
        return max(self.value_and_gradient(zero)[0], 1e-9 * self.n / self.d)

    @property
    def units(self) -> np.ndarray:
        """The units (P, 1) of the columns: one over the square root of their curvatures, about penalty + n/d."""
        return 1 / np.sqrt(self.penalties + self.n / self.d)[:, None]

    @property
    def tolerance(self) -> float:
        """The norm of the gradient, in `units`, below which the weights are a minimum. Half its square is about the
        energy above the minimum: 1e-12 of the energy at weights 0."""
        return ACCURACY.tolerance * float(np.sqrt(2 * self.energy_at_zero))

    def minimum(self, weights: np.ndarray, steps: int) -> Minimum:
        """Return these weights with their energy, and whether the gradient vanishes there."""
        value, gradient = self.value_and_gradient(weights)
        return Minimum(weights, value, bool(np.linalg.norm(self.units * gradient) <= self.tolerance), steps)

    def penalty(self, weights: np.ndarray) -> float:
        return 0.5 * float(self.penalties @ np.sum(weights**2, axis=1))

    def value_and_gradient(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        r"""eq:field-ridge. Return the objective $\frac1d\sum_i\ell(y_i, f(X_iw)) + \frac12\sum_pr_p|w_p|^2$ and its
        gradient (P, d)."""
        value, gradient = self.penalty(weights), self.penalties[:, None] * weights
        for part in self.data:
            losses, slopes = self.local(loss_and_slopes, part, forward(part.x, weights))
            value += float(losses.sum()) / self.d
            gradient += backward(part.x, slopes) / self.d
        return value, gradient

    def values_and_gradients(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """eq:field-ridge. Return the objectives (starts,) and gradients (starts, P, d) at weights (starts, P, d)."""
        values = 0.5 * np.sum(weights**2, axis=2) @ self.penalties
        gradients = self.penalties[:, None] * weights
        for part in self.data:
            for rows in blocks(len(part.y), weights.shape[0] * weights.shape[1] * part.x.shape[1]):
                fields = fields_of(part.x[rows], weights)
                one = Data(*(array[rows] for array in part))
                y, spread = (np.concatenate([array] * len(weights)) for array in (one.y, one.spread))
                flat = fields.reshape(-1, *fields.shape[2:])
                losses, slopes = self.local(loss_and_slopes, Data(one.x, y, spread), flat)
                values += losses.reshape(len(weights), -1).sum(axis=1) / self.d
                gradients += pulled_by(one.x, slopes.reshape(fields.shape)) / self.d
        return values, gradients

    def train_loss(self, weights: np.ndarray) -> float:
        """Return the mean over the training sequences of the loss times its `metric_scale`."""
        losses = (self.local(loss_and_slopes, part, forward(part.x, weights))[0] for part in self.data)
        return self.loss.metric_scale * sum(float(found.sum()) for found in losses) / self.n

    def local(self, function: Any, part: Data, fields: np.ndarray, *more: Any) -> list[np.ndarray]:
        """Return function(templates, numbers, fields, y, spread, *more): arrays over the sequences of one length."""
        n = len(part.y)
        block = min(ACCURACY.padded, 1 << max(6, (n - 1).bit_length()))
        kinds, numbers = kinds_and_numbers(self.model, self.loss)
        found = []
        for start in range(0, n, block):
            inside = [array[start : start + block] for array in (fields, part.y, part.spread)]
            missing = block - len(inside[0])  # padded, so that it compiles once per length and power of two
            padded = [np.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)], mode="edge") for array in inside]
            out = function(kinds, numbers, *padded, *more)
            found.append([np.asarray(array)[: len(inside[0])] for array in out])
        return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]


def draw_problem(
    task: SequenceTask,
    model: FieldModel,
    loss: Loss,
    penalties: tuple[float, ...],
    n: int,
    key: Array,
    teachers: np.ndarray,
) -> Problem:
    """Return a problem with n sequences of the task; the number of each length is the expected one, rounded.

    `teachers` are (S, d), orthonormal.
    """
    check_size(task, n, teachers.shape[1])
    data = [draw_data(task, length, count, key, teachers) for length, count in task.length_counts(n)]
    for part in data:
        check_shapes(task, model, part)
        loss.check_labels(task, part.y)
    return Problem(model, loss, np.array(penalties, float), data)


def draw_data(task: SequenceTask, length: int, count: int, key: Array, teachers: np.ndarray) -> Data:
    """Return `count` sequences of this length, drawn in blocks."""
    d, one = teachers.shape[1], task.at(length)
    template, numbers = one.template, one.numbers
    block = max(1, min(ACCURACY.drawn, ACCURACY.drawn_numbers // (length * d)))
    kept: list[np.ndarray] = []
    for i, start in enumerate(range(0, count, block)):
        here = jax.random.fold_in(jax.random.fold_in(key, length), i)
        new = [np.asarray(array) for array in draw(template, block, numbers, here, teachers)]
        kept = kept or [np.empty((count, *array.shape[1:])) for array in new]
        for whole, array in zip(kept, new, strict=True):
            whole[start : start + block] = array[: count - start]
    return Data(*kept)


def check_size(task: SequenceTask, n: int, d: int) -> None:
    """Raise an error if the data set has no sequence or does not fit in memory, or if the teachers do not fit in d."""
    mean_length = sum(length * p for length, p in task.length_law)
    if n < 1 or n * mean_length * d > ACCURACY.largest:
        raise InvalidParameter(
            f"simulate(d={d}): {n} sequences of {mean_length:g} tokens are {n * mean_length * d:.3g} numbers; "
            f"there must be at least one sequence and at most {ACCURACY.largest:.3g} numbers."
        )
    check_dimension(task, d)


def check_dimension(task: SequenceTask, d: int) -> None:
    if d < len(task.teachers):
        raise InvalidParameter(
            f"simulate(d={d}): d must be >= {len(task.teachers)}, the number of teachers of {type(task).__name__} "
            f"({', '.join(task.teachers)}), which are orthogonal."
        )


def check_shapes(task: SequenceTask, model: FieldModel, part: Data) -> None:
    """Raise an error if the output for these sequences has not the shape of their labels."""
    fields = jax.ShapeDtypeStruct((part.x.shape[1], len(model.labels)), jnp.float64)
    output = jax.eval_shape(lambda h: jnp.asarray(model.outputs(h)), fields)
    if output.shape != part.y.shape[1:]:
        raise InvalidParameter(
            f"{type(model).__name__}.output returns an array of shape {output.shape} for a sequence of "
            f"{part.x.shape[1]} tokens, and {type(task).__name__}.label one of shape {part.y.shape[1:]}; the two must "
            "be of one shape (() is a number)."
        )


def forward(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the fields X w of all columns, (n, length, P). Products with vectors are faster than one with few
    columns."""
    n, length, d = x.shape
    fields = np.empty((n, length, len(weights)))
    for rows in _rows(x):
        flat = x[rows].reshape(-1, d)
        for p, w in enumerate(weights):
            fields[rows, :, p] = (flat @ w).reshape(-1, length)
    return fields


def backward(x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return the sums over sequences of X^T slopes, (P, d), for slopes (n, length, P)."""
    pulled = np.zeros((slopes.shape[2], x.shape[2]))
    for rows in _rows(x):
        flat = x[rows].reshape(-1, x.shape[2])
        for p in range(len(pulled)):
            pulled[p] += slopes[rows, :, p].ravel() @ flat
    return pulled


def _rows(x: np.ndarray) -> Iterator[slice]:
    step = max(1, ACCURACY.cached // (x.shape[1] * x.shape[2]))
    return (slice(i, i + step) for i in range(0, len(x), step))


# --- kernels: specs are rebuilt with traced numbers, so that a change of a number does not compile again -----------

Kinds = tuple[Template, Template]
"""What kernels know of model and loss: everything but their numbers."""


def kinds_and_numbers(model: FieldModel, loss: Loss) -> tuple[Kinds, tuple[dict[str, float], dict[str, float]]]:
    return (model.template, Template(loss)), (model.numbers, lower(loss)[1])


def local_loss(kinds: Kinds, numbers: Any, fields: Any, y: Any) -> Any:
    """Return the loss of one sequence from its fields (length, P)."""
    model, loss = (kind.bind(those) for kind, those in zip(kinds, numbers, strict=True))
    return loss.cost(y, model.outputs(fields))


@functools.partial(jax.jit, static_argnums=0)
def loss_and_slopes(kinds: Kinds, numbers: Any, fields: Any, y: Any, spread: Any) -> Any:
    """Return the losses (n,) and their derivatives by the fields (n, length, P)."""
    del spread
    return jax.vmap(jax.value_and_grad(functools.partial(local_loss, kinds, numbers)))(fields, y)


@functools.partial(jax.jit, static_argnums=(0, 1))
def draw(template: Template, n: int, numbers: Any, key: Any, teachers: Any) -> Any:
    """Return n sequences: tokens (n, length, d), labels, and the spread of each token (n, length)."""
    task = template.bind(numbers)
    x, y, places = task.draw_vectors(key, teachers, n)
    return x, y, jax.vmap(task.place_at)(places).spread

"""A training set of attention, its ridge objective and the objective's derivatives."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import lower
from needlepoint.models.activations import Activation
from needlepoint.numerics.arrays import Array
from needlepoint.simulation.location.accuracy import ACCURACY
from needlepoint.simulation.location.bayes_amp import Data
from needlepoint.simulation.starts.products import blocks, fields_of, pulled_by
from needlepoint.tasks.single_location import SingleLocation

LARGEST = 4e8  # numbers in a data set (3.2 GB)


class Minimum(NamedTuple):
    """Where training ended: weights (2, d), k above v, their energy, whether the gradient vanished, and after how
    many evaluations."""

    weights: np.ndarray
    energy: float
    converged: bool
    steps: int


@dataclass(frozen=True, eq=False)
class Problem:
    """eq:ridge on one data set. `weights` are (2, d), k above v; fields are (n, 2, length), X k above X v."""

    activation: type[Activation]
    constants: dict[str, float]
    penalties: np.ndarray
    data: list[Data]

    @property
    def d(self) -> int:
        return self.data[0].x.shape[2]

    @property
    def n(self) -> int:
        return sum(len(part.y) for part in self.data)

    @property
    def energy_at_zero(self) -> float:
        """The objective at the prediction 0, the scale of energies."""
        return sum(float(part.y @ part.y) for part in self.data) / (2 * self.d)

    @property
    def units(self) -> np.ndarray:
        """The units (2, 1) of k and v: one over the square root of their curvatures, which are about penalty + n/d."""
        return 1 / np.sqrt(self.penalties + self.n / self.d)[:, None]

    @property
    def tolerance(self) -> float:
        """The norm of the gradient, in `units`, below which the weights are a minimum. Half its square is about the
        energy above the minimum: 1e-12 of the energy of predicting 0."""
        return ACCURACY.ridge_problem_tolerance * float(np.sqrt(2 * self.energy_at_zero))

    def minimum(self, weights: np.ndarray, steps: int) -> Minimum:
        """Return these weights with their energy, and whether the gradient vanishes there."""
        value, gradient = self.value_and_gradient(weights)
        return Minimum(weights, value, bool(np.linalg.norm(self.units * gradient) <= self.tolerance), steps)

    def penalty(self, weights: np.ndarray) -> float:
        return 0.5 * float(self.penalties @ np.sum(weights**2, axis=1))

    def value_and_gradient(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        r"""eq:ridge. Return the objective $\frac1d\sum_i\frac12(y_i-f_i)^2+\frac{r_k}2|k|^2+\frac{r_v}2|v|^2$ and its
        gradient (2, d), $-\frac1d\sum_iX_i^\top g_i+(r_kk,r_vv)$ with $g_k=(y-f)\,J^\top z$, $g_v=(y-f)\,\sigma$.
        """
        value, gradient = self.penalty(weights), self.penalties[:, None] * weights
        for part in self.data:
            losses, slopes = self.local(_loss_and_slopes, part, forward(part.x, weights))
            value += float(losses.sum()) / self.d
            gradient += backward(part.x, slopes) / self.d
        return value, gradient

    def values_and_gradients(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """eq:ridge. Return the objectives (starts,) and gradients (starts, 2, d) at weights (starts, 2, d)."""
        values = 0.5 * np.sum(weights**2, axis=2) @ self.penalties
        gradients = self.penalties[:, None] * weights
        for part in self.data:
            for rows in blocks(len(part.y), 2 * len(weights) * part.x.shape[1]):
                fields = np.swapaxes(fields_of(part.x[rows], weights), 2, 3)
                y = np.tile(part.y[rows], len(weights))
                losses, slopes = self.local(_loss_and_slopes, Data(part.x, y), fields.reshape(len(y), 2, -1))
                values += losses.reshape(len(weights), -1).sum(axis=1) / self.d
                gradients += pulled_by(part.x[rows], np.swapaxes(slopes.reshape(fields.shape), 2, 3)) / self.d
        return values, gradients

    def train_loss(self, weights: np.ndarray) -> float:
        """Return the mean of (y - f(X))^2 over the training sequences."""
        losses = (self.local(_loss_and_slopes, part, forward(part.x, weights))[0] for part in self.data)
        return 2 * sum(float(found.sum()) for found in losses) / self.n

    def local(self, function: Any, part: Data, fields: np.ndarray, *more: Any) -> list[np.ndarray]:
        """Return function(activation, constants, fields, y, *more): arrays over the sequences of one length."""
        n = len(part.y)
        block = min(ACCURACY.padded, 1 << max(6, (n - 1).bit_length()))
        found = []
        for start in range(0, n, block):
            y, inside = part.y[start : start + block], fields[start : start + block]
            missing = block - len(y)  # padded, so that it compiles once per length and power of two
            padded = np.pad(inside, ((0, missing), (0, 0), (0, 0))), np.pad(y, (0, missing))
            out = function(self.activation, self.constants, *padded, *more)
            found.append([np.asarray(array)[: len(y)] for array in out])
        return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]


def draw_problem(
    task: SingleLocation,
    activation: Activation,
    penalties: tuple[float, float],
    n: int,
    key: Array,
    k_star: np.ndarray,
    v_star: np.ndarray,
) -> Problem:
    """Return a problem with n sequences of the task; the number of each length is the expected one, rounded."""
    d, data = len(k_star), []
    for length, count in task.length_counts(n):
        part = Data(np.empty((count, length, d)), np.empty(count))
        block = max(1, min(ACCURACY.drawn, ACCURACY.drawn_numbers // (length * d)))
        for i, start in enumerate(range(0, count, block)):
            here = jax.random.fold_in(jax.random.fold_in(key, length), i)
            x, y = _draw(type(task), block, length, lower(task)[1], here, k_star, v_star)
            for kept, new in zip(part, (x, y), strict=True):
                kept[start : start + block] = np.asarray(new)[: count - start]
        data.append(part)
    return Problem(type(activation), lower(activation)[1], np.array(penalties), data)


def check_size(task: SingleLocation, n: int, d: int) -> None:
    """Raise an error if the data set has no sequence or does not fit in memory."""
    mean_length = sum(length * p for length, p in task.length_law)
    if n < 1 or n * mean_length * d > LARGEST:
        raise InvalidParameter(
            f"simulate(d={d}): {n} sequences of {mean_length:g} tokens are {n * mean_length * d:.3g} numbers; "
            f"there must be at least one sequence and at most {LARGEST:.3g} numbers."
        )


def forward(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the fields X k and X v, (n, 2, length). Two products with vectors are faster than one with two columns."""
    n, length, d = x.shape
    fields = np.empty((n, 2, length))
    for rows in _rows(x):
        flat = x[rows].reshape(-1, d)
        for a in (0, 1):
            fields[rows, a] = (flat @ weights[a]).reshape(-1, length)
    return fields


def backward(x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return the sums over sequences of X^T slopes, (2, d), for slopes (n, 2, length)."""
    pulled = np.zeros((2, x.shape[2]))
    for rows in _rows(x):
        flat = x[rows].reshape(-1, x.shape[2])
        for a in (0, 1):
            pulled[a] += slopes[rows, a].ravel() @ flat
    return pulled


def _rows(x: np.ndarray) -> Iterator[slice]:
    step = max(1, ACCURACY.cached // (x.shape[1] * x.shape[2]))
    return (slice(i, i + step) for i in range(0, len(x), step))


def local_loss(activation: type[Activation], constants: Any, fields: Any, y: Any) -> Any:
    """Return half the squared error of one sequence, from its fields (2, length)."""
    return 0.5 * (y - jnp.sum(activation.weights(fields[0], constants) * fields[1])) ** 2


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_slopes(activation: type[Activation], constants: Any, fields: Any, y: Any) -> Any:
    one = functools.partial(local_loss, activation, constants)
    return jax.vmap(jax.value_and_grad(one))(fields, y)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _draw(task: type[SingleLocation], n: int, length: int, law: Any, key: Any, k_star: Any, v_star: Any) -> Any:
    return task.draw(key, k_star, v_star, n, length, law)[:2]

"""A training set of the attention-indexed model, its objective and the objective's gradient."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.simulation.indexed.accuracy import ACCURACY
from needlepoint.simulation.indexed.one_sequence import Errors, attention
from needlepoint.tasks.attention_indexed import AttentionIndexed

LARGEST = 4e8  # numbers in the tokens of a data set (3.2 GB)


class Sequences(NamedTuple):
    """Tokens x (n, T, d), scores (n, T, T) that the target gives them without noise, and the same with noise."""

    x: np.ndarray
    clean: np.ndarray
    noisy: np.ndarray


class Minimum(NamedTuple):
    """Where training ended: the matrix S, its energy, whether it is stationary, and after how many steps."""

    S: np.ndarray
    energy: float
    converged: bool
    steps: int


@dataclass(frozen=True, eq=False)
class Problem:
    """eq:indexed-energy on one data set. `target` has the eigenvalues of S0, which may be taken as diagonal because the
    law of the tokens is isotropic.

    `weights` are W (d, p) for tied attention and S itself for direct attention.
    """

    task: AttentionIndexed
    model: TiedAttention | DirectAttention
    lam: float
    target: np.ndarray
    data: Sequences
    centre: np.ndarray
    """The matrix (d, d) whose product <centre, S> is subtracted from the diagonal of the scores: the identity gives the
    trace, the mean of x x^T over the training tokens gives the mean over the batch. Test sequences are centred with it
    too, so that an answer to one does not depend on the others. The labels always have the exact trace."""

    @property
    def tied(self) -> bool:
        return isinstance(self.model, TiedAttention)

    @property
    def d(self) -> int:
        return len(self.target)

    @property
    def n(self) -> int:
        return len(self.data.x)

    @property
    def width(self) -> int:
        """p, the columns of W."""
        return max(1, round(self.model.width_ratio * self.d)) if isinstance(self.model, TiedAttention) else self.d

    @property
    def trace_penalty(self) -> float:
        """The penalty on W, written as one on Tr S / d: lam times the square root of p/d."""
        return self.lam * math.sqrt(self.width / self.d)

    @property
    def energy_at_zero(self) -> float:
        """The energy of S = 0, which tolerances are relative to."""
        return float(self.training.losses_and_slopes(np.zeros_like(self.data.clean))[0].sum()) / self.d**2

    @property
    def unit(self) -> float:
        """The unit of W / d, or of S / sqrt(d) for direct attention: one over the square root of the energy's
        curvature, which is about lam + n/d^2."""
        return 1 / math.sqrt(self.lam + self.n / self.d**2)

    @property
    def weights_unit(self) -> float:
        """The same unit for the entries of the weights."""
        return self.unit * (self.d if self.tied else math.sqrt(self.d))

    @property
    def tolerance(self) -> float:
        """A gradient in `unit` below which a point is stationary. Half its square is about the energy that is left,
        1e-12 of that of S = 0."""
        return ACCURACY.tolerance * math.sqrt(2 * self.energy_at_zero + ACCURACY.tolerance**2)

    def matrix(self, weights: np.ndarray) -> np.ndarray:
        """Return the matrix S (d, d) of the weights."""
        return weights @ weights.T / math.sqrt(self.width * self.d) if self.tied else weights

    def value_and_gradient(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        r"""eq:indexed-energy. Return the energy and its gradient by the weights, in their shape.

        $\frac1{d^2}\sum_\mu\ell_\mu(z_\mu) + \frac\lambda{d^2}\|W\|_F^2$ (or $\frac\lambda d\|S\|_F^2$).
        """
        fit, slope = self.fit(self.matrix(weights))
        scale = self.lam / (self.d**2 if self.tied else self.d)
        if self.tied:
            slope = 2 * slope @ weights / math.sqrt(self.width * self.d)
        return fit + scale * float(np.sum(weights**2)), slope + 2 * scale * weights

    def energy(self, S: np.ndarray) -> float:
        """Return the energy of a matrix S. For tied attention the penalty is on the trace: ||W||^2 = sqrt(p d) Tr S."""
        penalty = self.trace_penalty * np.trace(S) if self.tied else self.lam * np.sum(S**2)
        return self.train_loss(S) * self.n / self.d**2 + float(penalty) / self.d

    def train_loss(self, S: np.ndarray) -> float:
        """Return the mean over the training sequences of the squared error, summed over the outputs."""
        return float(self.training.losses_and_slopes(self.scores(self.data.x, S))[0].mean())

    def fit(self, S: np.ndarray) -> tuple[float, np.ndarray]:
        r"""Return $\frac1{d^2}\sum_\mu\ell_\mu$ and its gradient by S, $\frac1{d^2}\mathcal A^\top(\partial\ell)$, (d,
        d)."""
        losses, slopes = self.training.losses_and_slopes(self.scores(self.data.x, S))
        return float(losses.sum()) / self.d**2, self.pull(slopes) / self.d**2

    def residual(self, S: np.ndarray) -> float:
        """Return how far S is from stationary, in `unit`: the length of a proximal-gradient step of size one.

        It is the gradient where no constraint acts on S; for tied attention it ignores a gradient that would lead out
        of S >= 0.
        """
        move = self.unit**2 * (self.d * self.fit(S)[1] + (0.0 if self.tied else 2 * self.lam) * S)
        after = soften(S - move, self.unit**2 * self.trace_penalty) if self.tied else S - move
        return float(np.linalg.norm(after - S)) / (math.sqrt(self.d) * self.unit)

    def scores(self, x: np.ndarray, S: np.ndarray) -> np.ndarray:
        r"""Return $\mathcal A(S)$, $z_{ab} = (x_a^\top Sx_b - \delta_{ab}\langle C, S\rangle)/\sqrt d$, (n, T, T)."""
        return bilinear(x, S, float(np.sum(self.centre * S)))

    def pull(self, g: np.ndarray) -> np.ndarray:
        r"""Return $\mathcal A^\top(g) = \sum_\mu[\sum_{ab}g_{ab}x_ax_b^\top - \mathrm{Tr}g\,C]/\sqrt d$, (d, d), for
        symmetric g (n, T, T)."""
        x, d = self.data.x, self.d
        total = -float(np.trace(g, axis1=1, axis2=2).sum()) * self.centre
        for rows in blocks(x):
            total += x[rows].reshape(-1, d).T @ np.einsum("nab,nbi->nai", g[rows], x[rows]).reshape(-1, d)
        return (total + total.T) / (2 * math.sqrt(d))  # exactly symmetric; the product is so only up to rounding

    def errors(self, data: Sequences, clean: bool = False) -> Errors:
        """Return the loss of the model's scores, with labels from the noisy or the clean scores of the target."""
        labels = attention(data.clean if clean else data.noisy, self.task.beta_star)
        metric = np.einsum("nai,nbi->nab", data.x, data.x) / self.d if self.task.readout == "seq2seq" else None
        return Errors(self.model.beta, labels, metric)

    @functools.cached_property
    def training(self) -> Errors:
        return self.errors(self.data)


def draw_problem(
    task: AttentionIndexed, model: TiedAttention | DirectAttention, lam: float, n: int, d: int, seed: int, repeat: int
) -> Problem:
    """Return n sequences with their target. With the same seed, a larger n begins with the same sequences."""
    if n < 1 or n * task.tokens * d > LARGEST:
        raise InvalidParameter(
            f"simulate(d={d}): {n} sequences of {task.tokens} tokens are {n * task.tokens * d:.3g} numbers; "
            f"there must be at least one sequence and at most {LARGEST:.3g} numbers."
        )
    target = task.target.draw(stream(seed, repeat, 0), d)
    data = draw_sequences(task, target, n, stream(seed, repeat, 1), stream(seed, repeat, 2))
    flat = data.x.reshape(-1, d)
    centre = flat.T @ flat / len(flat) if model.centring == "batch" else np.eye(d)
    return Problem(task, model, lam, target, data, centre)


def draw_sequences(
    task: AttentionIndexed, target: np.ndarray, n: int, rng: np.random.Generator, noise: np.random.Generator
) -> Sequences:
    """eq:indexed-model. Return n sequences with a diagonal S0, whose eigenvalues are `target`."""
    x = rng.standard_normal((n, task.tokens, len(target)))
    clean = bilinear(x, np.diag(target), float(target.sum()))
    normal = noise.standard_normal(clean.shape)
    return Sequences(x, clean, clean + math.sqrt(task.noise_var) * (normal + normal.transpose(0, 2, 1)) / 2)


def stream(seed: int, repeat: int, part: int) -> np.random.Generator:
    """Return an independent random generator for each part of each repeat."""
    return np.random.default_rng([seed, 7, repeat, part])


def bilinear(x: np.ndarray, S: np.ndarray, centre: float) -> np.ndarray:
    """Return (x_a^T S x_b - delta_ab centre) / sqrt(d), (n, T, T), in blocks, because x S would take as much memory as
    the tokens."""
    n, T, d = x.shape
    z = np.empty((n, T, T))
    for rows in blocks(x):
        z[rows] = np.einsum("nai,nbi->nab", (x[rows].reshape(-1, d) @ S).reshape(-1, T, d), x[rows])
    return (z - centre * np.eye(T)) / math.sqrt(d)


def blocks(x: np.ndarray) -> Iterator[slice]:
    step = max(1, ACCURACY.cached // (x.shape[1] * x.shape[2]))
    return (slice(i, i + step) for i in range(0, len(x), step))


def soften(S: np.ndarray, threshold: float) -> np.ndarray:
    """Return (S - threshold)_+ of a symmetric matrix, (d, d), by its eigenvalues."""
    values, vectors = np.linalg.eigh(S)
    kept = values > threshold
    return (vectors[:, kept] * (values[kept] - threshold)) @ vectors[:, kept].T

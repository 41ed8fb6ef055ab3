"""The fields of a training sequence in the limit, and the standard normals that they are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from needlepoint.channels.replies import Sample
from needlepoint.core.routes import route, the
from needlepoint.models.activations import Activation
from needlepoint.numerics.gaussian import first_largest, sobol_normals
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.ridge.accuracy import ACCURACY


class Order(NamedTuple):
    """Overlaps with the teachers (m), squared norms (q) and susceptibilities (V) of the key (k) and the value (v)."""

    m_k: Any
    q_k: Any
    V_k: Any
    m_v: Any
    q_v: Any
    V_v: Any


class Base(NamedTuple):
    """Standard normals that n sequences are made of: scramblings on the first axis, sequences on the last."""

    label: Any  # (scrambles, n)
    value: Any  # (scrambles, tokens, n)
    score: Any  # (scrambles, tokens, n)
    star: Any  # (scrambles, tokens, n): the teacher's scores where the place depends on them; zero tokens elsewhere


class Points(NamedTuple):
    """What determines the normals: the kind of sequence, and the rule of integration. Hashable, the key of a cache."""

    task_type: type[SingleLocation]
    infinite: bool  # whether the place is the argmax of the teacher's scores
    differences: bool  # whether weights depend on the differences of scores alone
    length: int
    log2_points: int
    scrambles: int
    seed: int

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of normals for the label and the values, for the scores, and for the teacher's scores.

        Softmax does not change if all scores shift together, so only their differences are integrated over.
        """
        free = self.length - 1 if self.differences else self.length
        return 1 + self.length, free, sequences_of(self.task_type).stars(self.length, free)


class Sequences:
    """What the equations need to know of the sequences of a task; arrays have the samples last."""

    @staticmethod
    def stars(length: int, free: int) -> int:
        """Return the number of normals for the teacher's scores, `free` being that of the learned scores."""
        raise NotImplementedError

    @staticmethod
    def star(normals: np.ndarray, points: Points) -> np.ndarray:
        """Return the teacher's scores (scrambles, tokens, n) of these normals, the relevant token first."""
        raise NotImplementedError

    @staticmethod
    def scores(law: dict[str, Any], order: Order, base: Base) -> Any:
        """Return the score fields, (tokens, n)."""
        raise NotImplementedError

    @staticmethod
    def scatter(order: Order) -> Any:
        """Return the standard deviation of a score field given what moves its mean."""
        raise NotImplementedError

    @staticmethod
    def place(law: dict[str, Any], base: Base) -> tuple[Any, Any]:
        """Return the posterior of the relevant place (tokens, n), or None, and the weight of each sample, (n,)."""
        raise NotImplementedError

    @staticmethod
    def pull(law: dict[str, Any], order: Order, base: Base, place: Any, g_k: Any, V_k: Any) -> Any:
        """Return the integrand of the conjugate of m_k, (n,), from the forces on the scores and the integrand of the
        conjugate of V_k."""
        raise NotImplementedError


def sequences_of(task_type: type[SingleLocation]) -> type[Sequences]:
    return the("training sequences", task=task_type)  # pyright: ignore[reportReturnType]  # a class is registered


@route("training sequences", name="shifted", task=SpikedSLR)
class ShiftedSequences(Sequences):
    """The first token is the relevant one, and its score is shifted."""

    @staticmethod
    def stars(length: int, free: int) -> int:
        return 0

    @staticmethod
    def star(normals: np.ndarray, points: Points) -> np.ndarray:
        return normals[:, :0]

    @staticmethod
    def scores(law: dict[str, Any], order: Order, base: Base) -> Any:
        first = (jnp.arange(base.value.shape[0]) == 0)[:, None]
        return jnp.sqrt(order.q_k) * base.score + jnp.sqrt(law["snr"]) * order.m_k * first

    @staticmethod
    def scatter(order: Order) -> Any:
        return jnp.sqrt(order.q_k)

    @staticmethod
    def place(law: dict[str, Any], base: Base) -> tuple[Any, Any]:
        return None, jnp.ones_like(base.label)

    @staticmethod
    def pull(law: dict[str, Any], order: Order, base: Base, place: Any, g_k: Any, V_k: Any) -> Any:
        return jnp.sqrt(law["snr"]) * g_k[0]


@route("training sequences", name="tilted", task=MaxSLR)
class TiltedSequences(Sequences):
    """The place of the relevant token depends on the teacher's scores of all tokens."""

    @staticmethod
    def stars(length: int, free: int) -> int:
        # `first_largest` needs one normal per token; softmax over two tokens needs only their difference
        return length if length > 2 else free

    @staticmethod
    def star(normals: np.ndarray, points: Points) -> np.ndarray:
        if normals.shape[1] == points.length:
            star = first_largest(normals)
        else:
            half = np.abs(normals) / np.sqrt(2) if normals.shape[1] else np.zeros(_with_one(normals))
            star = np.concatenate([half, -half], axis=1)[:, : points.length]
        if star.shape[1] > 1 and not points.infinite:
            # in half of the samples another token than the relevant has the top score
            star[:, :2, 1::2] = star[:, 1::-1, 1::2]
        return star

    @staticmethod
    def scores(law: dict[str, Any], order: Order, base: Base) -> Any:
        return order.m_k * base.star + jnp.sqrt(order.q_k - order.m_k**2) * base.score

    @staticmethod
    def scatter(order: Order) -> Any:
        return jnp.sqrt(order.q_k - order.m_k**2)

    @staticmethod
    def place(law: dict[str, Any], base: Base) -> tuple[Any, Any]:
        """Return the posterior of the relevant place (tokens, n) and the weight of each sample (n,).

        The relevant token is the first. At a finite snr half of the samples have the largest score there and half have
        it elsewhere; the weight makes each case as frequent as its posterior says. Scores drawn without this order
        would have weights that are almost an indicator function. At an infinite snr the posterior is None and all
        weights are 1.
        """
        if (
            "snr" not in law
        ):  # an infinite snr is not among the traced numbers; the first is the largest by construction
            return None, jnp.ones_like(base.label)
        p = jax.nn.softmax(law["snr"] * base.star, axis=0)
        others = len(p) - 1
        share = jnp.where(p[0] >= jnp.max(p, axis=0), 2.0, 2.0 * others) if others else 1.0
        return p, share * p[0]

    @staticmethod
    def pull(law: dict[str, Any], order: Order, base: Base, place: Any, g_k: Any, V_k: Any) -> Any:
        m_k = jnp.sum(g_k * base.star, axis=0) + order.m_k * V_k
        if place is None:
            return m_k
        # the second estimator of m_k scatters less at a small snr
        here = law["snr"] * (g_k[0] - jnp.sum(place * g_k, axis=0))
        return (ACCURACY.even_snr * here + law["snr"] * m_k) / (ACCURACY.even_snr + law["snr"])


def _with_one(normals: np.ndarray) -> tuple[int, int, int]:
    return normals.shape[0], 1, normals.shape[2]


def fields(task_type: type[SingleLocation], law: dict[str, Any], order: Order, base: Base) -> Sample:
    r"""eq:ridge-fields. Return the labels (n,) and the score and value fields (tokens, n) of one scrambling.

    $y = \sqrt{1 + \Delta^2}a$, $w_{z,l} = \sqrt{q_v}h_l$ except $w_{z,1} = \frac{m_vy}{1 + \Delta^2} + \sqrt{q_v -
    \frac{m_v^2}{1 + \Delta^2}}h_1$; spiked $w_\chi = \sqrt{q_k}g + \sqrt\mu m_ke_1$, max $w_\chi = m_k\chi^* +
    \sqrt{q_k - m_k^2}g$.
    """
    T = 1 + law["noise"] ** 2
    y = jnp.sqrt(T) * base.label
    first = (jnp.arange(base.value.shape[0]) == 0)[:, None]
    rest = jnp.sqrt(order.q_v - order.m_v**2 / T)
    w_z = jnp.where(first, order.m_v * y / T + rest * base.value, jnp.sqrt(order.q_v) * base.value)
    return Sample(y, sequences_of(task_type).scores(law, order, base), w_z)


def points(
    task: SingleLocation, activation: type[Activation], length: int, log2_points: int, scrambles: int, seed: int
) -> Points:
    infinite = bool(np.isinf(task.tilt))
    return Points(type(task), infinite, activation.differences, length, log2_points, scrambles, seed)


def base_normals(points: Points) -> Base:
    """Return the normals of all scramblings, the relevant token first."""
    counts = points.counts
    normals = np.swapaxes(sobol_normals(sum(counts), points.log2_points, points.scrambles, points.seed), 1, 2)
    label_value, score, star = np.split(normals, np.cumsum(counts)[:2], axis=1)
    # the first coordinates of a Sobol sequence are the most uniform: they go to the label and the values
    score, star = _whole(score, points.length), sequences_of(points.task_type).star(star, points)
    return Base(*(np.ascontiguousarray(x) for x in (label_value[:, 0], label_value[:, 1:], score, star)))


def _whole(normals: np.ndarray, length: int) -> np.ndarray:
    """Return normals for every token, (scrambles, length, n).

    Given length - 1 normals, a Helmert matrix maps them to `length` normals that sum to zero.
    """
    if normals.shape[1] == length:
        return normals
    if length == 1:
        return np.zeros((normals.shape[0], 1, normals.shape[2]))
    directions = linalg.helmert(length)  # (length - 1, length), orthonormal, each row sums to zero
    return np.einsum("il,sin->sln", directions, normals)

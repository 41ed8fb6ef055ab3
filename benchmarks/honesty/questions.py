"""Random tasks, activations and overlaps, as wide as they are cheap to check."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import needlepoint as ndl


class Draw:
    """A seeded stream of one question's numbers."""

    def __init__(self, *seed: int):
        self.rng = np.random.default_rng([16, *seed])

    def between(self, low: float, high: float) -> float:
        """Uniform on a logarithmic scale, to six digits, so that a printed call is short."""
        return self.short(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def uniform(self, low: float, high: float) -> float:
        return self.short(self.rng.uniform(low, high))

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    @staticmethod
    def short(x: float) -> float:
        return float(f"{x:.6g}")


def sink_softmax(scores: Any) -> Any:
    """Softmax with a place to put no weight at all: a user's activation of no special form."""
    import jax.numpy as jnp

    top = jnp.maximum(jnp.max(scores), 0.0)
    return jnp.exp(scores - top) / (jnp.exp(-top) + jnp.sum(jnp.exp(scores - top)))


def sigmoid_gate(scores: Any) -> Any:
    """A user's element-wise activation."""
    import jax

    return 2.0 * jax.nn.sigmoid(scores)


def user(name: str) -> Any:
    """The named activation, registered where it is needed: tests forget those of other tests."""
    if name == "sink_softmax":
        return ndl.activation("sink_softmax")(sink_softmax)
    return ndl.activation("sigmoid_gate", form="elementwise")(sigmoid_gate)


def lengths(draw: Draw, most: float) -> Any:
    """A length up to `most`, short ones more often, or a law of two or three lengths."""
    if draw.chance(0.75):
        return round(draw.between(1, most + 0.49))
    chosen = sorted({round(draw.between(1, most + 0.49)) for _ in range(3)})
    shares = [round(x, 3) for x in draw.rng.dirichlet(np.ones(len(chosen)))]
    shares[-1] = round(1.0 - sum(shares[:-1]), 3)
    return {n: p for n, p in zip(chosen, shares, strict=True) if p > 0} if min(shares) > 0 else chosen[0]


def noise(draw: Draw) -> float:
    return 0.0 if draw.chance(0.3) else draw.uniform(0.0, 3.0)


def snr(draw: Draw, most: float = 100.0) -> float:
    return 0.0 if draw.chance(0.1) else draw.between(0.01, most)


def spiked(draw: Draw, most: float, std: bool = True, top: float = 100.0) -> ndl.SpikedSLR:
    wide = draw.between(0.2, 3.0) if std and draw.chance(0.6) else 1.0
    return ndl.SpikedSLR(lengths(draw, most), snr(draw, top), wide, noise(draw))


def maximal(draw: Draw, most: float, top: float = 100.0) -> ndl.MaxSLR:
    sharp = math.inf if draw.chance(0.25) else snr(draw, top)
    return ndl.MaxSLR(lengths(draw, most), sharp, noise(draw))


def erf(draw: Draw, low: float = 1e-3, high: float = 1e3) -> ndl.Erf:
    shift = 0.0 if draw.chance(0.3) else draw.uniform(-5.0, 5.0)
    offset = draw.one_of(0.0, 1.0, -1.0, draw.uniform(-2.0, 2.0))
    return ndl.Erf(draw.between(low, high), shift, offset)


def overlaps(draw: Draw, unit: bool, keys: tuple[float, float] = (0.01, 10.0)) -> ndl.Overlaps:
    """Of random vectors: anywhere, on the manifold, or with the key along its teacher."""
    k, v = draw.rng.standard_normal((2, 4))
    place = draw.one_of("anywhere", "anywhere", "manifold", "along")
    if place == "along":
        k = np.array([draw.one_of(1.0, -1.0), 0.0, 0.0, 0.0])
    if place != "anywhere":
        k[1] = k[3] = v[0] = v[2] = 0.0  # k in the plane of e1, e3 and v in that of e2, e4
    k, v = k / np.linalg.norm(k), v / np.linalg.norm(v)
    if not unit:
        k, v = k * draw.between(*keys), v * draw.between(0.05, 5.0)
    return of_vectors(k, v)


def of_vectors(k: np.ndarray, v: np.ndarray) -> ndl.Overlaps:
    """The overlaps of k and v with the teachers e1 and e2, and with each other."""
    return ndl.Overlaps(*(float(x) for x in (k[0], v[1], v[0], k[1], k @ v, k @ k, v @ v)))


Drawer = Callable[[int], Any]

"""The risk as a function of the vectors k and v in the frame (k*, v*, two more), and what descends on it.

The library moves overlaps by rates that it derives; here vectors move along the automatic gradient of a risk that is
written from the definition, on fixed nodes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.honesty.references import max_elementwise
from benchmarks.honesty.references.panels import line, normal_density
from scipy import integrate

import needlepoint as ndl

REACH = 8.5


def kind_of(task: Any, activation: Any) -> tuple[str, ...]:
    """What is compiled once: task, activation, and the lengths where all scores are integrated together."""
    name = type(activation).__name__
    lengths = () if activation.form == "elementwise" else tuple(str(n) for n, _ in task.length_law)
    return type(task).__name__, name, *lengths


def numbers_of(task: Any, activation: Any, nodes: int, reach: float = REACH) -> dict[str, Any]:
    """What is traced. Another reach moves all nodes and leaves the shapes, so that nothing is compiled again."""
    law = np.zeros((max(3, len(task.length_law)), 2))  # one shape for up to three lengths; a share of zero is none
    law[: len(task.length_law)] = task.length_law
    c: dict[str, Any] = {"lengths": law[:, 0], "shares": law[:, 1]}
    if isinstance(activation, ndl.Erf):
        c |= {"scale": activation.scale, "shift": activation.shift, "offset": activation.offset}
    z, w = line(-reach, reach, 2 * reach / nodes, 10)
    c |= {"z": z, "w": w * normal_density(z)}
    if isinstance(task, ndl.SpikedSLR):
        return c | {"m": math.sqrt(task.snr), "gamma": task.relevant_std}
    if activation.form == "elementwise":
        return c | {"W": max_elementwise.winner(task, 1.0)(z)}
    # two tokens: the chances of the first from the difference of the key fields
    if math.isinf(task.snr):
        half, weight = line(0.0, reach, 2 * reach / nodes, 10)
        return c | {"x": half, "wx": weight * normal_density(half), "p": np.ones_like(half)}
    return c | {"x": z, "wx": c["w"], "p": 1 / (1 + np.exp(-math.sqrt(2) * task.snr * z))}


def weights(name: str, c: dict[str, Any], scores: Any) -> Any:
    """The activation, written again; scores (..., tokens)."""
    if name == "Erf":
        return c["offset"] + jax.scipy.special.erf(c["scale"] * scores + c["shift"])
    if name == "Linear":
        return 1 + scores
    if name == "sigmoid_gate":
        return 1 + jnp.tanh(scores / 2)
    if name == "Softplus":
        w = jnp.logaddexp(0.0, scores)
        return w / w.sum(axis=-1, keepdims=True)
    w = jnp.exp(scores)
    return w / (w.sum(axis=-1, keepdims=True) + (1.0 if name == "sink_softmax" else 0.0))


def risk(kind: tuple[str, ...], c: dict[str, Any], k: Any, v: Any) -> Any:
    """The excess risk at vectors (4,)."""
    task, name, *lengths = kind
    if task == "SpikedSLR":
        return _spiked_tokens(name, c, k, v) if not lengths else _spiked_all(name, [int(n) for n in lengths], c, k, v)
    return _max_tokens(name, c, k, v) if not lengths else _max_pair(name, c, k, v)


def _spiked_tokens(name: str, c: dict[str, Any], k: Any, v: Any) -> Any:
    """Token by token: the part of v and v* along k is seen in the score, the rest is integrated out."""
    q = k @ k

    def means(m: Any, s: Any) -> tuple[Any, Any, Any]:
        xi = s * jnp.sqrt(q) * c["z"]
        w = weights(name, c, m * k[0] + xi)
        mean, label = m * v[0] + (k @ v) / q * xi, k[1] / q * xi
        rest, common = s * s * (v @ v - (k @ v) ** 2 / q), s * s * (v[1] - k[1] * (k @ v) / q)
        return c["w"] @ (w * mean), c["w"] @ (w * w * (mean**2 + rest)), c["w"] @ (w * (label * mean + common))

    f, square, label = means(c["m"], c["gamma"])
    g, other, _ = means(0.0, 1.0)
    n = c["lengths"] - 1
    one, two = c["shares"] @ n, c["shares"] @ (n * (n - 1))
    return c["gamma"] ** 2 - 2 * label + square + one * (other + 2 * f * g) + two * g * g


def _spiked_all(name: str, lengths: list[int], c: dict[str, Any], k: Any, v: Any) -> Any:
    """All scores of a sequence on a product of one-dimensional rules."""
    q, G = k @ k, c["gamma"] ** 2
    total = 0.0
    for i, length in enumerate(lengths):
        grids = jnp.meshgrid(*[c["z"]] * length, indexing="ij")
        weight = functools.reduce(lambda a, b: a * b, jnp.meshgrid(*[c["w"]] * length, indexing="ij")).ravel()
        z = jnp.stack([g.ravel() for g in grids], axis=-1)
        s = jnp.where(jnp.arange(length) == 0, c["gamma"], 1.0)
        first = jnp.where(jnp.arange(length) == 0, 1.0, 0.0)
        xi = s * jnp.sqrt(q) * z
        w = weights(name, c, xi + first * c["m"] * k[0])
        mean = first * c["m"] * v[0] + (k @ v) / q * xi
        bias = k[1] / q * xi[:, 0] - (w * mean).sum(axis=-1)
        spread = G * (1 - k[1] ** 2 / q) - 2 * G * (v[1] - k[1] * (k @ v) / q) * w[:, 0]
        spread = spread + (v @ v - (k @ v) ** 2 / q) * (s**2 * w**2).sum(axis=-1)
        total = total + c["shares"][i] * (weight @ (bias**2 + spread))
    return total


def _max_risk(k: Any, v: Any, winner: Any, g_x: Any, g_g: Any, squares: Any, sum_sq: Any) -> Any:
    """E sigma_J and the others of `means.MaxMeans`; k beyond its teacher is s times a unit vector."""
    q, s = k @ k, jnp.sqrt(k[1:] @ k[1:])
    a, b = k[1] / s, (k[1:] @ v[1:]) / s
    return (
        1
        - 2 * ((v[1] - a * b) * winner + a * v[0] * g_x + a * b * g_g)
        + (v @ v - (k @ v) ** 2 / q) * squares
        + ((k @ v) / q) ** 2 * sum_sq
    )


def _max_tokens(name: str, c: dict[str, Any], k: Any, v: Any) -> Any:
    q, s = k @ k, jnp.sqrt(k[1:] @ k[1:])
    x, g = c["z"][:, None], c["z"][None]
    both = (c["w"] * c["W"])[:, None] * c["w"] * weights(name, c, k[0] * x + s * g)
    chi = jnp.sqrt(q) * c["z"]
    w = weights(name, c, chi)
    tokens, pairs = c["shares"] @ c["lengths"], c["shares"] @ (c["lengths"] * (c["lengths"] - 1))
    sums = tokens * (c["w"] @ (w * chi) ** 2) + pairs * (c["w"] @ (w * chi)) ** 2
    return _max_risk(k, v, both.sum(), (both * x * g).sum(), (both * g * g).sum(), tokens * (c["w"] @ w**2), sums)


def _max_pair(name: str, c: dict[str, Any], k: Any, v: Any) -> Any:
    """Softmax over two tokens sees differences of scores; sums are Gaussian and integrated out."""
    q, s = k @ k, jnp.sqrt(k[1:] @ k[1:])
    x, g = c["x"][:, None], c["z"][None]
    odds = jnp.tanh((k[0] * x + s * g) / jnp.sqrt(2.0))  # sigma_1 - sigma_2
    place = 2 * (c["wx"] * c["p"])[:, None] * c["w"]  # the first wins, counted twice
    plain = jnp.tanh(jnp.sqrt(q / 2) * c["z"])
    return _max_risk(
        k,
        v,
        (place * (1 + odds) / 2).sum(),
        (place * g * odds * x / 2).sum(),
        (place * (1 + g * g * odds) / 2).sum(),
        c["w"] @ (1 + plain**2) / 2,
        (q + q * (c["w"] @ (plain * c["z"]) ** 2)) / 2,
    )


gradient = jax.jit(jax.grad(risk, argnums=(2, 3)), static_argnums=0)
value = jax.jit(risk, static_argnums=0)


def start_vectors(o: ndl.Overlaps) -> tuple[np.ndarray, np.ndarray]:
    """Vectors with these overlaps, by the Cholesky way: k in the span of the first three axes."""
    k = np.array([o.key, o.key_on_value, math.sqrt(max(0.0, o.key_sq - o.key**2 - o.key_on_value**2)), 0.0])
    third = (o.key_dot_value - k[0] * o.value_on_key - k[1] * o.value) / k[2] if k[2] > 1e-9 else 0.0
    rest = max(0.0, o.value_sq - o.value_on_key**2 - o.value**2 - third**2)
    return k, np.array([o.value_on_key, o.value, third, math.sqrt(rest)])


def overlaps_of(k: np.ndarray, v: np.ndarray) -> dict[str, float]:
    names = ("key", "value", "value_on_key", "key_on_value", "key_dot_value", "key_sq", "value_sq")
    return dict(zip(names, (float(x) for x in (k[0], v[1], v[0], k[1], k @ v, k @ k, v @ v)), strict=True))


def flow(task: Any, activation: Any, o: ndl.Overlaps, time: float, reach: float, rtol: float) -> dict[str, float]:
    """Overlaps and excess risk at the end of dk/dt = -grad_k R / 2, and v alike."""
    with jax.enable_x64(True):
        kind, c = kind_of(task, activation), numbers_of(task, activation, 16, reach)

        def motion(_: float, both: np.ndarray) -> np.ndarray:
            a, b = gradient(kind, c, both[:4], both[4:])
            return -np.concatenate([np.asarray(a), np.asarray(b)]) / 2

        start = np.concatenate(start_vectors(o))
        end = integrate.solve_ivp(motion, (0.0, time), start, method="DOP853", rtol=rtol, atol=1e-2 * rtol)
        k, v = end.y[:4, -1], end.y[4:, -1]
        return {**overlaps_of(k, v), "excess_risk": float(value(kind, c, k, v))}


def descent(task: Any, activation: Any, learner: Any, o: ndl.Overlaps, nodes: int, reach: float) -> dict[str, float]:
    """Overlaps and excess risk after projected steps on unit vectors."""
    with jax.enable_x64(True):
        kind, c = kind_of(task, activation), numbers_of(task, activation, nodes, reach)
        k, v = start_vectors(o)
        scale = activation.scale
        for t in range(learner.steps):
            c["scale"] = scale / (1 + learner.schedule * t)
            a, b = (np.asarray(x) for x in gradient(kind, c, k, v))
            k, v = k - learner.lr * (a - (a @ k) * k), v - learner.lr * (b - (b @ v) * v)
            k, v = k / np.linalg.norm(k), v / np.linalg.norm(v)
        found = {**overlaps_of(k, v), "excess_risk": float(value(kind, c, k, v))}
        return {name: x for name, x in found.items() if name not in ("key_sq", "value_sq")}

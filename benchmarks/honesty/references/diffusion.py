"""Online SGD with free norms in the limit: the flow of the automatic gradient, and what squares of steps add.

Element-wise attention. The residual is a sum over tokens, and all that is needed of a token is a few moments, taken on
nodes in its score (and its key field) and on exact Gauss-Hermite nodes in the two value fields, of which they are
polynomials.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from benchmarks.honesty.references import vectors
from benchmarks.honesty.references.panels import gauss, line, normal_density
from scipy import integrate, special

import needlepoint as ndl

NAMES = ("key", "value", "value_on_key", "key_on_value", "key_dot_value", "key_sq", "value_sq")


def activation_of(activation: Any) -> Any:
    """sigma and its derivative."""
    if isinstance(activation, ndl.Erf):
        a, b, o = (float(x) for x in (activation.scale, activation.shift, activation.offset))  # type: ignore[arg-type]
        return lambda x: (o + special.erf(a * x + b), 2 * a / math.sqrt(math.pi) * np.exp(-((a * x + b) ** 2)))
    if isinstance(activation, ndl.Linear):
        return lambda x: (1 + x, np.ones_like(x))
    return lambda x: (2 * special.expit(x), 2 * special.expit(x) * special.expit(-x))


def _token(sigma: Any, score: np.ndarray, on: tuple[np.ndarray, np.ndarray], rest: np.ndarray, square: float) -> Any:
    """E[e^i Q] given the score, for the relevant token (with its label in e) and another one, i = 0, 1, 2, and Q in
    (1, Gamma^2, Gamma sigma, sigma^2) times the token's variance. `on` are the means of z* and z, `rest` their
    covariance."""
    w, slope = sigma(score)
    x, p = gauss(5)
    root = np.array([[math.sqrt(max(rest[0, 0], 0.0)), 0.0], [0.0, 0.0]])
    if root[0, 0] > 0:
        root[1, 0] = rest[0, 1] / root[0, 0]
    root[1, 1] = math.sqrt(max(rest[1, 1] - root[1, 0] ** 2, 0.0))
    found = np.zeros((2, 3, 4, *score.shape))
    for a, pa in zip(x, p, strict=True):
        for b, pb in zip(x, p, strict=True):
            label = on[0] + root[0, 0] * a
            z = on[1] + root[1, 0] * a + root[1, 1] * b
            quantities = (np.ones_like(z), square * (slope * z) ** 2, square * slope * z * w, square * w * w)
            for relevant, e in ((0, label - w * z), (1, -w * z)):
                for i in range(3):
                    for j, Q in enumerate(quantities):
                        found[relevant, i, j] += pa * pb * e**i * Q
    return found


def added(task: Any, activation: Any, k: np.ndarray, v: np.ndarray, nodes: int) -> np.ndarray:
    """E[r^2 sum_l s_l^2 (Gamma^2, Gamma sigma, sigma^2)]."""
    sigma, noise = activation_of(activation), task.noise_var
    z, w = line(-8.5, 8.5, 17.0 / nodes, 10)
    w = w * normal_density(z)
    gram = np.array([[1.0, v[1]], [v[1], v @ v]])
    along = np.array([k[1], k @ v])
    if isinstance(task, ndl.SpikedSLR):
        q = k @ k
        rest = gram - np.outer(along, along) / q
        moments = []
        for shift, s in ((math.sqrt(task.snr), task.relevant_std), (0.0, 1.0)):
            xi = s * math.sqrt(q) * z
            on = (along[0] / q * xi, shift * v[0] + along[1] / q * xi)
            moments.append(_token(sigma, shift * k[0] + xi, on, s * s * rest, s * s) @ w)
        A, B = moments[0][0], moments[1][1]
        total = np.zeros(3)
        for length, share in task.length_law:
            n = length - 1
            sums = (1.0, n * B[1, 0], n * B[2, 0] + n * (n - 1) * B[1, 0] ** 2 + noise)
            less = (1.0, (n - 1) * B[1, 0], (n - 1) * B[2, 0] + (n - 1) * (n - 2) * B[1, 0] ** 2 + noise)
            own = A[2, 1:] + 2 * A[1, 1:] * sums[1] + A[0, 1:] * sums[2]
            base = (A[0, 0], A[1, 0] + less[1], A[2, 0] + 2 * A[1, 0] * less[1] + less[2])
            other = B[2, 1:] + 2 * B[1, 1:] * base[1] + B[0, 1:] * base[2]
            total += share * (own + n * other)
        return total
    # the max task with one or two tokens: moments given the key field x, then the place
    s = math.sqrt(k[1:] @ k[1:])
    direction = np.array([k[1] / s, (k[1:] @ v[1:]) / s])
    rest = gram - np.outer([0.0, v[0]], [0.0, v[0]]) - np.outer(direction, direction)
    x, g = z[:, None], z[None]
    on = (direction[0] * g + 0 * x, v[0] * x + direction[1] * g)
    M = _token(sigma, k[0] * x + s * g, on, rest, 1.0) @ w  # (2, 3, 4, x)
    A, B = M[0], M[1]
    total = np.zeros(3)
    for length, share in task.length_law:
        if length == 1:
            total += share * (A[2, 1:] + noise * A[0, 1:]) @ w
            continue
        place = 2 * special.expit(task.snr * (x - x.T)) * w[:, None] * w  # the first of two wins
        one = [A[i] for i in range(3)]
        for j in range(3):
            own, other = [m[j + 1] for m in one], [B[i][j + 1] for i in range(3)]
            e, f = [m[0] for m in one], [B[i][0] for i in range(3)]
            value = own[2] @ place @ f[0] + 2 * own[1] @ place @ f[1] + own[0] @ place @ (f[2] + noise * f[0])
            value += (e[2] + noise * e[0]) @ place @ other[0] + 2 * e[1] @ place @ other[1] + e[0] @ place @ other[2]
            total[j] += share * value
    return total


def end(task: Any, activation: Any, learner: Any, nodes: int, rtol: float) -> dict[str, float]:
    """Overlaps and excess risk at the end of the limit's path."""
    eta = 2 * learner.d * learner.lr
    with jax.enable_x64(True):
        kind, c = vectors.kind_of(task, activation), vectors.numbers_of(task, activation, nodes)

        def motion(_: float, seven: np.ndarray) -> np.ndarray:
            k, v = vectors.start_vectors(ndl.Overlaps(*(float(x) for x in seven)))
            a, b = (-np.asarray(x) / 2 for x in vectors.gradient(kind, c, k, v))
            flow = np.array([a[0], b[1], b[0], a[1], a @ v + k @ b, 2 * a @ k, 2 * b @ v])
            gamma, both, sigma = added(task, activation, k, v, nodes)
            return eta * flow + eta**2 / learner.batch * np.array([0, 0, 0, 0, both, gamma, sigma])

        start = np.array([x for _, x in learner.start.items()])
        time = learner.steps / learner.d
        seven = integrate.solve_ivp(motion, (0.0, time), start, method="DOP853", rtol=rtol, atol=1e-2 * rtol).y[:, -1]
        k, v = vectors.start_vectors(ndl.Overlaps(*(float(x) for x in seven)))
        return {**dict(zip(NAMES, map(float, seven), strict=True)), "excess_risk": float(vectors.value(kind, c, k, v))}

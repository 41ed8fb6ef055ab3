r"""Means over the posterior of the place when key and value are known in part, on the max task.

Given the fields $w_l$ of the posterior mean $\hat k$, the relevant token is that with the largest $w_l + U_l$, $U =
\sqrt{1-q_k}\,g + \Gamma/\mu$. Means are by quadrature for two tokens, by scrambled Sobol points for more.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import interpolate, special

from needlepoint.core.errors import NoTheory
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.gaussian import lattice, sobol_normals, trapezoid_rule
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import MaxSLR
from needlepoint.theory.location.bayes.accuracy import ACCURACY
from needlepoint.theory.location.bayes.spiked_posterior import FieldMeans, Table
from needlepoint.theory.location.moments.place_race import utility_law

SCRAMBLES = 16


@float64
def field_means(task: MaxSLR, q: np.ndarray, final: bool, seed: int = 0) -> FieldMeans:
    r"""eq:max-posterior. Return the means over one sequence at overlaps q = (q_k, q_v), arrays (rows,).

    $E|g_k|^2$, $E|g_v|^2$ and $E\log Z$, $Z = \sum_l\bar P_l(w_\chi)N(y; w_{z,l}, T)$, with $g_{k,l} =
    \frac1Z\sum_{m\ne l} C_{lm}(N_l - N_m)$ and $g_{v,l} = \pi_l\zeta_l/\sqrt T$; and $E\sum\bar P_l^2$. By quadrature,
    in one row, for one or two tokens; with more, a row for each scrambling, of which there is only one unless `final`.
    """
    key, value = map(float, q)
    T = task.noise_var + 1.0 - value
    found = np.zeros((SCRAMBLES if final and task.longest > 2 else 1, 4))
    for n, p in task.length_law:
        if n == 1:  # the place is known, and y - w_z is N(0, T)
            found += p * np.array([0.0, 1.0, -0.5, 1.0])
        elif n == 2:
            found += p * two_tokens(task.snr, T, key, value, 1.0 if final else 2.0)
        else:
            found += p * np.array([_sampled(task.snr, T, key, value, x, n) for x in _normals(n, final, seed)])
    k, v, log_sum, weights_sq = found.T
    return FieldMeans(k, v / T, log_sum - 0.5 * math.log(2 * math.pi * T), weights_sq)


# --- two tokens -----------------------------------------------------------------------------------


def two_tokens(snr: float, T: float, key: float, value: float, coarseness: float = 1.0) -> np.ndarray:
    r"""eq:two-tokens. Return $E|g_k|^2$, $T\,E|g_v|^2$, $E\log Z + \frac12\log2\pi T$ and $E\sum\bar P_l^2$, (4,).

    Of the key fields only $\delta = w_1 - w_2$ counts, of the value fields $b = (\zeta_2^2 - \zeta_1^2)/2$ and the two
    residuals $\zeta$. Means over $\delta$ are tabulated in b, and means over $\zeta$ are sums over these tables. The
    first token is the relevant one.
    """
    weight, P, slope, outside = _two_places(snr, key, coarseness)
    Q = P[::-1]
    nodes = lattice(*ACCURACY.b, coarseness * ACCURACY.b_step)
    logit, b = np.log(P) - np.log(Q), nodes[:, None]
    less = np.exp(-np.abs(b))
    contrast = np.sign(b) * (1 - less) / np.where(b > 0, P + Q * less, P * less + Q)  # (N_1 - N_2) / Z, max N = 1
    relevant = 2 * P * weight
    columns = [
        2 * (slope * contrast) ** 2 @ relevant,
        special.expit(logit + b) ** 2 @ relevant + outside,
        special.expit(-logit - b) ** 2 @ relevant,
        np.logaddexp(np.log(P), np.log(Q) - b) @ relevant,
    ]
    table = interpolate.make_interp_spline(nodes, np.stack(columns, axis=1), k=5)
    # zeta_1 = xi and zeta_2 = xi + spread h; by symmetry xi >= 0 is enough
    spread = max(math.sqrt(2 * value / T), 1e-100)
    xi = lattice(0.0, 8.5, 0.12 * coarseness)
    weight_xi = np.exp(-(xi**2) / 2)
    weight_xi[0] /= 2
    weight_xi /= weight_xi.sum()
    step = coarseness * min(0.3, 0.12 / spread)
    last = math.ceil(min(8.7, 17.5 / spread) / step)
    h = step * np.arange(-last, last + 1)
    weight_h = step * np.exp(-(h**2) / 2) / math.sqrt(2 * math.pi)
    rest = max(0.0, 1.0 - float(weight_h.sum()))  # beyond these h the label rules out the second token
    second, sq = xi[:, None] + spread * h, xi**2
    at = np.clip((second**2 - sq[:, None]) / 2, nodes[0], nodes[-1])
    k, v_1, v_2, log_sum = np.moveaxis(table(at), -1, 0)
    far = table(nodes[-1])
    return np.array(
        [
            weight_xi @ (k @ weight_h + rest * far[0]),
            weight_xi @ ((v_1 * sq[:, None] + v_2 * second**2) @ weight_h + rest * far[1] * sq),
            weight_xi @ (log_sum @ weight_h + rest * far[3] - sq / 2),
            2 * P**2 @ weight + outside,
        ]
    )


def _two_places(snr: float, key: float, coarseness: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    r"""Return the weights of nodes $\delta = w_1 - w_2$, $\bar P_1$ and its slope there, each (nodes,); and the
    probability of $\delta$ beyond the nodes, where the place is known.

    The noise $U_2 - U_1$ is normal plus logistic; the sum goes over the narrower of the two.
    """
    s, deviation = math.sqrt(2 * (1 - key)), math.sqrt(2 * key)
    soft = 0.0 if math.isinf(snr) else 1 / max(snr, 1e-100)
    step = coarseness * min(0.15 * max(s, soft), 0.3 * deviation)
    last = math.ceil(min(9 * deviation, 14 * s + 40 * soft) / step)
    delta = step * np.arange(-last, last + 1)
    weight = step * np.exp(-((delta / deviation) ** 2) / 2) / (math.sqrt(2 * math.pi) * deviation)
    g, w = trapezoid_rule(128)
    if s * snr > 2.0:
        at = (delta[:, None] - soft * (special.log_ndtr(g) - special.log_ndtr(-g))) / s
        P, slope = special.ndtr(at) @ w, np.exp(-(at**2) / 2) @ w / (math.sqrt(2 * math.pi) * s)
    else:
        at = snr * (delta[:, None] + s * g)
        P, slope = special.expit(at) @ w, snr * (special.expit(at) * special.expit(-at)) @ w
    return weight, np.maximum(P, 1e-300), slope, max(0.0, 1.0 - float(weight.sum()))


# --- more tokens ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _normals(length: int, final: bool, seed: int) -> np.ndarray:
    """Return normals (rows, points, dimension): differences of key fields; label noise, value fields of each draw."""
    if length > ACCURACY.longest:
        raise NoTheory(
            f"no state evolution of the max task with {length} tokens; up to {ACCURACY.longest} it is sampled."
        )
    rows, points, draws = (
        (SCRAMBLES, ACCURACY.points, ACCURACY.draws) if final else (1, ACCURACY.search_points, ACCURACY.search_draws)
    )
    draws = max(1, min(draws, 64 // length))  # a long sequence already averages over many places
    points -= (length > 8) + (length > 16)  # and its cost grows as the square of its length
    return sobol_normals(length - 1 + draws * (length + 1), points, rows, seed)


def _places(snr: float, key: float, normals: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return P (points, tokens) and C (points, tokens, tokens) of eq:posterior-place at every key field, in chunks.

    Only differences of the key fields count: the normals are their coordinates in Helmert's basis.
    """
    i = np.arange(1, length)
    basis = np.tri(length, k=-1)[1:] - np.diag(i.astype(float), 1)[:-1]
    w = math.sqrt(key) * normals[:, : length - 1] @ (basis / np.sqrt(i * (i + 1))[:, None])
    law = Race(snr, math.sqrt(1 - key), length)
    parts = [law(part) for part in np.array_split(w, math.ceil(w.size * len(law.x) / ACCURACY.max_posterior_chunk))]
    return np.concatenate([P for P, _ in parts]), np.concatenate([C for _, C in parts])


class Race:
    r"""eq:posterior-place. $\bar P_l(w) = \int dx\,p(x - w_l)\prod_{j\ne l}F(x - w_j)$ and $C_{lm} = \int dx\,
    p(x - w_l)p(x - w_m)\prod_{j\ne l,m}F(x - w_j)$, minus the derivative of $\bar P_l$ by $w_m$; p and F of U.
    """

    def __init__(self, snr: float, s: float, length: int) -> None:
        soft = 0.0 if math.isinf(snr) else 1 / max(snr, 1e-100)
        long = math.log(length)
        # x is the largest w + U, relative to the largest w: outside of this range its density is negligible
        self.step = max(s, 0.8 * soft) * min(0.5, 1.1 / math.sqrt(length))
        self.x = lattice(-7.5 * s - 4.0 * soft, (7.5 + 0.5 * long) * s + (20.0 + long) * soft, self.step)
        step = 0.02 * max(s, soft)
        t = lattice(self.x[0], self.x[-1] + 8.0 * s + 20.0 * soft, step)
        p, F = utility_law(snr * s, t / s)
        slope = np.asarray(interpolate.make_interp_spline(t, p / s, k=5).derivative()(t))
        self._law = Table(t[0], step, F + 1j * p / s, p / s + 1j * slope)  # both at one look-up

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = self.x - (w - w.max(axis=1, keepdims=True))[:, :, None]
        law = self._law(at)
        F = np.clip(np.real(law), 1e-300, 1.0)
        hazard = np.maximum(np.imag(law), 0.0) / F
        share = np.sqrt(self.step * np.prod(F, axis=1))
        rate = hazard * share[:, None, :]
        P = (rate @ share[:, :, None])[:, :, 0]
        return P / P.sum(axis=1, keepdims=True), rate @ rate.transpose(0, 2, 1)


def _sampled(snr: float, T: float, key: float, value: float, normals: np.ndarray, length: int) -> np.ndarray:
    """Return the four means over one set of points, (4,)."""
    P, C = _places(snr, key, normals, length)
    draws = normals[:, length - 1 :].reshape(len(normals), -1, length + 1)
    return np.append(_scores(P, C, draws, math.sqrt(value / T)), np.mean(np.sum(P**2, axis=1)))


@jax.jit
def _scores(P: Array, C: Array, draws: Array, spread: Array) -> Array:
    """Return the first three means of eq:max-posterior, (3,), summed over the relevant place with its probability."""
    length = P.shape[1]
    gain = jnp.sum(C, axis=2)

    def one(draw: Array) -> Array:
        xi, h = draw[:, :1], spread * draw[:, 1:]
        total = jnp.zeros(3)
        for place in range(length):
            zeta = xi + h[:, place, None] - h
            N = jnp.exp(-(zeta**2) / 2)
            weight = jnp.where(P[:, place] > ACCURACY.never, P[:, place], 0.0)
            Z = jnp.where(weight > 0, jnp.sum(P * N, axis=1), 1.0)
            slope = N * gain - sum(C[:, :, m] * N[:, m, None] for m in range(length))
            squares = jnp.sum(slope**2, axis=1), jnp.sum((P * N * zeta) ** 2, axis=1)
            total += jnp.stack([weight @ (squares[0] / Z**2), weight @ (squares[1] / Z**2), weight @ jnp.log(Z)])
        return total

    return jnp.mean(jax.lax.map(one, jnp.moveaxis(draws, 1, 0)), axis=0) / P.shape[0]

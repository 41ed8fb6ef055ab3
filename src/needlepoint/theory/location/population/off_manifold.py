"""The best key and value over all overlaps, not only on the invariant manifold: the swapped minimum lies off it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

import numpy as np
from scipy import optimize

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.numerics.minimise import newton
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.population.best_key import (
    DIFFERENCES,
    LEAST_TOLERANCE,
    SLACK,
    STARTS,
    Best,
)
from needlepoint.theory.location.population.first_keys import norms
from needlepoint.theory.location.population.risk_at_a_key import FINAL, SEARCH, Question, TooSteep

Form = tuple[float, np.ndarray, np.ndarray]

LARGEST_LOG_NORM = 700.0
"""Upper bound of log |k| in the search, whose exponential is still finite."""

ALONG = 0.999
"""Cosine of k with its teacher above which a long key follows the manifold."""


def quadratic(question: Question, constants: Mapping[str, float], k: np.ndarray, coarseness: float) -> Form:
    r"""eq:value-matrix. Return $G$, $b$ (4,) and $M$ (4, 4) of $R = G - 2b\cdot v + v^TMv$.

    $v = (\theta, \nu, v_3, v_4)$ in the frame where $k = (\kappa, \eta, k_3, 0)$: the risk is a quadratic of v, read
    off at 12 points.
    """
    kappa, eta, k3 = k
    key_sq = float(kappa**2 + eta**2 + k3**2)
    moments = question.moments(constants, float(kappa), key_sq, coarseness, rest=True)
    e = np.eye(4)
    pairs = [(i, j) for i in range(3) for j in range(i)]
    v = np.array([np.zeros(4), *e, *-e, *[e[i] + e[j] for i, j in pairs]]).T
    along = kappa * v[0] + eta * v[1] + k3 * v[2]
    seven = (kappa, v[1], v[0], eta, along, key_sq, np.sum(v**2, axis=0))
    risk = weight_moments.excess_risk(question.task, moments, seven)
    at_zero, plus, minus = risk[0], risk[1:5], risk[5:9]
    M = np.diag((plus + minus) / 2 - at_zero)
    for (i, j), joint in zip(pairs, risk[9:], strict=True):
        M[i, j] = M[j, i] = (joint - plus[i] - plus[j] + at_zero) / 2
    return at_zero, (minus - plus) / 4, M


def best_value(form: Form, unit_norm: bool) -> tuple[float, np.ndarray]:
    """Return the least of G - 2 b.v + v'Mv and its v (4,), over R^4 or the unit sphere (by the secular equation)."""
    G, b, M = form
    values, vectors = np.linalg.eigh(M)
    c = vectors.T @ b
    if not unit_norm:
        usable = values > 1e-13 * max(values[-1], 1e-300)
        y = np.where(usable, c / np.where(usable, values, 1.0), 0.0)
        return float(G - c @ y), vectors @ y

    def excess(mu: float) -> float:
        return float(np.sum((c / (values - values[0] + mu)) ** 2)) - 1.0

    tiny = 1e-14 * max(1.0, abs(values[-1]))
    if excess(tiny) > 0:
        mu = optimize.brentq(excess, tiny, 1.0 + 2 * float(np.linalg.norm(c)), xtol=1e-16)
        y = c / (values - values[0] + mu)
    else:  # b is orthogonal to the eigenvector of the lowest eigenvalue: add as much of it as makes |v| = 1
        y = np.concatenate([[0.0], c[1:] / np.maximum(values[1:] - values[0], tiny)])
        y[0] = math.sqrt(max(0.0, 1.0 - float(y @ y)))
    y = y / np.linalg.norm(y)
    return float(G - 2 * c @ y + y @ (values * y)), vectors @ y


class _ManifoldFollowed(Exception):
    """A search goes to infinity along the manifold, whose infimum there is known."""


def best_of_all(question: Question, manifold: Best, tol: float, seed: int, progress: Progress = silent) -> Best:
    """Return the best point over all overlaps: `manifold`, the best on the manifold, unless something lower is found.

    Minimises over k in the frame (k*, v*, e3), starting near the manifold's best, along v*, and at random.
    """
    names, unit_norm = question.free, question.model.unit_norm
    norm = math.sqrt(manifold.overlaps.key_sq)
    endless = not unit_norm and (manifold.status is not Status.CONVERGED or not norm > 0)
    if endless:
        norm = 1.0
    rng = np.random.default_rng([seed, 2])
    along = min(1.0, max(-1.0, manifold.overlaps.key / math.sqrt(manifold.overlaps.key_sq or 1.0)))
    side = math.sqrt(1.0 - along**2)
    swapped = [[0.03 * f, f, 0.03 * f] for f in (0.3, 1.0, 3.0)] if not unit_norm else [[0.0, 1.0, 0.0]]
    directions = [[along, 0.2, side + 0.2], *swapped, *rng.standard_normal((6, 3))]
    unit = {name: max(0.3, abs(manifold.constants.get(name, 0.0))) for name in names}

    def unpack(x: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        size = float(np.linalg.norm(x[:3]))
        k = x[:3] / size if unit_norm else norm * x[:3]
        if endless and size > 1:  # log |k| instead of |k|: a search that goes to infinity does so in few steps
            k = x[:3] / size * math.exp(min(size - 1, LARGEST_LOG_NORM))
        return k, {n: manifold.constants[n] + unit[n] * float(y) for n, y in zip(names, x[3:], strict=True)}

    longest = 1.01 * float(norms(question)[-1])

    def value(x: np.ndarray, coarseness: float = SEARCH) -> float:
        k, constants = unpack(x)
        size = float(np.linalg.norm(k))
        if not unit_norm and size > longest:
            return math.inf
        if endless and size > longest / 3 and abs(k[0]) > ALONG * size:
            raise _ManifoldFollowed
        try:
            return best_value(quadratic(question, constants, k, coarseness), unit_norm)[0]
        except TooSteep:
            return math.inf

    starts = [np.concatenate([d, np.zeros(len(names))]) for d in directions]
    ranked = sorted((value(x), i) for i, x in enumerate(starts[1:], start=1))
    chosen = [starts[i] for i in (0, *(i for _, i in ranked[:STARTS]))]
    # kernel tables for k along k* and beside it have different errors, which must not be taken for a slope
    kind = "rough" if question.tabled else question.kind
    tol = max(tol, LEAST_TOLERANCE[kind])
    ends = []
    for i, x in enumerate(chosen):
        progress(i / len(chosen))
        with contextlib.suppress(_ManifoldFollowed):
            ends.append(newton(value, x, tol=tol, steps=DIFFERENCES[kind]))
    if not ends:
        return manifold
    found = min(ends, key=lambda m: m.value)
    if not found.value < manifold.excess.value - max(1e-9, SLACK[kind]) * question.task.label_var:
        return manifold
    k, constants = unpack(found.x)
    lowest, v = best_value(quadratic(question, constants, k, FINAL), unit_norm)
    excess = Estimate(lowest, abs(lowest - value(found.x)) + found.value_error + 1e-14 * (1 + float(v @ v)))
    return Best(_from_vectors(k, v), constants, excess, found.residual, found.value_error, found.status)


def _from_vectors(k: np.ndarray, v: np.ndarray) -> Overlaps:
    """Return the seven overlaps of k (3,) and v (4,) in the frame, with parts as small as rounding set to 0."""
    k = np.where(np.abs(k) < 1e-7 * np.linalg.norm(k), 0.0, k)
    v = np.where(np.abs(v) < 1e-7 * np.linalg.norm(v), 0.0, v)
    return Overlaps(k[0], v[1], v[0], k[1], float(k @ v[:3]), float(k @ k), float(v @ v))

"""The equations of the attention-indexed model again: means over the density, and fields on a product rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from benchmarks.honesty.references.density import Target, Truncated, cube, truncated
from benchmarks.honesty.references.panels import legendre, root
from scipy import optimize

import needlepoint as ndl

Numbers = dict[str, float]


def newton(residual: Callable[[np.ndarray], np.ndarray], start: np.ndarray, steps: int = 6) -> np.ndarray:
    """A root near the start, by Newton's method with differences."""
    x = np.array(start, dtype=float)
    best, size = x, math.inf
    for _ in range(steps):
        r = residual(x)
        if not np.max(np.abs(r)) < size:
            break
        best, size = x, float(np.max(np.abs(r)))
        J = np.stack([(residual(x + h) - residual(x - h)) / 2e-5 for h in 1e-5 * np.eye(len(x))], axis=1)
        x = x - np.linalg.solve(J, r)
    return best


def penalty_of(model: Any, lam: float) -> float:
    return lam * math.sqrt(model.width_ratio) if isinstance(model, ndl.TiedAttention) else lam


# --- one token ----------------------------------------------------------------------------------


def one_token(task: Any, model: Any, learner: Any, start: dict[str, float], n: int) -> Numbers:
    law = Target(task.target)
    Q, a, lam = law.square + task.noise_var / 2, learner.alpha, penalty_of(model, learner.lam)
    if isinstance(model, ndl.DirectAttention):
        return _direct(law.square, Q, a, lam)

    def at(x: np.ndarray) -> tuple[float, float, Truncated]:
        delta, eps = np.exp(x)
        return delta, eps, truncated(law, delta, eps, n)

    def residual(x: np.ndarray) -> np.ndarray:
        delta, eps, t = at(x)
        pull = lam * delta / eps
        return np.array(
            [(t.d1 - 4 * a * delta + pull) / delta, (Q + (2 * a * delta - pull) * delta - t.J + eps * t.d2) / Q]
        )

    delta, eps, t = at(newton(residual, np.log([start["noise"], start["cut"]])))
    m, q = t.J - delta * t.d1 / 2 - eps * t.d2 / 2, t.J
    # S + the response of one sequence: 4 Sigma / (1 + 4 Sigma) = d1 / (4 a delta)
    kept = t.d1 / (4 * a * delta)
    test = 2 * (Q - 2 * m + q)
    train = test * (1 - kept) ** 2
    return {
        "risk": test,
        "clean_risk": test - task.noise_var,
        "train_loss": train,
        "energy": a * train - lam * t.d2 / 2,
        "estimation_error": law.square - 2 * m + q,
        "rank_fraction": t.above,
    }


def _direct(Q0: float, Q: float, a: float, lam: float) -> Numbers:
    """The fixed point of the ridge regression of a symmetric matrix, iterated."""
    m, q, S = 0.5 * Q0, 0.5 * Q0, 0.1

    def step(x: np.ndarray) -> np.ndarray:
        m, q, S = x[0], x[1], math.exp(x[2])
        m_hat = 8 * a / (1 + 4 * S)
        q_hat = 32 * a * (Q - 2 * m + q) / (1 + 4 * S) ** 2
        eta = m_hat / (m_hat + 4 * lam)
        delta_sq = q_hat / m_hat**2
        return np.array([eta * Q0 - m, eta**2 * (Q0 + delta_sq) - q, S * (m_hat + 4 * lam) - 1])

    # the susceptibility by itself, then a linear system
    def response(log_s: float) -> float:
        S = math.exp(log_s)
        return S * (8 * a / (1 + 4 * S) + 4 * lam) - 1

    S = math.exp(root(response, -60.0, 60.0, 1e-15))
    at = np.array([m, q, math.log(S)])
    at = newton(step, at, 4)
    m, q, S = at[0], at[1], math.exp(at[2])
    test = 2 * (Q - 2 * m + q)
    train = test / (1 + 4 * S) ** 2
    return {
        "risk": test,
        "clean_risk": test - 2 * (Q - Q0),
        "train_loss": train,
        "energy": a * train + lam * q,
        "estimation_error": Q0 - 2 * m + q,
    }


# --- two tokens ---------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Means over the fields of a sequence of two tokens."""

    m_hat: float
    q_hat: float
    response: float
    train: float
    test: float
    clean: float


def rows(c: np.ndarray) -> np.ndarray:
    """The two differences of scores that softmax sees, from coordinates (2, ...) in an orthonormal basis of the
    symmetric matrices without the all-ones one."""
    return np.stack([c[0] / math.sqrt(2) + c[1], -c[0] / math.sqrt(2) + c[1]])


def expit(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


def proximal(beta: float, y: np.ndarray, omega: np.ndarray, S: float) -> np.ndarray:
    """argmin_c 2 |y - expit(beta rows(c))|^2 + |c - omega|^2 / (4 S), the lowest from several starts."""
    best, lowest = omega, np.full(omega.shape[1], np.inf)
    labels = np.log(y) - np.log1p(-y)
    exact = np.stack([(labels[0] - labels[1]) / math.sqrt(2), (labels[0] + labels[1]) / 2]) / beta
    for share in (0.0, 0.5, 1.0):
        c = omega + share * (exact - omega)
        for _ in range(40):
            p = expit(beta * rows(c))
            s, e = p * (1 - p), p - y
            f = 4 * e * s * beta  # by the two rows
            h = 4 * beta**2 * (s * s + np.maximum(e * s * (1 - 2 * p), -s * s))  # kept positive
            r = math.sqrt(0.5)
            g = np.stack([r * (f[0] - f[1]), f[0] + f[1]]) + (c - omega) / (2 * S)
            a, b, d = 0.5 * (h[0] + h[1]), r * (h[0] - h[1]), h[0] + h[1]
            a, d = a + 1 / (2 * S), d + 1 / (2 * S)
            det = a * d - b * b
            step = np.stack([d * g[0] - b * g[1], a * g[1] - b * g[0]]) / det
            size = np.sqrt((step**2).sum(axis=0))
            c = c - step * np.minimum(1.0, 1.0 / (beta * np.maximum(size, 1e-300)))
            if float(size.max()) < 1e-11:
                break
        value = 2 * ((y - expit(beta * rows(c))) ** 2).sum(axis=0) + ((c - omega) ** 2).sum(axis=0) / (4 * S)
        lower = value < lowest - 1e-12
        best, lowest = np.where(lower, c, best), np.where(lower, value, lowest)
    return best


def pair_means(task: Any, model: Any, m: float, q: float, S: float, Q0: float, n: int) -> Pair:
    """On a lattice of n nodes (even) between -6.5 and 6.5 in each of the four coordinates of label and field; by
    symmetry the exchange of the tokens halves them."""
    Q = Q0 + task.noise_var / 2
    x = 13.0 / n * (np.arange(n) - (n - 1) / 2)
    w = np.exp(-(x**2) / 2)
    grid = np.stack([g.ravel() for g in np.meshgrid(x, x, x, x, indexing="ij")])
    weight = np.prod(np.stack([g.ravel() for g in np.meshgrid(w, w, w, w, indexing="ij")]), axis=0)
    kept = (weight > 3e-10 * weight.max()) & (grid[0] > 0)
    grid, weight = grid[:, kept], weight[kept] / weight[kept].sum()
    z0 = math.sqrt(2 * Q) * grid[:2]
    s = math.sqrt(max(q - m * m / Q, 0.0))
    xi = math.sqrt(2.0) * grid[2:]  # a coordinate of the fields has variance 2 q
    omega = m / Q * z0 + s * xi
    y = np.clip(expit(task.beta_star * rows(z0)), 1e-300, 1 - 1e-16)
    z = proximal(model.beta, y, omega, S)
    g = (z - omega) / S
    p, fresh = expit(model.beta * rows(z)), expit(model.beta * rows(omega))
    # clean labels see the part of the target's scores, of variance 2 Q0 and covariance 2 m with the fields
    z_clean = math.sqrt(2 * Q0) * grid[:2]
    field = m / Q0 * z_clean + math.sqrt(max(q - m * m / Q0, 0.0)) * xi
    clean = expit(task.beta_star * rows(z_clean)) - expit(model.beta * rows(field))
    return Pair(
        float(weight @ (g * (z0 / Q - m / (Q * s) * xi)).sum(axis=0)),
        float(weight @ (g * g).sum(axis=0)),
        -float(weight @ (g * xi).sum(axis=0)) / s,
        2 * float(weight @ ((y - p) ** 2).sum(axis=0)),
        2 * float(weight @ ((y - fresh) ** 2).sum(axis=0)),
        2 * float(weight @ (clean**2).sum(axis=0)),
    )


def two_tokens(task: Any, model: Any, learner: Any, found: Any, n: int) -> Numbers:
    """The fixed point near the one that is reported."""
    law, a = Target(task.target), learner.alpha
    lam, direct = penalty_of(model, learner.lam), isinstance(model, ndl.DirectAttention)
    Q0 = law.square

    def parts(x: np.ndarray) -> tuple[Pair, float, float, float]:
        means = pair_means(task, model, x[0] * Q0, x[1] * Q0, math.exp(x[2]), Q0, n)
        m_hat, S_hat = a * means.m_hat, a * means.response
        delta = math.sqrt(a * means.q_hat) / m_hat
        return means, delta, 2 * lam / m_hat, m_hat / (S_hat + (4 * lam if direct else 0.0))

    def residual(x: np.ndarray) -> np.ndarray:
        means, delta, eps, eta = parts(x)
        S_hat = a * means.response
        if direct:
            m, q, S = eta * Q0, eta**2 * (Q0 + delta**2), 1 / (S_hat + 4 * lam)
        else:
            t = truncated(law, delta, eps, 20)
            m, q, S = eta * (t.J - delta * t.d1 / 2 - eps * t.d2 / 2), eta**2 * t.J, t.d1 / (2 * delta * S_hat)
        return np.array([m / Q0 - x[0], q / Q0 - x[1], math.log(S) - x[2]])

    o = found.overlaps
    start = np.array([o.m / Q0, o.q / Q0, math.log(found.conjugates["susceptibility"])])
    x = newton(residual, start, 3)
    means, delta, eps, eta = parts(x)
    m, q = x[0] * Q0, x[1] * Q0
    known = {
        "risk": means.test,
        "clean_risk": means.clean,
        "train_loss": means.train,
        "estimation_error": Q0 - 2 * m + q,
    }
    if direct:
        return known | {"energy": a * means.train + lam * q}
    t = truncated(law, delta, eps, 20)
    return known | {"energy": a * means.train - lam * eta * t.d2 / 2, "rank_fraction": t.above}


# --- what is best, and thresholds ---------------------------------------------------------------


_DEEPEST = 26.0  # the logarithm of the smallest noise beside the target


def bayes(task: Any, alpha: float, n: int) -> Numbers:
    """The noise tau that the data are worth, from 2 N alpha = 1 - 4 pi^2 / 3 tau int rho^3 + noise / (2 tau)."""
    law = Target(task.target)
    N = 1.0 if task.tokens == 1 else (task.tokens**2 + task.tokens - 2) / 2
    Q0, noise = law.square, task.noise_var

    def worth(log_tau: float) -> float:
        tau = math.exp(log_tau)
        return 1 - 4 * math.pi**2 / 3 * tau * cube(law, math.sqrt(tau), n) + noise / (2 * tau) - 2 * N * alpha

    low, high = math.log(Q0) - 2.0, math.log(Q0) + 2.0
    while worth(high) > 0:
        high += 2.0
    while worth(low) < 0 and low > math.log(Q0) - _DEEPEST:
        low -= 2.0
    error = 0.0  # the noise vanishes before it is small enough to be what the data are worth
    if worth(low) >= 0:
        tau = math.exp(root(worth, low, high, 1e-14))
        error = tau - 4 * math.pi**2 / 3 * tau**2 * cube(law, math.sqrt(tau), n)
    found = {"estimation_error": error}
    q = Q0 - error
    if task.tokens == 1:
        found |= {"risk": 2 * (Q0 + noise / 2 - q), "clean_risk": 2 * (Q0 - q)}
    if task.tokens == 2:
        found |= {"risk": _pair_risk(task, Q0 + noise / 2, q), "clean_risk": _pair_risk(task, Q0, q)}
    return found


def _pair_risk(task: Any, Q: float, q: float) -> float:
    """Half the distance of two labels drawn from the posterior: both rows alike, and a row has two entries."""
    x = np.linspace(-8.5, 8.5, 2400)
    w = np.exp(-(x**2) / 2)
    w /= w.sum()
    common, own = math.sqrt(3 * q), math.sqrt(3 * (Q - q))
    p = expit(task.beta_star * (common * x[:, None] + own * x))
    return 2 * float(w @ (2 * (p**2 @ w) - 2 * (p @ w) ** 2))


def thresholds(task: Any, n: int) -> Numbers:
    """Interpolation from J at a cut of zero, recovery from the least of h, of tied attention of full width."""
    law = Target(task.target)
    N2 = 2.0 if task.tokens == 1 else task.tokens**2 + task.tokens - 2
    k = task.target.rank

    def h(t: float) -> float:
        x, w = legendre(400)
        c = math.sqrt(1 - k)
        if t >= 2 * c or k == 1:
            return k * t * t + 1 - (1 - k) ** 2
        angle, share = (x + 1) / 2 * math.acos(t / (2 * c)), w / 2 * math.acos(t / (2 * c))
        u = 2 * np.cos(angle)
        above = share @ ((c * u - t) ** 2 * (2 * np.sin(angle)) ** 2) / (2 * math.pi)
        return k * t * t + 1 - (1 - k) ** 2 + (1 - k) * float(above)

    best: Any = optimize.minimize_scalar(h, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-10})
    if task.noise_var == 0:
        return {
            "interpolation": (1 - (1 - k) ** 2 / 2) / N2,
            "recovery": min(float(best.fun), h(0.0)) / N2,
            "bayes_recovery": (1 - law.alike) / N2,
        }
    Q = law.square + task.noise_var / 2

    def gap(log_delta: float) -> float:
        delta = math.exp(log_delta)
        t = truncated(law, delta, 0.0, n)
        return (t.J - delta * t.d1 / 2) / Q - 1

    low, high = math.log(Q) / 2 - 1.0, math.log(Q) / 2 + 1.0
    while gap(high) < 0:
        high += 1.0
    while gap(low) > 0:
        low -= 1.0
    delta = math.exp(root(gap, low, high, 1e-14))
    alpha = truncated(law, delta, 0.0, n).d1 / (2 * delta * N2)
    return {"interpolation": alpha, "recovery": math.inf, "bayes_recovery": math.inf}

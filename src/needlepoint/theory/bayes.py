"""The Bayes risk of single-location regression when the teachers are known."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import interpolate, special

from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory import max_place
from needlepoint.theory.predicting import Options

SMALLEST = 1e-30
"""Below this bound the Bayes excess risk is not integrated; the bound itself is reported."""

_CHUNK = 4_000_000
_ROUNDING = 1e-13  # of eq:max-bayes, whose rules are exact to rounding: see its test against 30 digits
_LARGEST_LINE, _LARGEST_TABLE = 1_000_000, 400_000_000  # nodes; beyond them sampling is the better route
_RESOLVED = 1e-4  # relative error above which the integral gives way to sampling


def predict_known(task: SingleLocation, model: None, learner: BayesOptimal, options: Options) -> Prediction:
    """The posterior mean of the label with known k*, v*: sum of v* . X_l weighted by P(J = l | X)."""
    limit = learner.d is None and task.label_var != 1.0
    if limit:
        excess = Estimate(0.0)
        notes = ("limit d -> infinity, where a token's norm tells the relevant one; give d= for a finite d.",)
    else:
        # at relevant_std = 1 the norm says nothing and d drops out
        excess, notes = known_teachers(task, learner.d or 2, options.seed)
    loose = options.tol is not None and excess.error > options.tol
    return Prediction(
        task,
        model,
        learner,
        {"risk": excess + task.noise_var, "excess_risk": excess},
        status=Status.NOISE_LIMITED if loose else Status.CONVERGED,
        exact=not limit,
        notes=notes,
        seed=options.seed,
    )


def known_teachers(task: SingleLocation, d: int, seed: int) -> tuple[Estimate, tuple[str, ...]]:
    """The Bayes excess risk at dimension d, and what there is to say about it."""
    if isinstance(task, MaxSLR):
        value, coarse = (
            sum(p * max_place.bayes_excess_risk(task.snr, n, step) for n, p in task.length_law) for step in (0.05, 0.1)
        )
        return Estimate(value, abs(value - coarse) + _ROUNDING * value + max_place.TAIL * task.longest), ()
    assert isinstance(task, SpikedSLR)
    return _at_dimension(task, d, seed)


def _at_dimension(task: SpikedSLR, d: int, seed: int) -> tuple[Estimate, tuple[str, ...]]:
    """By integration; by sampling where that does not resolve the law; by a bound where neither does."""
    lengths = [(n, p) for n, p in task.length_law if n > 1]
    bound = sum(p * bayes_bound(task, n, d) for n, p in lengths)
    if bound >= SMALLEST:
        parts = [(p, bayes_excess_risk(task, n, d)) for n, p in lengths]
        if all(e.value > 0 and e.error <= _RESOLVED * e.value for _, e in parts):
            return Estimate(sum(p * e.value for p, e in parts), sum(p * e.error for p, e in parts)), ()
        sampled = [(p, bayes_monte_carlo(task, n, d, seed)) for n, p in lengths]
        value = sum(p * e.value for p, e in sampled)
        error = math.sqrt(sum((p * e.error) ** 2 for p, e in sampled))
        if error < 0.1 * value:
            return Estimate(value, error, "stderr"), ("the Bayes risk is a Monte Carlo mean over the fields.",)
    note = f"the Bayes excess risk lies between 0 and {bound:.3g}; the value given is this bound."
    return Estimate(bound, bound), (note,) if lengths else ()


def bayes_bound(task: SpikedSLR, length: int, d: int) -> float:
    r"""eq:bayes-bound. $R \le (L-1)\frac{G}{1+G}\big(\frac{2\gamma}{1+G}\big)^d e^{-snr/(2(1+G))}$.

    From $x/(1+x) \le \sqrt x/2$ on each pair of tokens; the last two factors are the squared Bhattacharyya
    coefficient of the two token laws.
    """
    G = task.relevant_std**2
    log_bc2 = d * math.log(2 * task.relevant_std / (1 + G)) - task.snr / (2 * (1 + G))
    return min(G, (length - 1) * G / (1 + G) * math.exp(max(log_bc2, -740.0)))


def bayes_excess_risk(task: SpikedSLR, length: int, d: int) -> Estimate:
    r"""eq:bayes-risk. $R = E[(1 - p_J)(v^*\cdot X_J)^2] = (L-1)\int du\,E_o[Te^{-T}]\,E_J[(v^*\cdot X)^2e^{-T}]\,
    E_o[e^{-T}]^{L-2}$, $T = e^{u+\ell}$, with $\ell$ the log-weight of a token.

    The sum over l != J of $p_l = w_l / \sum_j w_j$ by $1/x = \int_0^\infty e^{-tx}dt$: positive terms only, so a
    risk of 1e-25 keeps its digits. The error is the change when every step is doubled.
    """
    if length == 1:
        return Estimate(0.0)
    coarse = _schwinger(task, length, d, 2.0)
    fine = _schwinger(task, length, d, 1.0)
    if not math.isfinite(fine - coarse):
        return Estimate(math.nan, math.inf)
    return Estimate(fine, abs(fine - coarse) + 1e-14 * fine)


def bayes_monte_carlo(
    task: SpikedSLR, length: int, d: int, seed: int, samples: int = 2**20, chunk: int = 2**22
) -> Estimate:
    """eq:bayes-risk by sampling key field, value field and squared norm of every token."""
    rng = np.random.default_rng(seed)
    m, G = math.sqrt(task.snr), task.relevant_std**2
    total, squares, done = 0.0, 0.0, 0
    while done < samples:
        shape = (min(samples - done, max(1, chunk // length)), length)
        key, value = rng.standard_normal(shape), rng.standard_normal(shape)
        rest = rng.chisquare(d - 2, shape) if d > 2 else np.zeros(shape)
        key[:, 0] = m + task.relevant_std * key[:, 0]
        value[:, 0] *= task.relevant_std
        rest[:, 0] *= G
        log_weight = -((key - m) ** 2) / (2 * G) + key**2 / 2 - (1 / G - 1) / 2 * (value**2 + rest)
        posterior = special.softmax(log_weight, axis=1)
        error = (value[:, 0] - np.sum(posterior * value, axis=1)) ** 2
        total, squares, done = total + error.sum(), squares + (error**2).sum(), done + shape[0]
    mean = total / samples
    return Estimate(mean, math.sqrt(max(squares / samples - mean**2, 0.0) / samples), "stderr")


def _schwinger(task: SpikedSLR, length: int, d: int, coarseness: float) -> float:
    step, pair, empty = _transforms(task.snr, task.relevant_std, d, coarseness)
    return (length - 1) * step * float(np.sum(pair * empty ** (length - 2)))


@functools.lru_cache(maxsize=64)
def _transforms(snr: float, gamma: float, d: int, coarseness: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Step in u, E_o[T e^-T] E_J[(v* . X)^2 e^-T] and E_o[e^-T] on the grid of u, for all lengths at once."""
    # notation: l(a, S) = q(a) - c S, q = -(a - m)^2 / (2 G) + a^2 / 2, a = k* . x and S = |x|^2 - a^2
    m = math.sqrt(snr)
    G = gamma**2
    c = (1 / G - 1) / 2
    # S is chi-square with d - 1 degrees, times 1 (other) or G (relevant). Its rule is centred on the law of
    # ties between the two (variance 2 G / (1 + G) a dimension), where the integrand lives.
    tie = 2 * G / (1 + G)
    n_s = 1 if c == 0 else math.ceil(48 / coarseness)
    plain_s, p_plain = chi_square_rule(d - 1, n_s)
    s = tie * plain_s
    other = p_plain * np.exp((d - 1) / 2 * math.log(tie) - s / 2 * (1 - 1 / tie))
    relevant = p_plain * np.exp((d - 1) / 2 * math.log(tie / G) - s / 2 * (1 / G - 1 / tie))
    value_sq = relevant * (s / (d - 1) if c else 1.0)

    shifts = c * np.concatenate([s, plain_s])
    reach = 9.5 * max(1.0, gamma)
    step_a = _step(-reach, m + reach, m, G, coarseness)
    if (m + 2 * reach) / step_a > _LARGEST_LINE:
        return math.nan, np.ones(1), np.ones(1)
    a = np.arange(-reach, m + reach, step_a)
    q = -((a - m) ** 2) / (2 * G) + a**2 / 2
    density_other = (a[1] - a[0]) * np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    density_relevant = (a[1] - a[0]) * np.exp(-((a - m) ** 2) / (2 * G)) / math.sqrt(2 * math.pi * G)
    step = 0.1 * coarseness
    # tabulated without the shift -c S, which may be far larger than what the key field does
    low, high = -q.max() - 38.0, -q.min() + 5.0
    points = (high - low + np.ptp(shifts)) / step
    if points * max(len(a), 2 * n_s) > _LARGEST_TABLE:
        return math.nan, np.ones(1), np.ones(1)
    u = np.arange(low, high, step)
    table = np.concatenate(
        [
            _laplace(block, q, density_other, density_relevant)
            for block in np.array_split(u, max(1, math.ceil(len(u) * len(a) / _CHUNK)))
        ]
    )
    if c == 0:
        first, empty, second = table.T
    else:
        spline = interpolate.make_interp_spline(u, table, k=5)
        shifted = np.arange(low + shifts.min(), high + shifts.max(), step)

        def mean(column: int, weights: np.ndarray, nodes: np.ndarray) -> np.ndarray:
            at = np.clip(shifted[:, None] - c * nodes, u[0], u[-1])
            return spline(at)[..., column] @ weights

        first, empty, second = mean(0, other, s), mean(1, p_plain, plain_s), mean(2, value_sq, s)
    return step, first * second, np.clip(empty, 0.0, 1.0)


def _step(low: float, high: float, m: float, G: float, coarseness: float) -> float:
    """A step of the key field over which the log-weight changes by at most a third."""
    slope = max(abs(a * (1 - 1 / G) + m / G) for a in (low, high))
    return coarseness * min(0.1, 0.3 / max(slope, 1e-300))


def _laplace(u: np.ndarray, q: np.ndarray, p_other: np.ndarray, p_relevant: np.ndarray) -> np.ndarray:
    """E_o[T e^-T], E_o[e^-T], E_J[e^-T] over the key field, T = e^(u + q)."""
    t = np.exp(np.minimum(u[:, None] + q, 700.0))
    survive = np.exp(-t)
    return np.stack([(t * survive) @ p_other, survive @ p_other, survive @ p_relevant], axis=1)


@functools.cache
def chi_square_rule(dof: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule for a chi-square law: eigenvalues of the Laguerre Jacobi matrix."""
    i, shape = np.arange(n), dof / 2 - 1
    off = np.sqrt(i[1:] * (i[1:] + shape))
    nodes, vectors = np.linalg.eigh(np.diag(2 * i + shape + 1) + np.diag(off, 1) + np.diag(off, -1))
    return 2 * nodes, vectors[0] ** 2

"""The best estimate of the matrix of the attention-indexed model at finite size, by message passing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from needlepoint.core.answers.spectra import TrainedSpectrum
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import IndexedOverlaps
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.models.attention import DirectAttention
from needlepoint.numerics.free_atoms import Atoms
from needlepoint.numerics.freeprob import FreeSum
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.simulation.indexed.accuracy import ACCURACY
from needlepoint.simulation.indexed.one_sequence import attention
from needlepoint.simulation.indexed.problem import Problem, draw_problem, draw_sequences, stream
from needlepoint.tasks.attention_indexed import AttentionIndexed

_WINDOW = (np.arange(16) - 7.5) / 8  # midpoints between -1 and 1 that the shrinkage is averaged over


class Posterior(NamedTuple):
    """The posterior mean S of S0, its expected squared error over d, the variance tau of the noise in the matrix that
    it is estimated from, whether the iteration converged, and after how many steps."""

    S: np.ndarray
    error: float
    tau: float
    settled: bool
    steps: int


@rule("simulate", AttentionIndexed, None, BayesOptimal)
def simulate_indexed_bayes(
    task: AttentionIndexed, model: None, learner: BayesOptimal, options: SimulationOptions
) -> Measurement:
    """Return the errors of the posterior mean by eq:indexed-bayes-amp, on fresh data and fresh test sequences in every
    repeat. With the same seed these are the data that attention is trained on."""
    if learner.alpha is None:
        raise InvalidParameter(
            "BayesOptimal(alpha=None): the attention-indexed model needs alpha, the number of sequences over d squared "
            "(from infinitely many S0 is known)."
        )
    if learner.d is not None:
        raise InvalidParameter(f"{learner!r}: on the attention-indexed model simulate's d is enough; leave d out.")
    if task.readout == "seq2seq" and task.tokens > options.d:
        raise InvalidParameter(
            f"simulate(d={options.d}): with readout='seq2seq', d must be >= {task.tokens}, the number of tokens "
            "(mixtures of more tokens than dimensions do not show their weights)."
        )
    values, spectra, targets, unfinished = [], [], [], 0
    for repeat in range(options.repeats):
        problem = draw(task, learner.alpha, options.d, options.seed, repeat)
        posterior = amp(problem)
        values.append(_measure(problem, posterior, options, repeat))
        spectra.append(np.linalg.eigvalsh(posterior.S))
        targets.append(np.sort(problem.target))
        unfinished += not posterior.settled
        options.progress((repeat + 1) / options.repeats)
    every = {name: np.array([v[name] for v in values]) for name in values[0]}
    estimates = {name: mean_estimate(x) for name, x in every.items()}
    overlaps = {name: estimates.pop(name) for name in ("m", "q")}
    note = f"{unfinished} of {options.repeats} runs of message passing did not settle in {ACCURACY.bayes_steps} steps."
    return Measurement(
        task,
        model,
        learner,
        estimates,
        status=Status.MAX_STEPS if unfinished else Status.CONVERGED,
        overlaps=IndexedOverlaps(**{name: e.value for name, e in overlaps.items()}),
        overlaps_error={name: e.error for name, e in overlaps.items()},
        notes=(note,) if unfinished else (),
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
        spectrum=TrainedSpectrum(np.array(spectra), np.array(targets)),
        values=every,
    )


def draw(task: AttentionIndexed, alpha: float, d: int, seed: int, repeat: int) -> Problem:
    """Return a target and data. Of the model only the map from a matrix to its scores is used."""
    return draw_problem(task, DirectAttention(), 0.0, round(alpha * d**2), d, seed, repeat)


def visible(z: np.ndarray) -> np.ndarray:
    r"""Return the part of symmetric scores that labels determine, (n, T, T): all but a shift $z + c11^\top$.

    It is linear in the logarithms of the labels, but not computed from them: at a large or small inverse temperature
    they would leave no digits of it.
    """
    return z - z.mean(axis=(1, 2), keepdims=True) if z.shape[2] > 1 else z


@threadpool_limits.wrap(limits=1, user_api="blas")  # the small products of a sequence are slower with more threads
def amp(problem: Problem) -> Posterior:
    r"""eq:indexed-bayes-amp. Return the posterior mean of S0 by message passing.

    $r = y - \mathcal A(S) + \frac D{2N\alpha}r^{old}$ in the part of the scores that labels determine, $\tau =
    \frac1{2N\alpha}\frac1{2nN}\sum_\mu\|r_\mu\|^2$, $R = S + \frac1{2N\alpha d}\mathcal A^\top(r)$, which is $S_0 +
    \sqrt\tau Z$ in the limit, and $S \leftarrow f_\tau(R)$ of eq:bayes-spectrum; $\tau D$ is the error of $S$.

    It begins with what is known without data, a multiple of the identity, and S moves part of the way in each step. The
    noise of the labels need not be given: it is part of the residuals, and no division is by a noise that may vanish.
    """
    law, d, N = prior(problem), problem.d, problem.task.components
    ratio = 2 * N * problem.n / d**2
    x, y = problem.data.x, visible(problem.data.noisy)
    S, error, settled, step = law.mean * np.eye(d), 0.0, False, 0
    r = y - visible(problem.scores(x, S))
    tau = _noise(r, N, ratio)
    while not settled and step < ACCURACY.bayes_steps:
        if tau <= ACCURACY.found * law.square:
            return Posterior(S, 0.0, tau, True, step)
        step += 1
        keep = 0.0 if step == 1 else ACCURACY.bayes_damping if step < ACCURACY.patience else ACCURACY.stronger
        values, vectors = np.linalg.eigh(S + problem.pull(r) / (ratio * d))
        f, D = shrink(law, values, tau)
        mean, error = (vectors * f) @ vectors.T, tau * D
        settled = float(np.linalg.norm(mean - S)) <= ACCURACY.bayes_still * math.sqrt(d * tau)
        S = mean if settled else keep * S + (1 - keep) * mean
        r = y - visible(problem.scores(x, S)) + D / ratio * r
        tau = _noise(r, N, ratio)
    return Posterior(S, error, tau, settled, step)


def prior(problem: Problem) -> FreeSum:
    """Return what is known of the eigenvalues of S0: the limit law if they are random, otherwise their values."""
    law = problem.task.target.law
    return Atoms(problem.target) if isinstance(law, Atoms) else law


def _noise(r: np.ndarray, N: float, ratio: float) -> float:
    """Return tau: each of the N visible coordinates of a residual has the variance 2 tau times the ratio."""
    return float(np.sum(r**2)) / (2 * N * len(r) * ratio)


def shrink(law: FreeSum, values: np.ndarray, tau: float) -> tuple[np.ndarray, float]:
    r"""eq:bayes-spectrum. Return $f(x) = x - 2\tau\,\mathrm{Re}\,g(x)$ at the eigenvalues (d,), with $g$ the resolvent
    of $S_0 + \sqrt\tau Z$, and the divergence $D = \frac1{d^2}\sum_{ij}(1 + \delta_{ij})f[x_i, x_j]$.

    f is averaged over a window of $\pm\sqrt\tau d^{-2/3}$, the distance by which eigenvalues at an edge of the law
    fluctuate at finite d: its slope is infinite at the edges and steep where two pieces of the law are about to
    separate, and S would never converge. Between two pieces of the law f is linear. Outside of the law it is constant
    if the eigenvalues of S0 are known. Random ones fluctuate by $d^{-2/3}$ of their spread, so that part of the
    distance of an eigenvalue to the law may be real, and is kept.
    """
    delta, d = math.sqrt(tau), len(values)
    x, f = _table(law, delta)
    width = delta * d ** (-2 / 3)
    mean = np.mean([np.interp(values + width * t, x, f) for t in _WINDOW], axis=0)
    slope = (np.interp(values + width, x, f) - np.interp(values - width, x, f)) / (2 * width)
    loose = 0.0 if isinstance(law, Atoms) else (law.square - law.mean**2) * d ** (-4 / 3)
    outside = values - np.clip(values, x[0], x[-1])
    believed = loose / (loose + 2 * tau / d)  # the noise moves an eigenvalue with the variance 2 tau / d
    mean, slope = mean + believed * outside, slope + believed * (outside != 0)
    gap = values[:, None] - values
    close = np.abs(gap) < 1e-3 * width
    quotient = np.where(close, (slope[:, None] + slope) / 2, (mean[:, None] - mean) / np.where(close, 1.0, gap))
    return mean, float(quotient.sum() + np.trace(quotient)) / d**2


def _table(law: FreeSum, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points x of the support and x - 2 delta^2 Re g(x) there. The points cluster at the edges but avoid the
    edges themselves, where a resolvent may cost a hundred times as much."""
    support = law.support(delta)
    points = max(ACCURACY.per_piece, ACCURACY.table // len(support))
    angle = np.pi * (np.arange(points) + 0.5) / points
    x = (support.mean(axis=1)[:, None] - np.diff(support, axis=1) / 2 * np.cos(angle)).ravel()
    return x, x - 2 * delta**2 * law.resolvent(x, delta).real


# --- what the mean is worth ---------------------------------------------------------------------


def _measure(problem: Problem, posterior: Posterior, options: SimulationOptions, repeat: int) -> dict[str, float]:
    S, target, d = posterior.S, problem.target, problem.d
    risk, clean_risk = risks(problem, posterior, options, repeat)
    return {
        "risk": risk,
        "clean_risk": clean_risk,
        "estimation_error": float(np.sum((S - np.diag(target)) ** 2)) / d,
        "m": float(np.diag(S) @ target) / d,
        "q": float(np.sum(S**2)) / d,
    }


def risks(problem: Problem, posterior: Posterior, options: SimulationOptions, repeat: int) -> tuple[float, float]:
    r"""Return the mean errors of the best predictions of noisy and of clean labels. An error is $\mathrm{Tr}(p - y)K(p'
    - y)^\top$ with predictions by two independent rules of integration, so that their inaccuracies add no bias."""
    task, T = problem.task, problem.task.tokens
    rng, noise = stream(options.seed, repeat, 4), stream(options.seed, repeat, 5)
    rules = sobol_normals(T, ACCURACY.log2_points, 2, int(stream(options.seed, repeat, 6).integers(2**31)))
    block = max(1, ACCURACY.at_once // (T * max(problem.d, T * rules.shape[1])))
    sums = np.zeros(2)
    for begin in range(0, options.samples, block):
        data = draw_sequences(task, problem.target, min(block, options.samples - begin), rng, noise)
        z = problem.scores(data.x, posterior.S)
        for i, (scores, label_noise) in enumerate(((data.noisy, task.noise_var), (data.clean, 0.0))):
            unknown = 2 * max(posterior.error, 0.0) + label_noise
            labels = attention(scores, task.beta_star)
            one, other = (predicted(z, unknown, task.beta_star, rule) - labels for rule in rules)
            if task.readout == "seq2seq":
                one = one @ (np.einsum("nai,nbi->nab", data.x, data.x) / problem.d)
            sums[i] += float(np.sum(one * other))
    risk, clean_risk = sums / options.samples
    return float(risk), float(clean_risk)


def predicted(z: np.ndarray, variance: float, beta: float, normals: np.ndarray) -> np.ndarray:
    r"""eq:indexed-bayes-predictor. Return $p = E\,\mathrm{softmax}(\beta(z + \xi))$, (n, T, T), with $\xi$ symmetric,
    of the given variance on the diagonal and half of it off, by standard normals (points, T).

    The entries of a row of $\xi$ are independent, and a row of $p$ is a mean over that row alone. For one token $p =
    z$.
    """
    T = z.shape[2]
    if T == 1:
        return z
    xi = normals[:, None, :] * np.sqrt(variance * (1 + np.eye(T)) / 2)
    # the softmax is over the first axis, because sums over a short axis are fast there
    powers = beta * (z.T[..., None] + xi.T[:, :, None, :])
    np.exp(powers - powers.max(axis=0), out=powers)
    return (powers / powers.sum(axis=0)).mean(axis=3).T

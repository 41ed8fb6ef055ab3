"""Approximate message passing for the Bayes-optimal predictor of single-location regression."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.lowering import lower
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import SEVEN, Overlaps
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.routes import route, the
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.numerics.gaussian import lattice, trapezoid_rule
from needlepoint.simulation.location.accuracy import ACCURACY
from needlepoint.simulation.location.risks import simulate_known_teachers, sum_chunks
from needlepoint.simulation.location.vectors import frames
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR


class Data(NamedTuple):
    """Sequences of one length: tokens (n, length, d), labels (n,)."""

    x: np.ndarray
    y: np.ndarray


class Posterior(NamedTuple):
    """Posterior means of k* and v*, (d,) each, d times the variance of a coordinate of k*, and whether it converged."""

    k: np.ndarray
    v: np.ndarray
    key_var: float
    settled: bool


class Scores(NamedTuple):
    """The derivatives of log Z by the two fields of every token, (n, length), and what the sequences add to the two
    precisions."""

    g_k: np.ndarray
    g_v: np.ndarray
    precision_k: float
    precision_v: float


@rule("simulate", SpikedSLR, None, BayesOptimal)
@rule("simulate", MaxSLR, None, BayesOptimal)
def simulate_bayes(task: SingleLocation, model: None, learner: BayesOptimal, options: SimulationOptions) -> Measurement:
    """Return the risk of AMP with fresh data and fresh test sequences in every repeat; if alpha is None the teachers
    are known."""
    if learner.alpha is None:
        return simulate_known_teachers(task, model, learner, options)
    if task.relevant_spread != 1.0:
        raise NoTheory(f"no AMP for relevant_std={task.relevant_spread:g}; relevant_std=1 has one.")
    if task.noise_var <= 0:
        raise InvalidParameter(f"{task!r}: BayesOptimal(alpha=...) needs noise > 0 (see predict).")
    n = round(learner.alpha * options.d)
    mean_length = sum(length * p for length, p in task.length_law)
    if n * mean_length * options.d > ACCURACY.largest or n < 1:
        raise InvalidParameter(
            f"simulate(d={options.d}): {n} sequences of {mean_length:g} tokens are {n * mean_length * options.d:.3g} "
            f"numbers; there must be at least one sequence and at most {ACCURACY.largest:.3g} numbers."
        )
    means, found, unfinished = [], [], 0
    for repeat in range(options.repeats):
        k_star, v_star = frames(np.random.default_rng([options.seed, 5, repeat]), 1, options.d, 2)[0]
        key = jax.random.fold_in(jax.random.key(options.seed), repeat)
        posterior = amp(task, learner.alpha, sample(task, key, k_star, v_star, n))
        k, v = posterior.k, posterior.v
        unfinished += not posterior.settled
        means.append(_test_error(task, jax.random.fold_in(key, 1 << 20), options.samples, k_star, v_star, posterior))
        found.append([k @ k_star, v @ v_star, v @ k_star, k @ v_star, k @ v, k @ k, v @ v])
        options.progress((repeat + 1) / options.repeats)
    risk, overlaps = mean_estimate(np.array(means)), np.array(found)
    estimates = {name: mean_estimate(overlaps[:, i]) for i, name in enumerate(SEVEN)}
    note = f"{unfinished} of {options.repeats} runs of AMP did not settle in {ACCURACY.bayes_amp_steps} steps."
    return Measurement(
        task,
        model,
        learner,
        {"risk": risk, "excess_risk": risk + (-task.noise_var)},
        status=Status.CONVERGED if np.all(np.isfinite(means)) and not unfinished else Status.MAX_STEPS,
        overlaps=Overlaps(**{name: e.value for name, e in estimates.items()}),
        overlaps_error={name: e.error for name, e in estimates.items() if name in ("key", "value")},
        notes=(note,) if unfinished else (),
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
    )


def sample(task: SingleLocation, key: Any, k_star: np.ndarray, v_star: np.ndarray, n: int) -> list[Data]:
    """Return n sequences grouped by length; the number of each length is the expected one, rounded."""
    law, parts = lower(task)[1], []
    for length, count in task.length_counts(n):
        teachers = jnp.asarray(k_star), jnp.asarray(v_star)
        x, y, _ = task.draw(jax.random.fold_in(key, length), *teachers, count, length, law)
        parts.append(Data(np.asarray(x), np.asarray(y)))
    return parts


def amp(task: SingleLocation, alpha: float, data: list[Data]) -> Posterior:
    r"""eq:bayes-amp. Return the posterior means of k* and v* by message passing.

    $w = Xk - V g$, $k \leftarrow V_k(X^Tg_k/d + \Lambda_kk)$ and the same for v, damped. $V = 1/(1 + \Lambda)$, for the
    key of the spiked task $1/(1 + \alpha\mu + \Lambda_k)$.
    """
    d = data[0].x.shape[2]
    shifted, posterior = alpha * task.shift_sq, the("posterior of places", task=task)
    k, v, V_k, V_v = np.zeros(d), np.zeros(d), 1.0, 1.0
    old = [(np.zeros(part.x.shape[:2]), np.zeros(part.x.shape[:2])) for part in data]
    for step in range(ACCURACY.bayes_amp_steps):
        keep = 0.0 if step == 0 else ACCURACY.bayes_amp_damping if step < ACCURACY.patience else ACCURACY.stronger
        pull_k, pull_v, Lam_k, Lam_v, new = np.zeros(d), np.zeros(d), 0.0, 0.0, []
        places: Places = posterior(task.snr, math.sqrt(V_k))
        for part, (g_k, g_v) in zip(data, old, strict=True):
            w_chi, w_z = part.x @ k - V_k * g_k, part.x @ v - V_v * g_v
            T = task.noise_var + V_v
            residual = part.y[:, None] - w_z
            found = places.scores(w_chi, residual, T)
            g_k, g_v = keep * g_k + (1 - keep) * found.g_k, keep * g_v + (1 - keep) * found.g_v
            pull_k += np.tensordot(g_k, part.x, 2) / d
            pull_v += np.tensordot(g_v, part.x, 2) / d
            Lam_k, Lam_v = Lam_k + found.precision_k / d, Lam_v + found.precision_v / d
            new.append((g_k, g_v))
        old = new
        Lam_v = max(Lam_v, 0.0)
        next_V_k, next_V_v = 1 / (1 + shifted + Lam_k), 1 / (1 + Lam_v)
        next_k, next_v = next_V_k * (pull_k + Lam_k * k), next_V_v * (pull_v + Lam_v * v)
        moved = max(float(np.linalg.norm(next_k - k)), float(np.linalg.norm(next_v - v)))
        k, v = keep * k + (1 - keep) * next_k, keep * v + (1 - keep) * next_v
        V_k, V_v = keep * V_k + (1 - keep) * next_V_k, keep * V_v + (1 - keep) * next_V_v
        if moved < ACCURACY.bayes_amp_tolerance:
            return Posterior(k, v, V_k, True)
    return Posterior(k, v, V_k, False)


class Places(Protocol):
    """What a task says of the place of the relevant token, given the score fields w of its tokens."""

    def scores(self, w_chi: np.ndarray, residual: np.ndarray, T: float) -> Scores: ...

    def without_label(self, w_chi: np.ndarray) -> np.ndarray:
        """Return the posterior of the place before the label is known, (n, length)."""
        ...


@route("posterior of places", name="shifted", task=SpikedSLR)
class ShiftedPlaces:
    """Places of the spiked task; the uncertainty `s` of the score drops out."""

    def __init__(self, snr: float, s: float) -> None:
        self.snr = snr

    def scores(self, w_chi: np.ndarray, residual: np.ndarray, T: float) -> Scores:
        """Return g_k = sqrt(mu) pi and g_v = pi residual / T; precisions are minus the divergences."""
        pi = special.softmax(math.sqrt(self.snr) * w_chi - residual**2 / (2 * T), axis=1)
        spread = pi * (1 - pi)
        precision_v = -float((spread * (residual / T) ** 2 - pi / T).sum())
        return Scores(math.sqrt(self.snr) * pi, pi * residual / T, -self.snr * float(spread.sum()), precision_v)

    def without_label(self, w_chi: np.ndarray) -> np.ndarray:
        return special.softmax(math.sqrt(self.snr) * w_chi, axis=1)


@route("posterior of places", name="tilted", task=MaxSLR)
class TiltedPlaces:
    """Places of the max task, with scores of uncertainty `s`."""

    def __init__(self, snr: float, s: float) -> None:
        self.noise = PlaceNoise(snr, s)

    def scores(self, w_chi: np.ndarray, residual: np.ndarray, T: float) -> Scores:
        r"""Return $g_{k,l} = \frac1Z\sum_mN_m\partial_l\bar P_m$, and g_v as on the spiked task.

        The precision of the key is $\sum|g_k|^2$, whose mean at Bayes-optimal weights is minus that of the divergence,
        and which is never negative.
        """
        P, slope = self.noise(w_chi)
        log_N = -(residual**2) / (2 * T)
        N = np.exp(log_N - log_N.max(axis=1, keepdims=True))
        Z = np.sum(P * N, axis=1, keepdims=True)
        pi, g_k = P * N / Z, (N[:, None, :] @ slope)[:, 0] / Z
        precision_v = -float((pi * (1 - pi) * (residual / T) ** 2 - pi / T).sum())
        return Scores(g_k, pi * residual / T, float((g_k**2).sum()), precision_v)

    def without_label(self, w_chi: np.ndarray) -> np.ndarray:
        return self.noise(w_chi)[0]


class PlaceNoise:
    r"""eq:max-channel. $\bar P_l(w) = E\prod_{j\ne l}F(w_l - w_j + U)$ and its slopes $\partial_j\bar P_l$, where
    $U = sg + \Gamma/\mu$ has distribution F.
    """

    def __init__(self, snr: float, s: float) -> None:
        soft = 0.0 if math.isinf(snr) else 1 / max(snr, 1e-100)
        wide = max(s, soft)
        self.t = lattice(-9.0 * s - 4.5 * soft, 9.0 * s + 30.0 * soft, 0.01 * wide)
        if math.isinf(snr):
            self.p = np.exp(-((self.t / s) ** 2) / 2) / (math.sqrt(2 * math.pi) * s)
            self.F = special.ndtr(self.t / s)
        elif snr * s < 1:
            g, w = trapezoid_rule(64)
            left = np.exp(np.minimum(snr * (s * g - self.t[:, None]), 700.0))
            self.p, self.F = snr * (left * np.exp(-left)) @ w, np.exp(-left) @ w
        else:  # the Gumbel variable Gamma as a function of a normal one with the same quantiles
            g, w = trapezoid_rule(96)
            at = (self.t[:, None] + soft * np.log(-special.log_ndtr(g))) / s
            self.p = np.exp(-(at**2) / 2) @ w / (math.sqrt(2 * math.pi) * s)
            self.F = special.ndtr(at) @ w
        every = 40
        self.x, self.weight = self.t[::every], every * 0.01 * wide * self.p[::every]

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return P (n, length) and slope[:, l, j] = d P_l / d w_j (n, length, length), in chunks."""
        chunks = math.ceil(len(w) * w.shape[1] * max(1, w.shape[1] - 1) * len(self.x) / ACCURACY.bayes_amp_chunk)
        parts = [self._chunk(part) for part in np.array_split(w, max(1, min(chunks, len(w))))]
        return np.concatenate([P for P, _ in parts]), np.concatenate([slope for _, slope in parts])

    def _chunk(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        length = w.shape[1]
        own = np.arange(length)
        others = np.array([np.delete(own, place) for place in own])
        at = (w[:, :, None] - w[:, others])[..., None] + self.x
        F = np.maximum(np.interp(at, self.t, self.F, 0.0, 1.0), 1e-300)
        hazard = np.interp(at, self.t, self.p, 0.0, 0.0) / F
        share = np.prod(F, axis=2) * self.weight
        slope = np.zeros((len(w), length, length))
        slope[:, own[:, None], others] = -(hazard @ share[..., None])[..., 0]
        slope[:, own, own] = -slope.sum(axis=2)
        return np.maximum(share.sum(axis=2), 1e-300), slope


def _test_error(
    task: SingleLocation, key: Any, samples: int, k_star: np.ndarray, v_star: np.ndarray, posterior: Posterior
) -> float:
    """Return the mean squared error on fresh sequences; a prediction is the mean of the value fields over the posterior
    of the place."""
    places: Places = the("posterior of places", task=task)(task.snr, math.sqrt(posterior.key_var))
    mean = 0.0
    for length, probability in task.length_law:

        def errors(key: Any, n: int, length: int = length) -> np.ndarray:
            teachers = jnp.asarray(k_star), jnp.asarray(v_star)
            x, y, _ = (np.asarray(part) for part in task.sample(key, *teachers, n, length))
            place = places.without_label(x @ posterior.k)
            return (y - np.sum(place * (x @ posterior.v), axis=1)) ** 2

        total = sum_chunks(errors, key, (length, 0), samples, length * len(k_star), np.sum)
        mean += probability * float(total) / samples
    return mean

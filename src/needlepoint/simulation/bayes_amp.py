"""Approximate message passing for the Bayes-optimal predictor of spiked single-location regression."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.lowering import lower
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.models.activations import Softmax
from needlepoint.simulation.risks import attention_errors, simulate_known_teachers
from needlepoint.simulation.simulating import Options
from needlepoint.simulation.vectors import frames
from needlepoint.tasks.single_location import SpikedSLR

_LARGEST = 4e8  # numbers in a data set (3.2 GB)
_STEPS = 400
_DAMPING = 0.5  # undamped, a mode off the invariant manifold grows at finite d
_TOLERANCE = 1e-4  # of a step; below it runs at small alpha may circle


class Data(NamedTuple):
    """Sequences of one length: tokens (n, length, d), labels (n,)."""

    x: np.ndarray
    y: np.ndarray


@rule("simulate", SpikedSLR, None, BayesOptimal)
def simulate_bayes(task: SpikedSLR, model: None, learner: BayesOptimal, options: Options) -> Measurement:
    """AMP on fresh data a repeat, its risk on fresh test sequences; with alpha None the teachers are known."""
    if learner.alpha is None:
        return simulate_known_teachers(task, model, learner, options)
    if task.relevant_std != 1.0:
        raise NoTheory(f"no AMP for relevant_std={task.relevant_std:g}; relevant_std=1 has one.")
    if task.noise_var <= 0:
        raise InvalidParameter(f"{task!r}: BayesOptimal(alpha=...) needs noise > 0 (see predict).")
    n = round(learner.alpha * options.d)
    mean_length = sum(length * p for length, p in task.length_law)
    if n * mean_length * options.d > _LARGEST or n < 1:
        raise InvalidParameter(
            f"simulate(d={options.d}): {n} sequences of {mean_length:g} tokens are {n * mean_length * options.d:.3g} "
            f"numbers; there must be at least one sequence and at most {_LARGEST:.3g} numbers."
        )
    means, found, unfinished = [], [], 0
    for repeat in range(options.repeats):
        k_star, v_star = frames(np.random.default_rng([options.seed, 5, repeat]), 1, options.d, 2)[0]
        key = jax.random.fold_in(jax.random.key(options.seed), repeat)
        data = sample(task, key, k_star, v_star, n)
        k, v, done = amp(task, learner.alpha, data)
        unfinished += not done
        weights = (k_star, v_star, math.sqrt(task.snr) * k, v)
        means.append(attention_errors(task, Softmax, {}, jax.random.fold_in(key, 1 << 20), options.samples, *weights))
        found.append([k @ k_star, v @ v_star, v @ k_star, k @ v_star, k @ v, k @ k, v @ v])
        options.progress((repeat + 1) / options.repeats)
    risk, overlaps = mean_estimate(np.array(means)), np.array(found)
    names = ("key", "value", "value_on_key", "key_on_value", "key_dot_value", "key_sq", "value_sq")
    estimates = {name: mean_estimate(overlaps[:, i]) for i, name in enumerate(names)}
    note = f"{unfinished} of {options.repeats} runs of AMP did not settle in {_STEPS} steps."
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


def sample(task: SpikedSLR, key: Any, k_star: np.ndarray, v_star: np.ndarray, n: int) -> list[Data]:
    """n sequences, by length; the numbers of each length are those expected, rounded."""
    shares = np.array([p for _, p in task.length_law])
    ends = np.round(np.cumsum(shares) * n).astype(int)
    counts = np.diff(np.concatenate([[0], ends]))
    law, parts = lower(task)[1], []
    for (length, _), count in zip(task.length_law, counts, strict=True):
        if count:
            teachers = jnp.asarray(k_star), jnp.asarray(v_star)
            x, y, _ = task.draw(jax.random.fold_in(key, length), *teachers, int(count), length, law)
            parts.append(Data(np.asarray(x), np.asarray(y)))
    return parts


def amp(task: SpikedSLR, alpha: float, data: list[Data]) -> tuple[np.ndarray, np.ndarray, bool]:
    r"""eq:bayes-amp. $w = Xk - V g$, $\Lambda = -\frac1d\sum\mathrm{div}\,g$, $k \leftarrow (X^Tg/d + \Lambda_kk)/
    (1 + \alpha\mu + \Lambda_k)$ and the same for v without $\alpha\mu$, damped; posterior means of k* and v*.
    """
    d = data[0].x.shape[2]
    k, v, V_k, V_v = np.zeros(d), np.zeros(d), 1.0, 1.0
    old = [(np.zeros(part.x.shape[:2]), np.zeros(part.x.shape[:2])) for part in data]
    for step in range(_STEPS):
        pull_k, pull_v, Lam_k, Lam_v, new = np.zeros(d), np.zeros(d), 0.0, 0.0, []
        T = task.noise_var + V_v
        for part, (g_k, g_v) in zip(data, old, strict=True):
            w_chi, w_z = part.x @ k - V_k * g_k, part.x @ v - V_v * g_v
            residual = part.y[:, None] - w_z
            pi = special.softmax(math.sqrt(task.snr) * w_chi - residual**2 / (2 * T), axis=1)
            g_k, g_v = math.sqrt(task.snr) * pi, pi * residual / T
            spread = pi * (1 - pi)
            Lam_k -= task.snr * float(spread.sum()) / d
            Lam_v -= float((spread * (residual / T) ** 2 - pi / T).sum()) / d
            pull_k += np.tensordot(g_k, part.x, 2) / d
            pull_v += np.tensordot(g_v, part.x, 2) / d
            new.append((g_k, g_v))
        old = new
        next_V_k, next_V_v = 1 / (1 + alpha * task.snr + Lam_k), 1 / (1 + max(Lam_v, 0.0))
        next_k, next_v = next_V_k * (pull_k + Lam_k * k), next_V_v * (pull_v + max(Lam_v, 0.0) * v)
        moved = max(float(np.linalg.norm(next_k - k)), float(np.linalg.norm(next_v - v)))
        keep = _DAMPING if step else 0.0
        k, v = keep * k + (1 - keep) * next_k, keep * v + (1 - keep) * next_v
        V_k, V_v = keep * V_k + (1 - keep) * next_V_k, keep * V_v + (1 - keep) * next_V_v
        if moved < _TOLERANCE:
            return k, v, True
    return k, v, False

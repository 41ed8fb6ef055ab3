"""The Bayes-optimal predictor from finitely many samples of spiked single-location regression: state evolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Prediction, Progress, silent
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.models.activations import Softmax
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory import kernel_moments
from needlepoint.theory.predicting import Options
from needlepoint.theory.spiked_posterior import PosteriorMeans, posterior_means

UNINFORMED, INFORMED = (1e-2, 1e-2), (1 - 1e-3, 1 - 1e-4)
"""Overlaps that the two branches start from."""

SEARCH, FINAL = 2.0, 1.0
"""Coarseness of the integrals while iterating, and of the check at the end."""

_TOLERANCE = 1e-9
_MOST = 400  # iterations
_NEAR = 1e-3  # size of a step from which Newton's method takes over
_APART = 1e-4  # overlaps that differ by more are two branches


@dataclass(frozen=True)
class Branch:
    """A fixed point of the state evolution: overlaps of the posterior means with the teachers."""

    start: str
    key: float
    value: float
    free_energy: float
    excess_risk: Estimate
    key_error: float
    value_error: float
    residual: float
    status: Status


@rule("predict", SpikedSLR, None, BayesOptimal)
def predict_bayes(task: SpikedSLR, model: None, learner: BayesOptimal, options: Options) -> Prediction:
    """The branch of larger free energy; where the other is the one that algorithms reach, a note says so."""
    if learner.alpha is None:
        from needlepoint.theory.bayes import predict_known

        return predict_known(task, model, learner, options)
    found = bayes_branches(task, learner.alpha, tol=options.tol, progress=options.progress)
    best = max(found, key=lambda branch: branch.free_energy)
    notes: tuple[str, ...] = ()
    if len(found) == 2 and best.start == "informed":
        other = found[0]
        notes = (
            f"hard phase: from uninformed starts algorithms reach another fixed point, with excess risk "
            f"{other.excess_risk.value:.6g} (overlaps {other.key:.4g}, {other.value:.4g}).",
        )
    elif len(found) == 2:
        notes = ("an informed start reaches another fixed point, of lower free energy: it is metastable.",)
    return Prediction(
        task,
        model,
        learner,
        {"risk": best.excess_risk + task.noise_var, "excess_risk": best.excess_risk},
        status=best.status,
        overlaps=Overlaps(best.key, best.value, key_sq=best.key, value_sq=best.value),
        overlaps_error={"key": best.key_error, "value": best.value_error},
        branch=best.start if len(found) == 2 else "unique",
        notes=notes,
        resolved=(task, model, learner),
        residual=best.residual,
        seed=options.seed,
    )


@float64
def bayes_branches(
    task: SpikedSLR, alpha: float, *, tol: float | None = None, progress: Progress = silent
) -> tuple[Branch, ...]:
    """The fixed points that uninformed and informed starts reach: one, or two where they differ.

    Algorithms reach the first; the Bayes-optimal one is that of larger free energy.
    """
    if not isinstance(task, SpikedSLR):
        raise NoTheory(f"no state evolution for {type(task).__name__} yet; SpikedSLR has one.")
    if task.relevant_std != 1.0:
        raise NoTheory(
            f"no state evolution for relevant_std={task.relevant_std:g} (a token's norm is informative); "
            "relevant_std=1 has one."
        )
    if task.noise_var <= 0:
        raise InvalidParameter(
            f"{task!r}: BayesOptimal(alpha=...) needs noise > 0 (without noise the likelihood of the label is a "
            "point); noise=1e-3 is close."
        )
    if not (isinstance(alpha, (int, float)) and 0 < alpha < math.inf):
        raise InvalidParameter(f"alpha={alpha!r}: alpha must be > 0 and finite (it is the number of samples over d).")
    low = _branch(task, alpha, "uninformed", UNINFORMED, tol or _TOLERANCE)
    progress(0.5)
    high = _branch(task, alpha, "informed", INFORMED, tol or _TOLERANCE)
    apart = max(abs(low.key - high.key), abs(low.value - high.value))
    return (low, high) if apart > _APART else (low,)


def evolve(
    task: SpikedSLR, alpha: float, q: np.ndarray, coarseness: float = SEARCH
) -> tuple[np.ndarray, PosteriorMeans]:
    r"""eq:bayes-evolution. $\hat q_k = \alpha\mu E\sum\pi_l^2$, $\hat q_v = \frac\alpha TE\sum\pi_l^2\zeta_l^2$ and
    $q = \hat q/(1 + \hat q)$, with $T = \Delta^2 + 1 - q_v$.
    """
    means = posterior_means(task.snr, task.length_law, task.noise_var, float(q[0]), float(q[1]), coarseness)
    T = task.noise_var + 1.0 - q[1]
    q_hat = alpha * np.array([task.snr * means.squares, means.residuals / T])
    return q_hat / (1 + q_hat), means


def free_energy(task: SpikedSLR, alpha: float, q: np.ndarray, means: PosteriorMeans) -> float:
    r"""eq:bayes-free-energy. $\Phi = \frac12\sum_a[q_a + \log(1 - q_a)] + \alpha\Psi$, $\Psi = E\log\frac1L\sum_l
    e^{\sqrt\mu w_{\chi,l} - \mu q_k/2}N(y; w_{z,l}, T)$; its stationary points are the fixed points.
    """
    T = task.noise_var + 1.0 - q[1]
    place = sum(p * math.log(n) for n, p in task.length_law)
    psi = means.log_sum - place - task.snr * q[0] / 2 - 0.5 * math.log(2 * math.pi * T)
    return float(0.5 * np.sum(q + np.log1p(-q)) + alpha * psi)


def _branch(task: SpikedSLR, alpha: float, start: str, q0: tuple[float, float], tol: float) -> Branch:
    """Iterate, leaping most of the way that is left of a geometric approach, and end with Newton's method."""
    q, before = np.array(q0), np.full(2, np.nan)
    for _ in range(_MOST):
        step = evolve(task, alpha, q)[0] - q
        size = float(np.max(np.abs(step)))
        if size < _NEAR:
            break
        ratio = float(step @ before) / float(before @ before) if np.all(np.isfinite(before)) else 0.0
        # the map is increasing, so that the approach is from one side; a short leap stays on it
        leap = 1 / (1 - ratio) if 0.3 < ratio < 0.97 else 1.0
        q, before = np.clip(q + (1 + 0.7 * (leap - 1)) * step, 1e-9, 1 - 1e-12), step
        if leap > 1:
            before = np.full(2, np.nan)
    q, jacobian, residual = _newton(task, alpha, q, tol)
    # the error: where finer integrals move the fixed point, and what is left of the iteration
    fine, means = evolve(task, alpha, q, FINAL)
    amplify = np.linalg.inv(np.eye(2) - jacobian)
    moved = amplify @ (fine - q)
    errors = np.abs(moved) + 1e-14
    excess = [test_excess(task, x) for x in (q, np.clip(q + moved, 0.0, 1.0))]
    return Branch(
        start,
        float(q[0]),
        float(q[1]),
        free_energy(task, alpha, q, means),
        Estimate(excess[0], abs(excess[1] - excess[0]) + 1e-13),
        float(errors[0]),
        float(errors[1]),
        residual,
        Status.CONVERGED if residual <= tol else Status.MAX_STEPS,
    )


def _newton(task: SpikedSLR, alpha: float, q: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The fixed point near q, the Jacobian of the map there, and the residual in units of 1 - q."""
    jacobian, residual = np.zeros((2, 2)), math.inf
    for _ in range(8):
        here = evolve(task, alpha, q)[0]
        new = float(np.max(np.abs(here - q) / (1 - q)))
        if not new < residual:
            break
        residual = new
        if residual <= 0.01 * tol:
            break
        h = 1e-5 * np.minimum(q, 1 - q)
        columns = [
            (evolve(task, alpha, q + h * e)[0] - evolve(task, alpha, q - h * e)[0]) / (2 * h[i])
            for i, e in enumerate(np.eye(2))
        ]
        jacobian = np.stack(columns, axis=1)
        q = np.clip(q + np.linalg.solve(np.eye(2) - jacobian, here - q), 1e-12, 1 - 1e-14)
    return q, jacobian, residual


def test_excess(task: SpikedSLR, q: np.ndarray) -> float:
    r"""eq:bayes-test. $1 - q_vE|\sigma|^2$ of softmax attention with key $\sqrt\mu\hat k$: the Bayes risk at snr
    $\mu q_k$, with a value that is known in part.
    """
    key, key_sq = math.sqrt(task.snr) * q[0], task.snr * q[0]
    means = kernel_moments.spiked(task, lambda x: Softmax.log_kernel(x, np), key, key_sq)
    assert means is not None
    return float(1.0 - q[1] * (means.weight_sq + means.others_sq))

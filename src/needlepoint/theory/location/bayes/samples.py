"""The Bayes-optimal predictor from finitely many samples of single-location regression: state evolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from needlepoint.core.dispatch import check_part, check_tolerance, rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.progress import watching
from needlepoint.core.results import Prediction, Progress, silent
from needlepoint.core.routes import SAMPLED, route, routes, the
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.bayes import given_teachers, max_posterior, spiked_posterior
from needlepoint.theory.location.bayes.accuracy import ACCURACY
from needlepoint.theory.location.bayes.spiked_posterior import FieldMeans

UNINFORMED, INFORMED = (1e-2, 1e-2), (1 - 1e-3, 1 - 1e-4)
"""Overlaps (q_k, q_v) that the two branches start from."""

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Branch:
    """A fixed point of the state evolution: overlaps of the posterior means with the teachers.

    >>> found = ndl.bayes_branches(ndl.SpikedSLR(2, snr=4.0, noise=0.2), 2.0)
    >>> len(found), f"{found[0].excess_risk.value:.3f}"
    (1, '0.171')
    """

    start: str
    key: float
    value: float
    free_energy: float
    excess_risk: Estimate
    key_error: float
    value_error: float
    residual: float
    status: Status

    def apart(self, other: Branch) -> bool:
        """Return whether the two are different fixed points, beyond the errors of both."""
        gaps = abs(self.key - other.key), abs(self.value - other.value)
        noise = self.key_error + other.key_error, self.value_error + other.value_error
        return any(gap > ACCURACY.apart + 2 * error for gap, error in zip(gaps, noise, strict=True))


@rule("predict", SpikedSLR, None, BayesOptimal)
@rule("predict", MaxSLR, None, BayesOptimal)
def predict_bayes(task: SingleLocation, model: None, learner: BayesOptimal, options: PredictionOptions) -> Prediction:
    """Return the branch of larger free energy; a note says where algorithms reach the other one."""
    if learner.alpha is None:
        return given_teachers.predict_known(task, model, learner, options)
    found = bayes_branches(task, learner.alpha, tol=options.tol, seed=options.seed, progress=options.progress)
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
@watching("bayes_branches")
def bayes_branches(
    task: SingleLocation, alpha: float, *, tol: float | None = None, seed: int = 0, progress: Progress = silent
) -> tuple[Branch, ...]:
    """Return the fixed points that uninformed and informed starts reach: one, or two where they differ.

    Algorithms reach the first; the Bayes-optimal one is that of larger free energy. `seed` chooses the points of the
    integrals that are sampled (the max task with three and more tokens).

    >>> found = ndl.bayes_branches(ndl.SpikedSLR(2, snr=4.0, noise=0.2), 2.0)
    >>> len(found), f"{found[0].excess_risk.value:.3f}"
    (1, '0.171')
    """
    check_tolerance("bayes_branches", tol)
    check_samples(task, alpha)
    low = branch(task, alpha, "uninformed", UNINFORMED, tol, seed)
    progress(0.5)
    high = branch(task, alpha, "informed", INFORMED, tol, seed)
    return (low, high) if low.apart(high) else (low,)


def check_samples(task: SingleLocation, alpha: float) -> None:
    """Raise if the state evolution does not cover this task and alpha."""
    check_part("bayes_branches", "task", task)
    if not routes("posterior means", task=task):
        raise NoTheory(f"no state evolution for {type(task).__name__}; SpikedSLR and MaxSLR have one.")
    if task.relevant_spread != 1.0:
        raise NoTheory(
            f"no state evolution for relevant_std={task.relevant_spread:g} (a token's norm is informative); "
            "relevant_std=1 has one."
        )
    if task.noise_var <= 0:
        raise InvalidParameter(
            f"{task!r}: BayesOptimal(alpha=...) needs noise > 0 (without noise the likelihood of the label is a "
            "point); noise=1e-3 is close."
        )
    if not (isinstance(alpha, (int, float)) and 0 < alpha < math.inf):
        raise InvalidParameter(f"alpha={alpha!r}: alpha must be > 0 and finite (it is the number of samples over d).")


def means(task: SingleLocation, q: np.ndarray, final: bool = False, seed: int = 0) -> FieldMeans:
    """Return the means of eq:spiked-scores or eq:max-posterior over a sequence, by coarse integrals unless `final`."""
    return the("posterior means", task=task)(task, q, final, seed)


route("posterior means", name="tilted", cost=SAMPLED, task=MaxSLR)(max_posterior.field_means)


@route("posterior means", name="shifted", task=SpikedSLR)
def _of_spiked(task: SpikedSLR, q: np.ndarray, final: bool, seed: int) -> FieldMeans:
    return spiked_posterior.field_means(task, q, final)


def evolve(alpha: float, found: FieldMeans) -> np.ndarray:
    r"""eq:bayes-evolution. Return the new overlaps (q_k, q_v), (rows, 2), a row for each scrambling.

    $\hat q_k = \alpha E|g_k|^2$, $\hat q_v = \alpha E|g_v|^2$ and $q = \hat q/(1 + \hat q)$.
    """
    q_hat = alpha * np.stack([found.key, found.value], axis=1)
    return q_hat / (1 + q_hat)


def free_energy(alpha: float, q: np.ndarray, found: FieldMeans) -> np.ndarray:
    r"""eq:bayes-free-energy. Return $\Phi = \frac12\sum_a[q_a + \log(1 - q_a)] + \alpha E\log Z$, (rows,).

    Its stationary points are the fixed points.
    """
    return 0.5 * np.sum(q + np.log1p(-q)) + alpha * found.log_evidence


def excess_risk(q: np.ndarray, found: FieldMeans) -> np.ndarray:
    r"""eq:bayes-test. Return $1 - q_vE|\sigma|^2$, (rows,), $\sigma$ the posterior of the place without the label."""
    return 1.0 - q[1] * found.weights_sq


def error_of(each: np.ndarray) -> float:
    """Return an error of the mean of all entries but the last, which is by coarser integrals.

    Three standard errors; where there is only one other entry, its distance to the last.
    """
    fine = each[:-1]
    if len(fine) > 1:
        return 3 * float(np.std(fine, ddof=1)) / math.sqrt(len(fine))
    return abs(float(each[0] - each[1])) + ACCURACY.samples_rounding


def branch(
    task: SingleLocation,
    alpha: float,
    start: str,
    q0: tuple[float, float],
    tol: float | None = None,
    seed: int = 0,
) -> Branch:
    """Return the fixed point that the iteration reaches from q0: by coarse integrals, then corrected by fine ones."""
    wanted = tol or TOLERANCE
    q, jacobian, settled = _search(task, alpha, np.array(q0), wanted, seed)
    amplify = np.linalg.inv(np.eye(2) - jacobian)
    corrections = 0 if settled else ACCURACY.corrections
    while True:
        found = means(task, q, True, seed)
        rows = evolve(alpha, found)
        center = rows.mean(axis=0)
        residual = float(np.max(np.abs(center - q) / (1 - q)))
        # a residual below a hundredth of the spread between scramblings is small enough
        noise = 0.01 * float(np.max(np.std(rows, axis=0) / (1 - q)))
        if residual <= max(wanted, noise) or corrections == ACCURACY.corrections:
            break
        q, corrections = inside(q + amplify @ (center - q)), corrections + 1
    h = 1e-4 * (1 - q[0])
    here, nearby = (means(task, q + x, False, seed) for x in (np.zeros(2), np.array([h, 0.0])))
    slope = float((nearby.weights_sq - here.weights_sq)[0]) / h
    # the fixed point that each scrambling alone would have, and in the last row that of the coarse integrals
    each = q + (np.concatenate([rows, evolve(alpha, here)]) - center) @ amplify.T
    squares = np.concatenate([found.weights_sq, here.weights_sq]) + slope * (each[:, 0] - q[0])
    # and how far the returned point still is from the fixed point of the fine integrals
    left = np.abs(amplify @ (center - q))
    left_risk = float(left[1] * np.mean(found.weights_sq) + q[1] * abs(slope) * left[0])
    key_error, value_error, risk_error = (
        error_of(x) + float(rest)
        for x, rest in ((each[:, 0], left[0]), (each[:, 1], left[1]), (1 - each[:, 1] * squares, left_risk))
    )
    risk = Estimate(float(np.mean(excess_risk(q, found))), risk_error)
    noisy = tol is not None and risk.error > tol
    status = Status.MAX_STEPS if residual > max(wanted, noise) else Status.NOISE_LIMITED if noisy else Status.CONVERGED
    energy = float(np.mean(free_energy(alpha, q, found)))
    return Branch(start, float(q[0]), float(q[1]), energy, risk, key_error, value_error, residual, status)


def inside(q: np.ndarray) -> np.ndarray:
    return np.clip(q, 1e-12, 1 - 1e-14)


def _search(
    task: SingleLocation, alpha: float, q: np.ndarray, tol: float, seed: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return a point (2,), the Jacobian (2, 2) of the map there, and whether it is a stable fixed point.

    Iterates the map, with leaps over most of the way that is left where steps shrink geometrically, and ends with
    Newton's method. Steps are of log(q / (1 - q)), in which overlaps near 1 move as freely as others.
    """
    z, near, before = np.log(q) - np.log1p(-q), ACCURACY.near, np.full(2, np.nan)
    for _ in range(ACCURACY.samples_most):
        found = means(task, q, False, seed)
        step = np.maximum(np.log(alpha * np.maximum([found.key[0], found.value[0]], 1e-300)), ACCURACY.lowest) - z
        size = float(np.max(np.abs(step)))
        near = ACCURACY.near if size > 10 * ACCURACY.near else near
        if size < near:
            end, jacobian, residual = newton(task, alpha, q, tol, seed)
            ahead = (
                np.all((end - q) * step > -1e-8)
                and np.max(np.abs(end - q) / (1 - q)) < ACCURACY.samples_far * size + 1e-8
            )
            if residual <= tol and ahead and float(np.max(np.abs(np.linalg.eigvals(jacobian)))) < 1:
                return end, jacobian, True
            near = size / 10
        # the map is increasing, so the iteration stays on one side of a fixed point, as does a leap that is not too
        # long; just past the end of a branch steps are small too, but no fixed point is ahead (`past`)
        ratio = float(step @ before) / float(before @ before + 1e-300) if np.all(np.isfinite(before)) else 0.0
        past = near < ACCURACY.near and ratio > 0.9
        leap = 10.0 if past else 1 + 0.7 * ratio / (1 - ratio) if 0.3 < ratio < 0.97 else 1.0
        leap = max(1.0, min(leap, 0.5 / (size + 1e-300)))
        z, before = z + leap * step, step if leap == 1 else np.full(2, np.nan)
        q = 1 / (1 + np.exp(-z))
    return q, np.zeros((2, 2)), False


def newton(
    task: SingleLocation, alpha: float, q: np.ndarray, tol: float, seed: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the fixed point near q, (2,), the Jacobian (2, 2) of the map there, and the residual in units of 1 - q."""
    jacobian, best, residual = np.zeros((2, 2)), q, math.inf
    for _ in range(8):
        here = evolve(alpha, means(task, q, False, seed))[0]
        new = float(np.max(np.abs(here - q) / (1 - q)))
        if not new < residual:
            break
        best, residual = q, new
        if residual <= 0.01 * tol:
            break
        h = 1e-5 * np.minimum(q, 1 - q)
        ends = [[evolve(alpha, means(task, q + a * h * e, False, seed))[0] for a in (1, -1)] for e in np.eye(2)]
        jacobian = np.stack([(up - down) / (2 * h[i]) for i, (up, down) in enumerate(ends)], axis=1)
        q = inside(q + np.linalg.solve(np.eye(2) - jacobian, here - q))
    return best, jacobian, residual

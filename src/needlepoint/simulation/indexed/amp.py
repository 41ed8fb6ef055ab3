"""Message passing for the attention-indexed model: every sequence answers the scores that the others make."""

from __future__ import annotations

import itertools

import numpy as np

from needlepoint.simulation.indexed.accuracy import ACCURACY
from needlepoint.simulation.indexed.one_sequence import Errors
from needlepoint.simulation.indexed.problem import Minimum, Problem


def amp(problem: Problem) -> Minimum:
    r"""eq:indexed-amp. $\omega = \mathcal A(S) - \Sigma g^{old}$, $g = (z^* - \omega)/\Sigma$ with $z^*$ of
    eq:indexed-proximal, $\hat\Sigma = -\frac2{d^2}\sum_\mu\mathrm{tr}\,\partial_\omega g$, $H = \mathcal A^\top(g)/d +
    \hat\Sigma S$, $S\leftarrow(H - 2\tilde\lambda)_+/\hat\Sigma$ and $\Sigma\leftarrow d^{-2}\sum_{ij}f[h_i, h_j]$,
    the divided differences of that map at the eigenvalues of $H$; $S\leftarrow H/(\hat\Sigma + 4\lambda)$ if direct.

    S, Sigma and g move half way in each step. A fixed point is a stationary point of the energy whatever Sigma is. The
    iteration stops where $\hat\Sigma$ is not positive; it has converged if the problem's residual is below its
    tolerance.
    """
    d, n, enough = problem.d, problem.n, problem.tolerance
    S, Sigma, g = np.zeros((d, d)), 1.0, np.zeros((n, problem.task.tokens, problem.task.tokens))
    step = 0
    for step in range(1, ACCURACY.amp_steps + 1):
        omega = _cavity(problem.scores(problem.data.x, S), Sigma, g)
        z, divergence = proximal(problem, omega, Sigma)
        keep = ACCURACY.amp_damping if step > 1 else 0.0  # the first step is not damped: S = 0 is worth nothing
        g = keep * g + (1 - keep) * (z - omega) / Sigma
        Sigma_hat = -2 * float(divergence.sum()) / d**2
        H = problem.pull(g) / d + Sigma_hat * S
        if not (0 < Sigma_hat < np.inf and np.all(np.isfinite(H))):
            return Minimum(S, problem.energy(S), False, step)
        target, wanted = _threshold(problem, H, Sigma_hat)
        moved = float(np.linalg.norm(target - S)) / (np.sqrt(d) * problem.unit)
        if moved <= enough and problem.residual(target) <= enough:
            return Minimum(target, problem.energy(target), True, step)
        S, Sigma = keep * S + (1 - keep) * target, keep * Sigma + (1 - keep) * wanted
    return Minimum(S, problem.energy(S), False, step)


def _cavity(scores: np.ndarray, Sigma: float, g: np.ndarray) -> np.ndarray:
    """Return the scores without each sequence's own influence (the Onsager term), (n, T, T)."""
    return scores - Sigma * g


def _threshold(problem: Problem, H: np.ndarray, Sigma_hat: float) -> tuple[np.ndarray, float]:
    """Return S (d, d) and Sigma from H. A divided difference of the soft threshold f is f' if both eigenvalues h and k
    are on one side of it, and f(h)/(h - k) across it."""
    if not problem.tied:
        return H / (Sigma_hat + 4 * problem.lam), 1 / (Sigma_hat + 4 * problem.lam)
    h, vectors = np.linalg.eigh(H)
    f = np.maximum(h - 2 * problem.trace_penalty, 0.0) / Sigma_hat
    above, below = h[f > 0], h[f == 0]
    across = np.sum(f[f > 0][:, None] / (above[:, None] - below)) if len(below) else 0.0
    return (vectors * f) @ vectors.T, float(len(above) ** 2 / Sigma_hat + 2 * across) / problem.d**2


def proximal(problem: Problem, omega: np.ndarray, Sigma: float) -> tuple[np.ndarray, np.ndarray]:
    r"""eq:indexed-proximal. $z^* = \arg\min_z\ell(z) + \|z - \omega\|_F^2/(4\Sigma)$ over symmetric z, and
    $\mathrm{tr}\,\partial_\omega g = \mathrm{tr}[(1 + 2\Sigma\nabla^2\ell)^{-1} - 1]/\Sigma$ for each sequence.

    Newton's method starts from omega and from scores that reproduce the labels; the lower minimum counts.
    """
    basis, errors = symmetric_basis(problem.task.tokens), problem.training
    fitting = problem.data.noisy * (problem.task.beta_star / problem.model.beta if problem.task.tokens > 1 else 1.0)
    z, value = _descend(errors, basis, omega, Sigma, omega)
    other, lower = _descend(errors, basis, omega, Sigma, fitting)
    z = np.where((lower < value)[:, None, None], other, z)
    inverse = np.linalg.inv(np.eye(len(basis)) + 2 * Sigma * _curvature(errors, basis, z))
    return z, (np.trace(inverse, axis1=1, axis2=2) - len(basis)) / Sigma


def _descend(
    errors: Errors, basis: np.ndarray, omega: np.ndarray, Sigma: float, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum that each sequence reaches from `start`, (n, T, T), and its height (n,).

    Newton's method with the absolute values of the curvatures; steps are halved until they do not lead up. Sequences
    that have converged are left alone.
    """
    ends, values, rows = start.copy(), np.full(len(start), np.inf), np.arange(len(start))
    z, floor = start, 1e-3 / Sigma
    for _ in range(ACCURACY.newton_steps):
        here, at = errors.of(rows), omega[rows]
        value, slope = _moreau(here, at, Sigma, z)
        bend, axes = np.linalg.eigh(_curvature(here, basis, z) + np.eye(len(basis)) / (2 * Sigma))
        along = np.einsum("nij,ni->nj", axes, np.einsum("iab,nab->ni", basis, slope))
        step = -np.einsum("nij,nj,iab->nab", axes, along / np.maximum(np.abs(bend), floor), basis, optimize=True)
        for _ in range(ACCURACY.halvings):
            up = _moreau(here, at, Sigma, z + step)[0] > value + 1e-14 * (1 + value)  # rounding
            if not up.any():
                break
            step[up] /= 2
        z = z + step
        ends[rows], values[rows] = z, value
        moving = np.max(np.abs(step), axis=(1, 2)) > ACCURACY.amp_still * (1 + np.max(np.abs(z), axis=(1, 2)))
        rows, z = rows[moving], z[moving]
        if not len(rows):
            break
    return ends, values


def _moreau(errors: Errors, omega: np.ndarray, Sigma: float, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    loss, slope = errors.losses_and_slopes(z)
    return loss + np.sum((z - omega) ** 2, axis=(1, 2)) / (4 * Sigma), slope + (z - omega) / (2 * Sigma)


def _curvature(errors: Errors, basis: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the second derivatives in the coordinates of the basis, (n, k, k)."""
    return np.einsum("iab,nabc,jac->nij", basis, errors.curvatures(z), basis, optimize=True)


def symmetric_basis(T: int) -> np.ndarray:
    """Return an orthonormal basis of the symmetric matrices, (T (T + 1) / 2, T, T)."""
    basis = []
    for a, b in itertools.combinations_with_replacement(range(T), 2):
        matrix = np.zeros((T, T))
        matrix[a, b] = matrix[b, a] = 1.0 if a == b else np.sqrt(0.5)
        basis.append(matrix)
    return np.array(basis)

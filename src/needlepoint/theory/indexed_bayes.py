"""The best possible estimate of the matrix of the attention-indexed model: an explicit curve."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize

from needlepoint.numerics.freeprob import FreeSum
from needlepoint.tasks.attention_indexed import AttentionIndexed

_WIDEST = 1e12  # of the noise, over the mean square of the target


def samples_for(task: AttentionIndexed, tau: float) -> float:
    r"""eq:indexed-bayes. $2N\alpha = 1 - \frac{4\pi^2}3\tau\int\rho_\tau^3 + \frac\Delta{2\tau}$, with $\rho_\tau$ the
    density of the eigenvalues of $S_0 + \sqrt\tau Z$: the samples at which the data are worth as much as $S_0$ seen
    through noise of variance $\tau$."""
    nodes = task.target.law.nodes(math.sqrt(tau))
    cube = float(nodes.dx @ nodes.density**3)
    return (1 - 4 * math.pi**2 / 3 * tau * cube + task.noise_var / (2 * tau)) / (2 * task.components)


def least_error(task: AttentionIndexed, tau: float) -> float:
    r"""The error of the best denoiser, $\tau - \frac{4\pi^2}3\tau^2\int\rho_\tau^3 = 2N\alpha\tau - \Delta/2$."""
    return 2 * task.components * samples_for(task, tau) * tau - task.noise_var / 2


def noise_for(task: AttentionIndexed, alpha: float) -> float:
    """The tau of eq:indexed-bayes at alpha; 0 where nothing is left to learn."""
    law: FreeSum = task.target.law
    if task.noise_var == 0 and alpha >= recovery(task):
        return 0.0

    def gap(log_tau: float) -> float:
        return math.log(samples_for(task, math.exp(log_tau)) / alpha)

    low = high = math.log(law.square)
    while gap(high) > 0 and high < math.log(_WIDEST * law.square):
        high += 2.0
    while gap(low) < 0:
        low -= 2.0
    return math.exp(optimize.root_scalar(gap, bracket=(low, high), xtol=1e-14, rtol=1e-14).root)


def recovery(task: AttentionIndexed) -> float:
    r"""eq:bayes-recovery. $\alpha = \frac{k(2 - k)}{2N}$ with $k$ the rank of the target over d, at most 1: one
    equation for each degree of freedom of a symmetric matrix of that rank."""
    k = task.target.rank
    return k * (2 - k) / (2 * task.components)


def curve(task: AttentionIndexed, taus: np.ndarray) -> np.ndarray:
    """(alpha, error) along the explicit curve, (len(taus), 2)."""
    alphas = np.array([samples_for(task, float(t)) for t in taus])
    return np.stack([alphas, 2 * task.components * alphas * taus - task.noise_var / 2], axis=1)

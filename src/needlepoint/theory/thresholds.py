"""Thresholds of the attention-indexed model: where labels can no longer be fitted, and where the target is found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

from needlepoint.core.errors import NoTheory
from needlepoint.core.specs import Spec
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.numerics.free_atoms import Atoms
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory import indexed_bayes


@dataclass(frozen=True)
class Thresholds:
    """Sequences over d squared. `interpolation`: the most whose labels are all fitted as the penalty vanishes;
    `recovery`: the fewest from which the model finds S0 as the penalty vanishes; `bayes_recovery`: the fewest from
    which anything can. Infinite where noise never lets S0 be found."""

    interpolation: float
    recovery: float
    bayes_recovery: float


@threadpool_limits.wrap(limits=1, user_api="blas")  # its sums are small, and slower with more threads
def thresholds(task: Spec, model: Spec) -> Thresholds:
    """Where training on the attention-indexed model changes its nature."""
    if not isinstance(task, AttentionIndexed) or not isinstance(model, (TiedAttention, DirectAttention)):
        raise NoTheory(
            f"no thresholds for {type(task).__name__} with {type(model).__name__}; AttentionIndexed with TiedAttention "
            "or DirectAttention has them."
        )
    directions = 2 * task.components
    if isinstance(model, DirectAttention):
        fitted = found = 1 / directions
    else:
        fitted, found = interpolation(task), _least_trace(task.target.rank)[0] / directions
    if task.noise_var > 0:
        return Thresholds(fitted, math.inf, math.inf)
    return Thresholds(fitted, found, indexed_bayes.recovery(task))


def interpolation(task: AttentionIndexed) -> float:
    r"""eq:interpolation. $\alpha = \frac{\partial_1J(\delta, 0)}{4N\delta}$ at the root of $Q_0 + \Delta/2 = J(\delta,
    0) - \frac\delta2\partial_1J(\delta, 0)$; without noise $\frac{1 - (1 - k)^2/2}{2N}$, k the rank of the target
    over d."""
    law, directions = task.target.law, 2 * task.components
    if task.noise_var == 0:
        return (1 - (1 - task.target.rank) ** 2 / 2) / directions
    Q = law.square + task.noise_var / 2

    def gap(log_delta: float) -> float:
        at = law.truncated(math.exp(log_delta), 0.0)
        return float(at.J - math.exp(log_delta) / 2 * at.d1) - Q

    low = high = math.log(Q) / 2
    while gap(high) < 0:
        high += 1.0
    while gap(low) > 0:
        low -= 1.0
    delta = math.exp(optimize.root_scalar(gap, bracket=(low, high), xtol=1e-14, rtol=1e-14).root)
    return float(law.truncated(delta, 0.0).d1) / (2 * delta * directions)


def _least_trace(k: float) -> tuple[float, float]:
    r"""eq:recovery. $\min_th(t)$, $h(t) = kt^2 + 1 - (1 - k)^2 + (1 - k)\int(cu - t)_+^2$ over a semicircle, $c =
    \sqrt{1 - k}$, and the ray t of the minimum."""
    if k >= 1:
        return 1.0, 0.0
    semicircle, c = Atoms([0.0]), math.sqrt(1 - k)

    def slope(t: float) -> float:
        return 2 * k * t + (1 - k) * c * float(semicircle.truncated(1.0, t / c).d2)

    t = optimize.root_scalar(slope, bracket=(0.0, 2 * c), xtol=1e-14, rtol=1e-14).root
    rest = float(np.asarray(semicircle.truncated(1.0, t / c).J))
    return k * t * t + 1 - (1 - k) ** 2 + (1 - k) ** 2 * rest, t

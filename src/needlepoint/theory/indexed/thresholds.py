"""Thresholds of the attention-indexed model: where labels can no longer be fitted, and where the target is found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

from needlepoint.core.dispatch import check_part, check_untraced
from needlepoint.core.errors import NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.routes import route, routes, the
from needlepoint.core.specs import Spec
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.numerics.freeprob import FreeSum
from needlepoint.numerics.gaussian import legendre_rule
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed import bayes as indexed_bayes
from needlepoint.theory.indexed.accuracy import ACCURACY

_NODES, _WEIGHTS = legendre_rule(40)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds in sequences over d squared, each with its error.

    `interpolation`: the most sequences whose labels are all fitted as the penalty vanishes (for a task without noise:
    as a small noise vanishes too). `recovery`: the fewest from which the model finds S0 as the penalty vanishes.
    `bayes_recovery`: the fewest from which any method can; both are infinite with noise. Where W is too narrow for the
    solution only bounds are known: the value is their middle, the error half their distance, and `notes` says so.

    >>> found = ndl.thresholds(ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5), ndl.TiedAttention())
    >>> print(found)
    interpolation 0.306964205718, recovery inf, Bayes recovery inf
    """

    interpolation: Estimate
    recovery: Estimate
    bayes_recovery: Estimate
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = f"interpolation {self.interpolation}, recovery {self.recovery}, Bayes recovery {self.bayes_recovery}"
        return ". ".join((known, *self.notes))


class Edge(NamedTuple):
    """A threshold of a layer of full width: sequences over d squared, and the solution's rank over d and noise delta
    there."""

    alpha: Estimate
    rank: float
    delta: float = 0.0


NEVER = Estimate(math.inf)


@threadpool_limits.wrap(limits=1, user_api="blas")  # its sums are small, and slower with more threads
def thresholds(task: Spec, model: Spec) -> Thresholds:
    """Return up to where training on the attention-indexed model fits all labels, and from where on the target is
    recovered, in sequences over d squared.

    >>> found = ndl.thresholds(ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5), ndl.TiedAttention())
    >>> print(found)
    interpolation 0.306964205718, recovery inf, Bayes recovery inf
    """
    check_untraced("thresholds")
    check_part("thresholds", "task", task)
    check_part("thresholds", "model", model)
    if not routes("thresholds", task=task, model=model):
        raise NoTheory(
            f"no thresholds for {type(task).__name__} with {type(model).__name__}; AttentionIndexed with TiedAttention "
            "or DirectAttention has them."
        )
    return the("thresholds", task=task, model=model)(task, model)


@route("thresholds", name="direct", task=AttentionIndexed, model=DirectAttention)
def _of_direct(task: AttentionIndexed, model: DirectAttention) -> Thresholds:
    task.check_temperature(model.beta)
    fitted = _rounded(1 / (2 * task.components))
    return Thresholds(fitted, NEVER if task.noise_var > 0 else fitted, _bayes(task))


@route("thresholds", name="tied", task=AttentionIndexed, model=TiedAttention)
def _of_tied(task: AttentionIndexed, model: TiedAttention) -> Thresholds:
    task.check_temperature(model.beta)
    fitted, notes = _narrow_interpolation(task, model.width_ratio)
    if task.noise_var > 0:
        return Thresholds(fitted, NEVER, NEVER, notes)
    found, more = _narrow_recovery(task, model.width_ratio)
    return Thresholds(fitted, found, _bayes(task), notes + more)


def _bayes(task: AttentionIndexed) -> Estimate:
    return NEVER if task.noise_var > 0 else _rounded(indexed_bayes.recovery(task))


def interpolation(task: AttentionIndexed) -> Edge:
    r"""eq:interpolation. Return the interpolation threshold of a layer of full width.

    $\alpha = \frac{\partial_1J(\delta, 0)}{4N\delta}$ at the root of $Q_0 + \Delta/2 = J(\delta, 0) -
    \frac\delta2\partial_1J(\delta, 0)$, which is the overlap of the positive part with $S_0$; without noise $\frac{1 -
    (1 - k)^2/2}{2N}$, k the rank of the target over d.
    """
    law, directions, k = task.target.law, 2 * task.components, task.target.rank
    clean = (0.5 + k - k * k / 2) / directions
    if task.noise_var == 0:
        return Edge(_rounded(clean), (1 + k) / 2)
    Q = law.square + task.noise_var / 2

    def gap(log_delta: float) -> float:
        return float(law.truncated(math.exp(log_delta), 0.0).overlap) - Q

    def alpha(log_delta: float) -> float:
        delta = math.exp(log_delta)
        return float(law.truncated(delta, 0.0).d1) / (2 * delta * directions)

    def crossing(shift: float) -> float | None:
        """Return log(delta) where the gap equals `shift`; None where that delta is lost in rounding."""
        low = high = math.log(Q) / 2
        while gap(high) < shift:
            high += 1.0
        while gap(low) > shift:
            low -= 1.0
            if low < math.log(ACCURACY.thresholds_least * law.square) / 2:
                return None
        return optimize.root_scalar(lambda x: gap(x) - shift, bracket=(low, high), xtol=1e-14, rtol=1e-14).root

    # the error of the threshold: how far it moves if rounding shifts the gap up or down
    root, *ends = (
        crossing(shift) for shift in (0.0, -ACCURACY.thresholds_rounding * Q, ACCURACY.thresholds_rounding * Q)
    )
    value, *others = (clean if x is None else alpha(x) for x in (root, *ends))
    error = max(abs(other - value) for other in others) + ACCURACY.thresholds_rounding * value
    if root is None:
        return Edge(Estimate(value, error), (1 + k) / 2)
    delta = math.exp(root)
    return Edge(Estimate(value, error), min(1.0, float(law.truncated(delta, 0.0).above)), delta)


def recovery(task: AttentionIndexed) -> Edge:
    """eq:recovery. Return the recovery threshold of a layer of full width, without noise."""
    k = task.target.rank
    least, theta = least_trace(k)
    noise = (theta - math.sin(theta) * math.cos(theta)) / math.pi  # the mass of a semicircle above 2 cos(theta)
    return Edge(_rounded(least / (2 * task.components)), min(1.0, k + (1 - k) * noise))


def least_trace(k: float) -> tuple[float, float]:
    r"""eq:recovery. Return $\min_th(t)$, $h(t) = kt^2 + 1 - (1 - k)^2 + (1 - k)\int(cu - t)_+^2$ over a semicircle, $c
    = \sqrt{1 - k}$, and the angle $\theta$ of the minimum, $t = 2c\cos\theta$."""
    if k >= 1:
        return 1.0, math.pi / 2

    def slope(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (1 - k) * _beyond(theta, 1) - 2 * k * math.cos(theta)

    low = high = math.log(math.pi / 2)
    while slope(low) > 0:
        low -= 5.0
    theta = math.exp(optimize.root_scalar(slope, bracket=(low, high), xtol=1e-15, rtol=1e-15).root)
    least = 4 * k * (1 - k) * math.cos(theta) ** 2 + k * (2 - k) + (1 - k) ** 2 * _beyond(theta, 2)
    return least, theta


def _beyond(theta: float, power: int) -> float:
    r"""Return $\int(u - 2\cos\theta)_+^p$ over a semicircle, with $u = 2\cos\phi$; sines of half angles keep all digits
    where $\theta$ is small."""
    phi = theta * _NODES
    above = 4 * np.sin((theta + phi) / 2) * np.sin((theta - phi) / 2)
    return float(theta * _WEIGHTS @ (above**power * 2 / math.pi * np.sin(phi) ** 2))


def _narrow_interpolation(task: AttentionIndexed, width: float) -> tuple[Estimate, tuple[str, ...]]:
    r"""eq:narrow. Return the interpolation threshold for a W of this width over d, or bounds of it with a note.

    Where W is narrower than the solution, it fits at least the labels whose solution of least trace is no wider, and at
    least those that a solution of least rank allows, $\frac{w^2}{2N}$; and at most as many as W has degrees of freedom,
    $\frac{w(2 - w)}{2N}$.
    """
    full, rank, delta = interpolation(task)
    if width >= rank - ACCURACY.same:
        return full, ()
    directions = 2 * task.components
    high = min(full.value, width * (2 - width) / directions)
    low = max(fitting_at_rank(task, width, delta) if delta > 0 else 0.0, width**2 / directions)
    return _between(low, high), (
        f"interpolation: the solution of full width has rank {rank:.3g} d there and W is only {width:g} d wide; labels "
        f"are fitted up to alpha = {low:.4g} at least and {high:.4g} at most, and where is not known.",
    )


def _narrow_recovery(task: AttentionIndexed, width: float) -> tuple[Estimate, tuple[str, ...]]:
    """Return the recovery threshold for a W of this width over d, without noise, or bounds of it with a note.

    A W at least as wide as the target finds it wherever a W of full width does: it is the solution of least trace.
    """
    full, rank, _ = recovery(task)
    if width >= rank - ACCURACY.same:
        return full, ()
    k = task.target.rank
    if width < k:
        return NEVER, (f"recovery: the target has rank {k:.3g} d, and W is only {width:g} d wide.",)
    # at least as many equations as a matrix of this rank has degrees of freedom
    low, high = k * (2 - k) / (2 * task.components), full.value
    return _between(low, high), (
        f"recovery: just before it the solution of full width has rank {rank:.3g} d and W is only {width:g} d wide; "
        f"the target is found from alpha = {high:.4g} at the latest and {low:.4g} at the earliest, and where is not "
        "known.",
    )


def fitting_at_rank(task: AttentionIndexed, rank: float, delta: float) -> float:
    r"""Return the number of sequences over d squared whose solution of least trace has this rank over d.

    It has $\partial_1J = 4a\delta$ and $Q = J - \frac\delta2\partial_1J - \epsilon\partial_2J$ of eq:indexed-ridgeless.
    The rank falls along the rays $\epsilon = t\delta$ from $t = 0$, the interpolation threshold with the given `delta`,
    to $t = 2$, where nothing is left.
    """
    law: FreeSum = task.target.law
    Q = law.square + task.noise_var / 2

    def noise(t: float) -> float:
        def gap(log_delta: float) -> float:
            width = math.exp(log_delta)
            at = law.truncated(width, t * width)
            return float(at.overlap - t * width * at.d2 / 2) - Q

        low = high = math.log(delta)
        while gap(high) < 0:
            high += 1.0
        while gap(low) > 0:
            low -= 1.0
        return math.exp(optimize.root_scalar(gap, bracket=(low, high), xtol=1e-12).root)

    def excess(t: float) -> float:
        width = noise(t)
        return float(law.truncated(width, t * width).above) - rank

    last = 1.0
    while excess(2 - last) > 0:
        last /= 2
    t = optimize.root_scalar(excess, bracket=(0.0, 2 - last), xtol=1e-9).root
    width = noise(t)
    return float(law.truncated(width, t * width).d1) / (2 * width * 2 * task.components)


def _between(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, (high - low) / 2 * (1 + ACCURACY.thresholds_rounding))


def _rounded(value: float) -> Estimate:
    """Return a number from a closed formula, with its rounding error."""
    return Estimate(value, ACCURACY.thresholds_rounding * value)

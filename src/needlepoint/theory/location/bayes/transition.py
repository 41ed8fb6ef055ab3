"""Both branches of the Bayes-optimal state evolution along alpha, where they end and where they change places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import interpolate, optimize

from needlepoint.core.dispatch import check_tolerance
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.progress import watching
from needlepoint.core.results import Progress, silent
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.bayes.accuracy import ACCURACY
from needlepoint.theory.location.bayes.samples import (
    INFORMED,
    UNINFORMED,
    Branch,
    branch,
    check_samples,
    error_of,
    free_energy,
    means,
)
from needlepoint.theory.location.bayes.spiked_posterior import FieldMeans


@dataclass(frozen=True)
class BayesPoint:
    """What uninformed and informed starts reach at one alpha.

    >>> found = ndl.bayes_scan(ndl.SpikedSLR(2, snr=4.0, noise=0.2), [1.0, 2.0])
    >>> [point.alpha for point in found]
    [1.0, 2.0]
    """

    alpha: float
    uninformed: Branch
    informed: Branch

    @property
    def two(self) -> bool:
        """Return whether they are different fixed points."""
        return self.uninformed.apart(self.informed)

    @property
    def optimal(self) -> Branch:
        """Return the Bayes-optimal one, of larger free energy."""
        return self.informed if self.hard else self.uninformed

    @property
    def hard(self) -> bool:
        """Return whether the Bayes-optimal branch is one that algorithms do not reach."""
        return self.two and self.informed.free_energy > self.uninformed.free_energy


@dataclass(frozen=True)
class BayesTransition:
    """Where the branches end and where they change places; None where `sentence` says that there is no such alpha.

    The informed branch exists from `informed_spinodal` on and is Bayes-optimal from `transition` on; algorithms stay
    on the uninformed one up to `uninformed_spinodal`.

    >>> found = ndl.bayes_transition(ndl.SpikedSLR(5, snr=0.5, noise=0.01), 1.0, 2.8)
    >>> [f"{alpha:.2f}" for alpha in found.hard_phase]
    ['1.48', '2.20']
    """

    informed_spinodal: Estimate | None
    transition: Estimate | None
    uninformed_spinodal: Estimate | None
    sentence: str

    @property
    def hard_phase(self) -> tuple[float, float] | None:
        """Return the interval of alpha where learning is possible, but not by known algorithms."""
        if self.transition is None or self.uninformed_spinodal is None:
            return None
        return self.transition.value, self.uninformed_spinodal.value


@float64
@watching("bayes_scan")
def bayes_scan(
    task: SingleLocation,
    alphas: Sequence[float],
    *,
    tol: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[BayesPoint, ...]:
    """Return both branches at every alpha, in increasing order.

    The uninformed branch is followed upwards and the informed one downwards, each from where it was at the alpha
    before, so that a branch is left only where it ends.

    >>> found = ndl.bayes_scan(ndl.SpikedSLR(2, snr=4.0, noise=0.2), [1.0, 2.0])
    >>> [point.alpha for point in found]
    [1.0, 2.0]
    """
    check_tolerance("bayes_scan", tol)
    ordered = sorted(float(a) for a in alphas)
    for alpha in ordered or [math.nan]:
        check_samples(task, alpha)
    q, lower, upper = UNINFORMED, [], []
    for i, alpha in enumerate(ordered):
        lower.append(branch(task, alpha, "uninformed", q, tol, seed))
        q = lower[-1].key, lower[-1].value
        progress((i + 1) / (2 * len(ordered)))
    q = INFORMED
    for i, alpha in enumerate(reversed(ordered)):
        upper.append(branch(task, alpha, "informed", q, tol, seed))
        q = upper[-1].key, upper[-1].value
        progress(0.5 + (i + 1) / (2 * len(ordered)))
    return tuple(BayesPoint(*point) for point in zip(ordered, lower, reversed(upper), strict=True))


@float64
@watching("bayes_transition")
def bayes_transition(
    task: SingleLocation, low: float, high: float, *, seed: int = 0, progress: Progress = silent
) -> BayesTransition:
    r"""eq:bayes-curve. Return where the two branches end and where they have equal free energies.

    Follows the curve of fixed points from the uninformed one at `low` to the informed one at `high`. On it $\alpha$ is
    a function and a spinodal an ordinary extremum, so that there is no critical slowing down.

    >>> found = ndl.bayes_transition(ndl.SpikedSLR(5, snr=0.5, noise=0.01), 1.0, 2.8)
    >>> [f"{alpha:.2f}" for alpha in found.hard_phase]
    ['1.48', '2.20']
    """
    check_samples(task, low)
    check_samples(task, high)
    if not low < high:
        raise InvalidParameter(f"bayes_transition(low={low:g}, high={high:g}): low must be below high.")
    first = branch(task, low, "uninformed", UNINFORMED, None, seed)
    last = branch(task, high, "informed", INFORMED, None, seed)
    curve = _Curve(task, seed, first, last)
    t = np.linspace(_logit(first.value), _logit(last.value), 2 + math.ceil(_between(first, last) / ACCURACY.spacing))
    for i, x in enumerate(t):
        curve.at(x)
        progress(0.8 * (i + 1) / len(t))
    curve.refine()
    folds = curve.folds()
    if not folds:
        return BayesTransition(None, None, None, f"no second branch between alpha = {low:g} and {high:g}.")
    if len(folds) != 2:
        where = ", ".join(f"{curve.at(x).alpha:.4g}" for x in folds)
        raise InvalidParameter(
            f"bayes_transition(low={low:g}, high={high:g}): the curve turns at alpha = {where}; "
            "take an interval with one transition."
        )
    first_end, last_end = (_spinodal(curve, x) for x in folds)
    equal = _equal(curve, folds)
    progress(1.0)
    sentence = (
        f"two branches from alpha = {last_end.value:.4g} to {first_end.value:.4g}: the uninformed one is Bayes-optimal "
        f"up to {equal.value:.4g}, and from there on the phase is hard."
    )
    return BayesTransition(last_end, equal, first_end, sentence)


def _logit(q: float) -> float:
    return math.log(q) - math.log1p(-q)


def _between(first: Branch, last: Branch) -> float:
    return abs(_logit(last.value) - _logit(first.value))


@dataclass(frozen=True)
class _Point:
    """A fixed point: t = log(q_v / (1 - q_v)), x = log(q_k / (1 - q_k)), the alpha that it belongs to."""

    t: float
    x: float
    alpha: float
    found: FieldMeans

    @property
    def q(self) -> np.ndarray:
        return 1 / (1 + np.exp(-np.array([self.x, self.t])))

    @property
    def energy(self) -> float:
        return float(free_energy(self.alpha, self.q, self.found)[0])


class _Curve:
    r"""eq:bayes-curve. All fixed points, of every alpha, by $t$: at given $q_v$ the overlap $q_k$ at which
    $\hat q_k/E|g_k|^2 = \hat q_v/E|g_v|^2$, and that ratio is $\alpha$.
    """

    def __init__(self, task: SingleLocation, seed: int, first: Branch, last: Branch) -> None:
        self.task, self.seed = task, seed
        self.guess = [(_logit(b.value), _logit(b.key)) for b in (first, last)]
        self.points: dict[float, _Point] = {}

    def at(self, t: float) -> _Point:
        """Return the fixed point at t: x by the secant method, from a guess interpolated between the points so far."""
        t = float(t)
        if t in self.points:
            return self.points[t]
        known = sorted({**dict(self.guess), **{p.t: p.x for p in self.points.values()}}.items())
        at, xs = zip(*known, strict=True)
        x = float(interpolate.PchipInterpolator(at, xs)(t)) if len(known) > 1 else xs[0]
        gap, alpha, found = self.gap(t, x)
        step = 1e-3
        for _ in range(ACCURACY.transition_most):
            if abs(gap) < ACCURACY.solved:
                break
            new_gap, alpha, found = self.gap(t, x + step)
            x, slope = x + step, (new_gap - gap) / step
            gap, step = new_gap, float(np.clip(-new_gap / slope, -1.0, 1.0))
        self.points[t] = _Point(t, x, alpha, found)
        return self.points[t]

    def gap(self, t: float, x: float, final: bool = False) -> tuple[float, float, FieldMeans]:
        """Return log alpha by the key minus log alpha by the value, the latter's alpha, and the means."""
        found = means(self.task, 1 / (1 + np.exp(-np.array([x, t]))), final, self.seed)
        by_key, by_value = x - math.log(found.key[0]), t - math.log(found.value[0])
        return by_key - by_value, math.exp(by_value), found

    def log_alpha(self) -> tuple[np.ndarray, np.ndarray]:
        ordered = sorted(self.points)
        return np.array(ordered), np.array([math.log(self.points[t].alpha) for t in ordered])

    def refine(self) -> None:
        """Add points where alpha rises least, until it falls between two points or four rounds have found no fall."""
        for _ in range(4):
            t, y = self.log_alpha()
            slopes = np.diff(y) / np.diff(t)
            i = int(np.argmin(slopes))
            if slopes[i] < 0:
                return
            for j in {max(i - 1, 0), i, min(i + 1, len(slopes) - 1)}:
                self.at((t[j] + t[j + 1]) / 2)

    def folds(self) -> list[float]:
        """Return every t where alpha turns: a maximum, a minimum, and so on."""
        t, y = self.log_alpha()
        rising = np.diff(y) > 0
        turns = [i + 1 for i in range(len(rising) - 1) if rising[i] != rising[i + 1]]
        return [self._polish(t[i - 1 : i + 2], 1.0 if rising[i - 1] else -1.0) for i in turns]

    def _polish(self, t: np.ndarray, sign: float) -> float:
        found: Any = optimize.minimize_scalar(
            lambda x: -sign * math.log(self.at(x).alpha), bracket=tuple(t), method="brent", options={"xtol": 3e-4}
        )
        return float(found.x)


def _spinodal(curve: _Curve, t: float) -> Estimate:
    """Return alpha at a turning point by fine integrals; t may stay as it is, because alpha is stationary in it."""
    point = curve.at(t)
    h = 1e-3
    gap, alpha, _ = curve.gap(t, point.x + h)
    # slopes in x, of log alpha by value and of the gap; each scrambling closes its gap at an x of its own
    by_value = math.log(alpha / point.alpha) / h
    difference = gap / h
    fine = means(curve.task, point.q, True, curve.seed)
    each = []
    for m in (fine, point.found):
        logs = point.x - np.log(m.key), t - np.log(m.value)
        each.append(np.exp(logs[1] - by_value * (logs[0] - logs[1]) / difference))
    rows = np.concatenate(each)
    # alpha is stationary in t, so that Brent's tolerance in t changes it by the square of that
    return Estimate(float(np.mean(rows[:-1])), error_of(rows) + 1e-7 * float(rows[0]))


def _equal(curve: _Curve, folds: list[float]) -> Estimate:
    """Return the alpha of equal free energies, by Newton's method: d Phi / d alpha = E log Z at a fixed point."""
    t, y = curve.log_alpha()
    turns = [math.log(curve.at(x).alpha) for x in folds]
    low, high = t <= folds[0] + 1e-12, t >= folds[1] - 1e-12
    # t as a function of log alpha below the first fold and above the second, where alpha rises with t
    sides: list[Callable[[float], float]] = [lambda a, s=side: float(np.interp(a, y[s], t[s])) for side in (low, high)]
    log_alpha, pair = 0.5 * (turns[0] + turns[1]), (curve.at(folds[0]), curve.at(folds[1]))
    for _ in range(ACCURACY.transition_most):
        pair = tuple(_follow(curve, side(log_alpha), log_alpha) for side in sides)
        alpha = math.exp(log_alpha)
        energies = [p.energy + (alpha - p.alpha) * float(p.found.log_evidence[0]) for p in pair]
        slope = float(pair[1].found.log_evidence[0] - pair[0].found.log_evidence[0])
        step = -(energies[1] - energies[0]) / slope
        log_alpha = float(np.clip(math.log(max(alpha + step, 1e-300)), turns[1], turns[0]))
        if abs(step) < 1e-7 * alpha:
            break
    alpha = math.exp(log_alpha)
    both = [(means(curve.task, p.q, True, curve.seed), p) for p in pair]
    each = []
    for fine in (True, False):
        low_m, high_m = (m if fine else p.found for m, p in both)
        change = free_energy(alpha, pair[1].q, high_m) - free_energy(alpha, pair[0].q, low_m)
        each.append(alpha - change / (high_m.log_evidence - low_m.log_evidence))
    rows = np.concatenate(each)
    return Estimate(float(np.mean(rows[:-1])), error_of(rows) + 1e-7 * alpha)


def _follow(curve: _Curve, t: float, log_alpha: float) -> _Point:
    """Return the point of the curve near t with the given alpha, up to a difference that `_equal` corrects for."""
    step = 1e-2
    point = curve.at(t)
    for _ in range(ACCURACY.transition_most):
        gap = log_alpha - math.log(point.alpha)
        if abs(gap) < 1e-5:
            break
        other = curve.at(t + step)
        slope = (math.log(other.alpha) - math.log(point.alpha)) / (other.t - point.t)
        t, point = other.t, other
        step = float(np.clip((log_alpha - math.log(point.alpha)) / slope, -0.5, 0.5))
    return point

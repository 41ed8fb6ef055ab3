"""What is proved about the population optimum, as functions: softmax, linear, element-wise, large snr, lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from needlepoint.core.errors import InvalidParameter, NotConverged, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.routes import route, routes, the
from needlepoint.learners import Population
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.gaussian import lattice
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.moments import place_race
from needlepoint.theory.location.population.accuracy import ACCURACY

EPS = float(np.finfo(float).eps)


def _known(statement: str, task: object) -> Callable[..., Any]:
    """Return the formula of a statement for this task."""
    if not routes(statement, task=task):  # pyright: ignore[reportArgumentType]  # a caller may pass anything
        raise NoTheory(f"no statement about {type(task).__name__}; there are some for SpikedSLR and MaxSLR.")
    return the(statement, task=task)  # pyright: ignore[reportArgumentType]


def softmax_key(task: SingleLocation) -> float:
    r"""eq:softmax-bayes. Return $c_\mu$: softmax attention at $k = c_\mu k^*$, $v = v^*$ is the posterior mean.

    $\sqrt\mu$ (spiked), $\mu$ (max, infinite for an infinite snr). The same for all lengths.

    >>> f"{ndl.softmax_key(ndl.SpikedSLR(2, snr=2.0)):.6f}"
    '1.414214'
    """
    slope = _known("softmax key", task)(task)
    if task.label_var != 1.0:
        raise InvalidParameter(
            f"{task!r}: softmax attention is the posterior mean at relevant_std=1 only (the norm of a token is "
            "informative otherwise)."
        )
    return slope


@route("softmax key", task=SingleLocation)
def _log_odds(task: SingleLocation) -> float:
    """Return the slope in k* . x of the log-odds of a token to be the relevant one."""
    return math.sqrt(task.shift_sq) + task.tilt


def linear_optimum(task: SingleLocation) -> tuple[Estimate, Overlaps]:
    r"""eq:linear-optimum. Return the least excess risk of linear attention and its overlaps.

    With $n = E[L-1]$, spiked $R = \frac{Gn(G^2+n)}{G(G^2+n) + n(G\mu+G^2+n)}$ at $|k| = \frac{n\sqrt\mu}{G^2+n}$, max
    $R = 1 - \frac{1+(\bar\chi^*)^2}{n+1}$ at $|k| = \bar\chi^* = E\chi^*_J$.

    >>> f"{ndl.linear_optimum(ndl.SpikedSLR(2, snr=2.0))[0].value:.6f}"
    '0.333333'
    """
    excess, key, weight = _known("linear optimum", task)(task)
    return excess, Overlaps(key, weight, key_sq=key**2, value_sq=weight**2)


@route("linear optimum", name="shifted", task=SpikedSLR)
def _linear_shifted(task: SpikedSLR) -> tuple[Estimate, float, float]:
    """Return the risk, the norm of the key, and that of the value."""
    n, G, root = task.length_moments()["task.others"], task.label_var, math.sqrt(task.snr)
    base = G * (G * G + n)
    whole = base + n * (G * task.snr + G * G + n)
    value = n * base / whole
    return Estimate(value, 16 * EPS * value), n * root / (G * G + n), base / whole


@route("linear optimum", name="tilted", task=MaxSLR)
def _linear_tilted(task: MaxSLR) -> tuple[Estimate, float, float]:
    n = task.length_moments()["task.others"]
    x, w = place_race.winner_rule(task)
    key = float(w @ x) if task.snr > 0 else 0.0
    value = (n - key**2) / (n + 1)
    return Estimate(value, 64 * EPS * (1 + value) + place_race.TAIL * task.longest), key, 1 / (n + 1)


def elementwise_bound(task: SingleLocation) -> Estimate:
    r"""eq:elementwise-bound. Return the least excess risk of any element-wise attention on the manifold.

    At $\sigma(x) \propto P(\text{relevant}|x)$: spiked $G\,E_J[n/(n+Gr)]$ with the likelihood ratio $r$ of a token's
    $\chi^*$ and $n = E[L-1]$; max $1 - E[\bar W^2]/E[L]$, which is $(L-1)/(2L-1)$ at an infinite snr.

    >>> f"{ndl.elementwise_bound(ndl.MaxSLR(10, snr=2.0)).value:.6f}"
    '0.679813'
    """
    bound = _known("element-wise bound", task)
    n = task.length_moments()["task.others"]
    return Estimate(0.0) if n == 0 else bound(task, n)


@route("element-wise bound", name="shifted", task=SpikedSLR)
def _bound_shifted(task: SpikedSLR, n: float) -> Estimate:
    fine, coarse = (_spiked_bound(task, n, step) for step in (1.0, 2.0))
    return Estimate(fine, abs(fine - coarse) + 64 * EPS * fine)


@route("element-wise bound", name="tilted", task=MaxSLR)
def _bound_tilted(task: MaxSLR, n: float) -> Estimate:
    values = []
    for step in (0.1, 0.2):
        x, density = place_race.winner_density(task.length_law, task.snr, step)
        values.append(1 - step * float(np.sum(density**2 * np.exp(x**2 / 2))) * math.sqrt(2 * math.pi) / (n + 1))
    return Estimate(values[0], abs(values[0] - values[1]) + 64 * EPS + place_race.TAIL * task.longest)


def _spiked_bound(task: SpikedSLR, n: float, coarseness: float) -> float:
    gamma, m = task.relevant_std, math.sqrt(task.snr)
    if m > ACCURACY.largest_shift * max(1.0, gamma):
        raise NoTheory(f"{task!r}: the bound is below the smallest number at an snr of this size.")
    reach = place_race.REACH
    slope = gamma * m + abs(gamma**2 - 1) * (reach + m) + 1
    step = coarseness * min(0.1, 0.25 / slope)
    z = lattice(-reach - m, reach + m, step)
    log_ratio = -(z**2) / 2 + (m + gamma * z) ** 2 / 2 - math.log(gamma)
    missed = special.expit(math.log(n) - math.log(gamma**2) - log_ratio)
    return gamma**2 * step * float(np.sum(np.exp(-(z**2) / 2) * missed)) / math.sqrt(2 * math.pi)


def bayes_asymptote(task: SingleLocation) -> float:
    r"""eq:softmax-decay, eq:max-decay. Return the Bayes (and softmax) excess risk to leading order at large snr.

    Spiked $(L-1)\sqrt{\pi/4\mu}\,e^{-\mu/4}$, max $\frac{L(L-1)}{\mu}\int\varphi^2\Phi^{L-2}$, averaged over
    the lengths.

    >>> f"{ndl.bayes_asymptote(ndl.MaxSLR(2, snr=20.0)):.4f}"
    '0.0282'
    """
    softmax_key(task)
    if task.snr == 0:
        raise InvalidParameter(f"{task!r}: snr must be > 0 (the asymptote is for a large snr).")
    return _known("Bayes asymptote", task)(task)


@route("Bayes asymptote", name="shifted", task=SpikedSLR)
def _decay_shifted(task: SpikedSLR) -> float:
    n = task.length_moments()["task.others"]
    return n * math.sqrt(math.pi / (4 * task.snr)) * math.exp(-task.snr / 4)


@route("Bayes asymptote", name="tilted", task=MaxSLR)
def _decay_tilted(task: MaxSLR) -> float:
    if math.isinf(task.snr):
        return 0.0
    x = lattice(-place_race.REACH, place_race.REACH, 0.1)
    square, cdf = np.exp(-(x**2)) / (2 * math.pi), special.ndtr(x)
    parts = [p * n * (n - 1) * 0.1 * float(np.sum(square * cdf ** (n - 2))) for n, p in task.length_law if n > 1]
    return sum(parts) / task.snr


def linear_asymptote(task: SingleLocation) -> float:
    r"""eq:linear-decay. Return the risk of eq:linear-optimum to leading order at large snr.

    Spiked $(G^2+n)/\mu$, which is $L/\mu$ at $G = 1$ and a fixed length; max the limit
    $1 - (1+(\bar\chi^*)^2)/E[L]$, which does not vanish.

    >>> f"{ndl.linear_asymptote(ndl.SpikedSLR(10, snr=100.0)):.4f}"
    '0.1000'
    """
    return _known("linear asymptote", task)(task)


@route("linear asymptote", name="shifted", task=SpikedSLR)
def _linear_decay(task: SpikedSLR) -> float:
    n = task.length_moments()["task.others"]
    if task.snr == 0:
        raise InvalidParameter(f"{task!r}: snr must be > 0 (the asymptote is for a large snr).")
    return (task.label_var**2 + n) / task.snr if n > 0 else 0.0


@route("linear asymptote", name="tilted", task=MaxSLR)
def _linear_limit(task: MaxSLR) -> float:
    return linear_optimum(MaxSLR(task.tokens, math.inf))[0].value


@dataclass(frozen=True)
class LengthCost:
    """Least risk with one (k, v) for all lengths (`shared`), and with one of its own for each length (`separate`).

    >>> found = ndl.length_cost(ndl.SpikedSLR({2: 0.5, 4: 0.5}, snr=2.0), ndl.KeyValueAttention(ndl.Linear()))
    >>> print(found)
    0.461538461538 with one key and value for all lengths, 0.439393939394 with one for each: costs 0.0221445221445
    """

    shared: Estimate
    separate: Estimate

    def __str__(self) -> str:
        apart = f"{self.separate} with one for each: costs {self.cost}"
        return f"{self.shared} with one key and value for all lengths, {apart}"

    @property
    def cost(self) -> Estimate:
        return Estimate(self.shared.value - self.separate.value, self.shared.error + self.separate.error)


def length_cost(task: SingleLocation, model: KeyValueAttention) -> LengthCost:
    r"""eq:length-cost. Return the cost of one (k, v) for all lengths, $R^*(L\sim P) - \sum_LP(L)R^*(L) \ge 0$.

    Zero for softmax where it is the posterior mean (eq:softmax-bayes), with one (k, v) for all lengths.

    >>> found = ndl.length_cost(ndl.SpikedSLR({2: 0.5, 4: 0.5}, snr=2.0), ndl.KeyValueAttention(ndl.Linear()))
    >>> found.cost.value > 0
    True
    """
    from needlepoint.theory.predicting import predict

    _known("linear optimum", task)

    def best(asked: SingleLocation) -> Estimate:
        found = predict(asked, model, Population(), throw=False)
        if not found.ok:
            raise NotConverged(f"{found.status.name}: {found.status.sentence}", found)
        return found.excess_risk  # an infimum counts, attained or not

    shared = best(task)
    parts = [(p, best(task.replace(tokens=n))) for n, p in task.length_law]
    separate = Estimate(sum(p * e.value for p, e in parts), sum(p * e.error for p, e in parts))
    return LengthCost(shared, separate)

r"""Tied attention whose loss is quadratic: the equations of one token, and of many where the training error vanishes.

With one token the label is $x^\top S_0x$, centred, plus noise, and the loss $(y - z)^2$: the learned matrix is $S_0 +
\delta Z$ cut at $\epsilon$, and the two numbers solve two equations. Softmax that fits its labels exactly is the same
problem with $a = \alpha N$ equations a sequence. Arrays over many problems in, arrays out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import elementwise

from needlepoint.numerics.freeprob import FreeSum, Truncated

_SMALLEST, _LARGEST = 1e-9, 1e9  # of delta
_STEPS = 100
_RAYS = 17  # that the best one is looked for between
_SETTLED = 1e-14


class Cut(NamedTuple):
    """The noise that is added to the target, where the sum is cut, and the truncated moments there."""

    delta: np.ndarray
    eps: np.ndarray
    at: Truncated

    def balance(self, a: Any, Q: Any) -> np.ndarray:
        r"""eq:indexed-ray. $Q - 2a\delta^2 + \delta\partial_1J - J + \epsilon\partial_2J$, which vanishes."""
        return Q - 2 * a * self.delta**2 + self.delta * self.at.d1 - self.at.J + self.eps * self.at.d2

    def stiffness(self, a: Any) -> np.ndarray:
        r"""eq:indexed-penalty. $\tilde\lambda/\epsilon = 4a - \partial_1J/\delta$."""
        return 4 * a - self.at.d1 / self.delta


def on_ray(law: FreeSum, t: Any, a: Any, Q: Any) -> Cut:
    r"""The one root of eq:indexed-ray on the ray $\epsilon = t\delta$: Newton's method in the logarithm, safeguarded.

    The left side falls from $Q - Q_0 \ge 0$. Where it stays positive ($2a$ below the truncated variance of a
    semicircle) or is never positive (nothing is left to learn), the end of the range of delta is returned.
    """
    t, a, Q = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (t, a, Q)))
    low, high = np.full(t.shape, np.log(_SMALLEST)), np.full(t.shape, np.log(_LARGEST))
    x = np.log(Q / (2 * a)) / 2  # where all is cut off
    cut = Cut(x, x, law.truncated(1.0, 0.0))
    for _ in range(_STEPS):
        delta = np.exp(x)
        cut = Cut(delta, t * delta, law.truncated(delta, t * delta))
        at, value = cut.at, cut.balance(a, Q)
        slope = delta**2 * (at.d11 + 2 * t * at.d12 + t * t * at.d22 - 4 * a)  # by the logarithm
        low, high = np.where(value > 0, x, low), np.where(value > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = x - value / slope
        new = np.where((new > low) & (new < high), new, (low + high) / 2)
        if np.all(np.abs(new - x) <= _SETTLED):
            return cut
        x = new
    return cut


def penalised(law: FreeSum, a: Any, Q: Any, penalty: Any) -> Cut:
    r"""eq:indexed-linear. The cut at penalties $\tilde\lambda > 0$: along the rays the penalty of eq:indexed-penalty
    rises where it is positive, and is sought there."""
    a, Q, penalty = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (a, Q, penalty)))

    def gap(t: Any, a: Any, Q: Any, penalty: Any) -> Any:
        cut = on_ray(law, t, a, Q)
        return np.log(np.maximum(cut.eps * cut.stiffness(a), 1e-300)) - np.log(penalty)

    # on rays beyond the whole spectrum the penalty is 4 a eps
    high = penalty / np.sqrt(8 * a * Q)
    while np.any(short := gap(high, a, Q, penalty) < 0):
        high = np.where(short, 2 * high + 1, high)
    found = elementwise.find_root(gap, (0.0 * high, high), args=(a, Q, penalty))
    return on_ray(law, found.x, a, Q)


def unpenalised(law: FreeSum, a: Any, Q: Any) -> Cut:
    r"""eq:indexed-ridgeless. The limit $\tilde\lambda \to 0$: the ray with $\partial_1J = 4a\delta$ where there are
    fewer equations than it takes to determine the matrix (the training error vanishes), otherwise $\epsilon = 0$."""
    a, Q = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (a, Q)))

    def stiffness(t: Any, a: Any, Q: Any) -> Any:
        return on_ray(law, t, a, Q).stiffness(a)

    free = stiffness(np.zeros(a.shape), a, Q) < 0
    high = np.where(free, 1.0, 0.0)
    while np.any(short := free & (stiffness(high, a, Q) < 0)):
        high = np.where(short, 2 * high, high)
    found = elementwise.find_root(stiffness, (0.0 * high, np.where(free, high, 1.0)), args=(a, Q))
    return on_ray(law, np.where(free, found.x, 0.0), a, Q)


def best(law: FreeSum, a: Any, Q: Any) -> Cut:
    r"""eq:indexed-best. The cut at the best penalty: the error is $2a\delta^2 - \Delta/2$, and $\delta$ is least on the
    ray with $\delta\partial_{12}J + \epsilon\partial_{22}J = 0$."""
    a, Q = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (a, Q)))

    def rise(t: Any, a: Any, Q: Any) -> Any:
        cut = on_ray(law, t, a, Q)
        return cut.at.d12 + t * cut.at.d22

    least = unpenalised(law, a, Q)
    start = least.eps / least.delta
    # from no penalty to one that cuts everything off
    widest = np.sqrt(Q / (2 * a))
    end = np.vectorize(lambda w: law.support(float(w))[-1, 1] / float(w), otypes=[float])(widest)
    share = np.linspace(0.0, 1.0, _RAYS).reshape(-1, *[1] * a.ndim)
    rays = start + share * np.maximum(end - start, 0.0)
    lowest = np.argmin(on_ray(law, rays, a, Q).delta, axis=0)[None]
    low, high = (np.take_along_axis(rays, np.clip(lowest + i, 0, _RAYS - 1), axis=0)[0] for i in (-1, 1))
    found = elementwise.find_root(rise, (low, high), args=(a, Q))
    # without noise the least may be at no penalty at all
    return on_ray(law, np.where(found.success, found.x, np.take_along_axis(rays, lowest, axis=0)[0]), a, Q)

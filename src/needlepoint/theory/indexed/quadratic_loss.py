r"""Tied attention whose loss is quadratic: the equations of one token, and of many where the training error vanishes.

With one token the label is $x^\top S_0x$, centred, plus noise, and the loss is $(y - z)^2$: the learned matrix is $S_0
+ \delta Z$ cut at $\epsilon$, and the numbers $\delta$ and $\epsilon$ solve two equations. Softmax that fits its labels
exactly is the same problem with $a = \alpha N$ in place of $\alpha$. A ray is a line $\epsilon = t\delta$. Functions
take arrays over many problems and return arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import elementwise

from needlepoint.numerics.free_atoms import Atoms
from needlepoint.numerics.freeprob import FreeSum, Truncated
from needlepoint.theory.indexed.accuracy import ACCURACY

_SEMICIRCLE = Atoms([0.0])


class Cut(NamedTuple):
    """The noise delta that is added to the target, the cut eps of the sum, and the truncated moments there."""

    delta: np.ndarray
    eps: np.ndarray
    at: Truncated

    def balance(self, a: Any, Q: Any) -> np.ndarray:
        r"""eq:indexed-ray. Return $Q - 2a\delta^2 + \delta\partial_1J - J + \epsilon\partial_2J$; solutions have 0."""
        return Q - 2 * a * self.delta**2 + self.delta * self.at.d1 - self.at.J + self.eps * self.at.d2

    def stiffness(self, a: Any) -> np.ndarray:
        r"""eq:indexed-penalty. Return $\tilde\lambda/\epsilon = 4a - \partial_1J/\delta$."""
        return 4 * a - self.at.d1 / self.delta


def on_ray(law: FreeSum, t: Any, a: Any, Q: Any, near: np.ndarray | None = None) -> Cut:
    r"""Return the one root of eq:indexed-ray on each ray $\epsilon = t\delta$, by Newton's method in $\log\delta$ with
    bisection as a safeguard.

    The left side falls from $Q - Q_0 \ge 0$. Where it stays positive ($2a$ below the truncated variance of a
    semicircle) or is never positive (nothing is left to learn), the end of the range of delta is returned. `near` is
    a delta to begin with.
    """
    t, a, Q = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (t, a, Q)))
    low, high = (np.log(Q) / 2 + np.log(end) for end in (ACCURACY.smallest, ACCURACY.largest))
    x = np.log(Q / (2 * a)) / 2  # the root if everything is cut off, J = 0
    if near is not None and np.shape(near) == x.shape:
        x = np.where(near > ACCURACY.tiny * np.exp(x), np.log(near), x)
    cut = Cut(x, x, law.truncated(1.0, 0.0))
    last = np.full(t.shape, np.inf)
    for _ in range(ACCURACY.steps):
        delta = np.exp(x)
        cut = Cut(delta, t * delta, law.truncated(delta, t * delta))
        at, value = cut.at, cut.balance(a, Q)
        slope = delta**2 * (at.d11 + 2 * t * at.d12 + t * t * at.d22 - 4 * a)  # derivative by log(delta)
        low, high = np.where(value > 0, x, low), np.where(value > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = x - value / slope
        new = np.where((new > low) & (new < high), new, (low + high) / 2)
        step = np.abs(new - x)
        # below `near`, a step that no longer shrinks is rounding, and after one that shrank a hundredfold the next
        # step of Newton's method would be negligible
        if np.all(
            (step <= ACCURACY.quadratic_loss_settled)
            | ((step < ACCURACY.near) & ((step >= last) | (step < last / 100)))
        ):
            return cut
        x, last = new, step
    return cut


def _first_ray(a: np.ndarray) -> np.ndarray:
    r"""Return the t below which rays have no root: there $\int(u - t)_+^2$ over a semicircle is $2a$."""

    def gap(t: Any, a: Any) -> Any:
        return _SEMICIRCLE.truncated(1.0, t).J - 2 * a

    none = gap(0.0, a) > 0
    found = elementwise.find_root(gap, (np.zeros(a.shape), np.full(a.shape, 2.0)), args=(np.where(none, a, 0.125),))
    return np.where(none, found.x + ACCURACY.beyond, 0.0)


class _Rays:
    """The root on rays that are asked for one after the other; each search starts at the last delta."""

    def __init__(self, law: FreeSum) -> None:
        self.law, self.delta = law, None

    def __call__(self, t: Any, a: Any, Q: Any) -> Cut:
        cut = on_ray(self.law, t, a, Q, self.delta)
        self.delta = cut.delta
        return cut


def penalised(law: FreeSum, a: Any, Q: Any, penalty: Any) -> Cut:
    r"""eq:indexed-linear. Return the cut at penalties $\tilde\lambda > 0$, by a root search over the rays: the penalty
    of eq:indexed-penalty rises with $t$ where it is positive."""
    a, Q, penalty = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (a, Q, penalty)))

    rays = _Rays(law)

    def gap(t: Any, a: Any, Q: Any, penalty: Any) -> Any:
        cut = rays(t, a, Q)
        return np.log(np.maximum(cut.eps * cut.stiffness(a), 1e-300)) - np.log(penalty)

    whole = _whole(law, a, Q, penalty)
    if np.all(np.isfinite(whole.delta)):
        return whole
    # where the cut is above the whole spectrum the penalty is 4 a eps: a first guess of the upper end
    high = penalty / np.sqrt(8 * a * Q)
    while np.any(short := gap(high, a, Q, penalty) < 0):
        high = np.where(short, 2 * high + 1, high)
    found = elementwise.find_root(gap, (np.minimum(_first_ray(a), high), high), args=(a, Q, penalty))
    return _either(whole, rays(np.where(np.isfinite(whole.delta), high, found.x), a, Q))


@np.vectorize(excluded=[0], otypes=[float, float])
def _below(law: FreeSum, a: float, Q: float, penalty: float) -> tuple[float, float]:
    eps = penalty / (4 * a - 2) if a > 0.5 else np.inf
    delta = np.sqrt((Q - law.square + eps**2) / (2 * a - 1)) if a > 0.5 else np.inf
    inside = np.isfinite(delta) and delta > 0 and eps <= law.support(float(delta))[0, 0]
    return (delta, eps) if inside else (np.nan, np.nan)


def _whole(law: FreeSum, a: Any, Q: Any, penalty: Any) -> Cut:
    r"""eq:indexed-whole. Return the cut where it is below the whole spectrum, NaN where it is not: $\epsilon =
    \tilde\lambda/(4a - 2)$, $(2a - 1)\delta^2 = Q - Q_0 + \epsilon^2$.

    Without noise all of these lie on one ray, so that a search over rays could not tell them apart.
    """
    delta, eps = _below(law, a, Q, penalty)
    safe = np.where(np.isfinite(delta), delta, 1.0), np.where(np.isfinite(delta), eps, 0.0)
    return Cut(delta, eps, law.truncated(*safe))


def _either(first: Cut, second: Cut) -> Cut:
    """Return the first cut where it exists (its delta is finite), and the second elsewhere."""
    exists = np.isfinite(first.delta)
    at = Truncated(*(np.where(exists, x, y) for x, y in zip(first.at, second.at, strict=True)))
    return Cut(np.where(exists, first.delta, second.delta), np.where(exists, first.eps, second.eps), at)


def unpenalised(law: FreeSum, a: Any, Q: Any) -> Cut:
    r"""eq:indexed-ridgeless. Return the cut in the limit $\tilde\lambda \to 0$: on the ray with $\partial_1J =
    4a\delta$ where the data do not determine the matrix (the training error vanishes), otherwise at $\epsilon = 0$."""
    a, Q = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (a, Q)))

    rays = _Rays(law)

    def stiffness(t: Any, a: Any, Q: Any) -> Any:
        return rays(t, a, Q).stiffness(a)

    low = _first_ray(a)
    free = stiffness(low, a, Q) < 0
    high = np.where(free, low + 1.0, low)
    while np.any(short := free & (stiffness(high, a, Q) < 0)):
        high = np.where(short, 2 * high, high)
    found = elementwise.find_root(stiffness, (low, np.where(free, high, low + 1.0)), args=(a, Q))
    return rays(np.where(free, found.x, 0.0), a, Q)


def best(law: FreeSum, a: Any, Q: Any) -> Cut:
    r"""eq:indexed-best. Return the cut at the best penalty: the error is $2a\delta^2 - \Delta/2$, and $\delta$ is least
    on the ray with $\delta\partial_{12}J + \epsilon\partial_{22}J = 0$."""
    a, Q = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (a, Q)))

    along = _Rays(law)

    def rise(t: Any, a: Any, Q: Any) -> Any:
        cut = along(t, a, Q)
        return cut.at.d12 + t * cut.at.d22

    # a grid from the first ray that has a root to one that cuts everything off
    start = _first_ray(a)
    widest = np.sqrt(Q / (2 * a))
    end = np.vectorize(lambda w: law.support(float(w))[-1, 1] / float(w), otypes=[float])(widest)
    rays = start + np.linspace(1.0, 0.0, ACCURACY.rays).reshape(-1, *[1] * a.ndim) * np.maximum(end - start, 0.0)
    lowest = np.argmin([along(t, a, Q).delta for t in rays], axis=0)[None]
    high, low = (np.take_along_axis(rays, np.clip(lowest + i, 0, ACCURACY.rays - 1), axis=0)[0] for i in (-1, 1))
    found = elementwise.find_root(rise, (low, high), args=(a, Q), tolerances={"xatol": 1e-9, "xrtol": 1e-9})
    cut = along(np.where(found.success, found.x, np.take_along_axis(rays, lowest, axis=0)[0]), a, Q)
    if np.all(cut.stiffness(a) >= 0):
        return cut
    # a negative stiffness would mean a negative penalty: without noise the best penalty may be zero
    free = cut.stiffness(a) < 0
    return _either(cut._replace(delta=np.where(free, np.nan, cut.delta)), unpenalised(law, a, Q))

"""Fixed points of maps that cost much more than the algebra around them: Anderson's method, and the flow to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Map = Callable[[np.ndarray], np.ndarray]
"""From (rows, k) to (rows, k); the rows are independent problems."""

Linearised = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From (rows, k) to the map's values (rows, k) and its Jacobians (rows, k, k) there."""


@dataclass(frozen=True)
class IterationSteps:
    """The numbers that steer the two iterations, set by hand."""

    stalled: int = 4
    """Steps in a row without shrinking after which a row may end."""

    shrinks: float = 0.7
    """A step has shrunk if it is below this part of the smallest so far."""

    quicker: float = 4.0
    """Largest factor by which the time step of a flow changes at once."""

    outward: float = 0.5
    """Longest time step near an unstable point, relative to the time in which the flow leaves it e-fold."""

    first: float = 0.5
    """First time step of a flow, where f(x) - x is of order one."""

    shortest: float = 0.1
    """Shortest time step of a flow."""

    astray: float = 0.5
    """A row whose steps f(x) - x were all above this never came near a fixed point."""

    tiny: float = 1e-30
    """Replaces a step of length zero in a quotient."""


STEPS = IterationSteps()


class FixedPoints(NamedTuple):
    """`residual` (rows,) is the largest undamped step that the map still makes from `x` (rows, k); `ahead` (rows, k)
    is where one more step would lead."""

    x: np.ndarray
    residual: np.ndarray
    steps: int
    ahead: np.ndarray


def anderson(
    function: Map,
    x: np.ndarray,
    *,
    tol: float,
    most: int,
    slope: np.ndarray | None = None,
    damping: float = 0.5,
    memory: int = 5,
    reach: float = 0.7,
    enough: float = 0.0,
    close: np.ndarray | float = 0.0,
) -> FixedPoints:
    """Return the fixed points that x -> f(x) with Anderson's acceleration reaches: every row's step is below `tol`.

    With `slope`, the Jacobian of f nearby (rows, k, k), steps are Newton's with it; without, damped. `reach` bounds a
    step in each coordinate. Rows also end where the next move is below `close` in every coordinate (k,). Rows whose
    step is below `enough` may end where it shrinks no more, as it does where the map has small jumps. Rows that do not
    converge are returned at the point with their smallest residual.
    """
    rows, k = x.shape
    gain = np.linalg.inv(np.eye(k) - slope) if slope is not None else np.broadcast_to(np.eye(k), (rows, k, k))
    scale = 1.0 if slope is not None else damping
    points: list[np.ndarray] = []
    moves: list[np.ndarray] = []
    best, ahead, least, waited = x.copy(), x.copy(), np.full(rows, np.inf), np.zeros(rows)
    steps = 0
    while steps < most:
        steps += 1
        step = function(x) - x
        size = np.where(np.all(np.isfinite(step), axis=1), np.max(np.abs(step), axis=1), np.inf)
        better, waited = size < least, np.where(size < STEPS.shrinks * least, 0, waited + 1)
        move = scale * np.einsum("rij,rj->ri", gain, np.nan_to_num(step, nan=0.0, posinf=0.0, neginf=0.0))
        best[better], least[better] = x[better], size[better]
        ahead[better] = (x + np.clip(move, -reach, reach))[better]
        ended = (least <= tol) | ((size == least) & np.all(np.abs(move) < close, axis=1))
        if np.all(ended | ((least <= enough) & (waited >= STEPS.stalled))):
            break
        points, moves = [*points[-memory:], x], [*moves[-memory:], move]
        new = x + np.clip(move, -reach, reach)
        for row in range(rows):
            # far from the fixed point old secants say nothing about the map nearby
            if len(points) > 2 and size[row] < 0.5:
                new[row] = x[row] + np.clip(_mixed(points, moves, row), -reach, reach)
            if size[row] > 10 * least[row] and len(points) > memory:
                new[row] = best[row] + 0.3 * (new[row] - best[row])  # a step that went wrong
        x = np.where(ended[:, None], best, new)
    return FixedPoints(best, least, steps, ahead)


def _mixed(points: list[np.ndarray], moves: list[np.ndarray], row: int) -> np.ndarray:
    """Return the step (k,) to the fixed point that the secants of the last moves predict."""
    d_move = np.stack([moves[-1][row] - m[row] for m in moves[:-1]], axis=1)
    d_point = np.stack([points[-1][row] - p[row] for p in points[:-1]], axis=1)
    weights = np.linalg.lstsq(d_move, moves[-1][row], rcond=1e-9)[0]
    return moves[-1][row] - (d_point + d_move) @ weights


def settle(
    linearised: Linearised, x: np.ndarray, *, tol: float, most: int, reach: float = 0.7, enough: float = 0.0
) -> FixedPoints:
    """Return where x' = f(x) - x leads, until every row's step f(x) - x is below `tol`: pseudo-transient continuation.

    The plain iteration with a small enough step follows this flow, but near a fixed point where f has an eigenvalue of
    -9 that step must be below 0.2. Here a step in time is implicit, x + (1/h + 1 - J)^-1 (f(x) - x), which no negative
    eigenvalue limits, and h grows as the step f(x) - x shrinks, so that the end is Newton's method. Where an eigenvalue
    of J exceeds 1 the flow leaves, and so does this: h stays below the time in which it does. Thus the ends are points
    that the flow holds, unlike those of Newton's method. `reach` and `enough` are those of `anderson`. Rows that do not
    end are returned at the point with their smallest residual, or where they are if they never came near a fixed point.
    """
    rows, k = x.shape
    x, h, before = x.copy(), np.full(rows, STEPS.first), np.full(rows, 1.0)
    best, ahead, least, waited = x.copy(), x.copy(), np.full(rows, np.inf), np.zeros(rows)
    steps = 0
    while steps < most:
        steps += 1
        values, slopes = linearised(x)
        step = np.nan_to_num(values - x, nan=np.inf)
        good = np.all(np.isfinite(step), axis=1) & np.all(np.isfinite(slopes), axis=(1, 2))
        size = np.where(good, np.max(np.abs(step), axis=1), np.inf)
        length = np.linalg.norm(np.where(good[:, None], step, 1.0), axis=1)
        # from a start that is close to a fixed point the time step may grow at once, which makes it Newton's method
        bounds = (1 / STEPS.quicker, STEPS.quicker) if steps > 1 else (1.0, math.inf)
        h = np.maximum(h * np.clip(before / np.maximum(length, STEPS.tiny), *bounds), STEPS.shortest)
        before, move = length, np.zeros_like(x)
        for row in np.flatnonzero(good):
            outward = np.max(np.linalg.eigvals(slopes[row]).real) - 1
            longest = max(STEPS.outward / outward, STEPS.shortest) if outward > 0 else math.inf
            move[row] = np.linalg.solve((1 / min(h[row], longest) + 1) * np.eye(k) - slopes[row], step[row])
        move *= np.minimum(1.0, reach / np.maximum(np.max(np.abs(move), axis=1), reach))[:, None]
        better, waited = size < least, np.where(size < STEPS.shrinks * least, 0, waited + 1)
        best[better], ahead[better], least[better] = x[better], (x + move)[better], size[better]
        ended = (least <= tol) | ~good | ((least <= enough) & (waited >= STEPS.stalled))
        astray = ~ended & (least > STEPS.astray)
        if np.all(ended) or steps == most:
            best[astray], ahead[astray], least[astray] = x[astray], (x + move)[astray], size[astray]
            break
        x = np.where(ended[:, None], best, x + move)
    return FixedPoints(best, least, steps, ahead)


def jacobian(function: Map, x: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Return the derivatives (k, k) of a map at one point x (k,), by forward differences taken in one call."""
    return linearised_alone(function, step)(x[None])[1][0]


def linearised_alone(function: Map, step: float = 1e-3) -> Linearised:
    """Return a function for values and forward differences at one point (1, k), in one call of a map whose rows are all
    the same problem."""

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = function(x + step * np.concatenate([np.zeros_like(x), np.eye(x.size)]))
        return values[:1], ((values[1:] - values[0]).T / step)[None]

    return at


def linearised_rows(function: Map, step: float = 1e-3, nearby: Map | None = None) -> Linearised:
    """Return a function for values and forward differences at points (rows, k), in k + 1 calls of a map whose rows are
    independent problems. `nearby` is the same map at points close to those of the last call, where it may cost less."""

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = function(x)
        moved = [((nearby or function)(x + step * e) - values) / step for e in np.eye(x.shape[1])]
        return values, np.stack(moved, axis=-1)

    return at

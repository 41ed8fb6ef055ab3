"""Fixed points of maps that cost much more than the algebra around them: Anderson's method for many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Map = Callable[[np.ndarray], np.ndarray]
"""From (rows, k) to (rows, k); the rows are independent problems."""

_STALLED = 4  # steps without shrinking that end a row
_SHRINKS = 0.7


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
    """Iterate x -> f(x) with Anderson's acceleration until every row's step is below `tol`.

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
        better, waited = size < least, np.where(size < _SHRINKS * least, 0, waited + 1)
        move = scale * np.einsum("rij,rj->ri", gain, np.nan_to_num(step, nan=0.0, posinf=0.0, neginf=0.0))
        best[better], least[better] = x[better], size[better]
        ahead[better] = (x + np.clip(move, -reach, reach))[better]
        ended = (least <= tol) | ((size == least) & np.all(np.abs(move) < close, axis=1))
        if np.all(ended | ((least <= enough) & (waited >= _STALLED))):
            break
        points, moves = [*points[-memory:], x], [*moves[-memory:], move]
        new = x + np.clip(move, -reach, reach)
        for row in range(rows):
            # far away the secants belong to another landscape
            if len(points) > 2 and size[row] < 0.5:
                new[row] = x[row] + np.clip(_mixed(points, moves, row), -reach, reach)
            if size[row] > 10 * least[row] and len(points) > memory:
                new[row] = best[row] + 0.3 * (new[row] - best[row])  # a step that went wrong
        x = np.where(ended[:, None], best, new)
    return FixedPoints(best, least, steps, ahead)


def _mixed(points: list[np.ndarray], moves: list[np.ndarray], row: int) -> np.ndarray:
    """The step to where the secants of the last moves put the fixed point."""
    d_move = np.stack([moves[-1][row] - m[row] for m in moves[:-1]], axis=1)
    d_point = np.stack([points[-1][row] - p[row] for p in points[:-1]], axis=1)
    weights = np.linalg.lstsq(d_move, moves[-1][row], rcond=1e-9)[0]
    return moves[-1][row] - (d_point + d_move) @ weights


def jacobian(function: Map, x: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """(k, k) derivatives of a map at one point x (k,), by forward differences taken in one call."""
    k = x.size
    values = function(x + step * np.concatenate([np.zeros((1, k)), np.eye(k)]))
    return (values[1:] - values[0]).T / step

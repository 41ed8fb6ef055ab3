"""How a predicted risk changes with the penalties: derivatives of the fixed point of any equations.

They cost one Jacobian of the map, because the penalties enter it explicitly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from needlepoint.theory.penalties.accuracy import ACCURACY


class FixedPointMap(Protocol):
    """Equations x = F(x) of one problem: rows are the same problem with one scrambling, otherwise one a scrambling."""

    @property
    def scrambles(self) -> int: ...

    def map(self, x: np.ndarray) -> np.ndarray: ...

    def near(self, x: np.ndarray) -> AbstractContextManager[None]:
        """Return a context in which the map may be computed from what is known at the rows of x."""
        ...


@dataclass(frozen=True)
class Sensitivity:
    """A fixed point x (k,), the risk there, its derivatives by the logarithms of the penalties (p,), those of the
    point (k, p), the Jacobian (k, k) of the map, and which branch or phase of the equations the point is on."""

    x: np.ndarray
    risk: float
    gradient: np.ndarray
    moves: np.ndarray
    slope: np.ndarray
    branch: object = None

    @property
    def is_held(self) -> bool:
        """Whether the flow of the map stays at this point: no eigenvalue of the Jacobian has a real part above 1."""
        return bool(np.max(np.linalg.eigvals(self.slope).real) < 1.0)


_E = TypeVar("_E", bound=FixedPointMap)


def sensitivities(
    equations: _E,
    x: np.ndarray,
    by_log_penalties: Callable[[_E, np.ndarray], np.ndarray],
    risk_at: Callable[[_E, int, np.ndarray], tuple[float, np.ndarray]],
    branch: object = None,
) -> list[Sensitivity]:
    """Return the sensitivity at each of the fixed points x (rows, k), a Newton step closer to the exact one: one row if
    the equations have one scrambling, otherwise a row for each scrambling.

    `by_log_penalties` has the derivatives (k, p) of the map at its value (k,), `risk_at` the risk and its derivatives
    by the coordinates, by the points of the scrambling of a row.
    """
    values, slopes = _linearised(equations, x)
    found: list[Sensitivity] = []
    for row, (point, value, slope) in enumerate(zip(x, values, slopes, strict=True)):
        inverse = np.linalg.inv(np.eye(point.size) - slope)
        end = point + np.clip(inverse @ (value - point), -ACCURACY.trend, ACCURACY.trend)
        moves = inverse @ by_log_penalties(equations, value)
        risk, slope_of_risk = risk_at(equations, row, end)
        found.append(Sensitivity(end, risk, slope_of_risk @ moves, moves, slope, branch))
    return found


def _linearised(equations: FixedPointMap, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the map's values (rows, k) and its Jacobians (rows, k, k) at x, by central differences.

    Where the proximal map jumps, the derivative comes from samples that change their minimum within the step: a short
    step sees none of them or one, whose weight over the step is large. So the step is much wider than Newton's.
    """
    step, axes = ACCURACY.response_step, np.eye(x.shape[1])
    if equations.scrambles == 1:  # all rows are the same problem: one call has the differences of all coordinates
        rows = np.concatenate([x + step * axes, x])
        up = equations.map(rows)
        with equations.near(rows):
            down = equations.map(x - step * axes)
        return up[-1:], ((up[:-1] - down).T / (2 * step))[None]
    values = equations.map(x)
    with equations.near(x):
        moved = [(equations.map(x + step * e) - equations.map(x - step * e)) / (2 * step) for e in axes]
    return values, np.stack(moved, axis=-1)

"""Finding the branches of the replica-symmetric equations with few points, from overlaps near zero and near the
teachers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.equations import INFORMED, UNINFORMED, Equations

STARTS = {"uninformed": np.array(UNINFORMED), "informed": np.array(INFORMED)}
"""Coordinates (6,) from which branches are searched for."""

APART = 0.05
"""Points are on different branches if one of their coordinates differs by more than this."""


def starts_of(start: str) -> dict[str, np.ndarray]:
    """Return the coordinates (6,) that a learner's `start` stands for, by name."""
    wanted = {"both": tuple(STARTS), "random": ("uninformed",), "informed": ("informed",)}[start]
    return {name: STARTS[name] for name in wanted}


@dataclass(frozen=True)
class Place:
    """Where the flow of the equations leads from a start: coordinates x (6,), and the Jacobian of the map (6, 6)."""

    start: str
    equations: Equations
    x: np.ndarray
    slope: np.ndarray
    residual: float

    @property
    def is_solved(self) -> bool:
        return self.residual <= ACCURACY.nearly_found

    @property
    def is_held(self) -> bool:
        """Whether the fixed point is stable under the damped iteration: no eigenvalue has a real part above 1."""
        return bool(np.max(np.linalg.eigvals(self.slope).real) < 1.0)


def sought(coarse: Equations, starts: Mapping[str, np.ndarray]) -> list[Place]:
    """Return the distinct and stable fixed points that the starts lead to.

    Where there are none: the distinct unstable ones, or the one place with the smallest residual.
    """
    places: list[Place] = []
    for finer in ACCURACY.finer:
        equations = replace(coarse, log2_points=coarse.log2_points + finer)
        places = [_place(equations, name, x) for name, x in starts.items()]
        if any(p.is_solved and p.is_held for p in places):
            break
    solved = [p for p in places if p.is_solved]
    found = [p for p in solved if p.is_held] or solved or [min(places, key=lambda p: p.residual)]
    return [p for i, p in enumerate(found) if all(np.max(np.abs(p.x - q.x)) >= APART for q in found[:i])]


def _place(equations: Equations, start: str, x: np.ndarray) -> Place:
    found = equations.settle(x[None], ACCURACY.found)
    end = found.x[0]
    return Place(start, equations, end, equations.slope(end), float(found.residual[0]))

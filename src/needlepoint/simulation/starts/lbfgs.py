"""L-BFGS from many starts at once: one evaluation of the objective serves all that are still on their way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from needlepoint.simulation.starts.accuracy import ACCURACY
from needlepoint.simulation.starts.memory import Memory

Objective = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From weights (starts, P, d) to their values (starts,) and gradients (starts, P, d)."""


M = TypeVar("M")


class Problem(Protocol):
    """An objective on a data set, the units of its columns (P, 1), and the gradient at which a minimum is found."""

    @property
    def units(self) -> np.ndarray: ...
    @property
    def tolerance(self) -> float: ...
    def values_and_gradients(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class Ends(NamedTuple):
    """Where the starts ended: weights (starts, P, d), values, whether the gradient vanished there, and after how many
    gradients, (starts,) each."""

    weights: np.ndarray
    values: np.ndarray
    converged: np.ndarray
    steps: np.ndarray


def descend_together(objective: Objective, weights: np.ndarray, units: np.ndarray, tolerance: float) -> Ends:
    """Return where L-BFGS ends from each of these weights (starts, P, d).

    It works on weights / `units`, and a start ends where the norm of its gradient by these is below the tolerance.
    Every start has a step and a line search of its own; those that have ended leave the batch.
    """
    shape = weights.shape[1:]

    def scaled(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = objective(units * flat.reshape(-1, *shape))
        return values, (units * gradients).reshape(len(flat), -1)

    size = len(weights)
    ends = Ends(weights.copy(), np.empty(size), np.zeros(size, bool), np.zeros(size, int))
    x = (weights / units).reshape(size, -1)
    walk = _begin(x, *scaled(x))
    memory = Memory(*x.shape)
    while len(walk.index):
        moving = _moving(walk, tolerance)
        if np.mean(moving) < ACCURACY.crowd:
            _leave(ends, walk, ~moving, units, tolerance)
            walk, memory = walk.where(moving), memory.where(moving)
            continue
        _step(walk, memory, moving, *scaled(walk.x + walk.length[:, None] * walk.direction))
    return ends


def minima_together(
    problem: Problem, starts: Mapping[str, np.ndarray], made: Callable[[np.ndarray, float, bool, int], M]
) -> dict[str, M]:
    """Return the minima of a problem that L-BFGS reaches from each of these weights (P, d), by the start's name.

    `made` makes one of its weights, its energy, whether the gradient vanished there, and after how many gradients.
    """
    names, found = list(starts), {}
    size = max(1, ACCURACY.batch // (2 * ACCURACY.memory * starts[names[0]].size))
    for batch in (names[i : i + size] for i in range(0, len(names), size)):
        weights = np.array([starts[name] for name in batch])
        ends = descend_together(problem.values_and_gradients, weights, problem.units, problem.tolerance)
        found |= {name: made(w, float(e), bool(c), int(s)) for name, w, e, c, s in zip(batch, *ends, strict=True)}
    return found


@dataclass
class Walk:
    """The starts of a batch, (starts, ...) each.

    index          which start it is
    x, value       where it is
    gradient       there
    direction      in which the present step goes, and `slope` along it
    length         of the step that is tried next
    short, far     lengths between which the step lies: one that was too short, and one that was too long or infinity
    short_at       value and slope at the one that was too short
    trials         lengths of this step that have been tried
    steps          gradients in all
    lost           whether no step along the gradient descends
    """

    index: np.ndarray
    x: np.ndarray
    value: np.ndarray
    gradient: np.ndarray
    direction: np.ndarray
    slope: np.ndarray
    length: np.ndarray
    short: np.ndarray
    far: np.ndarray
    short_at: np.ndarray
    trials: np.ndarray
    steps: np.ndarray
    lost: np.ndarray

    def where(self, kept: np.ndarray) -> Walk:
        """Return the starts of the batch that are kept."""
        return Walk(*(getattr(self, field.name)[kept] for field in fields(self)))


def _begin(x: np.ndarray, value: np.ndarray, gradient: np.ndarray) -> Walk:
    size = len(x)
    zero, whole = np.zeros(size), np.zeros(size, int)
    walk = Walk(
        np.arange(size), x, value, gradient, np.empty_like(x), zero, zero.copy(), zero.copy(), zero.copy(),
        np.zeros((size, 2)), whole, whole + 1, ~np.isfinite(value),
    )  # fmt: skip
    _aim(walk, np.ones(size, bool), -gradient, _first_length(gradient))
    return walk


def _first_length(gradient: np.ndarray) -> np.ndarray:
    """Return the length of a first step along the gradient, (starts,): at most one unit."""
    return 1 / np.maximum(1.0, np.linalg.norm(gradient, axis=1))


def _aim(walk: Walk, rows: np.ndarray, direction: np.ndarray, length: np.ndarray) -> None:
    """Begin a new step of these rows in a direction (starts, N)."""
    walk.direction[rows] = direction[rows]
    slope = np.einsum("sn,sn->s", direction, walk.gradient)
    walk.slope[rows], walk.length[rows] = slope[rows], length[rows]
    walk.short[rows], walk.far[rows], walk.trials[rows] = 0.0, np.inf, 0
    walk.short_at[rows] = np.stack([walk.value, slope], axis=1)[rows]


def _moving(walk: Walk, tolerance: float) -> np.ndarray:
    """Return which starts have not ended, (starts,)."""
    there = np.linalg.norm(walk.gradient, axis=1) <= tolerance
    return ~(there | walk.lost | (walk.steps >= ACCURACY.most_steps))


def _leave(ends: Ends, walk: Walk, rows: np.ndarray, units: np.ndarray, tolerance: float) -> None:
    """Write down where these rows are."""
    index = walk.index[rows]
    ends.weights[index] = units * walk.x[rows].reshape(-1, *ends.weights.shape[1:])
    ends.values[index], ends.steps[index] = walk.value[rows], walk.steps[rows]
    ends.converged[index] = np.linalg.norm(walk.gradient[rows], axis=1) <= tolerance


def _step(walk: Walk, memory: Memory, moving: np.ndarray, value: np.ndarray, gradient: np.ndarray) -> None:
    """Take or change the steps that were tried, whose values (starts,) and gradients (starts, N) these are."""
    slope = np.einsum("sn,sn->s", gradient, walk.direction)
    rounding = 4 * np.finfo(float).eps * np.abs(walk.value)  # by which alone the last steps differ
    wanted = walk.value + ACCURACY.descent * walk.length * walk.slope + rounding
    long = moving & ~(np.isfinite(value) & (value <= wanted))
    short = moving & ~long & (slope < ACCURACY.flattened * walk.slope)
    taken = moving & ~long & ~short
    walk.steps[moving] += 1
    walk.trials[moving] += 1
    _change_length(walk, long, short, value, slope)
    if np.any(taken):
        step = walk.length[:, None] * walk.direction
        direction = memory.learn(taken, step, gradient - walk.gradient, gradient)
        walk.x[taken] += step[taken]
        walk.value[taken], walk.gradient[taken] = value[taken], gradient[taken]
        _aim(walk, taken, direction, np.ones(len(value)))
    _restart(walk, memory, moving)


def _change_length(walk: Walk, long: np.ndarray, short: np.ndarray, value: np.ndarray, slope: np.ndarray) -> None:
    """Choose another length for steps that were too long or too short: where the parabola has its minimum, kept inside
    the lengths that are possible."""
    tried = walk.length.copy()
    first, first_slope = walk.short_at[:, 0], walk.short_at[:, 1]
    walk.far[long] = tried[long]
    width = tried - walk.short
    with np.errstate(divide="ignore", invalid="ignore"):
        by_value = -first_slope * width / (2 * ((value - first) / width - first_slope))
        by_slope = width * first_slope / (first_slope - slope)
    # a step that was too long: between the two lengths
    share = np.clip(np.nan_to_num(by_value / width, nan=0.5, posinf=0.5, neginf=0.5), 0.1, 0.6)
    walk.length[long] = (walk.short + share * width)[long]
    # a step that was too short: beyond it, at most half of the way to one that was too long
    growth = np.clip(np.nan_to_num(by_slope / width, nan=4.0, posinf=4.0, neginf=4.0), 1.5, 5.0)
    open_end = np.isinf(walk.far)
    beyond = np.where(open_end, walk.short + growth * width, 0.5 * (tried + np.where(open_end, tried, walk.far)))
    walk.length[short] = beyond[short]
    walk.short[short] = tried[short]
    walk.short_at[short] = np.stack([value, slope], axis=1)[short]


def _restart(walk: Walk, memory: Memory, moving: np.ndarray) -> None:
    """Follow the gradient where the direction does not descend; where that does not either, the start is lost."""
    astray = moving & ~((walk.slope < 0) & (walk.trials < ACCURACY.trials))
    if not np.any(astray):
        return
    walk.lost |= astray & (memory.count == 0)
    memory.forget(astray)
    _aim(walk, astray, -walk.gradient, _first_length(walk.gradient))

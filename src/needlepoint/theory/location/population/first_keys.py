"""Where a search for the best key looks first: norms, cosines with k*, and values of the free constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from needlepoint.core.results import Progress, silent
from needlepoint.core.routes import GENERIC, route, the
from needlepoint.models.activations import Erf, KernelActivation
from needlepoint.theory.location.population.accuracy import ACCURACY
from needlepoint.theory.location.population.risk_at_a_key import SCAN, SEARCH, Point, Question

_LADDER = sorted(n << i for n in (96, 128) for i in range(8))  # allowed sizes of a grid: few, as each is compiled
_SHIFTS = np.array([-3.0, -1.5, -0.5, 0.5, 1.5, 3.0])
_SCALES = np.geomspace(0.01, 100.0, 17)


def alignments(question: Question) -> tuple[float, ...]:
    """Return the cosines with k* to scan."""
    if question.model.unit_norm:
        return tuple(np.cos(np.linspace(0.0, np.pi, 25)).tolist())
    return the("cosines of keys", activation=question.activation)(question)


@route("cosines of keys", name="kernel", activation=KernelActivation)
def _kernel_alignments(question: Question) -> tuple[float, ...]:
    """Return 1 for an increasing kernel, which weighs the relevant token most when k points along k*."""
    kernel: Any = question.activation
    log_kernel = kernel.log_kernel(np.linspace(-40.0, 40.0, 801), np)
    return (1.0,) if np.all(np.diff(log_kernel) >= 0) else ACCURACY.alignments


@route("cosines of keys", name="any", cost=GENERIC)
def _any_alignments(question: Question) -> tuple[float, ...]:
    """Return both signs where a shift is free. With free shift and offset, keys along k* and against it are equivalent,
    because the signs of shift and offset can follow."""
    if "shift" in question.free:
        return (1.0,) if "offset" in question.free else (1.0, -1.0)
    return ACCURACY.alignments


def norms(question: Question, count: int = 0) -> np.ndarray:
    """Return the key norms to scan, (norms,); for erf at least `count` of them."""
    if question.model.unit_norm:
        return np.ones(1)
    return the("norms of keys", activation=question.activation)(question, count)


@route("norms of keys", name="elementwise", form="elementwise")
def _elementwise_norms(question: Question, count: int) -> np.ndarray:
    return np.geomspace(1e-5, 1e4, 84)


@route("norms of keys", name="any", cost=GENERIC)
def _any_norms(question: Question, count: int) -> np.ndarray:
    return np.geomspace(3e-3, 300.0, 21)


def score_law(question: Question) -> tuple[float, float]:
    """Return mean and standard deviation of the score of the relevant token, for the key k = k*."""
    if question.task.tilted:
        return math.sqrt(2 * math.log(question.task.longest)), 1.0  # of the largest of many, if the place is sharp
    return math.sqrt(question.task.shift_sq), question.task.relevant_spread


@route("norms of keys", name="erf", activation=Erf)
def _erf_norms(question: Question, count: int) -> np.ndarray:
    """Return norms (norms,) between which log |k| and every argument u of erf in the risk (eq:erf-mean) change little.

    They go from where erf is linear in all scores to where it is a step for all of them.
    """
    c = question.constants
    scale, shift = c["scale"], 0.0 if "shift" in question.free else c["shift"]
    mean, spread = score_law(question)
    # the best offset comes from differences of the order of the squared slope, lost in rounding at smaller norms
    least = 1e-3 if "offset" in question.free else 1e-5
    a = np.geomspace(least / max(1.0, mean, spread), 1e4 * max(1.0, abs(shift)) * max(1.0, 1 / spread), 4001)
    # u of a relevant token with the key along k* and against it, and of another token
    args = [(m * a + shift) / np.sqrt(1 + 2 * (s * a) ** 2) for m, s in ((mean, spread), (-mean, spread), (0.0, 1.0))]
    steps = np.diff(np.log(a)) / ACCURACY.apart
    for u in args:
        steps = steps + np.abs(np.diff(_metric(u, abs(c.get("offset", 0.0)) == 1.0))) / ACCURACY.turning
    way = np.concatenate([[0.0], np.cumsum(steps)])
    needed = max(count, math.ceil(way[-1]))
    nodes = next((n for n in _LADDER if n >= needed), _LADDER[-1])
    return np.exp(np.interp(np.linspace(0.0, way[-1], nodes), way, np.log(a))) / scale


def _metric(u: np.ndarray, tails: bool) -> np.ndarray:
    """Return a coordinate, shaped like u, in which even steps resolve erf or, with `tails`, log(1 + erf)."""
    if not tails:
        return np.clip(u, -ACCURACY.saturated, ACCURACY.saturated)
    u = np.clip(u, -ACCURACY.underflow, ACCURACY.underflow)
    return np.where(np.abs(u) < 1, u, np.sign(u) * (1 + u**2) / 2)


def turns(question: Question) -> np.ndarray:
    """Return scores at which erf with a free shift may change sign, for the key k = k*."""
    mean, spread = score_law(question)
    long = math.sqrt(2 * math.log(question.task.longest))
    t = np.array([1.0, 2.0, 3.5, 0.35 * mean, 0.7 * mean, 0.7 * long, 1.1 * long, spread])
    return np.concatenate([[0.0], t, -t])


def constants(question: Question, grid: np.ndarray) -> dict[str, np.ndarray]:
    """Return values of the free constants to scan at each norm, arrays (norms, choices) by name.

    A shift moves the score at which erf changes sign, so it scales with the key. An offset is 0 here, because its best
    value is known in closed form (`best_offset`).
    """
    names, choices = question.free, {}
    scale = _SCALES if "scale" in names else np.array([question.constants.get("scale", 1.0)])
    if "shift" in names:
        at = -np.multiply.outer(np.multiply.outer(grid, scale), turns(question))
        fixed = np.broadcast_to(_SHIFTS, (*at.shape[:2], len(_SHIFTS)))
        choices["shift"] = np.concatenate([at, fixed], axis=2)
    else:
        choices["shift"] = np.zeros((len(grid), len(scale), 1))
    choices["scale"] = np.broadcast_to(scale[:, None], choices["shift"].shape)
    choices["offset"] = np.zeros(choices["shift"].shape)
    return {name: choices[name].reshape(len(grid), -1) for name in names}


def zero_constants(question: Question) -> dict[str, float]:
    """Return the constants that are used at k = 0, where all weights are equal."""
    return {name: {"scale": 1.0, "offset": 1.0}.get(name, 0.0) for name in question.free}


class Count(NamedTuple):
    """What the risk of constant weights depends on: label variance G and B = G + E[L - 1] (eq:value-form)."""

    G: Any
    B: Any
    unit_norm: bool
    free_offset: bool


def count_of(question: Question) -> Count:
    G = question.task.label_var
    return Count(
        G, G + question.task.length_moments()["task.others"], question.model.unit_norm, "offset" in question.free
    )


def best_offset(count: Count, A: Any, B: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""eq:best-offset. Return the least risk over v and the offset, and that offset; arrays without the first axis.

    `A` and `B` are those of eq:value-form at the offsets 1, -1 and 0 (the first axis), which is enough because the risk
    is a quadratic of $v$ and $v\,o$.
    """
    # notation: G and B11 are A and B of constant weights; cross is the mean of their product with s + erf, s = 1 or -1
    G, B11 = count.G, count.B
    if count.unit_norm:
        cross = (B[0] - B[1]) / 4
        choices = [(s * G - cross) / B11 for s in (1, -1)]
        risks = [
            G - 2 * s * (A[2] + o * G) + B[2] + 2 * o * cross + o * o * B11
            for s, o in zip((1, -1), choices, strict=True)
        ]
        return np.minimum(*risks), np.where(risks[0] <= risks[1], *choices)
    first = B[0] <= B[1]  # the sign with the smaller weights loses no digits
    s, a, b = np.where(first, 1.0, -1.0), np.where(first, A[0], A[1]), np.where(first, B[0], B[1])
    cross = s * (b + B11 - B[2]) / 2
    # what the weights explain beyond constant ones, so that a large v does not lead to cancellation
    more, spread = a - G * cross / B11, b - cross**2 / B11
    usable = spread > 1e-14 * b
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        v = np.where(usable, more / spread, 0.0)
        offset = np.where(v != 0, s + (G / v - cross) / B11, 1.0)
    return G - G * G / B11 - more * v, np.clip(offset, -ACCURACY.largest_offset, ACCURACY.largest_offset)


Forms = Callable[[dict[str, float]], Sequence[np.ndarray]]
"""Maps constants that override those of an array of points to (A, B) of eq:value-form at these points."""


def least_risks(count: Count, forms: Forms) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the least risk over v, and over the offset if it is free, at every point; and that offset, or None."""
    if count.free_offset:
        A, B = (np.stack(x) for x in zip(*(forms({"offset": o}) for o in ACCURACY.offsets), strict=True))
        return best_offset(count, A, B)
    A, B = forms({})
    if count.unit_norm:
        return count.G - 2 * np.abs(A) + B, None
    return count.G - A * np.where(B > 0, A / np.where(B > 0, B, 1.0), 0.0), None


Scanned = list[tuple[float, Point]]


def scan(question: Question, grid: np.ndarray, progress: Progress = silent) -> Scanned:
    """Return the lowest point at each norm over cosines and constants, with coarse tables, in the order of the grid;
    keys with a positive and with a negative cosine count separately.
    """
    return the("scan of keys", activation=question.activation)(question, grid, progress)


@route("scan of keys", name="at once", form="elementwise")
def _scan_at_once(question: Question, grid: np.ndarray, progress: Progress) -> Scanned:
    chosen, cosines = constants(question, grid), np.array(alignments(question))
    free, key, norm = spread_out(grid, cosines, chosen)
    values, offsets = least_risks(
        count_of(question), lambda more: question.many_forms(norm, key, {**free, **more}, SCAN)
    )
    return lowest_of(grid, cosines, chosen, values, offsets)


def spread_out(grid: np.ndarray, cosines: np.ndarray, chosen: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    """Return constants, keys (k . k*) and norms as arrays (..., norms, cosines, choices)."""
    choices = max((x.shape[-1] for x in chosen.values()), default=1)
    shape = (*grid.shape, len(cosines), choices)
    free = {n: np.broadcast_to(x[..., None, :], shape) for n, x in chosen.items()}
    norm = np.broadcast_to(grid[..., None, None], shape)
    return free, cosines[:, None] * norm, norm


def lowest_of(
    grid: np.ndarray, cosines: np.ndarray, chosen: Mapping[str, np.ndarray], values: np.ndarray, offsets: Any
) -> Scanned:
    """Return the lowest finite value at each norm, separately for keys with a positive and with a negative cosine."""
    lowest: Scanned = []
    sides = [np.flatnonzero(cosines * sign > 0) for sign in (1, -1)]
    for i, s in enumerate(grid.tolist()):
        for side in (side for side in sides if len(side)):
            here = np.where(np.isfinite(values[i, side]), values[i, side], np.inf)
            j, k = divmod(int(np.argmin(here)), here.shape[1])
            if np.isfinite(here[j, k]):
                picked = {n: float(x[i, k]) for n, x in chosen.items()}
                if offsets is not None:
                    picked["offset"] = float(offsets[i, side[j], k])
                lowest.append((float(here[j, k]), Point(i, s, float(cosines[side[j]]), picked)))
    return lowest


@route("scan of keys", name="in turn", cost=GENERIC)
def _scan_in_turn(question: Question, grid: np.ndarray, progress: Progress) -> Scanned:
    """Scan norm by norm: tables of steep kernels grow with the norm, so stop once the risk has been rising."""
    lowest: Scanned = []
    for i, s in enumerate(grid.tolist()):
        progress(i / len(grid))
        coarseness = SCAN if s > 2 or question.kind == "rough" else SEARCH
        found = [(question.value(p, coarseness), p) for p in (Point(i, s, a, {}) for a in alignments(question))]
        if all(np.isposinf(v) for v, _ in found):
            break  # the kernel is too steep for tables from this norm on
        for sign in (1, -1):
            side = [(v, p) for v, p in found if p.alignment * sign > 0 and np.isfinite(v)]
            if side:
                lowest.append(min(side, key=lambda pair: pair[0]))
        best = min(lowest, key=lambda pair: pair[0])[1] if lowest else None
        steep = question.tabled and s > 4
        if steep and best is not None and i >= best.index + 3:
            break
    return lowest

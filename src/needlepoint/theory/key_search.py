"""The best key and constants when the value is eliminated: the risk is quadratic in v, so v has a closed form."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.models.activations import Activation, Erf, KernelActivation, Linear
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.minimise import Minimum, minimise, newton
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory import erf_newton, field_moments, population_risk, sampled_moments
from needlepoint.theory.field_moments import Moments
from needlepoint.theory.max_place import winner_rule

SCAN, SEARCH, FINAL = 4.0, 2.0, 1.0
"""Coarseness of the tables in the three stages."""

_ALIGNMENTS = (1.0, 0.6, -0.6, -1.0)
_QMC_POINTS = {SCAN: 9, SEARCH: 13, FINAL: 14}
_QMC_BUDGET = 17  # log2 of points times tokens in a search
DIFFERENCES = {"smooth": (1e-3, 1e-5), "rough": (1e-2, 1e-3)}
LEAST_TOLERANCE = {"smooth": 0.0, "rough": 3e-4}
SLACK = {"smooth": 1e-13, "rough": 1e-5}  # of a comparison of two risks, in units of the label's variance
_COARSE = 1e-5  # uncertainty of a minimum, in the same units, above which its tables need not be fine
STARTS = 3
_ROUNDS = 8
_SMALL = 1e-3  # risks below this, in the same units, may lie in a valley too flat for gradients alone
_SCANNING = 0.5  # share of the work that is the scan
_PROMISING = 0.03  # how far above the lowest a scanned point may lie, in units of the label's variance


class TooSteep(Exception):
    """The tables of a kernel end at this norm of the key."""


@dataclass(frozen=True)
class Point:
    """A key on the manifold and the free constants; `index` is where on the grid of norms it was scanned."""

    index: int
    scale: float
    alignment: float
    constants: dict[str, float]

    @property
    def key(self) -> float:
        return self.scale * self.alignment


@dataclass(frozen=True)
class Question:
    """What is minimised: the risk of this model over its key (and value), with these constants free."""

    task: SingleLocation
    model: KeyValueAttention

    @property
    def activation(self) -> type[Activation]:
        return type(self.model.activation)

    @property
    def free(self) -> list[str]:
        return self.model.free_constants()

    @property
    def kind(self) -> str:
        """A user's function may have kinks, and sampled means have them in any case."""
        return "smooth" if issubclass(self.activation, (Erf, Linear, KernelActivation)) else "rough"

    @functools.cached_property
    def alignments(self) -> tuple[float, ...]:
        """Cosines to scan. An increasing kernel weighs the relevant token most when k points along k*."""
        if issubclass(self.activation, KernelActivation) and not self.model.unit_norm:
            log_kernel = self.activation.log_kernel(np.linspace(-40.0, 40.0, 801), np)
            if np.all(np.diff(log_kernel) >= 0):
                return (1.0,)
        if self.model.unit_norm:
            return tuple(np.cos(np.linspace(0.0, np.pi, 25)).tolist())
        return _ALIGNMENTS

    @functools.cached_property
    def constants(self) -> dict[str, float]:
        return elementwise.constants(self.task, self.model)

    def moments(
        self, free: Mapping[str, float], key: float, key_sq: float, coarseness: float = FINAL, rest: bool = False
    ) -> Moments:
        """The means at this key; without `rest` only what the manifold needs."""
        if self.model.activation.form == "elementwise":
            found = population_risk.elementwise_of(*self.elementwise_call(coarseness), dict(free), key, key_sq)
            return type(found)(*map(float, found))
        if issubclass(self.activation, KernelActivation):
            while coarseness <= SCAN:  # where fine tables are too large, coarser ones still beat sampling
                tables = population_risk.kernel_of(self.task, self.activation, key, key_sq, coarseness, rest)
                if tables is not None:
                    return tables
                coarseness *= 2
            raise TooSteep
        points = min(_QMC_POINTS[coarseness], max(9, _QMC_BUDGET - int(math.log2(self.task.longest))))
        c = {**self.constants, **free}
        return sampled_moments.scrambles(self.task, self.activation, c, key, key_sq, points, 1)[0]

    def elementwise_call(self, coarseness: float) -> tuple[Any, ...]:
        """The first arguments of population_risk.elementwise_of."""
        closed = issubclass(self.activation, Erf)
        refine = {SCAN: 1, SEARCH: 2 if closed else 4, FINAL: 4 if closed else 16}[coarseness]
        if issubclass(self.activation, Linear):
            refine = 1  # the rules are exact for polynomials
        nodes = 0 if closed else 64 * refine
        winner = winner_rule(self.task, refine) if isinstance(self.task, MaxSLR) else None
        return self.activation, type(self.task), nodes, winner, self.constants

    def scan(self, points: Sequence[Point]) -> np.ndarray:
        """The least excess risk over v at many points of the manifold, with coarse tables."""
        if self.model.activation.form != "elementwise":
            return np.array([_value(self, p, SCAN if p.scale > 2 or self.kind == "rough" else SEARCH) for p in points])
        free = {name: np.array([p.constants[name] for p in points]) for name in self.free}
        key, key_sq = np.array([p.key for p in points]), np.array([p.scale**2 for p in points])
        found = population_risk.elementwise_of_many(*self.elementwise_call(SCAN), free, key, key_sq)
        A, B = (np.asarray(x) for x in field_moments.on_manifold(self.task.label_var, found))
        return np.array([self.least(form)[0] for form in zip(A, B, strict=True)])

    # --- on the manifold -----------------------------------------------------------------------

    def value_form(
        self, free: Mapping[str, float], key: float, key_sq: float, coarseness: float
    ) -> tuple[float, float]:
        """(A, B) of eq:value-form."""
        return field_moments.on_manifold(self.task.label_var, self.moments(free, key, key_sq, coarseness))

    def least(self, form: tuple[float, float]) -> tuple[float, float]:
        """The least excess risk over v, and its v . v*, from (A, B)."""
        (A, B), G = form, self.task.label_var
        if self.model.unit_norm:
            value = 1.0 if A >= 0 else -1.0
            return G - 2 * value * A + B, value
        value = A / B if B > 0 else 0.0
        return G - A * value, value


@dataclass(frozen=True)
class Best:
    """The lowest point found and its risk. `value_error` is how much lower the minimum may be."""

    overlaps: Overlaps
    constants: dict[str, float]
    excess: Estimate
    residual: float
    value_error: float
    status: Status
    note: str = ""


def scales(question: Question) -> np.ndarray:
    """Key norms to scan."""
    if question.model.unit_norm:
        return np.ones(1)
    if question.model.activation.form == "elementwise":
        return np.geomspace(1e-5, 1e4, 28)
    return np.geomspace(3e-3, 300.0, 21)


Scanned = list[tuple[float, Point]]


def best_on_manifold(question: Question, tol: float, progress: Progress = silent) -> Best:
    """Scan norms, alignments and constants, refine the best few, then look sideways."""
    grid = scales(question)
    lowest = _scan(question, grid, progress)
    if not lowest:
        nothing = Overlaps(0.0, 0.0, key_sq=0.0, value_sq=0.0)
        return Best(nothing, {}, Estimate(math.nan, math.inf), math.nan, math.nan, Status.DIVERGED)
    unit, edge, minimum, best = question.task.label_var, None, None, None
    if not question.model.unit_norm:
        zero = _at_zero(question, lowest, float(grid[0]))
        if zero is not None:
            return zero
        edge = _unattained(question, lowest)
    starts = promising(lowest, unit)
    if not starts and edge is None:
        starts = [min(lowest, key=lambda pair: pair[0])[1]]
    for i, start in enumerate(starts):
        progress(_SCANNING + (1 - _SCANNING) * i / len(starts))
        found = _refine(question, start, tol, tilt=abs(start.alignment) < 1)
        if minimum is None or found[0].value < minimum.value:
            minimum, best = found
    if edge is not None and (minimum is None or edge.excess.value <= minimum.value + 1e-11 * unit):
        return edge
    assert minimum is not None
    assert best is not None
    if abs(best.alignment) == 1:
        # by symmetry an aligned key is stationary; is it a minimum?
        tilted = [replace(best, alignment=best.alignment * math.cos(angle)) for angle in (0.05, 0.4)]
        sideways, start = min((_value(question, p, SEARCH), i) for i, p in enumerate(tilted))
        if sideways < minimum.value - max(1e-9, SLACK[question.kind]) * unit:
            minimum, best = _refine(question, tilted[start], tol, tilt=True)
    best = upright(question, best)
    if best.scale > 0.7 * grid[-1] and not question.model.unit_norm:
        note = (
            f"the risk keeps falling as the norm of the key goes to infinity; the value is at |k| = {best.scale:.3g}."
        )
        rest = 2 * abs(minimum.value - _value(question, replace(best, scale=best.scale / 2), SEARCH))
        return ended(question, best, minimum.residual, rest, Status.UNBOUNDED, note)
    return ended(question, best, minimum.residual, minimum.value_error, minimum.status)


def ended(
    question: Question, point: Point, residual: float, value_error: float, status: Status, note: str = ""
) -> Best:
    """The risk at a point from (A, B), whose digits hold where v is large; its error is the change with the tables."""
    key_sq = point.scale**2
    # the value at an end of the scan need not be known better than how far it is from the infimum
    fine, coarse = (SEARCH, SCAN) if value_error > _COARSE * question.task.label_var else (FINAL, SEARCH)
    form = question.value_form(point.constants, point.key, key_sq, fine)
    lowest, value = question.least(form)
    error = abs(lowest - _value(question, point, coarse)) or abs(lowest - _value(question, point, SCAN))
    eps = float(np.finfo(float).eps)
    error += 32 * eps * (question.task.label_var + abs(form[0] * value))
    if issubclass(question.activation, Erf):
        # E (offset + erf)^2 cancels where erf is close to -offset (but for offsets of 1), and a large v makes up for it
        offset = point.constants.get("offset", question.constants.get("offset", 0.0))
        beyond = min(abs(offset), abs(abs(offset) - 1.0))
        count = question.task.label_var + question.task.length_moments()["task.others"]
        error += 4 * eps * beyond**2 * count * value**2
    overlaps = Overlaps(point.key, value, key_sq=key_sq, value_sq=value**2)
    excess = Estimate(lowest, error + value_error)
    return Best(overlaps, point.constants, excess, residual, value_error, status, note)


def upright(question: Question, point: Point) -> Point:
    """(k, v, shift, offset) -> -(k, v, shift, offset) changes nothing for erf; report the key along k*."""
    odd = issubclass(question.activation, Erf) and point.key < 0
    fixed = [n for n in ("shift", "offset") if n not in question.free and question.constants.get(n, 0.0) != 0.0]
    if not odd or fixed:
        return point
    flipped = {n: -x if n in ("shift", "offset") else x for n, x in point.constants.items()}
    return replace(point, alignment=-point.alignment, constants=flipped)


def _scan(question: Question, grid: np.ndarray, progress: Progress) -> Scanned:
    """The lowest point at each norm, with keys towards k* and away from it apart, in the order of the grid."""
    lowest: Scanned = []
    points = [
        [
            Point(i, float(scale), alignment, constants)
            for alignment in question.alignments
            for constants in constant_grid(question, float(scale))
        ]
        for i, scale in enumerate(grid)
    ]
    if question.model.activation.form == "elementwise":
        flat = iter(question.scan([p for row in points for p in row]))
        values: Iterator[Any] = iter([list(itertools.islice(flat, len(row))) for row in points])
    else:
        values = map(question.scan, points)
    for row in points:
        progress(_SCANNING * row[0].index / len(grid))
        found = next(values)
        if np.all(np.isposinf(found)):
            break  # tables end at this norm
        for sign in (1, -1):
            side = [(float(v), p) for v, p in zip(found, row, strict=True) if p.alignment * sign > 0 and np.isfinite(v)]
            if side:
                lowest.append(min(side, key=lambda pair: pair[0]))
        best = min(lowest, key=lambda pair: pair[0])[1] if lowest else None
        steep = issubclass(question.activation, KernelActivation) and row[0].scale > 4
        if steep and best is not None and row[0].index >= best.index + 3:
            break  # tables of steep kernels grow with the norm, and the risk has been rising for a while
    return lowest


def _at_zero(question: Question, lowest: Scanned, smallest: float) -> Best | None:
    """The point k = 0, where every weight is the same, if a parabola through the smallest keys has its vertex there."""
    constants = zero_constants(question)
    here = _value(question, Point(0, 0.0, 1.0, constants), SEARCH)
    if min(v for v, _ in lowest) < here - SLACK[question.kind] * question.task.label_var:
        return None
    plus, minus = (_value(question, Point(0, smallest, sign, constants), SEARCH) for sign in (1.0, -1.0))
    curvature = plus + minus - 2 * here
    vertex = 0.5 * smallest * (minus - plus) / curvature if curvature > 0 else 0.0
    if abs(vertex) > 1e-6 * smallest and question.kind == "smooth":
        start = Point(0, abs(vertex), math.copysign(1.0, vertex), constants)
        lowest[:] = [(_value(question, start, SEARCH), start)]
        return None
    change = abs(0.25 * (minus - plus) * vertex / smallest)
    return ended(question, Point(0, 0.0, 1.0, constants), 0.0, change, Status.CONVERGED)


def _value(question: Question, point: Point, coarseness: float) -> float:
    """The least risk over v; infinite where a kernel is too steep for its tables, or beyond the norms of the scan."""
    if point.scale > 1.01 * scales(question)[-1]:
        return math.inf
    try:
        return question.least(question.value_form(point.constants, point.key, point.scale**2, coarseness))[0]
    except TooSteep:
        return math.inf


def zero_constants(question: Question) -> dict[str, float]:
    """Constants that do at k = 0, where their choice is immaterial."""
    return {name: {"scale": 1.0, "offset": 1.0}.get(name, 0.0) for name in question.free}


def constant_grid(question: Question, scale: float) -> Iterator[dict[str, float]]:
    """Values of the free constants: a shift moves the score at which erf turns, so it scales with the key."""
    m = math.sqrt(question.task.snr) if isinstance(question.task, SpikedSLR) else 0.0
    turns = {0.0, 1.0, -1.0, 2.0, 3.0, *(m * f for f in (0.25, 0.5, 0.75))}
    grids = {
        "shift": sorted({-t * scale for t in turns} | {-1.5, -0.5, 0.5}),
        "offset": [1.0, 0.0, -1.0, 3.0, 0.5, 0.8, 0.95, 1.05, 1.1, 1.2, 1.5, 2.0, -0.5, -1.1, -2.0],
        "scale": [0.03, 0.1, 0.3, 1.0, 3.0],
    }
    for values in itertools.product(*(grids.get(name, [0.0]) for name in question.free)):
        yield dict(zip(question.free, values, strict=True))


def promising(lowest: Scanned, unit: float) -> list[Point]:
    """Local minima of the scan along the norm, not at its ends, that may still turn out lowest."""
    chosen: Scanned = []
    ends = {0, max(p.index for _, p in lowest)} if len(lowest) > 2 else set()
    for sign in (1, -1):
        side = [pair for pair in lowest if pair[1].alignment * sign > 0]
        values = [math.inf, *(v for v, _ in side), math.inf]
        inner = [i for i in range(1, len(values) - 1) if side[i - 1][1].index not in ends]
        chosen += [side[i - 1] for i in inner if values[i] <= min(values[i - 1], values[i + 1])]
    chosen.sort(key=lambda pair: pair[0])
    return [p for v, p in chosen if v <= chosen[0][0] + _PROMISING * unit][:STARTS]


def _unattained(question: Question, lowest: Scanned) -> Best | None:
    """The infimum at an end of the scan: the risk still falls, or is flat, towards a norm of 0 or infinity."""
    value, point = min(lowest, key=lambda pair: pair[0])
    last = max(p.index for _, p in lowest)
    slack = max(1e-11, SLACK[question.kind]) * question.task.label_var
    flat = {p.index: (v, p) for v, p in reversed(lowest) if v <= value + slack}
    if last == 0 or len(flat) == last + 1:
        return None  # the norm does not matter at all
    for end in (0, last):
        if end in flat:
            value, point = flat[end]
            break
    else:
        return None
    inner = min(v for v, p in lowest if p.index == abs(point.index - 1))
    # what is left is taken to shrink at least as the inverse of the norm
    rest = 2 * abs(value - inner)
    where = "0, with the value growing" if point.index == 0 else "infinity"
    note = f"the risk keeps falling as the norm of the key goes to {where}; the value is at |k| = {point.scale:.3g}."
    return ended(question, upright(question, point), math.nan, rest, Status.UNBOUNDED, note)


def _refine(question: Question, start: Point, tol: float, tilt: bool) -> tuple[Minimum, Point]:
    """Local minimisation in log |k| (where it is free), the angle to k* (if tilted) and the constants."""
    names, scaled = question.free, not question.model.unit_norm
    if issubclass(question.activation, Erf) and scaled and not tilt:
        found, point = _by_slopes(question, start, tol)
        for _ in range(_ROUNDS):  # a flat valley is followed in several rounds, each in the units of its start
            if found.status is Status.CONVERGED:
                break
            again = _by_slopes(question, point, tol)
            further, (found, point) = found.value - again[0].value, again
            if not further > 1e-15 * question.task.label_var:
                break
        if names and found.value < _SMALL * question.task.label_var:
            found, point = _by_curvature(question, point, found)
        # at the bottom of a flat valley the value is known long before the place
        known = found.value_error <= 1e-2 * tol and found.residual <= 1e3 * tol
        return (replace(found, status=Status.CONVERGED) if known else found), point
    unit = {name: max(0.3, abs(start.constants[name])) for name in names}
    side = math.acos(start.alignment)

    def at(x: np.ndarray) -> Point:
        scale = start.scale * math.exp(min(x[0], 50.0)) if scaled else 1.0
        alignment = math.cos(side + float(x[int(scaled)])) if tilt else start.alignment
        moved = zip(names, x[scaled + tilt :], strict=True)
        return Point(start.index, scale, alignment, {n: float(start.constants[n] + unit[n] * y) for n, y in moved})

    def value(x: np.ndarray) -> float:
        return _value(question, at(x), SEARCH)

    x0 = np.zeros(scaled + tilt + len(names))
    if not len(x0):
        return Minimum(x0, value(x0), 0.0, 0.0, Status.CONVERGED, ()), start
    tolerance = max(tol, LEAST_TOLERANCE[question.kind])
    found = newton(value, x0, tol=tolerance, steps=DIFFERENCES[question.kind])
    return found, at(found.x)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _with_slope(
    activation: type[Activation],
    task: type[SingleLocation],
    nodes: int,
    names: tuple[str, ...],
    winner: Any,
    c: dict[str, Any],
    start: dict[str, Any],
    x: Any,
) -> Any:
    """The least risk over v and its gradient in x: log |k| and the constants, in units of the start."""

    def value(x: Any) -> Any:
        free = {n: start["constants"][i] + start["unit"][i] * x[i + 1] for i, n in enumerate(names)}
        scale = start["scale"] * jnp.exp(x[0])
        args = (activation, task, nodes, winner, c, free, scale * start["alignment"], scale**2)
        A, B = field_moments.on_manifold(start["label_var"], population_risk.elementwise_means(*args))
        return start["label_var"] - A * A / B

    return jax.value_and_grad(value)(x)


def _by_slopes(question: Question, start: Point, tol: float) -> tuple[Minimum, Point]:
    """Exact gradients for erf with free norms: norm and constants trade against each other along a curved valley."""
    names = tuple(question.free)
    constants = np.array([start.constants[n] for n in names])
    unit = np.maximum(0.3, np.abs(constants))
    activation, task, nodes, winner, c = question.elementwise_call(SEARCH)
    given = {
        "scale": start.scale,
        "alignment": start.alignment,
        "constants": constants,
        "unit": unit,
        "label_var": question.task.label_var,
    }

    def value_and_grad(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _with_slope(activation, task, nodes, names, winner, c, given, np.clip(x, -50.0, 50.0))
        return float(value), np.asarray(slope)

    found = minimise(value_and_grad, np.zeros((1, len(names) + 1)), tol=tol)
    moved = {n: float(constants[i] + unit[i] * found.x[i + 1]) for i, n in enumerate(names)}
    return found, replace(start, scale=start.scale * math.exp(found.x[0]), constants=moved)


def _by_curvature(question: Question, start: Point, before: Minimum) -> tuple[Minimum, Point]:
    """Exact second derivatives, where the offset is so much steeper than the valley that gradients lose it."""
    names, point, found = tuple(question.free), start, before
    _, task, _, winner, c = question.elementwise_call(SEARCH)
    numbers = {name: np.array([x]) for name, x in {**c, "label_var": question.task.label_var}.items()}
    law = numbers, (None, None) if winner is None else tuple(x[None] for x in winner)
    for _ in range(_ROUNDS):
        constants = np.array([point.constants[n] for n in names])
        unit = np.maximum(0.3, np.abs(constants))
        given = {"scale": point.scale, "alignment": point.alignment, "constants": constants, "unit": unit}
        ended = erf_newton.newton(task, names, False, law, {k: np.array([v]) for k, v in given.items()})
        x, value, residual, value_error, _, done = (np.asarray(part)[0] for part in ended)
        if not float(value) <= found.value + 1e-14 * question.task.label_var:
            break
        found = replace(found, value=float(value), residual=float(residual), value_error=float(value_error))
        moved = dict(zip(names, (constants + unit * x[1:]).tolist(), strict=True))
        point = replace(point, scale=point.scale * math.exp(float(x[0])), constants=moved)
        if done:
            break
    return found, point

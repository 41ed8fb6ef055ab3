"""The best key and constants when the value is eliminated: the risk is quadratic in v, so v has a closed form."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.models.activations import Activation
from needlepoint.numerics.minimise import Minimum, minimise, newton
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.erf import newton as erf_newton
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.moments.elementwise import elementwise_means
from needlepoint.theory.location.moments.place_race import Winner
from needlepoint.theory.location.population import infima
from needlepoint.theory.location.population.accuracy import ACCURACY
from needlepoint.theory.location.population.first_keys import Scanned, count_of, norms, scan, zero_constants
from needlepoint.theory.location.population.risk_at_a_key import FINAL, SCAN, SEARCH, Point, Question

DIFFERENCES = {"smooth": (1e-3, 1e-5), "rough": (1e-2, 1e-3)}  # steps of finite differences: Hessian, last gradients
LEAST_TOLERANCE = {"smooth": 0.0, "rough": 3e-4}  # least tolerance of a gradient: a rough risk has kinks
SLACK = {"smooth": 1e-13, "rough": 1e-5}  # two risks closer than this, in units of the label's variance, are equal
STARTS = 3


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


def best_on_manifold(question: Question, tol: float, progress: Progress = silent) -> Best:
    """Return the best point on the manifold: scan norms, alignments and constants, refine the lowest few, tilt an
    aligned key, and compare with k = 0 and with the limits |k| -> 0 and infinity.
    """
    grid, unit = norms(question), question.task.label_var
    lowest = scan(question, grid, lambda done: progress(ACCURACY.scanning * done))
    if not lowest:
        nothing = Overlaps(0.0, 0.0, key_sq=0.0, value_sq=0.0)
        return Best(nothing, {}, Estimate(math.nan, math.inf), math.nan, math.nan, Status.DIVERGED)
    known, zero = [], None
    values = [v for v, _ in lowest]
    if not question.model.unit_norm and max(values) - min(values) < 1e-11 * unit:
        lowest = [lowest[len(lowest) // 2]]  # the risk does not depend on the norm: any one will do
    else:
        known = infima.limits(question, lowest, float(grid[-1]))
        zero = None if question.model.unit_norm else _at_zero(question, lowest, float(grid[0]))
    starts = promising(lowest, unit)
    if not starts and not known:
        starts = [min(lowest, key=lambda pair: pair[0])[1]]
    ends = []
    for i, start in enumerate(starts):
        progress(ACCURACY.scanning + (1 - ACCURACY.scanning) * i / len(starts))
        ends.append(_refine(question, start, tol, tilt=abs(start.alignment) < 1))
    minimum, best = min(ends, key=lambda end: end[0].value, default=(None, None))
    if minimum is not None and best is not None and abs(best.alignment) == 1:
        minimum, best = _sideways(question, minimum, best, tol)
    found = min((end.value for end in (minimum,) if end is not None), default=math.inf)
    if zero is not None and zero.excess.value <= found + SLACK[question.kind] * unit:
        best, found = None, zero.excess.value
    limit = min(known, key=lambda limit: limit.excess.value, default=None)
    if limit is not None and _lower(limit, found, best, grid, unit):
        return _approached(question, limit)
    if minimum is None or best is None:
        assert zero is not None
        return zero
    best = upright(question, best)
    where = "" if question.model.unit_norm else _leaving(question, best, grid)
    if where:  # and no limit is known for it
        note = f"the risk keeps falling as the norm of the key goes to {where}; the value is at |k| = {best.scale:.3g}."
        return ended(question, best, minimum.residual, math.inf, Status.UNBOUNDED, note)
    return ended(question, best, minimum.residual, minimum.value_error, minimum.status)


def _lower(limit: infima.Limit, found: float, best: Point | None, grid: np.ndarray, unit: float) -> bool:
    """Return whether the limit is the infimum: lower than the minimum found, or as low if the search ran towards it."""
    value, error = limit.excess.value, limit.excess.error
    low, high = (1e-3, 1e3) if "scale" in limit.point.constants else (10 * grid[0], 0.1 * grid[-1])
    norm = math.nan if best is None else best.scale * best.constants.get("scale", 1.0)
    if norm < low if limit.point.index == 0 else norm > high:
        return value <= found + 1e-11 * unit + error
    return value < found - 1e-13 * unit - error


def _leaving(question: Question, best: Point, grid: np.ndarray) -> str:
    """Return "infinity" or "0" if the search ended at that end of the norms scanned, otherwise "".

    Towards 0 the risk keeps falling only if the weights vanish there.
    """
    if best.scale > 0.7 * grid[-1]:
        return "infinity"
    vanishing = question.value_form(best.constants, best.key, best.scale**2, SEARCH)[1] < 1e-6 * count_of(question).B
    elementwise = question.model.activation.form == "elementwise"
    return "0" if best.scale < 1.5 * grid[0] and elementwise and vanishing else ""


def _sideways(question: Question, minimum: Minimum, best: Point, tol: float) -> tuple[Minimum, Point]:
    """Return a tilted minimum if one is lower: by symmetry an aligned key is stationary, but it may be a saddle."""
    tilted = [replace(best, alignment=best.alignment * math.cos(angle)) for angle in (0.05, 0.4)]
    lower, start = min((question.value(p, SEARCH), i) for i, p in enumerate(tilted))
    if lower < minimum.value - max(1e-9, SLACK[question.kind]) * question.task.label_var:
        return _refine(question, tilted[start], tol, tilt=True)
    return minimum, best


def _approached(question: Question, limit: infima.Limit) -> Best:
    """Return an infimum that is not attained: its value, and the overlaps of a point on the way to it."""
    point = upright(question, limit.point)
    form = question.value_form(point.constants, point.key, point.scale**2, SEARCH)
    value = question.least(form)[1]
    overlaps = Overlaps(point.key, value, key_sq=point.scale**2, value_sq=value**2)
    what = "scale" if question.model.unit_norm else "norm of the key"
    note = f"the infimum, approached as the {what} goes to {limit.note}; the overlaps are on the way."
    return Best(overlaps, point.constants, limit.excess, math.nan, limit.excess.error, Status.UNBOUNDED, note)


def ended(
    question: Question, point: Point, residual: float, value_error: float, status: Status, note: str = ""
) -> Best:
    """Return the result at a point. Its risk is taken from (A, B) of eq:value-form, which is accurate where v is large;
    its error is the change with coarser tables.
    """
    key_sq = point.scale**2
    # a value that may be far above the infimum (`value_error`) does not need the finest tables
    fine, coarse = (SEARCH, SCAN) if value_error > ACCURACY.coarse * question.task.label_var else (FINAL, SEARCH)
    form = question.value_form(point.constants, point.key, key_sq, fine)
    lowest, value = question.least(form)
    error = abs(lowest - question.value(point, coarse)) or abs(lowest - question.value(point, SCAN))
    eps = float(np.finfo(float).eps)
    error += 32 * eps * (question.task.label_var + abs(form[0] * value))
    if question.erf:
        # E (offset + erf)^2 loses digits where erf is close to -offset (unless it is 1 or -1); a large v amplifies it
        offset = point.constants.get("offset", question.constants.get("offset", 0.0))
        beyond = min(abs(offset), abs(abs(offset) - 1.0))
        count = question.task.label_var + question.task.length_moments()["task.others"]
        error += 4 * eps * beyond**2 * count * value**2
    overlaps = Overlaps(point.key, value, key_sq=key_sq, value_sq=value**2)
    excess = Estimate(lowest, error + value_error)
    return Best(overlaps, point.constants, excess, residual, value_error, status, note)


def upright(question: Question, point: Point) -> Point:
    """Return the point or its mirror image, so that the key points along k*.

    (k, v, shift, offset) -> -(k, v, shift, offset) changes nothing for erf; a fixed shift or offset rules it out.
    """
    odd = question.erf and point.key < 0
    fixed = [n for n in ("shift", "offset") if n not in question.free and question.constants.get(n, 0.0) != 0.0]
    if not odd or fixed:
        return point
    flipped = {n: -x if n in ("shift", "offset") else x for n, x in point.constants.items()}
    return replace(point, alignment=-point.alignment, constants=flipped)


def _at_zero(question: Question, lowest: Scanned, smallest: float) -> Best | None:
    """Return the result at k = 0, where all weights are equal, if a parabola through the smallest keys has its vertex
    there; otherwise None, and `lowest` becomes that vertex alone.
    """
    constants = zero_constants(question)
    here = question.value(Point(0, 0.0, 1.0, constants), SEARCH)
    plus, minus = (question.value(Point(0, smallest, sign, constants), SEARCH) for sign in (1.0, -1.0))
    curvature = plus + minus - 2 * here
    vertex = 0.5 * smallest * (minus - plus) / curvature if curvature > 0 else 0.0
    below = min(v for v, _ in lowest) < here - SLACK[question.kind] * question.task.label_var
    if abs(vertex) > 1e-6 * smallest and question.kind == "smooth" and not below:
        start = Point(0, abs(vertex), math.copysign(1.0, vertex), constants)
        lowest[:] = [(question.value(start, SEARCH), start)]
        return None
    change = abs(0.25 * (minus - plus) * vertex / smallest)
    return ended(question, Point(0, 0.0, 1.0, constants), 0.0, change, Status.CONVERGED)


def promising(lowest: Scanned, unit: float) -> list[Point]:
    """Return the local minima of the scan along the norm, without its ends, that may be lowest: at most STARTS."""
    chosen: Scanned = []
    ends = {0, max(p.index for _, p in lowest)} if len(lowest) > 2 else set()
    for sign in (1, -1):
        side = [pair for pair in lowest if pair[1].alignment * sign > 0]
        values = [math.inf, *(v for v, _ in side), math.inf]
        inner = [i for i in range(1, len(values) - 1) if side[i - 1][1].index not in ends]
        chosen += [side[i - 1] for i in inner if values[i] <= min(values[i - 1], values[i + 1])]
    chosen.sort(key=lambda pair: pair[0])
    return [p for v, p in chosen if v <= chosen[0][0] + ACCURACY.promising * unit][:STARTS]


def _refine(question: Question, start: Point, tol: float, tilt: bool) -> tuple[Minimum, Point]:
    """Return a local minimum and its point, in log |k| (if free), the angle to k* (if `tilt`) and the constants."""
    names, scaled = question.free, not question.model.unit_norm
    if question.erf and scaled and not tilt:
        found, point = _by_slopes(question, start, tol)
        for _ in range(ACCURACY.rounds):  # a flat valley takes several rounds, each with variables scaled by its start
            if found.status is Status.CONVERGED:
                break
            again = _by_slopes(question, point, tol)
            further, (found, point) = found.value - again[0].value, again
            if not further > 1e-15 * question.task.label_var:
                break
        if names and found.value < ACCURACY.small * question.task.label_var:
            found, point = _by_curvature(question, point, found)
        # at the bottom of a flat valley the risk is known to the tolerance long before the point is
        known = found.value_error <= 1e-2 * tol and found.residual <= 1e3 * tol
        return (replace(found, status=Status.CONVERGED) if known else found), point
    unit = {name: max(0.3, abs(start.constants[name])) for name in names}
    side = math.acos(start.alignment)

    def at(x: np.ndarray) -> Point:
        scale = start.scale * math.exp(min(x[0], 50.0)) if scaled else 1.0
        alignment = math.cos(side + float(x[int(scaled)])) if tilt else start.alignment
        moved = zip(names, x[scaled + tilt :], strict=True)
        return Point(start.index, scale, alignment, {n: float(start.constants[n] + unit[n] * y) for n, y in moved})

    longest = 1.01 * float(norms(question)[-1])

    def value(x: np.ndarray) -> float:
        return question.value(at(x), SEARCH) if at(x).scale <= longest else math.inf

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
    """Return the least risk over v and its gradient in x, (1 + names,): changes of log |k| and of the constants."""

    def value(x: Any) -> Any:
        free = {n: start["constants"][i] + start["unit"][i] * x[i + 1] for i, n in enumerate(names)}
        scale = start["scale"] * jnp.exp(x[0])
        args = (activation, task, nodes, winner, c, free, scale * start["alignment"], scale**2)
        A, B = weight_moments.on_manifold(start["label_var"], elementwise_means(*args))
        return start["label_var"] - A * A / B

    return jax.value_and_grad(value)(x)


def _by_slopes(question: Question, start: Point, tol: float) -> tuple[Minimum, Point]:
    """Return a local minimum and its point by exact gradients, for erf with free norms: its valleys are curved, because
    norm and constants trade against each other.
    """
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
    """Return the minimum and its point after Newton steps with exact second derivatives, for valleys so much flatter
    than the direction of the offset that gradients alone lose them.
    """
    names, point, found = tuple(question.free), start, before
    _, task, _, winner, c = question.elementwise_call(SEARCH)
    numbers = {name: np.array([x]) for name, x in {**c, "label_var": question.task.label_var}.items()}
    law = numbers, None if winner is None else Winner(*(x[None] for x in winner))
    for _ in range(ACCURACY.rounds):
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

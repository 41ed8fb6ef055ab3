"""Optima of erf attention with free norms, many at once: `best_key` with the points as an array axis.

Scan, starts and final value are those of `best_key`; between them is Newton's method with exact derivatives. A
question that does not end in an ordinary minimum with the key along k* (the norm goes to 0 or infinity, the key is
tilted, two minima have the same value, no convergence) is answered by `predict_population`, one at a time.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction, Progress
from needlepoint.core.status import Status
from needlepoint.learners import Population
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.curves import Curves, Solver, padded, reshaped
from needlepoint.theory.location.erf.accuracy import ACCURACY
from needlepoint.theory.location.erf.newton import form, newton
from needlepoint.theory.location.moments.place_race import Winner
from needlepoint.theory.location.population import best_key, first_keys, optimum
from needlepoint.theory.location.population.best_key import SLACK
from needlepoint.theory.location.population.risk_at_a_key import FINAL, SCAN, SEARCH, Point, Question
from needlepoint.theory.location.population.statements import linear_optimum


@rule("predict_curves", SpikedSLR, KeyValueAttention, Population)
@rule("predict_curves", MaxSLR, KeyValueAttention, Population)
def erf_curves(task: SingleLocation, model: KeyValueAttention, learner: Population) -> Solver | None:
    """Return `solve` for erf with free norms on the manifold (shift and offset may be free), otherwise None."""
    erf = Question(task, model).erf and "scale" not in model.free_constants()
    return solve if erf and not model.unit_norm and learner.within == "manifold" else None


def solve(curves: Curves, options: PredictionOptions) -> list[list[Prediction]]:
    """Return the prediction at every point of every curve."""
    asked: list[Any] = [question for curve in curves for question in curve]
    batch = Batch([Asked(task, model) for task, model, _ in asked])
    ends = _optima(batch, curves, options.tol or optimum.TOLERANCE, options.progress)
    quiet, answers = PredictionOptions(options.seed, options.tol), []
    for i, ((task, model, learner), end) in enumerate(zip(asked, ends, strict=True)):
        if end is None:
            answers.append(optimum.predict_population(task, model, learner, quiet))
        else:
            known, found = end
            best = best_key.ended(known, found.point, found.residual, found.value_error, Status.CONVERGED)
            answers.append(optimum.searched(task, model, learner, quiet, best))
        options.progress(0.5 + 0.5 * (i + 1) / len(asked))
    return reshaped(curves, answers)


@dataclass(frozen=True)
class Asked(Question):
    """A question that looks up its free constants once; `forms` holds (A, B) at its optimum, by coarseness."""

    forms: dict[float, tuple[float, float]] = field(default_factory=dict)

    @property
    def free(self) -> list[str]:
        return self._free

    @functools.cached_property
    def _free(self) -> list[str]:
        return self.model.free_constants()

    def value_form(self, free: Any, key: float, key_sq: float, coarseness: float) -> tuple[float, float]:
        return self.forms[coarseness]


class Batch:
    """The numbers of many questions that share compiled code, with the questions as the first axis."""

    def __init__(self, questions: Sequence[Asked]) -> None:
        first = questions[0]
        self.questions = questions
        self.task, self.names = type(first.task), tuple(first.free)
        self.alignments = first_keys.alignments(first)
        sizes = max(len(first_keys.norms(q)) for q in questions)
        self.norms = np.stack([first_keys.norms(q, sizes) for q in questions])
        self.unit = np.array([q.task.label_var for q in questions])
        self.numbers = {name: np.array([q.constants[name] for q in questions]) for name in first.constants}
        self.numbers["label_var"] = self.unit
        self.rules = {coarseness: self._winners(coarseness) for coarseness in (SCAN, SEARCH, FINAL)}

    def _winners(self, coarseness: float) -> Any:
        """Return the winner's law for each question, arrays (questions, nodes); None where places are not tilted."""
        each = [q.elementwise_call(coarseness)[3] for q in self.questions]
        return None if each[0] is None else Winner(*map(np.stack, zip(*each, strict=True)))

    def law(self, coarseness: float, index: Any = slice(None)) -> Any:
        """Return what the risk depends on besides key and free constants, a pytree of arrays with questions first."""
        return jax.tree.map(lambda x: x[index], (self.numbers, self.rules[coarseness]))

    def forms(self, coarseness: float, index: Any, points: Sequence[Point]) -> np.ndarray:
        """Return (A, B) of eq:value-form, (2, points), at one point for each question of the index."""
        free = {n: np.array([p.constants[n] for p in points]) for n in self.names}
        key, key_sq = np.array([p.key for p in points]), np.array([p.scale**2 for p in points])
        return np.stack(
            _in_blocks(functools.partial(_forms, self.task), self.law(coarseness, index), free, key, key_sq)
        )

    def values(self, coarseness: float, index: Any, points: Sequence[Point]) -> np.ndarray:
        """Return the least risk over v, (points,), at one point for each question of the index."""
        A, B = self.forms(coarseness, index, points)
        return _over_value(self.unit[index], A, B, np)


def _in_blocks(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a compiled function of arrays with points first, block by block; a block is padded with its last point."""
    count, parts = len(jax.tree.leaves(trees)[0]), []
    for i in range(0, count, ACCURACY.block):
        size = min(ACCURACY.block, count - i)
        index = i + np.minimum(np.arange(padded(size)), size - 1)
        found = function(*jax.tree.map(lambda x, index=index: x[index], trees))
        parts.append(jax.tree.map(lambda x, size=size: np.asarray(x)[:size], found))
    return jax.tree.map(lambda *blocks: np.concatenate(blocks), *parts)


def _over_value(unit: Any, A: Any, B: Any, xp: Any) -> Any:
    """Return the least risk over v on arrays, as `Question.least` does for one point."""
    return unit - A * xp.where(B > 0, A / xp.where(B > 0, B, 1.0), 0.0)


@functools.partial(jax.jit, static_argnums=0)
def _forms(task: type[SingleLocation], law: Any, free: Any, key: Any, key_sq: Any) -> Any:
    return jax.vmap(functools.partial(form, task))(law, free, key, key_sq)


# --- the scan ------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def _scan_block(task: type[SingleLocation], law: Any, free: Any, key: Any, key_sq: Any) -> Any:
    """Return (A, B) of eq:value-form, each (questions, points), at each point of the grid of each question."""

    def one(law: Any, free: Any, key: Any, key_sq: Any) -> Any:
        return jax.vmap(functools.partial(form, task, law))(free, key, key_sq)

    return jax.vmap(one)(law, free, key, key_sq)


def _scan(batch: Batch) -> tuple[list[tuple[int, Point]], np.ndarray]:
    """Return starts as (question, point), and the least risk scanned for each question, (questions,).

    A question has no start if that least risk is (nearly) reached at an end of the norms, or is no lower than at k = 0.
    """
    questions, cosines, unit = batch.questions, np.array(batch.alignments), batch.unit
    each = [first_keys.constants(q, row) for q, row in zip(questions, batch.norms, strict=True)]
    chosen = {n: np.stack([c[n] for c in each]) for n in batch.names}
    free, key, norm = first_keys.spread_out(batch.norms, cosines, chosen)

    def forms(more: dict[str, float]) -> list[np.ndarray]:
        filled = {n: np.broadcast_to(more[n], x.shape) if n in more else x for n, x in free.items()}
        flat = jax.tree.map(lambda x: x.reshape(len(questions), -1), (filled, key, norm**2))
        found = _in_blocks(functools.partial(_scan_block, batch.task), batch.law(SCAN), *flat)
        return [x.reshape(key.shape) for x in found]

    others = np.array([q.task.length_moments()["task.others"] for q in questions])
    G, B = (x[:, None, None, None] for x in (unit, unit + others))
    values, offsets = first_keys.least_risks(first_keys.Count(G, B, False, "offset" in batch.names), forms)
    zero = batch.values(SEARCH, slice(None), [Point(0, 0.0, 1.0, first_keys.zero_constants(q)) for q in questions])
    starts, least = [], np.min(values, axis=(1, 2, 3))
    ends = [np.min(values[:, i], axis=(1, 2)) - least for i in (0, -1)]
    at_end = (ends[0] <= ACCURACY.scanned * unit) | (ends[1] <= ACCURACY.far * unit)
    odd = at_end | ~np.isfinite(least) | (least >= zero - SLACK["smooth"] * unit)
    for i in np.flatnonzero(~odd):
        mine = {n: x[i] for n, x in chosen.items()}
        table = first_keys.lowest_of(batch.norms[i], cosines, mine, values[i], None if offsets is None else offsets[i])
        starts += [(int(i), point) for point in best_key.promising(table, float(unit[i]))]
    return starts, least


# --- local minima --------------------------------------------------------------------------------


class End(NamedTuple):
    """Where Newton's method ended from one start; `minimum` says that it converged."""

    point: Point
    value: float
    residual: float
    value_error: float
    minimum: bool
    tilted: bool


def _refine(batch: Batch, starts: Sequence[tuple[int, Point]], tol: float, tilt: bool) -> list[tuple[int, End]]:
    """Return the end of Newton's method from each start; every call goes on with those that have not ended."""
    owners, points = np.array([i for i, _ in starts], dtype=int), [point for _, point in starts]
    value, residual, value_error = (np.full(len(starts), np.nan) for _ in range(3))
    steepness, left = np.ones(len(starts)), np.arange(len(starts))
    for call in range(ACCURACY.calls):
        if not len(left):
            break
        constants = np.array([[points[j].constants[n] for n in batch.names] for j in left]).reshape(len(left), -1)
        alignment, scale = (np.array([getattr(points[j], name) for j in left]) for name in ("alignment", "scale"))
        unit, angle = np.maximum(0.3, np.abs(constants)), np.arccos(alignment)
        start = {"scale": scale, "alignment": alignment, "angle": angle, "constants": constants, "unit": unit}
        method = functools.partial(newton, batch.task, batch.names, tilt)
        x, *ends, steep, done = _in_blocks(method, batch.law(SEARCH, owners[left]), start)
        value[left], residual[left], value_error[left] = ends
        if call == 0:
            steepness = np.maximum(1.0, steep)
        scale, constants = scale * np.exp(x[:, 0]), constants + unit * x[:, 1 + tilt :]
        alignment = np.cos(angle + x[:, 1]) if tilt else alignment
        for j, s, a, c in zip(left, scale.tolist(), alignment.tolist(), constants.tolist(), strict=True):
            points[j] = Point(points[j].index, s, a, dict(zip(batch.names, c, strict=True)))
        left = left[~done]
    # as in best_key: at the bottom of a flat valley the risk is known to the tolerance long before the point is
    known = (value_error <= 1e-2 * tol) & (residual <= 1e3 * tol)
    minimum = np.isfinite(value) & ((residual <= tol * steepness) | known)
    minimum[left] = False
    if batch.names:  # where a valley that leads to k = 0 is narrower than rounding, it looks like a minimum
        minimum &= np.array([point.scale for point in points]) * batch.numbers["scale"][owners] > ACCURACY.narrow
    rows = zip(points, value.tolist(), residual.tolist(), value_error.tolist(), minimum.tolist(), strict=True)
    return [(i, End(*row, tilt)) for i, row in zip(owners.tolist(), rows, strict=True)]


# --- the optimum ---------------------------------------------------------------------------------


def _optima(batch: Batch, curves: Curves, tol: float, progress: Progress) -> list[tuple[Question, End] | None]:
    """Return for every point its question (with `forms` filled in) and optimum, or None for no ordinary minimum."""
    starts, scanned = _scan(batch)
    progress(0.2)
    best = _lowest(batch, starts, tol)
    progress(0.4)
    beside = _from_neighbours(batch, curves, best)
    again = _lowest(batch, beside, tol)
    best = {i: end for i, end in best.items() if i not in dict(beside)} | again
    index = np.array(sorted(best), dtype=int)
    if not len(index):
        return [None] * len(batch.questions)
    ends = [best[i] for i in index]
    value, unit = np.array([end.value for end in ends]), batch.unit[index]
    sideways = [[_tilted(end.point, angle) for end in ends] for angle in ACCURACY.tilts]
    lower = np.min([batch.values(SEARCH, index, points) for points in sideways], axis=0) < value - ACCURACY.lower * unit
    far = np.array([end.point.scale for end in ends]) > 0.7 * batch.norms[index, -1]
    plain = ~(lower | far | (scanned[index] < value - ACCURACY.scanned * unit))
    points = [best_key.upright(batch.questions[i], end.point) for i, end in zip(index, ends, strict=True)]
    levels = [FINAL] if batch.rules[FINAL] is None else [FINAL, SEARCH, SCAN]
    forms = {level: batch.forms(level, index, points).T.tolist() for level in levels}
    answers: list[tuple[Question, End] | None] = [None] * len(batch.questions)
    for j, i in enumerate(index):
        if plain[j]:
            table = {level: tuple(forms.get(level, forms[FINAL])[j]) for level in (FINAL, SEARCH, SCAN)}
            answers[i] = replace(batch.questions[i], forms=table), ends[j]._replace(point=points[j])
    return answers


def _lowest(batch: Batch, starts: Sequence[tuple[int, Point]], tol: float) -> dict[int, End]:
    """Return the lowest minimum of each question that has starts, without those where `_clear` finds a rival."""
    found: dict[int, list[End]] = {}
    for tilt in (False, True):
        mine = [(i, point) for i, point in starts if (abs(point.alignment) < 1) is tilt]
        for i, end in _refine(batch, mine, tol, tilt):
            found.setdefault(i, []).append(end)
    chosen = {i: _clear(batch.questions[i], ACCURACY.lower * batch.unit[i], ends) for i, ends in found.items()}
    return {i: end for i, end in chosen.items() if end is not None}


def _clear(question: Question, slack: float, ends: Sequence[End]) -> End | None:
    """Return the lowest minimum with the key along k*, or None if another end is as low or may become so."""
    best = min((end for end in ends if end.minimum and not end.tilted), key=lambda end: end.value, default=None)
    if best is None:
        return None
    for end in ends:
        if not end.minimum:
            rival = not (_same(question, end.point, best.point) or _hopeless(question, end, best.value + slack))
        elif end.tilted:
            rival = end.value < best.value - slack
        else:
            rival = end.value <= best.value + slack and not _same(question, end.point, best.point)
        if rival:
            return None
    return best


def _hopeless(question: Question, end: End, bound: float) -> bool:
    """Return whether an unfinished run will stay above the bound: either little is left of its descent, or it goes to
    k = 0 with growing v, where erf attention becomes linear (eq:linear-optimum).
    """
    if not end.value > bound:
        return False
    small = end.point.scale * question.constants["scale"] < ACCURACY.linear
    return end.value - 10 * end.value_error > bound or (small and linear_optimum(question.task)[0].value > bound)


def _same(question: Question, a: Point, b: Point) -> bool:
    """Return whether two points are the same minimum, up to a relative 1e-3 and the symmetry of erf."""
    a, b = best_key.upright(question, a), best_key.upright(question, b)
    apart = [a.key / b.key - 1, *((a.constants[n] - x) / max(0.3, abs(x)) for n, x in b.constants.items())]
    return max(map(abs, apart)) < 1e-3


def _tilted(point: Point, angle: float) -> Point:
    return replace(point, alignment=point.alignment * math.cos(angle))


def _from_neighbours(batch: Batch, curves: Curves, best: dict[int, End]) -> list[tuple[int, Point]]:
    """Return (question, start) wherever the optimum of a neighbour on the curve gives a lower risk than was found."""
    index = reshaped(curves, range(len(batch.questions)))
    pairs = [pair for curve in index for a, b in itertools.pairwise(curve) for pair in ((a, b), (b, a))]
    pairs = [(i, best[j].point) for i, j in pairs if i in best and j in best]
    if not pairs:
        return []
    values = batch.values(SEARCH, np.array([i for i, _ in pairs]), [point for _, point in pairs])
    lower = [v < best[i].value - ACCURACY.lower * batch.unit[i] for v, (i, _) in zip(values, pairs, strict=True)]
    return list(itertools.compress(pairs, lower))

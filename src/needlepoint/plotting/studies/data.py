"""What a picture of a study needs to know of it: its axes, its points and one metric."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Result
from needlepoint.core.specs import Spec, declared
from needlepoint.core.symbols import SYMBOLS
from needlepoint.learners import BayesOptimal, Population
from needlepoint.plotting.style import TRAINING
from needlepoint.studies.derived import derived, in_words
from needlepoint.studies.points import StudyPoint

CLEAN = ("excess_risk", "clean_risk")
"""Names of the risk without the label noise: on location tasks, and on the attention-indexed model."""

OVERLAPS = "overlaps."
_LATEX = {s.name: s.latex for s in SYMBOLS}


class Plottable(Protocol):
    """What can be drawn, such as a Study: the swept paths with their values, and the points."""

    @property
    def axes(self) -> Mapping[str, Sequence[Any]]: ...
    @property
    def grid(self) -> bool: ...
    def points(self) -> Iterable[StudyPoint]: ...


@dataclass(frozen=True)
class Data:
    """One metric of a study: the points, the distinct values of each axis, and whether predictions and measurements
    have the metric."""

    metric: str
    points: tuple[StudyPoint, ...]
    axes: Mapping[str, tuple[Any, ...]]
    grid: bool
    predicted: bool
    measured: bool

    @property
    def simulated(self) -> bool:
        return any(p.measurements for p in self.points)

    @property
    def source(self) -> str:
        """Return what the measurements are, in words: training only where something is trained."""
        found = {source_of(m.learner) for p in self.points for m in p.measurements}
        return found.pop() if len(found) == 1 else "simulation"

    @property
    def numeric(self) -> list[str]:
        """Return the paths of the numeric axes, the one with most values first."""
        found = [path for path, values in self.axes.items() if all(map(_is_number, values))]
        return sorted(found, key=lambda path: -len(self.axes[path]))

    def choose(self, name: str, given: str | None, taken: Sequence[str] = ()) -> str:
        """Return the path of the axis `given` by its path or the last part of it; None is the one with most values.

        `name` is "x" or "y", for messages; the axes in `taken` are in use already.
        """
        numeric = [path for path in self.numeric if path not in taken]
        if given is None:
            if not numeric:
                also = f" besides {taken[0]}" if taken else ""
                raise InvalidParameter(
                    f"plot({name}=None): no swept axis{also} is numeric (swept: {listed(self.axes)}); "
                    f"sweep a number{'' if taken else ' to have an x axis'}{', or draw curves' if taken else ''}."
                )
            return numeric[0]
        found = [path for path in self.axes if given in (path, path.rpartition(".")[2])]
        if given in self.axes:
            found = [given]
        if len(found) != 1:
            why = f"could be {listed(found)}" if found else f"is not swept (swept: {listed(self.axes)})"
            raise InvalidParameter(f"plot({name}={given!r}): {given} {why}.")
        if found[0] in taken:
            raise InvalidParameter(f"plot(x={given!r}, y={given!r}): x and y must be two different axes.")
        if found[0] not in numeric:
            raise InvalidParameter(
                f"plot({name}={given!r}): {found[0]} is not numeric; numeric axes: {listed(numeric)}."
            )
        return found[0]

    def groups(self, shown: Sequence[str]) -> dict[str, list[StudyPoint]]:
        """Return the points grouped by the values of the axes that vary and are not `shown`, by a name for a legend."""
        others = [path for path, values in self.axes.items() if path not in shown and len(values) > 1]
        found: dict[tuple[Any, ...], list[StudyPoint]] = {}
        for point in self.points:
            found.setdefault(tuple(_key(point.at.get(path)) for path in others), []).append(point)
        firsts = [points[0] for points in found.values()]
        for brief in (True, False):
            names = [", ".join(self.setting(path, p.at.get(path), brief) for path in others) for p in firsts]
            if len(set(names)) == len(names):
                break
        return dict(zip(names, found.values(), strict=True))

    def counts(self, shown: Sequence[str]) -> str:
        """Return a text such as `task.noise (3 values), ...` of the axes that vary and are not `shown`."""
        return ", ".join(f"{p} ({len(v)} values)" for p, v in self.axes.items() if p not in shown and len(v) > 1)

    def setting(self, path: str, value: Any, brief: bool = True) -> str:
        """Return a text such as `$\\mu$ = 2`, or the text of a spec alone; `brief` shortens it."""
        text = _short(value) if brief else repr(value).replace("$", r"\$")
        text = text if len(text) <= 44 or not brief else text[:43] + "…"
        return text if isinstance(value, Spec) else f"{self.name(path, letter=True)} = {text}"

    def name(self, path: str, letter: bool = False) -> str:
        """Return the name of an axis such as `$\\mu$ (snr)`, or with `letter` the letter alone where that is unique.

        A field that the table of symbols does not have is named by its path.
        """
        field = path.rpartition(".")[2]
        alone = sum(p.rpartition(".")[2] == field for p in self.axes) < 2
        if field not in _LATEX:
            return field if letter and alone else path
        if not alone:
            return f"${_LATEX[field]}$ ({path})"
        return f"${_LATEX[field]}$" if letter else f"${_LATEX[field]}$ ({field})"

    @property
    def title(self) -> str:
        """Return a title that names the axes with one value only."""
        return ", ".join(self.setting(path, values[0]) for path, values in self.axes.items() if len(values) == 1)

    @property
    def label(self) -> str:
        words = in_words(self.metric)
        if words is not None:
            return words
        field = self.metric.removeprefix(OVERLAPS)
        words = f"overlap {field}" if self.metric.startswith(OVERLAPS) else field.replace("_", " ")
        return f"${_LATEX[field]}$ ({words})" if field in _LATEX else words

    def theory(self, point: StudyPoint) -> tuple[Estimate | None, str]:
        """Return the predicted metric, and what is wrong with it; "" if nothing is, or if it was not asked for."""
        prediction = point.prediction
        if prediction is None:
            if point.message:
                return None, "no prediction"
            return None, "" if point.measurements else "not computed"
        return self._judge(prediction, self.predicted)

    def training(self, point: StudyPoint) -> list[tuple[int, Estimate | None, str]]:
        """Return (d, measured metric, what is wrong with it) for each d."""
        if point.message and point.prediction is not None and not point.measurements:
            return [(0, None, f"no {self.source}")]
        judged = [(m.d, *self._judge(m, self.measured)) for m in point.measurements]
        return [(d, estimate, f"{self.source}: {wrong}" if wrong else "") for d, estimate, wrong in judged]

    def _judge(self, result: Result, expected: bool) -> tuple[Estimate | None, str]:
        estimate = estimate_of(result, self.metric)
        if not result.ok:
            return estimate, result.status.name
        if estimate is None:
            return None, f"no {self.metric}" if expected else ""
        return estimate, "" if math.isfinite(estimate.value) else "not finite"


def source_of(learner: Any) -> str:
    """Return what `simulate` does for a learner: sequences drawn at given weights, message passing, or training."""
    if isinstance(learner, BayesOptimal) and learner.alpha is not None:
        return "message passing"
    return "Monte Carlo" if isinstance(learner, (BayesOptimal, Population)) else TRAINING


def read(study: Plottable, metric: str | None) -> Data:
    """Return what is drawn of a study; without a `metric` it is the risk on clean labels (`CLEAN`) if there is one."""
    if not all(hasattr(study, name) for name in ("axes", "grid", "points")):
        kind = shown(study) if isinstance(study, type) else type(study).__name__
        whole = " (the whole of it, not its trajectory)" if kind == "Trajectory" else ""
        if isinstance(study, (list, tuple)):
            raise InvalidParameter(
                f"plot({kind}): one answer at a time; several predictions are drawn as a study (sweep), and several on "
                "one picture with ax=."
            )
        raise InvalidParameter(
            f"plot({kind}): takes a prediction or measurement{whole}, a comparison, a spectrum, or a study, which has "
            "axes, grid and points()."
        )
    points = tuple(study.points())
    if not points:
        raise InvalidParameter("plot: the study has no points; run it first.")
    if study.grid:
        axes = {path: _distinct(values) for path, values in study.axes.items()}
    else:
        paths = dict.fromkeys(path for point in points for path in point.at)
        axes = {path: _distinct(point.at.get(path) for point in points) for path in paths}
    if not axes:
        raise InvalidParameter("plot: nothing is swept in this study, so there is no axis to draw against.")
    predictions = [p.prediction for p in points if p.prediction is not None]
    measurements = [m for p in points for m in p.measurements]
    names = list(dict.fromkeys(n for r in (*predictions, *measurements) for n in _available(r)))
    if not names:
        why = next((f" (the first point says: {' '.join(p.message.split())})" for p in points if p.message), "")
        raise InvalidParameter(f"plot: no point of the study has a number to draw{why}.")
    if metric is None:
        metric = next((name for name in CLEAN if name in names), names[0])
    if metric not in names:
        near = difflib.get_close_matches(shown(metric), names, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InvalidParameter(f"plot(metric={shown(metric)}): the study has {', '.join(names)}{hint}.")
    predicted = any(estimate_of(r, metric) is not None for r in predictions)
    measured = any(estimate_of(r, metric) is not None for r in measurements)
    return Data(metric, points, axes, bool(study.grid), predicted, measured)


def _available(result: Result) -> list[str]:
    overlaps = [OVERLAPS + name for name, _ in result.overlaps.items()] if result.overlaps is not None else []
    metrics = [name for name, value in result.metrics.items() if isinstance(value, Estimate)]
    return [*metrics, *overlaps, *derived(result)]


def estimate_of(result: Result, metric: str) -> Estimate | None:
    if not metric.startswith(OVERLAPS):
        found = result.metrics[metric] if metric in result.metrics else derived(result).get(metric)
        return found if isinstance(found, Estimate) else None
    name = metric.removeprefix(OVERLAPS)
    values = dict(result.overlaps.items()) if result.overlaps is not None else {}
    return Estimate(values[name], result.overlaps_error.get(name, 0.0)) if name in values else None


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number or infinity, which has a place on an axis; minus infinity has none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value) > -math.inf


def _key(value: Any) -> Any:
    return float(value) if _is_number(value) else repr(value)


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple({_key(value): value for value in values}.values())


def _short(value: Any) -> str:
    """Return a short text of a value: `Erf(scale=0.3)`, `KeyValueAttention(Softmax)`, `0.25`."""
    if isinstance(value, Spec):
        given = [(f.name, getattr(value, f.name)) for f in declared(type(value)) if getattr(value, f.name) != f.default]
        parts = [_short(v) if isinstance(v, Spec) else f"{name}={_short(v)}" for name, v in given]
        return type(value).__name__ + (f"({', '.join(parts)})" if parts else "")
    if _is_number(value):
        return "∞" if math.isinf(value) else f"{value:.5g}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_short, value))})"
    text = value if isinstance(value, str) else str(getattr(value, "__name__", value))
    return text.replace("$", r"\$")


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"

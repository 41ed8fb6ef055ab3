"""What a sweep goes over: a grid or a list of values for any fields of the question."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.kinds import Real
from needlepoint.core.specs import Spec, assign, declared
from needlepoint.core.text.parsing import PARTS
from needlepoint.studies.execution.jobs import Question

LIMIT = 20_000
"""Number of points (theory and simulation together) above which a sweep is refused unless `limit` is raised."""

At = tuple[Any, ...]
"""The values of the axes at a point, in the order of the paths."""


@dataclass(frozen=True)
class Axes:
    """What a sweep goes over: `values[i]` are the values of the field at `paths[i]`.

    With `grid` the points are all combinations of the values; otherwise `values` are the columns of a list of points.
    `base` is the question in which the fields are replaced.
    """

    base: Question
    paths: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    grid: bool

    def __len__(self) -> int:
        return math.prod(len(v) for v in self.values) if self.grid else len(self.values[0])

    def points(self) -> Iterator[At]:
        """Yield all points; the last axis of a grid varies fastest."""
        return itertools.product(*self.values) if self.grid else zip(*self.values, strict=True)

    def curves(self) -> Iterator[Iterator[At]]:
        """Yield all points as curves along the last axis of real numbers, so that a solver can follow each curve and
        start every point from the solution of the one before (continuation)."""
        real = [i for i, path in enumerate(self.paths) if is_real(self.base, path)]
        if not self.grid or not real:
            yield self.points()
            return
        last = real[-1]
        for others in itertools.product(*(v for i, v in enumerate(self.values) if i != last)):
            yield ((*others[:last], x, *others[last:]) for x in self.values[last])

    def question(self, at: At) -> Question:
        """Return the three specs at a point; a spec that refuses its value raises InvalidParameter."""
        parts = _parts(self.base)
        # a path such as "task" replaces the whole task, so it is applied before "task.snr" changes a field of it
        for path, value in sorted(zip(self.paths, at, strict=True), key=lambda pair: pair[0].count(".")):
            head, _, rest = path.partition(".")
            part = parts[head]
            if not rest:
                parts[head] = value
            elif part is None:
                raise InvalidParameter(f"over[{shown(path)}]: there is no {head} to change.")
            else:
                parts[head] = assign(part, rest, value)
        return parts["task"], parts["model"], parts["learner"]


def _parts(base: Question) -> dict[str, Any]:
    return dict(zip(PARTS, base, strict=True))


def read_axes(base: Question, over: Any) -> Axes:
    """Return the axes, checked, from a grid {path: values} or from a list of points [{path: value}, ...]."""
    if isinstance(over, Mapping):
        grid, columns = True, {str(path): _listed(path, values) for path, values in over.items()}
    elif isinstance(over, Sequence) and not isinstance(over, str) and all(isinstance(row, Mapping) for row in over):
        grid, columns = False, _columns(over)
    else:
        raise InvalidParameter(
            f"over={shown(over)}: over must be a mapping of paths to values (a grid), or a list of such mappings "
            "(points)."
        )
    empty = [path for path, column in columns.items() if not column]
    if not columns or empty:
        where = f"over[{empty[0]!r}]" if empty else "over"
        raise InvalidParameter(f"{where}: there is nothing to sweep; give at least one path with at least one value.")
    for path in columns:
        check_path(base, path)
    values = {path: [_checked(base, path, v, i) for i, v in enumerate(column)] for path, column in columns.items()}
    for where, column in values.items() if grid else [("", list(zip(*values.values(), strict=True)))]:
        seen: set[str] = set()
        for value in column:
            if repr(value) in seen:
                place = f"over[{shown(where)}]: {shown(value)}" if grid else f"over: the point {shown(value)}"
                raise InvalidParameter(f"{place} is given twice; each {'value' if grid else 'point'} once.")
            seen.add(repr(value))
    return Axes(base, tuple(values), tuple(map(tuple, values.values())), grid)


def _listed(path: Any, values: Any) -> list[Any]:
    if isinstance(values, (str, Mapping, Spec)) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        raise InvalidParameter(f"over[{shown(path)}]={shown(values)}: give a list of values, such as [1, 2, 5].")
    return [v.item() if isinstance(v, np.generic) else v for v in values]


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    paths = list(rows[0]) if rows else []
    for i, row in enumerate(rows):
        if set(row) != set(paths):
            raise InvalidParameter(f"over[{i}] has the paths {', '.join(row)}; all points need {', '.join(paths)}.")
    return {path: [_listed(path, [row[path]])[0] for row in rows] for path in paths}


def paths_of(base: Question) -> list[str]:
    """Return every path that can be swept: the parts, their fields, and the fields of nested specs."""

    def inside(prefix: str, value: Any) -> Iterator[str]:
        yield prefix
        if isinstance(value, Spec):
            for f in declared(type(value)):
                yield from inside(f"{prefix}.{f.name}", getattr(value, f.name))

    return [path for part, value in zip(PARTS, base, strict=True) for path in inside(part, value)]


def check_path(base: Question, path: str) -> None:
    known = paths_of(base)
    if path in known:
        return
    bare = path.rpartition(".")[2]
    same = [k for k in known if k.rpartition(".")[2] == bare]
    near = same or difflib.get_close_matches(path, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}."
    raise InvalidParameter(f"over[{shown(path)}]: there is no such field; {hint}")


def _checked(base: Question, path: str, value: Any, i: int) -> Any:
    """Return the value as its spec converts it (2 becomes 2.0 in a real field); raises what the spec raises."""
    if isinstance(value, float) and math.isnan(value):
        raise InvalidParameter(f"over[{shown(path)}]: value {i} is NaN; an axis needs numbers.")
    head, _, rest = path.partition(".")
    part = _parts(base)[head]
    if not rest:
        if isinstance(value, type) or (value is not None and getattr(value, "family", None) != head):
            hint = f" but a class; write {value.__name__}(...)" if isinstance(value, type) else ""
            raise InvalidParameter(f"over[{shown(path)}]: value {i} is {shown(value)}, which is not a {head}{hint}.")
        return value
    assert part is not None
    spec: Any = assign(part, rest, value)
    for name in rest.split("."):
        spec = getattr(spec, name)
    return spec


def is_real(base: Question, path: str) -> bool:
    """Return whether the field at a path is a real number, with which the theory varies smoothly."""
    head, _, rest = path.partition(".")
    value: Any = _parts(base)[head]
    names = rest.split(".") if rest else []
    for name in names[:-1]:
        value = getattr(value, name)
    fields = {f.name: f for f in declared(type(value))} if isinstance(value, Spec) else {}
    return bool(names) and names[-1] in fields and isinstance(fields[names[-1]].metadata["kind"], Real)

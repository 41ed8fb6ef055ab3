"""Phase diagrams: a question over two of its fields, refined where the answer changes; and curves over one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import assign
from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.contests import summary
from needlepoint.explorer.questions.reading import Reader, finite

POINTS, LEVELS = 24, 3
"""The most points along an axis of the first grid, and how often its cells may be halved."""


@dataclass(frozen=True)
class Map:
    """A sweep over one or two fields; cells are halved where `on` changes ("stable", "status", "branch" or nothing)."""

    task: Any
    model: Any
    learner: Any
    axes: tuple[tuple[str, tuple[float, ...]], ...]
    on: str
    levels: int

    @classmethod
    def read(cls, reader: Reader) -> Map:
        specs = {part: reader.spec(part, part) for part in ("task", "model", "learner")}
        axes = [_axis(reader, specs, "x")]
        if "y" in reader.left:
            axes.append(_axis(reader, specs, "y"))
        on = reader.choice("on", ("stable", "status", "branch", ""), "")
        return cls(**specs, axes=tuple(axes), on=on, levels=reader.whole("levels", 1, LEVELS, 2))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        refine = ndl.Refine(self.on, levels=self.levels) if self.on and len(self.axes) > 1 else None
        sent: set[tuple[Any, ...]] = set()
        whole = dict(self.axes)
        last, values = list(self.axes)[-1]
        # row by row, so that the map appears as it is computed
        parts = [{**whole, last: (value,)} for value in values] if len(whole) > 1 else [whole]
        for i, part in enumerate(parts):
            with ndl.sweep(self.task, self.model, self.learner, part, progress=False) as study:
                self._tell(study.points(), emit, sent)
            emit({"event": "progress", "done": (i + 1) / (len(parts) + (1 if refine else 0))})
        if refine is not None:
            with ndl.sweep(self.task, self.model, self.learner, whole, refine=refine, progress=False) as study:
                self._tell(study.points(), emit, sent)

    def _tell(self, points: Iterable[Any], emit: Emit, sent: set[tuple[Any, ...]]) -> None:
        for point in points:
            at = tuple(point.at[path] for path, _ in self.axes)
            if at in sent:
                continue
            sent.add(at)
            found = point.prediction
            event = {"event": "point", "at": list(at), "message": point.message}
            if found is not None:
                metrics = {name: [finite(e.value), finite(e.error)] for name, e in found.metrics.items()}
                event |= {**summary(found), "metrics": metrics, "branch": found.branch, "stable": found.stable}
            emit(event)


def _axis(reader: Reader, specs: dict[str, Any], name: str) -> tuple[str, tuple[float, ...]]:
    """Return the path and values of an axis; every value must be one that the field admits."""
    path = reader.text(name)
    values = reader.numbers(f"{name}_values", -1e9, 1e9, most=POINTS)
    part, _, rest = path.partition(".")
    if specs.get(part) is None or not rest:
        raise InvalidParameter(f"the axis {path!r} must be a field of the question, such as learner.alpha.")
    for value in values:
        assign(specs[part], rest, value)
    return path, values

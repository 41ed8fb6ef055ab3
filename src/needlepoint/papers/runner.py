"""Compute a figure's points, draw it, and write pictures, numbers and agreement."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import needlepoint as ndl
from needlepoint.core.comparison import Row
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.results import Measurement, Prediction
from needlepoint.papers.figures import Drawing, Figure, Point, Record, Size

Say = Callable[[str, float], None]
"""Called with what is being computed and the fraction of the figure done."""


def quiet(_: str, __: float) -> None:
    """The callback that shows nothing."""


@dataclass(frozen=True)
class Reproduced:
    """What one figure left behind."""

    figure: Figure
    files: tuple[Path, ...]
    agreement: tuple[Row, ...]
    troubles: tuple[str, ...]
    seconds: float


def compute(points: Sequence[Point], say: Say = quiet) -> list[Record]:
    """Run the points one after another; points that ask the same share one answer."""
    records: list[Record] = []
    answers: dict[Any, Any] = {}
    for i, point in enumerate(points):

        def progress(fraction: float, i: int = i, point: Point = point) -> None:
            say(f"{point.verb} {point.label}".strip(), (i + fraction) / len(points))

        progress(0.0)
        name = (point.verb, *point.question, tuple(sorted((k, _exactly(v)) for k, v in point.options.items())))
        if name not in answers:
            answers[name] = _run(point, records, progress)
        records.append(Record(point, answers[name]))
    say("drawing", 1.0)
    return records


def _exactly(value: Any) -> Any:
    """A hashable stand-in that differs whenever the value does (the repr of an array is rounded)."""
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def _run(point: Point, before: Sequence[Record], progress: Callable[[float], None]) -> Any:
    specs, options = point.question, dict(point.options)
    if point.follow:
        chosen = next((r.result for r in before if r.point.verb == "predict" and r.point.question == specs), None)
        if chosen is None:
            raise ValueError(f"point {point.label!r} follows a prediction that does not come before it")
        specs, options["overlaps"] = chosen.resolved, chosen.overlaps
    function = getattr(ndl, point.verb)
    if point.verb == "predict":
        return function(*specs, **options, throw=False, progress=progress)
    if point.verb == "simulate":
        return function(*specs, **options, progress=progress)
    return function(*[s for s in specs if s is not None], **options)


def agreement(records: Sequence[Record]) -> list[Row]:
    """Rows of `compare` for every simulated point whose prediction is among the records."""
    predictions = {r.point.question: r.result for r in records if isinstance(r.result, Prediction)}
    rows: list[Row] = []
    for record in records:
        prediction = predictions.get(record.point.question)
        if isinstance(record.result, Measurement) and prediction is not None:
            rows += ndl.compare(prediction, record.result).rows
    return rows


def reproduce(figure: Figure, size: Size, out: Path, say: Say = quiet) -> Reproduced:
    """Compute, draw and write `ID.png`, `ID.pdf` and one CSV a table into the folder."""
    start = time.monotonic()
    writable(out)
    records = compute(figure.points(size), say)
    drawing = figure.draw(records)
    files = save(drawing, out / figure.id)
    statuses = [(r.point, r.result) for r in records if hasattr(r.result, "status")]
    troubles = tuple(
        f"{p.verb} {p.label}: {r.status.name}, {r.status.sentence}" for p, r in statuses if not r.status.ok
    )
    return Reproduced(figure, files, tuple(agreement(records)), troubles, time.monotonic() - start)


def writable(out: Path) -> None:
    """Make the folder, or say in one sentence why nothing can be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".write-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidParameter(f"cannot write to the folder {out}: {error.strerror or error}.") from None


def save(drawing: Drawing, stem: Path) -> tuple[Path, ...]:
    files = []
    for suffix in (".png", ".pdf"):
        path = stem.with_name(stem.name + suffix)
        drawing.figure.savefig(path, dpi=150)
        files.append(path)
    for name, (columns, rows) in drawing.tables.items():
        path = stem.with_name(f"{stem.name}-{name}.csv")
        write_csv(path, columns, rows)
        files.append(path)
    return tuple(files)


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_agreement(path: Path, done: Sequence[Reproduced]) -> None:
    """Every theory-against-simulation row of all figures in one CSV."""
    columns = ["figure", *Row.__dataclass_fields__]
    write_csv(path, columns, [[r.figure.id, *asdict(row).values()] for r in done for row in r.agreement])

"""Computing a figure's points, drawing it, and writing pictures, tables and comparisons with training."""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from needlepoint.core.answers.comparison import Row
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.results import Measurement, Prediction
from needlepoint.papers.figures import Drawing, Figure, Record, Size
from needlepoint.papers.trends import Verdict, verdicts
from needlepoint.papers.work import Say, compute, quiet
from needlepoint.studies.execution.executors import Executor
from needlepoint.studies.storage.store import Store


@dataclass(frozen=True)
class Agreement(Row):
    """A row of `compare` with the label and x of the figure's point, the status of its prediction, and its question."""

    point: str = ""
    x: float | None = None
    prediction: str = ""
    question: str = ""


@dataclass(frozen=True)
class Reproduced:
    """What came of one figure: files written, comparisons, messages about what did not converge, and seconds."""

    figure: Figure
    files: tuple[Path, ...]
    agreement: tuple[Agreement, ...]
    troubles: tuple[str, ...]
    seconds: float
    size: Size = "quick"
    missing: int = 0
    """How many points of the figure have not been computed yet."""


def agreement(records: Sequence[Record]) -> list[Agreement]:
    """Return the rows of `compare` for every simulated point whose prediction is among the records."""
    predictions = {r.point.question: r.result for r in records if isinstance(r.result, Prediction)}
    rows: list[Agreement] = []
    for record in records:
        prediction = predictions.get(record.point.question)
        if isinstance(record.result, Measurement) and prediction is not None:
            about = {"point": record.point.label, "x": record.point.x, "prediction": prediction.status.name}
            about["question"] = "; ".join(repr(part) for part in record.point.question if part is not None)
            rows += [Agreement(**vars(row), **about) for row in _compared(prediction, record.result)]
    return rows


_MEMORY: dict[Any, tuple[Row, ...]] = {}
"""Comparisons made so far in this process: figures share training, and a comparison on the attention-indexed model
solves the equations again for every target that was drawn."""


def _compared(prediction: Prediction, measurement: Measurement) -> tuple[Row, ...]:
    from needlepoint.theory.comparing import compare  # imported late, because it loads the theory

    question = (prediction.task, prediction.model, prediction.learner, measurement.d, measurement.repeats)
    numbers = [tuple((name, e.value, e.error) for name, e in r.metrics.items()) for r in (prediction, measurement)]
    key = (question, *numbers, measurement.seed)
    if key not in _MEMORY:
        _MEMORY[key] = compare(prediction, measurement).rows
    return _MEMORY[key]


def judged(rows: Sequence[Agreement]) -> list[Verdict]:
    """Return the verdict of each row of a figure; rows of one question at several d are judged together.

    A power law is a target with a d of its own, so that its question changes with d: there its place counts.
    """
    own = [not row.question or "PowerLaw(" in row.question for row in rows]
    return verdicts(rows, [(row.point, row.x) if here else row.question for row, here in zip(rows, own, strict=True)])


def reproduce(
    figure: Figure,
    size: Size,
    out: Path,
    say: Say = quiet,
    store: Store | None = None,
    executor: Executor | None = None,
) -> Reproduced:
    """Compute and draw a figure; write `ID.png`, `ID.pdf` and one CSV per table into the folder `out`."""
    start = time.monotonic()
    writable(out)
    records = compute(figure.points(size), say, store, executor)
    return drawn(figure, size, out, records, time.monotonic() - start)


def drawn(figure: Figure, size: Size, out: Path, records: Sequence[Record], seconds: float) -> Reproduced:
    """Draw a figure from its records, write its files, and compare; `seconds` is what computing the records took."""
    files = save(figure.draw(records), out / figure.id)
    statuses = [(r.point, r.result) for r in records if hasattr(r.result, "status")]
    troubles = tuple(
        f"{p.verb} {p.label}: {r.status.name}, {r.status.sentence}"
        for p, r in statuses
        # a prediction that flags itself as not to be trusted is no trouble: the figure shows it as such
        if not r.status.finished and getattr(r, "stable", None) is not False
    )
    return Reproduced(figure, files, tuple(agreement(records)), troubles, seconds, size)


def writable(out: Path) -> None:
    """Make the folder and check that it can be written to; raises InvalidParameter."""
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
    """Write every comparison of all figures into one CSV file, which is replaced as a whole (see `replacing`)."""
    columns = ["figure", *Agreement.__dataclass_fields__, "verdict", "reason", "z_extrapolated"]
    rows = [
        [r.figure.id, *asdict(row).values(), verdict.word, verdict.reason, verdict.z_extrapolated]
        for r in done
        for row, verdict in zip(r.agreement, judged(r.agreement), strict=True)
    ]
    with replacing(path) as new:
        write_csv(new, columns, rows)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to; it then replaces the file in one step, so that the file is never half
    written."""
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)

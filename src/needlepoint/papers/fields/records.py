"""What the figures of theories on fields read of their records: a metric or an overlap with its error, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from needlepoint.core.results import Measurement, Prediction
from needlepoint.papers.figures import Record, Size

COLUMNS = ["curve", "source", "x", "quantity", "value", "error", "error_kind", "status", "d"]


def training_options(size: Size, largest: int = 100) -> list[dict[str, Any]]:
    """Return the options of training at each d; the smaller one, with more repeats, shows how a gap falls with d."""
    found = [{"d": largest, "repeats": 16, "samples": 10_000, "seed": 1}]
    return [*found, {"d": largest // 2, "repeats": 32, "samples": 10_000, "seed": 2}] if size == "full" else found


def value_of(result: Any, name: str) -> tuple[float, float]:
    """Return a metric or an overlap of a result and its error."""
    if name in result.metrics:
        return result.metrics[name].value, result.metrics[name].error
    return dict(result.overlaps.items())[name], result.overlaps_error[name]


def curve(records: Sequence[Record], label: str, quantity: str, colour: int, name: str = "") -> tuple[Any, list[Any]]:
    """Return the curve of a quantity of the records with this label, and the rows of its table (`COLUMNS`).

    A curve is broken where its predictions are not to be trusted.
    """
    from needlepoint.plotting.stability import DoubtCurve

    mine = sorted((r for r in records if r.point.label == label), key=lambda r: float(r.point.x or 0))
    lines = [r for r in mine if isinstance(r.result, Prediction)]
    dots = [r for r in mine if isinstance(r.result, Measurement)]
    largest = max((r.result.d for r in dots), default=0)

    def dot(record: Record) -> tuple[float, float, float]:
        return (float(record.point.x or 0), *value_of(record.result, quantity))

    rows = [
        [label, source, r.point.x, quantity, *value_of(r.result, quantity), kind, r.result.status.name, d]
        for source, kind, found in (("theory", "numerical", lines), ("training", "stderr", dots))
        for r in found
        for d in [getattr(r.result, "d", "")]
    ]
    drawn = DoubtCurve(
        name or label,
        [float(r.point.x or 0) for r in lines],
        [value_of(r.result, quantity)[0] for r in lines],
        [r.result.status.ok for r in lines],
        [dot(r) for r in dots if r.result.d == largest],
        colour,
        smaller=[dot(r) for r in dots if r.result.d < largest],
    )
    return drawn, rows


def said(records: Sequence[Record]) -> tuple[str, str]:
    """Return what the legend says of the measured points, and of the small ones."""
    sizes = sorted({(r.result.d, r.result.repeats) for r in records if isinstance(r.result, Measurement)})
    words = [f"d = {d}, {n} repeats, ± standard error" for d, n in sizes]
    return (f"training, {words[-1]}" if words else ""), (f"the same, {words[0]}" if len(words) > 1 else "")

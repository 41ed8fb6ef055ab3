"""Studies as tables: CSV, data frames and labelled arrays."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.results import Result
from needlepoint.core.specs import Spec
from needlepoint.core.status import Status
from needlepoint.studies.derived import derived
from needlepoint.studies.points import StudyPoint

if TYPE_CHECKING:
    from needlepoint.studies.study import Study


def rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield one row per point and, with simulation, per d: the values of the axes, then theory, simulation and z."""
    for point in study.points():
        head = {path: _cell(value) for path, value in point.at.items()}
        theory = _theory(point)
        for row in _measured(point) or [{}]:
            yield {**head, **theory, **row}


def _theory(point: StudyPoint) -> dict[str, Any]:
    p = point.prediction
    row: dict[str, Any] = {"status": p.status.name if p else "MISSING", "message": point.message}
    if p is None:
        return row
    row["message"] = point.message or " ".join(p.notes)
    for name, estimate in p.metrics.items():
        row[name], row[f"{name}_error"] = estimate.value, estimate.error
    row |= {f"overlaps.{name}": x for name, x in p.overlaps.items()} if p.overlaps else {}
    row |= _derived(p)
    row |= {"branch": p.branch or "", "stable": p.stable}
    return row


def _measured(point: StudyPoint) -> list[dict[str, Any]]:
    comparison = point.comparison
    z = {(r.metric, r.d): r.z for r in comparison.rows} if comparison else {}
    found = []
    for m in point.measurements:
        row: dict[str, Any] = {"d": m.d, "measured_status": m.status.name, "repeats": m.repeats}
        for name, estimate in m.metrics.items():
            row[f"measured_{name}"], row[f"measured_{name}_error"] = estimate.value, estimate.error
            if (name, m.d) in z:
                row[f"z_{name}"] = z[name, m.d]
        found.append(row | _derived(m, "measured_"))
    return found


def _derived(result: Result, prefix: str = "") -> dict[str, Any]:
    """Return the columns of chosen penalties, which have no error of their own, and of shares of runs, with theirs."""
    row: dict[str, Any] = {}
    for name, estimate in derived(result).items():
        row[prefix + name] = estimate.value
        if estimate.kind == "stderr":
            row[f"{prefix}{name}_error"] = estimate.error
    return row


def _cell(value: Any) -> Any:
    """Return the value of an axis for a table: numbers and words as they are, specs, tuples and None as text."""
    return repr(value) if isinstance(value, (Spec, tuple)) or value is None else value


def columns(table: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in table for name in row))


def to_csv(study: Study, path: str | Path) -> None:
    # the points are read twice (for the columns, then for the rows) rather than all kept in memory
    names = list(dict.fromkeys(name for row in rows(study) for name in row))
    try:
        with Path(path).open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows(study))
    except OSError as error:
        raise InvalidParameter(f"cannot write {path}: {error.strerror or error}.") from None


def to_dataframe(study: Study) -> Any:
    pandas = _module("pandas")
    return pandas.DataFrame(list(rows(study)))


def to_xarray(study: Study) -> Any:
    """Return an xarray.Dataset: theory over the axes, simulations over the axes and `d`, statuses as integer codes.

    A study that is not a full grid has the one dimension `point`. The code of a missing result is -1.
    """
    xarray = _module("xarray")
    points = list(study.points())
    shape = tuple(len(v) for v in study.axes.values()) if study.grid else (len(points),)
    dims = tuple(study.axes) if study.grid else ("point",)
    if study.grid:
        coords: dict[str, Any] = {path: [_cell(v) for v in values] for path, values in study.axes.items()}
    else:
        coords = {path: ("point", [_cell(p.at[path]) for p in points]) for path in study.paths}
    theory = [_theory(p) for p in points]
    data: dict[str, Any] = {}
    for name in columns(theory):
        data[name] = (dims, _array([row.get(name) for row in theory], name).reshape(shape))
    sizes = study.definition.also.sizes if study.definition.also else ()
    if sizes:
        coords["d"] = list(sizes)
        measured = [{row["d"]: row for row in _measured(p)} for p in points]
        names = dict.fromkeys(n for rows_ in measured for row in rows_.values() for n in row if n != "d")
        for name in names:
            cells = [rows_.get(d, {}).get(name) for rows_ in measured for d in sizes]
            data[name] = ((*dims, "d"), _array(cells, name).reshape(*shape, len(sizes)))
    task, model, learner = study.definition.axes.base
    flags = ", ".join(f"{s.value} {s.name}" for s in Status)
    attributes = {"task": repr(task), "model": repr(model), "learner": repr(learner), "status_codes": flags}
    return xarray.Dataset(data, coords, attributes)


def _array(cells: list[Any], name: str) -> np.ndarray:
    if name in ("status", "measured_status"):
        return np.array([Status[c].value if c in Status.__members__ else -1 for c in cells], dtype=np.int64)
    if name in ("message", "branch"):
        return np.array([c or "" for c in cells], dtype=str)
    return np.array([np.nan if c is None else float(c) for c in cells])


def to_netcdf(study: Study, path: str | Path) -> None:
    _module("h5netcdf")
    dataset = to_xarray(study)
    try:
        dataset.to_netcdf(path, engine="h5netcdf")
    except OSError as error:
        raise InvalidParameter(f"cannot write {path}: {error.strerror or error}.") from None


def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InvalidParameter(f"this needs {name}: pip install 'needlepoint[tables]'.") from None

"""A study written down by a user: a TOML (or JSON) file with a question, what to sweep over, and what else to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from needlepoint.core.errors import InvalidParameter, UnknownName
from needlepoint.core.kinds import is_whole
from needlepoint.core.text.parsing import PARTS, combine, parse_value, read_spec_file
from needlepoint.studies.refining import Refine
from needlepoint.studies.sweeps import Simulation

_KEYS = (*PARTS, "over", "also", "refine", "seed", "tol", "ansatz", "plot")
_RANGE = ("from", "to", "points", "spacing")
_MOST = 100_000  # points in one range; more is taken for a typing error
PLOT = ("metric", "x", "y", "kind", "levels")


def read_study(path: Path, changes: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `sweep` and those of `plot` from a study file, with `path=value` changes applied."""
    document = read_spec_file(path)
    for key in document:
        if key not in _KEYS:
            raise UnknownName(f"part of the study {path}", key, _KEYS)
    parts = combine({k: v for k, v in document.items() if k in PARTS}, {}, changes)
    for name in ("task", "learner"):
        if parts[name] is None:
            raise InvalidParameter(f'{path}: {name} is missing, such as {name} = "{_EXAMPLES[name]}".')
    if "over" not in document:
        raise InvalidParameter(f'{path}: over is missing, such as [over] with "task.snr" = [1, 2, 5].')
    plot = _table(path, document, "plot", PLOT)
    also, refine = (
        _table(path, document, name, [f.name for f in fields(kind)])
        for name, kind in (("also", Simulation), ("refine", Refine))
    )
    if isinstance(also.get("at"), Mapping):
        also["at"] = {p: _values(v) for p, v in also["at"].items()}
    if "also" in document and "d" not in also:
        raise InvalidParameter(f"{path}: [also] needs d, the dimension of a token.")
    return {
        **parts,
        "over": _over(path, document["over"]),
        "also": Simulation(**also) if "also" in document else None,
        "refine": Refine(**refine) if "refine" in document else None,
        **{name: document[name] for name in ("seed", "tol", "ansatz") if name in document},
    }, plot


_EXAMPLES = {"task": "SpikedSLR(tokens=2, snr=1)", "learner": "Population()"}


def _table(path: Path, document: Mapping[str, Any], name: str, known: Any) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise InvalidParameter(f"{path}: {name} must be a table, [{name}].")
    for key in table:
        if key not in known:
            raise UnknownName(f"field of [{name}]", key, known)
    return dict(table)


def _over(path: Path, over: Any) -> Any:
    if isinstance(over, list) and all(isinstance(row, Mapping) for row in over):
        return [{p: _value(v) for p, v in row.items()} for row in over]
    if not isinstance(over, Mapping):
        raise InvalidParameter(f"{path}: over must be a table of paths and values, or a list of such tables.")
    return {p: _range(path, p, v) if isinstance(v, Mapping) else _values(v) for p, v in over.items()}


def _values(values: Any) -> Any:
    return [_value(v) for v in values] if isinstance(values, list) else values


def _value(value: Any) -> Any:
    """Return a value of the file: text with a parenthesis is read as a spec, anything else is kept."""
    return parse_value(value) if isinstance(value, str) and "(" in value else value


def _range(path: Path, axis: str, table: Mapping[str, Any]) -> list[float]:
    """Return the values of a range such as {from = 0.1, to = 10, points = 40, spacing = "log"}, both ends included."""
    for key in table:
        if key not in _RANGE:
            raise UnknownName(f"field of the range of {axis}", key, _RANGE)
    missing = [key for key in _RANGE[:3] if key not in table]
    if missing:
        raise InvalidParameter(f"{path}: the range of {axis} needs {missing[0]}, as in {{from=1, to=9, points=5}}.")
    low, high, n, spacing = table["from"], table["to"], table["points"], table.get("spacing", "linear")
    if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in (low, high)) or not is_whole(n) or n < 2:
        raise InvalidParameter(f"{path}: the range of {axis} needs two finite numbers and at least 2 points.")
    if n > _MOST:
        raise InvalidParameter(f"{path}: the range of {axis} has {n:,.0f} points; at most {_MOST:,} are meant.")
    if spacing not in ("linear", "log"):
        raise UnknownName("spacing", spacing, ("linear", "log"))
    if spacing == "log" and not min(low, high) > 0:
        raise InvalidParameter(f"{path}: a log range of {axis} needs positive ends.")
    shares = [i / (n - 1) for i in range(int(n))]
    if spacing == "log":
        return [low, *(float(low * (high / low) ** f) for f in shares[1:-1]), high]
    return [low, *(float(low + (high - low) * f) for f in shares[1:-1]), high]

"""JSON with the few conventions a numerical library needs: inf as a word, NaN as null."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, cast


def number(x: float) -> float | str | None:
    """Return a float for JSON: infinities as 'inf' or '-inf', NaN as None (the status of the result says why)."""
    x = float(x)
    if math.isnan(x):
        return None
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return x


def plain(value: Any) -> Any:
    """Return nested containers, NumPy arrays and objects with `to_json` as plain JSON values."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if value is None or isinstance(value, (str, bool)):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in cast("Iterable[Any]", value)]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Return one JSON document as text, never containing NaN."""
    return json.dumps(plain(value), allow_nan=False, indent=indent)


def canonical(value: Any) -> str:
    """Return the one JSON spelling from which ids are hashed: sorted keys, no spaces, shortest floats."""
    return json.dumps(plain(value), allow_nan=False, sort_keys=True, separators=(",", ":"))

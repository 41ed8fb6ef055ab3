"""The table of best penalties that ships with the page: its axes, and the interpolation between its values.

`page/js/table.js` does the same in the browser; a test holds the two against each other. `benchmarks/explorer_table.py`
makes the table and measures on points of its own how far off the interpolation is.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "page" / "table" / "best.json"

TASKS = ("SpikedSLR", "MaxSLR")
TOKENS = (2, 3, 4)
MODELS = {
    "softmax": "KeyValueAttention(Softmax())",
    "linear": "KeyValueAttention(Linear())",
    "erf": "KeyValueAttention(Erf())",
    "Bayes": "None",
}
AXES: dict[str, tuple[float, ...]] = {
    "snr": (1.0, 2.0, 4.0, 8.0),
    "noise": (0.1, 0.5),
    "alpha": (0.75, 1.3, 2.3, 4.0, 7.0, 12.0),
}
"""Values of the table along each axis; a block (task, tokens, model) has a row for each combination, alpha fastest."""


@dataclass(frozen=True)
class Value:
    """What the table says: risk, penalties (none for Bayes), and whether all values it comes from are trusted."""

    risk: float
    lam: tuple[float, ...]
    trusted: bool


def coordinate(axis: str, x: float) -> float:
    """Return what is interpolated in: log(snr), log(alpha), and the noise itself."""
    return x if axis == "noise" else math.log(x)


def load(path: Path = FILE) -> dict[str, Any]:
    """Return the document of the table."""
    return json.loads(path.read_text(encoding="utf-8"))


def at(
    document: dict[str, Any], task: str, tokens: int, model: str, snr: float, noise: float, alpha: float
) -> Value | None:
    """Return the table's value at a point, or None outside its box and where it has gaps.

    Logarithms of excess risk and penalties are interpolated: linearly in log(snr) and the noise, and by a cubic through
    the values and the slopes of their neighbours (Catmull and Rom) in log(alpha).
    """
    block = document["blocks"].get(f"{task}/{tokens}/{model}")
    axes = document["axes"]
    if block is None:
        return None
    places = [
        _place([coordinate(n, v) for v in axes[n]], coordinate(n, x)) for n, x in (("snr", snr), ("noise", noise))
    ]
    if None in places:
        return None
    xs, x = [coordinate("alpha", v) for v in axes["alpha"]], coordinate("alpha", alpha)
    sums: list[float] | None = None
    trusted = True
    (i, u), (j, w) = (p for p in places if p is not None)
    for di, dj in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = (u if di else 1 - u) * (w if dj else 1 - w)
        if weight == 0:
            continue
        first = ((i + di) * len(axes["noise"]) + j + dj) * len(xs)
        found = _along(xs, block[first : first + len(xs)], x)
        if found is None:
            return None
        sums = [a + weight * b for a, b in zip(sums or [0.0] * len(found[0]), found[0], strict=True)]
        trusted = trusted and found[1]
    if sums is None:
        return None
    excess, *lam = map(math.exp, sums)
    return Value(excess + noise * noise, tuple(lam), trusted)


def _place(xs: Sequence[float], x: float) -> tuple[int, float] | None:
    """Return the interval that x is in and how far along it is; None outside."""
    slack = 1e-9
    if not xs[0] - slack <= x <= xs[-1] + slack:
        return None
    low = min(max(bisect.bisect_left(xs, x) - 1, 0), len(xs) - 2)
    share = min(1.0, max(0.0, (x - xs[low]) / (xs[low + 1] - xs[low])))
    return low, 0.0 if share < slack else 1.0 if share > 1 - slack else share


def _along(xs: Sequence[float], rows: Sequence[Any], x: float) -> tuple[list[float], bool] | None:
    """Return the columns at x of rows [log excess risk, log penalties..., trusted], by a cubic; None next to a gap."""
    place = _place(xs, x)
    if place is None:
        return None
    low, t = place
    if rows[low] is None or rows[low + 1] is None:
        return None
    columns = []
    for c in range(len(rows[low]) - 1):
        here, there = rows[low][c], rows[low + 1][c]
        width = xs[low + 1] - xs[low]
        slope = (there - here) / width
        before, after = (rows[k] if 0 <= k < len(xs) else None for k in (low - 1, low + 2))
        # a slope at a value is that of its two neighbours; at an end or beside a gap, that of the interval
        left = slope if before is None else (there - before[c]) / (xs[low + 1] - xs[low - 1])
        right = slope if after is None else (after[c] - here) / (xs[low + 2] - xs[low])
        a, b = left * width - (there - here), -right * width + (there - here)
        columns.append((1 - t) * here + t * there + t * (1 - t) * (a * (1 - t) + b * t))
    used = [rows[k] for k in ([low] if t == 0 else [low + 1] if t == 1 else [low, low + 1])]
    return columns, all(row[-1] == 1 for row in used)

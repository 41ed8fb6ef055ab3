"""Whether a gap between training and theory is the finite size or a disagreement: told by how it changes with d.

Where the theory is a limit, a gap that falls like 1/d is what a finite size leaves; one that stays is a disagreement.
Two hypotheses are fitted to the gaps at all sizes, c/d and c. The finite size is believed where c/d fits, and fits
better; a disagreement is called only where c/d is excluded and the gap does not shrink.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.core.answers.agreement import ROUNDING
from needlepoint.core.answers.comparison import Row

FAR = 4.0
"""|z| from which on a gap is too large to be chance."""

BETTER = 4.0
"""How much smaller chi-squared of c/d must be than that of c for a finite size to be believed: odds of e^2, or 7."""

AGREES, SIZE, OPEN, FLAGGED, WRONG = "agrees", "finite size", "undecided", "flagged", "disagrees"
WORDS = {
    AGREES: f"within {FAR:g} standard errors",
    SIZE: "a gap to a limit that shrinks with d as a finite size does",
    OPEN: "a gap to a limit whose trend in d is not known well enough",
    FLAGGED: "beside a prediction that says that it is not to be trusted",
    WRONG: "an exact theory is missed, or a gap to a limit does not shrink",
}
"""Every verdict and what it means."""


@dataclass(frozen=True)
class Verdict:
    """What is said of a row: a word of `WORDS`, the reason, and z of the gap extrapolated to 1/d = 0 (None if it is
    not: from one size, or beside an exact theory)."""

    word: str
    reason: str
    z_extrapolated: float | None = None


def verdicts(rows: Sequence[Row], keys: Sequence[object]) -> list[Verdict]:
    """Return the verdict of each row; rows with equal keys are one comparison at several sizes."""
    groups: dict[object, list[int]] = {}
    for i, (row, key) in enumerate(zip(rows, keys, strict=True)):
        groups.setdefault((key, row.metric, row.exact), []).append(i)
    found: dict[int, Verdict] = {}
    for places in groups.values():
        mine = [rows[i] for i in places]
        found |= dict(zip(places, _of_one(mine), strict=True))
    return [found[i] for i in range(len(rows))]


def _of_one(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts of one comparison, whose rows differ in d."""
    if any(row.flagged for row in rows):
        return [Verdict(FLAGGED, "the prediction says that it is not to be trusted")] * len(rows)
    if rows[0].exact:
        return [_exact(row) for row in rows]
    largest = max(rows, key=lambda row: row.d)
    z = extrapolated(rows)
    if not all(math.isfinite(row.z) for row in rows):
        return [Verdict(WRONG, "a number is missing or infinite", z)] * len(rows)
    if abs(largest.z) < FAR:
        gone = Verdict(SIZE, f"gone at d = {largest.d}", z)
        return [Verdict(AGREES, "", z) if abs(row.z) < FAR else gone for row in rows]
    if len({row.d for row in rows}) == 1:
        return [Verdict(OPEN, f"measured at d = {largest.d} only")] * len(rows)
    return [trend(rows, z)] * len(rows)


def _exact(row: Row) -> Verdict:
    if abs(row.z) < FAR:
        return Verdict(AGREES, "")
    return Verdict(WRONG, "the theory is exact at this d")


def trend(rows: Sequence[Row], z: float | None = None) -> Verdict:
    """Return what the gaps at two sizes or more say."""
    rows = sorted(rows, key=lambda row: row.d)
    gaps = _gaps(rows)
    d, se = np.array([row.d for row in rows], dtype=float), _errors(rows)
    as_size, as_constant = _misfit(gaps, se, 1 / d), _misfit(gaps, se, np.ones(len(d)))
    told = ", ".join(f"{_percent(row)} at d = {row.d}" for row in rows)
    many = FAR**2 + len(rows) - 2  # chi-squared that is too large to be chance; two sizes leave one degree of freedom
    if as_size < many:
        if as_constant > as_size + BETTER:
            return Verdict(SIZE, f"shrinks like 1/d: {told}", z)
        return Verdict(OPEN, f"too noisy to tell a trend: {told}", z)
    first, last = abs(gaps[0]), abs(gaps[-1])
    if as_constant < many:
        return Verdict(WRONG, f"does not shrink: {told}", z)
    if last * d[-1] <= first * d[0]:
        return Verdict(SIZE, f"shrinks faster than 1/d: {told}", z)
    if last < first:
        return Verdict(OPEN, f"shrinks, but more slowly than 1/d: {told}", z)
    return Verdict(WRONG, f"grows: {told}", z)


def extrapolated(rows: Sequence[Row]) -> float | None:
    """Return z of the gap at 1/d = 0, by weighted least squares on (1, 1/d); None with fewer than two sizes."""
    d, se = np.array([row.d for row in rows], dtype=float), _errors(rows)
    gaps = _gaps(rows)
    if len(set(d)) < 2 or rows[0].exact or not np.all(np.isfinite(gaps) & np.isfinite(se) & (se > 0)):
        return None
    # centred sums: the errors of two sizes may differ by many orders, and a normal matrix would lose all digits
    w, x = 1 / se**2, 1 / d
    middle, height = np.sum(w * x) / np.sum(w), np.sum(w * gaps) / np.sum(w)
    spread = np.sum(w * (x - middle) ** 2)
    if not spread > 0:
        return None
    slope = np.sum(w * (x - middle) * (gaps - height)) / spread
    return float((height - middle * slope) / math.sqrt(1 / np.sum(w) + middle**2 / spread))


def _gaps(rows: Sequence[Row]) -> np.ndarray:
    """Return the gaps; the numerical error of the theory, which is a bound, is taken off their size."""
    bound = max((row.predicted_error for row in rows if row.predicted_kind == "numerical"), default=0.0)
    gaps = np.array([row.gap for row in rows])
    return np.sign(gaps) * np.maximum(np.abs(gaps) - bound, 0.0)


def _errors(rows: Sequence[Row]) -> np.ndarray:
    """Return the standard errors, rounding at least; a row's own z says how much wider few repeats make them."""
    gaps = np.abs(_gaps(rows))
    wide = [g / abs(row.z) if row.z and math.isfinite(row.z) else 0.0 for g, row in zip(gaps, rows, strict=True)]
    return np.maximum(np.maximum(wide, [row.measured_error for row in rows]), ROUNDING)


def _misfit(gaps: np.ndarray, se: np.ndarray, shape: np.ndarray) -> float:
    """Return chi-squared of the best multiple of `shape` as a fit to the gaps."""
    w = 1 / se**2
    c = np.sum(w * shape * gaps) / np.sum(w * shape**2)
    return float(np.sum(w * (gaps - c * shape) ** 2))


def _percent(row: Row) -> str:
    return f"{100 * row.gap / row.predicted:+.2g} %" if row.predicted else f"{row.gap:+.2g}"

"""Prediction and measurement side by side, metric by metric."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict, dataclass
from typing import Any

from needlepoint.core.text.digits import with_error
from needlepoint.core.text.jsonio import plain
from needlepoint.core.text.showing import Showing, table


@dataclass(frozen=True)
class Row:
    """One metric at one dimension d: predicted, measured, and their gap (measured minus predicted).

    `z` is the gap in units of the combined standard error, see `z_score`; `exact` says that the prediction holds at
    this d and not only in the limit.
    """

    metric: str
    d: int
    predicted: float
    predicted_error: float
    predicted_kind: str
    measured: float
    measured_error: float
    measured_kind: str
    gap: float
    z: float
    repeats: int
    exact: bool
    realised: bool = False
    """True where the prediction was made for each target that the repeats drew: `predicted` is then the mean of these,
    and `measured_error` the standard error of the gaps repeat by repeat."""
    flagged: bool = False
    """True where the prediction itself says that it is not to be trusted (`stable` is False)."""

    @property
    def theory(self) -> str:
        """Return "exact" (holds at this d) or "limit" (holds as d goes to infinity), with ", flagged" if it is."""
        return ("exact" if self.exact else "limit") + (", flagged" if self.flagged else "")


@dataclass(frozen=True)
class Extrapolation:
    """One measured metric extrapolated to 1/d = 0 by weighted least squares over the dimensions d.

    Where predictions were made for the targets that were drawn (`Row.realised`), the gaps are extrapolated instead and
    the prediction for the limit is added.
    """

    metric: str
    predicted: float
    extrapolated: float
    extrapolated_error: float
    z_extrapolated: float
    chi2_per_dof: float


@dataclass(frozen=True)
class Comparison(Showing):
    """Theory against training: one of `rows` per metric and d.

    `extrapolations` has one entry per metric where the theory is a limit and at least three d were measured.

    >>> task, bayes = ndl.SpikedSLR(2, snr=2.0), ndl.BayesOptimal()
    >>> trained = ndl.simulate(task, None, bayes, d=20, repeats=16, samples=500)
    >>> found = ndl.compare(ndl.predict(task, None, bayes), trained)
    >>> len(found.rows), max(abs(row.z) for row in found.rows) < 5
    (2, True)
    """

    rows: tuple[Row, ...]
    extrapolations: tuple[Extrapolation, ...] = ()

    @property
    def worst(self) -> float:
        """Return the largest |z| over all metrics; NaN if any is NaN.

        A metric that was extrapolated counts by its extrapolation, any other by its rows.
        """
        extrapolated = {e.metric: abs(e.z_extrapolated) for e in self.extrapolations}
        others = [abs(r.z) for r in self.rows if r.metric not in extrapolated]
        every = [*extrapolated.values(), *others]
        return math.nan if any(math.isnan(z) for z in every) else max(every, default=0.0)

    def _document(self) -> dict[str, Any]:
        return plain(
            {
                "rows": [asdict(r) for r in self.rows],
                "extrapolations": [asdict(e) for e in self.extrapolations],
                "worst": self.worst,
            }
        )

    def _records(self) -> list[dict[str, Any]]:
        return [asdict(r) for r in self.rows]

    def _repr_html_(self) -> str:
        rows = [
            (r.metric, str(r.d), f"{r.predicted:.6g}", with_error(r.measured, r.measured_error), f"{r.z:.2f}", r.theory)
            for r in self.rows
        ]
        rows += [
            (
                e.metric,
                "infinite (extrapolated)",
                f"{e.predicted:.6g}",
                with_error(e.extrapolated, e.extrapolated_error),
                f"{e.z_extrapolated:.2f}",
                "limit",
            )
            for e in self.extrapolations
        ]
        return table(rows, ("metric", "d", "predicted", "measured", "z", "theory"))

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(r) for r in self.rows)
        return text.getvalue()

    def __str__(self) -> str:
        wide = max([16, *(len(r.metric) + 1 for r in self.rows)])
        head = f"{'metric':<{wide}}{'d':>7}{'predicted':>14}{'measured':>14}{'error':>11}{'z':>8}  theory"
        lines = [head]
        for r in self.rows:
            lines.append(
                f"{r.metric:<{wide}}{r.d:>7}{r.predicted:>14.6g}{r.measured:>14.6g}{r.measured_error:>11.1e}"
                f"{r.z:>8.2f}  {r.theory}"
            )
        for e in self.extrapolations:
            lines.append(
                f"{e.metric:<{wide}}{'->inf':>7}{e.predicted:>14.6g}{e.extrapolated:>14.6g}"
                f"{e.extrapolated_error:>11.1e}{e.z_extrapolated:>8.2f}  limit"
            )
        return "\n".join(lines)

    __repr__ = __str__

"""Prediction and measurement side by side, metric by metric."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.jsonio import plain
from needlepoint.core.results import Measurement, Prediction, Result


@dataclass(frozen=True)
class Row:
    """One metric at one d. `z` is the gap over the joined standard error, see `z_score`."""

    metric: str
    d: int
    predicted: float
    predicted_error: float
    measured: float
    measured_error: float
    gap: float
    z: float
    repeats: int
    exact: bool


@dataclass(frozen=True)
class Extrapolation:
    """One metric extrapolated to 1/d = 0 by weighted least squares over the sizes."""

    metric: str
    predicted: float
    extrapolated: float
    extrapolated_error: float
    z_extrapolated: float
    chi2_per_dof: float


@dataclass(frozen=True)
class Comparison:
    """`rows` per metric and size; `extrapolations` from three sizes on where theory is a limit."""

    rows: tuple[Row, ...]
    extrapolations: tuple[Extrapolation, ...] = ()

    @property
    def worst(self) -> float:
        """The largest |z|: extrapolated where that exists, otherwise over the rows."""
        extrapolated = {e.metric: abs(e.z_extrapolated) for e in self.extrapolations}
        others = [abs(r.z) for r in self.rows if r.metric not in extrapolated]
        return max([*extrapolated.values(), *others], default=0.0)

    def to_json(self) -> dict[str, Any]:
        return plain(
            {
                "rows": [asdict(r) for r in self.rows],
                "extrapolations": [asdict(e) for e in self.extrapolations],
                "worst": self.worst,
            }
        )

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(r) for r in self.rows)
        return text.getvalue()

    def __str__(self) -> str:
        head = f"{'metric':<16}{'d':>7}{'predicted':>14}{'measured':>14}{'std error':>11}{'z':>8}  theory"
        lines = [head]
        for r in self.rows:
            kind = "exact" if r.exact else "limit"
            lines.append(
                f"{r.metric:<16}{r.d:>7}{r.predicted:>14.6g}{r.measured:>14.6g}{r.measured_error:>11.1e}"
                f"{r.z:>8.2f}  {kind}"
            )
        for e in self.extrapolations:
            lines.append(
                f"{e.metric:<16}{'->inf':>7}{e.predicted:>14.6g}{e.extrapolated:>14.6g}"
                f"{e.extrapolated_error:>11.1e}{e.z_extrapolated:>8.2f}  limit"
            )
        return "\n".join(lines)

    __repr__ = __str__


def compare(prediction: Prediction, measurements: Measurement | Sequence[Measurement]) -> Comparison:
    """Rows of predicted against measured for every metric that both have.

    Where the theory is a limit, a z-score at one d mostly measures the finite size; from three sizes
    on `z_extrapolated` compares the prediction with a fit in 1/d.
    """
    if isinstance(measurements, Measurement):
        measurements = [measurements]
    if not measurements:
        raise InvalidParameter("compare(measurements=[]): at least one measurement is needed.")
    for m in measurements:
        _same_question(prediction, m)
    names = [n for n in prediction.metrics if all(n in m.metrics for m in measurements)]
    rows = [_row(prediction, m, n, prediction.metrics[n], m.metrics[n]) for n in names for m in measurements]
    fits = []
    if not prediction.exact and len({m.d for m in measurements}) >= 3:
        fits = [_extrapolate(n, prediction.metrics[n], measurements) for n in names]
    for name, (predicted, pairs) in _overlap_pairs(prediction, measurements).items():
        rows += [_row(prediction, m, name, predicted, e) for m, e in pairs]
    return Comparison(tuple(rows), tuple(fits))


def _same_question(prediction: Prediction, m: Measurement) -> None:
    task, model, learner = prediction.resolved or (prediction.task, prediction.model, prediction.learner)
    if (task, model) != (m.task, m.model) or type(learner) is not type(m.learner):
        raise InvalidParameter(
            f"compare: the measurement answers another question ({m.task!r}, {m.model!r}, {m.learner!r}) than "
            f"the prediction ({task!r}, {model!r}, {learner!r}); simulate prediction.resolved."
        )


def _row(prediction: Prediction, m: Measurement, name: str, predicted: Estimate, measured: Estimate) -> Row:
    return Row(
        metric=name,
        d=m.d,
        predicted=predicted.value,
        predicted_error=predicted.error,
        measured=measured.value,
        measured_error=measured.error,
        gap=measured.value - predicted.value,
        z=z_score(predicted, measured, m.repeats),
        repeats=m.repeats,
        exact=prediction.exact,
    )


def _overlap_pairs(
    prediction: Prediction, measurements: Sequence[Measurement]
) -> dict[str, tuple[Estimate, list[tuple[Measurement, Estimate]]]]:
    """Overlaps where both sides have them with an error (a chosen overlap is not a comparison)."""
    if prediction.overlaps is None or not prediction.overlaps_error:
        return {}
    pairs = {}
    for name, value in prediction.overlaps.items():
        having = [m for m in measurements if m.overlaps is not None and name in m.overlaps_error]
        if name in prediction.overlaps_error and having:
            predicted = Estimate(value, prediction.overlaps_error[name], _kind(prediction))
            pairs[name] = (
                predicted,
                [(m, Estimate(getattr(m.overlaps, name), m.overlaps_error[name], _kind(m))) for m in having],
            )
    return pairs


def _kind(result: Result) -> Literal["numerical", "stderr"]:
    """Overlaps carry the same kind of error as the metrics beside them."""
    return "stderr" if any(e.kind == "stderr" for e in result.metrics.values()) else "numerical"


def z_score(predicted: Estimate, measured: Estimate, repeats: int) -> float:
    """Gap over the joined standard error, numerical errors subtracted from |gap|, Student for few repeats.

    The t value with repeats - 1 degrees of freedom is mapped to the normal z of the same probability.
    A gap inside the numerical error is z = 0; outside it with no standard error at all, z is infinite.
    """
    if not (math.isfinite(predicted.value) and math.isfinite(measured.value)):
        return math.nan
    gap, numerical, variance = measured.value - predicted.value, 0.0, 0.0
    for estimate in (predicted, measured):
        if estimate.kind == "numerical":
            numerical += estimate.error
        else:
            variance += estimate.error**2
    excess = max(0.0, abs(gap) - numerical)
    if excess == 0.0 or math.isinf(variance):
        return 0.0
    if variance == 0.0:
        return math.copysign(math.inf, gap)
    t = excess / math.sqrt(variance)
    return math.copysign(_student_to_normal(t, repeats - 1), gap)


def _student_to_normal(t: float, dof: int) -> float:
    if dof < 1 or dof > 200:
        return t
    from scipy import stats

    log_tail = stats.t.logsf(t, dof)
    return float(-stats.norm.ppf(math.exp(log_tail))) if log_tail > -700 else t


def _extrapolate(name: str, predicted: Estimate, measurements: Sequence[Measurement]) -> Extrapolation:
    """Weighted least squares of the measured metric on (1, 1/d)."""
    y = np.array([m.metrics[name].value for m in measurements])
    se = np.array([m.metrics[name].error for m in measurements])
    if not np.all(np.isfinite(y) & np.isfinite(se) & (se > 0)):
        return Extrapolation(name, predicted.value, math.nan, math.nan, math.nan, math.nan)
    design = np.stack([np.ones(len(y)), 1.0 / np.array([m.d for m in measurements])], axis=1) / se[:, None]
    covariance = np.linalg.inv(design.T @ design)
    intercept, slope = covariance @ (design.T @ (y / se))
    residual = y / se - design @ np.array([intercept, slope])
    dof = len(y) - 2
    fitted = Estimate(intercept, float(np.sqrt(covariance[0, 0])), "stderr")
    fewest = min(m.repeats for m in measurements)
    z = z_score(predicted, fitted, fewest)
    chi2 = float(residual @ residual) / dof if dof else math.nan
    return Extrapolation(name, predicted.value, fitted.value, fitted.error, z, chi2)

"""Prediction and measurement side by side, metric by metric."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from needlepoint.core.answers.spectra import group_means
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Prediction, Result, mean_estimate
from needlepoint.core.specs import Spec
from needlepoint.core.text.jsonio import plain

_MANY = 1000  # quantiles by which the limit law of the eigenvalues is represented when its group means are taken

ROUNDING = 1e-13
"""Numerical error given to every overlap and eigenvalue mean. They are of order one, and runs that stay at zero differ
from it by rounding, which must not count as a disagreement."""


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
class Comparison:
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


Realised = Mapping[str, np.ndarray]
"""Name of a metric or overlap -> its predictions (repeats,), each for the target matrix that the repeat drew."""


def asked(
    prediction: Prediction, measurements: Measurement | Sequence[Measurement]
) -> tuple[Prediction, list[Measurement]]:
    """Return the prediction and the list of measurements, or raise one sentence on why they cannot be compared."""
    # cast to `object`, so that the type checker keeps the checks below: a caller may have passed anything
    one, several = cast("object", prediction), cast("object", measurements)
    many = isinstance(several, Iterable) and not isinstance(several, Measurement)
    found: list[Any] = list(cast("Iterable[Any]", several)) if many else [several]
    if not isinstance(one, Prediction) or not all(isinstance(m, Measurement) for m in found):
        raise InvalidParameter("compare: takes a Prediction and one or several Measurements.")
    if not found:
        raise InvalidParameter("compare(measurements=[]): at least one measurement is needed.")
    for m in found:
        _same_question(prediction, m)
    return prediction, found


def side_by_side(
    prediction: Prediction, measurements: Sequence[Measurement], realised: Sequence[Realised | None]
) -> Comparison:
    """Return the comparison of what `asked` returned, for every metric and overlap that all of them have.

    `realised[i]` has the predictions for the individual repeats of `measurements[i]`, or is None.
    """
    predicted, measured = _quantities(prediction), [_quantities(m) for m in measurements]
    names = [n for n in predicted if all(n in q for q in measured)]
    if not names:
        raise InvalidParameter("compare: the prediction and the measurements have no metric in common.")
    rows: list[Row] = []
    fits: list[Extrapolation] = []
    sizes = {m.d for m in measurements}
    for name in names:
        mine = [
            _row(prediction, m, name, predicted[name], q[name], None if own is None else own.get(name))
            for m, q, own in zip(measurements, measured, realised, strict=True)
        ]
        rows += mine
        if not prediction.exact and len(sizes) >= 3:
            fits.append(_extrapolate(predicted[name], mine))
    return Comparison(tuple(rows), tuple(fits))


def _quantities(result: Result) -> dict[str, Estimate]:
    """Return what can be compared, by name: metrics, overlaps, and the group means of the sorted eigenvalues.

    Overlaps without an error are left out: they were given by the caller and not found, so they agree trivially.
    """
    found = dict(result.metrics)
    if isinstance(result, Prediction) and result.spectrum is not None:
        found |= {
            name: Estimate(float(x), ROUNDING) for name, x in group_means(result.spectrum.quantiles(_MANY)).items()
        }
    if isinstance(result, Measurement) and result.spectrum is not None:
        found |= {name: mean_estimate(x) for name, x in group_means(result.spectrum.eigenvalues).items()}
    if result.overlaps is not None:
        kind = "stderr" if any(e.kind == "stderr" for e in result.metrics.values()) else "numerical"
        for name, value in result.overlaps.items():
            if name in result.overlaps_error:
                found[name] = Estimate(value, math.hypot(result.overlaps_error[name], ROUNDING), kind)
    return found


def _same_question(prediction: Prediction, m: Measurement) -> None:
    task, model, learner = prediction.resolved or (prediction.task, prediction.model, prediction.learner)
    if (task, model) != (m.task, m.model) or _asked(learner) != _asked(m.learner):
        raise InvalidParameter(
            f"compare: the measurement answers another question ({m.task!r}, {m.model!r}, {m.learner!r}) than "
            f"the prediction ({task!r}, {model!r}, {learner!r}); simulate prediction.resolved."
        )
    if prediction.trajectory is None and prediction.overlaps is not None and m.overlaps is not None:
        gaps = [abs(a - b) for (_, a), (_, b) in zip(prediction.overlaps.items(), m.overlaps.items(), strict=True)]
        if max(gaps) > 1e-9 and not prediction.overlaps_error:
            raise InvalidParameter(
                f"compare: the measurement was made at {m.overlaps!r}, the prediction is for {prediction.overlaps!r}; "
                "simulate with overlaps=prediction.overlaps."
            )
    d = getattr(learner, "d", None)
    if prediction.exact and d is not None and d != m.d:
        raise InvalidParameter(f"compare: the prediction is exact at d={d} and the measurement was made at d={m.d}.")


def _asked(learner: Spec) -> dict[str, Any]:
    """Return the fields of the learner that both sides must share.

    `d`, `runs` and `algorithm` are left out, because a measurement may choose them for itself.
    """
    return {name: value for name, value in learner.to_json().items() if name not in ("d", "runs", "algorithm")}


def _runs(result: Result) -> int | None:
    """Return the number of independent runs behind a standard error; None where there are no runs."""
    if isinstance(result, Measurement):
        return result.repeats
    return result.trajectory.runs if result.trajectory is not None else None


def _row(
    prediction: Prediction,
    m: Measurement,
    name: str,
    predicted: Estimate,
    measured: Estimate,
    own: np.ndarray | None,
) -> Row:
    realised = name in m.values and own is not None
    if own is not None and name in m.values:
        predicted = Estimate(float(np.mean(own)), predicted.error, predicted.kind)
        measured = Estimate(measured.value, mean_estimate(m.values[name] - own).error, "stderr")
    return Row(
        metric=name,
        d=m.d,
        predicted=predicted.value,
        predicted_error=predicted.error,
        predicted_kind=predicted.kind,
        measured=measured.value,
        measured_error=measured.error,
        measured_kind=measured.kind,
        gap=measured.value - predicted.value,
        z=z_score(predicted, measured, m.repeats, _runs(prediction)),
        repeats=m.repeats,
        exact=prediction.exact,
        realised=realised,
        flagged=prediction.stable is False,
    )


def z_score(predicted: Estimate, measured: Estimate, repeats: int, predicted_runs: int | None = None) -> float:
    """Return the gap, measured minus predicted, in units of the combined standard error.

    Numerical errors are bounds: they are subtracted from |gap| first. What is left over the standard error is a
    Student t value with Welch's degrees of freedom, and is mapped to the normal z of the same tail probability.
    z is 0 for a gap inside the numerical error, and infinite for one outside it with no standard error at all.
    It is NaN where an error is infinite: a single repeat, or equations that were not solved.
    """
    if not (predicted.finite and measured.finite):
        return math.nan
    gap, numerical, variance, spread = measured.value - predicted.value, 0.0, 0.0, 0.0
    for estimate, runs in ((predicted, predicted_runs), (measured, repeats)):
        if estimate.kind == "numerical":
            numerical += estimate.error
        else:
            variance += estimate.error**2
            spread += estimate.error**4 / (runs - 1) if runs and runs > 1 else 0.0
    excess = max(0.0, abs(gap) - numerical)
    if excess == 0.0:
        return 0.0
    if variance == 0.0:
        return math.copysign(math.inf, gap)
    dof = variance**2 / spread if spread > 0 else math.inf
    return math.copysign(_student_to_normal(excess / math.sqrt(variance), dof), gap)


def _student_to_normal(t: float, dof: float) -> float:
    if dof > 1000:
        return t
    from scipy import stats  # pyright: ignore[reportMissingTypeStubs]  # scipy has none

    student, normal = cast("Any", stats.t), cast("Any", stats.norm)
    log_tail = float(student.logsf(t, dof))
    return float(-normal.ppf(math.exp(log_tail))) if log_tail > -700 else t


def _extrapolate(predicted: Estimate, rows: Sequence[Row]) -> Extrapolation:
    """Return the weighted least-squares fit of the measured values on (1, 1/d), at 1/d = 0.

    The weights are themselves estimated from few repeats; Meier's correction widens the error for that.
    """
    name = rows[0].metric
    y = np.array([predicted.value + r.gap if r.realised else r.measured for r in rows])
    se = np.array([r.measured_error for r in rows])
    if not np.all(np.isfinite(y) & np.isfinite(se) & (se > 0)):
        return Extrapolation(name, predicted.value, math.nan, math.nan, math.nan, math.nan)
    design = np.stack([np.ones(len(y)), 1.0 / np.array([r.d for r in rows])], axis=1) / se[:, None]
    covariance = np.linalg.inv(design.T @ design)
    gain = covariance @ design.T
    intercept, slope = gain @ (y / se)
    residual = y / se - design @ np.array([intercept, slope])
    leverage = np.einsum("ij,ji->i", design, gain)
    runs = np.array([max(r.repeats, 2) for r in rows])
    variance = float(np.sum(gain[0] ** 2 * (1 + 4 * (1 - leverage) / (runs - 1))))
    fitted = Estimate(float(intercept), math.sqrt(variance), "stderr")
    z = z_score(predicted, fitted, int(runs.min()))
    dof = len(y) - 2
    chi2 = float(residual @ residual) / dof if dof else math.nan
    return Extrapolation(name, predicted.value, fitted.value, fitted.error, z, chi2)

"""How far theory and training agree: z-scores metric by metric, and the extrapolation to infinite d."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from needlepoint.core.answers.comparison import Comparison, Extrapolation, Row
from needlepoint.core.answers.spectra import group_means
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Prediction, Result, mean_estimate
from needlepoint.core.specs import Spec

_MANY = 1000  # quantiles by which the limit law of the eigenvalues is represented when its group means are taken

ROUNDING = 1e-13
"""Numerical error given to every overlap and eigenvalue mean. They are of order one, and runs that stay at zero differ
from it by rounding, which must not count as a disagreement."""

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
        raise InvalidParameter(
            "compare(prediction, measurements): takes a Prediction and one or several Measurements, in this order."
        )
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

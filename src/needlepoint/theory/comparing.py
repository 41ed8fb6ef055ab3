"""The verb `compare`: prediction and measurements side by side, at the targets that were drawn where those matter."""

from __future__ import annotations

from collections.abc import Sequence

from needlepoint.core.answers.agreement import Realised, asked, side_by_side
from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.dispatch import rules
from needlepoint.core.progress import Shown, watched
from needlepoint.core.results import Measurement, Prediction, Progress
from needlepoint.numerics.precision import float64
from needlepoint.theory.predicting import load_rules


@float64
def compare(
    prediction: Prediction, measurements: Measurement | Sequence[Measurement], *, progress: Shown = None
) -> Comparison:
    """Rows of predicted against measured for every metric and overlap that both have with an error.

    Where the theory is a limit, a z-score at one d mostly measures the finite size; from three sizes on
    `z_extrapolated` compares the prediction with a fit in 1/d. On the attention-indexed model every repeat draws its
    own target: it is compared with what is predicted for that one, which takes a while. `progress` is as in `predict`.

    >>> task, bayes = ndl.SpikedSLR(2, snr=2.0), ndl.BayesOptimal()
    >>> prediction = ndl.predict(task, None, bayes)
    >>> found = ndl.compare(prediction, ndl.simulate(task, None, bayes, d=20, repeats=16, samples=500))
    >>> all(abs(row.z) < 5 for row in found.rows)
    True
    """
    prediction, found = asked(prediction, measurements)
    with watched("compare", progress) as update:
        realised: list[Realised | None] = []
        for i, m in enumerate(found):
            realised.append(_realised(prediction, m, lambda done, i=i: update((i + done) / len(found))))
    return side_by_side(prediction, found, realised)


def _realised(prediction: Prediction, measurement: Measurement, progress: Progress) -> Realised | None:
    """Predictions for the targets that were drawn, where a rule says how."""
    if measurement.spectrum is None or not measurement.values:
        return None
    load_rules(prediction.task, prediction.learner)
    task, model, learner = prediction.resolved or (prediction.task, prediction.model, prediction.learner)
    rule = rules().get(("realise", type(task), type(model), type(learner)))
    return None if rule is None else rule(task, model, learner, prediction, measurement, progress)

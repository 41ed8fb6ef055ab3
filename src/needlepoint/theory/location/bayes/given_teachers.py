"""The Bayes risk of single-location regression when the teachers are known."""

from __future__ import annotations

import math

from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction
from needlepoint.core.routes import route, the
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.bayes import spiked_teachers
from needlepoint.theory.location.bayes.accuracy import ACCURACY
from needlepoint.theory.location.moments import place_race

SMALLEST = 1e-30
"""Below this bound the Bayes excess risk is not integrated; the bound itself is reported."""


def predict_known(task: SingleLocation, model: None, learner: BayesOptimal, options: PredictionOptions) -> Prediction:
    """Return the risk of the posterior mean of the label with known k*, v*: sum of v* . X_l times P(J = l | X)."""
    limit = learner.d is None and task.label_var != 1.0
    if limit:
        excess = Estimate(0.0)
        notes = ("limit d -> infinity, where a token's norm tells the relevant one; give d= for a finite d.",)
    else:
        # at relevant_std = 1 the norm of a token says nothing about the place, and d drops out
        excess, notes = known_teachers(task, learner.d or 2)
    loose = options.tol is not None and excess.error > options.tol
    return Prediction(
        task,
        model,
        learner,
        {"risk": excess + task.noise_var, "excess_risk": excess},
        status=Status.NOISE_LIMITED if loose else Status.CONVERGED,
        exact=not limit,
        notes=notes,
        seed=options.seed,
    )


def known_teachers(task: SingleLocation, d: int) -> tuple[Estimate, tuple[str, ...]]:
    """Return the Bayes excess risk at dimension d, and notes about it."""
    return the("Bayes risk", task=task)(task, d)


@route("Bayes risk", name="tilted", task=MaxSLR)
def _of_max(task: MaxSLR, d: int) -> tuple[Estimate, tuple[str, ...]]:
    value, coarse = (
        sum(p * place_race.bayes_excess_risk(task.snr, n, step) for n, p in task.length_law) for step in (0.05, 0.1)
    )
    return Estimate(
        value, abs(value - coarse) + ACCURACY.given_teachers_rounding * value + place_race.TAIL * task.longest
    ), ()


@route("Bayes risk", name="shifted", task=SpikedSLR)
def _at_dimension(task: SpikedSLR, d: int) -> tuple[Estimate, tuple[str, ...]]:
    """Return the same for the spiked task, by integration; a bound if the risk is too small or its table too large."""
    lengths = [(n, p) for n, p in task.length_law if n > 1]
    bound = sum(p * bayes_bound(task, n, d) for n, p in lengths)
    if bound >= SMALLEST:
        parts = [(p, spiked_teachers.bayes_excess_risk(task, n, d)) for n, p in lengths]
        if all(e.finite for _, e in parts):
            return Estimate(sum(p * e.value for p, e in parts), sum(p * e.error for p, e in parts)), ()
    note = f"the Bayes excess risk lies between 0 and {bound:.3g}; the value given is this bound."
    return Estimate(bound, bound), (note,) if lengths else ()


def bayes_bound(task: SpikedSLR, length: int, d: int) -> float:
    r"""eq:bayes-bound. Return a bound on the Bayes excess risk at one length; eq:linear-risk if that is lower.

    $R \le (L-1)\frac{G}{1+G}\big(\frac{2\gamma}{1+G}\big)^d e^{-snr/(2(1+G))}$.

    From $x/(1+x) \le \sqrt x/2$ on each pair of tokens; the last two factors are the squared Bhattacharyya
    coefficient of the two token laws.
    """
    G = task.relevant_std**2
    log_bc2 = d * math.log(2 * task.relevant_std / (1 + G)) - task.snr / (2 * (1 + G))
    linear = G * (length - 1) / (length - 1 + G)  # eq:linear-risk
    return min(linear, (length - 1) * G / (1 + G) * math.exp(max(log_bc2, -740.0)))

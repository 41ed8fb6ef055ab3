"""The best a model can do at infinite data, on the invariant manifold or over all overlaps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needlepoint.channels.branches import NEAR
from needlepoint.core.dispatch import check_part, rule
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Prediction
from needlepoint.core.routes import GENERIC, route, routes, the
from needlepoint.core.status import Status
from needlepoint.learners import Population
from needlepoint.models.activations import Erf, Linear, Softmax
from needlepoint.models.attention import KeyValueAttention, LinearRegression
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.bayes import given_teachers
from needlepoint.theory.location.erf.on_spheres import best_on_sphere
from needlepoint.theory.location.population import risk as population_risk
from needlepoint.theory.location.population.best_key import Best, best_on_manifold
from needlepoint.theory.location.population.off_manifold import best_of_all
from needlepoint.theory.location.population.risk_at_a_key import FINAL, Question
from needlepoint.theory.location.population.statements import linear_optimum, softmax_key

TOLERANCE = 1e-8


@rule("predict", SpikedSLR, LinearRegression, Population)
@rule("predict", MaxSLR, LinearRegression, Population)
def predict_linear(
    task: SingleLocation, model: LinearRegression, learner: Population, options: PredictionOptions
) -> Prediction:
    r"""eq:linear-risk. Return the best linear regression, $\beta_l = \frac{G}{L-1+G}v^*$, $R = G\frac{L-1}{L-1+G}$.

    Its weights are fixed by position, so it cannot select a place that is random.
    """
    length = task.fixed_length
    if length is None:
        raise InvalidParameter(
            f"{task!r}: LinearRegression needs a fixed length (it has one weight vector a position); "
            "give tokens as a whole number."
        )
    G = task.label_var
    value = G * (length - 1) / (length - 1 + G)
    return _prediction(task, model, learner, options, Estimate(value, 4 * np.finfo(float).eps * value))


@rule("predict", SpikedSLR, KeyValueAttention, Population)
@rule("predict", MaxSLR, KeyValueAttention, Population)
def predict_population(
    task: SingleLocation, model: KeyValueAttention, learner: Population, options: PredictionOptions
) -> Prediction:
    """Return the minimum of the risk over key, value and the free constants of the activation."""
    if getattr(model.activation, "scale", 1.0) is None and not model.unit_norm:
        raise InvalidParameter(
            f"{model!r}: scale=None needs unit_norm=True (with free norms the key's norm is the scale); "
            "give scale=1.0 or unit_norm=True."
        )
    return the("optimum", task=task, model=model, within=learner.within)(task, model, learner, options)


route("optimum", name="spheres", task=SpikedSLR, activation=Erf, when=lambda model: model.unit_norm)(best_on_sphere)


@route(
    "optimum",
    name="linear",
    activation=Linear,
    when=lambda model, within: not model.unit_norm and within == "manifold",
)
def _linear(
    task: SingleLocation, model: KeyValueAttention, learner: Population, options: PredictionOptions
) -> Prediction:
    excess, overlaps = linear_optimum(task)
    return _at(task, model, learner, options, overlaps, excess)


@route("optimum", name="search", cost=GENERIC)
def _search(
    task: SingleLocation, model: KeyValueAttention, learner: Population, options: PredictionOptions
) -> Prediction:
    question = Question(task, model)
    everywhere, tol = learner.within == "all", options.tol or TOLERANCE
    best = best_on_manifold(question, tol, lambda done: options.progress(done * (0.3 if everywhere else 1.0)))
    if everywhere:
        best = best_of_all(question, best, tol, options.seed, lambda done: options.progress(0.3 + 0.7 * done))
    return searched(task, model, learner, options, best)


@route(
    "optimum",
    name="posterior mean",
    activation=Softmax,
    when=lambda task, model: not model.unit_norm and task.label_var == 1.0,
)
def _softmax(
    task: SingleLocation, model: KeyValueAttention, learner: Population, options: PredictionOptions
) -> Prediction:
    """eq:softmax-bayes. Return the Bayes risk, which softmax attention reaches: no overlaps can give less."""
    excess, notes = given_teachers.known_teachers(task, 2)
    key = softmax_key(task)
    if math.isinf(key) and task.longest == 1:
        key = 0.0  # a token that is alone has weight 1 for every key
    if math.isinf(key):
        return _prediction(
            task,
            model,
            learner,
            options,
            excess,
            status=Status.UNBOUNDED,
            notes=("the Bayes risk, approached as the norm of the key goes to infinity.",),
        )
    return _at(task, model, learner, options, Overlaps(key, 1.0, key_sq=key**2), excess, notes=notes)


def searched(
    task: SingleLocation, model: KeyValueAttention, learner: Population, options: PredictionOptions, best: Best
) -> Prediction:
    """Return the prediction from a search; where its means were sampled, the risk is estimated anew on fresh points."""
    resolved = model.replace(activation=model.activation.replace(**best.constants)) if best.constants else model
    status, excess = best.status, best.excess
    if Question(task, model).sampled and excess.finite:
        fresh = population_risk.qmc(task, resolved, best.overlaps, seed=options.seed + 1)
        excess = Estimate(fresh.value, fresh.error + best.value_error)
        if options.tol is not None and status is Status.CONVERGED and excess.error > options.tol:
            status = Status.NOISE_LIMITED
    more = {"status": status, "notes": (best.note,) if best.note else (), "residual": best.residual}
    return _at(task, model, learner, options, best.overlaps, excess, resolved, **more)


def _at(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: Population,
    options: PredictionOptions,
    overlaps: Overlaps,
    excess: Estimate,
    resolved: KeyValueAttention | None = None,
    **more: Any,
) -> Prediction:
    resolved = resolved or model
    return _prediction(
        task,
        model,
        learner,
        options,
        excess,
        overlaps=overlaps,
        branch=_branch(overlaps),
        resolved=(task, resolved, learner),
        **more,
    )


def _branch(overlaps: Overlaps) -> str:
    """Return where k and v point: "oracle" (k along k*, v along v*), "swapped" (k along v*, v along k*) or "other"."""
    norms = math.sqrt(overlaps.key_sq), math.sqrt(overlaps.value_sq)
    k, v = (n if n > 0 else 1.0 for n in norms)
    if min(abs(overlaps.key) / k, abs(overlaps.value) / v) > 1 - NEAR:
        return "oracle"
    swapped = min(abs(overlaps.key_on_value) / k, abs(overlaps.value_on_key) / v) > 1 - NEAR
    return "swapped" if swapped else "other"


def _prediction(
    task: SingleLocation, model: Any, learner: Population, options: PredictionOptions, excess: Estimate, **more: Any
) -> Prediction:
    more.setdefault("resolved", (task, model, learner))
    return Prediction(
        task,
        model,
        learner,
        {"risk": excess + task.noise_var, "excess_risk": excess},
        exact=True,
        seed=options.seed,
        **more,
    )


@float64
def key_landscape(task: SingleLocation, model: KeyValueAttention, alignment: Array, scale: Array) -> np.ndarray:
    """Return the excess risk with the best value, over keys of norm `scale` and cosine `alignment` with k*, as an array
    (scales, alignments).

    >>> model = ndl.KeyValueAttention(ndl.Linear())
    >>> ndl.key_landscape(ndl.SpikedSLR(2, snr=2.0), model, [0.0, 1.0], [0.5, 1.0, 2.0]).shape
    (3, 2)
    """
    check_part("key_landscape", "task", task)
    check_part("key_landscape", "model", model)
    alignment, scale = np.atleast_1d(np.asarray(alignment, float)), np.atleast_1d(np.asarray(scale, float))
    if not np.all(np.abs(alignment) <= 1) or not np.all((scale >= 0) & np.isfinite(scale)):
        raise InvalidParameter("key_landscape: alignment must be from -1 to 1 and scale >= 0 and finite.")
    described = routes("sampled means", task=task) and isinstance(model, KeyValueAttention)
    if not described or model.free_constants():
        raise InvalidParameter(
            f"key_landscape({task!r}, {model!r}): give SpikedSLR or MaxSLR and attention without free constants."
        )
    question = Question(task, model)
    rows = [
        [question.least(question.value_form({}, float(s * a), float(s * s), FINAL))[0] for a in alignment]
        for s in scale
    ]
    return np.array(rows)

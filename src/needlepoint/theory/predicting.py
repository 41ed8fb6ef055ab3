"""The verb `predict`: find the rule, run it in float64, refuse to hide a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from needlepoint.core.dispatch import check_ansatz, check_question, check_tolerance, find, load
from needlepoint.core.errors import NotConverged
from needlepoint.core.options import REPLICA_SYMMETRIC, PredictionOptions
from needlepoint.core.progress import Shown, watched
from needlepoint.core.results import Prediction
from needlepoint.core.specs import Spec
from needlepoint.numerics.precision import float64

Rule = Callable[..., Prediction]


@float64
def predict(
    task: Spec,
    model: Spec | None,
    learner: Spec,
    *,
    seed: int = 0,
    tol: float | None = None,
    throw: bool = True,
    progress: Shown = None,
    method: str | None = None,
    ansatz: str = REPLICA_SYMMETRIC,
) -> Prediction:
    """The answer of the theory; `model` may be None for BayesOptimal.

    Raises NotConverged, with the prediction in `.result`, when its equations are not solved; with throw=False it is
    returned whatever its status. UNSTABLE is returned, with a note: solved, but not to be trusted. So is UNBOUNDED
    where the infimum is known. `seed` enters where the learner or the integration is random. What takes over two
    seconds shows its progress where a person is watching; `progress=False` silences it, True shows it everywhere.
    `method` names the theory where there are several, "location" or "fields" (the rules that serve every SequenceTask);
    None takes the most specific. For `Ridge` with many minima, `ansatz="1rsb"` takes one step of replica symmetry
    breaking to the lowest of them, which costs seconds to minutes; "rs", the default, is replica symmetry.

    >>> found = ndl.predict(ndl.SpikedSLR(2, snr=2.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Population())
    >>> f"{found.excess_risk.value:.6f}", found.ok
    ('0.224800', True)
    """
    check_question("predict", task, model, learner, seed)
    check_tolerance("predict", tol)
    load_rules(task, learner)
    check_ansatz("predict", ansatz)
    rule = find("predict", task, model, learner, load_rules, method)
    with watched("predict", progress) as update:
        if ansatz == REPLICA_SYMMETRIC:
            prediction = rule(task, model, learner, PredictionOptions(seed, tol, update))
        else:
            prediction = _broken(rule, (task, model, learner), PredictionOptions(seed, tol, update))
        update(1.0)
    if throw and not (prediction.status.finished or prediction.ok):
        notes = " ".join(prediction.notes)
        raise NotConverged(f"{prediction.status.name}: {prediction.status.sentence} {notes}".strip(), prediction)
    return prediction


def _broken(rule: Rule, question: tuple[Spec, Spec | None, Spec], options: PredictionOptions) -> Prediction:
    """Return the answer with one step of replica symmetry breaking, which begins at the replica-symmetric one."""
    import_module("needlepoint.theory.fields.states.prediction")
    ground = find("predict_1rsb", *question)
    # the replica-symmetric answer only says where to begin, so that its own tolerance will do
    known = rule(*question, replace(options, tol=None, progress=lambda done: options.progress(0.1 * done)))
    return ground(question[0], question[1], known, options)


RULES = {
    "location.population.optimum": ("SpikedSLR", "MaxSLR", "Population"),
    "location.bayes.samples": ("SpikedSLR", "MaxSLR", "BayesOptimal"),
    "location.ridge.prediction": ("SpikedSLR", "MaxSLR", "Ridge"),
    "location.dynamics.descent": ("SpikedSLR", "ProjectedDescent"),
    "location.dynamics.sgd_on_spheres": ("SpikedSLR", "OnlineSGD"),
    "location.dynamics.flow": ("SpikedSLR", "MaxSLR", "GradientFlow", "OnlineSGD"),
    "fields.ridge.prediction": ("SequenceTask", "Ridge"),
    "fields.states.prediction": ("SequenceTask", "Ridge"),
    "fields.optimum": ("SequenceTask", "Population"),
    "fields.bayes": ("SequenceTask", "BayesOptimal"),
    "fields.flow": ("SequenceTask", "GradientFlow", "OnlineSGD"),
    "indexed.prediction": ("AttentionIndexed", "Ridge"),
    "indexed.bayes": ("AttentionIndexed", "BayesOptimal"),
}
"""Modules of `needlepoint.theory` that register what `predict` can answer, and for which tasks and learners."""


def load_rules(task: Spec | None = None, learner: Spec | None = None) -> None:
    """Fill the dispatch table, or only its part for this task and this learner."""
    load("needlepoint.theory", RULES, task, learner)

"""The function `simulate`: check the request, find its rule, run it in float64."""

from __future__ import annotations

from needlepoint.core.dispatch import check_question, check_untraced, find, load
from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.kinds import is_whole
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import FieldOverlaps, Overlaps
from needlepoint.core.progress import Shown, watched
from needlepoint.core.results import Measurement
from needlepoint.core.specs import Spec
from needlepoint.numerics.precision import float64


@float64
def simulate(
    task: Spec,
    model: Spec | None,
    learner: Spec,
    *,
    d: int,
    repeats: int,
    seed: int = 0,
    overlaps: Overlaps | FieldOverlaps | None = None,
    samples: int = 20_000,
    starts: int = 1,
    progress: Shown = None,
) -> Measurement:
    """Return the answer measured by sampling and training with d-dimensional vectors, `repeats` times.

    Takes resolved specs only: constants that the library chooses are in `predict(...).resolved`. For Population(),
    `overlaps` says at which weights to measure. `samples` is the number of test sequences per repeat (for GradientFlow:
    of training sequences per length). Descent from given starts runs each start `repeats` times, in fresh coordinates.
    For Ridge, `starts` is the number of random weights from which the minimum is sought, beside the teachers unless the
    learner says otherwise; the lowest minimum is measured, and what the starts found is among the metrics. `progress`
    is as in `predict`.

    >>> found = ndl.simulate(ndl.SpikedSLR(2, snr=2.0), None, ndl.BayesOptimal(), d=20, repeats=4, samples=500)
    >>> found.status.name, found.repeats
    ('CONVERGED', 4)
    """
    check_untraced("simulate")
    for name, value, lowest in (("d", d, 2), ("repeats", repeats, 1), ("samples", samples, 1), ("starts", starts, 1)):
        if not is_whole(value) or value < lowest:
            raise InvalidParameter(f"simulate({name}={shown(value)}): {name} must be a whole number >= {lowest}.")
    check_question("simulate", task, model, learner, seed)
    if overlaps is not None and not isinstance(overlaps, (Overlaps, FieldOverlaps)):
        raise InvalidParameter(
            f"simulate(overlaps={shown(overlaps)}): write it as Overlaps(key=..., value=...), or for other columns as "
            "FieldOverlaps({name: number})."
        )
    if overlaps is not None and type(learner).__name__ != "Population":
        raise InvalidParameter(f"simulate(overlaps=...): {type(learner).__name__} chooses its weights; leave it out.")
    if starts > 1 and type(learner).__name__ != "Ridge":
        raise InvalidParameter(
            f"simulate(starts={starts}): {type(learner).__name__} seeks no minimum of a training objective, as Ridge "
            "does; leave it out."
        )
    wanted = getattr(learner, "d", None)
    if wanted is not None and wanted != d:
        raise InvalidParameter(f"simulate(d={d}): {type(learner).__name__} says d={wanted}; the two must agree.")
    free = getattr(model, "free_constants", list)()
    if free:
        raise InvalidParameter(
            f"{model!r}: {free[0]} is None; simulate takes resolved specs: use predict(...).resolved."
        )
    load_rules(task, learner)
    rule = find("simulate", task, model, learner, load_rules)
    with watched(f"simulate d={int(d)}", progress) as update:
        options = SimulationOptions(int(d), int(repeats), seed, overlaps, int(samples), update, int(starts))
        measurement = rule(task, model, learner, options)
        update(1.0)
    return measurement


RULES = {
    "location.risks": ("SpikedSLR", "MaxSLR", "Population"),
    "location.bayes_amp": ("SpikedSLR", "MaxSLR", "BayesOptimal"),
    "location.ridge": ("SpikedSLR", "MaxSLR", "Ridge"),
    "location.descent": ("SpikedSLR", "ProjectedDescent"),
    "location.sgd_on_spheres": ("SpikedSLR", "OnlineSGD"),
    "location.free_norms": ("SpikedSLR", "MaxSLR", "GradientFlow", "OnlineSGD"),
    "fields.training": ("SequenceTask", "Ridge"),
    "fields.risks": ("SequenceTask", "Population"),
    "fields.bayes": ("SequenceTask", "BayesOptimal"),
    "fields.dynamics": ("SequenceTask", "GradientFlow", "OnlineSGD"),
    "indexed.training": ("AttentionIndexed", "Ridge"),
    "indexed.bayes": ("AttentionIndexed", "BayesOptimal"),
}
"""Modules of `needlepoint.simulation` that register what `simulate` can do, and for which tasks and learners."""


def load_rules(task: Spec | None = None, learner: Spec | None = None) -> None:
    """Fill the dispatch table, or only its part for this task and this learner."""
    load("needlepoint.simulation", RULES, task, learner)

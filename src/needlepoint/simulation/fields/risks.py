"""Risks of models that say their fields, at given overlaps, by Monte Carlo with d-dimensional sequences."""

from __future__ import annotations

import jax
import numpy as np

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.options import SimulationOptions
from needlepoint.core.results import Measurement, mean_estimate
from needlepoint.core.status import Status
from needlepoint.learners import Population
from needlepoint.losses import Square
from needlepoint.models.fields import FieldModel
from needlepoint.simulation.fields.fresh import fresh_metrics
from needlepoint.simulation.fields.problem import check_dimension, check_shapes, check_size, draw_data
from needlepoint.simulation.fields.vectors import with_overlaps
from needlepoint.tasks.sequence import SequenceTask


@rule("simulate", SequenceTask, FieldModel, Population)
def simulate_risk(
    task: SequenceTask, model: FieldModel, learner: Population, options: SimulationOptions
) -> Measurement:
    """Return the risk at given overlaps, with fresh vectors of these overlaps in every repeat."""
    overlaps, loss = options.overlaps, getattr(learner, "loss", Square())
    if overlaps is None:
        raise InvalidParameter(
            "simulate(..., Population()): overlaps= is needed, the weights to measure at "
            "(predict(...).overlaps are the best ones)."
        )
    check_size(task, 1, options.d)
    check_dimension(task, options.d)
    rng = np.random.default_rng([options.seed, 8])
    vectors = with_overlaps(rng, task, model, overlaps, options.repeats, options.d)
    first = draw_data(task, task.longest, 1, jax.random.key(options.seed), vectors.teachers[0])
    check_shapes(task, model, first)
    loss.check_labels(task, first.y)
    found = []
    for repeat, (teachers, weights) in enumerate(zip(*vectors, strict=True)):
        key = jax.random.fold_in(jax.random.key(options.seed), repeat)
        found.append(fresh_metrics(task, model, loss, teachers, weights, key, options.samples))
        options.progress((repeat + 1) / options.repeats)
    metrics = {name: mean_estimate(np.array([one[name] for one in found])) for name in found[0]}
    return Measurement(
        task,
        model,
        learner,
        metrics,
        status=Status.CONVERGED if np.isfinite(metrics["risk"].value) else Status.DIVERGED,
        overlaps=overlaps,
        d=options.d,
        repeats=options.repeats,
        seed=options.seed,
    )

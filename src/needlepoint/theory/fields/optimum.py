"""The model's best at infinite data, for any field law and output: least risk over all overlaps."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import as_overlaps, flat_overlaps, result_names
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import Population
from needlepoint.losses import Square
from needlepoint.models.fields import FieldModel, informed
from needlepoint.numerics.arrays import Array
from needlepoint.tasks.sequence import SequenceTask, noise_var_of
from needlepoint.theory.fields.declared import check_declarations
from needlepoint.theory.fields.law import Kind, Numbers, with_roots
from needlepoint.theory.fields.population import risks
from needlepoint.theory.fields.rates import Pull
from needlepoint.theory.fields.symmetry import patterns

_SEARCHED = 13  # log2 of the points on which the optimum is sought
_SCRAMBLES = 4  # whose optima are compared
_STARTS = 6  # random starts beside the informed one
_FAR = 1e3  # a norm beyond this is on its way to infinity


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_slopes(kind: Kind, numbers: Numbers, M: Array, F: Array, base: Array) -> Any:
    """Return the mean loss at overlaps M and Q = M M^T + F F^T, and its derivatives by M and F."""

    def mean(M: Array, F: Array) -> Array:
        seq = with_roots(kind, numbers, M, jnp.broadcast_to(F, (kind.tokens, *F.shape)), base)
        _, model, loss = kind.bound(numbers)
        cost = jax.vmap(lambda y, f: loss.cost(y, model.outputs(f)), -1)(seq.y, seq.columns)
        return jnp.mean(seq.weight * cost)

    return jax.value_and_grad(mean, argnums=(0, 1))(M, F)


@rule("predict", SequenceTask, FieldModel, Population)
def predict_optimum(
    task: SequenceTask, model: FieldModel, learner: Population, options: PredictionOptions
) -> Prediction:
    """eq:field-optimum. Return the least risk over all overlaps, found by L-BFGS from several starts on fixed points,
    and estimated anew on others.

    The error includes how much the optima of different points differ in risk. `within` changes nothing here.
    """
    if getattr(model, "unit_norm", False):
        raise NoTheory(f"no rule for Population with {model!r}; unit_norm=False has one.")
    free = getattr(model, "free_constants", list)()
    if free:
        raise NoTheory(f"{model!r}: {free[0]} is None; for {type(task).__name__} give its value.")
    loss = Square()
    check_declarations(task, model, loss)
    pull = Pull(task, model, loss, options.seed, _SEARCHED, _SCRAMBLES)
    rng = np.random.default_rng([options.seed, 22])
    best = _least(pull, 0, _starts(task, model, rng))
    options.progress(0.4)
    every = [best, *(_least(pull, i, [best[1]]) for i in range(1, _SCRAMBLES))]
    options.progress(0.7)
    P, S = len(model.labels), len(task.teachers)
    matrices = [_matrices(x, P, S) for _, x in every]
    found = [risks(task, model, loss, M, Q, seed=options.seed + 1).risk for M, Q in matrices]
    lowest = int(np.argmin([f.value for f in found]))
    spread = max(f.value for f in found) - found[lowest].value
    risk = Estimate(found[lowest].value, found[lowest].error + spread)
    M, Q = matrices[lowest]
    pattern = patterns(task, model)[0]
    M, Q, _ = pattern.fixed((M, Q, np.eye(P)))  # pyright: ignore[reportArgumentType]  # the signs need no V
    far = float(np.max(np.diagonal(Q))) > _FAR**2
    noise = noise_var_of(task)
    metrics = {"risk": risk}
    if noise is not None:
        metrics["excess_risk"] = risk - noise
    names = result_names(model.labels, task.teachers)
    scatter = [3 * float(np.std(x, ddof=1)) for x in zip(*(flat_overlaps(*m) for m in matrices), strict=True)]
    status = Status.CONVERGED if options.tol is None or risk.error <= options.tol else Status.NOISE_LIMITED
    return Prediction(
        task,
        model,
        learner,
        metrics,
        status=Status.UNBOUNDED if far else status,
        overlaps=as_overlaps(dict(zip(names, flat_overlaps(M, Q), strict=True))),
        overlaps_error=dict(zip(names, scatter, strict=True)),
        notes=("the risk still falls as a norm grows beyond 1000.",) if far else (),
        resolved=(task, model, learner),
        exact=True,
        seed=options.seed,
    )


def _matrices(x: np.ndarray, P: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    M, F = x[: P * S].reshape(P, S), x[P * S :].reshape(P, P)
    return M, M @ M.T + F @ F.T


def _starts(task: SequenceTask, model: FieldModel, rng: np.random.Generator) -> list[np.ndarray]:
    M = informed(task, model)
    P, S = M.shape
    small = 0.1 * np.eye(P)
    random = [(rng.standard_normal((P, S)), 0.3 * rng.standard_normal((P, P))) for _ in range(_STARTS)]
    return [np.concatenate([a.ravel(), b.ravel()]) for a, b in ((M, small), (2 * M, small), *random)]


def _least(pull: Pull, scrambling: int, starts: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the least mean loss on these points from these starts, and where it is."""
    part = pull.parts[0]
    P, S = part.kind.columns, len(part.kind.seen[0])

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        M, F = x[: P * S].reshape(P, S), x[P * S :].reshape(P, P)
        total, slope = 0.0, np.zeros_like(x)
        for (probability, kind, numbers), base in zip(pull.parts, pull.normals, strict=True):
            loss, slopes = _loss_and_slopes(kind, numbers, M, F, base[scrambling])
            total += probability * float(loss)
            slope += probability * np.concatenate([np.ravel(np.asarray(s)) for s in slopes])
        return total, slope

    ends = [optimize.minimize(value, x, jac=True, method="L-BFGS-B", options={"maxiter": 500}) for x in starts]
    best = min(ends, key=lambda end: float(end.fun) if np.isfinite(end.fun) else np.inf)
    return float(best.fun), np.asarray(best.x)

"""The population risk at given overlaps, by one of several routes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.dispatch import check_part, check_untraced
from needlepoint.core.errors import InvalidParameter, NoTheory, UnknownName, shown
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import FieldOverlaps, Overlaps, as_matrices, flat_overlaps, result_names
from needlepoint.core.routes import GENERIC, ONE_DIMENSION, SAMPLED, TABLES, route, routes, the
from needlepoint.core.specs import Spec
from needlepoint.losses import Square
from needlepoint.models.activations import Activation, Erf, KernelActivation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.models.fields import FieldModel
from needlepoint.numerics.precision import float64
from needlepoint.tasks.sequence import SequenceTask, noise_var_of
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.fields.declared import check_declarations
from needlepoint.theory.fields.population import risks
from needlepoint.theory.location.erf import closed_form as erf_closed_form
from needlepoint.theory.location.moments import kernels as kernels  # its routes
from needlepoint.theory.location.moments import sampled as sampled_moments
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.moments.elementwise import elementwise_means
from needlepoint.theory.location.moments.place_race import winner_law
from needlepoint.theory.location.moments.weight_moments import Moments
from needlepoint.theory.location.population.accuracy import ACCURACY


@float64
def population_risk(task: Spec, model: Spec, overlaps: Overlaps | FieldOverlaps, method: str | None = None) -> Estimate:
    """Return the expected squared error on noisy labels at these overlaps: excess risk plus noise^2.

    `method` names a route: "closed" (Erf), "elementwise" (one-dimensional means), "kernel" (softmax and
    softplus at any length), "qmc" (scrambled Sobol points over the scores, any activation) or "fields" (over all
    fields: any SequenceTask and FieldModel); None takes the first that applies.

    >>> model = ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> f"{ndl.population_risk(ndl.SpikedSLR(10, snr=200.0), model, ndl.Overlaps(1.0, 1.0)).value:.6f}"
    '0.877429'
    """
    excess = excess_risk(task, model, overlaps, method)
    return excess + (noise_var_of(cast("SequenceTask", task)) or 0.0)


@float64
def excess_risk(task: Spec, model: Spec, overlaps: Overlaps | FieldOverlaps, method: str | None = None) -> Estimate:
    """Return the risk minus the label-noise variance, at these overlaps; see `population_risk`.

    >>> model = ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> f"{ndl.excess_risk(ndl.SpikedSLR(10, snr=200.0), model, ndl.Overlaps(1.0, 1.0)).value:.6f}"
    '0.877429'
    """
    check_untraced("population_risk")
    check_part("population_risk", "task", task)
    check_part("population_risk", "model", model)
    if not isinstance(overlaps, Overlaps | FieldOverlaps):
        raise InvalidParameter(
            f"population_risk(overlaps={shown(overlaps)}): write it as Overlaps(key=..., value=...)."
        )
    available = {one.name: one.function for one in routes("excess risk", task=task, model=model)}
    if not available:
        raise NoTheory(
            f"no population risk for ({type(task).__name__}, {type(model).__name__}); "
            "the nearest are (SpikedSLR, KeyValueAttention) and (MaxSLR, KeyValueAttention)."
        )
    known = len(available) > 1  # routes for this task and model alone
    if method is not None and method not in available:
        what = getattr(model, "activation", task) if known else task
        raise UnknownName(f"method for {type(what).__name__}", method, available)
    asked: Callable[..., Any] = _asked if known else _declared
    return available[method or next(iter(available))](task, model, asked(task, model, overlaps))


def _declared(task: SequenceTask, model: FieldModel, overlaps: Overlaps | FieldOverlaps) -> Overlaps | FieldOverlaps:
    """Return the overlaps after a check of what the user's task and model declare."""
    check_declarations(task, model, Square())
    return overlaps


def _asked(task: SingleLocation, model: KeyValueAttention, overlaps: Overlaps | FieldOverlaps) -> Overlaps:
    """Return the seven overlaps, checked against the model."""
    if model.free_constants():
        name = model.free_constants()[0]
        raise InvalidParameter(
            f"{model.activation!r}: {name} is None; a risk at given overlaps needs its value "
            "(predict(..., Population()).resolved has the best one)."
        )
    if isinstance(overlaps, FieldOverlaps):
        M, Q = overlaps.matrices(model.labels, task.teachers)
        names = result_names(model.labels, task.teachers)
        overlaps = Overlaps(**dict(zip(names, flat_overlaps(M, Q), strict=True)))
    if model.unit_norm and not overlaps.unit:
        raise InvalidParameter(f"{overlaps!r}: key_sq and value_sq must be 1 for a model with unit_norm=True.")
    return overlaps


@route("excess risk", name="fields", cost=GENERIC, task=SequenceTask, model=FieldModel)
def by_fields(task: SequenceTask, model: FieldModel, overlaps: Overlaps | FieldOverlaps) -> Estimate:
    """Return the excess risk by the law of all fields, which serves every task and model."""
    M, Q = as_matrices(overlaps, model.labels, task.teachers)
    return risks(task, model, Square(), M, Q).risk - (noise_var_of(task) or 0.0)


def _seven(overlaps: Overlaps) -> tuple[Any, ...]:
    return tuple(jnp.asarray(value) for _, value in overlaps.items())


def _refined(values: Callable[[int], tuple[float, float]], levels: Sequence[int]) -> Estimate:
    """Return the value at the first level that agrees with the one before it up to rounding, its error.

    `values` maps a level to (value, rounding). Where no two levels agree (the integrand has a step or a kink), the last
    two may be close by chance. So the error is the largest of all changes, each halved with every level that follows,
    as the error of a step is.
    """
    value, error, exact = np.nan, np.inf, 0.0
    for level in levels:
        previous = value
        value, exact = values(level)
        change = abs(value - previous)
        if change <= exact:
            return Estimate(value, exact)
        error = change if np.isinf(error) or np.isnan(error) else max(change, error / 2)
    return Estimate(value, max(error, exact))


# --- element-wise activations ------------------------------------------------------------------

_closed_kernel = jax.jit(erf_closed_form.excess_risk)


@route("excess risk", task=SpikedSLR, model=KeyValueAttention, activation=Erf)
def _closed(task: SpikedSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    value = float(_closed_kernel(elementwise.constants(task, model), _seven(overlaps)))
    return Estimate(value, weight_moments.rounding_of_shifted(task, overlaps, value))


@functools.partial(jax.jit, static_argnums=(0, 3))
def _elementwise_kernel(activation: type[Activation], c: dict[str, Any], overlaps: Any, nodes: int) -> Any:
    return elementwise.excess_risk(lambda scores: activation.weights(scores, c), c, overlaps, nodes)


@route(
    "excess risk", name="elementwise", cost=ONE_DIMENSION, task=SpikedSLR, model=KeyValueAttention, form="elementwise"
)
def _elementwise(task: SpikedSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    c, o = elementwise.constants(task, model), _seven(overlaps)

    def at(nodes: int) -> tuple[float, float]:
        value = float(_elementwise_kernel(type(model.activation), c, o, nodes))
        return value, weight_moments.rounding_of_shifted(task, overlaps, value)

    return _refined(at, ACCURACY.nodes)


@route("excess risk", task=MaxSLR, model=KeyValueAttention, activation=Erf)
def _max_closed(task: MaxSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    return _by_winner(0, task, model, overlaps)


@route("excess risk", name="elementwise", cost=ONE_DIMENSION, task=MaxSLR, model=KeyValueAttention, form="elementwise")
def _max_elementwise(task: MaxSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    return _by_winner(ACCURACY.nodes[0], task, model, overlaps)


def _by_winner(nodes: int, task: MaxSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    """Return the risk of the max task; `nodes = 0` stands for the closed form of erf."""
    c = elementwise.constants(task, model)

    def at(refine: int) -> tuple[float, float]:
        rule = winner_law(task, refine)
        moments = elementwise_of(
            type(model.activation), MaxSLR, nodes * refine, rule, c, {}, overlaps.key, overlaps.key_sq
        )
        value = float(weight_moments.excess_risk(task, moments, overlaps))
        return value, weight_moments.rounding(task, overlaps, value, moments)

    return _refined(at, ACCURACY.refine)


elementwise_of = jax.jit(elementwise_means, static_argnums=(0, 1, 2))
elementwise_forms = jax.jit(
    lambda activation, task, nodes, winner, c, free, key, key_sq, label_var: jax.vmap(
        lambda f, k, q: weight_moments.on_manifold(
            label_var, elementwise_means(activation, task, nodes, winner, c, f, k, q)
        )
    )(free, key, key_sq),
    static_argnums=(0, 1, 2),
)
"""Returns (A, B) of eq:value-form, each (points,), at many keys and constants."""


# --- normalised kernels and the rest -----------------------------------------------------------


def kernel_of(
    task: SingleLocation,
    activation: type[KernelActivation],
    key: float,
    key_sq: float,
    coarseness: float = 1.0,
    rest: bool = True,
) -> Moments | None:
    """Return the means of a normalised kernel by its transforms; None where it is too steep for their tables."""

    def log_kernel(scores: np.ndarray) -> np.ndarray:
        return activation.log_kernel(scores, np)

    return the("means of kernels", task=task)(task, log_kernel, key, key_sq, coarseness, rest)


@route("excess risk", name="kernel", cost=TABLES, task=SpikedSLR, model=KeyValueAttention, activation=KernelActivation)
@route("excess risk", name="kernel", cost=TABLES, task=MaxSLR, model=KeyValueAttention, activation=KernelActivation)
def _kernel(task: SingleLocation, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    """Return the risk by tables, or by `qmc` if the kernel is too steep; the error is the change when steps double."""
    kernel: Any = type(model.activation)
    rest = overlaps.distance_to_manifold > 0
    fine, coarse = (kernel_of(task, kernel, overlaps.key, overlaps.key_sq, step, rest) for step in (1.0, 2.0))
    if fine is None or coarse is None:
        return qmc(task, model, overlaps)
    value, other = (float(weight_moments.excess_risk(task, m, overlaps)) for m in (fine, coarse))
    # powers of numbers near 1 lose digits in proportion to the length
    exact = 2 * weight_moments.rounding(task, overlaps, value, fine)
    exact += 4 * task.longest * float(np.finfo(float).eps) * (1 + abs(value))
    return Estimate(value, abs(value - other) + exact)


@route("excess risk", name="qmc", cost=SAMPLED, task=SpikedSLR, model=KeyValueAttention)
@route("excess risk", name="qmc", cost=SAMPLED, task=MaxSLR, model=KeyValueAttention)
def qmc(task: SingleLocation, model: KeyValueAttention, overlaps: Overlaps, seed: int = 0) -> Estimate:
    """Return the mean risk over independent scramblings of Sobol points; the error is three standard errors."""
    c = elementwise.constants(task, model)
    value, error, found = np.nan, np.inf, list[Moments]()
    for log2_points in range(ACCURACY.qmc_points[0], ACCURACY.qmc_points[1] + 1, 2):
        found = sampled_moments.scrambles(
            task, type(model.activation), c, overlaps.key, overlaps.key_sq, log2_points, ACCURACY.scrambles, seed
        )
        risks = [float(weight_moments.excess_risk(task, m, overlaps)) for m in found]
        value, error = float(np.mean(risks)), 3 * float(np.std(risks, ddof=1) / np.sqrt(ACCURACY.scrambles))
        if ACCURACY.unseen * abs(value) < error <= ACCURACY.qmc_rtol * abs(value) or overlaps.key_sq == 0:
            break
    if error <= ACCURACY.unseen * abs(value) and overlaps.key_sq > 0:
        # scramblings that agree this well may all have missed an event as rare as one in all the points taken
        error = 3 * (task.label_var + overlaps.value_sq) / (ACCURACY.scrambles * 2 ** ACCURACY.qmc_points[1])
    return Estimate(value, max(error, weight_moments.rounding(task, overlaps, value, found[0])))

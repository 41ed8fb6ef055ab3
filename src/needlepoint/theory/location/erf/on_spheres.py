"""The best erf attention on the unit spheres, on the invariant manifold or over all overlaps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.branches import classify
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import FIVE, ODD, Overlaps
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import Population
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.minimise import minimise
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.location.erf import closed_form as erf_closed_form
from needlepoint.theory.location.erf.accuracy import ACCURACY
from needlepoint.theory.location.moments.weight_moments import rounding_of_shifted


def best_on_sphere(
    task: SpikedSLR, model: KeyValueAttention, learner: Population, options: PredictionOptions
) -> Prediction:
    """Return the minimum of eq:erf-risk over unit vectors and the activation's free constants."""
    activation = model.activation
    free = tuple(model.free_constants())
    # in units of the label's variance, so that the tolerances mean the same at every relevant_std
    c, unit = erf_closed_form.constants(task, model), task.relevant_std**2

    def value_and_grad(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _value_and_grad(learner.within, free, c, x)
        return float(value) / unit, np.asarray(gradient) / unit

    best = minimise(value_and_grad, _starts(learner.within, free, task, options.seed), tol=options.tol or 1e-9)
    five, chosen = _unpack(learner.within, free, jnp.asarray(best.x))
    overlaps = _canonical_sign(np.asarray(five), activation)
    resolved = model.replace(activation=activation.replace(**{n: float(chosen[n]) for n in free}))
    status, notes, value = best.status, (), best.value * unit
    if "scale" in free:
        shrunk, least = best.x.copy(), best.x.copy()
        shrunk[free.index("scale")] -= math.log(10.0)
        least[free.index("scale")] = -math.inf
        if value_and_grad(shrunk)[0] <= best.value * (1 + 1e-14):
            status, notes = Status.UNBOUNDED, ("the infimum, approached as the scale goes to 0: constant weights.",)
            value = min(value, value_and_grad(least)[0] * unit)
    excess = Estimate(value, rounding_of_shifted(task, overlaps, value) + best.value_error * unit)
    return Prediction(
        task,
        model,
        learner,
        {"risk": excess + task.noise_var, "excess_risk": excess},
        status=status,
        notes=notes,
        overlaps=overlaps,
        branch=classify(task, resolved, overlaps.five()[:, None])[0],
        resolved=(task, resolved, learner),
        exact=True,
        residual=best.residual,
        seed=options.seed,
    )


def _unpack(within: str, free: tuple[str, ...], x: Any) -> tuple[Any, dict[str, Any]]:
    """Return the five overlaps and the free constants from unconstrained coordinates x.

    x starts with the constants. Within "all" follow k in R^3 and v in R^4 in the frame of eq:sgd-frame, which are
    normalised; within "manifold" two angles, whose cosines are kappa and nu.
    """
    n = len(free)
    constants = {name: jnp.exp(x[i]) if name == "scale" else x[i] for i, name in enumerate(free)}
    if within == "manifold":
        zero = jnp.zeros(())
        return jnp.stack([jnp.cos(x[n]), jnp.cos(x[n + 1]), zero, zero, zero]), constants
    k = x[n : n + 3] / jnp.linalg.norm(x[n : n + 3])
    v = x[n + 3 : n + 7] / jnp.linalg.norm(x[n + 3 : n + 7])
    return jnp.stack([k[0], v[1], v[0], k[1], k @ v[:3]]), constants


def _objective(within: str, free: tuple[str, ...], c: Mapping[str, Any], x: Any) -> Any:
    five, constants = _unpack(within, free, x)
    return erf_closed_form.unit_excess_risk({**c, **constants}, five)


_value_and_grad = jax.jit(jax.value_and_grad(_objective, argnums=3), static_argnums=(0, 1))


def _starts(within: str, free: tuple[str, ...], task: SpikedSLR, seed: int) -> np.ndarray:
    """Return starts (starts, coordinates of `_unpack`): random ones and, as candidates, oracle and swapped point."""
    rng = np.random.default_rng([seed, 1])
    # the search runs in the logarithm of the scale, around where erf saturates on the spike and around the
    # optimum of the bilinear regime, (sqrt(pi) / 2) G m / (G m^2 + L - 1)
    G, m = task.relevant_std**2, math.sqrt(task.snr)
    bilinear = G * max(m, 1e-150) / (G * task.snr + task.length_moments()["task.others"] + 1e-300)
    typical = np.log([1.0 / math.sqrt(1.0 + task.snr), min(max(bilinear, 1e-100), 1e20)])

    def constants(count: int) -> np.ndarray:
        columns = [
            np.resize(typical, count) + rng.normal(0.0, 1.5, count) if name == "scale" else rng.normal(0.0, 0.5, count)
            for name in free
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((count, 0))

    if within == "manifold":
        count = 12 if free else 6
        angles = rng.uniform(0.1, np.pi - 0.1, (count, 2))
        angles[: count // 2] = 0.0
        return np.concatenate([constants(count), angles], axis=1)
    vectors = rng.standard_normal((ACCURACY.random_starts, 7))
    oracle, swapped = [1, 0, 0, 0, 1, 0, 0], [0, 1, 0, 0.6, 0, 0, 0.8]
    vectors[0:8:2], vectors[1:8:2] = oracle, swapped
    return np.concatenate([constants(ACCURACY.random_starts), vectors], axis=1)


def _canonical_sign(five: np.ndarray, activation: Activation) -> Overlaps:
    """Return overlaps with a sign fixed: (k, v) -> (-k, -v) is a symmetry of a pure erf; the sum is made positive."""
    flip = -1.0 if activation.odd and five[:4].sum() < 0 else 1.0
    signs = [flip if name in ODD else 1.0 for name in FIVE]
    return Overlaps.from_five(np.clip(signs * five, -1.0, 1.0))

"""The population risk at given overlaps, by one of several routes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels import elementwise
from needlepoint.core.errors import InvalidParameter, NoTheory, UnknownName
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import Spec
from needlepoint.models.activations import Activation, Erf, KernelActivation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.gaussian import sobol_normals
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory import erf_location, kernel_risk

_SCRAMBLES = 16
_QMC_RTOL = 1e-4
_QMC_POINTS = (10, 14)  # log2 of the first and the last number of points a scramble
_QMC_CHUNK = 2**22  # normals held at once
_QMC_TOKENS = 21_201  # dimensions of the Sobol sequence
_NODES = (64, 4096)  # first and last number of trapezoid nodes

Route = Callable[[SpikedSLR, KeyValueAttention, Overlaps], Estimate]


def population_risk(task: Spec, model: Spec, overlaps: Overlaps, method: str | None = None) -> Estimate:
    """The expected squared error on noisy labels at these overlaps: excess risk plus noise^2.

    `method` names a route: "closed" (Erf), "elementwise" (one-dimensional means), "kernel" (softmax and
    softplus at any length) or "qmc" (scrambled Sobol points over the scores, any activation); None takes the
    first that applies.
    """
    excess = excess_risk(task, model, overlaps, method)
    assert isinstance(task, SpikedSLR)
    return excess + task.noise_var


@float64
def excess_risk(task: Spec, model: Spec, overlaps: Overlaps, method: str | None = None) -> Estimate:
    """The risk minus the label-noise variance, at these overlaps; see `population_risk`."""
    if not isinstance(overlaps, Overlaps):
        raise InvalidParameter(f"population_risk(overlaps={overlaps!r}): write it as Overlaps(key=..., value=...).")
    if not isinstance(task, SpikedSLR) or not isinstance(model, KeyValueAttention):
        raise NoTheory(
            f"no population risk for ({type(task).__name__}, {type(model).__name__}); "
            "the nearest is (SpikedSLR, KeyValueAttention)."
        )
    if model.free_constants():
        name = model.free_constants()[0]
        raise InvalidParameter(
            f"{model.activation!r}: {name} is None; a risk at given overlaps needs its value "
            "(predict(..., Population()).resolved has the best one)."
        )
    if model.unit_norm and not overlaps.unit:
        raise InvalidParameter(f"{overlaps!r}: key_sq and value_sq must be 1 for a model with unit_norm=True.")
    available = routes(model)
    if method is not None and method not in available:
        raise UnknownName(f"method for {type(model.activation).__name__}", method, available)
    return available[method or next(iter(available))](task, model, overlaps)


def routes(model: KeyValueAttention) -> dict[str, Route]:
    """The routes that apply, the preferred one first."""
    table: dict[str, Route] = {}
    if isinstance(model.activation, Erf):
        table["closed"] = _closed
    if model.activation.form == "elementwise":
        table["elementwise"] = _elementwise
    if isinstance(model.activation, KernelActivation):
        table["kernel"] = _kernel
    table["qmc"] = _qmc
    return table


def _seven(overlaps: Overlaps) -> tuple[Any, ...]:
    return tuple(jnp.asarray(value) for _, value in overlaps.items())


_closed_kernel = jax.jit(erf_location.excess_risk)


def _closed(task: SpikedSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    value = float(_closed_kernel(erf_location.constants(task, model), _seven(overlaps)))
    return Estimate(value, erf_location.rounding(task, overlaps, value))


@functools.partial(jax.jit, static_argnums=(0, 3))
def _elementwise_kernel(activation: type[Activation], c: dict[str, Any], overlaps: Any, nodes: int) -> Any:
    return elementwise.excess_risk(lambda scores: activation.weights(scores, c), c, overlaps, nodes)


def _elementwise(task: SpikedSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    """Double the nodes until two rules agree to rounding; the error is their difference."""
    c, o = erf_location.constants(task, model), _seven(overlaps)
    nodes, value, change = _NODES[0], np.nan, np.inf
    while nodes <= _NODES[1]:
        previous, value = value, float(_elementwise_kernel(type(model.activation), c, o, nodes))
        change = abs(value - previous)
        if change <= erf_location.rounding(task, overlaps, value):
            break
        nodes *= 2
    return Estimate(value, max(change, erf_location.rounding(task, overlaps, value)))


def _kernel(task: SpikedSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    """One-dimensional integrals at any length; quasi-Monte-Carlo where the kernel is too steep for their grid."""
    assert isinstance(model.activation, KernelActivation)
    found = kernel_risk.excess_risk(task, type(model.activation), overlaps)
    return found if found.finite else _qmc(task, model, overlaps)


@functools.partial(jax.jit, static_argnums=0)
def _qmc_kernel(activation: type[Activation], c: dict[str, Any], overlaps: Any, normals: Any) -> Any:
    r"""eq:field-risk. The value fields integrated out given the scores $\chi$, the relevant token first:
    $(\mu^*_1 - \sigma\cdot\mu)^2 + \gamma^2(K_{11} - 2K_{12}\sigma_1) + K_{22}\sum_l s_l^2\sigma_l^2$.
    """
    kappa, nu, theta, eta, rho, key_sq, value_sq = overlaps
    m, gamma = jnp.sqrt(c["task.snr"]), c["task.relevant_std"]
    norm = jnp.sqrt(jnp.where(key_sq > 0, key_sq, 1.0))  # of the quotients, which are 0 / 0 at k = 0
    spread = jnp.where(key_sq > 0, norm, 0.0)
    first = jnp.arange(normals.shape[-1]) == 0
    s = jnp.where(first, gamma, 1.0)
    xi = s * normals
    weights = jax.vmap(lambda scores: activation.weights(scores, c))(spread * xi + m * kappa * first)
    mu = (rho / norm) * xi + m * theta * first
    residual = (eta / norm) * xi[:, 0] - jnp.sum(weights * mu, axis=-1)
    k11, k12 = 1 - (eta / norm) ** 2, nu - rho * eta / norm**2
    k22 = value_sq - (rho / norm) ** 2
    within = gamma**2 * (k11 - 2 * k12 * weights[:, 0]) + k22 * jnp.sum((s * weights) ** 2, axis=-1)
    return jnp.mean(residual**2 + within)


def _qmc(task: SpikedSLR, model: KeyValueAttention, overlaps: Overlaps) -> Estimate:
    """Means over independent scramblings; the error is three of their standard errors."""
    longest = max(n for n, _ in task.length_law)
    if longest > _QMC_TOKENS:
        raise NoTheory(f"no quasi-Monte-Carlo rule for {longest} tokens; it goes up to {_QMC_TOKENS}.")
    c, o = erf_location.constants(task, model), _seven(overlaps)
    value, error = np.nan, np.inf
    for log2_points in range(_QMC_POINTS[0], _QMC_POINTS[1] + 1, 2):
        means = np.zeros(_SCRAMBLES)
        for length, probability in task.length_law:
            normals = sobol_normals(length, log2_points, _SCRAMBLES, seed=0)
            means += probability * np.array([_chunked(type(model.activation), c, o, block) for block in normals])
        value, error = float(np.mean(means)), 3 * float(np.std(means, ddof=1) / np.sqrt(_SCRAMBLES))
        if error <= _QMC_RTOL * abs(value):
            break
    return Estimate(value, max(error, erf_location.rounding(task, overlaps, value)))


def _chunked(activation: type[Activation], c: dict[str, Any], o: Any, block: np.ndarray) -> float:
    """Mean over one scramble in equal chunks that fit the memory budget (both powers of two)."""
    pieces = max(1, 2 ** int(np.ceil(np.log2(block.size / _QMC_CHUNK)))) if block.size > _QMC_CHUNK else 1
    pieces = min(pieces, len(block))
    return float(np.mean([float(_qmc_kernel(activation, c, o, part)) for part in np.split(block, pieces)]))

"""The landscape of erf attention: fixed points on the manifold, the swapped minimum off it, their ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from needlepoint.channels.branches import ORACLE, swapped_point
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import Overlaps, vectors_with_gram
from needlepoint.core.routes import route, routes, the
from needlepoint.core.text.jsonio import plain
from needlepoint.models.activations import Erf
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.precision import float64
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.location.erf import closed_form as erf_closed_form

_SCALES = np.geomspace(1e-6, 1e2, 190)
"""Grid for critical scales: in units of 1 / sqrt(snr) for `swapped_crossing`, as it is for `oracle_instability`."""

ROUNDING = 1e-15
"""Rounding of an eigenvalue of a two-by-two Hessian, relative to the larger one."""


@dataclass(frozen=True)
class FixedPoint:
    """A stationary point of the flow. `rates` are the eigenvalues of its linearised flow (negative: attracting).

    >>> task, model = ndl.SpikedSLR(10, snr=200.0), ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> ndl.oracle_point(task, model).kind
    'minimum'
    """

    overlaps: Overlaps
    kind: str
    excess_risk: float
    rates: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return plain(
            {
                "overlaps": dict(self.overlaps.items()),
                "kind": self.kind,
                "excess_risk": self.excess_risk,
                "rates": self.rates,
            }
        )


def _pure_erf(task: Any, model: Any) -> float:
    """Return the scale of a pure erf on unit spheres, the one model that this module covers; raise for others."""
    if not routes("landscape", task=task, model=model):
        raise InvalidParameter(
            f"({task!r}, {model!r}): the landscape is known for SpikedSLR and "
            "KeyValueAttention(Erf(scale=...), unit_norm=True) without shift and offset."
        )
    return the("landscape", task=task, model=model)(model.activation)


@route(
    "landscape",
    task=SpikedSLR,
    model=KeyValueAttention,
    activation=Erf,
    when=lambda model: model.unit_norm and model.activation.odd,
)
def _scale_of(activation: Erf) -> float:
    if activation.scale is None:
        raise InvalidParameter(f"{activation!r}: scale is None; the landscape needs its value.")
    return activation.scale


def manifold_gradient(task: SpikedSLR, model: KeyValueAttention, key: Any, value: Any) -> tuple[Any, Any]:
    r"""eq:manifold-gradient. Return $R_\kappa$ and $R_\nu$ at (key, value) on the manifold, arrays that broadcast.

    $R_\nu = -2G\,\mathrm{erf}(u)$, $R_\kappa = \frac{4G\lambda ms}{\sqrt\pi}e^{-u^2}[\mathrm{erf}(cu) - \nu]$,
    $u = \lambda ms\kappa$; the bracket is written with erfc, which loses no digits near $\nu = \pm1$.
    """
    scale = _pure_erf(task, model)
    key, value = np.asarray(key, dtype=float), np.asarray(value, dtype=float)
    m, G = np.sqrt(task.snr), task.relevant_std**2
    g = scale * task.relevant_std
    s, c = _widths(g)
    u = scale * m * s * key
    bracket = np.where(u > 0, (1 - value) - special.erfc(c * u), special.erfc(-c * u) - (1 + value))
    return 4 * G * scale * m * s / np.sqrt(np.pi) * np.exp(-u * u) * bracket, -2 * G * special.erf(u)


def _widths(g: float) -> tuple[float, float]:
    """Return s and c of eq:erf-mean and eq:zeta-derivatives."""
    return (1 + 2 * g * g) ** -0.5, (1 + 4 * g * g) ** -0.5


def nullcline(task: SpikedSLR, model: KeyValueAttention, key: Any) -> np.ndarray:
    r"""eq:nullcline. Return $\nu = \mathrm{erf}(cu)$ at each key, where $R_\kappa$ of eq:manifold-gradient vanishes.

    >>> task, model = ndl.SpikedSLR(10, snr=200.0), ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> ndl.nullcline(task, model, [0.0, 0.5, 1.0]).shape
    (3,)
    """
    scale = _pure_erf(task, model)
    s, c = _widths(scale * task.relevant_std)
    return special.erf(c * s * scale * np.sqrt(task.snr) * np.asarray(key, dtype=float))


def vector_field(task: SpikedSLR, model: KeyValueAttention, key: Any, value: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""eq:manifold-flow. Return $\dot\kappa = -(1 - \kappa^2)R_\kappa$ and $\dot\nu = -(1 - \nu^2)R_\nu$.

    >>> task, model = ndl.SpikedSLR(10, snr=200.0), ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> [field.shape for field in ndl.vector_field(task, model, [0.2, 0.4], [0.1, 0.3])]
    [(2,), (2,)]
    """
    d_key, d_value = manifold_gradient(task, model, key, value)
    return -(1 - np.asarray(key) ** 2) * d_key, -(1 - np.asarray(value) ** 2) * d_value


@float64
def fixed_points(task: SpikedSLR, model: KeyValueAttention) -> tuple[FixedPoint, ...]:
    r"""eq:fixed-points. Return the five on the manifold: minima $\pm(1, 1)$, maxima $\pm(1, -1)$, saddle $(0, 0)$.

    The rates at a corner are $2\kappa R_\kappa$ and $2\nu R_\nu$; at the saddle $-\frac12(A \pm \sqrt{A^2 + 4B^2})$,
    $A = G\lambda^2m^2\frac{8s^2c}{\pi}$, $B = -\frac{4G\lambda ms}{\sqrt\pi}$.

    >>> task, model = ndl.SpikedSLR(10, snr=200.0), ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> [point.kind for point in ndl.fixed_points(task, model)]
    ['minimum', 'minimum', 'maximum', 'maximum', 'saddle']
    """
    scale = _pure_erf(task, model)
    if task.snr == 0:
        raise InvalidParameter(f"{task!r}: snr must be > 0 (without a spike every key is equally good).")
    c_all = erf_closed_form.constants(task, model)

    def risk(key: float, value: float) -> float:
        return float(erf_closed_form.unit_excess_risk(c_all, jnp.array([key, value, 0.0, 0.0, 0.0])))

    found = []
    for key, value in ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)):
        d_key, d_value = manifold_gradient(task, model, key, value)
        rates = (float(2 * key * d_key), float(2 * value * d_value))
        kind = "minimum" if key * value > 0 else "maximum"
        found.append(FixedPoint(Overlaps(key, value), kind, risk(key, value), rates))
    m, G, g = np.sqrt(task.snr), task.relevant_std**2, scale * task.relevant_std
    s, c = _widths(g)
    A, B = G * scale**2 * m**2 * 8 * s**2 * c / np.pi, -4 * G * scale * m * s / np.sqrt(np.pi)
    root = np.sqrt(A**2 + 4 * B**2)
    rates = (float(-(A + root) / 2), float(-(A - root) / 2))
    found.append(FixedPoint(Overlaps(0.0, 0.0), "saddle", risk(0.0, 0.0), rates))
    return tuple(found)


@float64
def swapped_minimum(task: SpikedSLR, model: KeyValueAttention) -> FixedPoint:
    """Return the minimum off the manifold where the key points along the value teacher v* (eq:swapped).

    `rates` are minus the curvatures of the risk along the tangent directions of (k, v); directions that
    only rotate the part of v outside the teachers and k have rate 0.

    >>> task, model = ndl.SpikedSLR(10, snr=200.0), ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> ndl.swapped_minimum(task, model).kind
    'minimum'
    """
    _pure_erf(task, model)
    if task.snr == 0:
        raise InvalidParameter(f"{task!r}: snr must be > 0 (without a spike there is nothing to swap with).")
    five = swapped_point(task, model)
    risk = float(erf_closed_form.unit_excess_risk(erf_closed_form.constants(task, model), jnp.asarray(five)))
    rates = tuple(-float(x) for x in _curvatures(task, model, five))
    return FixedPoint(Overlaps.from_five(five), _kind(rates), risk, rates)


@float64
def oracle_point(task: SpikedSLR, model: KeyValueAttention) -> FixedPoint:
    """Return the oracle k = k*, v = v* as a point of the full space: a minimum, or a saddle at large scale.

    >>> task, model = ndl.SpikedSLR(10, snr=200.0), ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
    >>> ndl.oracle_point(task, model).kind
    'minimum'
    """
    _pure_erf(task, model)
    risk = float(erf_closed_form.unit_excess_risk(erf_closed_form.constants(task, model), jnp.asarray(ORACLE)))
    rates = tuple(-float(x) for x in _curvatures(task, model, ORACLE))
    return FixedPoint(Overlaps.from_five(ORACLE), _kind(rates), risk, rates)


def _kind(rates: tuple[float, ...]) -> str:
    """Return "minimum" or "saddle"; a rate counts as positive only if it exceeds rounding, relative to the largest."""
    return "minimum" if max(rates) <= 1e-12 * max(1.0, abs(min(rates))) else "saddle"


def _curvatures(task: SpikedSLR, model: KeyValueAttention, five: np.ndarray) -> np.ndarray:
    """Return the eigenvalues (8,) of the Riemannian Hessian, in the frame (k*, v*, residual of k, of v, one more)."""
    rows = vectors_with_gram(Overlaps.from_five(five))
    k, v = np.append(rows[2], 0.0), np.append(rows[3], 0.0)
    return _tangent_curvatures(erf_closed_form.constants(task, model), k, v)


def _tangent_curvatures(c: dict[str, float], k: np.ndarray, v: np.ndarray) -> np.ndarray:
    hessian = np.asarray(_sphere_hessian(c, jnp.asarray(np.concatenate([k, v]))))
    tangent = np.zeros((10, 8))
    for rows, columns, vector in ((slice(0, 5), slice(0, 4), k), (slice(5, 10), slice(4, 8), v)):
        tangent[rows, columns] = np.linalg.svd(vector[None])[2][1:].T
    return np.linalg.eigvalsh(tangent.T @ hessian @ tangent)


def _sphere_risk(c: dict[str, Any], x: Any) -> Any:
    """Return the risk of x = (k, v) normalised: on tangents at a stationary point its Hessian is the Riemannian one."""
    k, v = x[:5] / jnp.linalg.norm(x[:5]), x[5:] / jnp.linalg.norm(x[5:])
    return erf_closed_form.unit_excess_risk(c, jnp.stack([k[0], v[1], v[0], k[1], k @ v]))


_sphere_hessian = jax.jit(jax.hessian(_sphere_risk, argnums=1))
_unit_risk = jax.jit(erf_closed_form.unit_excess_risk)


def _with_scale(scale: float) -> KeyValueAttention:
    return KeyValueAttention(Erf(scale=float(scale)), unit_norm=True)


@float64
def swapped_crossing(task: SpikedSLR) -> Estimate:
    """eq:swapped-crossing. Return the scale below which the swapped minimum has a lower risk than the oracle.

    The risk of the other tokens is the same on both, so the crossing does not depend on the length.

    >>> f"{ndl.swapped_crossing(ndl.SpikedSLR(10, snr=200.0)).value:.4f}"
    '0.0848'
    """
    if task.snr == 0:
        raise InvalidParameter(f"{task!r}: snr must be > 0 (without a spike there is no oracle to compare with).")
    one = task.replace(tokens=1)

    def gap(scale: float) -> float:
        model = _with_scale(scale)
        c = erf_closed_form.constants(one, model)
        return float(_unit_risk(c, swapped_point(one, model))) - float(_unit_risk(c, ORACLE))

    return _last_rise(gap, _SCALES / np.sqrt(task.snr))


@float64
def oracle_instability(task: SpikedSLR) -> Estimate:
    r"""eq:oracle-instability. Return the scale above which the oracle is a saddle; infinite if there is none.

    The root of the lowest curvature at the oracle. In the saturated regime, at fixed length, it is
    $\frac12\sqrt{4/(1 - \frac{(L-1)G}{snr + G})^2 - 1}$, which tends to $\sqrt3/2$.

    >>> f"{ndl.oracle_instability(ndl.SpikedSLR(10, snr=200.0)).value:.4f}"
    '0.9198'
    """

    def lowest(scale: float) -> float:
        plane = _plane_hessian(erf_closed_form.constants(task, _with_scale(scale)), jnp.zeros(2))
        low, high = np.linalg.eigvalsh(np.asarray(plane))
        return float(low + ROUNDING * high)  # a negative curvature within the rounding of the other is no instability

    found = _last_rise(lambda scale: -lowest(scale), _SCALES)
    if not 0 < found.value < np.inf:
        return found
    # the lowest curvature carries the rounding of the larger one, which moves the root by that over the slope
    step = 1e-4 * found.value
    slope = abs(lowest(found.value + step) - lowest(found.value - step)) / (2 * step)
    high = 4 * (task.snr + task.relevant_std**2)
    return Estimate(found.value, found.error + 4 * ROUNDING * high / max(slope, 1e-300))


def _plane_risk(c: dict[str, Any], tilt: Any) -> Any:
    """Return the risk near the oracle with k tilted by eta towards v* and v by theta towards k*."""
    theta, eta = tilt
    kappa, nu = jnp.sqrt(1 - eta**2), jnp.sqrt(1 - theta**2)
    return erf_closed_form.unit_excess_risk(c, jnp.stack([kappa, nu, theta, eta, kappa * theta + eta * nu]))


_plane_hessian = jax.jit(jax.hessian(_plane_risk, argnums=1))


def _last_rise(function: Any, grid: np.ndarray) -> Estimate:
    """Return the root at the last change from negative to positive on the grid.

    Without one it is infinite where the function stays negative, and 0 where it stays positive.
    """
    values = np.array([function(x) for x in grid])
    crossings = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if len(crossings) == 0:
        return Estimate(np.inf if values[-1] < 0 else 0.0, 0.0)
    i = crossings[-1]
    found = optimize.root_scalar(function, bracket=(grid[i], grid[i + 1]), method="brentq", xtol=1e-15, rtol=1e-14)
    return Estimate(found.root, 1e-11 * found.root)

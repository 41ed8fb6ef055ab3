"""Which stationary point a set of overlaps belongs to: the oracle, the swapped minimum, or another."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from needlepoint.core.overlaps import FIVE, ODD
from needlepoint.core.routes import route, routes
from needlepoint.models.activations import Erf
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.erf_moments import erf_mean, zeta
from needlepoint.tasks.single_location import SingleLocation, SpikedSLR

ORACLE = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
NEAR = 0.1
"""A run ended at a stationary point if no overlap differs from the point's by more than this."""

_SIGN = np.array([-1.0 if name in ODD else 1.0 for name in FIVE])


@route("named point", name="oracle")
def oracle_point(task: SingleLocation, model: KeyValueAttention) -> np.ndarray:
    """Return the overlaps of k = k*, v = v*."""
    return ORACLE


@route("named point", name="swapped", task=SpikedSLR, activation=Erf, when=lambda model: model.activation.odd)
def swapped_point(task: SpikedSLR, model: KeyValueAttention) -> np.ndarray:
    r"""eq:swapped. Return the overlaps (kappa, nu, theta, eta, rho) of the best point with k along v*, (5,).

    It is for a pure erf. $k = v^*$, $v = \theta^*k^* + \ldots$: $\kappa = \nu = \rho = 0$, $\eta = 1$,
    $\theta^* = \min\{1, G\lambda e'(0, g)/(m\,\zeta(0, g))\}$, $g = \lambda\gamma$.
    """
    c = model.constants()
    g, m = c["scale"] * task.relevant_std, np.sqrt(task.snr)
    slope, spread = _slope_and_spread(g)
    numerator = task.relevant_std**2 * c["scale"] * float(slope)
    denominator = m * float(spread)
    theta = min(1.0, numerator / denominator) if denominator > 0 else 1.0
    return np.array([0.0, 0.0, theta, 1.0, 0.0])


@jax.jit
def _slope_and_spread(g: Any) -> Any:
    return erf_mean(0.0, g).de, zeta(0.0, g)


def classify(task: SingleLocation, model: KeyValueAttention, five: np.ndarray) -> tuple[str, ...]:
    """Return the name of the point where each column of overlaps (5, runs) is: oracle, swapped, other or diverged.

    A common sign of k and v is not seen by the predictions, and so not looked at, if the activation is odd; with any
    other, -k* and -v* are no oracle.
    """
    signs = (np.ones(5), _SIGN) if model.activation.odd else (np.ones(5),)
    labels = np.full(five.shape[1], "other", dtype=object)
    for known in routes("named point", task=task, model=model):
        point = known.function(task, model)
        away = [np.max(np.abs(five - sign[:, None] * point[:, None]), axis=0) for sign in signs]
        labels[np.min(away, axis=0) < NEAR] = known.name
    labels[~np.all(np.isfinite(five), axis=0)] = "diverged"
    return tuple(labels)

"""The Hessian of ridge training at its minimum, and the traces of its inverse that measure stability."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.kinds import is_whole
from needlepoint.core.results import mean_estimate
from needlepoint.learners import Ridge
from needlepoint.models.activations import Activation
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.precision import float64
from needlepoint.simulation.location.accuracy import ACCURACY
from needlepoint.simulation.location.ridge import train
from needlepoint.simulation.location.ridge_problem import Problem, forward, local_loss
from needlepoint.tasks.single_location import SingleLocation


class InverseHessian(NamedTuple):
    """Means over repeats at the minimum: `key` = V_k and `value` = V_v of eq:ridge-hessian, the mean squares of its
    blocks, and the lowest eigenvalue of the Hessian (above 0 at a minimum)."""

    key: Estimate
    value: Estimate
    key_key: Estimate
    key_value: Estimate
    value_value: Estimate
    lowest: Estimate


@float64
def inverse_hessian_traces(
    task: SingleLocation, model: KeyValueAttention, learner: Ridge, *, d: int, repeats: int, seed: int = 0
) -> InverseHessian:
    r"""eq:ridge-hessian. Return the means over repeats of $V_a=\frac1d\mathrm{tr}(H^{-1})_{aa}$ and
    $\frac1d\|(H^{-1})_{ab}\|_F^2$ at the lowest minimum.

    The data sets are those of `simulate(task, model, learner, d=d, repeats=repeats, seed=seed)`.
    """
    if not (is_whole(d) and 2 <= d <= ACCURACY.largest_d and is_whole(repeats) and repeats >= 1):
        raise InvalidParameter(
            f"inverse_hessian_traces(d={d!r}, repeats={repeats!r}): d must be a whole number from 2 to "
            f"{ACCURACY.largest_d} (the Hessian has (2 d)^2 entries), and repeats one from 1."
        )
    rows = []
    for repeat in range(repeats):
        trained = train(task, model, learner, d, seed, repeat)
        rows.append(_traces(hessian(trained.problem, trained.best.weights)))
    return InverseHessian(*(mean_estimate(column) for column in np.array(rows).T))


def hessian(problem: Problem, weights: np.ndarray) -> np.ndarray:
    r"""eq:ridge-hessian. Return $H_{ab}=\frac1d\sum_iX_i^\top\partial_a\partial_b\ell_iX_i+r_a\delta_{ab}I$, (2 d, 2
    d), k before v."""
    d = problem.d
    blocks = np.zeros((2, d, 2, d))
    for part in problem.data:
        (curvatures,) = problem.local(_curvatures, part, forward(part.x, weights))
        for rows in (slice(i, i + ACCURACY.block) for i in range(0, len(part.y), ACCURACY.block)):
            x = part.x[rows]
            flat = x.reshape(-1, d)
            for a, b in ((0, 0), (0, 1), (1, 1)):
                pulled = np.einsum("ilm,imd->ild", curvatures[rows, a, :, b], x).reshape(-1, d)
                blocks[a, :, b] += flat.T @ pulled / d
    blocks[1, :, 0] = blocks[0, :, 1].T
    whole = blocks.reshape(2 * d, 2 * d)
    return whole + np.diag(np.repeat(problem.penalties, d))


def _traces(whole: np.ndarray) -> list[float]:
    d = len(whole) // 2
    eigenvalues, vectors = np.linalg.eigh(whole)
    inverse = ((vectors / eigenvalues) @ vectors.T).reshape(2, d, 2, d)
    traces = [float(np.trace(inverse[a, :, a])) / d for a in (0, 1)]
    squares = [float(np.sum(inverse[a, :, b] ** 2)) / d for a, b in ((0, 0), (0, 1), (1, 1))]
    return [*traces, *squares, float(eigenvalues[0])]


@functools.partial(jax.jit, static_argnums=0)
def _curvatures(activation: type[Activation], constants: Any, fields: Any, y: Any) -> Any:
    one = functools.partial(local_loss, activation, constants)
    return (jax.vmap(jax.hessian(one))(fields, y),)

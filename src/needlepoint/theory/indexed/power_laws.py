"""Targets with a few large eigenvalues: which of them are learned, and how fast errors fall on power laws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.routes import route, routes, the
from needlepoint.core.specs import Spec
from needlepoint.learners import Ridge
from needlepoint.numerics.precision import float64
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Eigenvalues, PowerLaw
from needlepoint.theory.predicting import predict


@dataclass(frozen=True)
class Exponents:
    """Powers of n/d with which the estimation error falls and the number of recovered directions grows.

    >>> found = ndl.learning_exponents(ndl.AttentionIndexed(1, ndl.PowerLaw(1.5, 1000)))
    >>> found
    Exponents(estimation_error=-2.0, recovered=1.0)
    """

    estimation_error: float
    recovered: float


def learning_exponents(task: Spec) -> Exponents:
    r"""eq:learning-exponents. Return the powers of $n/d$ in the estimation error and in the number of recovered
    directions, at the best penalty.

    With $s_i = \sqrt d\,i^{-\gamma}$, $\gamma > 1/2$, and $1 \ll n/d \ll d$: error $(n/d)^{-1 + 1/2\gamma}$ from
    $(n/d)^{1/2\gamma}$ directions with noise, $(n/d)^{1 - 2\gamma}$ from $n/d$ without.

    >>> found = ndl.learning_exponents(ndl.AttentionIndexed(1, ndl.PowerLaw(1.5, 1000)))
    >>> found
    Exponents(estimation_error=-2.0, recovered=1.0)
    """
    if not routes("exponents", task=task):
        raise NoTheory(f"{task!r}: exponents are known for AttentionIndexed with a PowerLaw target.")
    return the("exponents", task=task)(task)


@route("exponents", task=AttentionIndexed, when=lambda task: isinstance(task.target, PowerLaw))
def _exponents(task: AttentionIndexed) -> Exponents:
    target = cast("PowerLaw", task.target)
    gamma = target.exponent
    if gamma <= 0.5:
        raise NoTheory(f"{target!r}: exponents need an exponent above 1/2 (below, the small eigenvalues dominate).")
    if task.noise_var > 0:
        return Exponents(-1 + 1 / (2 * gamma), 1 / (2 * gamma))
    return Exponents(1 - 2 * gamma, 1.0)


@dataclass(frozen=True, eq=False)
class Directions:
    """Eigenvalues of the target that stand out from the noise, largest first, the corresponding eigenvalues of the
    learned matrix, and the squared overlaps of their eigenvectors: three arrays of one length.

    >>> task = ndl.AttentionIndexed(1, ndl.PowerLaw(1.5, 100), noise_var=0.1)
    >>> found = ndl.recovered_directions(task, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1))
    >>> found.target.shape
    (10,)
    """

    target: np.ndarray
    eigenvalue: np.ndarray
    overlap: np.ndarray

    def __len__(self) -> int:
        return len(self.target)


@float64
def recovered_directions(task: Spec, model: Spec, learner: Spec, *, seed: int = 0) -> Directions:
    r"""eq:sequential-recovery. Return the directions of the target that the learned matrix has recovered.

    An eigenvalue $s$ of the target, one among many smaller ones, is seen if $s > \delta$: the learned matrix then has
    the eigenvalue $\eta(s + \delta^2/s - \epsilon)_+$, in a direction of squared overlap $1 - \delta^2/s^2$.

    >>> task = ndl.AttentionIndexed(1, ndl.PowerLaw(1.5, 100), noise_var=0.1)
    >>> found = ndl.recovered_directions(task, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1))
    >>> found.target.shape
    (10,)
    """
    if not routes("directions", task=task):
        raise NoTheory(
            f"{task!r}: directions are told apart for AttentionIndexed with PowerLaw or Eigenvalues targets."
        )
    if not isinstance(learner, Ridge):
        raise InvalidParameter(f"{learner!r}: directions are those of the matrix that Ridge learns.")
    found = predict(task, model, learner, seed=seed, throw=False).conjugates
    return the("directions", task=task)(task, found)


@route("directions", task=AttentionIndexed, when=lambda task: isinstance(task.target, PowerLaw | Eigenvalues))
def _directions(task: AttentionIndexed, found: Mapping[str, float]) -> Directions:
    target = cast("PowerLaw | Eigenvalues", task.target)
    noise, cut, scale = (found[name] for name in ("noise", "cut", "scale"))
    values = np.sort(target.eigenvalues())[::-1]
    seen = values[values > noise]
    learned = scale * (seen + noise**2 / seen - cut)
    kept = learned > 0
    return Directions(seen[kept], learned[kept], 1 - (noise / seen[kept]) ** 2)

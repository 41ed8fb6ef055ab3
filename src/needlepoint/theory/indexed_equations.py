"""The equations of the attention-indexed model with softmax: their map, and its fixed points."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian
from needlepoint.numerics.freeprob import FreeSum, Truncated
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed_fields import Base, Means, State, means

Model = TiedAttention | DirectAttention

_LEAST = 1e-12  # of the pull towards the target, which is positive at a solution
_FLATTEST = 1e-12  # of the curvature
_ROUGH, _MOST = 1e-4, 80


class Learned(NamedTuple):
    """The conjugates, and the law of what is learned: eta (S0 + delta Z - eps)_+, without the cut if it is direct."""

    m: float
    q: float
    Sigma: float
    delta: float
    eps: float
    eta: float


@dataclass(frozen=True)
class Equations:
    """The equations of one problem, a rule of integration (blocks of nodes) for every row."""

    task: AttentionIndexed
    model: Model
    alpha: float
    penalty: float
    rules: tuple[tuple[Base, ...], ...]

    @property
    def law(self) -> FreeSum:
        return self.task.target.law

    @property
    def numbers(self) -> dict[str, float]:
        Q0 = self.law.square
        Q = Q0 + self.task.noise_var / 2
        return {"beta": self.model.beta, "beta_star": self.task.beta_star, "Q": Q, "Q0": Q0}

    def means(self, row: int, state: State) -> Means:
        parts = [means(self.task.tokens, self.numbers, state, base) for base in self.rules[row % len(self.rules)]]
        return Means(*(sum(float(x) for x in column) for column in zip(*parts, strict=True)))

    def learned(self, found: Means) -> Learned:
        r"""eq:indexed-law. $\delta = \sqrt{\hat q}/\hat m$, $\epsilon = 2\tilde\lambda/\hat m$, $\eta = \hat
        m/\hat\Sigma$; direct $\eta = \hat m/(\hat\Sigma + 4\lambda)$, $\epsilon = 0$."""
        m, q, Sigma = (self.alpha * x for x in (found.m, found.q, found.Sigma))
        m, Sigma = max(m, _LEAST), max(Sigma, _FLATTEST)
        if isinstance(self.model, DirectAttention):
            return Learned(m, q, Sigma, math.sqrt(q) / m, 0.0, m / (Sigma + 4 * self.penalty))
        return Learned(m, q, Sigma, math.sqrt(q) / m, 2 * self.penalty / m, m / Sigma)

    def updated(self, learned: Learned) -> State:
        r"""eq:indexed-equations. $q = \eta^2J$, $m = \eta(J - \frac\delta2\partial_1J - \frac\epsilon2\partial_2J)$,
        $\Sigma = \frac{\partial_1J}{2\delta\hat\Sigma}$; direct $m = \eta Q_0$, $q = \eta^2(Q_0 + \delta^2)$, $\Sigma =
        \frac1{\hat\Sigma + 4\lambda}$."""
        delta, eps, eta = learned.delta, learned.eps, learned.eta
        if isinstance(self.model, DirectAttention):
            Q0 = self.law.square
            return State(eta * Q0, eta**2 * (Q0 + delta**2), eta / learned.m)
        at: Truncated = self.law.truncated(delta, eps)
        m = eta * (at.J - delta * at.d1 / 2 - eps * at.d2 / 2)
        return State(float(m), float(eta**2 * at.J), float(at.d1 / (2 * delta * learned.Sigma)))

    def map(self, x: np.ndarray) -> np.ndarray:
        """In the coordinates log q, atanh(m / sqrt(q Q)), log Sigma: (rows, 3)."""
        Q = self.numbers["Q"]
        rows = [
            pack(self.updated(self.learned(self.means(i, unpack(row, Q)))), Q) for i, row in enumerate(np.atleast_2d(x))
        ]
        return np.array(rows)


def fixed_point(equations: Equations, start: State, tol: float, slope: np.ndarray | None = None) -> FixedPoints:
    """From one start for every row: damped with acceleration, then by Newton steps with the slope found there."""
    Q = equations.numbers["Q"]
    x = np.repeat(pack(start, Q)[None], len(equations.rules), axis=0)
    if slope is None:
        one = replace(equations, rules=equations.rules[:1])
        found = anderson(one.map, x[:1], tol=_ROUGH, most=_MOST)
        slope, x = jacobian(one.map, found.x[0]), np.repeat(found.x, len(x), axis=0)
    return anderson(equations.map, x, tol=tol, most=_MOST, slope=np.repeat(slope[None], len(x), axis=0))


def pack(state: State, Q: float) -> np.ndarray:
    q, Sigma = max(state.q, 1e-300), max(state.Sigma, 1e-300)
    angle = state.m / math.sqrt(q * Q)
    return np.array([math.log(q), math.atanh(min(max(angle, -1 + 1e-12), 1 - 1e-12)), math.log(Sigma)])


def unpack(x: np.ndarray, Q: float) -> State:
    q = math.exp(x[0])
    return State(math.tanh(x[1]) * math.sqrt(q * Q), q, math.exp(x[2]))

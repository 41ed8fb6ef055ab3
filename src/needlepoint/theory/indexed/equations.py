"""The equations of the attention-indexed model with softmax: their map, and its fixed points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.numerics.fixed_points import FixedPoints, anderson, jacobian
from needlepoint.numerics.freeprob import FreeSum, Truncated
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.fields import Base, Means, State, means, means_of_nothing, response, starts, test_losses

Model = TiedAttention | DirectAttention


class Learned(NamedTuple):
    """The conjugates m, q, Sigma, and the law of the learned matrix: eta (S0 + delta Z - eps)_+ for tied attention, eta
    (S0 + delta Z) for direct."""

    m: float
    q: float
    Sigma: float
    delta: float
    eps: float
    eta: float


@dataclass(frozen=True)
class Equations:
    """The equations of one problem; every row has its own rule of integration, which is a tuple of blocks of nodes."""

    task: AttentionIndexed
    model: Model
    alpha: float
    penalty: float
    rules: tuple[tuple[Base, ...], ...]
    minima: dict[tuple[int, int], Any] | None = field(default_factory=dict, compare=False)
    """Minima of every (row, block) as the last step found them, where the next step starts; None if every step is to
    search for them afresh."""

    @property
    def law(self) -> FreeSum:
        return self.task.target.law

    @property
    def numbers(self) -> dict[str, float]:
        Q0 = self.law.square
        Q = Q0 + self.task.noise_var / 2
        return {"beta": self.model.beta, "beta_star": self.task.beta_star, "Q": Q, "Q0": Q0}

    def means(self, row: int, state: State, tested: tuple[Base, ...] | None = None) -> Means:
        """Return all means by the rule of a row, with minima searched for afresh. The test losses need no minima and
        are taken over the rule `tested`, if given."""
        tokens, numbers, rule = self.task.tokens, self.numbers, self.rules[row]
        parts = [means(tokens, numbers, state, base, starts(numbers, state, base)) for base in rule]
        bends = [response(tokens, numbers, state, base, known) for base, (_, known) in zip(rule, parts, strict=True)]
        tests = [test_losses(tokens, numbers, state.m, state.q, base) for base in tested or rule]
        test, clean = _sums(tests)
        hot = Means(*_sums([part[:6] for part, _ in parts]))
        return hot._replace(response=sum(map(float, bends)), test=test, clean=clean)

    def means_of_nothing(self, row: int) -> Means:
        numbers = self.numbers
        return Means(*_sums([means_of_nothing(self.task.tokens, numbers, base) for base in self.rules[row]]))

    def moved(self, row: int, state: State) -> State:
        """Return the state after one step of the equations. Minima are searched for from where the last step found
        them."""
        row, numbers, parts = row % len(self.rules), self.numbers, []
        for i, base in enumerate(self.rules[row]):
            known = None if self.minima is None else self.minima.get((row, i))
            known = starts(numbers, state, base) if known is None else known
            found, known = means(self.task.tokens, numbers, state, base, known)
            parts.append(found[:6])
            if self.minima is not None:
                self.minima[row, i] = known
        return self.updated(self.learned(Means(*_sums(parts))))

    def learned(self, found: Means) -> Learned:
        r"""eq:indexed-law. Return the conjugates and the law of the learned matrix: $\delta = \sqrt{\hat q}/\hat m$,
        $\epsilon = 2\tilde\lambda/\hat m$, $\eta = \hat m/\hat\Sigma$; direct $\eta = \hat m/(\hat\Sigma + 4\lambda)$,
        $\epsilon = 0$."""
        m, q, Sigma = (self.alpha * x for x in (found.m, found.q, found.Sigma))
        m, Sigma = max(m, ACCURACY.equations_least), max(Sigma, ACCURACY.flattest)
        if isinstance(self.model, DirectAttention):
            return Learned(m, q, Sigma, math.sqrt(q) / m, 0.0, m / (Sigma + 4 * self.penalty))
        return Learned(m, q, Sigma, math.sqrt(q) / m, 2 * self.penalty / m, m / Sigma)

    def updated(self, learned: Learned) -> State:
        r"""eq:indexed-equations. Return the overlaps and the susceptibility of the learned matrix: $q = \eta^2J$, $m =
        \eta(J - \frac\delta2\partial_1J - \frac\epsilon2\partial_2J)$, $\Sigma =
        \frac{\partial_1J}{2\delta\hat\Sigma}$; direct $m = \eta Q_0$, $q = \eta^2(Q_0 + \delta^2)$, $\Sigma =
        \frac1{\hat\Sigma + 4\lambda}$."""
        delta, eps, eta = learned.delta, learned.eps, learned.eta
        if isinstance(self.model, DirectAttention):
            Q0 = self.law.square
            return State(eta * Q0, eta**2 * (Q0 + delta**2), eta / learned.m)
        at: Truncated = self.law.truncated(delta, eps)
        return State(float(eta * at.overlap), float(eta**2 * at.J), float(at.d1 / (2 * delta * learned.Sigma)))

    def map(self, x: np.ndarray) -> np.ndarray:
        """Return the states after one step, in the coordinates log q, atanh(m / sqrt(q Q)), log Sigma: (rows, 3)."""
        Q = self.numbers["Q"]
        with np.errstate(all="ignore"):  # values that are not finite after too long a step are handled by the solver
            return np.array([pack(self.moved(i, unpack(row, Q)), Q) for i, row in enumerate(np.atleast_2d(x))])


class Found(NamedTuple):
    """Fixed points, and the Jacobian (3, 3) of the map there."""

    points: FixedPoints
    slope: np.ndarray


def fixed_point(equations: Equations, start: State, tol: float, slope: np.ndarray | None = None) -> Found:
    """Return the fixed point of every row, all from one start, and the Jacobian of the map there.

    A damped and accelerated iteration comes near, and Newton steps with the Jacobian found there end it. A `slope` that
    is known from a coarser rule or a neighbour replaces the first part. The last steps search for all minima afresh.
    """
    x = np.repeat(pack(start, equations.numbers["Q"])[None], len(equations.rules), axis=0)
    if slope is None:
        one = replace(equations, rules=equations.rules[:1])  # the first rule's minima stay known
        found = anderson(one.map, x[:1], tol=ACCURACY.equations_rough, most=ACCURACY.most)
        slope, x = jacobian(one.map, found.x[0]), np.repeat(found.x, len(x), axis=0)
    slopes = np.repeat(slope[None], len(x), axis=0)
    near = anderson(equations.map, x, tol=tol, most=ACCURACY.most, slope=slopes, enough=ACCURACY.enough)
    last = anderson(
        replace(equations, minima=None).map, near.x, tol=tol, most=ACCURACY.most, slope=slopes, enough=ACCURACY.enough
    )
    return Found(last, slope)


def _sums(parts: Sequence[Sequence[Any]]) -> list[float]:
    return [sum(float(x) for x in column) for column in zip(*parts, strict=True)]


def pack(state: State, Q: float) -> np.ndarray:
    q, Sigma = max(state.q, 1e-300), max(state.Sigma, 1e-300)
    angle = state.m / math.sqrt(q * Q)
    return np.array([math.log(q), math.atanh(min(max(angle, -1 + 1e-12), 1 - 1e-12)), math.log(Sigma)])


def unpack(x: np.ndarray, Q: float) -> State:
    q = math.exp(x[0])
    return State(math.tanh(x[1]) * math.sqrt(q * Q), q, math.exp(x[2]))

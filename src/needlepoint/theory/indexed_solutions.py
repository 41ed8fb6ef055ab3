"""Solving the attention-indexed model to a stated error: one token in closed form, more by fixed points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from needlepoint.core.errors import NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Progress, silent
from needlepoint.core.status import Status
from needlepoint.models.attention import DirectAttention
from needlepoint.numerics.freeprob import FreeSum
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory import indexed_linear
from needlepoint.theory.indexed_equations import Equations, Learned, Model, fixed_point, unpack
from needlepoint.theory.indexed_fields import Base, Means, State, lattice, scrambled, test_losses
from needlepoint.theory.indexed_spectrum import spread

TOLERANCE = 1e-4
"""Of the estimation error, relative to the mean square of the target."""

_SPACINGS = (0.8, 0.6, 0.5, 0.42, 0.36)  # of the lattice for two tokens, at inverse temperature 1
_LEVELS = (10, 12, 14)  # log2 of the Sobol points a scrambling
_SCRAMBLES = 8
_FALLS = 0.3  # the error of a lattice over its distance to the coarser one; a tenth or less was seen
_SETTLED = 1e-9
_ROUNDING = 1e-9  # of what is known by a root; 1e-10 was seen
_EASY = 0.05  # penalties below this are reached along a path
_PATH = 4.0  # each step of the path divides the penalty by at most this
_MOST_TOKENS = 6


@dataclass(frozen=True)
class Solution:
    """A fixed point: what is learned, and the means there with their errors."""

    state: State
    learned: Learned
    means: Means
    error: Means
    state_error: State
    status: Status
    residual: float
    replicon: float
    rank: Estimate
    size: Estimate
    """Tr S / d for tied attention, Tr S^2 / d for direct: what the penalty is on."""


def solve(
    task: AttentionIndexed,
    model: Model,
    alpha: float,
    penalty: float,
    *,
    tol: float = TOLERANCE,
    seed: int = 0,
    progress: Progress = silent,
) -> Solution:
    r"""`penalty` is $\tilde\lambda$ for tied attention and $\lambda$ for direct."""
    if task.tokens == 1:
        return _one_token(task, model, alpha, penalty)
    if task.tokens > _MOST_TOKENS:
        raise NoTheory(f"{task!r}: the means over {task.tokens} tokens are not computed; at most {_MOST_TOKENS} are.")
    scale = task.target.law.square
    found = None
    rules = _rules(task, seed)
    for i, rule in enumerate(rules):
        equations = Equations(task, model, alpha, penalty, rule)
        start = _approached(equations, progress) if found is None else found.state
        found = _at(equations, start, found if task.tokens == 2 else None)
        progress((i + 1) / len(rules))
        known = max(found.state_error.q, 2 * found.state_error.m) <= tol * scale
        if known:
            return found
    assert found is not None
    return replace(found, status=Status.NOISE_LIMITED) if found.status is Status.CONVERGED else found


def _rules(task: AttentionIndexed, seed: int) -> list[tuple[tuple[Base, ...], ...]]:
    """Rules of integration, from coarse to fine: a lattice for two tokens, scrambled Sobol points for more."""
    if task.tokens == 2:
        sharp = max(1.0, math.sqrt(task.beta_star))  # steeper labels need a finer lattice
        return [(lattice(h / sharp),) for h in _SPACINGS]
    return [scrambled(round(task.components), level, _SCRAMBLES, seed) for level in _LEVELS]


def _approached(equations: Equations, progress: Progress) -> State:
    """A start near the solution: small penalties are reached from larger ones, with Sigma growing as they fall."""
    one = replace(equations, rules=equations.rules[:1])
    Q0 = one.law.square * (one.task.beta_star / one.model.beta) ** 2
    start = State(0.5 * math.sqrt(one.law.square * Q0), 0.6 * Q0, 2.0)
    first = max(one.penalty, _EASY)
    steps = math.ceil(math.log(first / one.penalty) / math.log(_PATH)) if one.penalty > 0 else 0
    for penalty in np.geomspace(first, one.penalty, steps + 1)[:-1] if steps else ():
        found = fixed_point(replace(one, penalty=float(penalty)), start, 1e-4)
        state = unpack(found.x[0], one.numbers["Q"])
        start = state._replace(Sigma=state.Sigma * (first / one.penalty) ** (1 / steps))
    return start


def _at(equations: Equations, start: State, coarser: Solution | None) -> Solution:
    """Every rule's own fixed point; the error is the scatter of the rules, or the step from a coarser one."""
    found = fixed_point(equations, start, _SETTLED)
    Q = equations.numbers["Q"]
    states = [unpack(x, Q) for x in found.x]
    rows = [equations.means(i, state) for i, state in enumerate(states)]
    state, means = State(*_mean(states)), Means(*_mean(rows))
    if len(rows) > 1:
        state_error, error = State(*_error(states)), Means(*_error(rows))
    elif coarser is not None:
        state_error = State(*(_FALLS * np.abs(np.subtract(state, coarser.state))).tolist())
        error = Means(*(_FALLS * np.abs(np.subtract(means, coarser.means))).tolist())
    else:
        state_error, error = State(*[math.inf] * 3), Means(*[math.inf] * len(means))
    learned = equations.learned(means)
    tied = not isinstance(equations.model, DirectAttention)
    parts = np.array([_parts(equations.law, tied, equations.learned(r), x) for r, x in zip(rows, states, strict=True)])
    if len(rows) > 1:
        parts_error = _error(parts)
    elif coarser is not None:
        parts_error = [_FALLS * abs(p - c.value) for p, c in zip(parts[0], (coarser.rank, coarser.size), strict=True)]
    else:
        parts_error = [math.inf] * 2
    rank, size = (Estimate(float(p), e) for p, e in zip(parts.mean(axis=0), parts_error, strict=True))
    settled = bool(np.all(found.residual <= 100 * _SETTLED))
    return Solution(
        state,
        learned,
        means,
        error,
        state_error,
        Status.CONVERGED if settled and np.all(np.isfinite(means)) else Status.MAX_STEPS,
        float(np.max(found.residual)),
        _replicon(equations, learned, means.response),
        rank,
        size,
    )


def _parts(law: FreeSum, tied: bool, learned: Learned, state: State) -> tuple[float, float]:
    """The rank over d, and what the penalty is on."""
    if not tied:
        return 1.0, state.q
    at = law.truncated(learned.delta, learned.eps)
    return float(np.clip(at.above, 0.0, 1.0)), -learned.eta * float(at.d2) / 2


def _mean(rows: Sequence[tuple[float, ...]]) -> list[float]:
    return np.mean(np.array(rows), axis=0).tolist()


def _error(rows: Sequence[tuple[float, ...]] | np.ndarray) -> list[float]:
    """Three standard errors of the mean."""
    return (3 * np.std(np.array(rows), axis=0, ddof=1) / math.sqrt(len(rows))).tolist()


def _replicon(equations: Equations, learned: Learned, response: float) -> float:
    r"""eq:indexed-replicon. $\Lambda = 2\alpha E|\partial_\omega g|^2D/\hat\Sigma^2$."""
    eps = None if isinstance(equations.model, DirectAttention) else learned.eps
    stiff = learned.m / learned.eta
    return 2 * equations.alpha * response * spread(equations.law, learned.delta, eps) / stiff**2


# --- one token, and labels that are met exactly -------------------------------------------------


def _one_token(task: AttentionIndexed, model: Model, alpha: float, penalty: float) -> Solution:
    """A quadratic loss: the linear equations, for tied attention cut and for direct attention closed."""
    law, noise = task.target.law, task.noise_var
    Q0, Q = law.square, law.square + noise / 2
    if isinstance(model, DirectAttention):
        Sigma, delta, m, q = direct(Q0, noise, alpha, penalty)
        eps, eta, residual = 0.0, m / Q0, 0.0  # closed
        G = Q - 2 * m + q
    else:
        cut = indexed_linear.penalised(law, alpha, Q, penalty) if penalty else indexed_linear.unpenalised(law, alpha, Q)
        delta, eps, eta = float(cut.delta), float(cut.eps), 1.0
        q, m = float(cut.at.J), float(cut.at.J - cut.delta * cut.at.d1 / 2 - cut.eps * cut.at.d2 / 2)
        stiffness = float(cut.stiffness(alpha)) if eps == 0 or penalty else 0.0
        Sigma = (4 * alpha / stiffness - 1) / 4 if stiffness > 0 else math.inf
        G, residual = 2 * alpha * delta**2, abs(float(cut.balance(alpha, Q)))
    pull = 8 * alpha / (1 + 4 * Sigma)
    response = 16 / (1 + 4 * Sigma) ** 2
    means = Means(
        pull / alpha, response * 2 * G, pull / alpha, 2 * G / (1 + 4 * Sigma) ** 2, 2 * G, 2 * G - noise, response, 0, 0
    )
    learned = Learned(pull, alpha * means.q, pull, delta, eps, eta)
    return _exact(task, model, alpha, State(m, q, Sigma), learned, means, residual)


def _exact(
    task: AttentionIndexed,
    model: Model,
    alpha: float,
    state: State,
    learned: Learned,
    means: Means,
    residual: float,
) -> Solution:
    """A solution that is known to the error of its root."""
    a = alpha * task.components
    tied = not isinstance(model, DirectAttention)
    # 4 Sigma / (1 + 4 Sigma) is 1 where nothing but the penalty holds the matrix
    kept = 1.0 if math.isinf(state.Sigma) else 4 * state.Sigma / (1 + 4 * state.Sigma)
    D = spread(task.target.law, learned.delta, learned.eps) / (2 * a) if tied else 2 * a * kept**2
    law = task.target.law
    scale = law.square + task.noise_var / 2  # what is small is a difference of numbers of this size
    rank, size = _parts(law, tied, learned, state)
    return Solution(
        state,
        learned,
        means,
        Means(*(_ROUNDING * max(abs(x), scale) for x in means)),
        State(*(_ROUNDING * max(abs(x), scale) for x in state)),
        Status.CONVERGED,
        residual,
        D,
        Estimate(rank, _ROUNDING),
        Estimate(size, _ROUNDING * max(size, scale)),
    )


def direct(Q0: float, noise: float, a: float, penalty: float) -> tuple[float, float, float, float]:
    r"""eq:indexed-direct. $16\lambda\Sigma^2 + (8a + 4\lambda - 4)\Sigma - 1 = 0$, $r = \frac{8a\Sigma}{1 + 4\Sigma}$,
    $m = rQ_0$, $Q - 2m + q = \frac{Q_0(1 - r)^2 + \Delta/2}{1 - 2a(4\Sigma/(1 + 4\Sigma))^2}$: Sigma, delta, m, q."""
    b = 8 * a + 4 * penalty - 4
    if penalty > 0:
        Sigma = (
            (math.sqrt(b * b + 64 * penalty) - b) / (32 * penalty)
            if b <= 0
            else 2 / (math.sqrt(b * b + 64 * penalty) + b)
        )
    else:
        Sigma = 1 / b if b > 0 else math.inf
    kept = 1.0 if math.isinf(Sigma) else 4 * Sigma / (1 + 4 * Sigma)
    r = 2 * a * kept
    G = (Q0 * (1 - r) ** 2 + noise / 2) / (1 - 2 * a * kept**2)
    m = r * Q0
    q = G - Q0 - noise / 2 + 2 * m
    # q = r^2 (Q0 + delta^2)
    return Sigma, math.sqrt(max(q / r**2 - Q0, 0.0)), m, q


def interpolating(task: AttentionIndexed, model: Model, alpha: float, seed: int = 0) -> Solution:
    """No penalty and fewer sequences than the interpolation threshold: softmax meets its labels, and what it learns
    solves the linear problem with alpha N equations. Its temperature only rescales the target."""
    law, c = task.target.law, task.beta_star / model.beta
    a, Q = alpha * task.components, law.square + task.noise_var / 2
    if isinstance(model, DirectAttention):
        _, delta, m, q = direct(law.square, task.noise_var, a, 0.0)
        eps, eta, residual = 0.0, m / law.square, 0.0
    else:
        cut = indexed_linear.unpenalised(law, a, Q)
        delta, eps, eta = float(cut.delta), float(cut.eps), 1.0
        q, m = float(cut.at.J), float(cut.at.J - cut.delta * cut.at.d1 / 2 - cut.eps * cut.at.d2 / 2)
        residual = abs(float(cut.balance(a, Q)))
    m, q, eta = c * m, c * c * q, c * eta
    numbers = {"beta": model.beta, "beta_star": task.beta_star, "Q": Q, "Q0": law.square}
    fine, coarse = (
        np.array([_test(task.tokens, numbers, m, q, rule) for rule in rules]) for rules in _rules(task, seed)[1::-1]
    )
    values = fine.mean(axis=0)
    error = np.abs(values - coarse.mean(axis=0)) + 3 * fine.std(axis=0) / math.sqrt(len(fine))
    means = Means(0, 0, 0, 0, float(values[0]), float(values[1]), 0, 0, 0)
    found = _exact(task, model, alpha, State(m, q, math.inf), Learned(0, 0, 0, delta, eps, eta), means, residual)
    return replace(found, error=found.error._replace(test=float(error[0]), clean=float(error[1])))


def _test(tokens: int, numbers: dict[str, float], m: float, q: float, rule: tuple[Base, ...]) -> list[float]:
    return np.sum([[float(x) for x in test_losses(tokens, numbers, m, q, base)] for base in rule], axis=0).tolist()

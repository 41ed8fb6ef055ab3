"""The attention-indexed model where its equations close: one token, and labels that are fitted exactly."""

from __future__ import annotations

import math

from needlepoint.core.status import Status
from needlepoint.models.attention import DirectAttention
from needlepoint.numerics.freeprob import FreeSum
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory.indexed import quadratic_loss, quadrature
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.equations import Equations, Learned, Model
from needlepoint.theory.indexed.fields import Means, State
from needlepoint.theory.indexed.quadratic_loss import Cut
from needlepoint.theory.indexed.solutions import Outcome, Solution, outcome
from needlepoint.theory.indexed.spectrum import spread


def one_token(task: AttentionIndexed, model: Model, alpha: float, penalty: float) -> Solution:
    """Return the solution for one token, whose loss is quadratic: a root search for tied attention, closed formulas for
    direct attention."""
    law, noise = task.target.law, task.noise_var
    Q = law.square + noise / 2
    if isinstance(model, DirectAttention):
        Sigma, delta, m, q = direct(law.square, noise, alpha, penalty)
        eps, eta, residual, G = 0.0, m / law.square, 0.0, Q - 2 * m + q
    else:
        cut = quadratic_loss.penalised(law, alpha, Q, penalty) if penalty else quadratic_loss.unpenalised(law, alpha, Q)
        m, q, residual = _learned(cut, alpha, Q, penalty)
        delta, eps, eta = float(cut.delta), float(cut.eps), 1.0
        stiffness = float(cut.stiffness(alpha)) if eps == 0 or penalty else 0.0
        Sigma = (4 * alpha / stiffness - 1) / 4 if stiffness > 0 else math.inf
        G = 2 * alpha * delta**2
    pull = 8 * alpha / (1 + 4 * Sigma)
    q_hat, train = 32 * G / (1 + 4 * Sigma) ** 2, 2 * G / (1 + 4 * Sigma) ** 2
    means = Means(pull / alpha, q_hat, pull / alpha, train, 0.0, 0.0, test=2 * G, clean=2 * G - noise)
    learned = Learned(pull, alpha * q_hat, pull, delta, eps, eta)
    return _solution(Equations(task, model, alpha, penalty, ()), State(m, q, Sigma), learned, means, residual)


def interpolating(task: AttentionIndexed, model: Model, alpha: float, seed: int = 0) -> Solution:
    """Return the solution without a penalty and below the interpolation threshold.

    There softmax fits its labels exactly, and the learned matrix solves the one-token problem with alpha N in place of
    alpha. The temperatures only rescale the target.
    """
    law, c = task.target.law, task.beta_star / model.beta
    a, Q = alpha * task.components, law.square + task.noise_var / 2
    if isinstance(model, DirectAttention):
        _, delta, m, q = direct(law.square, task.noise_var, a, 0.0)
        eps, eta, residual = 0.0, m / law.square, 0.0
    else:
        cut = quadratic_loss.unpenalised(law, a, Q)
        m, q, residual = _learned(cut, a, Q)
        delta, eps, eta = float(cut.delta), float(cut.eps), 1.0
    m, q, eta = c * m, c * c * q, c * eta
    test, clean = quadrature.losses(task, model.beta, m, q, seed)
    means = Means(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, test=test.value, clean=clean.value)
    learned = Learned(0, 0, 0, delta, eps, eta)
    found = _solution(Equations(task, model, alpha, 0.0, ()), State(m, q, math.inf), learned, means, residual)
    error = found.error._replace(test=max(found.error.test, test.error), clean=max(found.error.clean, clean.error))
    return Solution(found.state, found.learned, found.value, error, found.status, found.residual, found.replicon)


def _learned(cut: Cut, a: float, Q: float, penalty: float = 0.0) -> tuple[float, float, float]:
    """Return m, q and the largest residual of the equations."""
    q, m = float(cut.at.J), float(cut.at.overlap)
    missed = float(cut.eps * cut.stiffness(a)) - penalty if penalty else 0.0
    return m, q, max(abs(float(cut.balance(a, Q))), abs(missed))


def _solution(equations: Equations, state: State, learned: Learned, means: Means, residual: float) -> Solution:
    """Return the solution with the errors of its root: rounding and the residual."""
    law: FreeSum = equations.law
    a, scale = equations.alpha * equations.task.components, equations.numbers["Q"]
    # Sigma is infinite where nothing but a vanishing penalty holds the matrix, and 4 Sigma / (1 + 4 Sigma) is 1
    kept = 1.0 if math.isinf(state.Sigma) else 4 * state.Sigma / (1 + 4 * state.Sigma)
    tied = not isinstance(equations.model, DirectAttention)
    value = outcome(equations, state, learned, means)
    # a small number is the difference of numbers of the size of Q, and has their rounding
    error = Outcome(*(ACCURACY.closed_form_rounding * max(abs(x), scale) + residual for x in value))
    error = error._replace(rank=ACCURACY.closed_form_rounding + residual, rivals=0.0)
    return Solution(
        state,
        learned,
        value,
        error,
        Status.CONVERGED if residual <= ACCURACY.closed_form_settled * scale else Status.MAX_STEPS,
        residual,
        spread(law, learned.delta, learned.eps) / (2 * a) if tied else 2 * a * kept**2,
    )


def direct(Q0: float, noise: float, a: float, penalty: float) -> tuple[float, float, float, float]:
    r"""eq:indexed-direct. Return (Sigma, delta, m, q) of direct attention on one token: $16\lambda\Sigma^2 + (8a +
    4\lambda - 4)\Sigma - 1 = 0$, $r = \frac{8a\Sigma}{1 + 4\Sigma}$, $m = rQ_0$, $Q - 2m + q = \frac{Q_0(1 - r)^2 +
    \Delta/2}{1 - 2a(4\Sigma/(1 + 4\Sigma))^2}$."""
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

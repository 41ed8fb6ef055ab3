"""Attention trained on the attention-indexed model: the prediction, its spectrum, and whether to trust it."""

from __future__ import annotations

import math
from typing import Any

from scipy import optimize

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.overlaps import IndexedOverlaps
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.theory import indexed_linear
from needlepoint.theory.indexed_equations import Model
from needlepoint.theory.indexed_solutions import TOLERANCE, Solution, interpolating, solve
from needlepoint.theory.indexed_spectrum import spectrum
from needlepoint.theory.predicting import Options
from needlepoint.theory.thresholds import thresholds

MANY = 1e-3
"""A share of sequences with more than one minimum beyond this is not trusted."""

_ROUGH = 1e-2  # what the best penalty is sought with
_PENALTIES = (1e-4, 30.0)  # between which it is sought


@rule("predict", AttentionIndexed, TiedAttention, Ridge)
@rule("predict", AttentionIndexed, DirectAttention, Ridge)
def predict_indexed(task: AttentionIndexed, model: Model, learner: Ridge, options: Options) -> Prediction:
    """The fixed point as errors, overlaps and a spectrum; a note says what makes it doubtful."""
    if isinstance(learner.lam, tuple):
        raise InvalidParameter(f"{learner!r}: the attention-indexed model has one penalty; give lam as one number.")
    resolved, notes = learner, ()
    if isinstance(learner.lam, str):
        lam, notes = best_penalty(task, model, learner, options)
        resolved = learner.replace(lam=lam)
    found = _solved(task, model, resolved.alpha, unit(model) * resolved.penalties[0], options)
    return _prediction(task, model, learner, resolved, options, found, notes)


def unit(model: Model) -> float:
    r"""$\tilde\lambda/\lambda$: the penalty on W is one on the trace of S times this."""
    return math.sqrt(model.width_ratio) if isinstance(model, TiedAttention) else 1.0


def _solved(task: AttentionIndexed, model: Model, alpha: float, penalty: float, options: Options) -> Solution:
    if penalty == 0 and task.tokens > 1:
        edge = thresholds(task, model).interpolation
        if alpha >= edge:
            raise NoTheory(
                f"no equations for softmax without a penalty beyond interpolation (alpha={alpha:g} >= {edge:.6g}); "
                "give a small penalty (lam=1e-3) or fewer samples."
            )
        return interpolating(task, model, alpha, options.seed)
    if penalty == 0 and isinstance(model, DirectAttention) and math.isclose(2 * alpha, 1.0):
        raise NoTheory(f"at alpha={alpha:g} the unpenalised direct problem diverges; give a small penalty (lam=1e-3).")
    return solve(
        task, model, alpha, penalty, tol=options.tol or TOLERANCE, seed=options.seed, progress=options.progress
    )


def best_penalty(
    task: AttentionIndexed, model: Model, learner: Ridge, options: Options
) -> tuple[float, tuple[str, ...]]:
    """The penalty of least predicted risk: in closed form for one token, sought for more."""
    law, alpha = task.target.law, learner.alpha
    if task.tokens == 1 and isinstance(model, DirectAttention):
        return task.noise_var / (2 * law.square), ()
    if task.tokens == 1:
        cut = indexed_linear.best(law, alpha, law.square + task.noise_var / 2)
        return max(0.0, float(cut.eps * cut.stiffness(alpha))) / unit(model), ()

    def risk(log_lam: float) -> float:
        found = solve(task, model, alpha, unit(model) * math.exp(log_lam), tol=_ROUGH, seed=options.seed)
        return found.means.test

    low, high = (math.log(x / unit(model)) for x in _PENALTIES)
    found: Any = optimize.minimize_scalar(risk, bounds=(low, high), method="bounded", options={"xatol": 0.02})
    at_the_end = min(found.x - low, high - found.x) < 0.1
    lam = math.exp(found.x)
    return lam, ((f"the best penalty is at the end of what is searched (lam={lam:.2g}).",) if at_the_end else ())


def _prediction(
    task: AttentionIndexed,
    model: Model,
    learner: Ridge,
    resolved: Ridge,
    options: Options,
    found: Solution,
    notes: tuple[str, ...],
) -> Prediction:
    law, state, learned, means, error = task.target.law, found.state, found.learned, found.means, found.error
    tied = isinstance(model, TiedAttention)
    lam = unit(model) * resolved.penalties[0]
    rank = found.rank.value
    metrics = {
        "risk": Estimate(means.test, error.test),
        "clean_risk": Estimate(means.clean, error.clean),
        "train_loss": Estimate(means.train, error.train),
        "energy": Estimate(
            resolved.alpha * means.train + lam * found.size.value, resolved.alpha * error.train + lam * found.size.error
        ),
        "estimation_error": Estimate(law.square - 2 * state.m + state.q, 2 * found.state_error.m + found.state_error.q),
        "rank_fraction": found.rank,
    }
    doubts = []
    if found.replicon >= 1:
        doubts.append(f"replica symmetry is unstable (replicon {found.replicon:.3g} >= 1)")
    if means.rivals > MANY:
        doubts.append(f"{100 * means.rivals:.2g} % of sequences have more than one minimum")
    if isinstance(model, TiedAttention) and rank > model.width_ratio:
        doubts.append(f"the solution has rank {rank:.3g} d, and W is only {model.width_ratio:g} d wide")
    status = found.status
    if status is Status.NOISE_LIMITED:
        notes += (f"{options.tol or TOLERANCE:g} of the target's mean square was asked for and is not reached.",)
    if doubts:
        notes += (f"not to be trusted: {'; '.join(doubts)}.",)
        status = Status.UNSTABLE if status is Status.CONVERGED else status
    return Prediction(
        task,
        model,
        learner,
        metrics,
        status=status,
        overlaps=IndexedOverlaps(state.m, state.q),
        overlaps_error={"m": found.state_error.m, "q": found.state_error.q},
        notes=notes,
        seed=options.seed,
        resolved=(task, model, resolved),
        stable=not doubts,
        replicon=found.replicon,
        residual=found.residual,
        conjugates={"m": learned.m, "q": learned.q, "response": learned.Sigma, "susceptibility": state.Sigma}
        | {"noise": learned.delta, "cut": learned.eps, "scale": learned.eta},
        spectrum=spectrum(law, learned.delta, learned.eps if tied else None, learned.eta),
    )

"""Attention trained on the attention-indexed model: the prediction, its spectrum, and whether to trust it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

from needlepoint.core.answers.doubts import answers
from needlepoint.core.answers.spectra import Spectrum, group_means
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import IndexedOverlaps
from needlepoint.core.results import UNSOLVED, Measurement, Prediction, Progress, silent
from needlepoint.core.status import Status
from needlepoint.learners import Ridge
from needlepoint.losses import squared_error
from needlepoint.models.attention import DirectAttention, TiedAttention
from needlepoint.tasks.attention_indexed import AttentionIndexed
from needlepoint.tasks.targets import Eigenvalues
from needlepoint.theory.indexed import quadratic_loss
from needlepoint.theory.indexed.accuracy import ACCURACY
from needlepoint.theory.indexed.closed_form import interpolating, one_token
from needlepoint.theory.indexed.doubt import advice, doubts
from needlepoint.theory.indexed.equations import Model
from needlepoint.theory.indexed.solutions import Outcome, Solution, default_tolerance, solve
from needlepoint.theory.indexed.spectrum import spectrum
from needlepoint.theory.indexed.thresholds import interpolation

METRICS = {
    "risk": "test",
    "clean_risk": "clean",
    "train_loss": "train",
    "energy": "energy",
    "estimation_error": "distance",
    "rank_fraction": "rank",
}
"""The name in `Outcome` of every metric."""


@rule("predict", AttentionIndexed, TiedAttention, Ridge, when=squared_error)
@rule("predict", AttentionIndexed, DirectAttention, Ridge, when=squared_error)
@threadpool_limits.wrap(limits=1, user_api="blas")  # its sums are small, and slower with more threads
def predict_indexed(task: AttentionIndexed, model: Model, learner: Ridge, options: PredictionOptions) -> Prediction:
    """Return the errors, overlaps and spectrum of the fixed point; a note says what makes it doubtful."""
    task.check_temperature(model.beta)
    if isinstance(learner.lam, tuple):
        raise InvalidParameter(f"{learner!r}: the attention-indexed model has one penalty; give lam as one number.")
    resolved, notes = learner, ()
    if isinstance(learner.lam, str):
        lam, notes = best_penalty(task, model, learner, options)
        resolved = learner.replace(lam=lam, common=False)
    found = _solved(task, model, resolved.alpha, unit(model) * resolved.penalties[0], options)
    return _prediction(task, model, learner, resolved, options, found, notes)


@rule("realise", AttentionIndexed, TiedAttention, Ridge)
@rule("realise", AttentionIndexed, DirectAttention, Ridge)
@threadpool_limits.wrap(limits=1, user_api="blas")  # its sums are small, and slower with more threads
def realise_indexed(
    task: AttentionIndexed,
    model: TiedAttention | DirectAttention,
    learner: Ridge,
    prediction: Prediction,
    measurement: Measurement,
    progress: Progress = silent,
) -> dict[str, np.ndarray]:
    """Return the predicted numbers for every repeat, (repeats,) each: at the eigenvalues that its target has, and with
    its whole number of sequences over d^2. Both change the prediction by little, so that a coarse rule of integration
    is enough for the difference. Empty where the equations of a target are not solved: the limit stands for it."""
    assert measurement.spectrum is not None
    d, penalty = measurement.d, unit(model) * learner.penalties[0]
    options = PredictionOptions(prediction.seed)

    def numbers(value: Outcome, law: Spectrum) -> dict[str, float]:
        metrics = {metric: getattr(value, name) for metric, name in METRICS.items()}
        return {**metrics, "m": value.m, "q": value.q, **_groups(law, d)}

    assert isinstance(prediction.overlaps, IndexedOverlaps)
    assert prediction.spectrum is not None
    limit = _solved(task, model, learner.alpha, penalty, options, level=ACCURACY.realised)
    if limit.status in UNSOLVED:
        return {}
    coarse = numbers(limit.value, _spectrum(task, model, limit))
    fine = {name: prediction.metrics[name].value for name in METRICS}
    fine |= {"m": prediction.overlaps.m, "q": prediction.overlaps.q, **_groups(prediction.spectrum, d)}
    found: dict[tuple[float, ...], dict[str, float]] = {}
    targets = [tuple(row) for row in measurement.spectrum.target.tolist()]
    for values in dict.fromkeys(targets):
        progress(len(found) / len(targets))
        own = task.replace(target=Eigenvalues(values))
        alpha = round(learner.alpha * d * d) / d**2
        near = _solved(own, model, alpha, penalty, options, limit, ACCURACY.realised)
        if near.status in UNSOLVED:  # the limit was too far away to begin from
            near = _solved(own, model, alpha, penalty, options, level=ACCURACY.realised)
        if near.status in UNSOLVED:
            return {}
        mine = numbers(near.value, _spectrum(own, model, near))
        found[values] = {name: fine[name] + mine[name] - coarse[name] for name in fine}
    return {name: np.array([found[values][name] for values in targets]) for name in fine}


def _groups(law: Spectrum, d: int) -> dict[str, float]:
    return {name: float(x) for name, x in group_means(law.quantiles(d)).items()}


def _spectrum(task: AttentionIndexed, model: Model, found: Solution) -> Spectrum:
    learned = found.learned
    return spectrum(
        task.target.law, learned.delta, learned.eps if isinstance(model, TiedAttention) else None, learned.eta
    )


def _scales(task: AttentionIndexed, alpha: float) -> dict[str, float]:
    """Return the scale of every metric, beside which it may count as small: the target's mean square, the error without
    attention, a full rank."""
    square = task.target.law.square
    loss = 2 * square + task.noise_var if task.tokens == 1 else float(task.tokens)
    scales = {"estimation_error": square, "rank_fraction": 1.0, "energy": alpha * loss}
    return {metric: scales.get(metric, loss) for metric in METRICS}


def unit(model: Model) -> float:
    r"""Return $\tilde\lambda/\lambda$, by which the penalty on W becomes one on the trace of S (1 for direct)."""
    return math.sqrt(model.width_ratio) if isinstance(model, TiedAttention) else 1.0


def _solved(
    task: AttentionIndexed,
    model: Model,
    alpha: float,
    penalty: float,
    options: PredictionOptions,
    near: Solution | None = None,
    level: int | None = None,
) -> Solution:
    if penalty == 0 and task.tokens > 1:
        # the equations ignore the width of W; `doubts` flags a solution whose rank exceeds it
        edge = 1 / (2 * task.components) if isinstance(model, DirectAttention) else interpolation(task).alpha.value
        if alpha >= edge:
            raise NoTheory(
                f"no equations for softmax without a penalty beyond interpolation (alpha={alpha:g} >= {edge:.6g}); "
                "give a small penalty (lam=1e-3) or fewer samples."
            )
        return interpolating(task, model, alpha, options.seed)
    if penalty == 0 and isinstance(model, DirectAttention) and math.isclose(2 * alpha, 1.0):
        raise NoTheory(f"at alpha={alpha:g} the unpenalised direct problem diverges; give a small penalty (lam=1e-3).")
    if task.tokens == 1:
        return one_token(task, model, alpha, penalty)
    more: dict[str, Any] = {"seed": options.seed, "near": near, "level": level, "progress": options.progress}
    return solve(task, model, alpha, penalty, tol=options.tol, **more)


def best_penalty(
    task: AttentionIndexed, model: Model, learner: Ridge, options: PredictionOptions
) -> tuple[float, tuple[str, ...]]:
    """Return the penalty of least predicted risk and notes, in closed form for one token, by a search for more."""
    law, alpha = task.target.law, learner.alpha
    if task.tokens == 1 and isinstance(model, DirectAttention):
        return task.noise_var / (2 * law.square), ()
    if task.tokens == 1:
        cut = quadratic_loss.best(law, alpha, law.square + task.noise_var / 2)
        return max(0.0, float(cut.eps * cut.stiffness(alpha))) / unit(model), ()

    tried = 0

    def risk(log_lam: float) -> float:
        nonlocal tried
        options.progress(tried / (tried + 5))  # the number of trials is not known beforehand
        tried += 1
        found = solve(
            task, model, alpha, unit(model) * math.exp(log_lam), tol=ACCURACY.prediction_rough, seed=options.seed
        )
        # a point that is not solved must not win: nothing costs more than learning nothing does
        return found.value.test if found.status not in UNSOLVED else nothing

    nothing = 10 * _scales(task, alpha)["risk"]
    low, high = (math.log(x / unit(model)) for x in ACCURACY.penalties)
    found: Any = optimize.minimize_scalar(risk, bounds=(low, high), method="bounded", options={"xatol": 0.02})
    at_the_end = min(found.x - low, high - found.x) < 0.1
    lam = math.exp(found.x)
    return lam, ((f"the best penalty is at the end of what is searched (lam={lam:.2g}).",) if at_the_end else ())


def _prediction(
    task: AttentionIndexed,
    model: Model,
    learner: Ridge,
    resolved: Ridge,
    options: PredictionOptions,
    found: Solution,
    notes: tuple[str, ...],
) -> Prediction:
    learned, against = found.learned, doubts(task, model, found)
    solved = found.status is not Status.MAX_STEPS
    every = {metric: found.estimate(name) for metric, name in METRICS.items()}
    metrics, empty = answers(every, against.shares, _scales(task, resolved.alpha))
    status = found.status
    if status is Status.NOISE_LIMITED:
        notes += (
            f"{options.tol or default_tolerance(task):g} of the target's mean square was asked for and is not reached.",
        )
    if not solved:
        notes += (f"the equations are not solved: the largest step that is left is {found.residual:.1g}.",)
    if against.reasons:
        notes += (f"not to be trusted: {'; '.join(against.reasons)}.",)
        status = Status.UNSTABLE if solved else status
    return Prediction(
        task,
        model,
        learner,
        metrics,
        status=status,
        overlaps=IndexedOverlaps(found.value.m, found.value.q),
        overlaps_error={"m": found.known(found.error.m), "q": found.known(found.error.q)},
        notes=notes + empty + advice(task),
        seed=options.seed,
        resolved=(task, model, resolved),
        stable=not against.unstable if solved else None,
        doubt=against.shares if solved else {},
        replicon=found.replicon,
        residual=found.residual,
        conjugates={"m": learned.m, "q": learned.q, "response": learned.Sigma, "susceptibility": found.state.Sigma}
        | {"noise": learned.delta, "cut": learned.eps, "scale": learned.eta},
        spectrum=_spectrum(task, model, found),
    )

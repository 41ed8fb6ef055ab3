"""Which model is better? Several models on one task, each at its own best penalties, with a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.results import Measurement, Prediction, Progress, silent
from needlepoint.core.specs import Spec
from needlepoint.learners import BayesOptimal, Population, Ridge
from needlepoint.simulation.simulating import simulate
from needlepoint.studies.verdicts import Contest, Entry, is_resolved
from needlepoint.theory.curves import predict_curves, static_key
from needlepoint.theory.predicting import predict

BAYES = "Bayes"
"""Name of the entry whose model is None."""


def contest(
    task: Spec,
    models: Sequence[Spec | None] | Mapping[str, Spec | None],
    learner: Spec | Sequence[Spec],
    *,
    seed: int = 0,
    tol: float | None = None,
    common: bool | None = None,
    d: int | None = None,
    repeats: int = 16,
    samples: int = 20_000,
    progress: Progress = silent,
) -> Contest:
    """Return the models side by side, each at its own best penalties, with a verdict.

    models   a list, or a dict by the names that the verdict uses; None stands for the Bayes-optimal predictor, which is
             no contestant but the bound that none can pass
    learner  `Ridge(alpha, "optimal")`, `Population()`, or another learner that all models have a theory for; a list of
             learners, such as one for each alpha, gives curves
    common   whether key and value share one penalty; None leaves the learner as it is
    d        if given, every model is also trained at this dimension with the penalties that the theory chose, `repeats`
             times from seeds of its own, and the margins are those of training, in standard errors

    Numerical errors are bounds: a model is better if the margin exceeds the sum of both. Models at one penalty that is
    given (`Ridge(alpha, 0.5)`) can be compared too, but the verdict says that this favours whichever the penalty suits.

    >>> models = [ndl.KeyValueAttention(ndl.Softmax()), ndl.KeyValueAttention(ndl.Linear())]
    >>> ndl.contest(ndl.SpikedSLR(2, snr=2.0), models, ndl.Population()).best.name
    'Softmax'
    """
    named = _named(models)
    asked = _learners(learner, common)
    entries: list[Entry] = []
    parts = len(named) * (1 if d is None else 2)
    for place, (name, model) in enumerate(named.items()):

        def share(done: float, place: int = place) -> None:
            progress((place + done) / parts)

        questions = [_question(task, model, one) for one in asked]
        found = _predicted(questions, seed, tol, share)
        entries += [Entry(name, model, one, p) for one, p in zip(asked, found, strict=True)]
    for i, entry in enumerate(entries if d is not None else ()):

        def later(done: float, i: int = i) -> None:
            progress((1 + (i + done) / len(entries)) / 2)

        assert d is not None
        entries[i] = _trained(entry, d, repeats, samples, seed + 1 + i, later)
    progress(1.0)
    return Contest(task, tuple(entries))


def _named(models: Sequence[Spec | None] | Mapping[str, Spec | None]) -> dict[str, Spec | None]:
    if isinstance(models, Spec) or models is None or isinstance(models, str):
        raise InvalidParameter(
            f"contest(models={models!r}): models must be a list of at least two models, or a dict of them by name; for "
            "one model alone use predict."
        )
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        given = list(models)
        short = [_name(model) for model in given]
        # where two short names coincide both models are named in full
        names = [n if short.count(n) == 1 else repr(m) for n, m in zip(short, given, strict=True)]
        named = dict(zip(names, given, strict=True))
        if len(named) < len(given):
            twice = next(n for n in names if names.count(n) > 1)
            raise InvalidParameter(f"contest(models=...): {twice} is given twice; models must be distinct.")
    bad = next((m for m in named.values() if m is not None and (not isinstance(m, Spec) or m.family != "model")), None)
    if bad is not None:
        hint = f"{bad.__name__}()" if isinstance(bad, type) else "KeyValueAttention(Softmax())"
        raise InvalidParameter(
            f"contest(models=[{bad!r}, ...]): every entry must be a model such as {hint}, or None for the "
            "Bayes-optimal predictor."
        )
    if sum(model is not None for model in named.values()) < 1 or len(named) < 2:
        raise InvalidParameter(f"contest(models=...): {len(named)} given; a contest takes at least two, one a model.")
    return named


def _name(model: Any) -> str:
    """Return a short name: of the activation where there is one."""
    if model is None:
        return BAYES
    text = repr(getattr(model, "activation", model))
    return text.removesuffix("()")


def _learners(learner: Spec | Sequence[Spec], common: bool | None) -> list[Spec]:
    asked = [learner] if isinstance(learner, Spec) else list(learner)
    if not asked or not all(isinstance(one, Spec) and one.family == "learner" for one in asked):
        raise InvalidParameter(
            f"contest(learner={learner!r}): learner must be a learner such as Ridge(6, 'optimal') or Population(), or "
            "a list of them."
        )
    if common is None:
        return asked
    for one in asked:
        if not isinstance(one, Ridge) or not isinstance(one.lam, str):
            raise InvalidParameter(
                f"contest({one!r}, common={common}): common goes with Ridge(alpha, 'optimal') (it asks for one best "
                "penalty on key and value instead of two); leave it out."
            )
    return [one.replace(common=common) for one in asked]


def _question(task: Spec, model: Spec | None, learner: Spec) -> tuple[Spec, Spec | None, Spec]:
    """Return the question of an entry; without a model it is the Bayes-optimal one with as many samples."""
    if model is not None:
        return task, model, learner
    alpha = learner.alpha if isinstance(learner, Ridge) else None
    if not isinstance(learner, (Ridge, Population, BayesOptimal)):
        raise InvalidParameter(f"contest(models=[None, ...]): there is no Bayes-optimal counterpart of {learner!r}.")
    return task, None, learner if isinstance(learner, BayesOptimal) else BayesOptimal(alpha)


def _predicted(
    questions: Sequence[tuple[Spec, Spec | None, Spec]], seed: int, tol: float | None, progress: Progress
) -> list[Prediction]:
    """Return the predictions, continued from one to the next where a rule for curves covers them."""
    if len(questions) > 1:
        keys = {static_key(*question) for question in questions}
        if len(keys) == 1 and None not in keys:
            return predict_curves([questions], seed=seed, tol=tol, progress=progress)[0]
    found = []
    for i, question in enumerate(questions):

        def share(done: float, i: int = i) -> None:
            progress((i + done) / len(questions))

        found.append(predict(*question, seed=seed, tol=tol, throw=False, progress=share))
    return found


def _trained(entry: Entry, d: int, repeats: int, samples: int, seed: int, progress: Progress) -> Entry:
    """Return the entry with its measurement at the penalties that the theory chose, where its prediction was solved."""
    p = entry.prediction
    if not is_resolved(p):
        return entry
    given = p.overlaps if isinstance(p.learner, Population) and isinstance(p.overlaps, Overlaps) else None
    specs = cast("tuple[Spec, Spec | None, Spec]", p.resolved or (p.task, p.model, p.learner))
    measured: Measurement = simulate(
        *specs, d=d, repeats=repeats, samples=samples, seed=seed, overlaps=given, progress=progress
    )
    return entry.measured(measured)

"""The first screen: the risk of a model at its own best penalty, and around that penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.reading import Reader, finite

ALPHAS = 0.01, 1000.0
"""Samples over d that may be asked for."""

FACTORS = 1e-4, 1e4
"""Multiples of a penalty that may be asked for."""


@dataclass(frozen=True)
class Best:
    """A model at its own best penalties, at each of some alphas; the model None is the Bayes-optimal predictor.

    Each point is what `ndl.predict(task, model, ndl.Ridge(alpha, "optimal", common=common))` says.
    """

    task: Any
    model: Any
    alphas: tuple[float, ...]
    common: bool

    @classmethod
    def read(cls, reader: Reader) -> Best:
        task, model = reader.spec("task", "task"), reader.spec("model", "model")
        return cls(task, model, reader.numbers("alphas", *ALPHAS, most=64), reader.flag("common", False))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        for i, alpha in enumerate(self.alphas):
            learner = ndl.BayesOptimal(alpha) if self.model is None else ndl.Ridge(alpha, "optimal", common=self.common)
            found = ndl.predict(self.task, self.model, learner, throw=False, progress=False)
            emit({"event": "point", "alpha": alpha, **summary(found)})
            emit({"event": "progress", "done": (i + 1) / len(self.alphas)})


@dataclass(frozen=True)
class Penalties:
    """A model at multiples of given penalties, at one alpha: what `ndl.Ridge(alpha, lam)` says at each."""

    task: Any
    model: Any
    alpha: float
    lam: tuple[float, ...]
    factors: tuple[float, ...]

    @classmethod
    def read(cls, reader: Reader) -> Penalties:
        task, model = reader.spec("task", "task"), reader.spec("model", "model")
        if model is None:
            raise InvalidParameter("the Bayes-optimal predictor has no penalty; ask for a model.")
        alpha, lam = reader.number("alpha", *ALPHAS), reader.numbers("lam", 0.0, 1e6, most=2)
        return cls(task, model, alpha, lam, reader.numbers("factors", *FACTORS, most=64))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl
        from needlepoint.theory.curves import predict_curves, static_key

        learners = [ndl.Ridge(self.alpha, scaled(self.lam, factor)) for factor in self.factors]
        questions: list[Any] = [(self.task, self.model, learner) for learner in learners]
        if static_key(*questions[0]) is not None:

            def share(done: float) -> None:
                emit({"event": "progress", "done": done})

            found = predict_curves([questions], progress=share)[0]
            for factor, prediction in zip(self.factors, found, strict=True):
                emit({"event": "point", "factor": factor, **summary(prediction)})
            return
        for i, (factor, question) in enumerate(zip(self.factors, questions, strict=True)):
            prediction = ndl.predict(*question, throw=False, progress=False)
            emit({"event": "point", "factor": factor, **summary(prediction)})
            emit({"event": "progress", "done": (i + 1) / len(questions)})


def scaled(lam: Sequence[float], factor: float) -> Any:
    """Return penalties times a factor, as `Ridge` takes them."""
    found = [float(x * factor) for x in lam]
    return tuple(found) if len(found) > 1 else found[0]


def summary(prediction: Any) -> dict[str, Any]:
    """Return what a point of a curve shows: risk with its error, penalties, and whether it is to be trusted."""
    chosen = prediction.resolved[2] if prediction.resolved else prediction.learner
    lam = getattr(chosen, "lam", None)
    metrics = {name: [finite(e.value), finite(e.error)] for name, e in prediction.metrics.items()}
    return {
        "risk": metrics.get("risk"),
        "excess": metrics.get("excess_risk"),
        "lam": None if lam is None or isinstance(lam, str) else list(lam) if isinstance(lam, tuple) else [lam],
        "status": prediction.status.name,
        "trusted": bool(prediction.ok and prediction.stable is not False),
        "doubt": dict(prediction.doubt),
        "notes": list(prediction.notes),
    }

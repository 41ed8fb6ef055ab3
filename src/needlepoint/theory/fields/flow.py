"""Gradient flow and the limit of online SGD for any field law and output: overlaps that follow a differential
equation."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import integrate

from needlepoint.core.answers.trajectories import summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import as_matrices, result_names
from needlepoint.core.results import Prediction, Trajectory
from needlepoint.core.status import Status
from needlepoint.learners import GradientFlow, OnlineSGD, record_steps
from needlepoint.losses import Loss, Square
from needlepoint.models.fields import FieldModel
from needlepoint.tasks.sequence import SequenceTask, noise_var_of
from needlepoint.theory.fields.declared import check_declarations
from needlepoint.theory.fields.rates import Pull

_RTOL = 1e-6
_DIVERGED = 1e6  # an overlap beyond this has left every minimum


@rule("predict", SequenceTask, FieldModel, GradientFlow)
def predict_flow(
    task: SequenceTask, model: FieldModel, learner: GradientFlow, options: PredictionOptions
) -> Prediction:
    r"""eq:field-flow. Return the path of $\dot w = -\frac12\nabla R$ in the overlaps; exact at every d."""
    times = learner.record_times()
    half = learner.loss.metric_scale / 2
    return _told(task, model, learner, options, times, times, (half, 0.0), exact=True)


@rule("predict", SequenceTask, FieldModel, OnlineSGD)
def predict_sgd(task: SequenceTask, model: FieldModel, learner: OnlineSGD, options: PredictionOptions) -> Prediction:
    r"""eq:field-sgd. Return the path of online SGD in the limit of large d: the flow at the speed $\eta = 2d\,lr$ plus
    $\eta^2/B$ times what the squares of single steps add to Q."""
    if learner.schedule > 0:
        raise NoTheory(f"no rule for OnlineSGD(schedule={learner.schedule:g}) with {model!r}; schedule=0 has one.")
    marks = np.array(record_steps(learner.steps, learner.record_every))
    assert learner.d is not None
    speed = learner.d * learner.lr * learner.loss.metric_scale
    return _told(
        task, model, learner, options, marks, marks / learner.d, (speed, speed**2 / learner.batch), exact=False
    )


def _told(
    task: SequenceTask,
    model: FieldModel,
    learner: GradientFlow | OnlineSGD,
    options: PredictionOptions,
    marks: np.ndarray,
    times: np.ndarray,
    factors: tuple[float, float],
    *,
    exact: bool,
) -> Prediction:
    name = type(learner).__name__
    if getattr(model, "unit_norm", False):
        raise NoTheory(f"no rule for {name} with {model!r}; unit_norm=False has one.")
    if not learner.given:
        raise InvalidParameter(
            f"{name}(start={learner.start!r}): for {type(model).__name__} give the start as FieldOverlaps({{...}})."
        )
    check_declarations(task, model, learner.loss)
    pull = Pull(task, model, learner.loss, options.seed)
    names = result_names(model.labels, task.teachers)
    shape = (len(model.labels), len(task.teachers))
    paths, errors = [], []
    for start in learner.given:
        M, Q = as_matrices(start, model.labels, task.teachers)
        every = []
        for i in range(pull.scrambles):
            every.append(_path(pull, i, M, Q, times, factors, learner.loss))
            options.progress((len(paths) + (i + 1) / pull.scrambles) / len(learner.given))
        rows = np.stack(every)
        paths.append(rows.mean(axis=0))
        errors.append(3 * rows[..., -1].std(axis=0, ddof=1) / np.sqrt(pull.scrambles))
    together = np.stack(paths, axis=1)  # (overlaps and loss, runs, records)
    noise = noise_var_of(task) if isinstance(learner.loss, Square) else None
    offset = 0.0 if noise is None or not isinstance(learner.loss, Square) else learner.loss.weight * noise
    excess = learner.loss.metric_scale * together[-1] - offset
    overlaps = dict(zip(names, _named(together[:-1], shape), strict=True))
    trajectory = Trajectory(marks, np.ones(len(marks)), overlaps, excess)
    worst = np.max(errors, axis=0)
    numerical = dict(zip(names, _named(worst[:-1, None, None], shape)[:, 0, 0], strict=True))
    numerical["excess_risk"] = learner.loss.metric_scale * float(worst[-1])
    summary = summarise(trajectory, offset, gauge=False, numerical=numerical)
    if options.tol and summary["status"].ok and max(numerical.values()) > options.tol:
        summary["status"] = Status.NOISE_LIMITED
    return Prediction(task, model, learner, **summary, resolved=(task, model, learner), exact=exact, seed=options.seed)


def _named(flat: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the overlaps in the order of their names, from M and Q that are flattened one after the other."""
    P, S = shape
    M, Q = flat[: P * S], flat[P * S :].reshape(P, P, *flat.shape[1:])
    pairs = [Q[i, j] for i in range(P) for j in range(i + 1, P)]
    return np.stack([*M, *(Q[i, i] for i in range(P)), *pairs])


def _path(
    pull: Pull,
    scrambling: int,
    M: np.ndarray,
    Q: np.ndarray,
    times: np.ndarray,
    factors: tuple[float, float],
    loss: Loss,
) -> np.ndarray:
    """Return M, Q (flattened) and the mean loss at all times, (P S + P P + 1, records); NaN from where it diverged."""
    (P, S), (drift, diffusion) = M.shape, factors

    def apart(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        M, Q = state[: P * S].reshape(P, S), state[P * S :].reshape(P, P)
        return M, (Q + Q.T) / 2

    def motion(_: float, state: np.ndarray) -> np.ndarray:
        rates = pull.at(*apart(state), scrambling)
        return np.concatenate([np.ravel(drift * rates.M), np.ravel(drift * rates.Q + diffusion * rates.noise)])

    start = np.concatenate([M.ravel(), Q.ravel()])
    path = np.full((len(start) + 1, len(times)), np.nan)
    path[:-1, 0] = start
    solver: integrate.OdeSolver = integrate.LSODA(motion, 0.0, start, times[-1], rtol=_RTOL, atol=1e-2 * _RTOL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a vanishing step size, where a path diverges in finite time
        while solver.status == "running":
            before = solver.t
            solver.step()
            if solver.status == "failed" or not np.max(np.abs(solver.y)) < _DIVERGED:
                break
            passed = (times > before) & (times <= solver.t)
            dense: Callable[[np.ndarray], np.ndarray] = solver.dense_output()
            path[:-1, passed] = dense(times[passed])
    for i in range(len(times)):
        if np.isfinite(path[0, i]):
            path[-1, i] = float(pull.at(*apart(path[:-1, i]), scrambling).loss)
    return path

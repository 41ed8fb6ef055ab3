"""Gradient flow and the limit of online SGD with free norms: seven overlaps that follow a differential equation."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import integrate

from needlepoint.channels import elementwise
from needlepoint.core.answers.trajectories import named, summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import SEVEN
from needlepoint.core.results import Prediction, Trajectory
from needlepoint.core.routes import ONE_DIMENSION, SAMPLED, route, the
from needlepoint.core.status import Status
from needlepoint.learners import GradientFlow, OnlineSGD, record_steps
from needlepoint.losses import squared_error
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR
from needlepoint.theory.location.dynamics.accuracy import ACCURACY
from needlepoint.theory.location.dynamics.elementwise_rates import elementwise_rates, token_rule
from needlepoint.theory.location.dynamics.rates import Rates, location_rates
from needlepoint.theory.location.dynamics.starts import start_seven
from needlepoint.theory.location.moments.score_nodes import SCRAMBLES, score_rules

_OFF, _ON = [2, 3, 4], [0, 1, 5, 6]  # which overlaps vanish on the manifold, and which do not

Field = Callable[[np.ndarray], Rates]


@rule("predict", SpikedSLR, KeyValueAttention, GradientFlow, when=squared_error)
@rule("predict", MaxSLR, KeyValueAttention, GradientFlow, when=squared_error)
def predict_flow(
    task: SingleLocation, model: KeyValueAttention, learner: GradientFlow, options: PredictionOptions
) -> Prediction:
    r"""eq:location-flow. Return the path of gradient flow in seven overlaps; exact at every d.

    $\dot k = -\frac12\nabla_kR$ and $\dot v = -\frac12\nabla_vR$.
    """
    require_free_norms(task, model, learner)
    times = learner.record_times()
    paths = _integrate(task, model, learner, options, times, (1.0, 0.0))
    return _told(task, model, learner, options, times, paths, exact=True)


@rule("predict", MaxSLR, KeyValueAttention, OnlineSGD, when=squared_error)
def predict_sgd_limit(
    task: SingleLocation, model: KeyValueAttention, learner: OnlineSGD, options: PredictionOptions
) -> Prediction:
    r"""eq:location-sgd. Return the path of online SGD in the limit of large d, in seven overlaps.

    With steps of $\ell = \eta/(2d)$ and time steps/d it is $\eta$ times the flow plus $\eta^2/B$ times what the squares
    of single steps add to $\rho$, $q_k$ and $q_v$.
    """
    require_free_norms(task, model, learner)
    if learner.schedule > 0:
        raise NoTheory(f"no rule for OnlineSGD(schedule={learner.schedule:g}) with {model!r}; schedule=0 has one.")
    d, marks = learner.d, np.array(record_steps(learner.steps, learner.record_every))
    assert d is not None
    eta = 2 * d * learner.lr
    paths = _integrate(task, model, learner, options, marks / d, (eta, eta**2 / learner.batch))
    return _told(task, model, learner, options, marks, paths, exact=False)


def require_free_norms(task: SingleLocation, model: KeyValueAttention, learner: Any) -> None:
    """Raise unless the model has free norms and given constants: both rules here are for these."""
    name = type(learner).__name__
    if model.unit_norm:
        sphere = "ProjectedDescent" if isinstance(learner, GradientFlow) else "OnlineSGD"
        raise NoTheory(
            f"no rule for {name} with {model!r} on {type(task).__name__}; the nearest are "
            f"predict({type(task).__name__}, KeyValueAttention(...), {name}) with unit_norm=False, and "
            f"predict(SpikedSLR, KeyValueAttention(Erf(...), unit_norm=True), {sphere})."
        )
    if model.free_constants():
        raise NoTheory(
            f"{model.activation!r}: {model.free_constants()[0]} is None and {name} does not choose it; give its value."
        )


# --- the vector field ---------------------------------------------------------------------------


_rates = jax.jit(location_rates, static_argnums=(0, 1))


def fields(
    task: SingleLocation, model: KeyValueAttention, seed: int, on_manifold: bool = False
) -> tuple[list[Field], bool]:
    """Return the rates as functions of seven overlaps, and whether they are sampled.

    If sampled, there is one function for each scrambling; otherwise one by a fine and one by a coarse rule.
    """
    return the("rates", activation=model.activation)(task, model, seed, on_manifold)


@route("rates", name="by token", cost=ONE_DIMENSION, form="elementwise")
def fields_by_token(
    task: SingleLocation, model: KeyValueAttention, seed: int, on_manifold: bool
) -> tuple[list[Field], bool]:
    activation, c = type(model.activation), elementwise.constants(task, model)
    lengths, shares = np.array(task.length_law).T

    def by_token(coarseness: int) -> Field:
        kind, nodes = token_rule(task, coarseness)
        return lambda seven: elementwise_rates(
            kind, activation, lengths, shares, {"task.relevant_std": 1.0, **c}, seven, nodes
        )

    return [by_token(1), by_token(2)], False


@route("rates", name="by scores", cost=SAMPLED)
def fields_by_scores(
    task: SingleLocation, model: KeyValueAttention, seed: int, on_manifold: bool
) -> tuple[list[Field], bool]:
    activation, c = type(model.activation), elementwise.constants(task, model)
    rules = [(p, score_rules(task, activation, n, seed, on_manifold)) for n, p in task.length_law]
    sampled = any(r.sampled for _, r in rules)

    def mixed(i: int) -> Field:
        # if another length is sampled, a length that has product rules uses the fine one
        chosen = [(p, r.rules[i if r.sampled or not sampled else 0]) for p, r in rules]

        def field(seven: np.ndarray) -> Rates:
            parts = [_rates(type(task), activation, c, seven, *nodes).times(p) for p, nodes in chosen]
            return functools.reduce(lambda a, b: a + b, parts)

        return field

    return [mixed(i) for i in range(SCRAMBLES if sampled else 2)], sampled


# --- paths --------------------------------------------------------------------------------------


class Paths(NamedTuple):
    """Overlaps (7, runs, records), excess risks (runs, records), and errors at the end (None for random starts)."""

    overlaps: np.ndarray
    excess_risk: np.ndarray
    numerical: dict[str, float] | None


def _integrate(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: GradientFlow | OnlineSGD,
    options: PredictionOptions,
    times: np.ndarray,
    factors: tuple[float, float],
) -> Paths:
    starts = start_seven(learner, options.seed).T
    on_manifold = not np.any(starts[:, _OFF])
    found, sampled = fields(task, model, options.seed, on_manifold)
    done = 0

    def run(field: Field, start: np.ndarray, rtol: float, of: int) -> np.ndarray:
        nonlocal done
        path = _path(field, start, times, factors, rtol)
        done += 1
        options.progress(done / (of * len(starts)))
        return path

    if not learner.given:
        # the spread over random starts is the error; it contains that of sampling, as scramblings take turns
        turns = len(found) if sampled else 1
        best = [run(found[i % turns], s, ACCURACY.sampled, 1) for i, s in enumerate(starts)]
        return Paths(*_split(best), numerical=None)
    if not sampled:
        pairs = [(run(found[0], s, ACCURACY.tight, 2), run(found[1], s, ACCURACY.loose, 2)) for s in starts]
        best = [a for a, _ in pairs]
        errors = [np.abs(a - b)[:, -1] for a, b in pairs]
        return Paths(*_split(best), numerical=_errors(best, errors))
    groups = [np.stack([run(f, s, ACCURACY.sampled, SCRAMBLES) for f in found]) for s in starts]
    best = [g.mean(axis=0) for g in groups]
    errors = [3 * g[..., -1].std(axis=0, ddof=1) / np.sqrt(SCRAMBLES) for g in groups]
    return Paths(*_split(best), numerical=_errors(best, errors))


def _split(paths: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    together = np.stack(paths, axis=1)
    return together[:7], together[7]


def _errors(paths: Sequence[np.ndarray], errors: Sequence[np.ndarray]) -> dict[str, float]:
    """Return for each overlap and the excess risk the largest error of any start, plus rounding."""
    sizes = np.max([np.abs(p[:, -1]) for p in paths], axis=0)
    # an overlap that is exactly zero, as three of them are on the manifold, has no error
    rounding = np.where(sizes > 0, 1e-13 * (1 + sizes), 0.0)
    return dict(zip((*SEVEN, "excess_risk"), np.max(errors, axis=0) + rounding, strict=True))


def _path(field: Field, start: np.ndarray, times: np.ndarray, factors: tuple[float, float], rtol: float) -> np.ndarray:
    """Return the overlaps and the excess risk, (8, records); NaN from where the path diverged."""
    drift, diffusion = factors
    # on the manifold three overlaps stay at zero by symmetry: their rates are rounding and are left out
    moving = np.arange(7) if np.any(start[_OFF]) else np.array(_ON)

    def whole(part: np.ndarray) -> np.ndarray:
        seven = np.zeros((7, *part.shape[1:]))
        seven[moving] = part
        return seven

    def motion(_: float, part: np.ndarray) -> np.ndarray:
        rates = field(whole(part))
        return (drift * np.asarray(rates.flow) + diffusion * np.asarray(rates.noise))[moving]

    path = np.full((8, len(times)), np.nan)
    path[:7, 0] = start
    solver = integrate.LSODA(motion, 0.0, start[moving], times[-1], rtol=rtol, atol=1e-2 * rtol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a vanishing step size, where a path diverges in finite time
        while solver.status == "running":
            before = solver.t
            solver.step()
            if solver.status == "failed" or not np.max(np.abs(solver.y)) < ACCURACY.diverged:
                break
            passed = (times > before) & (times <= solver.t)
            path[:7, passed] = whole(solver.dense_output()(times[passed]))
    path[:7] = _existing(path[:7])
    path[7] = [float(field(seven).excess_risk) if np.isfinite(seven[0]) else np.nan for seven in path[:7].T]
    return path


def _existing(seven: np.ndarray) -> np.ndarray:
    """Return the overlaps (7, records) with negative Gram eigenvalues clipped to 0, so that vectors k and v exist.

    The Gram matrix is that of the parts of k and v orthogonal to the teachers; where such a part vanishes, the error of
    the integrator can make its square negative.
    """
    kappa, nu, theta, eta, rho, key_sq, value_sq = seven
    along = np.stack([np.stack([kappa, eta], axis=-1), np.stack([theta, nu], axis=-1)], axis=-2)
    on_teachers = along @ np.swapaxes(along, -1, -2)
    gram = np.stack([np.stack([key_sq, rho], axis=-1), np.stack([rho, value_sq], axis=-1)], axis=-2)
    beyond = gram - on_teachers
    beyond = np.where(np.isfinite(beyond), beyond, 0.0)
    values, vectors = np.linalg.eigh(beyond)
    missing = (vectors * np.minimum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    gram = gram - missing
    return np.stack([kappa, nu, theta, eta, gram[..., 0, 1], gram[..., 0, 0], gram[..., 1, 1]])


def _told(
    task: SingleLocation,
    model: KeyValueAttention,
    learner: GradientFlow | OnlineSGD,
    options: PredictionOptions,
    marks: np.ndarray,
    paths: Paths,
    *,
    exact: bool,
) -> Prediction:
    scale = getattr(model.activation, "scale", 1.0)
    trajectory = Trajectory(marks, np.full(len(marks), scale), named(paths.overlaps), paths.excess_risk)
    summary = summarise(
        trajectory, task.noise_var, gauge=model.activation.odd and not learner.given, numerical=paths.numerical
    )
    if options.tol and paths.numerical and summary["status"].ok and max(paths.numerical.values()) > options.tol:
        summary["status"] = Status.NOISE_LIMITED
    resolved = (task, model, learner)
    return Prediction(task, model, learner, **summary, resolved=resolved, exact=exact, seed=options.seed)

"""Projected gradient descent on the population risk, exactly, on five numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels.branches import classify
from needlepoint.core.answers.trajectories import named, scale_at, scale_of_step, summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import FIVE
from needlepoint.core.results import Prediction, Trajectory
from needlepoint.core.routes import routes
from needlepoint.learners import ProjectedDescent, record_steps
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.arrays import Array
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.curves import Curves, Solver, padded, reshaped
from needlepoint.theory.location.dynamics.accuracy import ACCURACY
from needlepoint.theory.location.dynamics.starts import start_overlaps
from needlepoint.theory.location.erf import closed_form as erf_closed_form


def require_spheres(model: KeyValueAttention, learner: Any) -> None:
    """Raise unless there is a closed form on unit spheres with given constants, as the rules here need."""
    if not routes("risk on spheres", model=model):
        raise NoTheory(
            f"no rule for {type(learner).__name__} with {model!r}; the nearest is "
            "KeyValueAttention(Erf(...), unit_norm=True)."
        )
    if model.free_constants():
        raise NoTheory(
            f"{model.activation!r}: {model.free_constants()[0]} is None and {type(learner).__name__} does not choose "
            "it; give its value."
        )


@rule("predict", SpikedSLR, KeyValueAttention, ProjectedDescent)
def predict_descent(
    task: SpikedSLR, model: KeyValueAttention, learner: ProjectedDescent, options: PredictionOptions
) -> Prediction:
    """Return the path of the recursion eq:pgd-closure; exact at every d."""
    return _together([(task, model, learner)], options)[0]


@rule("predict_curves", SpikedSLR, KeyValueAttention, ProjectedDescent)
def descent_curves(task: SpikedSLR, model: KeyValueAttention, learner: ProjectedDescent) -> Solver | None:
    """Return the solver that puts the runs of all questions on one array axis, or None where it does not apply."""
    covered = routes("risk on spheres", model=model) and not model.free_constants()
    return _solve if covered else None


def _solve(curves: Curves, options: PredictionOptions) -> list[list[Prediction]]:
    asked: list[Any] = [question for curve in curves for question in curve]
    most = max(1, ACCURACY.runs // max(1, len(start_overlaps(asked[0][2], options.seed)[0])))
    answers = []
    for i in range(0, len(asked), most):

        def progress(done: float, i: int = i, count: int = len(asked[i : i + most])) -> None:
            options.progress((i + done * count) / len(asked))

        answers += _together(asked[i : i + most], PredictionOptions(options.seed, options.tol, progress))
    return reshaped(curves, answers)


def _together(
    asked: Sequence[tuple[SpikedSLR, KeyValueAttention, ProjectedDescent]], options: PredictionOptions
) -> list[Prediction]:
    """Return the prediction of each question; all must have as many runs, steps and records as the first."""
    for _, model, learner in asked:
        require_spheres(model, learner)
    starts = [start_overlaps(learner, options.seed) for _, _, learner in asked]
    runs, given = starts[0].shape[1], bool(asked[0][2].given)
    if given:
        starts = [np.concatenate([five, five * ACCURACY.shadow], axis=1) for five in starts]
    width = starts[0].shape[1]
    count = padded(len(asked), 2) if len(asked) > 1 else 1
    last = [*range(len(asked)), *[len(asked) - 1] * (count - len(asked))]  # the last question is repeated
    laws = [{**erf_closed_form.constants(*q[:2]), "lr": q[2].lr, "schedule": q[2].schedule} for q in asked]
    # with one question all runs share its numbers, which stay scalars: that is faster
    c = {name: np.repeat([laws[i][name] for i in last], width) for name in laws[0]} if len(asked) > 1 else laws[0]
    five = np.concatenate([starts[i] for i in last], axis=1)
    steps, marks = asked[0][2].steps, record_steps(asked[0][2].steps, asked[0][2].record_every)
    states, risks = [five], [np.asarray(_first_risk(c, five))]
    state = jnp.asarray(five)
    for i in range(0, len(marks) - 1, ACCURACY.records):
        chunk = np.diff(marks[i : i + ACCURACY.records + 1])
        lengths = np.zeros(ACCURACY.records, dtype=np.int64)
        lengths[: len(chunk)] = chunk
        state, (chunk_states, chunk_risks) = _advance(c, state, float(marks[i]), lengths)
        states += list(np.asarray(chunk_states)[: len(chunk)])
        risks += list(np.asarray(chunk_risks)[: len(chunk)])
        options.progress(marks[i + len(chunk)] / steps)
    history, risk = np.stack(states, axis=-1), np.stack(risks, axis=-1)  # (5, runs, records), (runs, records)
    parts = (slice(i * width, (i + 1) * width) for i in range(len(asked)))
    return [_told(*q, options.seed, marks, history[:, p], risk[p], runs) for q, p in zip(asked, parts, strict=True)]


def _told(
    task: SpikedSLR,
    model: KeyValueAttention,
    learner: ProjectedDescent,
    seed: int,
    marks: list[int],
    history: np.ndarray,
    risk: np.ndarray,
    runs: int,
) -> Prediction:
    """Return the prediction from the recorded runs of one question; the second copies of its runs may follow them."""
    activation, given = model.activation, bool(learner.given)
    numerical = _shadow_errors(history, risk, runs) if given else None
    history, risk = history[:, :runs], risk[:runs]
    scales = scale_at(model.constants()["scale"], learner.schedule, marks)
    final = model.replace(activation=activation.replace(scale=float(scales[-1])))
    ends = classify(task, final, history[:, :, -1])
    trajectory = Trajectory(np.array(marks), scales, named(history), risk, ends)
    summary = summarise(trajectory, task.noise_var, gauge=activation.odd and not given, numerical=numerical)
    if numerical and max(numerical.values()) > 1e-6:
        summary["notes"] += ("the path amplifies rounding (a chaotic transient): its error is not small.",)
    branch = ends[0] if len(set(ends)) == 1 else None
    return Prediction(
        task, model, learner, **summary, branch=branch, resolved=(task, model, learner), exact=True, seed=seed
    )


def _shadow_errors(history: np.ndarray, risk: np.ndarray, runs: int) -> dict[str, float]:
    """Return errors by name: eight times the final distance between a run and its second copy, plus rounding."""
    apart = np.abs(history[:, :runs, -1] - history[:, runs:, -1]).max(axis=1)
    errors = {name: 8 * float(x) + 1e-13 for name, x in zip(FIVE, apart, strict=True)}
    risk_apart = float(np.abs(risk[:runs, -1] - risk[runs:, -1]).max())
    errors["excess_risk"] = 8 * risk_apart + 1e-13 * max(1.0, float(np.abs(risk[:runs, -1]).max()))
    return errors


_first_risk = jax.jit(erf_closed_form.unit_excess_risk)


@jax.jit
def _advance(c: dict[str, Any], five: Any, done: Any, lengths: Any) -> Any:
    """Return the last state, and the states (records, 5, runs) and risks (records, runs) after `lengths` steps each.

    The risk is that at the scale of the last step made. The numbers in `c`, which include lr and schedule, are scalars
    or arrays over runs.
    """
    scale, lr, schedule = c["scale"], c["lr"], c["schedule"]

    def record(carry: tuple[Any, Any], length: Any) -> tuple[Any, Any]:
        five, done = carry

        def step(i: Array, five: Array) -> Array:
            return descent_step({**c, "scale": scale_of_step(scale, schedule, done + i)}, five, lr)

        five = jax.lax.fori_loop(0, length, step, five)
        done = done + length
        at = {**c, "scale": scale_of_step(scale, schedule, jnp.maximum(done - 1, 0))}
        return (five, done), (five, erf_closed_form.unit_excess_risk(at, five))

    (five, _), records = jax.lax.scan(record, (five, done), lengths)
    return five, records


def descent_step(c: dict[str, Any], five: Any, lr: Any) -> Any:
    r"""eq:pgd-closure. Return the five overlaps (5, runs) after one step of projected descent.

    $k^+ = \mathrm{normalize}(k - \ell(I - kk^\top)\nabla_kR)$ and the same for $v$, written for overlaps:
    $\nabla_kR = R_\kappa k^* + R_\eta v^* + R_\rho v$ and $\nabla_vR = R_\nu v^* + R_\theta k^* + R_\rho k$, so the new
    overlaps are sums of products of the old overlaps and the five partial derivatives.
    """
    # notation: R_x the partial derivative in x, r = R_rho; A = 1 + lr k . grad_k R, B = 1 + lr v . grad_v R
    gradient = jax.grad(lambda o: jnp.sum(erf_closed_form.unit_excess_risk(c, o)))(five)
    kappa, nu, theta, eta, rho = five
    R_kappa, R_nu, R_theta, R_eta, r = gradient
    radial_k = R_kappa * kappa + R_eta * eta + r * rho
    radial_v = R_nu * nu + R_theta * theta + r * rho
    A, B = 1 + lr * radial_k, 1 + lr * radial_v
    square_k = R_kappa**2 + R_eta**2 + r**2 + 2 * r * (R_kappa * theta + R_eta * nu)
    square_v = R_nu**2 + R_theta**2 + r**2 + 2 * r * (R_nu * eta + R_theta * kappa)
    norm_k = jnp.sqrt(1 + lr**2 * (square_k - radial_k**2))
    norm_v = jnp.sqrt(1 + lr**2 * (square_v - radial_v**2))
    both = R_kappa * R_theta + R_eta * R_nu + r * (R_kappa * kappa + R_eta * eta + R_nu * nu + R_theta * theta)
    both = both + r**2 * rho
    k_on_grad_v = R_nu * eta + R_theta * kappa + r
    v_on_grad_k = R_kappa * theta + R_eta * nu + r
    return jnp.stack(
        [
            (A * kappa - lr * (R_kappa + r * theta)) / norm_k,
            (B * nu - lr * (R_nu + r * eta)) / norm_v,
            (B * theta - lr * (R_theta + r * kappa)) / norm_v,
            (A * eta - lr * (R_eta + r * nu)) / norm_k,
            (A * B * rho - lr * A * k_on_grad_v - lr * B * v_on_grad_k + lr**2 * both) / (norm_k * norm_v),
        ]
    )

"""Projected gradient descent with d-dimensional vectors and an automatic gradient of the risk."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from needlepoint.channels import elementwise
from needlepoint.channels.branches import classify
from needlepoint.core.answers.trajectories import named, scale_at, scale_of_step, summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import FIVE
from needlepoint.core.results import Measurement, Trajectory
from needlepoint.core.routes import route, routes
from needlepoint.learners import ProjectedDescent, record_steps
from needlepoint.models.activations import Activation, Erf
from needlepoint.models.attention import KeyValueAttention
from needlepoint.simulation.location.vectors import starting_vectors
from needlepoint.tasks.single_location import SpikedSLR


@rule("simulate", SpikedSLR, KeyValueAttention, ProjectedDescent)
def simulate_descent(
    task: SpikedSLR, model: KeyValueAttention, learner: ProjectedDescent, options: SimulationOptions
) -> Measurement:
    """eq:pgd. Return the measured trajectories of vectors in R^d. The risk is eq:elementwise-risk by quadrature and not
    by the closed forms, so that it is an independent check."""
    known = routes("quadrature on spheres", model=model)
    if not known:
        raise NoTheory(
            f"no simulation of ProjectedDescent with {model!r}; the nearest is "
            "KeyValueAttention(Erf(...), unit_norm=True)."
        )
    activation = type(model.activation)
    vectors = starting_vectors(learner, options.d, options.repeats, options.seed)
    law = elementwise.constants(task, model)
    nodes = known[0].function(task, model)
    state = tuple(jnp.asarray(x) for x in vectors)
    marks = record_steps(learner.steps, learner.record_every)
    history, risks, done = [vectors.five()], [np.asarray(_risk(activation, nodes, law, state))], 0
    for mark in marks[1:]:
        k, v = _advance(activation, nodes, law, state, float(done), mark - done, learner.lr, learner.schedule)
        state, done = (*state[:2], k, v), mark
        vectors = vectors._replace(k=np.asarray(k), v=np.asarray(v))
        history.append(vectors.five())
        at = {**law, "scale": float(scale_at(law["scale"], learner.schedule, mark))}
        risks.append(np.asarray(_risk(activation, nodes, at, state)))
        options.progress(done / learner.steps)
    risk = np.stack(risks, axis=-1)
    numerical = rounding_errors(history[-1], risk[:, -1], options.repeats) if learner.given else None
    return trajectory_measurement(task, model, learner, options, marks, history, risk, numerical)


def rounding_errors(five: np.ndarray, risk: np.ndarray, repeats: int) -> dict[str, float]:
    """Return an error for every overlap and the risk: eight times the spread of a start's repeats, plus 1e-12 of the
    size. Deterministic runs from the same start differ by rounding alone."""
    rows = np.concatenate([five, risk[None]]).reshape(6, -1, repeats)
    spread = np.ptp(rows, axis=2).max(axis=1)
    sizes = np.maximum(1.0, np.abs(rows).max(axis=(1, 2)))
    return {
        name: float(8 * s + 1e-12 * size) for name, s, size in zip((*FIVE, "excess_risk"), spread, sizes, strict=True)
    }


@route("quadrature on spheres", activation=Erf, when=lambda model: model.unit_norm)
def erf_nodes(task: SpikedSLR, model: KeyValueAttention) -> int:
    return quadrature_nodes(model.constants()["scale"] * max(1.0, task.relevant_std))


def quadrature_nodes(steepness: float) -> int:
    """Return how many nodes integrate erf(g x)^2 to rounding: about 31 sqrt(1 + 4 g^2), see trapezoid_rule, rounded up
    to a power of two."""
    wanted = max(64.0, 31 * np.sqrt(1 + 4 * steepness**2))
    if wanted > 2**16:
        raise InvalidParameter(
            f"a steepness of {steepness:.3g} (scale times spread) needs {wanted:.3g} quadrature nodes; "
            "descent with vectors goes up to about 1,000."
        )
    return int(2 ** np.ceil(np.log2(wanted)))


def trajectory_measurement(
    task: SpikedSLR,
    model: KeyValueAttention,
    learner: Any,
    options: SimulationOptions,
    marks: list[int],
    history: list[np.ndarray],
    risk: np.ndarray,
    numerical: dict[str, float] | None = None,
) -> Measurement:
    """Return a Measurement of the recorded overlaps, one (5, runs) per record, and risks (runs, records)."""
    activation = model.activation
    paths = np.stack(history, axis=-1)
    scales = scale_at(model.constants()["scale"], learner.schedule, marks)
    final = model.replace(activation=activation.replace(scale=float(scales[-1])))
    runs = paths.shape[1]
    ends = classify(task, final, paths[:, :, -1])
    trajectory = Trajectory(np.array(marks), scales, named(paths), risk, ends)
    return Measurement(
        task,
        model,
        learner,
        **summarise(
            trajectory,
            task.noise_var,
            gauge=activation.odd and not learner.given,
            starts=len(learner.given) or 1,
            numerical=numerical,
        ),
        branch=ends[0] if len(set(ends)) == 1 else None,
        d=options.d,
        repeats=runs,
        seed=options.seed,
    )


def _seven(k_star: Any, v_star: Any, k: Any, v: Any) -> tuple[Any, ...]:
    def dot(a: Any, b: Any) -> Any:
        return jnp.sum(a * b, axis=-1)

    return (dot(k, k_star), dot(v, v_star), dot(v, k_star), dot(k, v_star), dot(k, v), dot(k, k), dot(v, v))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _risk(activation: type[Activation], nodes: int, law: dict[str, Any], vectors: Any) -> Any:
    overlaps = _seven(*vectors)
    return elementwise.excess_risk(lambda scores: activation.weights(scores, law), law, overlaps, nodes)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _advance(
    activation: type[Activation],
    nodes: int,
    law: dict[str, Any],
    vectors: Any,
    done: Any,
    count: Any,
    lr: Any,
    schedule: Any,
) -> Any:
    r"""eq:pgd. Return k and v after `count` steps, (runs, d) each: $k^+ = \mathrm{normalize}(k - \ell(I -
    kk^\top)\nabla_kR)$, same for $v$, both gradients at the old point."""
    k_star, v_star, k, v = vectors

    def total(k: Any, v: Any, at: dict[str, Any]) -> Any:
        return jnp.sum(_risk(activation, nodes, at, (k_star, v_star, k, v)))

    def step(i: Any, weights: Any) -> Any:
        k, v = weights
        at = {**law, "scale": scale_of_step(law["scale"], schedule, done + i)}
        grad_k, grad_v = jax.grad(total, argnums=(0, 1))(k, v, at)
        return project(k, grad_k, lr), project(v, grad_v, lr)

    return jax.lax.fori_loop(0, count, step, (k, v))


def project(x: Any, gradient: Any, lr: Any) -> Any:
    """Return x after a step against the tangent part of the gradient, normalised to the unit sphere again."""
    tangent = gradient - jnp.sum(gradient * x, axis=-1, keepdims=True) * x
    moved = x - lr * tangent
    return moved / jnp.linalg.norm(moved, axis=-1, keepdims=True)

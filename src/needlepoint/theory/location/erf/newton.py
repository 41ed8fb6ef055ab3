"""Newton's method for the best key of erf attention, with exact derivatives, for many questions at once."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from needlepoint.models.activations import Erf
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.erf.accuracy import ACCURACY
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.moments.elementwise import elementwise_means


def form(task: type[SingleLocation], law: Any, free: Any, key: Any, key_sq: Any) -> Any:
    """Return (A, B) of eq:value-form for erf at one key; `law` is (constants of the question, winner's law)."""
    numbers, winner = law
    means = elementwise_means(Erf, task, 0, winner, numbers, free, key, key_sq)
    return weight_moments.on_manifold(numbers["label_var"], means)


class _State(NamedTuple):
    x: Any
    value: Any
    slope: Any
    curvature: Any
    radius: Any
    steep: Any
    steps: Any
    done: Any


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def newton(task: type[SingleLocation], names: tuple[str, ...], tilt: bool, law: Any, start: Any) -> Any:
    """Return for each question (first axis) the end of Newton's method: x, least risk over v, residual, value error,
    residual at the start, and whether it ended.

    x are changes of log |k|, of the angle to k* (if `tilt`) and of the constants in the units that `start` gives.
    """

    def one(law: Any, start: Any) -> Any:
        def value(x: Any) -> Any:
            scale = start["scale"] * jnp.exp(x[0])
            alignment = jnp.cos(start["angle"] + x[1]) if tilt else start["alignment"]
            free = {n: start["constants"][i] + start["unit"][i] * x[1 + tilt + i] for i, n in enumerate(names)}
            A, B = form(task, law, free, scale * alignment, scale**2)
            return law[0]["label_var"] - A * A / B

        def at(x: Any) -> tuple[Any, Any, Any]:
            def slope(x: Any) -> Any:
                value_here, slope_here = jax.value_and_grad(value)(x)
                return slope_here, (value_here, slope_here)

            curvature, (value_here, slope_here) = jax.jacfwd(slope, has_aux=True)(x)
            return value_here, slope_here, (curvature + curvature.T) / 2

        def step(s: _State) -> _State:
            move = _downhill(s.slope, s.curvature)
            length = jnp.linalg.norm(move)
            move = move * jnp.minimum(1.0, s.radius / jnp.maximum(length, 1e-300))
            length = jnp.minimum(length, s.radius)
            new, slope, curvature = at(s.x + move)
            steepest = jnp.max(jnp.abs(slope))
            smaller = steepest < jnp.max(jnp.abs(s.slope))
            rounding = 1e-14 * law[0]["label_var"]
            better = (new < s.value - rounding) | (smaller & (new <= s.value + rounding))
            radius = jnp.where(better, jnp.minimum(ACCURACY.radius, jnp.maximum(s.radius, 2 * length)), length / 2)
            first = s.steps == 0
            steep, done = jnp.where(first, steepest, s.steep), ~first & (length < ACCURACY.short)
            moved = _State(s.x + move, new, slope, curvature, radius, steep, s.steps + 1, done)
            stayed = s._replace(radius=radius, steep=steep, steps=s.steps + 1, done=done)
            return jax.tree.map(lambda a, b: jnp.where(better, a, b), moved, stayed)

        # the first step does not move (its slope is 0), so that the derivatives, costly to compile, occur once
        n = 1 + tilt + len(names)
        begin = _State(jnp.zeros(n), jnp.inf, jnp.zeros(n), jnp.eye(n), jnp.asarray(ACCURACY.radius), 0.0, 0, False)
        end = jax.lax.while_loop(lambda s: ~s.done & (s.steps <= ACCURACY.steps), step, begin)
        left = jnp.sum(jnp.abs(end.slope) * jnp.abs(_downhill(end.slope, end.curvature)))
        return end.x, end.value, jnp.max(jnp.abs(end.slope)), left, end.steep, end.done

    return jax.vmap(one)(law, start)


def _downhill(slope: Any, curvature: Any) -> Any:
    """Return the Newton move, reversed along directions of negative curvature; flat directions are left alone."""
    if len(slope) == 1:
        size = jnp.abs(curvature[0])
        return jnp.where(size > 1e-300, -slope / jnp.where(size > 1e-300, size, 1.0), 0.0)
    values, vectors = jnp.linalg.eigh(curvature)
    size = jnp.abs(values)
    usable = size > jnp.maximum(1e-13 * jnp.max(size), 1e-300)
    return -vectors @ jnp.where(usable, (vectors.T @ slope) / jnp.where(usable, size, 1.0), 0.0)

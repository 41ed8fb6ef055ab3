"""Any activation: its proximal map by Newton's method from several starts, and its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from needlepoint.channels.replies import DISTINCT, Channel, Minima, Response, Sample, activation_weights, reply
from needlepoint.core.routes import GENERIC, route, the
from needlepoint.models.activations import Activation, KernelActivation
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.positive_solve import solve_positive

_BEFORE, AFTER = 5, 6  # Newton steps from every start, and then from the two lowest points alone


def starts_of(activation: type[Activation], c: dict[str, Any], sample: Sample) -> Any:
    """Return the starts of the search for minima, (starts, tokens, n): the field itself, the field with one score
    raised or lowered, and all scores moved for or against the label.

    An element-wise weight depends on its own score only and is moved to where its activation bends; a score of a
    normalised weight is moved above the highest or below the lowest of the others. Compared with a hundred random
    starts these miss about one sample in a thousand at penalties with many minima, and none elsewhere.
    """
    return jnp.stack([sample.w_chi, *the("starts of minima", activation=activation)(activation, c, sample)])


@route("starts of minima", name="all")
def _all_starts(activation: type[Activation], c: dict[str, Any], sample: Sample) -> list[Any]:
    return _own_starts(activation, c, sample) + _relative_starts(activation, c, sample)


@route("starts of minima", name="own", form="elementwise")
def _own_starts(activation: type[Activation], c: dict[str, Any], sample: Sample) -> list[Any]:
    w, tokens = sample.w_chi, jnp.arange(sample.w_chi.shape[0])[:, None]
    centre, width = activation.bend(c)
    favour = width * jnp.sign(sample.y * sample.w_z)
    alone = [jnp.where(tokens == t, centre + sign * width, w) for t in range(len(w)) for sign in (1, -1)]
    return [centre + favour, centre - favour, *alone]


@route("starts of minima", name="relative", form="kernel")
def _relative_starts(activation: type[Activation], c: dict[str, Any], sample: Sample) -> list[Any]:
    w, starts = sample.w_chi, []
    for t in range(len(w)) if len(w) > 1 else ():
        mine = jnp.arange(w.shape[0])[:, None] == t
        starts.append(jnp.where(mine, jnp.max(jnp.where(mine, -jnp.inf, w), axis=0) + 1.0, w))
        starts.append(jnp.where(mine, jnp.min(jnp.where(mine, jnp.inf, w), axis=0) - 1.0, w))
    return starts


def search(activation: type[Activation], channel: Channel, sample: Sample, starts: Array, patience: int = 1) -> Minima:
    """Return the lowest minimum that Newton's method reaches from `starts` (k, tokens, n), and the next lowest.

    `patience` multiplies the number of its last steps.
    """
    descend = _descent(activation, channel, sample)
    rough, value = jax.lax.map(lambda x: descend(x, _BEFORE), starts)
    return refine(activation, channel, sample, jnp.stack(two_lowest(rough, value)[:2]), AFTER * patience)


def refine(
    activation: type[Activation], channel: Channel, sample: Sample, leaders: Array, steps: int = AFTER
) -> Minima:
    """Return the minima that Newton's method reaches from two points `leaders` (2, tokens, n), the lower one first."""
    descend = _descent(activation, channel, sample)
    fine, value = jax.lax.map(lambda x: descend(x, steps), leaders)
    best, rival, gap = two_lowest(fine, value)
    slope = curvature(activation, channel, sample, best).slope
    return Minima(best, rival, gap, channel.V_k * jnp.max(jnp.abs(slope), axis=0))


def two_lowest(points: Array, value: Array) -> tuple[Array, Array, Array]:
    """Return the lowest of `points` (k, tokens, n), the next lowest that is distinct from it (itself if there is none),
    both (tokens, n), and the difference of their values (n,)."""

    def take(order: Array) -> Array:
        return jnp.take_along_axis(points, order[None, None], axis=0)[0]

    best = take(jnp.argmin(value, axis=0))
    size = 1 + jnp.max(jnp.abs(best), axis=0)
    others = jnp.where(jnp.max(jnp.abs(points - best), axis=1) > DISTINCT * size, value, jnp.inf)
    gap = jnp.min(others, axis=0) - jnp.min(value, axis=0)
    return best, jnp.where(jnp.isfinite(gap), take(jnp.argmin(others, axis=0)), best), gap


def _descent(
    activation: type[Activation], channel: Channel, sample: Sample
) -> Callable[[Array, int], tuple[Array, Array]]:
    """Return a function (start, steps) to (scores, values): Newton's method on eq:proximal, with a Hessian made
    positive; a step that would increase the value is retried shorter."""

    def descend(start: Array, steps: int) -> tuple[Array, Array]:
        def newton(chi: Array) -> Array:
            shape = curvature(activation, channel, sample, chi)
            return -solve_positive(shape.bend, shape.slope)

        def height(chi: Array) -> Array:
            return reply(activation, channel, sample, chi).envelope

        def step(_: Any, state: Any) -> Any:
            chi, value, fraction = state
            new = chi + fraction * newton(chi)
            new_value = height(new)
            lower = new_value <= value
            chi, value = jnp.where(lower, new, chi), jnp.where(lower, new_value, value)
            return chi, value, jnp.where(lower, jnp.minimum(1.0, 4 * fraction), fraction / 4)

        chi, value, _ = jax.lax.fori_loop(0, steps, step, (start, height(start), jnp.ones_like(sample.y)))
        return chi, value

    return descend


class Curvature(NamedTuple):
    """Gradient (tokens, n) and Hessian (tokens, tokens, n) of eq:proximal in the scores, and the Jacobian J (tokens,
    tokens, n) of the weights, the derivative of weight l by score m at [l, m]."""

    slope: Array
    bend: Array
    jacobian: Array


def curvature(activation: type[Activation], channel: Channel, sample: Sample, chi: Array) -> Curvature:
    r"""eq:proximal-curvature. Return gradient, Hessian and Jacobian at scores `chi` (tokens, n).

    With $u(s) = \frac{(y - s\cdot w_z)^2}{2(1 + V_v|s|^2)}$: $\nabla u = -rz$ and $\nabla^2u = \frac{pp^T}{1 +
    V_v|s|^2} - V_vr^2$, $p = w_z + 2V_vrs$, so that $\nabla^2h = J^T\nabla^2uJ - r\sum_lz_l\nabla^2s_l + 1/V_k$.
    """
    at = reply(activation, channel, sample, chi)
    s, r, c = at.weights, at.residual, -at.residual * at.values
    p, stretch = sample.w_z + 2 * channel.V_v * r * s, 1 + channel.V_v * jnp.sum(s**2, axis=0)
    J, Jp, Jc, JJ, bend = the("derivatives of weights", activation=activation)(activation, channel.c, chi, s, p, c)
    ones = jnp.eye(chi.shape[0])[:, :, None]
    bend = bend + Jp[:, None] * Jp[None, :] / stretch - channel.V_v * r**2 * JJ + ones / channel.V_k
    return Curvature(Jc + at.g_k, bend, J)


class Derivatives(NamedTuple):
    """The Jacobian J (tokens, tokens, n) of weights by scores; J^T p and J^T c (tokens, n), J^T J and the sum over l of
    c_l times the Hessian of weight l (tokens, tokens, n)."""

    jacobian: Array
    Jp: Array
    Jc: Array
    JJ: Array
    bend: Array


@route("derivatives of weights", name="own", form="elementwise")
def _own_derivatives(
    activation: type[Activation], constants: dict[str, Any], chi: Array, s: Array, p: Array, c: Array
) -> Derivatives:
    ones = jnp.eye(chi.shape[0])[:, :, None]
    first, second = _two_derivatives(lambda x: activation_weights(activation, constants, x), chi)
    return Derivatives(ones * first, first * p, first * c, first**2 * ones, ones * (c * second))


@route("derivatives of weights", name="normalised", activation=KernelActivation)
def _normalised_derivatives(
    activation: type[KernelActivation], constants: dict[str, Any], chi: Array, s: Array, p: Array, c: Array
) -> Derivatives:
    ones = jnp.eye(chi.shape[0])[:, :, None]
    first, second = _two_derivatives(lambda x: activation.log_kernel(x, jnp), chi)
    e = s * (c - jnp.sum(s * c, axis=0))
    J = (ones * s - s[:, None] * s[None, :]) * first
    pairs = s[:, None] * s[None, :] * (jnp.sum(s**2, axis=0) - s[:, None] - s[None, :])
    JJ = first[:, None] * first[None, :] * (pairs + ones * s**2)
    bend = first[:, None] * first[None, :] * (ones * e - s[:, None] * e[None, :] - e[:, None] * s[None, :])
    Jp = first * s * (p - jnp.sum(s * p, axis=0))
    return Derivatives(J, Jp, first * e, JJ, bend + ones * (second * e))


@route("derivatives of weights", name="automatic", cost=GENERIC)
def _automatic_derivatives(
    activation: type[Activation], constants: dict[str, Any], chi: Array, s: Array, p: Array, c: Array
) -> Derivatives:
    def weights(x: Array) -> Array:
        return activation_weights(activation, constants, x)

    def pull(x: Array) -> Array:
        return jax.vjp(weights, x)[1](c)[0]

    # one direction at a time, with the samples last: several times faster than batched Jacobians
    units = [jnp.broadcast_to(e, chi.shape) for e in jnp.eye(chi.shape[0])[:, :, None]]
    J = jnp.stack([jax.jvp(weights, (chi,), (e,))[1] for e in units], axis=1)
    bend = jnp.stack([jax.jvp(pull, (chi,), (e,))[1] for e in units], axis=1)
    Jp, Jc = (jnp.einsum("lmn,ln->mn", J, x) for x in (p, c))
    return Derivatives(J, Jp, Jc, jnp.einsum("lin,ljn->ijn", J, J), bend)


@route("response", name="newton", cost=GENERIC)
def general_response(activation: type[Activation], channel: Channel, sample: Sample, scores: Array) -> Response:
    r"""eq:proximal-response. Return the derivatives of the forces by the fields at a minimum, (tokens, tokens, n) each.

    There $\partial\chi/\partial w_\chi = (V_k\nabla^2h)^{-1}$, so that $G_{kk} = \frac1{V_k}\left[(V_k\nabla^2h)^{-1} -
    1\right]$, $G_{vk} = K(V_k\nabla^2h)^{-1}$ with $K = \left(r - \frac{sp^T}{1 + V_v|s|^2}\right)J$, and $G_{vv} =
    -\frac{ss^T}{1 + V_v|s|^2} + V_kKG_{vk}^T$.
    """
    at, shape = reply(activation, channel, sample, scores), curvature(activation, channel, sample, scores)
    s, r, J = at.weights, at.residual, shape.jacobian
    p, stretch = sample.w_z + 2 * channel.V_v * r * s, 1 + channel.V_v * jnp.sum(s**2, axis=0)
    unit = jnp.broadcast_to(jnp.eye(len(s))[:, :, None], shape.bend.shape)
    moved = jnp.stack([solve_positive(shape.bend, e) for e in unit]) / channel.V_k
    K = r * J - s[:, None] * jnp.einsum("ln,lmn->mn", p, J)[None, :] / stretch
    vk = jnp.einsum("lin,imn->lmn", K, moved)
    vv = channel.V_k * jnp.einsum("lin,min->lmn", K, vk) - s[:, None] * s[None, :] / stretch
    return Response((moved - unit) / channel.V_k, vk, vv)


def _two_derivatives(function: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """Return the first and second derivative, of the shape of x, of a function that acts on each entry by itself."""

    def first(x: Array) -> Array:
        return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]

    return jax.jvp(first, (x,), (jnp.ones_like(x),))

r"""The proximal map through attention: what one sequence does to its own scores and values.

Given the fields that the rest of the data makes, $w_\chi$ and $w_z$, and their susceptibilities $V_k$ and $V_v$, the
scores of a training sequence minimise its loss plus the cost of leaving the fields. The values are eliminated in
closed form. Arrays have the samples last: scores and values (tokens, n), labels (n,).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from needlepoint.models.activations import Activation, Erf, KernelActivation, Linear, Softmax

_PAIR_GRID = 10.0  # scores beyond this differ from the limit of softmax by 5e-5, and the field itself is a start
_PAIR_STEPS = 10
_ROOT_STEPS, _ROOT_FOUND = 60, 1e-13  # at most, and the step that ends them; ten or twenty do for most samples
_BEFORE, _AFTER = 5, 6  # Newton steps of every start, and of the two that lead
_DISTINCT = 1e-3  # scores that differ by more, relative to their size, are two minima


class Channel(NamedTuple):
    """One activation with its susceptibilities; `c` has the activation's constants."""

    c: dict[str, Any]
    V_k: Any
    V_v: Any


class Sample(NamedTuple):
    """The fields of sequences: labels (n,), score fields and value fields (tokens, n)."""

    y: Any
    w_chi: Any
    w_z: Any


class Minima(NamedTuple):
    """The scores at the minimum, those of the next best minimum that was found (or the same), the gap between their
    envelopes, infinite where there is one minimum only, and how far the minimum may be: the slope left times V_k."""

    scores: Any
    rival: Any
    gap: Any
    left: Any


class Reply(NamedTuple):
    """What the sequence does at given scores: weights, values, training residual, Moreau envelope, and the forces
    g_k on the scores and g_v on the values."""

    weights: Any
    values: Any
    residual: Any
    envelope: Any
    g_k: Any
    g_v: Any


def _weights(activation: type[Activation], c: dict[str, Any], scores: Any) -> Any:
    return jax.vmap(lambda one: activation.weights(one, c), in_axes=-1, out_axes=-1)(scores)


def reply(activation: type[Activation], channel: Channel, sample: Sample, scores: Any) -> Reply:
    r"""eq:proximal. $h(\chi) = \frac{(y - s\cdot w_z)^2}{2(1 + V_v|s|^2)} + \frac{|\chi - w_\chi|^2}{2V_k}$, $s =
    \sigma(\chi)$; $r = \frac{y - s\cdot w_z}{1 + V_v|s|^2}$ is the training residual, $z = w_z + V_vrs$, $g_k =
    (\chi - w_\chi)/V_k$ and $g_v = rs$.
    """
    s = _weights(activation, channel.c, scores)
    away = scores - sample.w_chi
    stretch = 1 + channel.V_v * jnp.sum(s**2, axis=0)
    misfit = sample.y - jnp.sum(s * sample.w_z, axis=0)
    r = misfit / stretch
    envelope = 0.5 * misfit * r + jnp.sum(away**2, axis=0) / (2 * channel.V_k)
    return Reply(s, sample.w_z + channel.V_v * r * s, r, envelope, away / channel.V_k, r * s)


# --- linear attention: one root -----------------------------------------------------------------


def linear_scores(channel: Channel, sample: Sample) -> Any:
    r"""eq:linear-proximal. With $S_0 = (1 + w_\chi)/\sqrt{V_k}$, $Z_0 = w_z/\sqrt{V_v}$, $\rho = \sqrt{V_kV_v}$, $p =
    (S_0 + Z_0)/\sqrt2$ and $n = (S_0 - Z_0)/\sqrt2$, $w = \rho r$ is the one root in $(-1, 1)$ of $w - \rho y +
    \frac{\rho^2}2\left[\frac{|p|^2}{(1 - w)^2} - \frac{|n|^2}{(1 + w)^2}\right]$, and $S = (S_0 + wZ_0)/(1 - w^2)$.
    """
    S, Z = (1 + sample.w_chi) / jnp.sqrt(channel.V_k), sample.w_z / jnp.sqrt(channel.V_v)
    rho = jnp.sqrt(channel.V_k * channel.V_v)
    p_sq, n_sq = jnp.sum((S + Z) ** 2, axis=0) / 2, jnp.sum((S - Z) ** 2, axis=0) / 2

    def slope(w: Any) -> tuple[Any, Any]:
        plus, minus = p_sq / (1 - w) ** 2, n_sq / (1 + w) ** 2
        value = w - rho * sample.y + rho**2 / 2 * (plus - minus)
        return value, 1 + rho**2 * (plus / (1 - w) + minus / (1 + w))

    def step(state: Any) -> Any:
        steps, w, low, high, _ = state
        value, rise = slope(w)
        low, high = jnp.where(value < 0, w, low), jnp.where(value < 0, high, w)
        new = w - value / rise
        new = jnp.where((new >= low) & (new <= high), new, (low + high) / 2)
        return steps + 1, new, low, high, jnp.max(jnp.abs(new - w))

    def moves(state: Any) -> Any:
        return (state[-1] > _ROOT_FOUND) & (state[0] < _ROOT_STEPS)

    ones = jnp.ones_like(sample.y)
    _, w, *_ = jax.lax.while_loop(moves, step, (0, 0.0 * ones, -ones, ones, jnp.inf))
    return jnp.sqrt(channel.V_k) * (S + w * Z) / ((1 - w) * (1 + w)) - 1


class Divergence(NamedTuple):
    """Minus the divergences of the forces by their own fields, and the derivative of g_v on the first token by y."""

    k: Any
    v: Any
    label: Any


class Response(NamedTuple):
    """How the forces follow the fields: derivatives (tokens, tokens, n) of g_k by w_chi, of g_v by w_chi (that of g_k
    by w_z is its transpose) and of g_v by w_z."""

    kk: Any
    vk: Any
    vv: Any


def linear_response(channel: Channel, at: Reply) -> tuple[Response, Divergence]:
    r"""eq:linear-response. With $S = (1 + \chi)/\sqrt{V_k}$, $Z = z/\sqrt{V_v}$, $F = 1 +
    \frac{\rho^2}2\left[\frac{|S + Z|^2}{1 - w} + \frac{|S - Z|^2}{1 + w}\right]$, $a = Z + wS$, $b = S + wZ$ and
    $f = \frac{\rho^2}{F(1 - w^2)^2}$: $G_{kk} = \frac1{V_k}\left[\frac{w^2}{1 - w^2} - faa^T\right]$, $G_{vk} =
    \frac1\rho\left[\frac w{1 - w^2} - fba^T\right]$, $G_{vv} = \frac1{V_v}\left[\frac{w^2}{1 - w^2} - fbb^T\right]$,
    $\partial_yg_{v,1} = \sqrt{V_k}\frac{b_1}{F(1 - w^2)}$.
    """
    S, Z = at.weights / jnp.sqrt(channel.V_k), at.values / jnp.sqrt(channel.V_v)
    rho = jnp.sqrt(channel.V_k * channel.V_v)
    w = rho * at.residual
    room = (1 - w) * (1 + w)
    F = 1 + rho**2 / 2 * (jnp.sum((S + Z) ** 2, axis=0) / (1 - w) + jnp.sum((S - Z) ** 2, axis=0) / (1 + w))
    a, b, f = Z + w * S, S + w * Z, rho**2 / (F * room**2)
    unit, even = jnp.eye(len(S))[:, :, None], w**2 / room

    def block(scale: Any, along: Any, left: Any, right: Any) -> Any:
        return (along * unit - f * left[:, None] * right[None, :]) / scale

    def divergence(scale: Any, pull: Any) -> Any:
        return (len(S) * even - f * jnp.sum(pull**2, axis=0)) / scale

    full = Response(block(channel.V_k, even, a, a), block(rho, w / room, b, a), block(channel.V_v, even, b, b))
    label = jnp.sqrt(channel.V_k) * b[0] / (F * room)
    return full, Divergence(-divergence(channel.V_k, a), -divergence(channel.V_v, b), label)


# --- softmax over two tokens: one dimension -----------------------------------------------------


def pair_scores(channel: Channel, sample: Sample) -> Minima:
    r"""eq:pair-proximal. Softmax of two tokens depends on $t = \chi_1 - \chi_2$ only, and their sum stays: a scan in
    $t$ finds the valleys, and a safeguarded Newton iteration ends in the two deepest and in the field's own.
    """
    a, b = sample.y - sample.w_z[1], sample.w_z[0] - sample.w_z[1]
    t0 = sample.w_chi[0] - sample.w_chi[1]
    V_k, V_v = channel.V_k, channel.V_v

    def height(t: Any, s: Any) -> Any:
        return (a - b * s) ** 2 / (2 * (1 + V_v * (1 - 2 * s * (1 - s)))) + (t - t0) ** 2 / (4 * V_k)

    def slopes(t: Any) -> tuple[Any, Any, Any]:
        s = jax.nn.sigmoid(t)
        ds = s * (1 - s)
        d2s = ds * (1 - 2 * s)
        stretch, d_stretch = 1 + V_v * (1 - 2 * ds), -2 * V_v * (1 - 2 * s)
        misfit = a - b * s
        r = misfit / stretch
        # u = misfit^2 / (2 stretch) as a function of s
        u_s = -b * r - r * r * d_stretch / 2
        r_s = (-b - r * d_stretch) / stretch
        u_ss = -b * r_s - r * r_s * d_stretch - 2 * V_v * r * r
        value = misfit * r / 2 + (t - t0) ** 2 / (4 * V_k)
        return value, u_s * ds + (t - t0) / (2 * V_k), u_ss * ds**2 + u_s * d2s + 1 / (2 * V_k)

    grid = jnp.linspace(-_PAIR_GRID, _PAIR_GRID, 21)
    shares = jax.nn.sigmoid(grid)
    # the lowest two grid points that are lower than their neighbours, without holding the grid of values
    far = jnp.full_like(t0, jnp.inf)
    first, second, t1, t2 = far, far, t0, t0
    before, here = far, height(grid[0], shares[0])
    for i in range(len(grid)):
        after = height(grid[i + 1], shares[i + 1]) if i + 1 < len(grid) else far
        valley = jnp.where((here <= before) & (here <= after), here, jnp.inf)
        lead, follow = valley < first, valley < second
        second, t2 = (
            jnp.where(lead, first, jnp.where(follow, valley, second)),
            jnp.where(lead, t1, jnp.where(follow, grid[i], t2)),
        )
        first, t1 = jnp.where(lead, valley, first), jnp.where(lead, grid[i], t1)
        before, here = here, after

    def step(_: Any, state: Any) -> Any:
        t, value, slope, bend, reach = state
        # a step that rose is taken back and tried shorter
        move = jnp.where(bend > 0, -slope / bend, -slope * 2 * V_k)
        new = t + jnp.clip(move, -reach, reach)
        new_value, new_slope, new_bend = slopes(new)
        lower = new_value <= value
        reach = jnp.where(lower, jnp.minimum(2 * reach, 2.0), jnp.minimum(reach, jnp.abs(new - t)) / 4)
        keep = functools.partial(jnp.where, lower)
        return keep(new, t), keep(new_value, value), keep(new_slope, slope), keep(new_bend, bend), reach

    starts = jnp.stack([t1, t2, t0])
    value, slope, bend = slopes(starts)
    state = (starts, value, slope, bend, jnp.full_like(starts, 1.0))
    t, value, slope, _, _ = jax.lax.fori_loop(0, _PAIR_STEPS, step, state)
    order = jnp.argmin(value, axis=0)
    best, lowest = jnp.take_along_axis(t, order[None], axis=0)[0], jnp.min(value, axis=0)
    apart = jnp.abs(t - best) > _DISTINCT * (1 + jnp.abs(best))
    others = jnp.where(apart, value, jnp.inf)
    gap = jnp.min(others, axis=0) - lowest
    rival = jnp.take_along_axis(t, jnp.argmin(others, axis=0)[None], axis=0)[0]
    rival = jnp.where(jnp.isfinite(gap), rival, best)
    centre = (sample.w_chi[0] + sample.w_chi[1]) / 2
    scores, other = (jnp.stack([centre + x / 2, centre - x / 2]) for x in (best, rival))
    left = V_k * jnp.abs(jnp.take_along_axis(slope, order[None], axis=0)[0])
    return Minima(scores, other, gap, left)


# --- any activation: Newton's method from several starts ----------------------------------------


def starts_of(activation: type[Activation], c: dict[str, Any], sample: Sample) -> Any:
    """(starts, tokens, n): the field itself, each token raised and sunk, all moved for and against the label.

    A weight that knows its own score only is raised to where its activation bends, a normalised one above the
    highest of the others. Against a hundred random starts these miss about one sample in a thousand at penalties
    that make the minima many, and none elsewhere.
    """
    w = sample.w_chi
    tokens = jnp.arange(w.shape[0])[:, None]
    starts = [w]
    if activation.form != "kernel":
        centre, width = 0.0, 0.7
        if issubclass(activation, Erf):
            centre, width = -c["shift"] / c["scale"], 0.7 / c["scale"]
        favour = width * jnp.sign(sample.y * sample.w_z)
        starts += [centre + favour, centre - favour]
        starts += [jnp.where(tokens == t, centre + sign * width, w) for t in range(len(w)) for sign in (1, -1)]
    if activation.form != "elementwise" and len(w) > 1:
        for t in range(len(w)):
            mine = tokens == t
            starts.append(jnp.where(mine, jnp.max(jnp.where(mine, -jnp.inf, w), axis=0) + 1.0, w))
            starts.append(jnp.where(mine, jnp.min(jnp.where(mine, jnp.inf, w), axis=0) - 1.0, w))
    return jnp.stack(starts)


def search(activation: type[Activation], channel: Channel, sample: Sample, starts: Any, patience: int = 1) -> Minima:
    """The lowest minimum that Newton's method reaches from `starts` (k, tokens, n), and the next one."""
    descend = _descent(activation, channel, sample)
    rough, value = jax.lax.map(lambda x: descend(x, _BEFORE), starts)
    leaders = _two_lowest(rough, value)
    fine, value = jax.lax.map(lambda x: descend(x, _AFTER * patience), jnp.stack(leaders[:2]))
    best, rival, gap = _two_lowest(fine, value)
    slope = curvature(activation, channel, sample, best).slope
    return Minima(best, rival, gap, channel.V_k * jnp.max(jnp.abs(slope), axis=0))


def _two_lowest(points: Any, value: Any) -> tuple[Any, Any, Any]:
    """The lowest of (k, tokens, n) points, the lowest that is apart from it (or itself), the gap in value."""

    def take(order: Any) -> Any:
        return jnp.take_along_axis(points, order[None, None], axis=0)[0]

    best = take(jnp.argmin(value, axis=0))
    size = 1 + jnp.max(jnp.abs(best), axis=0)
    others = jnp.where(jnp.max(jnp.abs(points - best), axis=1) > _DISTINCT * size, value, jnp.inf)
    gap = jnp.min(others, axis=0) - jnp.min(value, axis=0)
    return best, jnp.where(jnp.isfinite(gap), take(jnp.argmin(others, axis=0)), best), gap


def _descent(activation: type[Activation], channel: Channel, sample: Sample) -> Callable[[Any, int], tuple[Any, Any]]:
    """Newton's method on eq:proximal with pivots made positive; a step that would rise is retried shorter."""

    def descend(start: Any, steps: int) -> tuple[Any, Any]:
        def newton(chi: Any) -> Any:
            shape = curvature(activation, channel, sample, chi)
            return -solve_positive(shape.bend, shape.slope)

        def height(chi: Any) -> Any:
            return reply(activation, channel, sample, chi).envelope

        def step(_: Any, state: Any) -> Any:
            chi, value, move, fraction = state
            new = chi + fraction * move
            new_value = height(new)
            lower = new_value <= value
            chi, value = jnp.where(lower, new, chi), jnp.where(lower, new_value, value)
            fraction = jnp.where(lower, jnp.minimum(1.0, 4 * fraction), fraction / 4)
            return chi, value, newton(chi), fraction

        state = (start, height(start), newton(start), jnp.ones_like(sample.y))
        chi, value, _, _ = jax.lax.fori_loop(0, steps, step, state)
        return chi, value

    return descend


class Curvature(NamedTuple):
    """Gradient (tokens, n) and Hessian (tokens, tokens, n) of eq:proximal in the scores, and the Jacobian J (tokens,
    tokens, n) of the weights, the derivative of weight l by score m at [l, m]."""

    slope: Any
    bend: Any
    jacobian: Any


def curvature(activation: type[Activation], channel: Channel, sample: Sample, chi: Any) -> Curvature:
    r"""eq:proximal-curvature. With $u(s) = \frac{(y - s\cdot w_z)^2}{2(1 + V_v|s|^2)}$: $\nabla u = -rz$ and $\nabla^2u
    = \frac{pp^T}{1 + V_v|s|^2} - V_vr^2$, $p = w_z + 2V_vrs$, so that $\nabla^2h = J^T\nabla^2uJ -
    r\sum_lz_l\nabla^2s_l + 1/V_k$.
    """
    at = reply(activation, channel, sample, chi)
    s, r, c = at.weights, at.residual, -at.residual * at.values
    p, stretch = sample.w_z + 2 * channel.V_v * r * s, 1 + channel.V_v * jnp.sum(s**2, axis=0)
    ones = jnp.eye(chi.shape[0])[:, :, None]
    if activation.form == "elementwise":
        first, second = _two_derivatives(lambda x: _weights(activation, channel.c, x), chi)
        J, Jp, Jc, JJ, bend = ones * first, first * p, first * c, first**2 * ones, ones * (c * second)
    elif issubclass(activation, KernelActivation):
        first, second = _two_derivatives(lambda x: activation.log_kernel(x, jnp), chi)
        e = s * (c - jnp.sum(s * c, axis=0))
        J = (ones * s - s[:, None] * s[None, :]) * first
        Jc, Jp = first * e, first * s * (p - jnp.sum(s * p, axis=0))
        pairs = s[:, None] * s[None, :] * (jnp.sum(s**2, axis=0) - s[:, None] - s[None, :])
        JJ = first[:, None] * first[None, :] * (pairs + ones * s**2)
        bend = first[:, None] * first[None, :] * (ones * e - s[:, None] * e[None, :] - e[:, None] * s[None, :])
        bend = bend + ones * (second * e)
    else:

        def weights(x: Any) -> Any:
            return _weights(activation, channel.c, x)

        def pull(x: Any) -> Any:
            return jax.vjp(weights, x)[1](c)[0]

        # one direction at a time, with the samples last: several times faster than batched Jacobians
        units = [jnp.broadcast_to(e, chi.shape) for e in ones]
        J = jnp.stack([jax.jvp(weights, (chi,), (e,))[1] for e in units], axis=1)
        bend = jnp.stack([jax.jvp(pull, (chi,), (e,))[1] for e in units], axis=1)
        Jp, Jc = (jnp.einsum("lmn,ln->mn", J, x) for x in (p, c))
        JJ = jnp.einsum("lin,ljn->ijn", J, J)
    bend = bend + Jp[:, None] * Jp[None, :] / stretch - channel.V_v * r**2 * JJ + ones / channel.V_k
    return Curvature(Jc + at.g_k, bend, J)


def response(activation: type[Activation], channel: Channel, sample: Sample, scores: Any) -> Response:
    """How the forces at a minimum follow the fields."""
    if issubclass(activation, Linear):
        return linear_response(channel, reply(activation, channel, sample, scores))[0]
    return general_response(activation, channel, sample, scores)


def general_response(activation: type[Activation], channel: Channel, sample: Sample, scores: Any) -> Response:
    r"""eq:proximal-response. At a minimum $\partial\chi/\partial w_\chi = (V_k\nabla^2h)^{-1}$, so that $G_{kk} =
    \frac1{V_k}\left[(V_k\nabla^2h)^{-1} - 1\right]$, $G_{vk} = K(V_k\nabla^2h)^{-1}$ with $K = \left(r -
    \frac{sp^T}{1 + V_v|s|^2}\right)J$, and $G_{vv} = -\frac{ss^T}{1 + V_v|s|^2} + V_kKG_{vk}^T$.
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


def _two_derivatives(function: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """First and second derivative of a function that acts on each entry by itself."""

    def first(x: Any) -> Any:
        return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]

    return jax.jvp(first, (x,), (jnp.ones_like(x),))


def solve_positive(matrix: Any, vector: Any) -> Any:
    """Solve with the LDL^T of a small symmetric matrix (k, k, n) whose negative pivots have their sign turned: a
    descent direction in any case. Unrolled, because batched LAPACK calls cost more than the arithmetic."""
    k = vector.shape[0]
    lower: list[list[Any]] = [[None] * k for _ in range(k)]
    pivots: list[Any] = []
    for j in range(k):
        pivot = matrix[j, j] - sum((lower[j][i] ** 2 * pivots[i] for i in range(j)), 0.0)
        pivots.append(jnp.maximum(jnp.abs(pivot), 1e-12))
        for i in range(j + 1, k):
            cross = sum((lower[i][m] * lower[j][m] * pivots[m] for m in range(j)), 0.0)
            lower[i][j] = (matrix[i, j] - cross) / pivots[j]
    forward: list[Any] = []
    for i in range(k):
        forward.append(vector[i] - sum((lower[i][j] * forward[j] for j in range(i)), 0.0))
    back: list[Any] = [None] * k
    for i in reversed(range(k)):
        back[i] = forward[i] / pivots[i] - sum((lower[j][i] * back[j] for j in range(i + 1, k)), 0.0)
    return jnp.stack(back)


def proximal(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    """The minimum of eq:proximal: exact for linear attention, one-dimensional for softmax over two tokens, by
    Newton's method from several starts for the rest.
    """
    alone = jnp.full_like(sample.y, jnp.inf)
    if issubclass(activation, Linear):
        scores = linear_scores(channel, sample)
        return Minima(scores, scores, alone, jnp.zeros_like(sample.y))
    if issubclass(activation, Softmax) and len(sample.w_chi) == 1:
        return Minima(sample.w_chi, sample.w_chi, alone, jnp.zeros_like(sample.y))
    if issubclass(activation, Softmax) and len(sample.w_chi) == 2:
        return pair_scores(channel, sample)
    return search(activation, channel, sample, starts_of(activation, channel.c, sample))


@functools.partial(jax.jit, static_argnums=0)
def patient(activation: type[Activation], channel: Channel, sample: Sample) -> Minima:
    """The same by many more steps, for the few samples that a batch leaves behind."""
    return search(activation, channel, sample, starts_of(activation, channel.c, sample), patience=8)

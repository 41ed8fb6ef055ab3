"""How fast the overlaps move under gradient flow and online SGD, as means over the scores of a sequence.

Given the scores, all other fields are Gaussian, and what is averaged is a polynomial in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from needlepoint.core.routes import GENERIC, route, the
from needlepoint.models.activations import Activation, KernelActivation
from needlepoint.tasks.single_location import MaxSLR, SingleLocation, SpikedSLR


class Rates(NamedTuple):
    """Means that the motion of the overlaps is made of; see eq:location-flow and eq:location-sgd."""

    flow: Any  # (7,): kappa, nu, theta, eta, rho, q_k, q_v
    noise: Any  # (7,): what the squares of single steps add, to rho, q_k and q_v alone
    excess_risk: Any

    def __add__(self, other: Rates) -> Rates:  # pyright: ignore[reportIncompatibleMethodOverride]  # sums, not concatenation
        return Rates(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Rates:
        return Rates(*(factor * x for x in self))


class Given(NamedTuple):
    """Fields of a token given its score coordinates c: (k*.x, v*.x, v.x) has mean `along` c and covariance `rest`,
    and k.x = `score` c. The spread and the shift of the relevant token are not included."""

    score: Any  # (p,)
    along: Any  # (3, p)
    rest: Any  # (3, 3)


def given_scores(task: type[SingleLocation], seven: Sequence[Any]) -> Given:
    r"""eq:given-scores. Return the law of a token's fields given its p score coordinates c.

    They are $c = \xi/\sqrt{q_k}$ for the spiked task (p = 1). In the max task the place depends on $\chi^*$, so that
    $c = (\chi^*, g)$ with $\chi = \kappa\chi^* + sg$ (p = 2).
    """
    _, nu, theta, _, _, _, value_sq = seven
    score, along = the("score coordinates", task=task)(seven)
    gram = jnp.array([[1.0, 0.0, theta], [0.0, 1.0, nu], [theta, nu, value_sq]])
    return Given(score, along, gram - along @ along.T)


@route("score coordinates", name="shifted", task=SpikedSLR)
def _shifted_coordinates(seven: Sequence[Any]) -> tuple[Any, Any]:
    kappa, _, _, eta, rho, key_sq, _ = seven
    norm, inverse = root(key_sq)
    return jnp.stack([norm]), inverse * jnp.stack([jnp.stack([kappa]), jnp.stack([eta]), jnp.stack([rho])])


@route("score coordinates", name="tilted", task=MaxSLR)
def _tilted_coordinates(seven: Sequence[Any]) -> tuple[Any, Any]:
    kappa, _, theta, eta, rho, key_sq, _ = seven
    s, inverse = root(key_sq - kappa**2)
    zero, one = jnp.zeros_like(kappa), jnp.ones_like(kappa)
    beyond = (eta * inverse, (rho - kappa * theta) * inverse)
    along = jnp.stack([jnp.stack([one, zero]), jnp.stack([zero, beyond[0]]), jnp.stack([theta, beyond[1]])])
    return jnp.stack([kappa, s]), along


class Relevant(NamedTuple):
    """What tells the relevant token: its spread and its shift along k*; the law of its place given k* . x of every
    token (`first`: where the nodes have it); and whether each token is the relevant one in turn."""

    spread: Any
    shift: Any
    place: Callable[[Any, Any], Any]
    in_turn: bool


@route("relevant token", name="shifted", task=SpikedSLR)
def _shifted(c: Mapping[str, Any]) -> Relevant:
    return Relevant(c["task.relevant_std"], jnp.sqrt(c["task.snr"]), lambda x, first: 1.0 * first, in_turn=False)


@route("relevant token", name="tilted", task=MaxSLR)
def _tilted(c: Mapping[str, Any]) -> Relevant:
    def place(x: Any, first: Any) -> Any:
        # an infinite snr is left out of the constants; its nodes have the largest chi* in the first token
        return jax.nn.softmax(c["task.snr"] * x, axis=0) if "task.snr" in c else 1.0 * first

    return Relevant(1.0, 0.0, place, in_turn=True)


def root(square: Any) -> tuple[Any, Any]:
    """Return the square root and its inverse; both 0 where the square is 0, or negative by rounding."""
    present = square > 0
    norm = jnp.sqrt(jnp.where(present, square, 1.0))
    return jnp.where(present, norm, 0.0), jnp.where(present, 1 / norm, 0.0)


class Jacobian(NamedTuple):
    r"""Weights $\sigma$ and what is needed of $D_{ml} = \partial\sigma_m/\partial\chi_l$: the diagonal $D_{ll}$,
    and the maps $w\mapsto D^\top w$ (`pull`) and $w\mapsto\sum_mD_{ml}^2w_m$ (`squares`)."""

    weights: Any
    diagonal: Any
    pull: Callable[[Any], Any]
    squares: Callable[[Any], Any]


def jacobian(activation: type[Activation], constants: Mapping[str, Any], scores: Any) -> Jacobian:
    """Return weights and derivatives at scores (tokens, nodes)."""
    return the("Jacobian of weights", activation=activation)(activation, constants, scores)


@route("Jacobian of weights", name="normalised", activation=KernelActivation)
def _normalised_jacobian(activation: type[KernelActivation], constants: Mapping[str, Any], scores: Any) -> Jacobian:
    r"""A normalised kernel has $D_{ml} = h_l\sigma_m(\delta_{ml} - \sigma_l)$, h the derivative of its logarithm, so
    that its matrix is never formed.
    """
    log_kernel, h = jax.jvp(lambda x: activation.log_kernel(x, jnp), (scores,), (jnp.ones_like(scores),))
    weights = jax.nn.softmax(log_kernel, axis=0)
    hs = h * weights
    return Jacobian(
        weights,
        hs * (1 - weights),
        lambda w: hs * (w - _sum(weights * w)),
        lambda w: hs**2 * ((1 - 2 * weights) * w + _sum(weights**2 * w)),
    )


@route("Jacobian of weights", name="automatic", cost=GENERIC)
def _automatic_jacobian(activation: type[Activation], constants: Mapping[str, Any], scores: Any) -> Jacobian:
    def one(scores: Any) -> Any:
        return activation.weights(scores, constants)

    D = jax.vmap(jax.jacfwd(one), in_axes=-1)(scores)
    return Jacobian(
        jax.vmap(one, in_axes=-1, out_axes=-1)(scores),
        jnp.einsum("nll->ln", D),
        lambda w: jnp.einsum("nml,mn->ln", D, jnp.broadcast_to(w, scores.shape)),
        lambda w: jnp.einsum("nml,mn->ln", D**2, jnp.broadcast_to(w, scores.shape)),
    )


def _sum(x: Any) -> Any:
    """Return the sum over tokens, the first axis."""
    return jnp.sum(x, axis=0)


def location_rates(
    task: type[SingleLocation],
    activation: type[Activation],
    c: Mapping[str, Any],
    seven: Any,
    coordinates: Any,
    node_weights: Any,
) -> Rates:
    r"""Return the rates of eq:location-flow and eq:location-sgd by nodes of the score coordinates, (p, tokens, nodes).

    With $r = y - f$ and $\Gamma = D^\top z$, so that $\nabla_kf = X^\top\Gamma$ and $\nabla_vf = X^\top\sigma$: means
    of $r\,\Gamma\cdot\chi^*$ and the like, and of $r^2\sum_ls_l^2(\Gamma_l^2, \Gamma_l\sigma_l, \sigma_l^2)$. Given
    the scores they are moments of Gaussians: $E[rab] = \bar r\bar a\bar b + \bar rC_{ab} + \bar aC_{rb} +
    \bar bC_{ra}$ and $E[r^2a^2] = (\bar r^2 + V_r)(\bar a^2 + V_a) + 4\bar r\bar aC_{ra} + 2C_{ra}^2$.
    """
    # notation: P the law of the place; x, y, z means of k*.x, v*.x, v.x; K their covariance; t squared spreads
    given = given_scores(task, seven)
    (_, Kxy, Kxz), (_, Kyy, Kyz), (_, _, Kzz) = given.rest
    tokens = coordinates.shape[1]
    first = (jnp.arange(tokens) == 0)[:, None]
    scores = jnp.tensordot(given.score, coordinates, 1)
    x, y, z = jnp.tensordot(given.along, coordinates, 1)
    relevant = the("relevant token", task=task)(c)
    P = relevant.place(x, first)
    spread, m = jnp.where(first, relevant.spread, 1.0), relevant.shift * first
    scores, x, y, z = (spread * a for a in (scores, x, y, z))
    scores, x, z = scores + m * seven[0], x + m, z + m * seven[2]
    t = spread**2
    sigma, diagonal, pull, squares = jacobian(activation, c, scores)

    f, f_var = _sum(sigma * z), Kzz * _sum(t * sigma**2)
    r_at = y - f  # the mean of the residual if the place were l
    r = _sum(P * r_at)
    with_x, with_y, with_z = (t * (a * P - b * sigma) for a, b in ((Kxy, Kxz), (Kyy, Kyz), (Kyz, Kzz)))
    G, with_G = pull(z), pull(with_z)

    def third(field: Any, covariance: Any, with_field: Any) -> Any:
        """Return E[r Gamma . field]."""
        return _sum(r * (G * field + diagonal * t * covariance) + G * with_field + field * with_G)

    def second(field: Any, with_field: Any) -> Any:
        """Return E[r sigma . field]."""
        return _sum(sigma * (r * field + with_field))

    flow = [
        third(x, Kxz, with_x),
        second(y, with_y),
        second(x, with_x),
        third(y, Kyz, with_y),
        third(z, Kzz, with_z) + second(scores, 0.0),
        2 * _sum(scores * (r * G + with_G)),
        2 * second(z, with_z),
    ]
    variance = c["task.noise"] ** 2 + t * (Kyy - 2 * Kyz * sigma) + f_var
    r_sq = _sum(P * (r_at**2 + variance))
    own = Kzz * pull(t * sigma)  # covariance of f and Gamma
    r_with_G = Kyz * pull(P * t * r_at) - r * own
    with_G_sq = Kyz**2 * squares(P * t**2) - 2 * Kyz * pull(P * t) * own + own**2
    G_sq = r_sq * (G**2 + Kzz * squares(t)) + 4 * G * r_with_G + 2 * with_G_sq
    noise = [
        _sum(t * sigma * (r_sq * G + 2 * r_with_G)),
        _sum(t * G_sq),
        _sum(t * sigma**2 * r_sq),
    ]
    return Rates(
        jnp.stack(flow) @ node_weights,
        jnp.concatenate([jnp.zeros(4), jnp.stack(noise) @ node_weights]),
        r_sq @ node_weights - c["task.noise"] ** 2,
    )

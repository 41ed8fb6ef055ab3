"""The best predictor of any field law when the teachers are known: the posterior mean of the label."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from needlepoint.core.dispatch import rule
from needlepoint.core.errors import InvalidParameter, NoTheory
from needlepoint.core.estimates import Estimate
from needlepoint.core.lowering import Template, lower
from needlepoint.core.options import PredictionOptions
from needlepoint.core.results import Prediction
from needlepoint.core.status import Status
from needlepoint.learners import BayesOptimal
from needlepoint.numerics.arrays import Array
from needlepoint.numerics.gaussian import sobol_normals, trapezoid_rule
from needlepoint.tasks.sequence import SequenceTask, noise_var_of
from needlepoint.theory.fields.accuracy import ACCURACY
from needlepoint.theory.fields.declared import check_law
from needlepoint.theory.fields.law import BLOCK
from needlepoint.theory.fields.population import estimate

_SAME = 1e-12  # relative difference of spreads below which norms tell nothing
_ROUNDING = 1e-14  # of means, relative to the squared label


@rule("predict", SequenceTask, None, BayesOptimal)
def predict_known(task: SequenceTask, model: None, learner: BayesOptimal, options: PredictionOptions) -> Prediction:
    """Return the risk of the posterior mean of the label if the teachers are known, in the square loss.

    Without `d` it is that of the limit, where the norms of the tokens tell their spreads.
    """
    if learner.alpha is not None:
        raise NoTheory(
            f"no rule for {learner!r} with {type(task).__name__}: the best predictor from samples is known for "
            "SpikedSLR and MaxSLR; BayesOptimal() knows the teachers."
        )
    if learner.d is not None and learner.d < len(task.teachers):
        raise InvalidParameter(f"{learner!r}: d must be >= {len(task.teachers)}, the number of teachers.")
    check_law(task)
    noise = noise_var_of(task)
    parts = [part for length, p in task.length_law for part in _parts(task.at(length), p, learner.d, noise is not None)]
    level, most = ACCURACY.known_points, ACCURACY.known_most
    most = min(most, int(math.log2(ACCURACY.known_numbers / max(part.dimension for part in parts))))
    while True:
        found = _integrated(parts, min(level, most), options)
        asked = ACCURACY.tolerance * found.scale if options.tol is None else options.tol
        if found.between.error + found.within.error <= asked or level >= most:
            break
        level += 1
    excess, risk = found.between, found.between + found.within
    if noise is not None:
        risk = excess + noise
    known = risk.error <= asked
    told = all(part.told for part in parts)
    notes: tuple[str, ...] = ()
    if not told:
        notes = ("limit d -> infinity, where the tokens' norms tell their spreads; give d= for a finite d.",)
    if not known:
        notes += (f"the risk is known to {risk.error:.2g} with the most points that are worth it.",)
    return Prediction(
        task,
        model,
        learner,
        {"risk": risk} if noise is None else {"risk": risk, "excess_risk": excess},
        status=Status.CONVERGED if known else Status.NOISE_LIMITED,
        exact=told,
        notes=notes,
        resolved=(task, model, learner),
        seed=options.seed,
    )


@dataclass(frozen=True)
class Kind:
    """What a compiled kernel knows of a mean: the task of one length, the place of the sequences and the places that
    they may have, whether they are weighted, whether the noise is added to the label, and d where norms are seen."""

    task: Template
    place: int
    places: tuple[int, ...]
    weighted: bool
    additive: bool
    d: int | None


class Part(NamedTuple):
    """A length and a place, with their probability; `told` says whether the norms say nothing beyond what is used."""

    probability: float
    kind: Kind
    numbers: dict[str, float]
    told: bool

    @property
    def dimension(self) -> int:
        """Return how many standard normals make a sequence: fields of the teachers, and norms where they are seen."""
        task = self.kind.task.value
        return task.tokens * (len(task.teachers) + (self.kind.d is not None))


def _parts(task: SequenceTask, probability: float, d: int | None, additive: bool) -> list[Part]:
    """Return the places that a mean is taken over; places that are alike are one.

    Where all places have the same shifts and spreads the fields have one law, whatever the weights, and need none.
    """
    every = range(task.places())
    laws = [task.place_at(place) for place in every]
    spreads = np.array([np.asarray(law.spread) for law in laws])
    shifts = np.array([np.asarray(law.shift) for law in laws])
    one_law = bool(np.ptp(shifts, axis=0).max() == 0.0 and np.ptp(spreads, axis=0).max() == 0.0)
    chosen = [0] if one_law or task.exchangeable else list(every)
    found: list[Part] = []
    for place in chosen:
        alike = tuple(i for i in every if np.allclose(spreads[i], spreads[place], rtol=_SAME, atol=0.0))
        told = d is not None or len(alike) == len(every)
        places = tuple(every) if d is not None else alike
        # norms that say nothing need not be drawn
        seen = d if len(alike) < len(every) else None
        kind = Kind(Template(task), place, places, task.tilted and not one_law, additive, seen)
        found.append(Part(probability / len(chosen), kind, lower(task)[1], told))
    return found


class Found(NamedTuple):
    """What the label scatters between places and by its noise, in the mean over sequences, and its second moment."""

    between: Estimate
    within: Estimate
    scale: float


def _integrated(parts: list[Part], level: int, options: PredictionOptions) -> Found:
    rows = np.zeros((ACCURACY.scrambles, 4))
    for number, (probability, kind, numbers, _) in enumerate(parts):
        dimension = parts[number].dimension
        points = np.swapaxes(sobol_normals(dimension, level, ACCURACY.scrambles, options.seed), 1, 2)
        count = max(1, 2**level // BLOCK)
        for row, scrambling in zip(rows, points, strict=True):
            for base in np.split(scrambling, count, axis=-1):
                row += probability / count * np.asarray(_scatter(kind, numbers, *_drawn(kind, base)))
        options.progress((number + 1) / len(parts))
    between, within = estimate(rows[:, 0]), estimate(rows[:, 1])
    # how much the rule for the noise differs from the one with half of its nodes, and rounding
    scale = float(np.mean(rows[:, 3]))
    rough = Estimate(0.0, float(np.mean(rows[:, 2])) + _ROUNDING * scale)
    return Found(between + rough, within + rough, scale)


def _drawn(kind: Kind, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the normals of the fields (tokens, S, n) and the squared norms, per unit spread, of what is orthogonal to
    the teachers (tokens, n)."""
    task = kind.task.value
    tokens, S, n = task.tokens, len(task.teachers), base.shape[-1]
    normals = base[: tokens * S].reshape(tokens, S, n)
    if kind.d is None or kind.d == S:
        return normals, np.zeros((tokens, n))
    below = special.ndtr(base[tokens * S :])
    return normals, 2 * special.gammaincinv((kind.d - S) / 2, below)


@functools.partial(jax.jit, static_argnums=0)
def _scatter(kind: Kind, numbers: Any, normals: Array, squares: Array) -> Array:
    r"""eq:field-bayes. Return the means of $\sum_\epsilon p_\epsilon|m_\epsilon - \bar m|^2$ and $\sum_\epsilon
    p_\epsilon v_\epsilon$, of how much another rule for the noise changes them, and of the squared label, (4,).

    $p_\epsilon\propto g_\epsilon(\lambda^*)\prod_ls_l^{-S}e^{-|\lambda^*_l-c_l|^2/2s_l^2}$ with shifts and spreads of
    the place, $m_\epsilon$ and $v_\epsilon$ are mean and variance of its label over the noise, $\bar m =
    \sum_\epsilon p_\epsilon m_\epsilon$.
    """
    task: SequenceTask = kind.task.bind(numbers)
    at, S = task.place_at(kind.place), len(task.teachers)
    fields = at.shift[:, :, None] + at.spread[:, None, None] * normals
    norms = at.spread[:, None] ** 2 * squares
    places = jnp.array(kind.places)

    def log_weight(place: Any) -> Array:
        here = task.place_at(place)
        away = (fields - here.shift[:, :, None]) / here.spread[:, None, None]
        found = -jnp.sum(away**2, axis=(0, 1)) / 2 - S * jnp.sum(jnp.log(here.spread))
        if kind.d is not None:
            orthogonal = norms / here.spread[:, None] ** 2
            found -= jnp.sum(orthogonal, axis=0) / 2 + (kind.d - S) * jnp.sum(jnp.log(here.spread))
        return found + _tilts(task, fields, place)

    shares = jax.nn.softmax(jax.vmap(log_weight)(places), axis=0)
    weight = jnp.exp(_tilts(task, fields, kind.place)) if kind.weighted else jnp.ones(fields.shape[-1])

    def label(place: Any, one: Array, noise: Any) -> Array:
        return jnp.ravel(jnp.asarray(task.labelled(one, place, noise), float))

    # the rule for the noise, and the one with every second node; noise that is added changes no mean over the places
    nodes, rules = np.zeros(1), np.ones((1, 1))
    if not kind.additive:
        nodes, weights = trapezoid_rule(ACCURACY.known_nodes)
        rules = np.stack([weights, np.where(np.arange(len(nodes)) % 2, 0.0, 2 * weights)])

    def moments(place: Any, one: Array) -> tuple[Array, Array]:
        labels = jax.vmap(lambda e: label(place, one, e))(jnp.asarray(nodes))
        means = rules @ labels
        return means, jnp.sum(rules @ labels**2 - means**2, axis=-1)

    m, v = jax.vmap(lambda p: jax.vmap(functools.partial(moments, p), -1)(fields))(places)
    middle = jnp.einsum("pn,pnrk->nrk", shares, m)
    between = jnp.einsum("pn,pnrk->rn", shares, (m - middle) ** 2)
    within = jnp.einsum("pn,pnr->rn", shares, v)
    square = jnp.einsum("pn,pnrk->rn", shares, m**2) + within
    # a place of weight 0 may leave no place that is possible
    found = jnp.mean(jnp.where(weight > 0, weight * jnp.stack([between, within, square]), 0.0), axis=-1)
    rough = jnp.sum(jnp.abs(found[:2, 0] - found[:2, -1]))
    return jnp.stack([found[0, 0], found[1, 0], rough, found[2, 0]])


def _tilts(task: SequenceTask, fields: Array, place: Any) -> Array:
    """Return the log weights of a place for fields (tokens, S, n), (n,)."""
    if not task.tilted:
        return jnp.zeros(fields.shape[-1])
    return jax.vmap(lambda one: jnp.asarray(task.log_tilt(task.named(one), place), float), -1)(fields)

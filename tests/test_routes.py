"""Every route of the table is held against a generic one, on questions drawn for the types that it is for.

The test walks the table. A quantity that is neither checked here, nor a choice (where to look first), nor said to be
tested elsewhere makes it fail.
"""

import dataclasses
import functools
import importlib
import math
import pkgutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.channels import any_activation, proximal, replies
from needlepoint.channels.elementwise import constants
from needlepoint.core import routes
from needlepoint.core.estimates import Estimate
from needlepoint.core.options import PredictionOptions
from needlepoint.core.specs import names
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.moments import sampled
from needlepoint.theory.location.moments.place_race import winner_law
from needlepoint.theory.location.population.risk_at_a_key import FINAL, Point, Question
from needlepoint.theory.location.ridge import sequences

for part in ("channels", "theory", "simulation"):
    package = importlib.import_module(f"needlepoint.{part}")
    for module in pkgutil.walk_packages(package.__path__, f"needlepoint.{part}."):
        importlib.import_module(module.name)
TABLE = routes.table()

CHOICES = {"cosines of keys", "norms of keys", "scan of keys", "starts of minima", "quadrature at a key"}
"""Where a search looks first, and how finely: routes of these need not agree."""

ELSEWHERE = {
    "Bayes risk": "theory/location/bayes/test_given_teachers.py",
    "posterior means": "theory/location/bayes/test_samples.py",
    "posterior of places": "simulation/location/test_bayes_amp.py",
    "element-wise bound": "theory/location/population/test_statements.py",
    "Bayes asymptote": "theory/location/population/test_statements.py",
    "linear asymptote": "theory/location/population/test_statements.py",
    "limits of the risk": "theory/location/population/test_best_key.py",
    "named point": "channels/test_branches.py",
    "landscape": "theory/location/erf/test_landscape.py",
    "quadrature on spheres": "theory/location/dynamics/test_descent.py",
    "exponents": "theory/indexed/test_power_laws.py",
    "minima of sequences": "theory/fields/states/test_minima.py",
    "directions": "theory/indexed/test_power_laws.py",
    "thresholds": "theory/indexed/test_thresholds.py",
}
"""Formulas without a generic route, and the file of tests that has their second route."""

TASKS = {ndl.SpikedSLR: ndl.SpikedSLR, ndl.MaxSLR: ndl.MaxSLR, SingleLocation: ndl.SpikedSLR, None: ndl.SpikedSLR}
OF_FORM = {"elementwise": ndl.Erf, "kernel": ndl.Softplus, None: ndl.Softplus}
CONSTANTS = {ndl.Erf: {"scale": 0.6, "shift": 0.2, "offset": 0.7}}
PLAIN = {"training sequences", "softmax key", "optimum", "linear optimum"}  # asked where the token's norm says nothing
OPTIONS = PredictionOptions(0, 1e-8)
N = 200


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def drawn(one, seed=0):
    """A task, a model and overlaps for the types of a route, with vectors k and v (2, 3) that have these overlaps."""
    rng = np.random.default_rng([seed, len(one.quantity)])
    kind = TASKS[one.task]
    shape = {} if kind is ndl.MaxSLR or one.quantity in PLAIN else {"relevant_std": 0.8}
    task = kind(2, float(rng.uniform(1.0, 3.0)), noise=0.3, **shape)
    concrete = one.activation is not None and one.activation.__name__ in names("activation")
    activation = one.activation if concrete else OF_FORM[getattr(one.activation, "form", one.form)]
    model = ndl.KeyValueAttention(activation(**CONSTANTS.get(activation, {})))
    k, v = vectors = rng.standard_normal((2, 3)) * 0.6
    return task, model, overlaps_of(k, v), vectors


def overlaps_of(k, v):
    return ndl.Overlaps(k[0], v[1], v[0], k[1], float(k @ v), float(k @ k), float(v @ v))


def flat(x):
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in jax.tree.leaves(x)])


# --- what a sequence does to its fields --------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=(0, 1))
def _at_minimum(function, activation, channel, sample):
    found = function(activation, channel, sample)
    return found.scores, replies.reply(activation, channel, sample, found.scores)


def fields_of(one, tokens=2):
    rng = np.random.default_rng(tokens)
    model = drawn(one)[1]
    sample = replies.Sample(*(jnp.asarray(rng.standard_normal(s)) for s in ((N,), (tokens, N), (tokens, N))))
    return type(model.activation), replies.Channel(model.constants(), 0.4, 0.3), sample


def check_proximal(one):
    for tokens in (n for n in (1, 2, 3) if one.when is None or one.when(tokens=n)):
        asked = fields_of(one, tokens)
        generic = routes.routes("proximal", activation=asked[0], tokens=tokens)[-1]
        assert generic.cost == routes.GENERIC
        mine, other = (flat(_at_minimum(r.function, *asked)[1].envelope) for r in (one, generic))
        yield mine, other, 1e-9 * (1 + np.abs(other))


def check_response(one):
    activation, channel, sample = asked = fields_of(one)
    scores = _at_minimum(proximal.proximal, *asked)[0]
    responses = [r(activation, channel, sample, scores) for r in (one.function, any_activation.general_response)]
    yield *map(flat, responses), 1e-8


def check_divergence(one):
    activation, channel, sample = asked = fields_of(one)
    scores, at = _at_minimum(proximal.proximal, *asked)
    G = any_activation.general_response(activation, channel, sample, scores)
    h = 1e-5
    ends = (_at_minimum(proximal.proximal, *asked[:2], sample._replace(y=sample.y + s * h))[1] for s in (1, -1))
    up, down = (np.asarray(x.g_v[0]) for x in ends)
    label = (up - down) / (2 * h)
    yield flat(one.function(channel, at)), flat((-jnp.trace(G.kk), -jnp.trace(G.vv), label)), 1e-6


def check_derivatives(one):
    activation, channel, sample = fields_of(one, 3)
    s = replies.activation_weights(activation, channel.c, sample.w_chi)
    asked = activation, channel.c, sample.w_chi, s, sample.w_z, sample.w_z * s
    yield *(flat(r(*asked)) for r in (one.function, generic_of(one).function)), 1e-10


def check_jacobian(one):
    activation, channel, sample = fields_of(one, 3)
    both = (r.function(activation, channel.c, sample.w_chi) for r in (one, generic_of(one)))
    mine, other = (flat((J.weights, J.diagonal, J.pull(sample.w_z), J.squares(sample.w_z))) for J in both)
    yield mine, other, 1e-10


def generic_of(one):
    return max((r for r in TABLE if r.quantity == one.quantity), key=lambda r: r.cost)


# --- means and risks ---------------------------------------------------------------------------------


def check_excess_risk(one):
    task, model, overlaps, _ = drawn(one)
    mine = one.function(task, model, overlaps)
    dearer = [r for r in routes.routes("excess risk", task=task, model=model) if r.cost > one.cost]
    assert dearer
    for other in dearer:
        known = other.function(task, model, overlaps)
        yield mine.value, known.value, mine.error + known.error
        assert known.error < 0.02 * known.value


def by_sampling(task, model, overlaps):
    """The means by Sobol points, and three standard errors."""
    asked = task, type(model.activation), constants(task, model), overlaps.key, overlaps.key_sq
    found = np.array([flat(m) for m in sampled.scrambles(*asked, 12, 16)])
    return found.mean(axis=0), 4 * found.std(axis=0, ddof=1) / 4 + 1e-12


def check_elementwise_means(one):
    task, model, overlaps, _ = drawn(one)
    winner = winner_law(task, 4) if task.tilted else None
    c, nodes = constants(task, model), 0 if one.name == "closed" else 256
    yield (
        flat(one.function(type(model.activation), c, winner, overlaps.key, overlaps.key_sq, nodes)),
        *by_sampling(task, model, overlaps),
    )


def check_kernel_means(one):
    task, model, overlaps, _ = drawn(one)
    kernel = functools.partial(type(model.activation).log_kernel, xp=np)
    yield flat(one.function(task, kernel, overlaps.key, overlaps.key_sq)), *by_sampling(task, model, overlaps)


def check_means_at_a_key(one):
    task, model, overlaps, _ = drawn(one)
    asked = Question(task, model), {}, overlaps.key, overlaps.key_sq, FINAL, True
    yield flat(one.function(*asked)), *by_sampling(task, model, overlaps)


def check_sampled_means(one):
    task, model, overlaps, _ = drawn(one)
    mean, error = by_sampling(task, model, overlaps)  # by this route
    (means,) = routes.routes("means of kernels", task=task)
    kernel = functools.partial(type(model.activation).log_kernel, xp=np)
    yield flat(means.function(task, kernel, overlaps.key, overlaps.key_sq)), mean, error


def check_risk_on_spheres(one):
    task, model, _, vectors = drawn(one)
    overlaps = overlaps_of(*(x / np.linalg.norm(x) for x in vectors))
    five = jnp.asarray([x for _, x in overlaps.items()][:5])
    known = ndl.excess_risk(task, model, overlaps, method="elementwise")
    yield float(one.function(constants(task, model), five)), known.value, known.error + 1e-12


# --- the optimum -------------------------------------------------------------------------------------


def searched(task, model):
    search = generic_of(next(r for r in TABLE if r.quantity == "optimum"))
    return search.function(task, model, ndl.Population(), OPTIONS)


def check_optimum(one):
    task, model, _, _ = drawn(one)
    model = model.replace(unit_norm=one.name == "spheres")
    mine, other = one.function(task, model, ndl.Population(), OPTIONS).excess_risk, searched(task, model).excess_risk
    yield mine.value, other.value, mine.error + other.error + 1e-8


def check_linear_optimum(one):
    task = drawn(one)[0]
    found = searched(task, ndl.KeyValueAttention(ndl.Linear()))
    risk, key, value = one.function(task)
    yield risk.value, found.excess_risk.value, risk.error + found.excess_risk.error + 1e-9
    yield np.array([key, value]), np.array([found.overlaps.key, found.overlaps.value]), 1e-3  # a flat minimum


def check_softmax_key(one):
    for kind in (ndl.SpikedSLR, ndl.MaxSLR):
        task = kind(2, 1.7)
        found = searched(task, ndl.KeyValueAttention(ndl.Softmax()))
        yield one.function(task), found.overlaps.key, 1e-3  # a flat minimum


def check_plain_scores(one):
    task = drawn(one)[0]
    small = Question(task, ndl.KeyValueAttention(ndl.Erf())).value(Point(0, 1e-4, 1.0, {}), FINAL)
    yield one.function(task).value, small, 1e-6


# --- flows -------------------------------------------------------------------------------------------


def by_differences(task, model, vectors, h=1e-4):
    """The flow of the seven overlaps (eq:location-flow), from numerical derivatives of the risk in k and v."""
    slope = np.zeros((2, 3))
    for i in np.ndindex(2, 3):
        ends = [vectors + s * h * (np.arange(6).reshape(2, 3) == 3 * i[0] + i[1]) for s in (1, -1)]
        up, down = (ndl.excess_risk(task, model, overlaps_of(*x)).value for x in ends)
        slope[i] = (up - down) / (2 * h)
    (k, v), (dk, dv) = vectors, -slope / 2
    return np.array([dk[0], dv[1], dv[0], dk[1], dk @ v + k @ dv, 2 * k @ dk, 2 * v @ dv])


def check_rates(one, task=None):
    drawn_task, model, overlaps, vectors = drawn(one)
    for asked in [task] if task else [drawn_task, ndl.MaxSLR(2, 1.5)]:
        found = one.function(asked, model, 0, False)[0]
        mine, other = (np.asarray(f(np.array([x for _, x in overlaps.items()])).flow) for f in found[:2])
        yield mine, by_differences(asked, model, vectors), 2 * np.abs(mine - other) + 1e-6


def check_token(one):
    """What is said of one token, in the rates by scores, which are made of it."""
    by_scores = next(r for r in TABLE if r.quantity == "rates" and r.name == "by scores")
    yield from check_rates(by_scores, task=drawn(one)[0])


# --- the sequences of ridge training -----------------------------------------------------------------


def check_sequences(one):
    """With forces tanh of the scores, the conjugate of m_k is the derivative by m_k of the mean of log cosh."""
    task = drawn(one)[0]
    law, kind = ndl.core.lowering.lower(task)[1], one.function
    base = sequences.base_normals(sequences.points(task, ndl.Linear, 3, 11, 16, 0))

    def mean(m_k, integrand):
        order = sequences.Order(m_k, 0.9, 1.0, 0.3, 0.8, 1.0)
        found = [
            jnp.mean(kind.place(law, row)[1] * integrand(order, row, jnp.tanh(kind.scores(law, order, row))))
            for row in (sequences.Base(*(jnp.asarray(x[i]) for x in base)) for i in range(16))
        ]
        return np.array(found)

    def pull(order, row, g):
        V_k = -jnp.sum(g * row.score, axis=0) / kind.scatter(order)
        return kind.pull(law, order, row, kind.place(law, row)[0], g, V_k)

    def energy(order, row, g):
        return -0.5 * jnp.sum(jnp.log1p(-(g**2)), axis=0)  # log cosh, from tanh

    h = 1e-4
    gaps = mean(0.5, pull) - (mean(0.5 + h, energy) - mean(0.5 - h, energy)) / (2 * h)
    yield mean(0.5, pull).mean(), (mean(0.5, pull) - gaps).mean(), 4 * gaps.std(ddof=1) / 4 + 1e-6


CHECKS = {
    "proximal": check_proximal,
    "response": check_response,
    "divergence": check_divergence,
    "derivatives of weights": check_derivatives,
    "Jacobian of weights": check_jacobian,
    "excess risk": check_excess_risk,
    "means of element-wise weights": check_elementwise_means,
    "means of kernels": check_kernel_means,
    "means at a key": check_means_at_a_key,
    "sampled means": check_sampled_means,
    "risk on spheres": check_risk_on_spheres,
    "optimum": check_optimum,
    "linear optimum": check_linear_optimum,
    "softmax key": check_softmax_key,
    "risk of plain scores": check_plain_scores,
    "rates": check_rates,
    "score coordinates": check_token,
    "relevant token": check_token,
    "training sequences": check_sequences,
}


def is_reference(one):
    return one.cost == routes.GENERIC or (one.quantity, one.name) == ("means at a key", "qmc")


def disagreement(one):
    """The largest difference from the reference in units of what is allowed: 1 or less where the route holds."""
    found = [
        np.max(np.abs(np.asarray(mine) - np.asarray(other)) / np.maximum(allowed, 1e-300))
        for mine, other, allowed in CHECKS[one.quantity](one)
    ]
    assert found, f"nothing was compared for {one}"
    return max(found)


@pytest.mark.contract
def test_no_quantity_escapes():
    asked = {one.quantity for one in TABLE}
    assert asked == set(CHECKS) | CHOICES | set(ELSEWHERE)
    here = Path(__file__).parent
    assert [path for path in ELSEWHERE.values() if not (here / path).exists()] == []


@pytest.mark.contract
@pytest.mark.parametrize(
    "one",
    [one for one in TABLE if one.quantity not in CHOICES and one.quantity not in ELSEWHERE and not is_reference(one)],
    ids=lambda one: f"{one.quantity}: {one}",
)
def test_a_route_is_the_generic_one(one):
    assert disagreement(one) <= 1


def wrong(one):
    """The route with a constant that is off by 3 %."""

    def function(*args):
        found = one.function(*args)
        if isinstance(found, Estimate):
            return Estimate(1.03 * found.value, found.error)
        return jax.tree.map(lambda x: 1.03 * x, found)

    return dataclasses.replace(one, function=function)


@pytest.mark.negative
@pytest.mark.parametrize(
    ("quantity", "name"),
    [
        ("proximal", "pair"),
        ("response", "closed"),
        ("derivatives of weights", "normalised"),
        ("excess risk", "closed"),
        ("excess risk", "kernel"),
        ("means of element-wise weights", "closed"),
        ("means of kernels", "tilted"),
        ("linear optimum", "shifted"),
        ("risk on spheres", "closed"),
    ],
)
def test_a_wrong_constant_is_seen(quantity, name):
    one = next(r for r in TABLE if (r.quantity, r.name) == (quantity, name))
    assert disagreement(wrong(one)) > 1


@pytest.mark.negative
def test_a_new_route_without_a_question_is_seen():
    with pytest.raises(KeyError):
        disagreement(dataclasses.replace(TABLE[0], quantity="a new quantity"))
    assert math.isfinite(disagreement(next(r for r in TABLE if r.quantity == "response" and not is_reference(r))))

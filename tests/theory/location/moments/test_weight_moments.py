"""The risk at seven overlaps: against sampled fields, real vectors, symmetries, and its descent to the manifold."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import optimize, special

import needlepoint as ndl
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.moments import weight_moments
from needlepoint.theory.location.population.best_key import FINAL, SCAN, SEARCH, Question

INF = math.inf
OVERLAPS = ndl.Overlaps(0.6, 0.5, 0.5, 0.4, -0.4, 1.6, 2.2)
SEVEN = tuple(x for _, x in OVERLAPS.items())
ERF = ndl.Erf(0.9, 0.3, 0.5)
WEIGHTS = {  # by hand, in numpy
    ndl.Softmax(): lambda x: special.softmax(x, axis=-1),
    ndl.Softplus(): lambda x: np.logaddexp(0, x) / np.sum(np.logaddexp(0, x), axis=-1, keepdims=True),
    ndl.Linear(): lambda x: 1 + x,
    ERF: lambda x: 0.5 + special.erf(0.9 * x + 0.3),
}
TASKS = [
    ndl.SpikedSLR(3, snr=3.0, relevant_std=0.8),
    ndl.SpikedSLR({1: 0.3, 4: 0.7}, snr=1.5, relevant_std=1.3),
    ndl.MaxSLR(3, snr=1.5),
    ndl.MaxSLR(2, snr=INF),
    ndl.MaxSLR({1: 0.4, 3: 0.6}, snr=4.0),
]


@float64
def moments_of(task, activation, key, key_sq, coarseness=FINAL):
    return Question(task, ndl.KeyValueAttention(activation)).moments({}, key, key_sq, coarseness, rest=True)


def theory(task, activation, seven=SEVEN):
    return float(weight_moments.excess_risk(task, moments_of(task, activation, seven[0], seven[5]), seven))


@functools.lru_cache(maxsize=1)
def fields_of(task, samples=600_000):
    """(probability, z*_J, scores, values) for every length, from the four fields (k*, v*, k, v) of every token."""
    rng, factor, parts = np.random.default_rng(0), np.linalg.cholesky(OVERLAPS.gram()), []
    for n, p in task.length_law:
        fields = rng.standard_normal((samples, n, 4)) @ factor.T
        if isinstance(task, ndl.SpikedSLR):
            place = np.zeros(samples, dtype=int)
            fields[:, 0] = task.relevant_std * fields[:, 0] + math.sqrt(task.snr) * OVERLAPS.gram()[0]
        else:
            gumbel = rng.gumbel(size=(samples, n)) / task.snr if task.snr < INF else 0.0
            place = np.argmax(fields[..., 0] + gumbel, axis=1)
        _, star, score, value = np.moveaxis(fields, -1, 0)
        parts.append((p, star[np.arange(samples), place], score, value))
    return parts


def sampled(task, activation):
    """Mean and standard error of (z*_J - f)^2."""
    mean, variance = 0.0, 0.0
    for p, label, score, value in fields_of(task):
        error = (label - np.sum(WEIGHTS[activation](score) * value, axis=1)) ** 2
        mean, variance = mean + p * error.mean(), variance + p**2 * error.var() / len(error)
    return mean, math.sqrt(variance)


@pytest.mark.montecarlo
@pytest.mark.negative
@pytest.mark.parametrize("activation", WEIGHTS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_risk_of_sampled_fields(task, activation):
    """And the same samples refuse a flipped overlap, another snr, and the means of eq:max-risk with one left out."""
    value, se = sampled(task, activation)
    exact = theory(task, activation)
    assert se < 0.01 * exact
    assert abs(value - exact) < 5 * se
    assert ndl.excess_risk(task, ndl.KeyValueAttention(activation), OVERLAPS).value == pytest.approx(exact, rel=1e-11)
    wrong = {}
    straight = isinstance(activation, ndl.Linear) and isinstance(task, ndl.MaxSLR)
    for i in (1, 2, 3) if straight else (1, 2, 3, 4):  # there rho enters by E sigma'' = 0 and by its square
        wrong[f"flip {i}"] = theory(task, activation, tuple(-x if j == i else x for j, x in enumerate(SEVEN)))
    if task.snr < INF:
        wrong["snr"] = theory(task.replace(snr=(4 if isinstance(task, ndl.SpikedSLR) else 0.1) * task.snr), activation)
    mean = moments_of(task, activation, SEVEN[0], SEVEN[5])
    names = ("rest_star", "rest_rest") if isinstance(task, ndl.MaxSLR) else ("weight_xi", "xi_mu", "weight_mu")
    for name in () if isinstance(activation, ndl.Linear) else names:  # its f^2 is so large that they drown
        wrong[name] = float(weight_moments.excess_risk(task, mean._replace(**{name: 0.0}), SEVEN))
    for name, other in wrong.items():
        assert abs(value - other) > 5 * se, name


@pytest.mark.montecarlo
@pytest.mark.parametrize(
    ("task", "activation"),
    [
        (TASKS[0].replace(noise=0.3), ndl.Softplus()),
        # as the tests of simulated risks show too
        pytest.param(TASKS[2].replace(noise=0.3), ndl.Softmax(), marks=pytest.mark.slow),
        pytest.param(TASKS[3], ERF, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_risk_of_real_vectors(task, activation):
    model = ndl.KeyValueAttention(activation)
    measured = ndl.simulate(task, model, ndl.Population(), d=5, repeats=16, samples=8000, overlaps=OVERLAPS).risk
    predicted = ndl.population_risk(task, model, OVERLAPS)
    assert measured.error < 0.01 * measured.value
    assert abs(measured.value - predicted.value) < 5 * measured.error
    flipped = ndl.population_risk(task, model, OVERLAPS.replace(key_on_value=-OVERLAPS.key_on_value))
    assert abs(measured.value - flipped.value) > 5 * measured.error


@pytest.mark.exact
@pytest.mark.parametrize("activation", WEIGHTS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_the_flip_that_protects_the_manifold(task, activation):
    """(v, v*, noise) -> -(v, v*, noise) changes theta, eta and rho only, so that their gradient vanishes on M."""
    mean = moments_of(task, activation, SEVEN[0], SEVEN[5])

    def risk(theta, eta, rho):
        seven = (*SEVEN[:2], theta, eta, rho, *SEVEN[5:])
        return float(weight_moments.excess_risk(task, mean, seven))

    assert risk(-0.5, -0.4, 0.4) == pytest.approx(risk(0.5, 0.4, -0.4), rel=1e-13)
    A, B = weight_moments.on_manifold(task.label_var, mean)
    assert risk(0.0, 0.0, 0.0) == pytest.approx(task.label_var - 2 * A * SEVEN[1] + B * SEVEN[6], rel=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("activation", WEIGHTS, ids=lambda a: type(a).__name__)
def test_a_key_along_the_teacher_is_a_limit(activation):
    """At |k| = k . k* the part of k beyond k* vanishes; the risk is continuous there (to the step 1e-5 in |k|^2)."""
    for task in TASKS[2:4]:
        at, near = (0.8, 0.4, 0.3, 0.0, 0.24, 0.64, 0.9), (0.8, 0.4, 0.3, 0.0, 0.24, 0.64 + 1e-8, 0.9)
        assert theory(task, activation, near) == pytest.approx(theory(task, activation, at), abs=1e-7)


@pytest.mark.exact
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_without_a_key_there_is_uniform_attention(task):
    """k = 0: f = sum z_l / L for softmax, and the label is correlated with v through v* and, under MaxSLR, k*."""
    nu, theta, value_sq = 0.5, 0.5, 1.3
    G = task.label_var
    spread = sum(p * (G - 1 + n) / n**2 for n, p in task.length_law)
    mean = sum(p / n for n, p in task.length_law)
    expected = G - 2 * G * nu * mean + value_sq * spread
    if isinstance(task, ndl.SpikedSLR):
        expected += task.snr * theta**2 * sum(p / n**2 for n, p in task.length_law)
    found = theory(task, ndl.Softmax(), (0.0, nu, theta, 0.0, 0.0, 0.0, value_sq))
    assert found == pytest.approx(expected, rel=1e-11)


# --- descent over all overlaps -------------------------------------------------------------------


@float64
def descent(task, activation, start, coarseness, constants=None, unit_norm=False):
    """BFGS on k = (kappa, eta, k3), v = (theta, nu, v3, v4) in the frame k* = e1, v* = e2 (and free constants)."""
    question = Question(task, ndl.KeyValueAttention(activation, unit_norm=unit_norm))
    names = question.free

    def vectors(x):
        k, v = x[:3], x[3:7]
        return (k / np.linalg.norm(k), v / np.linalg.norm(v)) if unit_norm else (k, v)

    def risk(x):
        k, v = vectors(x)
        seven = (k[0], v[1], v[0], k[1], k @ v[:3], k @ k, v @ v)
        free = dict(zip(names, map(float, x[7:]), strict=True))
        mean = question.moments(free, float(k[0]), float(k @ k), coarseness, rest=True)
        return float(weight_moments.excess_risk(task, mean, seven))

    found = optimize.minimize(risk, np.concatenate([start, constants or []]), method="BFGS", options={"gtol": 1e-6})
    return found.fun, *vectors(found.x)


NEAR = [
    (ndl.SpikedSLR(2, 2.0), ndl.Softmax(), SEARCH),
    (ndl.SpikedSLR({1: 0.3, 4: 0.7}, 2.0), ndl.Softmax(), SEARCH),
    (ndl.MaxSLR(2, 2.0), ndl.Softmax(), SEARCH),
    (ndl.SpikedSLR(3, 2.0, relevant_std=0.8), ndl.Linear(), SCAN),
    (ndl.MaxSLR(3, INF), ndl.Linear(), SCAN),
    (ndl.SpikedSLR(2, 2.0), ndl.Erf(shift=None, offset=1.0), SCAN),
    (ndl.MaxSLR(2, INF), ndl.Erf(shift=None, offset=1.0), SCAN),
]


@pytest.mark.exact
@pytest.mark.parametrize(("task", "activation", "coarseness"), NEAR, ids=str)
def test_descent_from_near_the_manifold_returns_to_it(task, activation, coarseness):
    """Off-manifold overlaps up to .3 at the start; at the end they are what a gradient of 1e-6 leaves."""
    best = ndl.predict(task, ndl.KeyValueAttention(activation), ndl.Population())
    constants = [getattr(best.resolved[1].activation, name) for name in activation.free_constants()]
    rng = np.random.default_rng(3)
    for _ in range(1 if coarseness == SEARCH else 2):
        k = np.array([best.overlaps.key, 0, 0]) + rng.uniform(-0.3, 0.3, 3)
        v = np.array([0, best.overlaps.value, 0, 0]) + rng.uniform(-0.3, 0.3, 4)
        value, k, v = descent(task, activation, np.concatenate([k, v]), coarseness, [c + 0.1 for c in constants])
        # the tables are good to 1e-7, and the minimum is quadratic
        assert value == pytest.approx(best.excess_risk.value, abs=1e-6)
        assert max(abs(k[1]), abs(v[0]), abs(k @ v[:3] - k[1] * v[1])) < 2e-3
        assert k[0] == pytest.approx(best.overlaps.key, abs=3e-3)
        assert v[1] == pytest.approx(best.overlaps.value, abs=3e-3)


@pytest.mark.exact
def test_zero_offset_erf_has_another_minimum():
    """sheet 01, section 6: on the unit spheres k = v*, v near k* is a minimum of erf(.05 chi), below the manifold's."""
    task, activation = ndl.SpikedSLR(10, snr=200, relevant_std=0.5**0.5), ndl.Erf(0.05)
    start = np.array([0.1, 1.0, 0.1, 0.9, 0.1, 0.1, 0.3])
    value, k, v = descent(task, activation, start, FINAL, unit_norm=True)
    assert value == pytest.approx(0.049927, abs=1e-6)
    assert abs(k[1]) == pytest.approx(1.0, abs=1e-5)
    model = ndl.KeyValueAttention(activation, unit_norm=True)
    oracle = ndl.excess_risk(task, model, ndl.Overlaps(1.0, 1.0)).value
    assert value < oracle - 0.01
    # and the oracle is where the descent from near the manifold ends
    value, k, v = descent(task, activation, np.array([1.0, 0.05, 0.1, 0.05, 1.0, 0.1, 0.1]), FINAL, unit_norm=True)
    assert value == pytest.approx(oracle, abs=1e-8)
    assert min(k[0], v[1]) > 1 - 1e-6


@pytest.mark.exact
def test_lengths_mix_linearly():
    for kind, activation in itertools.product((ndl.SpikedSLR, ndl.MaxSLR), WEIGHTS):
        law = {1: 0.2, 3: 0.3, 8: 0.5}
        mixed = theory(kind(law, snr=1.7), activation)
        assert mixed == pytest.approx(sum(p * theory(kind(n, snr=1.7), activation) for n, p in law.items()), rel=1e-11)

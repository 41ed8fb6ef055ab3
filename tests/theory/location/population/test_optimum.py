"""The best attention at infinite data, norms free or fixed: minima that are minima, infima that say so."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import needlepoint as ndl

INF = math.inf
UNIFORM = dict.fromkeys((1, 2, 3), 1 / 3)
EVERYWHERE = ndl.Population(within="all")


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


def predict(task, activation, learner=None, unit_norm=False, **more):
    return ndl.predict(
        task, ndl.KeyValueAttention(activation, unit_norm=unit_norm), learner or ndl.Population(), **more
    )


def overlaps_of(k, v):
    return ndl.Overlaps(k[0], v[1], v[0], k[1], float(k @ v[:3]), float(k @ k), float(v @ v))


ATTAINED = [
    (ndl.SpikedSLR(2, 2.0, noise=0.3), ndl.Softmax(), False),
    (ndl.SpikedSLR(3, 4.0, relevant_std=0.6), ndl.Softmax(), False),
    (ndl.SpikedSLR(5, 3.0), ndl.Softplus(), False),
    (ndl.SpikedSLR(2, 2.0), ndl.Linear(), False),
    slow(ndl.SpikedSLR(UNIFORM, 2.0), ndl.Erf(shift=None, offset=1.0), False),
    (ndl.SpikedSLR(2, 2.0), ndl.Erf(), False),
    (ndl.MaxSLR(3, 1.5), ndl.Softmax(), False),
    (ndl.MaxSLR(2, 2.0), ndl.Softplus(), False),
    (ndl.MaxSLR(3, INF), ndl.Linear(), False),
    slow(ndl.MaxSLR(UNIFORM, INF), ndl.Erf(shift=None, offset=None), False),
    (ndl.SpikedSLR(4, 3.0), ndl.Softmax(), True),
    (ndl.MaxSLR(2, 2.0), ndl.Softplus(), True),
    slow(ndl.MaxSLR(2, 2.0), ndl.Erf(None, None, 1.0), True),
]


@pytest.mark.exact
@pytest.mark.parametrize(("task", "activation", "unit_norm"), ATTAINED, ids=str)
def test_the_optimum_has_no_better_neighbour(task, activation, unit_norm):
    """Risks at perturbed vectors by another function; the slope is what is left of a minimum found to 1e-8."""
    best = predict(task, activation, unit_norm=unit_norm)
    resolved, at = best.resolved[1], best.overlaps
    assert best.status is ndl.Status.CONVERGED
    assert best.exact
    assert at.distance_to_manifold == 0
    assert best.risk.value == pytest.approx(best.excess_risk.value + task.noise**2, rel=1e-14)
    here = ndl.excess_risk(task, resolved, at)
    assert abs(here.value - best.excess_risk.value) <= here.error + best.excess_risk.error
    k, v = np.array([at.key, 0, math.sqrt(max(0.0, at.key_sq - at.key**2))]), np.array([0, at.value, 0, 0.0])
    rng = np.random.default_rng(0)

    def moved(direction, size):
        a, b = k + size * direction[:3], v + size * direction[3:]
        if unit_norm:
            a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        return ndl.excess_risk(task, resolved, overlaps_of(a, b)).value

    for _ in range(3):
        direction = rng.standard_normal(7)
        plus, minus = moved(direction, 2e-4), moved(direction, -2e-4)
        assert min(plus, minus) >= here.value - 1e-11 - here.error
        # the odd part: the slope, and a sixth of the third derivative times 4e-8
        assert abs(plus - minus) / 4e-4 < 5e-6
        # negative twin: at a point 5 % away there is a slope (but for a key that the sphere fixes)
        far = direction * 30
        assert moved(far, 2e-3) > here.value + 1e-5


@pytest.mark.exact
@pytest.mark.parametrize("shift", [0.05, -0.05])
def test_free_constants_are_stationary(shift):
    task = ndl.SpikedSLR(3, 2.0)
    best = predict(task, ndl.Erf(shift=None, offset=None))
    erf = best.resolved[1].activation
    for name in ("shift", "offset"):
        other = predict(task, erf.replace(**{name: getattr(erf, name) + shift}))
        assert best.excess_risk.value < other.excess_risk.value < best.excess_risk.value + 1e-2


# --- softmax and linear ----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [1, 2, 60, UNIFORM], ids=str)
@pytest.mark.parametrize("snr", [0.0, 1e-8, 0.4, 20.0])
def test_softmax_is_bayes_optimal(tokens, snr):
    for task in (ndl.SpikedSLR(tokens, snr, noise=0.2), ndl.MaxSLR(tokens, snr, noise=0.2)):
        best, bayes = predict(task, ndl.Softmax()), ndl.predict(task, None, ndl.BayesOptimal())
        assert best.excess_risk == bayes.excess_risk
        assert best.overlaps.key == pytest.approx(ndl.softmax_key(task), rel=1e-15)
        assert best.overlaps.value == 1.0
        assert predict(task, ndl.Softmax(), EVERYWHERE).excess_risk == bayes.excess_risk
        here = ndl.excess_risk(task, ndl.KeyValueAttention(ndl.Softmax()), best.overlaps)
        assert abs(here.value - bayes.excess_risk.value) <= here.error + bayes.excess_risk.error


@pytest.mark.exact
def test_softmax_is_not_bayes_optimal_where_the_norm_is_informative():
    """relevant_std != 1: the posterior has a square of the score, and softmax attention is searched for."""
    task = ndl.SpikedSLR(3, 3.0, relevant_std=0.6)
    best, bayes = predict(task, ndl.Softmax()), ndl.predict(task, None, ndl.BayesOptimal(d=2))
    assert best.excess_risk.value > bayes.excess_risk.value + 0.01
    assert best.overlaps.key != pytest.approx(math.sqrt(3.0), rel=0.01)


def test_an_infinite_snr_asks_for_an_infinite_key():
    task = ndl.MaxSLR(4, INF, noise=0.1)
    best = predict(task, ndl.Softmax())
    assert (best.status, best.ok) == (ndl.Status.UNBOUNDED, True)
    assert "norm of the key goes to infinity" in best.notes[0]
    assert best.excess_risk.value == 0.0
    assert best.risk.value == pytest.approx(0.01)
    # approached like 1 / |k|: the mean of the ties
    risks = [
        ndl.excess_risk(task, ndl.KeyValueAttention(ndl.Softmax()), ndl.Overlaps(c, 1.0, key_sq=c * c)).value
        for c in (40.0, 80.0)
    ]
    assert risks[0] / risks[1] == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(
    "activation", [ndl.Softmax(), ndl.Softplus(), ndl.Linear(), slow(ndl.Erf(shift=None, offset=1.0))], ids=str
)
def test_a_single_token_needs_no_key(activation):
    """L = 1 is attained by v = v* whatever the key, at every snr."""
    for task in (ndl.SpikedSLR(1, 2.0), ndl.MaxSLR(1, 2.0), ndl.MaxSLR(1, INF)):
        best = predict(task, activation)
        assert best.status is ndl.Status.CONVERGED
        assert abs(best.excess_risk.value) <= best.excess_risk.error + 1e-15
        assert best.excess_risk.error < 1e-7


@pytest.mark.exact
@pytest.mark.slow
def test_nothing_to_find_without_a_signal():
    for task in (ndl.SpikedSLR(3, 0.0), ndl.MaxSLR(3, 0.0)):
        for activation in (ndl.Softmax(), ndl.Softplus(), ndl.Linear(), ndl.Erf(shift=None, offset=1.0)):
            best = predict(task, activation)
            assert best.overlaps.key == 0.0
            assert best.excess_risk.value == pytest.approx(2 / 3, abs=1e-12 + best.excess_risk.error)
        pure = predict(task, ndl.Erf())  # weights vanish with the key, and so does the prediction
        assert pure.excess_risk.value == pytest.approx(1.0, abs=1e-12)


# --- erf -------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("tokens", "snr", "std"), [(3, 0.3, 1.0), (5, 1.0, 1.0), (1000, 5.0, 1.0), ({1: 0.5, 20: 0.5}, 3.0, 0.5)]
)
def test_zero_offset_erf_goes_to_its_linear_part(tokens, snr, std):
    """With a small key erf is its slope, sigma = x: R = G n' / (...), L / (L + snr) at G = 1, as the key goes to 0."""
    task, G = ndl.SpikedSLR(tokens, snr, std), std**2
    best = predict(task, ndl.Erf())
    assert (best.status, best.ok) == (ndl.Status.UNBOUNDED, True)
    assert "goes to 0" in best.notes[0]
    n = sum(p * (length - 1) for length, p in task.length_law)
    # S1 = sqrt(snr), S2 = G (snr + G) + n, for k of unit norm
    assert best.excess_risk.value == pytest.approx(G - G**2 * snr / (G * (snr + G) + n), abs=1e-9)
    if std == 1.0:
        assert best.excess_risk.value == pytest.approx((n + 1) / (n + 1 + snr), abs=1e-9)


@pytest.mark.exact
def test_zero_offset_erf_may_have_a_minimum():
    """At L = 2, snr 2 saturation helps: below L / (L + snr), by adaptive quadrature and a scalar search."""

    def mean(f, at, q):
        return integrate.quad(lambda x: stats.norm.pdf(x) * f(at + math.sqrt(q) * x), -10, 10, epsabs=1e-11)[0]

    def risk(m):
        first = special.erf(math.sqrt(2) * m / math.sqrt(1 + 2 * m * m))
        square = [mean(lambda x: special.erf(x) ** 2, at, m * m) for at in (0.0, math.sqrt(2) * m)]
        return 1 - first**2 / sum(square)

    brute = optimize.minimize_scalar(risk, bounds=(0.1, 1.0), method="bounded", options={"xatol": 1e-8})
    best = predict(ndl.SpikedSLR(2, 2.0), ndl.Erf())
    assert best.excess_risk.value == pytest.approx(brute.fun, abs=1e-9)
    assert best.overlaps.key == pytest.approx(brute.x, abs=1e-4)
    assert best.excess_risk.value < 0.5 - 1e-3


@pytest.mark.exact
@pytest.mark.parametrize(
    "task",
    [
        ndl.SpikedSLR(3, 2.0),
        ndl.SpikedSLR(8, 0.3),
        ndl.MaxSLR(3, 1.0),
        ndl.MaxSLR(2, 1.0),
        ndl.MaxSLR(UNIFORM, 4.0),
        ndl.MaxSLR(10, 0.0724),
    ],
    ids=str,
)
@pytest.mark.slow
def test_free_constants_can_only_help(task):
    """More that is free is never worse, and never worse than linear attention, its limit, or better than the bound."""
    risks = [
        predict(task, activation, throw=False).excess_risk
        for activation in (ndl.Erf(1.0, -0.3, 1.0), ndl.Erf(shift=None, offset=1.0), ndl.Erf(shift=None, offset=None))
    ]
    # each value is the risk of a point that the freer model has too, so that only the latter's error counts
    assert all(a.value >= b.value - b.error - 1e-12 for a, b in itertools.pairwise(risks))
    assert risks[-1].value >= ndl.elementwise_bound(task).value - 1e-12
    assert risks[-1].value <= ndl.linear_optimum(task)[0].value + risks[-1].error


@pytest.mark.quadrature
def test_the_error_of_an_infimum_covers_the_risk_there():
    """Softplus at relevant_std < 1 asks for ever larger keys, where its tables end and sampled means take over."""
    task = ndl.SpikedSLR(10, 1.9, relevant_std=0.5)
    best = predict(task, ndl.Softplus(), throw=False)
    assert best.status is ndl.Status.UNBOUNDED
    here = ndl.excess_risk(task, ndl.KeyValueAttention(ndl.Softplus()), best.overlaps)
    assert abs(best.excess_risk.value - here.value) <= best.excess_risk.error + here.error
    # and a smaller key, where the tables are exact, is not better by more than that
    near = ndl.key_landscape(task, ndl.KeyValueAttention(ndl.Softplus()), 1.0, 100.0)[0, 0]
    assert best.excess_risk.value <= near + best.excess_risk.error


@pytest.mark.exact
def test_a_smaller_snr_is_never_easier():
    for kind, activation in itertools.product(
        (ndl.SpikedSLR, ndl.MaxSLR), (ndl.Softplus(), ndl.Erf(shift=None, offset=1.0))
    ):
        risks = [predict(kind(3, snr), activation).excess_risk.value for snr in (1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 4.0)]
        assert np.all(np.diff(risks) < 0)
        assert risks[0] == pytest.approx(2 / 3, abs=1e-5)


def test_requests_without_an_answer():
    task = ndl.SpikedSLR(3, 2.0)
    with pytest.raises(ndl.InvalidParameter, match="scale=None needs unit_norm=True"):
        predict(task, ndl.Erf(None))
    with pytest.raises(ndl.InvalidParameter, match="scale=None needs unit_norm=True"):
        predict(ndl.MaxSLR(3, 2.0), ndl.Erf(None, None, None), EVERYWHERE)
    with pytest.raises(ndl.InvalidParameter, match="within"):
        ndl.Population(within="somewhere")
    with pytest.raises(ndl.InvalidParameter, match="not a model"):
        ndl.predict(task, ndl.Softmax(), ndl.Population())


# --- over all overlaps -----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("task", "activation", "unit_norm"),
    [
        (ndl.SpikedSLR(2, 2.0), ndl.Linear(), False),
        (ndl.SpikedSLR(2, 2.0), ndl.Softplus(), False),
        slow(ndl.MaxSLR(3, INF), ndl.Linear(), False),
        (ndl.MaxSLR(2, 2.0), ndl.Erf(shift=None, offset=1.0), False),
        (ndl.MaxSLR(3, INF), ndl.Erf(0.4), True),
        (ndl.SpikedSLR(3, 2.0), ndl.Linear(), True),
    ],
    ids=str,
)
def test_all_overlaps_are_never_worse_than_the_manifold(task, activation, unit_norm):
    on, free = (predict(task, activation, learner, unit_norm) for learner in (ndl.Population(), EVERYWHERE))
    assert free.excess_risk.value <= on.excess_risk.value + on.excess_risk.error + free.excess_risk.error
    here = ndl.excess_risk(task, free.resolved[1], free.overlaps)
    assert abs(here.value - free.excess_risk.value) <= here.error + free.excess_risk.error
    if not unit_norm:  # sheet 02: with free norms the manifold's is the best found
        assert free.excess_risk.value == pytest.approx(on.excess_risk.value, abs=1e-8)


# --- functions of a user ---------------------------------------------------------------------------


@ndl.activation("softmax_of_a_user")
def by_hand(scores):
    return jax.nn.softmax(scores)


@ndl.activation("sink_softmax_of_a_user")
def sink(scores):
    """Temperature 2, and a sink of score 0 that takes what no token does."""
    top = jnp.maximum(jnp.max(scores), 0.0) / 2
    weights = jnp.exp(scores / 2 - top)
    return weights / (jnp.sum(weights) + jnp.exp(-top))


@ndl.activation("sparsemax_of_a_user")
def sparsemax(scores):
    """The projection onto the simplex."""
    ordered = -jnp.sort(-scores)
    rank = jnp.arange(1, scores.shape[0] + 1)
    threshold = jnp.max((jnp.cumsum(ordered) - 1) / rank)
    return jnp.maximum(scores - threshold, 0.0)


@pytest.mark.quadrature
@pytest.mark.parametrize("task", [slow(ndl.SpikedSLR(2, 2.0)), ndl.MaxSLR(2, 2.0)], ids=str)
def test_a_softmax_of_a_user_is_bayes_optimal_within_its_error(task):
    best, bayes = predict(task, by_hand), ndl.predict(task, None, ndl.BayesOptimal()).excess_risk
    assert best.status is ndl.Status.CONVERGED
    assert best.excess_risk.error < 1e-3
    assert abs(best.excess_risk.value - bayes.value) <= best.excess_risk.error
    # the risk is flat at its minimum: |k| is known to the square root of the risk's scatter
    assert best.overlaps.key == pytest.approx(ndl.softmax_key(task), rel=0.05)
    assert best.overlaps.value == pytest.approx(1.0, abs=0.02)


def sparsemax_risk(m, snr=2.0):
    """L = 2, spiked: sigma_1 = clip((1 + t) / 2, 0, 1), t = chi_1 - chi_2 ~ N(sqrt(snr) m, 2 m^2), v eliminated."""
    mean, std = math.sqrt(snr) * m, math.sqrt(2) * m

    def weight(t):
        return min(max((1 + t) / 2, 0.0), 1.0)

    cuts = sorted(c for c in ((-1 - mean) / std, (1 - mean) / std) if -9 < c < 9) or None
    first, second = (
        integrate.quad(lambda z, f=f: stats.norm.pdf(z) * f(weight(mean + std * z)), -9, 9, points=cuts, limit=200)[0]
        for f in (lambda w: w, lambda w: w**2 + (1 - w) ** 2)
    )
    return 1 - first**2 / second


@pytest.mark.quadrature
def test_sparsemax_of_two_tokens_by_quadrature():
    brute = optimize.minimize_scalar(sparsemax_risk, bounds=(0.2, 4.0), method="bounded")
    best = predict(ndl.SpikedSLR(2, 2.0), sparsemax)
    assert abs(best.excess_risk.value - brute.fun) <= best.excess_risk.error
    assert best.excess_risk.error < 1e-3
    assert best.overlaps.key == pytest.approx(brute.x, rel=0.05)
    # negative twin: Bayes is lower by more than the error
    bayes = ndl.predict(ndl.SpikedSLR(2, 2.0), None, ndl.BayesOptimal()).excess_risk.value
    assert brute.fun - bayes > 2 * best.excess_risk.error


@pytest.mark.quadrature
@pytest.mark.parametrize("task", [ndl.SpikedSLR(2, 2.0), slow(ndl.MaxSLR(2, 2.0))], ids=str)
def test_a_sink_costs_what_it_takes(task):
    """Not above any point of a coarse grid, not below Bayes."""
    best, model = predict(task, sink), ndl.KeyValueAttention(sink)
    assert best.status is ndl.Status.CONVERGED
    assert best.excess_risk.value >= ndl.predict(task, None, ndl.BayesOptimal()).excess_risk.value
    landscape = ndl.key_landscape(task, model, [1.0, 0.7], [1.0, 2.0, 4.0, 8.0])
    assert landscape.min() >= best.excess_risk.value - 2e-3


# --- the landscape of keys -------------------------------------------------------------------------


@pytest.mark.exact
def test_the_key_landscape_is_the_risk_with_the_best_value():
    task, model = ndl.MaxSLR(3, 2.0), ndl.KeyValueAttention(ndl.Softplus())
    alignment, scale = np.array([-1.0, 0.2, 1.0]), np.array([0.0, 1.0, 3.0])
    found = ndl.key_landscape(task, model, alignment, scale)
    assert found.shape == (3, 3)
    for (i, s), (j, a) in itertools.product(enumerate(scale), enumerate(alignment)):
        risks = [
            ndl.excess_risk(task, model, ndl.Overlaps(s * a, v, key_sq=s * s, value_sq=v * v)).value for v in (0, 1, 2)
        ]
        # the vertex of the parabola through three values
        second, first = risks[2] - 2 * risks[1] + risks[0], (4 * risks[1] - risks[2] - 3 * risks[0]) / 2
        assert found[i, j] == pytest.approx(risks[0] - first**2 / (2 * second), abs=1e-10)
    best = predict(task, ndl.Softplus())
    norm = math.sqrt(best.overlaps.key_sq)
    at = ndl.key_landscape(task, model, 1.0, [norm, 0.9 * norm, 1.1 * norm])[:, 0]
    assert at[0] == pytest.approx(best.excess_risk.value, abs=best.excess_risk.error + 1e-12)
    assert at[0] < min(at[1:])
    assert found.min() >= at[0]


def test_a_landscape_that_does_not_exist():
    task, model = ndl.MaxSLR(3, 2.0), ndl.KeyValueAttention(ndl.Softplus())
    for bad in ((1.5, 1.0), (0.5, -1.0), (0.5, INF), (math.nan, 1.0)):
        with pytest.raises(ndl.InvalidParameter, match="key_landscape"):
            ndl.key_landscape(task, model, *bad)
    with pytest.raises(ndl.InvalidParameter, match="without free constants"):
        ndl.key_landscape(task, ndl.KeyValueAttention(ndl.Erf(shift=None)), 1.0, 1.0)


@pytest.mark.contract
@pytest.mark.parametrize("within", ["manifold", "all"])
def test_a_search_reports_how_far_it_is(within):
    seen = []
    model = ndl.KeyValueAttention(ndl.Softplus())
    ndl.predict(ndl.SpikedSLR(2, 2), model, ndl.Population(within), throw=False, progress=seen.append)
    assert seen == sorted(seen)
    assert len(set(seen)) > 5
    assert seen[-1] == 1.0

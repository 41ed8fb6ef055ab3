"""Gradient flow and the limit of SGD with free norms: the vector field, the paths, and what is refused."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import needlepoint as ndl
from needlepoint.channels import elementwise
from needlepoint.core.overlaps import vectors_with_gram
from needlepoint.theory.location.dynamics import flow as location_flow
from needlepoint.theory.location.dynamics.elementwise_rates import elementwise_rates, token_rule
from needlepoint.theory.location.moments import score_nodes

K = ndl.KeyValueAttention
SOFTMAX = K(ndl.Softmax())
SPIKED = ndl.SpikedSLR(2, 2.0, noise=0.1)
START = ndl.Overlaps(0.1, 0.1, key_sq=0.25, value_sq=0.25)
OFF = ndl.Overlaps(0.5, 0.6, 0.2, -0.3, 0.15, 1.2, 0.9)


@ndl.activation("sink")
def sink(scores):
    return jnp.exp(scores) / (1.0 + jnp.sum(jnp.exp(scores)))


SINK = K(sink)


def seven(overlaps):
    return np.array([x for _, x in overlaps.items()])


def flat(rates):
    """flow (7), noise of rho, q_k, q_v (3), excess risk."""
    return np.concatenate([rates.flow, rates.noise[4:], [rates.excess_risk]])


def rates(task, model, overlaps=OFF):
    """The eleven numbers and their errors."""
    with jax.enable_x64(True):
        fields, sampled = location_flow.fields(task, model, 0, overlaps.distance_to_manifold == 0)
        found = np.array([flat(f(seven(overlaps))) for f in fields])
    if sampled:
        return found.mean(axis=0), 3 * found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return found[0], np.abs(found[0] - found[1])


# --- the vector field ---------------------------------------------------------------------------


def by_differences(task, model, overlaps, h=1e-4):
    """eq:location-flow from the risk itself, moved along the coordinates of vectors with these overlaps."""
    k_star, v_star, k, v = vectors_with_gram(overlaps)

    def risk(k, v):
        moved = ndl.Overlaps(k @ k_star, v @ v_star, v @ k_star, k @ v_star, k @ v, k @ k, v @ v)
        return ndl.excess_risk(task, model, moved).value

    k_dot = -np.array([risk(k + h * e, v) - risk(k - h * e, v) for e in np.eye(4)]) / (4 * h)
    v_dot = -np.array([risk(k, v + h * e) - risk(k, v - h * e) for e in np.eye(4)]) / (4 * h)
    mixed = k_dot @ v + k @ v_dot
    return np.array(
        [k_dot @ k_star, v_dot @ v_star, v_dot @ k_star, k_dot @ v_star, mixed, 2 * k @ k_dot, 2 * v @ v_dot]
    )


RANDOM = {1: 0.3, 3: 0.7}
ERF = K(ndl.Erf(0.8, 0.1, 0.3))
FIELDS = [
    (ndl.SpikedSLR(RANDOM, 2.0, 0.7, 0.1), SOFTMAX),
    (ndl.SpikedSLR(6, 2.0, 0.7, 0.1), ERF),
    (ndl.SpikedSLR(RANDOM, 2.0, 0.7), ERF),
    (ndl.MaxSLR(2, 2.0), SOFTMAX),
    (ndl.MaxSLR(3, 2.0, 0.5), ERF),
    pytest.param(ndl.MaxSLR(RANDOM, math.inf, 0.1), ERF, marks=pytest.mark.slow),
    pytest.param(ndl.SpikedSLR(2, 2.0, 0.7), K(ndl.Softplus()), marks=pytest.mark.slow),
    pytest.param(ndl.MaxSLR(2, math.inf), SOFTMAX, marks=pytest.mark.slow),
    pytest.param(ndl.SpikedSLR(RANDOM, 2.0, 0.7), K(ndl.Linear()), marks=pytest.mark.slow),
    pytest.param(ndl.MaxSLR(4, 1.5), K(ndl.Linear()), marks=pytest.mark.slow),
]
SAMPLED = [
    (ndl.SpikedSLR({3: 0.5, 6: 0.5}, 2.0, 0.7), SOFTMAX),
    (ndl.MaxSLR(2, math.inf), K(ndl.Softplus())),
    (ndl.MaxSLR(3, 2.0), SOFTMAX),
]


@pytest.mark.exact
@pytest.mark.parametrize(("task", "model"), FIELDS, ids=repr)
def test_the_flow_is_minus_half_the_gradient_of_the_risk(task, model):
    """Differences of step 1e-4 are good to about 1e-8."""
    found, error = rates(task, model)
    np.testing.assert_allclose(found[:7], by_differences(task, model, OFF), atol=3e-8 + 3 * error.max())
    np.testing.assert_allclose(found[10], ndl.excess_risk(task, model, OFF).value, rtol=1e-9)
    assert error.max() < 1e-7


@pytest.mark.quadrature
@pytest.mark.parametrize(("task", "model"), SAMPLED, ids=repr)
def test_sampled_fields_are_right_within_their_error(task, model):
    """Three standard errors of 16 scramblings, 7 numbers a case: twice that is never exceeded."""
    found, error = rates(task, model)
    assert np.all(np.abs(found[:7] - by_differences(task, model, OFF)) < 2 * error[:7] + 3e-8)
    assert error[:7].max() < 1e-3


@pytest.mark.negative
def test_a_missing_coupling_is_seen():
    """Off the manifold, the gradient of the key has a part along v."""
    found, _ = rates(SPIKED, SOFTMAX)
    on_manifold, _ = rates(SPIKED, SOFTMAX, ndl.Overlaps(OFF.key, OFF.value, key_sq=OFF.key_sq, value_sq=OFF.value_sq))
    assert np.abs(found - on_manifold)[:7].max() > 0.01


@pytest.mark.exact
def test_the_noise_of_two_tokens_in_closed_form():
    """Sheet 02, section 7: E[2 s1^2 s2^2 (2 q_v E r^2 + 2 (m_v - q_v (s1 - s2))^2)], one integral."""
    o = ndl.Overlaps(0.4, 0.7, key_sq=0.5, value_sq=0.8)
    x = np.linspace(-9, 9, 4001)
    w = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    s1 = 1 / (1 + np.exp(-(np.sqrt(2.0) * o.key + np.sqrt(2 * o.key_sq) * x)))
    s2 = 1 - s1
    r_sq = 1.01 - 2 * s1 * o.value + o.value_sq * (s1**2 + s2**2)
    key = w @ (2 * s1**2 * s2**2 * (2 * o.value_sq * r_sq + 2 * (o.value - o.value_sq * (s1 - s2)) ** 2))
    value = w @ (r_sq * (s1**2 + s2**2))
    found, _ = rates(SPIKED, SOFTMAX, o)
    np.testing.assert_allclose(found[7:10], [0.0, key, value], rtol=1e-12, atol=1e-15)


def drawn(task, model, overlaps, n, length=3):
    """Samples of r^2 sum_l s_l^2 (G_l sigma_l, G_l^2, sigma_l^2), from sequences in the four dimensions that enter."""

    @jax.jit
    def samples(key, k_star, v_star, k, v):
        x, y, place = task.sample(key, k_star, v_star, n, length)
        sigma, back = jax.vjp(lambda s: model.activation(s), x @ k)
        (G,) = back(x @ v)
        spread_sq = jnp.where(jnp.arange(length) == place[:, None], task.label_var, 1.0)
        r_sq = (y - jnp.sum(sigma * (x @ v), axis=1)) ** 2
        return jnp.stack([r_sq * jnp.sum(spread_sq * a, axis=1) for a in (G * sigma, G**2, sigma**2)])

    with jax.enable_x64(True):
        return np.asarray(samples(jax.random.key(1), *vectors_with_gram(overlaps)))


@pytest.mark.montecarlo
@pytest.mark.parametrize(
    ("task", "model"),
    [
        (ndl.SpikedSLR(3, 2.0, 0.7, 0.5), SOFTMAX),
        (ndl.MaxSLR(3, math.inf, 0.5), K(ndl.Softplus())),
        (ndl.MaxSLR(3, 2.0, 0.5), ERF),
        pytest.param(ndl.SpikedSLR(3, 2.0, 0.7, 0.5), ERF, marks=pytest.mark.slow),
        pytest.param(ndl.SpikedSLR(3, 1.0, 1.3, 0.5), SINK, marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_the_noise_off_the_manifold(task, model):
    found, error = rates(task, model)
    samples = drawn(task, model, OFF, 200_000)
    se = samples.std(axis=1) / np.sqrt(samples.shape[1])
    assert np.abs((samples.mean(axis=1) - found[7:10]) / np.hypot(se, error[7:10])).max() < 5
    assert (se / np.abs(found[7:10]))[1:].max() < 0.01


@pytest.mark.exact
def test_element_wise_sums_are_the_general_formula():
    """eq:token-sums against eq:location-sgd on a product of two lines of scores, all eleven numbers."""
    task, model = ndl.SpikedSLR(2, 2.0, 0.7, 0.1), ERF
    c = elementwise.constants(task, model)
    rule = score_nodes._product(2, 1, None, 0.7, False, 100)
    with jax.enable_x64(True):
        general = location_flow._rates(ndl.SpikedSLR, ndl.Erf, c, seven(OFF), *rule)
        tokens = elementwise_rates(
            ndl.SpikedSLR, ndl.Erf, np.array([2.0]), np.ones(1), c, seven(OFF), token_rule(task, 1)[1]
        )
    np.testing.assert_allclose(flat(general), flat(tokens), rtol=1e-11, atol=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("model", [SOFTMAX, ERF, pytest.param(K(ndl.Linear()), marks=pytest.mark.slow)], ids=repr)
def test_random_lengths_mix_the_rates(model):
    mixed, _ = rates(ndl.SpikedSLR(RANDOM, 2.0, 0.7, 0.1), model)
    parts = [rates(ndl.SpikedSLR(n, 2.0, 0.7, 0.1), model)[0] for n in (1, 3)]
    np.testing.assert_allclose(mixed, 0.3 * parts[0] + 0.7 * parts[1], rtol=1e-10, atol=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("model", [SOFTMAX, ERF], ids=repr)
def test_without_a_signal_the_tasks_are_one(model):
    found = [rates(task, model)[0] for task in (ndl.MaxSLR(2, 0.0), ndl.SpikedSLR(2, 0.0))]
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


# --- paths --------------------------------------------------------------------------------------


def sgd(eta, time, batch=1, start=START, d=1000, **more):
    return ndl.OnlineSGD(eta / (2 * d), round(time * d), batch, start, d=d, **{"record_every": d, **more})


@pytest.mark.paper
def test_the_limit_of_sgd_at_the_tabulated_times():
    """Sheet 02, section 7, to the printed digits."""
    path = ndl.predict(SPIKED, SOFTMAX, sgd(0.3, 20.0)).trajectory
    names = ("key", "key_sq", "value", "value_sq")
    at = {t: [path.overlaps[n][0, t] for n in names] for t in (10, 20)}
    np.testing.assert_allclose(at[10], [0.4524, 0.4105, 0.8592, 0.8171], atol=6e-5)
    np.testing.assert_allclose(at[20], [0.7169, 0.6865, 1.0232, 1.0926], atol=6e-5)
    assert path.steps[10] == 10_000


@pytest.mark.negative
def test_the_tabulated_values_see_the_noise_of_steps():
    path = ndl.predict(SPIKED, SOFTMAX, sgd(0.3, 10.0, batch=10**9))
    assert abs(path.overlaps.value_sq - 0.8171) > 0.01


@pytest.mark.exact
def test_large_batches_follow_the_flow():
    """Time of SGD times eta is time of the flow."""
    flow = ndl.predict(SPIKED, SOFTMAX, ndl.GradientFlow(3.0, START, 3.0))
    slow = ndl.predict(SPIKED, SOFTMAX, sgd(0.3, 10.0, batch=10**12))
    np.testing.assert_allclose(seven(slow.overlaps), seven(flow.overlaps), atol=1e-8)
    assert flow.exact
    assert not slow.exact


@pytest.mark.exact
@pytest.mark.parametrize(
    ("task", "model", "time"),
    [(ndl.SpikedSLR(2, 2.0), SOFTMAX, 300.0), (ndl.SpikedSLR(2, 2.0), K(ndl.Linear()), 60.0)],
    ids=["softmax", "linear"],
)
def test_the_flow_descends_to_the_best_on_the_manifold(task, model, time):
    found = ndl.predict(task, model, ndl.GradientFlow(time, START, 5.0))
    best = ndl.predict(task, model, ndl.Population())
    path = found.trajectory
    assert np.all(np.diff(path.excess_risk[0]) < 1e-12)
    assert 0 <= found.excess_risk.value - best.excess_risk.value + 1e-12 < 1e-6
    assert np.all(path.distance_to_manifold == 0.0)
    assert path.end() == found.overlaps
    assert [found.overlaps_error[n] for n in ("value_on_key", "key_on_value", "key_dot_value")] == [0, 0, 0]


def by_vectors(task, model, start, time, d=6):
    """The flow of vectors in R^d on the risk of eq:elementwise-risk, with an automatic gradient."""
    c = elementwise.constants(task, model)
    e = np.eye(4, d)
    k_star, v_star, k, v = vectors_with_gram(start) @ e

    def overlaps(k, v):
        return (k @ k_star, v @ v_star, v @ k_star, k @ v_star, k @ v, k @ k, v @ v)

    def risk(weights):
        k, v = weights[:d], weights[d:]
        return elementwise.excess_risk(lambda s: model.activation.weights(s, c), c, overlaps(k, v), 256)

    gradient = jax.jit(jax.grad(risk))
    found = integrate.solve_ivp(
        lambda _, w: -np.asarray(gradient(w)) / 2, (0, time), np.concatenate([k, v]), rtol=1e-9, atol=1e-11
    )
    return np.array(overlaps(found.y[:d, -1], found.y[d:, -1]))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("start", "returns"),
    [(ndl.Overlaps(0.6, 0.6, 0.1, -0.1, 0.05), True), (ndl.Overlaps(0.1, 0.1, 0.7, 0.9, 0.1), False)],
)
def test_off_the_manifold_it_goes_where_vectors_go(start, returns):
    """A pure erf has the swapped minimum beside the oracle, which keeps some starts off the manifold."""
    task, model = ndl.SpikedSLR(3, 4.0, 0.8), K(ndl.Erf(0.7))
    found = ndl.predict(task, model, ndl.GradientFlow(12.0, start, 12.0))
    with jax.enable_x64(True):
        vectors = by_vectors(task, model, start, 12.0)
    np.testing.assert_allclose(seven(found.overlaps), vectors, atol=1e-6)
    distance = found.trajectory.distance_to_manifold[0]
    assert bool(distance[-1] < 0.1 * distance[0]) is returns


@pytest.mark.exact
def test_a_key_along_its_teacher_and_a_key_of_zero_have_rates():
    """Where a direction is missing, 0 / 0 is 0: the limits from nearby."""
    for task in (SPIKED, ndl.MaxSLR(2, 2.0)):
        for key, key_sq in ((0.5, 0.25), (0.0, 0.0)):
            at, _ = rates(task, SOFTMAX, ndl.Overlaps(key, 0.6, key_sq=key_sq, value_sq=0.8))
            near, _ = rates(task, SOFTMAX, ndl.Overlaps(key, 0.6, key_sq=key_sq + 1e-8, value_sq=0.8))
            np.testing.assert_allclose(at, near, atol=1e-7)


@pytest.mark.quadrature
def test_the_error_of_a_sampled_path_is_honest(monkeypatch):
    """The same question by Sobol points and by a product rule that is exact."""
    learner = ndl.GradientFlow(3.0, OFF, 3.0)
    exact = ndl.predict(SPIKED, SOFTMAX, learner)
    monkeypatch.setattr(score_nodes, "_NODES", {0: 0})
    score_nodes._score_rules.cache_clear()
    sampled = ndl.predict(SPIKED, SOFTMAX, learner)
    score_nodes._score_rules.cache_clear()
    for name, error in sampled.overlaps_error.items():
        assert 1e-7 < error < 1e-2
        # three standard errors of 16 scramblings, seven of them
        assert abs(getattr(sampled.overlaps, name) - getattr(exact.overlaps, name)) < 1.5 * error
    assert abs(sampled.excess_risk.value - exact.excess_risk.value) < 1.5 * sampled.excess_risk.error


def test_random_starts_have_standard_errors_and_several_starts_a_numerical_one():
    many = ndl.predict(SPIKED, SOFTMAX, sgd(0.3, 1.0, start="sphere", runs=5, d=50, record_every=50))
    assert many.trajectory.runs == 5
    assert many.risk.kind == "stderr"
    np.testing.assert_allclose(many.trajectory.overlaps["key_sq"][:, 0], 1.0)
    two = ndl.predict(SPIKED, SOFTMAX, ndl.GradientFlow(1.0, (START, OFF), 0.4))
    assert two.trajectory.runs == 2
    assert two.risk.kind == "numerical"
    np.testing.assert_allclose(two.trajectory.steps, [0, 0.4, 0.8, 1.0])
    alone = ndl.predict(SPIKED, SOFTMAX, ndl.GradientFlow(1.0, OFF, 1.0))
    np.testing.assert_allclose(two.trajectory.overlaps["key"][1, -1], alone.overlaps.key, atol=1e-8)


# --- what is refused, and how it can fail ---------------------------------------------------------


def test_a_path_that_leaves_says_so():
    """Linear attention with steps that are too large: the squares of the steps grow without end."""
    with pytest.raises(ndl.NotConverged, match=r"DIVERGED: .* run 0 before step 1000") as caught:
        ndl.predict(SPIKED, K(ndl.Linear()), sgd(3.0, 5.0))
    found = caught.value.result
    assert found.status is ndl.Status.DIVERGED
    assert found.overlaps is None
    assert np.isfinite(found.trajectory.excess_risk[0, 0])


def test_a_tolerance_below_the_sampling_error_says_so():
    with pytest.raises(ndl.NotConverged, match="NOISE_LIMITED"):
        ndl.predict(SPIKED, SINK, ndl.GradientFlow(0.1, START, 0.1), tol=1e-9)


VERBS = (ndl.predict, functools.partial(ndl.simulate, d=8, repeats=2, samples=50))


@pytest.mark.parametrize("verb", VERBS, ids=["predict", "simulate"])
@pytest.mark.parametrize("task", [SPIKED, ndl.MaxSLR(2, 2.0)], ids=repr)
def test_on_unit_spheres_a_sentence_says_what_there_is(verb, task):
    sphere = K(ndl.Erf(0.5), unit_norm=True)
    with pytest.raises(ndl.NoTheory, match=r"GradientFlow with .* on .*unit_norm=False.*ProjectedDescent"):
        verb(task, sphere, ndl.GradientFlow(1.0, START, 1.0))
    learner = ndl.OnlineSGD(0.01, 2, 2, START, d=8, runs=2)
    if task is SPIKED:
        with pytest.raises(ndl.InvalidParameter, match=r"OnlineSGD\(start=...\): key_sq and value_sq must be 1"):
            verb(task, sphere, learner)
        with pytest.raises(ndl.NoTheory, match=r"unit_norm=True\)"):
            verb(task, K(ndl.Softmax(), unit_norm=True), learner.replace(start=ndl.Overlaps(0.1, 0.1)))
    else:
        with pytest.raises(ndl.NoTheory, match="unit_norm=False"):
            verb(task, sphere, learner)
    with pytest.raises(ndl.NoTheory, match="schedule=0 has one"):
        verb(task, SOFTMAX, learner.replace(schedule=0.1))


def test_free_constants_are_not_chosen():
    with pytest.raises(ndl.NoTheory, match="shift is None and GradientFlow does not choose it"):
        ndl.predict(SPIKED, K(ndl.Erf(1.0, shift=None)), ndl.GradientFlow(1.0, START, 1.0))


def test_too_many_tokens_for_points():
    with pytest.raises(ndl.NoTheory, match="it goes up to 10600"):
        ndl.predict(ndl.MaxSLR(20_000, 2.0), SOFTMAX, ndl.GradientFlow(1.0, START, 1.0))

"""Training in time on fields, and risks at given overlaps: against the rules of single-location tasks, and by steps."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.options import SimulationOptions
from needlepoint.core.overlaps import as_matrices, as_overlaps, as_seven
from needlepoint.simulation.fields import dynamics, risks, vectors
from needlepoint.simulation.fields.problem import kinds_and_numbers

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
HEADS = ndl.MultiHead(2, ndl.Softmax())
NEEDLES = ndl.Needles(3, snr=4.0, noise=0.1)
SPIKED = ndl.SpikedSLR({1: 0.3, 2: 0.7}, snr=2.0, noise=0.1)
START = ndl.Overlaps(0.3, 0.4, 0.1, -0.1, 0.2, 0.9, 1.1)
NAMED = ndl.FieldOverlaps({"key1_on_key": 0.3, "value1_on_value": 0.2, "value2_on_value2": 0.4, "key2_sq": 0.7})


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def agree(mine, theirs, names, most=4.0):
    """Whether metrics of two independent measurements agree, in standard errors."""
    for name in names:
        a, b = mine.metrics[name], theirs.metrics[name]
        assert abs(a.value - b.value) < most * math.hypot(a.error, b.error), name


@pytest.mark.exact
def test_vectors_have_the_overlaps_that_were_asked_for():
    drawn = vectors.with_overlaps(np.random.default_rng(0), NEEDLES, HEADS, NAMED, 3, 9)
    M, Q = NAMED.matrices(HEADS.labels, NEEDLES.teachers)
    np.testing.assert_allclose(drawn.teachers @ np.swapaxes(drawn.teachers, 1, 2), [np.eye(4)] * 3, atol=1e-12)
    np.testing.assert_allclose(drawn.weights @ np.swapaxes(drawn.teachers, 1, 2), [M] * 3, atol=1e-12)
    np.testing.assert_allclose(drawn.weights @ np.swapaxes(drawn.weights, 1, 2), [Q] * 3, atol=1e-12)


@pytest.mark.exact
def test_weights_in_the_span_of_the_teachers_need_no_more_dimensions():
    teachers = ndl.Overlaps(1.0, 1.0)
    drawn = vectors.with_overlaps(np.random.default_rng(0), SPIKED, SOFTMAX, teachers, 1, 2)
    np.testing.assert_allclose(drawn.weights, drawn.teachers, atol=1e-12)
    with pytest.raises(ndl.InvalidParameter, match=r"simulate\(d=3\): d must be >= 4"):
        vectors.with_overlaps(np.random.default_rng(0), SPIKED, SOFTMAX, START, 1, 3)


@pytest.mark.exact
def test_the_seven_and_the_named_overlaps_are_views_of_each_other():
    M, Q = as_matrices(START, SOFTMAX.labels, SPIKED.teachers)
    named = ndl.FieldOverlaps.from_matrices(SOFTMAX.labels, SPIKED.teachers, M, Q)
    assert as_seven(named) == START
    assert as_seven(START) is START
    assert as_overlaps(dict(START.items())) == START
    assert isinstance(as_overlaps(dict(named.items())), ndl.FieldOverlaps)
    np.testing.assert_array_equal(as_matrices(named, SOFTMAX.labels, SPIKED.teachers), [M, Q])
    with pytest.raises(ndl.InvalidParameter, match="write FieldOverlaps"):
        as_matrices(START, HEADS.labels, NEEDLES.teachers)


@pytest.mark.montecarlo
def test_the_risk_at_given_overlaps_is_that_of_the_rule_of_single_location_tasks():
    options = SimulationOptions(6, 8, 1, START, samples=20_000)
    mine = risks.simulate_risk(SPIKED, SOFTMAX, ndl.Population(), options)
    theirs = ndl.simulate(SPIKED, SOFTMAX, ndl.Population(), d=6, repeats=8, overlaps=START, samples=20_000)
    agree(mine, theirs, ("risk", "excess_risk"))
    assert mine.risk.error < 0.01 * mine.risk.value
    exact = ndl.population_risk(SPIKED, SOFTMAX, START)
    assert abs(mine.risk.value - exact.value) < 4 * mine.risk.error


@pytest.mark.montecarlo
def test_the_risk_of_two_heads_at_named_overlaps_is_that_of_their_fields():
    """The same mean from fields drawn as Gaussians with the overlaps as covariance, without vectors."""
    found = ndl.simulate(NEEDLES, HEADS, ndl.Population(), d=12, repeats=8, overlaps=NAMED, samples=5000)
    M, Q = NAMED.matrices(HEADS.labels, NEEDLES.teachers)
    gram = np.block([[np.eye(4), M.T], [M, Q]])
    rng = np.random.default_rng(1)
    fields = rng.multivariate_normal(np.zeros(8), gram, (40_000, 3))
    shift = np.zeros((3, 4))
    shift[0, 0] = shift[1, 1] = 2.0
    teachers, columns = fields[..., :4] + shift, fields[..., 4:] + shift @ M.T
    y = (teachers[:, 0, 2] + teachers[:, 1, 3]) / math.sqrt(2) + 0.1 * rng.standard_normal(40_000)
    weights = np.exp(columns[..., :2])
    weights /= weights.sum(axis=1, keepdims=True)
    errors = (y - np.sum(weights * columns[..., 2:], axis=(1, 2))) ** 2
    spread = math.hypot(found.risk.error, errors.std() / 200)
    assert abs(found.risk.value - errors.mean()) < 4 * spread
    assert found.risk.error < 0.02 * found.risk.value


@pytest.mark.training
def test_flow_is_that_of_the_rule_of_single_location_tasks():
    learner = ndl.GradientFlow(2.0, START, 1.0)
    theirs = ndl.simulate(SPIKED, SOFTMAX, learner, d=6, repeats=12, samples=1000)
    mine = dynamics.simulate_flow(SPIKED, SOFTMAX, learner, SimulationOptions(6, 12, 1, samples=1000))
    agree(mine, theirs, ("risk", "excess_risk"))
    assert mine.trajectory.excess_risk.shape == (12, 3)
    for name, x in mine.trajectory.overlaps.items():
        other = theirs.trajectory.overlaps[name]
        np.testing.assert_allclose(x[:, 0], other[:, 0], atol=1e-12)  # both start where they should
        gap = x[:, -1].mean() - other[:, -1].mean()
        assert abs(gap) < 4.5 * math.hypot(x[:, -1].std(), other[:, -1].std()) / math.sqrt(11), name
    assert mine.trajectory.end(0) == as_overlaps({n: float(x[0, -1]) for n, x in mine.trajectory.overlaps.items()})


@pytest.mark.training
def test_sgd_is_that_of_the_rule_of_single_location_tasks():
    task = ndl.MaxSLR(2, snr=2.0, noise=0.1)
    learner = ndl.OnlineSGD(0.02, 60, 2, START, d=10, record_every=30)
    theirs = ndl.simulate(task, SOFTMAX, learner, d=10, repeats=60, samples=1000)
    mine = dynamics.simulate_sgd(task, SOFTMAX, learner, SimulationOptions(10, 60, 1, samples=1000))
    agree(mine, theirs, ("risk", "excess_risk"))
    for name, x in mine.trajectory.overlaps.items():
        other = theirs.trajectory.overlaps[name]
        gap = x[:, -1].mean() - other[:, -1].mean()
        assert abs(gap) < 4.5 * math.hypot(x[:, -1].std(), other[:, -1].std()) / math.sqrt(59), name


@pytest.mark.exact
@pytest.mark.parametrize("loss", [ndl.Square(), ndl.Logistic()], ids=str)
def test_a_step_and_the_velocity_are_along_the_gradient_of_the_risk(loss):
    """One step on a batch is lr times the gradient of its mean loss in the units of risk; the flow's is half of it."""
    task = ndl.SignSLR(2, snr=3.0)
    kinds, numbers = kinds_and_numbers(SOFTMAX, loss)
    drawn = vectors.with_overlaps(np.random.default_rng(0), task, SOFTMAX, START, 1, 6)
    keys = jax.random.split(jax.random.key(0), 1)
    laws = (task.template,)
    step = dynamics._advance(
        kinds, laws, 5, numbers, [task.numbers], np.ones(1), drawn.teachers, drawn.weights, keys, 0, 1, 0.1
    )
    first = jax.random.split(jax.random.fold_in(keys[0], 0), 2)[0]
    x, y, _ = task.draw_vectors(first, jnp.asarray(drawn.teachers[0]), 5)

    def risk(k, v):
        f = jnp.sum(jax.nn.softmax(x @ k, axis=1) * (x @ v), axis=1)
        return jnp.mean((y - f) ** 2) if loss == ndl.Square() else jnp.mean(jnp.log1p(jnp.exp(-y * f)))

    slope = np.stack(jax.grad(risk, argnums=(0, 1))(*drawn.weights[0]))
    np.testing.assert_allclose(step[0], drawn.weights[0] - 0.1 * slope, rtol=0, atol=1e-12)
    velocity = dynamics._velocity(kinds, numbers, [(1.0, x, y)], drawn.weights[0])
    np.testing.assert_allclose(velocity, -slope / 2, rtol=0, atol=1e-12)


def test_heads_from_random_starts_are_recorded_in_one_gauge():
    learner = ndl.OnlineSGD(0.02, 40, 2, "sphere", d=20, runs=6, record_every=20)
    found = ndl.simulate(NEEDLES, HEADS, learner, d=20, repeats=6, samples=500)
    path = found.trajectory
    assert path.overlaps["key1_on_key2"].shape == path.excess_risk.shape == (6, 3)
    names = [f"{c}{h}_on_{c}{n}" for c in ("key", "value") for h in (1, 2) for n in ("", "2")]
    straight = sum(path.overlaps[f"{c}{h}_on_{c}{n}"][:, -1] for c in ("key", "value") for h, n in ((1, ""), (2, "2")))
    crossed = sum(path.overlaps[name][:, -1] for name in names) - straight
    assert np.all(straight >= crossed)
    assert isinstance(path.end(2), ndl.FieldOverlaps)
    np.testing.assert_allclose(path.overlaps["key1_sq"][:, 0], 1.0, rtol=1e-12)
    assert found.to_json()["trajectory"]["overlaps"]["key1_on_key"]


def test_sign_labels_have_a_risk_over_time_and_no_excess():
    learner = ndl.OnlineSGD(0.02, 40, 2, START, d=20, record_every=20, loss=ndl.Logistic())
    found = ndl.simulate(ndl.SignSLR(2, snr=3.0), SOFTMAX, learner, d=20, repeats=4, samples=500)
    assert list(found.metrics) == ["risk"]
    assert found.risk.value < 0.75


def test_other_losses_on_single_location_tasks_reach_the_general_rule():
    learner = ndl.GradientFlow(1.0, START, 1.0, loss=ndl.Square(weight=0.5))
    found = ndl.simulate(ndl.MaxSLR(2, snr=2.0), SOFTMAX, learner, d=6, repeats=2, samples=500)
    whole = ndl.simulate(
        ndl.MaxSLR(2, snr=2.0), SOFTMAX, learner.replace(loss=ndl.Square()), d=6, repeats=2, samples=500
    )
    assert found.risk.value < 0.9 * whole.trajectory.excess_risk[0, 0]


@pytest.mark.parametrize(
    ("task", "model", "learner", "error", "words"),
    [
        (NEEDLES, HEADS, ndl.Population(), ndl.InvalidParameter, "overlaps= is needed"),
        (NEEDLES, HEADS, ndl.GradientFlow(1.0, START, 1.0), ndl.InvalidParameter, "write FieldOverlaps"),
        (
            NEEDLES,
            HEADS,
            ndl.GradientFlow(1.0, ndl.FieldOverlaps({"key3_on_key": 0.1}), 1.0),
            ndl.UnknownName,
            "key3_on_key",
        ),
        (NEEDLES, HEADS, ndl.OnlineSGD(0.1, 5, 2, "manifold", d=8, runs=2), ndl.NoTheory, "start='sphere'"),
        (NEEDLES, HEADS, ndl.OnlineSGD(0.1, 5, 2, NAMED, 0.1, d=8), ndl.NoTheory, "schedule=0 has one"),
        (
            ndl.SeveralSLR(3, snr=1.0),
            SOFTMAX.replace(unit_norm=True),
            ndl.OnlineSGD(0.1, 5, 2, START, d=8),
            ndl.NoTheory,
            "unit_norm=False has one",
        ),
        (
            ndl.SeveralSLR(3, snr=1.0),
            SOFTMAX,
            ndl.GradientFlow(1.0, START, 1.0, ndl.Logistic()),
            ndl.InvalidParameter,
            "1 or -1",
        ),
    ],
)
def test_what_is_not_measured_says_why(task, model, learner, error, words):
    with pytest.raises(error, match=words):
        ndl.simulate(task, model, learner, d=8, repeats=2, samples=200)


def test_a_large_sample_is_refused():
    with pytest.raises(ndl.InvalidParameter, match="is held at once"):
        ndl.simulate(NEEDLES, HEADS, ndl.GradientFlow(1.0, NAMED, 1.0), d=10_000, repeats=1, samples=20_000)


def test_overlaps_of_another_kind_are_refused():
    with pytest.raises(ndl.InvalidParameter, match="FieldOverlaps"):
        ndl.simulate(NEEDLES, HEADS, ndl.Population(), d=8, repeats=2, overlaps=ndl.IndexedOverlaps(0.1, 0.2))  # pyright: ignore

"""Data sets drawn from a task's fields, and the objective on them."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.specs import forget, real, spec
from needlepoint.simulation.fields import problem as problems
from needlepoint.simulation.fields.problem import draw_problem
from needlepoint.simulation.location import ridge_problem
from needlepoint.simulation.location.vectors import frames
from needlepoint.tasks.sequence import SequenceTask

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
CASES = {
    "several": (ndl.SeveralSLR(3, snr=3.0, noise=0.1), SOFTMAX, ndl.Square()),
    "heads": (ndl.Needles(3, snr=4.0, noise=0.1), ndl.MultiHead(2, ndl.Softmax()), ndl.Square(weight=0.7)),
    "signs": (ndl.SignSLR(2, snr=3.0), SOFTMAX, ndl.Logistic()),
    "spiked": (ndl.SpikedSLR({1: 0.2, 3: 0.8}, snr=2.0, relevant_std=0.8, noise=0.2), SOFTMAX, ndl.Square()),
    "max": (ndl.MaxSLR(2, snr=2.0, noise=0.2), SOFTMAX, ndl.Square()),
    "matrix": (ndl.PositionalSemantic(0.3, 0.5), ndl.LowRankTied(), ndl.Square(weight=0.25)),
}
D, N = 10, 40


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def small_problem(task, model, loss, n=N, d=D):
    teachers = frames(np.random.default_rng(3), 1, d, len(task.teachers))[0]
    penalties = tuple(np.linspace(0.2, 0.7, len(model.labels)))
    return draw_problem(task, model, loss, penalties, n, jax.random.key(3), teachers), teachers


@pytest.mark.exact
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_differences(case):
    problem, _ = small_problem(*CASES[case])
    weights = np.random.default_rng(1).standard_normal((len(problem.penalties), D))
    value, gradient = problem.value_and_gradient(weights)
    # rounding of the value over h, and h^2 times third derivatives of order 10
    h, numerical = 1e-5, np.zeros_like(weights)
    for at in np.ndindex(*weights.shape):
        move = np.zeros_like(weights)
        move[at] = h
        numerical[at] = (
            problem.value_and_gradient(weights + move)[0] - problem.value_and_gradient(weights - move)[0]
        ) / (2 * h)
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=2e-8 * np.abs(gradient).max())
    scale = problem.loss.metric_scale
    mean = problem.train_loss(weights) * problem.n / (scale * problem.d)
    assert math.isclose(value, mean + problem.penalty(weights), rel_tol=1e-12)


@pytest.mark.exact
def test_the_objective_is_that_of_its_formula():
    """Several relevant tokens, written out with NumPy."""
    problem, teachers = small_problem(*CASES["several"])
    k, v = np.random.default_rng(1).standard_normal((2, D))
    (part,) = problem.data
    scores = np.exp(part.x @ k)
    f = np.sum(scores / scores.sum(axis=1, keepdims=True) * (part.x @ v), axis=1)
    penalties = problem.penalties @ [k @ k, v @ v] / 2
    expected = np.sum((part.y - f) ** 2) / (2 * D) + penalties
    assert math.isclose(problem.value_and_gradient(np.stack([k, v]))[0], expected, rel_tol=1e-12)
    clean = (part.x[:, :2] @ teachers[1]).sum(axis=1) / math.sqrt(2)
    assert 0.05 < np.std(part.y - clean) < 0.2  # noise of 0.1


@pytest.mark.exact
@pytest.mark.parametrize("case", ["spiked", "max"])
def test_on_the_same_data_the_objective_is_the_one_of_single_location_tasks(case):
    task, model, loss = CASES[case]
    problem, _ = small_problem(task, model, loss)
    data = [ridge_problem.Data(part.x, part.y) for part in problem.data]
    other = ridge_problem.Problem(type(model.activation), model.constants(), problem.penalties, data)
    weights = np.random.default_rng(1).standard_normal((2, D))
    (value, gradient), (expected, its) = problem.value_and_gradient(weights), other.value_and_gradient(weights)
    assert math.isclose(value, expected, rel_tol=1e-12)
    np.testing.assert_allclose(gradient, its, rtol=0, atol=1e-12 * np.abs(its).max())
    assert math.isclose(problem.energy_at_zero, other.energy_at_zero, rel_tol=1e-12)
    assert problem.tolerance == pytest.approx(other.tolerance, rel=1e-12)


@pytest.mark.exact
def test_one_head_is_a_key_and_a_value():
    task, model, loss = CASES["several"]
    weights = np.random.default_rng(1).standard_normal((2, D))
    found = [
        small_problem(task, m, loss)[0].value_and_gradient(weights) for m in (model, ndl.MultiHead(1, ndl.Softmax()))
    ]
    assert math.isclose(found[0][0], found[1][0], rel_tol=1e-13)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-13 * np.abs(found[0][1]).max())


@pytest.mark.exact
def test_blocks_change_nothing_but_rounding(monkeypatch):
    problem, _ = small_problem(*CASES["heads"], n=90)
    weights = np.random.default_rng(1).standard_normal((4, D))
    value, gradient = problem.value_and_gradient(weights)
    monkeypatch.setattr(problems, "ACCURACY", replace(problems.ACCURACY, cached=50, padded=16))
    again, other = problem.value_and_gradient(weights)
    assert math.isclose(value, again, rel_tol=1e-12)
    np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-12 * np.abs(other).max())


@pytest.mark.exact
def test_the_numbers_of_lengths_are_those_expected():
    problem, _ = small_problem(*CASES["spiked"], n=50)
    assert [(part.x.shape[1], len(part.y)) for part in problem.data] == [(1, 10), (3, 40)]


# --- the law of what is drawn ---------------------------------------------------------------------

DRAWN = 20_000


def drawn(task, d=6):
    """Fields along the teachers (n, tokens, S), labels, places and a coordinate orthogonal to the teachers."""
    basis = frames(np.random.default_rng(4), 1, d, len(task.teachers) + 1)[0]
    x, y, places = task.draw_vectors(jax.random.key(5), basis[:-1], DRAWN)
    return np.asarray(x @ basis[:-1].T), np.asarray(y), np.asarray(places), np.asarray(x @ basis[-1])


def assert_mean(samples, expected):
    """Means of independent samples within five standard errors."""
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - expected) <= 5 * error + 1e-12)


@pytest.mark.montecarlo
@pytest.mark.parametrize(
    "task",
    [
        ndl.SeveralSLR(3, snr=3.0, noise=0.1),
        ndl.Needles(3, snr=4.0, noise=0.1),
        ndl.SpikedSLR(3, snr=2.0, relevant_std=0.5, noise=0.2),
        ndl.PositionalSemantic(0.3, 0.5),
    ],
    ids=lambda task: type(task).__name__,
)
def test_projected_sequences_have_the_means_and_spreads_that_the_task_says(task):
    fields, y, places, rest = drawn(task)
    for place in range(task.places()):
        here = places == place
        assert abs(here.mean() - 1 / task.places()) < 5 / math.sqrt(DRAWN)
        at = task.place_at(place)
        shift, spread = np.asarray(at.shift), np.asarray(at.spread)
        assert_mean(fields[here], shift)
        assert_mean((fields[here] - shift) ** 2, np.broadcast_to(spread[:, None] ** 2, shift.shape))
        assert_mean(rest[here] ** 2, spread**2)
        assert_mean(fields[here, 0, 0] * rest[here, 0], 0.0)
    clean = np.stack(
        [np.asarray(task.labelled(f, int(p), 0.0)) for f, p in zip(fields[:200], places[:200], strict=True)]
    )
    assert np.std(y[:200] - clean) == pytest.approx(getattr(task, "noise", 0.0), rel=0.2)


@pytest.mark.montecarlo
@pytest.mark.parametrize("snr", [2.0, math.inf])
def test_places_follow_the_tilt(snr):
    task = ndl.MaxSLR(3, snr=snr)
    fields, y, places, rest = drawn(task)
    scores = np.exp(min(snr, 1e3) * (fields[..., 0] - fields[..., 0].max(axis=1, keepdims=True)))
    for place in range(3):
        assert_mean((places == place) - scores[:, place] / scores.sum(axis=1), 0.0)
    np.testing.assert_allclose(y, fields[np.arange(DRAWN), places, 1], rtol=1e-12)
    assert_mean(fields, np.zeros((3, 2)))
    assert_mean(rest**2, 1.0)
    # the same law as the sampler of its own: means of what the label and the tilt make of the fields
    own = task.sample(jax.random.key(6), *frames(np.random.default_rng(4), 1, 6, 3)[0, :2], DRAWN, 3)
    key = frames(np.random.default_rng(4), 1, 6, 3)[0, 0]
    theirs = np.asarray(own[0] @ key)[np.arange(DRAWN), np.asarray(own[2])]
    mine = fields[np.arange(DRAWN), places, 0]
    assert abs(theirs.mean() - mine.mean()) < 5 * math.sqrt((theirs.var() + mine.var()) / DRAWN)


# --- what is refused ------------------------------------------------------------------------------


def test_a_data_set_must_fit():
    with pytest.raises(ndl.InvalidParameter, match=r"at most 4e\+08 numbers"):
        problems.check_size(ndl.SeveralSLR(3, snr=3.0), 10**7, 1000)
    with pytest.raises(ndl.InvalidParameter, match="at least one sequence"):
        problems.check_size(ndl.SeveralSLR(3, snr=3.0), 0, 1000)
    with pytest.raises(
        ndl.InvalidParameter, match=r"simulate\(d=3\): d must be >= 4, the number of teachers of Needles"
    ):
        problems.check_size(ndl.Needles(3, snr=3.0), 10, 3)


def test_the_output_must_have_the_shape_of_the_label():
    with pytest.raises(
        ndl.InvalidParameter, match=r"LowRankTied.output returns an array of shape \(2, 2\).*label one of"
    ):
        small_problem(ndl.SignSLR(2, snr=1.0), ndl.LowRankTied(), ndl.Square())


def test_logistic_takes_signs():
    with pytest.raises(
        ndl.InvalidParameter, match=r"Logistic\(\): labels must be 1 or -1, and SeveralSLR has the label"
    ):
        small_problem(ndl.SeveralSLR(3, snr=3.0), SOFTMAX, ndl.Logistic())


def test_a_change_of_a_number_compiles_nothing_again():
    task, model, loss = CASES["several"]
    small_problem(task, model, loss)[0].value_and_gradient(np.ones((2, D)))
    before = problems.draw._cache_size(), problems.loss_and_slopes._cache_size()
    small_problem(task.replace(snr=1.7), model, loss.replace(weight=0.3))[0].value_and_gradient(np.ones((2, D)))
    assert (problems.draw._cache_size(), problems.loss_and_slopes._cache_size()) == before


def test_seen_linear_and_flips_are_not_read():
    """A wrong declaration is caught by comparing with training, which must not believe it."""

    @spec
    class Lying(SequenceTask):
        teachers = ("key", "value")
        tokens = 2
        snr: float = real(default=1.0)

        def seen(self, place):
            raise AssertionError("read")

        @property
        def flips(self):
            raise AssertionError("read")

        def label(self, fields, place, noise):
            return fields.value[0]

    forget("Lying")
    problem, _ = small_problem(Lying(), SOFTMAX, ndl.Square())
    assert problem.value_and_gradient(np.ones((2, D)))[0] > 0

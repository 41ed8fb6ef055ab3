"""SpikedSLR: samples of real vectors, projected, against the field law that the theory uses."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import needlepoint as ndl
from needlepoint.core.lowering import lower
from needlepoint.numerics.precision import float64

TASK = ndl.SpikedSLR(tokens=3, snr=5.0, relevant_std=0.8, noise=0.4)
D, N, LENGTH = 6, 60_000, 3


@functools.cache
def vectors():
    """Rows k*, v* (orthonormal), k, v (any norm) in R^6, and their overlaps."""
    rng = np.random.default_rng(3)
    frame = np.linalg.qr(rng.standard_normal((D, D)))[0]
    k_star, v_star = frame[0], frame[1]
    k, v = rng.standard_normal((2, D)) * [[0.5], [0.7]]
    pairs = [(k, k_star), (v, v_star), (v, k_star), (k, v_star), (k, v), (k, k), (v, v)]
    return np.stack([k_star, v_star, k, v]), ndl.Overlaps(*(float(a @ b) for a, b in pairs))


draw = jax.jit(ndl.SpikedSLR.draw, static_argnums=(3, 4))


@functools.cache
@float64
def samples(task, n=N, length=LENGTH, seed=0):
    rows, _ = vectors()
    x, y, place = draw(jax.random.key(seed), jnp.asarray(rows[0]), jnp.asarray(rows[1]), n, length, lower(task)[1])
    assert x.dtype == jnp.float64
    return tuple(np.asarray(a) for a in (x, y, place))


def fields(task):
    """Fields of relevant tokens (n, 4) and of the others (n, length - 1, 4)."""
    x, _, place = samples(task)
    projected = x @ vectors()[0].T
    relevant = np.arange(LENGTH) == place[:, None]
    return projected[relevant], projected[~relevant].reshape(N, LENGTH - 1, 4)


def assert_law(found, mean, covariance):
    """|z| < 5 for the 4 means and 10 covariances, with the standard errors of the stated Gaussian law."""
    n, spread = len(found), np.sqrt(np.diag(covariance))
    mean_se = spread / np.sqrt(n)
    scale = np.outer(spread, spread)
    centred = found - mean
    second_se = np.sqrt((scale**2 + covariance**2) / n)
    assert np.max(mean_se / spread) < 0.01
    assert np.max(second_se / scale) < 0.01
    assert np.max(np.abs(centred.mean(axis=0)) / mean_se) < 5
    assert np.max(np.abs(centred.T @ centred / n - covariance) / second_se) < 5


@pytest.mark.montecarlo
def test_relevant_tokens_follow_the_field_law():
    law = TASK.field_law(vectors()[1])
    assert_law(fields(TASK)[0], law.relevant_mean, law.relevant_covariance)


@pytest.mark.montecarlo
def test_other_tokens_follow_the_field_law():
    law = TASK.field_law(vectors()[1])
    assert_law(fields(TASK)[1].reshape(-1, 4), np.zeros(4), law.other_covariance)


@pytest.mark.negative
@pytest.mark.parametrize("wrong", [{"relevant_std": 0.84}, {"relevant_std": 1.0}, {"snr": 5.25}, {"snr": 0.0}])
def test_a_wrong_law_of_the_relevant_token_fails_the_same_check(wrong):
    law = TASK.replace(**wrong).field_law(vectors()[1])
    with pytest.raises(AssertionError):
        assert_law(fields(TASK)[0], law.relevant_mean, law.relevant_covariance)


@pytest.mark.negative
def test_relevant_and_other_tokens_are_told_apart():
    law = TASK.field_law(vectors()[1])
    relevant, others = fields(TASK)
    with pytest.raises(AssertionError):
        assert_law(others[:, 0], law.relevant_mean, law.relevant_covariance)
    with pytest.raises(AssertionError):
        assert_law(relevant, np.zeros(4), law.other_covariance)


@pytest.mark.montecarlo
def test_tokens_of_a_sequence_are_independent():
    law = TASK.field_law(vectors()[1])
    relevant, others = fields(TASK)
    groups = (relevant - law.relevant_mean, law.relevant_covariance), (others[:, 0], law.other_covariance)
    second = (others[:, 1], law.other_covariance)
    for (a, cov_a), (b, cov_b) in ((groups[0], groups[1]), (groups[1], second)):
        scale = np.sqrt(np.outer(np.diag(cov_a), np.diag(cov_b)))
        # the standard error is 1 / sqrt(N) = 0.4 % of the scale
        assert np.max(np.abs(a.T @ b / N) / scale) < 5 / np.sqrt(N)


@pytest.mark.montecarlo
@pytest.mark.parametrize("length", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_the_place_is_uniform(length):
    place = samples(TASK, n=30_000, length=length, seed=1)[2]
    counts = np.bincount(place, minlength=length)
    assert len(counts) == length
    assert counts.sum() == 30_000
    if length > 1:
        assert stats.chisquare(counts).pvalue > 6e-7  # 5 standard deviations


@pytest.mark.montecarlo
def test_the_place_does_not_depend_on_the_fields():
    _, _, place = samples(TASK)
    relevant, _ = fields(TASK)
    law = TASK.field_law(vectors()[1])
    for j in range(LENGTH):
        here = relevant[place == j]
        se = np.sqrt(np.diag(law.relevant_covariance) / len(here))
        assert np.max(np.abs(here.mean(axis=0) - law.relevant_mean) / se) < 5


@pytest.mark.montecarlo
def test_label_noise_is_independent_and_has_the_stated_variance():
    x, y, place = samples(TASK)
    clean = x[np.arange(N), place] @ vectors()[0][1]
    noise = (y - clean) / TASK.noise
    assert TASK.noise_var == TASK.noise**2
    se = np.sqrt(2 / N)
    assert se < 0.01
    assert abs(np.mean(noise**2) - 1) < 5 * se
    assert abs(np.mean(noise)) < 5 / np.sqrt(N)
    assert np.max(np.abs(noise @ fields(TASK)[0] / N)) < 5 * np.sqrt(np.max(np.mean(fields(TASK)[0] ** 2, axis=0)) / N)
    # the twin with another noise fails: 5 % in the standard deviation is 10 % in the variance
    assert abs(np.mean((noise / 1.05) ** 2) - 1) > 5 * se


@pytest.mark.exact
def test_without_noise_the_label_is_the_value_field_of_the_relevant_token():
    task = TASK.replace(noise=0.0)
    x, y, place = samples(task)
    clean = x[np.arange(N), place] @ vectors()[0][1]
    # sums of 6 products of size a few
    np.testing.assert_allclose(y, clean, rtol=0, atol=32 * np.finfo(float).eps)
    assert task.noise_var == 0.0


@pytest.mark.exact
def test_the_spike_is_orthogonal_to_the_label():
    law = TASK.field_law(vectors()[1])
    _, o = vectors()
    root = np.sqrt(TASK.snr)
    np.testing.assert_allclose(law.relevant_mean, [root, 0.0, root * o.key, root * o.value_on_key], rtol=1e-15)
    np.testing.assert_allclose(law.relevant_covariance, TASK.relevant_std**2 * law.other_covariance, rtol=1e-15)
    np.testing.assert_allclose(law.other_covariance, vectors()[0] @ vectors()[0].T, rtol=0, atol=1e-15)


@pytest.mark.exact
@float64
def test_sampling_is_deterministic_and_its_numbers_can_be_traced():
    rows = jnp.asarray(vectors()[0])
    fixed = jax.jit(lambda key: TASK.sample(key, rows[0], rows[1], N, LENGTH))
    direct, again, other = (fixed(jax.random.key(seed)) for seed in (0, 0, 1))
    for a, b, c in zip(samples(TASK), direct, again, strict=True):
        # the compiled sum of six products may be taken in another order
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)
        np.testing.assert_array_equal(b, c)
    assert direct[0].shape == (N, LENGTH, D)
    assert direct[1].shape == direct[2].shape == (N,)
    assert np.mean(direct[1] == other[1]) < 1e-3


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [1, 2, 10, {1: 0.25, 4: 0.5, 9: 0.25}, {2: 0.1, 3: 0.9}])
def test_length_moments(tokens):
    task = ndl.SpikedSLR(tokens, snr=1.0)
    law = {tokens: 1.0} if isinstance(tokens, int) else tokens
    others = sum(Fraction(p) * (n - 1) for n, p in law.items())
    pairs = sum(Fraction(p) * (n - 1) * (n - 2) for n, p in law.items())
    moments = task.length_moments()
    assert set(moments) == {"task.others", "task.pairs"}
    assert moments["task.others"] == pytest.approx(float(others), rel=1e-15, abs=1e-15)
    assert moments["task.pairs"] == pytest.approx(float(pairs), rel=1e-15, abs=1e-15)


@pytest.mark.exact
def test_random_lengths_are_one_law_however_they_are_written():
    task = ndl.SpikedSLR({7: 0.25, 2: 0.75}, snr=1.0)
    assert task == ndl.SpikedSLR({2: 0.75, 7: 0.25}, snr=1)
    assert task.length_law == ((2, 0.75), (7, 0.25))
    assert task.fixed_length is None
    fixed = ndl.SpikedSLR(5, snr=1.0)
    assert fixed.length_law == ((5, 1.0),)
    assert fixed.fixed_length == 5
    x, y, place = samples(task, n=30_000, length=7)
    assert x.shape == (30_000, 7, D)
    assert y.shape == (30_000,)
    assert set(place) == set(range(7))


@pytest.mark.exact
@pytest.mark.parametrize(
    "bad",
    [
        {"tokens": 0},
        {"tokens": {2: 0.5, 3: 0.4}},
        {"tokens": {2: 1.5, 3: -0.5}},
        {"snr": -1.0},
        {"snr": float("inf")},
        {"relevant_std": 0.0},
        {"noise": -0.1},
    ],
)
def test_impossible_laws_are_refused(bad):
    name = next(iter(bad))
    with pytest.raises(ndl.InvalidParameter, match=name):
        ndl.SpikedSLR(**{"tokens": 2, "snr": 1.0, **bad})


@pytest.mark.exact
@pytest.mark.parametrize("n", [0, 1, 2, 7, 100, 12345])
def test_counts_of_lengths_sum_to_n_and_are_within_one_of_what_is_expected(n):
    task = ndl.SpikedSLR({2: 0.25, 3: 1 / 3, 5: 1 / 6, 9: 0.25}, 1.0)
    counts = dict(task.length_counts(n))
    assert sum(counts.values()) == n
    assert all(c > 0 for c in counts.values())
    assert all(abs(counts.get(length, 0) - p * n) < 1.001 for length, p in task.length_law)

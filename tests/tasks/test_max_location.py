"""MaxSLR: samples of real vectors against the field law and the place law; the posterior; one spec however written."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.core.lowering import lower
from needlepoint.core.specs import from_json
from needlepoint.core.text.jsonio import dumps
from needlepoint.core.text.parsing import combine, parse_spec, read_spec_file
from needlepoint.numerics.precision import float64

SOFT = ndl.MaxSLR(tokens=3, snr=1.5, noise=0.4)
HARD = ndl.MaxSLR(tokens=3, snr=math.inf, noise=0.4)
D, N, LENGTH = 6, 60_000, 3
"""Draws are compiled for each number and length of sequences: one number serves all tests."""


@functools.cache
def vectors():
    """Rows k*, v* (orthonormal), k, v (any norm) in R^6, and their overlaps."""
    rng = np.random.default_rng(3)
    frame = np.linalg.qr(rng.standard_normal((D, D)))[0]
    k, v = rng.standard_normal((2, D)) * [[0.5], [0.7]]
    pairs = [(k, frame[0]), (v, frame[1]), (v, frame[0]), (k, frame[1]), (k, v), (k, k), (v, v)]
    return np.stack([frame[0], frame[1], k, v]), ndl.Overlaps(*(float(a @ b) for a, b in pairs))


@functools.cache
@float64
def samples(task, n=N, length=LENGTH, seed=0):
    k_star, v_star = vectors()[0][:2]
    x, y, place = task.sample(jax.random.key(seed), jnp.asarray(k_star), jnp.asarray(v_star), n, length)
    assert x.dtype == y.dtype == jnp.float64
    return tuple(np.asarray(a) for a in (x, y, place))


def key_fields(task, **options):
    """chi* (n, length) and the places (n,)."""
    x, _, place = samples(task, **options)
    return x @ vectors()[0][0], place


# --- tokens --------------------------------------------------------------------------------------


def assert_gaussian(found, covariance):
    """|z| < 5 for the 4 means and 10 covariances, with the standard errors of the stated Gaussian law."""
    n, spread = len(found), np.sqrt(np.diag(covariance))
    second_se = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / n)
    assert np.max(second_se / np.outer(spread, spread)) < 0.01
    assert np.max(np.abs(found.mean(axis=0)) / (spread / np.sqrt(n))) < 5
    assert np.max(np.abs(found.T @ found / n - covariance) / second_se) < 5


@pytest.mark.montecarlo
@pytest.mark.parametrize("task", [SOFT, HARD], ids=["soft", "hard"])
def test_all_tokens_follow_the_base_law_whatever_the_place(task):
    law = task.field_law(vectors()[1])
    assert law.snr == task.snr
    projected = samples(task)[0] @ vectors()[0].T
    assert_gaussian(projected.reshape(-1, 4), law.covariance)
    for a, b in ((0, 1), (1, 2)):
        scale = np.sqrt(np.outer(np.diag(law.covariance), np.diag(law.covariance)))
        assert np.max(np.abs(projected[:, a].T @ projected[:, b] / N) / scale) < 5 / np.sqrt(N)


@pytest.mark.exact
def test_the_field_law_is_the_gram_matrix():
    rows, overlaps = vectors()
    np.testing.assert_allclose(SOFT.field_law(overlaps).covariance, rows @ rows.T, rtol=0, atol=1e-15)
    assert SOFT.label_var == 1.0


@pytest.mark.negative
def test_the_relevant_token_does_not_follow_the_base_law():
    x, _, place = samples(SOFT)
    with pytest.raises(AssertionError):
        assert_gaussian(x[np.arange(N), place] @ vectors()[0].T, SOFT.field_law(vectors()[1]).covariance)


# --- the place -----------------------------------------------------------------------------------


def calibration(task, snr):
    """z of the number of places at token 0 in ten bins of its probability softmax(snr chi*)_0, and z of the mean of
    chi*_J, which is the score of the snr.
    """
    chi, place = key_fields(task)
    p = special.softmax(snr * chi, axis=1)
    first, bins = (place == 0) - p[:, 0], np.argsort(np.argsort(p[:, 0])) * 10 // N
    z = [first[bins == b].sum() / np.sqrt((p * (1 - p))[bins == b, 0].sum()) for b in range(10)]
    mean = np.sum(p * chi, axis=1)
    score = np.sum(chi[np.arange(N), place] - mean) / np.sqrt(np.sum(p * chi**2) - np.sum(mean**2))
    return np.array([*z, score])


@pytest.mark.montecarlo
@pytest.mark.parametrize("snr", [0.0, 1.5, 6.0])
def test_the_place_is_drawn_from_the_softmax(snr):
    # the twin below says what this can see: 5 % of the snr
    assert np.max(np.abs(calibration(SOFT.replace(snr=snr), snr))) < 5


@pytest.mark.negative
@pytest.mark.parametrize("wrong", [1.5 * 1.05, 1.5 / 1.05, math.sqrt(1.5), 0.0])
def test_another_snr_fails_the_calibration(wrong):
    assert np.max(np.abs(calibration(SOFT, wrong))) > 5


@pytest.mark.exact
@pytest.mark.parametrize("length", [1, 3, pytest.param(7, marks=pytest.mark.slow)])
def test_an_infinite_snr_is_the_argmax(length):
    chi, place = key_fields(HARD, length=length)
    np.testing.assert_array_equal(place, np.argmax(chi, axis=1))


@pytest.mark.montecarlo
def test_the_relevant_key_field_has_the_mean_of_the_largest_of_three():
    chi, place = key_fields(HARD)
    found = chi[np.arange(N), place]
    se = found.std(ddof=1) / math.sqrt(N)
    assert se < 0.01 * found.mean()
    assert abs(found.mean() - 1.5 / math.sqrt(math.pi)) < 5 * se


@pytest.mark.exact
def test_a_large_snr_is_almost_the_argmax():
    chi, place = key_fields(SOFT.replace(snr=1e9))
    # another token wins with probability of order 1 / snr
    np.testing.assert_array_equal(place, np.argmax(chi, axis=1))


@pytest.mark.exact
@float64
def test_place_scores_are_the_log_posterior():
    chi, _ = key_fields(SOFT)
    x, k_star = samples(SOFT)[0], vectors()[0][0]
    for task, expected in ((SOFT, special.softmax(1.5 * chi, axis=1)), (HARD, np.eye(3)[np.argmax(chi, axis=1)])):
        found = jax.nn.softmax(task.place_scores(jnp.asarray(x), jnp.asarray(k_star), lower(task)[1]), axis=-1)
        # sums of six products of size a few, times the snr
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


# --- labels --------------------------------------------------------------------------------------


@pytest.mark.montecarlo
@pytest.mark.parametrize("task", [SOFT, HARD], ids=["soft", "hard"])
def test_label_noise_is_independent_and_has_the_stated_variance(task):
    x, y, place = samples(task)
    noise = (y - x[np.arange(N), place] @ vectors()[0][1]) / task.noise
    se = np.sqrt(2 / N)
    assert se < 0.01
    assert abs(np.mean(noise**2) - 1) < 5 * se
    assert abs(np.mean(noise)) < 5 / np.sqrt(N)
    # nor does it follow the place or the key field, whose square has a mean of about one
    chi = x @ vectors()[0][0]
    assert abs(np.mean(noise * (place - 1))) < 5 / np.sqrt(N)
    assert abs(np.mean(noise * chi[:, 0])) < 5 / np.sqrt(N)
    # the twin with 5 % more noise fails
    assert abs(np.mean((noise / 1.05) ** 2) - 1) > 5 * se


@pytest.mark.montecarlo
def test_the_clean_label_is_standard_normal_because_v_star_is_orthogonal_to_k_star():
    x, y, place = samples(HARD.replace(noise=0.0))
    np.testing.assert_allclose(y, x[np.arange(N), place] @ vectors()[0][1], rtol=0, atol=32 * np.finfo(float).eps)
    assert abs(np.mean(y)) < 5 / np.sqrt(N)
    assert abs(np.mean(y**2) - HARD.label_var) < 5 * np.sqrt(2 / N)


# --- tracing, lengths, spelling ------------------------------------------------------------------


@pytest.mark.exact
@float64
def test_the_numbers_of_the_law_are_traced_and_compile_once():
    k_star, v_star = (jnp.asarray(a) for a in vectors()[0][:2])
    draw = jax.jit(lambda key, law: ndl.MaxSLR.draw(key, k_star, v_star, N, LENGTH, law))
    for task in (SOFT, SOFT.replace(snr=3.0), SOFT.replace(noise=0.0), SOFT.replace(snr=0.0)):
        traced, direct = draw(jax.random.key(0), lower(task)[1]), samples(task)
        np.testing.assert_array_equal(traced[2], direct[2])
        # the compiled sum of six products may be taken in another order
        np.testing.assert_allclose(traced[1], direct[1], rtol=0, atol=1e-13)
    assert draw._cache_size() == 1
    draw(jax.random.key(0), lower(HARD)[1])  # an infinite snr is static: the argmax is another kernel
    assert draw._cache_size() == 2
    assert "snr" not in lower(HARD)[1]
    assert lower(HARD)[0] != lower(SOFT)[0] == lower(SOFT.replace(snr=9.0))[0]


@pytest.mark.exact
def test_the_same_key_draws_the_same_tokens_for_every_snr():
    (x, y, place), (same_x, same_y, same), other = samples(SOFT), samples(HARD), samples(SOFT, seed=1)
    np.testing.assert_array_equal(x, same_x)
    agree = place == same
    np.testing.assert_allclose(y[agree], same_y[agree], rtol=0, atol=1e-13)
    assert 0.4 < agree.mean() < 0.9
    assert np.mean(x == other[0]) < 1e-3


@pytest.mark.exact
def test_random_lengths_are_one_law_however_they_are_written():
    task = ndl.MaxSLR({7: 0.25, 2: 0.75}, snr=1.0)
    assert task == ndl.MaxSLR({2: 0.75, 7: 0.25}, snr=1) == ndl.MaxSLR([(7, 0.25), (2, 0.75)], 1.0)
    assert task.length_law == ((2, 0.75), (7, 0.25))
    assert (task.fixed_length, task.shortest, task.longest) == (None, 2, 7)
    assert task.length_moments() == {"task.others": 0.75 * 1 + 0.25 * 6, "task.pairs": 0.25 * 30}
    fixed = ndl.MaxSLR({4: 1.0}, snr=1.0)
    assert (fixed.length_law, fixed.fixed_length) == (((4, 1.0),), 4)
    assert fixed == ndl.MaxSLR(4, snr=1.0)
    x, y, place = samples(task, length=7)
    assert (x.shape, y.shape, set(place)) == ((N, 7, D), (N,), set(range(7)))


WRITTEN = {
    "MaxSLR(tokens=3, snr=inf)": ndl.MaxSLR(3, math.inf),
    "MaxSLR(3, 2, 0.5)": ndl.MaxSLR(tokens=3, snr=2.0, noise=0.5),
    "MaxSLR(tokens={2: 1/4, 5: 3/4}, snr=inf, noise=0.1)": ndl.MaxSLR({2: 0.25, 5: 0.75}, math.inf, 0.1),
    "MaxSLR({1: 0.1, 2: 0.2, 3: 0.7}, snr=sqrt(2))": ndl.MaxSLR({1: 0.1, 2: 0.2, 3: 0.7}, math.sqrt(2)),
}


@pytest.mark.exact
@pytest.mark.parametrize("text", WRITTEN)
def test_text_json_and_toml_are_the_same_spec(text, tmp_path):
    task = WRITTEN[text]
    document = json.loads(dumps(task), parse_constant=pytest.fail)
    copies = [parse_spec(text, "task"), parse_spec(repr(task), "task"), from_json(document)]
    snr = document["snr"]
    assert snr == ("inf" if math.isinf(task.snr) else task.snr)
    table = f'[task]\ntype = "MaxSLR"\ntokens = {json.dumps(document["tokens"])}\nnoise = {document["noise"]}\n'
    files = {"a.toml": f"task = {text!r}", "b.toml": f"{table}snr = {snr}", "c.toml": f"{table}snr = {snr!r}"}
    if not math.isinf(task.snr):
        del files["c.toml"]  # a word is read as a number only for inf
    for name, content in {**files, "d.json": json.dumps({"task": document})}.items():
        (tmp_path / name).write_text(content)
        copies.append(combine(read_spec_file(tmp_path / name), {}, [])["task"])
    assert all(copy == task for copy in copies)
    assert {copy.id for copy in copies} == {task.id}
    assert len({hash(copy) for copy in copies}) == 1


@pytest.mark.exact
def test_ids_tell_specs_apart():
    tasks = [
        *WRITTEN.values(),
        ndl.MaxSLR(3, 1e50),
        ndl.MaxSLR(3, 2),
        ndl.SpikedSLR(3, 2),
        ndl.MaxSLR({2: 0.5, 3: 0.5}, 2),
    ]
    assert len({t.id for t in tasks}) == len(tasks)
    assert ndl.MaxSLR(3, -0.0).id == ndl.MaxSLR(3, 0).id


# --- Bayes ---------------------------------------------------------------------------------------

BAYES = {
    "soft": ndl.MaxSLR(3, 2.0, 0.2),
    "random lengths": ndl.MaxSLR({3: 0.4, 5: 0.6}, 1.0, 0.2),
    "no information": ndl.MaxSLR(3, 0.0, 0.2),
}


@functools.cache
def bayes(task):
    return ndl.simulate(task, None, ndl.BayesOptimal(), d=4, repeats=20, samples=20_000, seed=3)


def bayes_z(measured, task):
    found, predicted = bayes(measured).excess_risk, ndl.predict(task, None, ndl.BayesOptimal()).excess_risk
    assert found.error < 0.01 * found.value
    return (found.value - predicted.value) / found.error


@pytest.mark.montecarlo
@pytest.mark.parametrize("case", BAYES)
def test_the_posterior_mean_has_the_predicted_risk(case):
    assert abs(bayes_z(BAYES[case], BAYES[case])) < 5


@pytest.mark.negative
@pytest.mark.parametrize("wrong", [{"snr": 2.1}, {"snr": 1.9}, {"snr": math.sqrt(2)}, {"tokens": 4}])
def test_another_law_does_not_have_this_bayes_risk(wrong):
    assert abs(bayes_z(BAYES["soft"], BAYES["soft"].replace(**wrong))) > 5


@pytest.mark.montecarlo
def test_at_an_infinite_snr_only_the_label_noise_is_left():
    task = ndl.MaxSLR(3, math.inf, 0.2)
    found = bayes(task)
    assert ndl.predict(task, None, ndl.BayesOptimal()).risk.value == pytest.approx(0.04, rel=1e-15)
    # the mean of 400,000 squared Gaussians
    assert found.risk.error < 0.01 * 0.04
    assert abs(found.risk.value - 0.04) < 5 * found.risk.error


@pytest.mark.exact
@pytest.mark.parametrize("snr", [1e12, 1e20, 1e49])
def test_a_very_large_snr_measures_as_an_infinite_one(snr):
    # the argmax is the place and the posterior is one token: what is left is the rounding of a sum of four products
    found = ndl.simulate(ndl.MaxSLR(3, snr), None, ndl.BayesOptimal(), d=4, repeats=2, samples=20_000)
    assert found.risk.value <= 1e-28

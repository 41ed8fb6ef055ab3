"""Risks by sampling: unbiased for both tasks, with standard errors that are honest, whatever the chunks."""

import functools
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

import needlepoint as ndl
from needlepoint.simulation.location import risks

SPIKED = ndl.SpikedSLR({2: 0.4, 3: 0.6}, snr=2.0, relevant_std=0.8, noise=0.2)
MAX = ndl.MaxSLR({2: 0.4, 3: 0.6}, snr=2.0, noise=0.2)
HARD = ndl.MaxSLR(3, snr=math.inf, noise=0.2)
TASKS = {"spiked": SPIKED, "max": MAX, "hard": HARD}
MODELS = {
    "softmax": ndl.KeyValueAttention(ndl.Softmax()),
    "softplus": ndl.KeyValueAttention(ndl.Softplus()),
    "linear": ndl.KeyValueAttention(ndl.Linear()),
    "erf": ndl.KeyValueAttention(ndl.Erf(0.7, -0.3, 1.0)),
}
# off the manifold, with free norms
AT = ndl.Overlaps(0.7, 0.8, 0.1, -0.2, 0.3, key_sq=1.2, value_sq=1.1)
POPULATION = ndl.Population()
SAMPLES = 2000
"""One number for all measurements, whose kernels are compiled for it."""


def measure(task, model, seed=0, overlaps=AT, **options):
    options = {"d": 6, "repeats": 8, "samples": SAMPLES, **options}
    return ndl.simulate(task, model, POPULATION, seed=seed, overlaps=overlaps, **options)


# --- the value -----------------------------------------------------------------------------------


@functools.cache
def precise(task, model):
    return measure(TASKS[task], MODELS[model], repeats=160, seed=11)


@pytest.mark.montecarlo
@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("spiked", "softmax"),
        ("max", "softmax"),
        pytest.param("spiked", "erf", marks=pytest.mark.slow),
        pytest.param("max", "softplus", marks=pytest.mark.slow),
        ("hard", "linear"),
        ("hard", "erf"),
    ],
)
def test_attention_at_given_weights_has_the_population_risk(task, model):
    found, expected = precise(task, model), ndl.population_risk(TASKS[task], MODELS[model], AT)
    assert found.overlaps == AT
    for metric, shift in (("risk", 0.0), ("excess_risk", 0.04)):
        estimate = found.metrics[metric]
        assert estimate.error < 0.01 * estimate.value
        assert abs(estimate.value + shift - expected.value) < 5 * estimate.error + 3 * expected.error


@pytest.mark.negative
@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        ("softmax", {"key": 0.65}),
        ("softmax", {"value": 0.75}),
        ("softmax", {"value_on_key": -0.1}),
        ("softmax", {"key_dot_value": 0.15}),
        ("erf", {"key_on_value": 0.5}),  # softmax hardly feels it
    ],
)
def test_each_overlap_matters(model, wrong):
    task = "max" if model == "softmax" else "hard"
    found, expected = precise(task, model), ndl.population_risk(TASKS[task], MODELS[model], AT.replace(**wrong))
    assert abs(found.risk.value - expected.value) > 5 * found.risk.error


@pytest.mark.montecarlo
@pytest.mark.parametrize("task", [ndl.SpikedSLR(3, 2.0, 0.8, 0.2), ndl.MaxSLR(3, 2.0, 0.2)], ids=repr)
def test_linear_regression_cannot_find_the_place(task):
    found = ndl.simulate(task, ndl.LinearRegression(), POPULATION, d=4, repeats=16)
    expected = ndl.predict(task, ndl.LinearRegression(), POPULATION)
    assert found.risk.error < 0.01 * found.risk.value
    # the bias of the half sum is (p/n)^2 < 1e-5, below the standard error
    assert abs(found.risk.value - expected.risk.value) < 5 * found.risk.error + 1e-5


# --- its error -----------------------------------------------------------------------------------

SEEDS, REPEATS = 40, 8


@functools.cache
def by_seeds(task, model):
    """Means and reported errors of the same measurement with other seeds."""
    found = [measure(TASKS[task], MODELS[model], seed=100 + s, repeats=REPEATS).risk for s in range(SEEDS)]
    return np.array([e.value for e in found]), np.array([e.error for e in found])


def spread_ratio_is_plausible(values, errors):
    """Variance of the means over the mean reported variance: F(39, 40 x 7) if the errors are honest; 5 sigma."""
    ratio = np.var(values, ddof=1) / np.mean(errors**2)
    tail = stats.f(SEEDS - 1, SEEDS * (REPEATS - 1))
    return min(tail.cdf(ratio), tail.sf(ratio)) > 3e-7


@pytest.mark.montecarlo
@pytest.mark.parametrize("task", ["max", *(pytest.param(task, marks=pytest.mark.slow) for task in ("spiked", "hard"))])
def test_the_reported_error_is_the_spread_over_seeds(task):
    values, errors = by_seeds(task, "softmax")
    assert len(set(values)) == SEEDS
    assert spread_ratio_is_plausible(values, errors)
    expected = ndl.population_risk(TASKS[task], MODELS["softmax"], AT).value
    # and the mean over seeds is the risk
    assert abs(values.mean() - expected) < 5 * math.sqrt(np.mean(errors**2) / SEEDS)


@pytest.mark.negative
@pytest.mark.parametrize("factor", [math.sqrt(REPEATS), 1 / math.sqrt(REPEATS), 2.2, 1 / 2.2])
def test_a_standard_deviation_in_its_place_is_seen(factor):
    values, errors = by_seeds("max", "softmax")
    assert not spread_ratio_is_plausible(values, factor * errors)


@pytest.mark.exact
def test_one_repeat_has_no_error_and_seeds_repeat():
    one = measure(MAX, MODELS["softmax"], repeats=1)
    assert one.risk.error == math.inf
    assert one.to_json()["metrics"]["risk"]["error"] == "inf"
    again, other = measure(MAX, MODELS["softmax"], repeats=1), measure(MAX, MODELS["softmax"], repeats=1, seed=1)
    assert one.risk.value == again.risk.value != other.risk.value
    # repeats are independent of how many there are
    two = measure(MAX, MODELS["softmax"], repeats=2).risk
    assert two.value - two.error == pytest.approx(one.risk.value) or two.value + two.error == pytest.approx(
        one.risk.value
    )


# --- chunks --------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("budget", [1, 7, 40, 41, 10**9])
def test_chunks_cover_every_sequence_once(budget, monkeypatch):
    monkeypatch.setattr(risks, "ACCURACY", replace(risks.ACCURACY, risks_chunk=budget))
    drawn = []

    def draw(key, size):
        drawn.append((jax.random.key_data(key).tolist(), size))
        return np.ones(size)

    total = risks.sum_chunks(draw, jax.random.key(0), (0, 3), 41, 1, np.sum)
    assert total == 41
    assert len({size for _, size in drawn}) == 1  # one compiled size
    assert max(size for _, size in drawn) <= max(1, budget)
    assert len({tuple(key) for key, _ in drawn}) == len(drawn)  # fresh sequences in each


@pytest.mark.montecarlo
@pytest.mark.parametrize(("task", "model"), [("hard", "erf"), pytest.param("max", "softmax", marks=pytest.mark.slow)])
def test_small_chunks_estimate_the_same_risk(task, model, monkeypatch):
    task, model = TASKS[task], MODELS[model]
    whole = measure(task, model, repeats=16)
    # 640 sequences of 3 tokens, 960 of 2
    monkeypatch.setattr(risks, "ACCURACY", replace(risks.ACCURACY, risks_chunk=3 * 6 * 640))
    parts = measure(task, model, repeats=16)
    # the keys of a chunk differ, so the sequences do: two independent estimates
    assert parts.risk.value != whole.risk.value
    assert abs(parts.risk.value - whole.risk.value) < 5 * math.hypot(parts.risk.error, whole.risk.error)
    expected = ndl.population_risk(task, model, AT).value
    assert abs(parts.risk.value - expected) < 5 * parts.risk.error


@pytest.mark.exact
def test_a_chunk_that_holds_all_sequences_changes_nothing(monkeypatch):
    whole = measure(MAX, MODELS["softmax"])
    monkeypatch.setattr(risks, "ACCURACY", replace(risks.ACCURACY, risks_chunk=3 * 6 * SAMPLES))
    assert measure(MAX, MODELS["softmax"]).risk == whole.risk


# --- refused -------------------------------------------------------------------------------------

SOFTMAX, UNIT = MODELS["softmax"], ndl.KeyValueAttention(ndl.Softmax(), unit_norm=True)
FREE = ndl.KeyValueAttention(ndl.Erf(shift=None))
NO_OVERLAPS = {"overlaps": None}
REFUSED = {
    "no overlaps": (SOFTMAX, NO_OVERLAPS, "overlaps= is needed", "predict(...).overlaps"),
    "a dict": (SOFTMAX, {"overlaps": {"key": 1}}, "{'key': 1}", "write it as Overlaps(key=..., value=...)"),
    "free constant": (FREE, {}, "shift is None", "use predict(...).resolved"),
    "norm": (UNIT, {}, "key_sq=1.2", "key_sq and value_sq must be 1", "unit_norm=True"),
    "norm of v": (UNIT, {"overlaps": ndl.Overlaps(1, 0.5, value_sq=0.5)}, "value_sq=0.5", "must be 1"),
    "d": (SOFTMAX, {"d": 3}, "simulate(d=3): d must be >= 4"),
    "d of one": (SOFTMAX, {"d": 1}, "simulate(d=1): d must be a whole number >= 2"),
    "half a d": (SOFTMAX, {"d": 4.5}, "simulate(d=4.5)", "a whole number"),
    "repeats": (SOFTMAX, {"repeats": 0}, "simulate(repeats=0): repeats must be a whole number >= 1"),
    "samples": (SOFTMAX, {"samples": -5}, "simulate(samples=-5): samples must be a whole number >= 1"),
    "seed": (SOFTMAX, {"seed": -1}, "simulate(seed=-1)", "from 0 to 2**63 - 1"),
}


@pytest.mark.exact
@pytest.mark.parametrize("task", ["spiked", "max"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_one_sentence(case, task):
    model, options, *phrases = REFUSED[case]
    with pytest.raises(ndl.InvalidParameter) as caught:
        measure(TASKS[task], model, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert all(phrase in text for phrase in phrases), text


@pytest.mark.exact
def test_two_dimensions_suffice_for_vectors_in_the_plane_of_the_teachers():
    found = measure(HARD, SOFTMAX, d=2, overlaps=ndl.Overlaps(1.5, 0.9, key_sq=2.25, value_sq=0.81))
    assert found.d == 2
    assert found.risk.finite

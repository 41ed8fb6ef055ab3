"""Seeds that were simulated by themselves, as one measurement: means, standard errors, and nothing hidden."""

import dataclasses
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.studies.pooling import pooled

QUESTION = (ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Erf(0.5), unit_norm=True), ndl.Population())
VALUES = [0.2, 0.5, 0.3, 0.8]


def seed(value, i=0, kind="stderr", **more):
    metrics = {
        "risk": ndl.Estimate(value, math.inf if kind == "stderr" else 1e-9, kind),
        "energy": ndl.Estimate(2.0 + 1e-12 * i, 1e-10, "numerical"),
    }
    return ndl.Measurement(*QUESTION, metrics, **({"seed": 100 + i, "d": 5, "repeats": 1} | more))


def seeds(values=VALUES, **more):
    return [seed(v, i, **more) for i, v in enumerate(values)]


@pytest.mark.exact
def test_mean_and_standard_error_by_hand():
    m = pooled(seeds())
    # mean 0.45; deviations -0.25, 0.05, -0.15, 0.35 with squares 0.0625, 0.0025, 0.0225, 0.1225, sum 0.21
    assert m.risk.value == pytest.approx(0.45, rel=1e-15)
    assert m.risk.error == pytest.approx(math.sqrt(0.21 / 3 / 4), rel=1e-14)
    assert m.risk.kind == "stderr"
    assert (m.task, m.model, m.learner) == QUESTION
    assert (m.d, m.repeats, m.seed, m.status) == (5, 4, 100, ndl.Status.CONVERGED)
    assert list(m.metrics) == ["risk", "energy"]


@pytest.mark.exact
def test_pooling_seeds_is_what_one_call_with_repeats_would_say():
    """The same samples: `mean_estimate` over repeats is what `simulate` reports."""
    from needlepoint.core.results import mean_estimate

    m = pooled(seeds())
    assert m.risk == mean_estimate(np.array(VALUES))


@pytest.mark.negative
def test_a_standard_deviation_would_be_noticed():
    """z-scores of pooled means are standard normal; with the standard deviation they would be an eighth as wide."""
    rng = np.random.default_rng(0)
    draws = rng.normal(0.7, 0.2, size=(600, 64))
    found = [pooled(seeds(row)).risk for row in draws]
    z = np.array([(e.value - 0.7) / e.error for e in found])
    # the spread of 600 z-scores has a standard error of 2.9 %; Student at 63 degrees of freedom widens it by 1.6 %
    assert abs(np.std(z) - 1.016) < 5 * 0.029
    wrong = np.array([(e.value - 0.7) / np.std(row, ddof=1) for e, row in zip(found, draws, strict=True)])
    assert abs(np.std(wrong) - 1.016) > 20 * 0.029
    assert found[0].error != pytest.approx(np.std(draws[0], ddof=1), rel=0.5)


def test_one_seed_is_itself():
    one = seed(0.3)
    assert pooled([one]) is one
    assert pooled([one]).risk.error == math.inf


@pytest.mark.exact
def test_what_is_not_random_keeps_a_bound():
    m = pooled(seeds())
    assert m.energy.kind == "numerical"
    assert m.energy.value == pytest.approx(2.0 + 1.5e-12, rel=1e-15)
    assert m.energy.error == pytest.approx(1e-10 + 3e-12, rel=1e-4)  # the largest bound and the spread
    alike = pooled(seeds([0.25] * 3, kind="numerical"))
    assert alike.risk == ndl.Estimate(0.25, 1e-9)


def test_a_bound_covers_every_seed():
    parts = seeds([0.1, 0.4, 0.2], kind="numerical")
    e = pooled(parts).risk
    assert all(abs(p.risk.value - e.value) + p.risk.error <= e.error + 1e-15 for p in parts)


def test_mixed_kinds_are_a_standard_error():
    m = pooled([seed(0.2), seed(0.4, kind="numerical")])
    assert (m.risk.kind, m.risk.error) == ("stderr", pytest.approx(0.1))


def test_a_nan_stays_a_nan():
    m = pooled(seeds([0.2, math.nan, 0.3]))
    assert math.isnan(m.risk.value)
    assert m.risk.error == math.inf  # an error is a size, or unknown
    assert math.isnan(pooled(seeds([0.2, math.nan], kind="numerical")).risk.value)


def test_an_infinite_value_is_pooled_without_a_warning():
    assert pooled(seeds([0.2, math.inf, 0.3])).risk.value == math.inf


# --- what else a measurement has -----------------------------------------------------------------


@pytest.mark.parametrize("status", [s for s in ndl.Status if not s.ok])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_seed_that_failed_stays_visible(status, place):
    parts = seeds()
    parts[place] = dataclasses.replace(parts[place], status=status, notes=("this one broke",))
    m = pooled(parts)
    assert m.status is status
    assert m.notes == ("this one broke (1 of 4 seeds)",)


def test_notes_are_told_once_and_by_how_many():
    parts = [dataclasses.replace(p, notes=n) for p, n in zip(seeds(), [("a",), (), ("b", "a"), ("a",)], strict=True)]
    assert pooled(parts).notes == ("a (3 of 4 seeds)", "b (1 of 4 seeds)")
    assert pooled([dataclasses.replace(p, notes=("a", "a")) for p in seeds()]).notes == ("a",)


def test_branches_agree_or_there_is_none():
    parts = [dataclasses.replace(p, branch="oracle") for p in seeds()]
    assert pooled(parts).branch == "oracle"
    assert pooled([*parts, dataclasses.replace(parts[0], branch="swapped")]).branch is None


@pytest.mark.exact
def test_chosen_overlaps_stay_and_have_no_new_error():
    at = ndl.Overlaps(0.6, 0.7)
    m = pooled([dataclasses.replace(p, overlaps=at) for p in seeds()])
    assert m.overlaps == at
    assert m.overlaps_error == {}


@pytest.mark.exact
def test_measured_overlaps_are_means_with_standard_errors():
    keys = [0.1, 0.3, 0.2, 0.2]
    error = {"key": math.inf, "value": math.inf}
    parts = [
        dataclasses.replace(p, overlaps=ndl.Overlaps(k, 0.5), overlaps_error=error)
        for p, k in zip(seeds(), keys, strict=True)
    ]
    m = pooled(parts)
    assert m.overlaps.key == pytest.approx(0.2, rel=1e-15)
    assert m.overlaps.value == 0.5
    assert m.overlaps_error["key"] == pytest.approx(math.sqrt(0.02 / 3 / 4), rel=1e-13)
    assert m.overlaps_error["value"] == 0.0
    assert set(m.overlaps_error) == set(error)


def test_without_overlaps_of_all_seeds_there_are_none():
    parts = seeds()
    parts[0] = dataclasses.replace(parts[0], overlaps=ndl.Overlaps(0.1, 0.1))
    assert pooled(parts).overlaps is None
    assert pooled(parts[::-1]).overlaps is None


def path(rng, branch):
    names = ("key", "value", "value_on_key", "key_on_value", "key_dot_value")
    overlaps = {name: rng.uniform(-0.3, 0.3, (1, 4)) for name in names}
    return ndl.Trajectory(np.arange(4), np.full(4, 0.5), overlaps, rng.uniform(0, 1, (1, 4)), (branch,))


@pytest.mark.exact
def test_trajectories_are_stacked_as_runs():
    rng = np.random.default_rng(1)
    paths = [path(rng, b) for b in ("oracle", "other", "swapped", "other")]
    m = pooled([dataclasses.replace(p, trajectory=t) for p, t in zip(seeds(), paths, strict=True)])
    assert m.trajectory.runs == 4
    assert m.trajectory.branches == ("oracle", "other", "swapped", "other")
    np.testing.assert_array_equal(m.trajectory.steps, np.arange(4))
    for i, one in enumerate(paths):
        np.testing.assert_array_equal(m.trajectory.excess_risk[i], one.excess_risk[0])
        for name, x in one.overlaps.items():
            np.testing.assert_array_equal(m.trajectory.overlaps[name][i], x[0])
    some = [dataclasses.replace(seeds()[0], trajectory=paths[0]), *seeds()[1:]]
    assert pooled(some).trajectory is None


@pytest.mark.exact
def test_overlaps_of_the_indexed_model_spectra_and_values_are_kept():
    rng = np.random.default_rng(2)
    parts = [
        dataclasses.replace(
            p,
            overlaps=ndl.IndexedOverlaps(0.1 * i, 1.0),
            overlaps_error={"m": math.inf, "q": math.inf},
            spectrum=ndl.TrainedSpectrum(rng.standard_normal((1, 5)), rng.standard_normal((1, 5))),
            values={"risk": np.array([0.1 * i]), "only here": np.zeros(1)} if i == 0 else {"risk": np.array([0.1 * i])},
        )
        for i, p in enumerate(seeds())
    ]
    m = pooled(parts)
    assert type(m.overlaps) is ndl.IndexedOverlaps
    assert (m.overlaps.m, m.overlaps.q) == (pytest.approx(0.15), 1.0)
    assert m.overlaps_error["q"] == 0.0
    np.testing.assert_array_equal(m.values["risk"], 0.1 * np.arange(4))
    assert list(m.values) == ["risk"]  # a column of some seeds would not fit the rows of the spectrum
    for i, p in enumerate(parts):
        np.testing.assert_array_equal(m.spectrum.eigenvalues[i], p.spectrum.eigenvalues[0])
        np.testing.assert_array_equal(m.spectrum.target[i], p.spectrum.target[0])
    assert pooled([dataclasses.replace(parts[0], spectrum=None), *parts[1:]]).spectrum is None

"""What the starts of a repeat say: the best of k of them, how often it was found, and by which."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.simulation.starts.measures import best_of, measures, names_of_starts, tried

RNG = np.random.default_rng(0)
NONE = [lambda weights: weights]


class End(NamedTuple):
    energy: float
    weights: np.ndarray


@pytest.mark.exact
@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_the_best_of_k_is_the_mean_over_all_choices(k):
    energies = RNG.standard_normal(7)
    expected = np.mean([min(chosen) for chosen in itertools.combinations(energies, k)])
    assert best_of(energies, k) == pytest.approx(expected, rel=1e-12)


@pytest.mark.exact
def test_the_best_of_many_falls_with_their_number():
    energies = RNG.standard_normal(64)
    found = [best_of(energies, k) for k in range(1, 65)]
    assert np.all(np.diff(found) < 0)
    assert found[0] == pytest.approx(np.mean(energies), rel=1e-12)
    assert found[-1] == pytest.approx(np.min(energies), rel=1e-12)


def test_numbers_of_starts_that_are_reported():
    assert tried(64) == [1, 4, 16, 64]
    assert tried(20) == [1, 4, 16, 20]
    assert tried(2) == [1, 2]


def test_names_of_starts():
    assert names_of_starts(ndl.Ridge(1.0, 0.1), 1) == ["random", "informed"]
    assert names_of_starts(ndl.Ridge(1.0, 0.1), 3) == ["random", "random_2", "random_3", "informed"]
    assert names_of_starts(ndl.Ridge(1.0, 0.1, start="random"), 2) == ["random", "random_2"]
    assert names_of_starts(ndl.Ridge(1.0, 0.1, start="informed"), 1) == ["informed"]


def measured(ends, found="ab"):
    """What is said of random ends at the minima in `found`, and of an informed one at the last of them."""
    minima = {"random" if i == 0 else f"random_{i + 1}": ends[name] for i, name in enumerate(found[:-1])}
    minima["informed"] = ends[found[-1]]
    return measures(minima, ("key", "value"), lambda m: {"risk": 10 * m.energy, "energy": m.energy}, NONE, NONE[0], 0.0)


ENDS = {name: End(energy, RNG.standard_normal((2, 30))) for name, energy in (("a", 0.1), ("b", 0.2), ("c", 0.3))}


@pytest.mark.parametrize(
    ("found", "again", "missed", "minima"),
    [("aba", 1, 0, 2), ("abb", 0, 0, 2), ("bba", 0, 1, 2), ("aab", 1, 0, 2), ("abc", 0, 0, 3), ("aaa", 1, 0, 1)],
)
def test_how_often_the_lowest_was_found(found, again, missed, minima):
    said = measured(ENDS, found)
    assert (said["best_found_again"], said["random_missed"], said["distinct_minima"]) == (again, missed, minima)
    assert said["energy_informed"] == ENDS[found[-1]].energy
    assert said["risk_one_start"] == pytest.approx(10 * np.mean([ENDS[name].energy for name in found[:-1]]))
    assert said["energy_best_of_2"] == min(ENDS[name].energy for name in found[:-1])
    assert "energy_one_start" not in said  # it is energy_best_of_1
    assert said["energy_best_of_1"] == pytest.approx(np.mean([ENDS[name].energy for name in found[:-1]]))


@pytest.mark.exact
def test_overlaps_between_minima():
    said = measured(ENDS, "abca")
    keys = [ENDS[name].weights[0] for name in "abc"]
    assert said["key_between_lowest"] == pytest.approx(keys[0] @ keys[1])
    assert said["key_between_minima"] == pytest.approx(
        np.mean([keys[0] @ keys[1], keys[0] @ keys[2], keys[1] @ keys[2]])
    )
    assert measured(ENDS, "aa")["value_between_minima"] == pytest.approx(np.sum(ENDS["a"].weights[1] ** 2))


def test_nothing_finite_has_no_minimum():
    lost = {"a": End(np.nan, np.full((2, 3), np.nan))}
    said = measured(lost, "aa")
    assert (said["distinct_minima"], said["best_found_again"], said["random_missed"]) == (0, 0, 0)
    assert np.isnan(said["key_between_minima"])

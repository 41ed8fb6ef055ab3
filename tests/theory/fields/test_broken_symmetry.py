"""A declared symmetry that training breaks: one head that has two needles to serve.

The signs of the value and of both needles' values may change together, so that value.key* and key.value* vanish where
the symmetry is kept. One head cannot serve both needles alike: from some number of samples on its value leans on the
keys, to either side.
"""

import pytest

import needlepoint as ndl

TASK, MODEL = ndl.Needles(3, snr=4.0, noise=0.1), ndl.MultiHead(1, ndl.Softmax())
LEARNER = ndl.Ridge(6.0, 1.0)


@pytest.fixture(scope="module")
def broken():
    return ndl.predict(TASK, MODEL, LEARNER, tol=0.03)


def scatter(d, alpha=6.0):
    """Return the standard deviation of value.key* over 16 repeats, and the measurement."""
    found = ndl.simulate(TASK, MODEL, LEARNER.replace(alpha=alpha), d=d, repeats=16, samples=2000, seed=3)
    return 4 * found.overlaps_error["value_on_key"], found


def test_the_solution_without_the_symmetry_is_lower_and_stable(broken):
    assert broken.branch == "broken symmetry"
    assert broken.stable
    assert any("second solution" in note for note in broken.notes)
    overlaps = dict(broken.overlaps.items())
    lean, other = overlaps["value_on_key"], overlaps["value_on_key2"]
    assert abs(lean) > 0.15
    assert lean * other < 0  # it leans away from one key and to the other
    assert abs(abs(lean) - abs(other)) < 0.02
    assert abs(overlaps["value_on_value"] - overlaps["value_on_value2"]) < 0.02


@pytest.mark.training
def test_training_leans_by_as_much(broken):
    deviation, found = scatter(100)
    # of a size that does not shrink with d: chance alone has |v| / sqrt(d) = 0.08 here
    assert deviation == pytest.approx(abs(dict(broken.overlaps.items())["value_on_key"]), rel=0.35)
    assert abs(found.excess_risk.value - broken.excess_risk.value) < 4 * found.excess_risk.error


@pytest.mark.negative
def test_with_few_samples_the_symmetry_holds():
    found = ndl.predict(TASK, MODEL, LEARNER.replace(alpha=3.0), tol=0.05)
    assert found.branch == "unique"
    assert found.stable
    assert dict(found.overlaps.items())["value_on_key"] == 0.0

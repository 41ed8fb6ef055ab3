"""Which minima are one: planted copies, changes of gauge, and neighbours that are not."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.simulation.fields.gauges import gauges
from needlepoint.simulation.location.signs import Signs
from needlepoint.simulation.starts.distinct import are_same, common, found_by

ODD, EVEN = ndl.Erf(), ndl.KeyValueAttention(lambda s: s**2).activation
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((3, 2, 50))
NONE = [lambda weights: weights]
BOTH, KEY = np.array([[-1.0], [-1.0]]), np.array([[-1.0], [1.0]])


def test_copies_are_found_in_any_order():
    ends = WEIGHTS[[2, 0, 1, 0, 2, 2]] + 1e-3 * RNG.standard_normal((6, 2, 50))
    energies = np.array([0.3, 0.1, 0.2, 0.1, 0.3, 0.3]) * (1 + 1e-7 * RNG.standard_normal(6))
    found = found_by(energies, ends, NONE)
    assert [sorted(members) for members in found] == [[1, 3], [2], [0, 4, 5]]
    assert all(energies[members[0]] == energies[members].min() for members in found)


def test_the_same_energy_at_other_weights_is_another_minimum():
    assert found_by(np.array([0.1, 0.1]), WEIGHTS[:2], NONE) == [[0], [1]]


@pytest.mark.parametrize(("gap", "minima"), [(0.9e-5, 1), (1.1e-5, 2)])
def test_the_same_weights_at_another_energy_are_another_minimum(gap, minima):
    ends = np.repeat(WEIGHTS[:1], 2, axis=0)
    assert len(found_by(np.array([0.1, 0.1 * (1 + gap)]), ends, NONE)) == minima
    assert len(found_by(np.array([0.1, 0.1 * (1 + gap)]), ends, NONE, rounding=1e-5)) == 1


@pytest.mark.parametrize(("cosine", "same"), [(0.991, True), (0.989, False)])
@pytest.mark.parametrize("column", [0, 1])
def test_every_column_has_to_agree(cosine, same, column):
    one, other = WEIGHTS[0], WEIGHTS[0].copy()
    across = WEIGHTS[1, 0] - (WEIGHTS[1, 0] @ one[column]) / (one[column] @ one[column]) * one[column]
    across *= np.linalg.norm(one[column]) / np.linalg.norm(across)
    other[column] = cosine * one[column] + np.sqrt(1 - cosine**2) * across
    assert are_same(one, other, NONE) is same


def test_a_column_that_vanishes_has_no_direction():
    flat = WEIGHTS[0] * np.array([[1e-9], [1.0]])
    other = flat * KEY
    assert are_same(flat, other, NONE)
    assert not are_same(flat, WEIGHTS[0], NONE)


@pytest.mark.parametrize(
    ("activation", "seen"),
    [(ODD, [True, False]), (EVEN, [False, True]), (ndl.Softmax(), [False, False]), (ndl.Linear(), [False, False])],
    ids=["odd", "even", "softmax", "linear"],
)
def test_a_change_of_gauge_is_the_same_minimum(activation, seen):
    """What is a gauge is what leaves the predictions alone; the general rule finds the same ones by trying."""
    model = ndl.KeyValueAttention(activation)
    scores, values = RNG.standard_normal((2, 6, 2))
    plain = np.sum(np.asarray(activation(scores)) * values, axis=1)
    for changes in (Signs.of(activation).changes, gauges(model, 2)):
        assert [are_same(WEIGHTS[0], WEIGHTS[0] * flip, changes) for flip in (BOTH, KEY)] == seen
        for change in changes:
            moved = change(np.stack([scores.ravel(), values.ravel()])).reshape(2, 6, 2)
            np.testing.assert_allclose(np.sum(np.asarray(activation(moved[0])) * moved[1], axis=1), plain, atol=1e-12)
    found = found_by(np.array([0.1, 0.1, 0.1]), np.array([WEIGHTS[0], WEIGHTS[0] * BOTH, WEIGHTS[0] * KEY]),
                     Signs.of(activation).changes)  # fmt: skip
    assert len(found) == 3 - sum(seen)


@pytest.mark.parametrize("activation", [ODD, EVEN, ndl.Softmax()], ids=["odd", "even", "softmax"])
def test_weights_get_the_sign_that_their_overlaps_get(activation):
    teachers = np.linalg.qr(RNG.standard_normal((50, 2)))[0].T
    signs = Signs.of(activation)
    for change in signs.changes:
        fixed = signs.fix_weights(teachers, change(WEIGHTS[0]))
        np.testing.assert_array_equal(fixed, signs.fix_weights(teachers, WEIGHTS[0]))
        np.testing.assert_array_equal(signs.fix_weights(teachers, fixed), fixed)


def test_what_is_not_finite_is_no_minimum():
    assert found_by(np.array([np.inf, 0.1, np.nan]), WEIGHTS, NONE) == [[1]]
    assert found_by(np.array([np.nan]), WEIGHTS[:1], NONE) == []


@pytest.mark.exact
def test_what_minima_have_in_common():
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = [np.mean([WEIGHTS[a, p] @ WEIGHTS[b, p] for a, b in pairs]) for p in (0, 1)]
    np.testing.assert_allclose(common(list(WEIGHTS)), expected, rtol=1e-12)
    np.testing.assert_allclose(common([WEIGHTS[0]]), np.sum(WEIGHTS[0] ** 2, axis=1), rtol=1e-12)

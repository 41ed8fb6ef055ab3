"""Overlaps: which are feasible, the vectors that have them, the sign of (k, v)."""

import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.overlaps import FIVE, ODD, OFF_MANIFOLD, Overlaps, fix_gauge, frame_coordinates, vectors_with_gram

quick = settings(max_examples=200, deadline=None, derandomize=True, database=None)
ENTRIES = st.floats(-3, 3)
# what rounding leaves of a sum of a few squares, times a safety factor of 20
ROUNDING = 20 * np.finfo(float).eps


def from_vectors(k, v) -> Overlaps:
    """The definition: k* = e1, v* = e2."""
    return Overlaps(k[0], v[1], v[0], k[1], k @ v, k @ k, v @ v)


# --- feasibility -------------------------------------------------------------------------------


@pytest.mark.exact
def test_gram_is_the_matrix_of_scalar_products():
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 6))
    rows = np.stack([np.eye(6)[0], np.eye(6)[1], k, v])
    np.testing.assert_allclose(from_vectors(k, v).gram(), rows @ rows.T, rtol=1e-14, atol=1e-15)


@pytest.mark.exact
@quick
@given(arrays(float, (2, 7), elements=ENTRIES))
def test_overlaps_of_real_vectors_are_always_feasible(kv):
    from_vectors(*kv)


@pytest.mark.parametrize(
    ("fields", "vectors"),
    [
        ({"key": 1.01, "value": 0}, "(k*, k)"),
        ({"key": 0, "value": -1.01}, "(v*, v)"),
        ({"key": 0, "value": 0, "value_on_key": 1.01}, "(k*, v)"),
        ({"key": 0, "value": 0, "key_on_value": 1.01}, "(v*, k)"),
        ({"key": 0, "value": 0, "key_dot_value": 1.01}, "(k, v)"),
        ({"key": 1.5, "value": 0, "key_sq": 2}, "(k*, k)"),
        ({"key": 0.8, "value": 0, "key_on_value": 0.8}, "(k*, v*, k)"),
        ({"key": 0, "value": 0.8, "value_on_key": 0.8}, "(k*, v*, v)"),
        ({"key": 0.9, "value": 0, "value_on_key": 0.9}, "(k*, k, v)"),
        ({"key": 0, "value": 0.9, "key_on_value": 0.9}, "(v*, k, v)"),
        (
            {"key": 0.6, "value": 0.6, "value_on_key": 0.6, "key_on_value": 0.6, "key_dot_value": 0.3},
            "(k*, v*, k, v)",
        ),
    ],
)
def test_an_impossible_set_names_the_fewest_vectors_that_fail(fields, vectors):
    sentence = f"no such vectors exist: the Gram matrix of {vectors} must be positive semi-definite"
    with pytest.raises(InvalidParameter, match=re.escape(sentence)) as refused:
        Overlaps(**fields)
    said = str(refused.value)
    assert said.startswith("Overlaps(key=")
    lowest = float(re.search(r"its lowest eigenvalue is (-\S+)\.$", said)[1])
    assert lowest < 0


@pytest.mark.exact
@pytest.mark.parametrize(
    "fields",
    [
        {"key": 1, "value": 1},
        {"key": -1, "value": -1},
        {"key": 0, "value": 0, "value_on_key": 1, "key_on_value": 1},
        {"key": 0, "value": 0, "key_dot_value": 1},
        {"key": 0.6, "value": 0, "key_on_value": 0.8},
        {"key": 0, "value": 0, "key_sq": 0, "value_sq": 0},
    ],
)
def test_the_boundary_of_the_feasible_set_belongs_to_it(fields):
    Overlaps(**fields)


@pytest.mark.negative
@quick
@given(arrays(float, 4, elements=st.floats(0.1, 3)), st.floats(1e-3, 1), st.sampled_from([1e-2, 1.0, 1e6]))
def test_a_norm_too_small_for_its_projections_is_refused(v, missing, key_sq):
    """|v|^2 below theta^2 + nu^2 belongs to no vector, however long k is."""
    theta, nu = v[:2]
    with pytest.raises(InvalidParameter, match=r"must be positive semi-definite"):
        Overlaps(0, nu, theta, key_sq=key_sq, value_sq=(1 - missing) * (theta**2 + nu**2))


@pytest.mark.exact
def test_feasibility_does_not_depend_on_the_other_vector():
    for key_sq in (1.0, 1e3, 1e6):
        with pytest.raises(InvalidParameter, match=r"Gram matrix of \(v\*, v\)"):
            Overlaps(0, 1.0004, key_sq=key_sq)


def test_negative_squares_have_their_own_sentence():
    with pytest.raises(InvalidParameter, match=r"^Overlaps\(key_sq=-1\.0\): key_sq must be >= 0"):
        Overlaps(0, 0, key_sq=-1)


# --- views -------------------------------------------------------------------------------------


@pytest.mark.exact
def test_five_and_items():
    o = Overlaps(0.1, 0.2, 0.3, 0.4, 0.5, 2.0, 3.0)
    assert o.five().tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [getattr(o, n) for n in FIVE] == o.five().tolist()
    assert dict(o.items()) == {k: v for k, v in o.to_json().items() if k != "type"}
    unit = Overlaps(0.1, 0.2, 0.3, 0.4, 0.5)
    assert Overlaps.from_five(unit.five()) == unit
    assert o.distance_to_manifold == pytest.approx(math.sqrt(0.3**2 + 0.4**2 + 0.5**2), rel=1e-15)
    assert Overlaps(0.7, -0.3).distance_to_manifold == 0.0
    assert set(OFF_MANIFOLD) == set(FIVE) - {"key", "value"}


# --- vectors -----------------------------------------------------------------------------------


def check_vectors(overlaps):
    rows, gram = vectors_with_gram(overlaps), overlaps.gram()
    np.testing.assert_array_equal(rows[:2], np.eye(4)[:2])
    assert rows[2, 3] == 0.0
    assert rows[2, 2] >= 0.0
    assert rows[3, 3] >= 0.0
    bound = np.full((4, 4), ROUNDING * max(1.0, gram[2, 2], gram[3, 3]))
    # k . v is lost where k leaves the teachers' plane by less than its square can say: by eps / k3, at most sqrt(eps)
    bound[2, 3] = bound[3, 2] = bound[2, 3] / np.clip(rows[2, 2], np.sqrt(np.finfo(float).eps), 1.0)
    np.testing.assert_array_less(np.abs(rows @ rows.T - gram), bound)


@pytest.mark.exact
@quick
@given(arrays(float, (2, 6), elements=ENTRIES))
def test_vectors_reproduce_the_gram_matrix(kv):
    check_vectors(from_vectors(*kv))


@pytest.mark.exact
@pytest.mark.parametrize("dimension", [2, 3])
@quick
@given(data=st.data())
def test_vectors_reproduce_the_gram_matrix_where_directions_are_missing(data, dimension):
    kv = data.draw(arrays(float, (2, dimension), elements=ENTRIES))
    check_vectors(from_vectors(*kv))


@pytest.mark.exact
@quick
@given(st.floats(-np.pi, np.pi), st.floats(-np.pi, np.pi), st.floats(0, 1e-6), st.sampled_from([0.0, 0.6, 1.0]))
@example(0.0, 0.0, 1.73e-8, 1.0)
def test_vectors_near_the_teachers_plane(a, b, out, beyond):
    """k leaves the plane by `out`, in the direction that v has `beyond` of: the norms must survive."""
    within = np.sqrt(1 - beyond**2)
    k = np.array([np.cos(a), np.sin(a), out])
    v = np.array([within * np.cos(b), within * np.sin(b), beyond])
    check_vectors(from_vectors(k, v))


def test_accepted_overlaps_have_vectors_within_the_accepted_rounding():
    """`Overlaps` lets 1e-9 pass as rounding; the vectors then miss the Gram matrix by a like amount.

    The bound is sqrt(1e-9): a scalar product with a direction whose square is lost is lost to the root.
    """
    for key in (1.0, 1.0 - 2.0**-53, 1.0 - 2.0**-50, 1.0 - 1e-12, 1.0 + 2.0**-52):
        for rho in (0.0, 1e-9, 1e-6, 1e-5, -1e-5):
            accepted = Overlaps(key, 0.0, key_dot_value=rho)
            rows, gram = vectors_with_gram(accepted), accepted.gram()
            np.testing.assert_allclose(rows @ rows.T, gram, rtol=0, atol=math.sqrt(1e-9), err_msg=f"{key} {rho}")


@pytest.mark.exact
def test_vectors_of_zero_norm():
    np.testing.assert_array_equal(vectors_with_gram(Overlaps(0, 0, key_sq=0, value_sq=0))[2:], 0.0)
    rows = vectors_with_gram(Overlaps(0, 0, key_sq=0, value_sq=4))
    np.testing.assert_array_equal(rows[2:], [[0, 0, 0, 0], [0, 0, 0, 2]])


@pytest.mark.exact
def test_frame_coordinates_of_many_runs_at_once():
    rng = np.random.default_rng(3)
    k, v = rng.standard_normal((2, 5, 40))
    k, v = k / np.linalg.norm(k, axis=0), v / np.linalg.norm(v, axis=0)
    five = np.stack([k[0], v[1], v[0], k[1], (k * v).sum(axis=0)])
    many = frame_coordinates(five)
    assert many.shape == (7, 40)
    for run in range(40):
        rows = vectors_with_gram(Overlaps.from_five(five[:, run]))
        one = [*rows[2, :3], *rows[3]]
        np.testing.assert_allclose(many[:, run], one, rtol=1e-12, atol=1e-14)


# --- gauge -------------------------------------------------------------------------------------


def flipped(overlaps, runs):
    sign = np.where(runs, -1.0, 1.0)[:, None]
    return {n: x * sign if n in ODD else x for n, x in overlaps.items()}


HISTORIES = arrays(float, (5, 3, 4), elements=st.floats(-1, 1)).map(lambda x: dict(zip(FIVE, x, strict=True)))


@pytest.mark.exact
@quick
@given(HISTORIES, arrays(bool, 3))
def test_the_gauge_fixes_the_sign_run_by_run(history, runs):
    fixed = fix_gauge(history)
    ends = sum(fixed[n][:, -1] for n in ODD)
    assert (ends >= 0).all()
    # the same whichever sign each run came with, but for runs whose sum vanishes
    other = fix_gauge(flipped(history, runs))
    decided = ends > 1e-12
    for n in FIVE:
        np.testing.assert_array_equal(fixed[n][decided], other[n][decided])
        np.testing.assert_array_equal(np.abs(fixed[n]), np.abs(history[n]))
        np.testing.assert_array_equal(fix_gauge(fixed)[n], fixed[n])
    np.testing.assert_array_equal(fixed["key_dot_value"], history["key_dot_value"])


@pytest.mark.exact
def test_odd_overlaps_are_those_that_change_sign_with_k_and_v():
    rng = np.random.default_rng(1)
    k, v = rng.standard_normal((2, 5))
    plus, minus = from_vectors(k, v), from_vectors(-k, -v)
    for name, x in plus.items():
        assert getattr(minus, name) == (-x if name in ODD else x)

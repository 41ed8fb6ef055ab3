"""A number and its error."""

import json
import math
import operator
import sys
from fractions import Fraction

import numpy as np
import pytest

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate


def test_values_become_python_floats():
    e = Estimate(np.float32(0.5), np.int64(1), "stderr")
    assert (type(e.value), type(e.error)) == (float, float)
    assert float(e) == 0.5
    assert Estimate(2) == Estimate(2.0, 0.0, "numerical")


def test_the_error_is_a_size():
    with pytest.raises(InvalidParameter, match=r"^Estimate\(error=-0\.1\): error must be >= 0 \(it is a size\)\.$"):
        Estimate(1.0, -0.1)


def test_the_kind_is_one_of_two():
    with pytest.raises(InvalidParameter, match=r"^Estimate\(kind='std'\): kind must be 'numerical'.* or 'stderr'"):
        Estimate(1.0, 0.1, "std")


@pytest.mark.exact
@pytest.mark.parametrize("kind", ["numerical", "stderr"])
def test_a_known_constant_shifts_the_value_and_keeps_the_error(kind):
    shifted = Estimate(1.5, 0.25, kind) + 2
    assert (shifted.value, shifted.kind) == (3.5, kind)
    assert shifted.error == pytest.approx(0.25, rel=1e-14)
    assert Estimate(1.5, 0.25, kind) + 0 == Estimate(1.5, 0.25, kind)


@pytest.mark.exact
@pytest.mark.parametrize("kind", ["numerical", "stderr"])
@pytest.mark.parametrize("constant", [1e6, -1e6, 1e12, 1e300])
def test_a_large_constant_costs_digits_and_the_error_says_so(kind, constant):
    small, error = 1 / 3, 1e-17
    shifted = Estimate(small, error, kind) + constant
    lost = abs(float(Fraction(small) + Fraction(constant) - Fraction(shifted.value)))
    assert lost > error
    assert lost <= shifted.error <= 4 * abs(constant) * sys.float_info.epsilon
    assert (Estimate(small, math.inf, kind) + constant).error == math.inf


def test_a_format_is_that_of_the_value():
    assert f"{Estimate(0.125, 1e-9):.4f}" == "0.1250"
    assert f"{Estimate(0.125, 1e-9)}" == str(Estimate(0.125, 1e-9))


def test_a_bound_and_a_standard_error_are_never_joined():
    bound, sample = Estimate(1.0, 0.1), Estimate(1.0, 0.1, "stderr")
    for join in (operator.add, operator.sub, operator.mul, operator.truediv):
        for a, b in ((bound, sample), (sample, bound)):
            with pytest.raises(InvalidParameter, match=r"a bound .* and a standard error .* cannot be joined"):
                join(a, b)


OPERATIONS = (operator.add, operator.sub, operator.mul, operator.truediv)


@pytest.mark.exact
@pytest.mark.parametrize("join", OPERATIONS)
def test_a_joined_bound_holds_for_all_values_within_the_two(join):
    """Corners of the two intervals are the extremes of each operation, and one of them attains the bound."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = rng.normal(0.0, 2.0, 2)
        e, f = rng.exponential(0.3, 2)
        if join is operator.truediv and abs(b) <= 1.05 * f:
            continue
        found = join(Estimate(a, e), Estimate(b, f))
        corners = [abs(join(a + s * e, b + t * f) - join(a, b)) for s in (-1, 1) for t in (-1, 1)]
        assert found.value == join(a, b)
        assert max(corners) <= found.error * (1 + 1e-12)
        assert found.error <= max(corners) * (1 + 1e-9) + 1e-12


@pytest.mark.montecarlo
@pytest.mark.parametrize("join", OPERATIONS)
def test_joined_standard_errors_are_those_of_independent_numbers(join):
    """To first order: with errors of a thousandth the second is negligible; 40,000 draws know a spread to 0.35 %."""
    rng = np.random.default_rng(1)
    a, b, e, f = 1.7, -0.6, 2e-3, 1e-3
    spread = np.std(join(rng.normal(a, e, 40_000), rng.normal(b, f, 40_000)))
    found = join(Estimate(a, e, "stderr"), Estimate(b, f, "stderr"))
    assert found.error == pytest.approx(spread, rel=5 * 0.0036)
    assert found.kind == "stderr"


@pytest.mark.negative
def test_standard_errors_do_not_simply_add_up():
    assert (Estimate(1.0, 0.3, "stderr") + Estimate(1.0, 0.4, "stderr")).error == pytest.approx(0.5, rel=1e-12)


@pytest.mark.exact
def test_numbers_on_either_side_are_exact():
    e = Estimate(0.5, 0.01)
    for found, value, error in [
        (2 * e, 1.0, 0.02),
        (e * np.float64(2), 1.0, 0.02),
        (np.float64(2) * e, 1.0, 0.02),
        (1 - e, 0.5, 0.01),
        (e - 1, -0.5, 0.01),
        (e / 4, 0.125, 0.0025),
        (1 / e, 2.0, 0.01 / 0.5 / 0.49),
        (-e, -0.5, 0.01),
        (abs(-e), 0.5, 0.01),
        (sum([e, e]), 1.0, 0.02),
    ]:
        assert isinstance(found, Estimate)
        assert (found.value, found.error) == (pytest.approx(value), pytest.approx(error))


def test_what_cannot_be_known_has_an_infinite_error():
    assert (Estimate(1.0, 0.1) / Estimate(0.1, 0.2)).error == math.inf
    assert (0 * Estimate(1.0, math.inf)).error < 1e-300  # nothing of it is left
    assert (2 * Estimate(1.0, math.inf)).error == math.inf
    with pytest.raises(ZeroDivisionError):
        Estimate(1.0) / 0


def test_estimates_are_ordered_by_value():
    small, large = Estimate(0.1, 0.5), Estimate(0.2, 0.0)
    assert sorted([large, small]) == [small, large]
    assert min(large, small) is small
    assert max([large, small]) is large
    assert small < large <= 0.2
    assert 0.3 > large >= small
    assert small == 0.1
    assert small != Estimate(0.1, 0.4)
    assert small != "0.1"
    assert {small, 0.1} == {small}
    for other in ("0.1", None, [1]):
        with pytest.raises(TypeError):
            _ = small < other
        with pytest.raises(TypeError):
            small + other


def test_numpy_takes_estimates_for_numbers():
    found = np.asarray([Estimate(0.1, 0.5), Estimate(0.2)])
    assert found.dtype == float
    assert found.tolist() == [0.1, 0.2]
    assert np.asarray(Estimate(0.25, 1.0)).item() == 0.25
    assert round(Estimate(0.126, 0.5), 2) == 0.13
    assert round(Estimate(1.6)) == 2


@pytest.mark.parametrize(
    ("estimate", "finite"),
    [
        (Estimate(1.0, 0.0), True),
        (Estimate(math.nan, 0.0), False),
        (Estimate(1.0, math.inf), False),
        (Estimate(-math.inf, 0.0), False),
    ],
)
def test_finite_means_value_and_error(estimate, finite):
    assert estimate.finite is finite


def test_the_text_has_the_digits_that_the_error_leaves():
    assert str(Estimate(0.125, 1e-9)) == "0.1250000000(10)"
    assert str(Estimate(0.469, 0.0024, "stderr")) == "0.4690(24)"
    assert repr(Estimate(0.469, 0.0024, "stderr")) == "Estimate(value=0.469, error=0.0024, kind='stderr')"


def test_json_has_no_nan():
    document = Estimate(math.nan, math.inf).to_json()
    assert document == {"value": None, "error": "inf", "kind": "numerical"}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_estimates_are_frozen():
    with pytest.raises(AttributeError):
        Estimate(1.0).value = 2.0


def test_an_error_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidParameter, match=r"^Estimate\(error=nan\): error must be >= 0 .*inf says"):
        Estimate(1.0, math.nan)

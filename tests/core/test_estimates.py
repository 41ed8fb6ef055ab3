"""A number and its error."""

import json
import math
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


def test_two_estimates_are_never_added_silently():
    for other in (Estimate(1.0, 0.1), Estimate(1.0, 0.1, "stderr")):
        with pytest.raises(TypeError):
            Estimate(1.0, 0.1) + other


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


def test_the_text_says_which_error_it_is():
    assert str(Estimate(0.125, 1e-9)) == "0.125 (+- 1.0e-09)"
    assert str(Estimate(0.125, 0.02, "stderr")) == "0.125 (se 2.0e-02)"


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

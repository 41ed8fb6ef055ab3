"""A number and its error."""

import json
import math

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
def test_a_known_constant_shifts_the_value_only(kind):
    assert Estimate(1.5, 0.25, kind) + 2 == Estimate(3.5, 0.25, kind)


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

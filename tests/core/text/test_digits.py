"""Numbers as text, with the digits that their error leaves."""

import math
import re

import numpy as np
import pytest

from needlepoint.core.text.digits import with_error

CASES = [
    (0.46904, 0.0024, "0.4690(24)"),
    (12.3, 1.5, "12.3(1.5)"),
    (397.0, 1094.0, "400(1100)"),
    (9.99, 0.0996, "9.99(10)"),
    (-1.5, 0.2, "-1.50(20)"),
    (1.25e-7, 3e-9, "1.250(30)e-07"),
    (123456789.0, 1234.0, "1.234568(12)e+08"),
    (1e-39, 2e-39, "1.0(2.0)e-39"),
    (0.0, 1e-3, "0.0000(10)"),
    (0.0, 0.0, "0"),
    (0.5, 0.0, "0.5"),
    (1 / 3, 1e-16, "0.333333333333"),
    (3.2, math.inf, "3.2 (error unknown)"),
    (math.nan, math.inf, "nan"),
    (math.inf, 0.0, "inf"),
]


@pytest.mark.parametrize(("value", "error", "text"), CASES)
def test_two_digits_of_the_error_in_units_of_the_last(value, error, text):
    assert with_error(value, error) == text


@pytest.mark.exact
def test_what_is_printed_is_value_and_error_to_the_digits_shown():
    """Read back, over fifty decades of sizes: the value to half a unit of its last digit, the error to 5 %."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        value = float(rng.normal() * 10.0 ** rng.uniform(-25, 25))
        error = abs(value) * float(10.0 ** rng.uniform(-11.9, 2))
        found = re.fullmatch(r"(-?\d+(?:\.(\d+))?)\((\d+)(\.\d)?\)(?:e([-+]\d+))?", with_error(value, error))
        assert found, with_error(value, error)
        scale = 10.0 ** int(found[5] or 0)
        size = float(found[3] + found[4]) if found[4] else int(found[3]) * 10.0 ** -len(found[2] or "")
        assert size * scale == pytest.approx(error, rel=0.051)
        assert abs(float(found[1]) * scale - value) <= 0.06 * error

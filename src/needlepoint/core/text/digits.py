"""Numbers as text, with the digits that their error leaves."""

from __future__ import annotations

import math

KNOWN = 12
"""Significant digits that are printed of a number whose error is smaller than all of them."""


def with_error(value: float, error: float) -> str:
    """Return `value` and, in brackets, two digits of its error in units of the last digits: 0.4690(24).

    An error of 1 or more has its decimal point, 12.3(1.5), so that the two readings cannot be mixed up. An error below
    the last of twelve digits is not printed, and one that is infinite is said to be unknown.

    >>> from needlepoint.core.text.digits import with_error
    >>> with_error(0.46904, 0.0024), with_error(1.25e-7, 3e-9), with_error(397.0, 1094.0)
    ('0.4690(24)', '1.250(30)e-07', '400(1100)')
    """
    if not math.isfinite(value):
        return str(value)
    if math.isinf(error):
        return f"{value:.6g} (error unknown)"
    if error < 10.0**-KNOWN * abs(value) or error == 0.0:
        return f"{value:.{KNOWN}g}"
    largest = _exponent(max(abs(value), error))
    if -5 < largest < 7:
        return _fixed(value, error)
    return (
        f"{_fixed(value / 10.0**largest, error / 10.0**largest)}e{largest:+03d}" if largest > -300 else f"{value:.2g}"
    )


def _exponent(x: float) -> int:
    return int(f"{x:.1e}".split("e")[1])


def _fixed(value: float, error: float) -> str:
    mantissa, exponent = f"{error:.1e}".split("e")
    place = int(exponent) - 1  # the power of ten of the last digit that is printed
    if place >= 0:
        return f"{round(value, -place):.0f}({float(mantissa) * 10 ** int(exponent):.0f})"
    shown = f"{float(mantissa) * 10 ** int(exponent):.1f}" if error >= 1 else mantissa.replace(".", "")
    return f"{value:.{-place}f}({shown})"

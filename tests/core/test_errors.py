"""Errors: one base, the standard library's kinds, and sentences on one line."""

import pytest

from needlepoint.core.errors import (
    InvalidParameter,
    NeedlepointError,
    NotConverged,
    NoTheory,
    UnknownName,
    one_line,
)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("error", "standard"),
    [
        (InvalidParameter, ValueError),
        (UnknownName, ValueError),
        (NoTheory, LookupError),
        (NotConverged, ArithmeticError),
    ],
)
def test_errors_are_of_this_library_and_of_a_standard_kind(error, standard):
    assert issubclass(error, NeedlepointError)
    assert issubclass(error, standard)


@pytest.mark.exact
def test_unknown_names():
    assert str(UnknownName("metric", "rsk", ["risk", "energy"])) == "unknown metric 'rsk': did you mean 'risk'?"
    assert str(UnknownName("metric", "zzz", ["risk", "energy"])) == "unknown metric 'zzz': known: energy, risk."
    assert str(UnknownName("metric", "zzz", [])) == "unknown metric 'zzz': known: none."
    assert str(UnknownName("metric", "", iter(["risk"]))) == "unknown metric '': known: risk."


@pytest.mark.parametrize("name", [3, None, [], 2.5])
def test_a_name_that_is_no_text_is_still_answered(name):
    """Names come from files, where `type = 3` can be written."""
    assert str(UnknownName("name", name, ["Erf"])).startswith(f"unknown name {name!r}: ")


def test_not_converged_carries_what_it_had():
    result = object()
    assert NotConverged("stopped", result).result is result
    assert NotConverged("stopped").result is None
    assert str(NotConverged("stopped", result)) == "stopped"


def test_one_line():
    assert one_line(InvalidParameter("a\n  b\tc")) == "InvalidParameter: a b c"
    assert one_line(UnknownName("name", "x", [])) == "UnknownName: unknown name 'x': known: none."

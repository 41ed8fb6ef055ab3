"""JSON: infinity as a word, NaN as null, one canonical spelling."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlepoint.core.estimates import Estimate
from needlepoint.core.status import Status
from needlepoint.core.text.jsonio import canonical, dumps, number, plain
from needlepoint.tasks.single_location import SpikedSLR

quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)


@pytest.mark.exact
def test_numbers():
    assert number(math.inf) == "inf"
    assert number(-math.inf) == "-inf"
    assert number(math.nan) is None
    assert number(np.float64(0.1)) == 0.1
    assert type(number(np.float64(0.1))) is float


@pytest.mark.exact
def test_plain_values():
    value = {
        "array": np.array([[1.0, np.nan], [np.inf, -np.inf]]),
        "counts": np.arange(2),
        "flags": np.array([True]),
        "scalar": np.float32(0.5),
        "whole": np.int64(3),
        "nothing": None,
        "flag": True,
        "text": "x",
        "status": Status.DIVERGED,
        "pair": (1, 2.0),
        "estimate": Estimate(1.0, math.inf),
        "empty": np.zeros((0, 2)),
        3: "int key",
    }
    assert plain(value) == {
        "array": [[1.0, None], ["inf", "-inf"]],
        "counts": [0, 1],
        "flags": [True],
        "scalar": 0.5,
        "whole": 3,
        "nothing": None,
        "flag": True,
        "text": "x",
        "status": 3,
        "pair": [1, 2.0],
        "estimate": {"value": 1.0, "error": "inf", "kind": "numerical"},
        "empty": [],
        "3": "int key",
    }
    assert type(plain(Status.DIVERGED)) is int
    assert plain(SpikedSLR(2, 1)) == SpikedSLR(2, 1).to_json()


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", 1j, lambda: 1])
def test_what_has_no_json_form_is_refused(value):
    with pytest.raises(TypeError, match="no JSON form for"):
        plain({"x": [value]})


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@quick
@given(TREES)
def test_documents_are_strict_json_and_plain_is_idempotent(value):
    for text in (dumps(value), dumps(value, indent=2), canonical(value)):
        assert json.loads(text, parse_constant=pytest.fail) == plain(value)
    assert plain(plain(value)) == plain(value)


@pytest.mark.exact
@quick
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_to_the_last_bit(x):
    assert json.loads(canonical(x)) == x
    assert canonical(x) == repr(x)


@pytest.mark.exact
def test_canonical_is_one_spelling():
    assert canonical({"b": 1, "a": [1.0, "inf"]}) == canonical({"a": (1.0, math.inf), "b": 1})
    assert canonical({"b": 1, "a": [0.1, None]}) == '{"a":[0.1,null],"b":1}'

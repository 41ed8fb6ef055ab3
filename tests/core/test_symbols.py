"""The table of names."""

import dataclasses

import pytest

import needlepoint.learners
import needlepoint.models.attention
import needlepoint.tasks.single_location  # noqa: F401
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import lookup, names
from needlepoint.core.symbols import SYMBOLS, notation_table

BY_NAME = {s.name: s for s in SYMBOLS}


@pytest.mark.contract
def test_names_and_letters_have_one_meaning():
    assert len(BY_NAME) == len(SYMBOLS)
    letters = [s.latex for s in SYMBOLS]
    assert sorted(set(letters)) == sorted(letters)
    assert all(s.meaning and s.range and s.latex for s in SYMBOLS)


@pytest.mark.contract
@pytest.mark.parametrize("name", names())
def test_every_real_number_of_every_spec_is_in_the_table(name):
    traced = {f.name for f in dataclasses.fields(lookup(name)) if f.metadata["kind"].traced}
    assert traced <= BY_NAME.keys()


@pytest.mark.contract
def test_overlaps_and_metrics_are_in_the_table():
    assert {n for n, _ in Overlaps(0, 0).items()} <= BY_NAME.keys()
    assert {"risk", "excess_risk", "distance_to_manifold", "tokens", "d"} <= BY_NAME.keys()


@pytest.mark.contract
@pytest.mark.parametrize("name", names())
def test_declared_ranges_agree_with_the_table(name):
    """A lower bound of 0 in a spec is the bound the notation page shows."""
    for f in dataclasses.fields(lookup(name)):
        kind, symbol = f.metadata["kind"], BY_NAME.get(f.name)
        if symbol is not None and kind.traced and kind.lo == 0:
            assert symbol.range == ("> 0" if kind.open_lo else ">= 0"), f.name


def test_the_notation_table_has_a_row_a_name():
    head, rule, *rows = notation_table().splitlines()
    columns = head.count("|")
    assert rule.count("|") == columns
    assert len(rows) == len(SYMBOLS)
    for symbol, row in zip(SYMBOLS, rows, strict=True):
        assert row.startswith(f"| `{symbol.name}` | ${symbol.latex}$ | ")
        assert row.count("|") == columns

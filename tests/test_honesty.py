"""Reported errors hold against a second route: sixty questions of benchmarks/honesty, and a check for each rule."""

import pytest
from benchmarks.honesty.checks import CHECKS
from benchmarks.honesty.record import Row, answer

from needlepoint.core.dispatch import describe, rules
from needlepoint.theory.predicting import load_rules

SLOW = [("population", 3), ("gradient_flow", 3), ("sgd_limit", 0), ("ridge", 0), ("ridge", 1)]
SLOW += [("indexed_two_tokens", 0), ("sgd_sphere", 0)]
"""Of the rules that compile long or whose second route is long."""
QUICK = [(check.name, index) for check in CHECKS.values() for index in check.quick]


@pytest.mark.contract
def test_every_rule_of_predict_has_a_check():
    load_rules()
    checked = {rule for check in CHECKS.values() for rule in check.rules}
    asked = {key: tuple("None" if t is type(None) else t.__name__ for t in key[1:]) for key in rules()}
    missing = [describe(key) for key, names in asked.items() if key[0] == "predict" and names not in checked]
    assert not missing, f"no check in benchmarks/honesty for {'; '.join(missing)}"


@pytest.mark.contract
def test_checks_name_rules_that_exist():
    load_rules()
    known = {tuple("None" if t is type(None) else t.__name__ for t in key[1:]) for key in rules()}
    assert {rule for check in CHECKS.values() for rule in check.rules} <= known


def test_there_are_sixty_quick_questions_and_two_thousand_in_all():
    assert len(QUICK) >= 60
    assert sum(check.points for check in CHECKS.values()) >= 2000


@pytest.mark.quadrature
@pytest.mark.parametrize(("name", "index"), QUICK)
def test_a_reported_error_covers_the_second_route(name, index):
    found = answer(CHECKS[name], index)
    assert found.rows
    for row in found.rows:
        assert row.ratio <= 3, f"{found.call}: {row}"


@pytest.mark.slow
@pytest.mark.quadrature
@pytest.mark.parametrize(("name", "index"), SLOW)
def test_a_reported_error_covers_the_second_route_of_a_slow_rule(name, index):
    found = answer(CHECKS[name], index)
    assert found.rows
    assert max(row.ratio for row in found.rows) <= 3, found


@pytest.mark.negative
def test_an_error_that_is_too_small_is_found():
    assert Row("risk", 1.0, 1e-6, 1.00001, 1e-9).ratio > 3
    assert Row("risk", 1.0, 1e-6, 1.0000005, 1e-9).ratio < 1
    # a reference that is no better than what it judges does not count
    assert not Row("risk", 1.0, 1e-6, 1.0000005, 1e-6).tested
    # an error of infinity claims nothing; a number that is not finite where the reference is, is wrong
    assert not Row("risk", 1.0, float("inf"), 2.0, 1e-9).tested
    assert Row("risk", float("nan"), 0.0, 2.0, 1e-9).ratio > 3

"""The table of routes: what applies, in which order, and what a miss says."""

import pytest

import needlepoint as ndl
from needlepoint.core import routes
from needlepoint.core.routes import GENERIC, ONE_DIMENSION, route


@pytest.fixture(autouse=True)
def _own_table(monkeypatch):
    monkeypatch.setattr(routes, "_ROUTES", [])
    routes._of_types.cache_clear()
    yield
    routes._of_types.cache_clear()


def names(quantity, **asked):
    return [one.name for one in routes.routes(quantity, **asked)]


def test_the_cheapest_comes_first_and_the_generic_last():
    route("width", name="any", cost=GENERIC)(lambda: "any")
    route("width", name="line", cost=ONE_DIMENSION, form="elementwise")(lambda: "line")
    route("width", activation=ndl.Erf)(lambda: "closed")
    assert names("width", activation=ndl.Erf()) == ["closed", "line", "any"]
    assert names("width", activation=ndl.Linear) == ["line", "any"]  # a class, as in a compiled kernel
    assert names("width", activation=ndl.Softmax()) == ["any"]
    assert names("width", model=ndl.KeyValueAttention(ndl.Erf())) == ["closed", "line", "any"]  # the model's activation
    assert names("width") == ["any"]
    assert routes.the("width", activation=ndl.Erf())() == "closed"
    assert routes.best("width", activation=ndl.Linear()).cost == ONE_DIMENSION


def test_of_equal_cost_the_nearest_types_come_first():
    route("start", name="all")(lambda: "all")
    route("start", name="own", form="elementwise")(lambda: "own")
    assert names("start", activation=ndl.Erf()) == ["own", "all"]
    base = ndl.SpikedSLR.__mro__[1]
    route("law", name="base", task=base)(lambda: "base")
    route("law", name="mine", task=ndl.SpikedSLR)(lambda: "mine")
    assert names("law", task=ndl.SpikedSLR(2, 1.0)) == ["mine", "base"]
    assert names("law", task=ndl.MaxSLR) == ["base"]


def test_of_equal_names_the_nearest_stands_for_both():
    route("law", task=ndl.SpikedSLR.__mro__[1])(lambda: "base")
    route("law", task=ndl.SpikedSLR)(lambda: "mine")
    assert [one.function() for one in routes.routes("law", task=ndl.SpikedSLR)] == ["mine"]


def test_facts_decide():
    route("map", name="pair", when=lambda tokens: tokens == 2)(lambda: "pair")
    route("map", name="any", cost=GENERIC)(lambda: "any")
    assert names("map", tokens=2) == ["pair", "any"]
    assert names("map", tokens=3) == ["any"]
    route("sphere", when=lambda model: model.unit_norm)(lambda: "sphere")  # what is asked for is a fact too
    assert names("sphere", model=ndl.KeyValueAttention(ndl.Erf(), unit_norm=True)) == ["closed"]
    assert names("sphere", model=ndl.KeyValueAttention(ndl.Erf())) == []


@pytest.mark.negative
def test_a_fact_that_is_not_given_is_a_mistake_of_the_caller():
    route("map", when=lambda tokens: tokens == 2)(lambda: "pair")
    with pytest.raises(KeyError, match="tokens"):
        names("map")


def test_a_second_registration_is_refused():
    route("width", activation=ndl.Erf)(lambda: 1)
    with pytest.raises(ValueError, match=r"two routes for 'width': closed \(Erf\)"):
        route("width", activation=ndl.Erf)(lambda: 2)


def test_a_miss_is_one_sentence_that_names_what_there_is():
    route("width", name="line", form="elementwise")(lambda: 1)
    with pytest.raises(
        ndl.NoTheory, match=r"no width for SpikedSLR with Softmax; there is one for line \(elementwise\)."
    ):
        routes.the("width", task=ndl.SpikedSLR(2, 1.0), activation=ndl.Softmax)
    with pytest.raises(ndl.NoTheory, match="nothing yet"):
        routes.the("height")


def test_a_new_route_is_seen_at_once():
    assert names("width", activation=ndl.Erf()) == []
    route("width")(lambda: 1)
    assert names("width", activation=ndl.Erf()) == ["closed"]

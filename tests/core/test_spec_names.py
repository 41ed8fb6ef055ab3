"""Specs as JSON, by name, by dotted path, lowered, and final."""

import dataclasses
import json
import math
import re
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from needlepoint.core import dispatch, specs
from needlepoint.core.errors import InvalidParameter, UnknownName
from needlepoint.core.kinds import Choice, Count, Flag, Lengths, NamedNumbers, Numbers, Penalty, Real
from needlepoint.core.lowering import lower
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import (
    Nested,
    Spec,
    assign,
    build,
    count,
    from_json,
    lookup,
    names,
    nested,
    real,
    spec,
    spec_id,
)
from needlepoint.core.text.jsonio import canonical
from needlepoint.learners import OnlineSGD, Population, ProjectedDescent
from needlepoint.models.activations import Erf, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.tasks.targets import Eigenvalues

from spec_strategies import REGISTERED, overlaps

quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def reals(kind: Real):
    lo, hi = max(kind.lo, -1e12), min(kind.hi, kind.largest, 1e12)
    options = [st.floats(lo, hi, exclude_min=kind.open_lo and lo == kind.lo)]
    if kind.free:
        options.append(st.none())
    if kind.infinite and kind.hi == math.inf:
        options.append(st.just(math.inf))
    return st.one_of(options)


@st.composite
def length_laws(draw):
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True))
    weights = [draw(st.floats(0.01, 1.0)) for _ in sizes]
    return {n: w / math.fsum(weights) for n, w in zip(sizes, weights, strict=True)}


def values(kind):
    match kind:
        case Real():
            return reals(kind)
        case Count():
            whole = st.integers(kind.lo, 10**6)
            return st.one_of(st.none(), whole) if kind.free else whole
        case Flag():
            return st.booleans()
        case Choice():
            return st.sampled_from(kind.options)
        case Lengths():
            return st.one_of(st.integers(1, 100), length_laws())
        case Penalty():
            one = st.floats(0.0, 1e12)
            return st.one_of(one, st.tuples(one, one), st.just("optimal"))
        case NamedNumbers():
            return st.dictionaries(st.sampled_from(["a_on_b", "a_sq", "b_dot_a"]), st.floats(-1e12, 1e12))
        case Numbers():
            some = st.lists(st.floats(max(kind.lo, -1e12), 1e12), min_size=1, max_size=5)
            return st.one_of(st.none(), some) if kind.free else some
        case Nested():
            one = st.one_of([instances(lookup(n)) for n in names(kind.family)])
            options = [one, *map(st.just, kind.words)]
            if kind.many:
                options.append(st.lists(one, min_size=1, max_size=3).map(tuple))
            return st.one_of(options)
    pytest.fail(f"{type(kind).__name__} has no strategy here: add one, so that the round trip covers it")


@st.composite
def descents(draw, cls):
    fields = {f.name: draw(values(f.metadata["kind"])) for f in dataclasses.fields(cls) if f.name != "start"}
    starts = st.one_of(overlaps(unit=True), st.lists(overlaps(unit=True), min_size=1, max_size=3).map(tuple))
    word = draw(st.sampled_from([None, "sphere", "manifold"]))
    fields["start"] = word or draw(starts)
    fields["d"] = draw(st.integers(6, 1000))
    fields["runs"] = draw(st.integers(1, 100)) if word else None
    return cls(**fields)


@st.composite
def generic(draw, cls):
    fields = {f.name: draw(values(f.metadata["kind"])) for f in dataclasses.fields(cls)}
    try:
        return cls(**fields)
    except InvalidParameter:  # a condition that joins fields; too many of these fail hypothesis's health check
        assume(False)


@st.composite
def eigenvalues(draw):
    law = draw(length_laws())  # whole numbers with weights that sum to one
    return Eigenvalues(list(law), draw(st.sampled_from([None, list(law.values())])))


def instances(cls):
    if cls is Overlaps:
        return overlaps()
    if cls is Eigenvalues:
        return eigenvalues()
    if cls in (ProjectedDescent, OnlineSGD):
        return descents(cls)
    return generic(cls)


@pytest.fixture
def registry(monkeypatch):
    """A scratch registry, so that specs declared in a test do not outlive it."""
    monkeypatch.setattr(specs, "_REGISTRY", dict(specs._REGISTRY))


@pytest.mark.contract
@pytest.mark.parametrize("cls", REGISTERED)
def test_json_round_trip_of_every_registered_spec(cls):
    @quick
    @given(instances(cls))
    def holds(value):
        text = canonical(value.to_json())
        back = from_json(json.loads(text))
        assert back == value
        assert type(back) is type(value)
        assert hash(back) == hash(value)
        assert canonical(back.to_json()) == text
        assert back.id == value.id
        # canonical JSON is JSON: no NaN, no Infinity, no spaces
        assert json.loads(text, parse_constant=pytest.fail)["type"] == cls.__name__

    holds()


@pytest.mark.contract
@pytest.mark.parametrize("cls", REGISTERED)
def test_ids_do_not_depend_on_field_order(cls):
    @quick
    @given(instances(cls), st.randoms(use_true_random=False))
    def holds(value, random):
        items = list(value.to_json().items())
        random.shuffle(items)
        assert from_json(dict(items)).id == value.id

    holds()


def test_infinity_is_a_word_in_json(registry):
    @spec
    class Unlimited(Spec):
        family: ClassVar[str] = "task"
        snr: float = real(lo=0.0, infinite=True)
        low: float = real(infinite=True, default=-math.inf)

    value = Unlimited(math.inf)
    assert value.to_json() == {"type": "Unlimited", "snr": "inf", "low": "-inf"}
    back = from_json(json.loads(canonical(value.to_json())))
    assert back == value
    assert back.id == value.id != Unlimited(1e308).id
    assert Unlimited("inf") == value


@pytest.mark.exact
def test_canonical_json_is_pinned(registry):
    """Stored results are found by this text: a change of it orphans them all."""

    @spec
    class Pinned(Spec):
        family: ClassVar[str] = "task"
        z: float = real()
        tokens: object = specs.lengths()
        inner: object = nested("overlaps", many=True)
        n: int | None = count(free=True, default=None)

    value = Pinned(0.1, {3: 0.5, 2: 0.5}, (Overlaps(0, 1),))
    overlaps_text = (
        '{"key":0.0,"key_dot_value":0.0,"key_on_value":0.0,"key_sq":1.0,"type":"Overlaps",'
        '"value":1.0,"value_on_key":0.0,"value_sq":1.0}'
    )
    assert canonical(value.to_json()) == (
        '{"inner":[' + overlaps_text + '],"n":null,"tokens":[[2,0.5],[3,0.5]],"type":"Pinned","z":0.1}'
    )


def test_ids_tell_specs_apart_and_carry_the_numbers_version(monkeypatch):
    a, b = SpikedSLR(2, 1.0), SpikedSLR(2, math.nextafter(1.0, 2.0))
    assert re.fullmatch("[0-9a-f]{16}", a.id)
    ids = {a.id, b.id, SpikedSLR(3, 1.0).id, spec_id(a, None), spec_id(None, a), spec_id(a, b), spec_id(b, a)}
    assert len(ids) == 7
    before = a.id
    monkeypatch.setattr(specs, "NUMBERS_VERSION", specs.NUMBERS_VERSION + 1)
    assert a.id != before


def test_types_with_the_same_fields_have_different_ids():
    assert Softmax().id != from_json({"type": "Softplus"}).id


@pytest.mark.parametrize(
    "document", [None, 3, "SpikedSLR", [], {}, {"tokens": 2}, {"type": 3}, {"type": []}, {"type": None}, {"type": {}}]
)
def test_what_is_not_a_spec_in_json_is_refused(document):
    with pytest.raises(InvalidParameter):
        from_json(document)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: lookup("SpikedSRL"), "unknown name 'SpikedSRL': did you mean 'SpikedSLR'?"),
        (lambda: build("softmax"), "unknown name 'softmax': did you mean 'Softmax'?"),
        (
            lambda: build("SpikedSLR", (2,), {"snrr": 1}),
            "unknown field of SpikedSLR 'snrr': did you mean 'snr'?",
        ),
        (
            lambda: from_json({"type": "Erf", "scael": 1}),
            "unknown field of Erf 'scael': did you mean 'scale'?",
        ),
        (lambda: assign(Erf(), "shfit", 1), "unknown field of Erf 'shfit': did you mean 'shift'?"),
        (
            lambda: assign(KeyValueAttention(Erf()), "activation.ofset", 1),
            "unknown field of Erf 'ofset': did you mean 'offset'?",
        ),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(make, sentence):
    with pytest.raises(UnknownName) as refused:
        make()
    assert str(refused.value) == sentence


@pytest.mark.contract
@pytest.mark.parametrize("name", names())
def test_a_name_with_one_letter_missing_finds_itself(name):
    with pytest.raises(UnknownName, match=f"did you mean '{name}'"):
        lookup(name[:-1])


def test_a_name_like_no_other_gets_the_whole_list():
    with pytest.raises(UnknownName, match=r"^unknown field of Erf 'qqq': known: offset, scale, shift\.$"):
        build("Erf", (), {"qqq": 1})


def test_build_says_what_is_missing_twice_or_too_much():
    with pytest.raises(InvalidParameter, match=r"^SpikedSLR: snr is missing \(its fields are tokens, snr, "):
        build("SpikedSLR", (2,))
    with pytest.raises(InvalidParameter, match=r"^SpikedSLR: tokens is given twice\.$"):
        build("SpikedSLR", (2,), {"tokens": 3, "snr": 1})
    with pytest.raises(InvalidParameter, match=r"^Erf: takes 3 values \(scale, shift, offset\), got 4\.$"):
        build("Erf", (1, 2, 3, 4))
    assert build("SpikedSLR", (2,), {"snr": 1}) == SpikedSLR(2, 1)


def test_two_specs_cannot_share_a_name(registry):
    with pytest.raises(InvalidParameter, match="class SpikedSLR: this is the name of a part of needlepoint"):
        spec(type("SpikedSLR", (Spec,), {}))


def test_names_by_family():
    assert {"SpikedSLR"} <= set(names("task"))
    assert {"Erf", "Linear", "Softmax", "Softplus"} <= set(names("activation"))
    assert set(names("task")).isdisjoint(names("model"))
    assert names() == sorted(names())


def test_assign_replaces_at_any_depth_and_leaves_the_original():
    model = KeyValueAttention(Erf(0.5), unit_norm=True)
    assert assign(model, "unit_norm", False) == KeyValueAttention(Erf(0.5))
    assert assign(model, "activation.scale", 2) == KeyValueAttention(Erf(2.0), unit_norm=True)
    assert assign(model, "activation", Softmax()) == KeyValueAttention(Softmax(), unit_norm=True)
    learner = ProjectedDescent(0.1, 5, Overlaps(0.5, 0.1))
    assert assign(learner, "start.key", 0.25).start == Overlaps(0.25, 0.1)
    assert model == KeyValueAttention(Erf(0.5), unit_norm=True)


def test_assign_checks_the_new_value():
    with pytest.raises(InvalidParameter, match=r"^Erf\(scale=-1\.0\): scale must be > 0"):
        assign(KeyValueAttention(Erf()), "activation.scale", -1)
    with pytest.raises(InvalidParameter, match=r"no such vectors exist"):
        assign(Overlaps(0.5, 0.1), "key", 2)


@pytest.mark.parametrize("path", ["", ".", "activation.", "activation..scale", "activation.scale.x", "unit_norm.x"])
def test_paths_that_lead_nowhere_are_refused(path):
    with pytest.raises(InvalidParameter):
        assign(KeyValueAttention(Erf()), path, 1.0)


def test_a_path_through_a_number_says_so():
    with pytest.raises(InvalidParameter, match=r"^Erf\.scale has no fields; cannot set 'scale\.x'\.$"):
        assign(Erf(), "scale.x", 1.0)


@pytest.mark.exact
def test_lower_splits_static_from_traced():
    static, traced = lower(KeyValueAttention(Erf(0.5, None, 0.25), unit_norm=True), "model.")
    assert traced == {"model.activation.scale": 0.5, "model.activation.offset": 0.25}
    assert static == (
        "KeyValueAttention",
        ("model.activation", ("Erf", ("model.activation.shift", None))),
        ("model.unit_norm", True),
    )


def test_lengths_counts_and_words_are_static():
    task = SpikedSLR({2: 0.5, 3: 0.5}, 4, noise=0.1)
    static, traced = lower(task)
    assert static == ("SpikedSLR", ("tokens", ((2, 0.5), (3, 0.5))))
    assert traced == {"snr": 4.0, "relevant_std": 1.0, "noise": 0.1}
    a = lower(OnlineSGD(0.1, 10, 5, "sphere", d=10, runs=3))
    b = lower(OnlineSGD(0.1, 10, 6, "sphere", d=10, runs=3))
    assert a[0] != b[0]
    assert a[1] == b[1] == {"lr": 0.1, "schedule": 0.0, "loss.weight": 1.0}


def test_none_and_infinity_are_static(registry):
    @spec
    class Limit(Spec):
        family: ClassVar[str] = "task"
        snr: float | None = real(lo=0.0, infinite=True, free=True)

    keys = {x: lower(Limit(x))[0] for x in (None, math.inf, 1.0, 2.0)}
    assert lower(Limit(None)) == (("Limit", ("snr", None)), {})
    assert lower(Limit(math.inf)) == (("Limit", ("snr", math.inf)), {})
    assert keys[1.0] == keys[2.0] == ("Limit",)
    assert len(set(keys.values())) == 3


@pytest.mark.contract
@pytest.mark.parametrize("cls", REGISTERED)
def test_changing_a_traced_value_leaves_the_static_key_alone(cls):
    @quick
    @given(instances(cls), st.data())
    def holds(value, data):
        static, traced = lower(value)
        hash(static)
        assert all(type(x) is float and math.isfinite(x) for x in traced.values())
        if not traced:
            return
        path = data.draw(st.sampled_from(sorted(traced)))
        try:
            changed = assign(value, path, 0.875 * traced[path] + 1e-6)
        except InvalidParameter:
            return  # another condition of the spec; the value itself is tested above
        new_static, new_traced = lower(changed)
        assert new_static == static
        assert new_traced.keys() == traced.keys()
        assert {p for p in traced if new_traced[p] != traced[p]} == {path}

    holds()


def test_starts_in_a_tuple_are_traced_like_a_single_start():
    """DESIGN lists what is static, and the numbers of a start are not among it: a sweep compiles once."""
    a, b, c = Overlaps(0.5, 0.1), Overlaps(0.2, -0.3), Overlaps(0.25, -0.3)
    single = [lower(ProjectedDescent(0.1, 5, x))[0] for x in (b, c)]
    several = [lower(ProjectedDescent(0.1, 5, (a, x)))[0] for x in (b, c)]
    assert single[0] == single[1]
    assert several[0] == several[1]
    assert several[0] != lower(ProjectedDescent(0.1, 5, (a, b, c)))[0]  # how many there are is a shape


@pytest.mark.negative
def test_static_fields_do_change_the_static_key():
    base = lower(SpikedSLR(2, 1))[0]
    assert lower(SpikedSLR(3, 1))[0] != base
    assert lower(Softmax())[0] != lower(Erf())[0]
    assert lower(Erf(None))[0] != lower(Erf(1.0))[0]


@pytest.mark.parametrize("cls", REGISTERED, ids=lambda cls: cls.__name__)
def test_a_registered_spec_has_no_subclasses(cls):
    """Rules are found along the inheritance and formulas ask for the type: a subclass would get wrong numbers."""
    with pytest.raises(InvalidParameter) as caught:
        type("Mine", (cls,), {})
    text = str(caught.value)
    assert text.startswith(f"class Mine({cls.__name__}): {cls.__name__} is final, ")
    assert text.endswith("and register its rules, see docs/extending.md.")
    assert "\n" not in text


def test_a_named_activation_is_final_too(registry):
    import jax

    import needlepoint as ndl

    made = ndl.activation("mine")(jax.nn.softmax)
    with pytest.raises(InvalidParameter, match="mine is final"):
        type("Other", (type(made),), {})
    again = ndl.activation("mine")(jax.nn.relu)
    assert type(again) is not type(made)


def test_what_is_made_to_be_extended_can_be(registry):
    """The bases are open, at any depth, and a class of one's own is final once it is registered."""
    bases = {base for cls in REGISTERED for base in cls.__mro__[1:] if base is not object}
    assert {base.__name__ for base in bases} >= {"Spec", "SingleLocation", "Descent", "Activation", "KernelActivation"}
    for base in bases:
        between = type("Between", (base,), {})
        made = spec(type(f"On{base.__name__}", (between,), {"family": "task"}))
        assert lookup(made.__name__) is made
        with pytest.raises(InvalidParameter, match=f"{made.__name__} is final"):
            type("Mine", (made,), {})


def test_a_task_of_ones_own_has_no_rules_of_another(registry):
    import needlepoint as ndl
    from needlepoint.tasks.single_location import SingleLocation

    @spec
    class Mine(SingleLocation):
        tokens: object = specs.lengths()

    found = dispatch.find("predict", Mine(2), ndl.KeyValueAttention(Softmax()), Population())
    assert found.__module__.startswith("needlepoint.theory.fields.")  # what serves every task, by its own fields

"""Specs: coercion, refusals, JSON, ids, dotted paths and lowering, walked over the whole registry."""

import dataclasses
import math
import re

import numpy as np
import pytest

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.kinds import Count, Flag, Real
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import (
    names,
)
from needlepoint.learners import BayesOptimal, OnlineSGD, Population, ProjectedDescent
from needlepoint.models.activations import Erf, Softmax
from needlepoint.models.attention import KeyValueAttention
from needlepoint.tasks.single_location import SpikedSLR

from spec_strategies import REGISTERED

FIELDS = [(cls, f) for cls in REGISTERED for f in dataclasses.fields(cls) if "kind" in f.metadata]


FIELD_IDS = [f"{cls.__name__}.{f.name}" for cls, f in FIELDS]


@pytest.mark.exact
def test_equal_numbers_are_one_spec():
    a, b = SpikedSLR(10, 2), SpikedSLR(10.0, 2.0)
    assert a == b
    assert a.id == b.id
    assert hash(a) == hash(b)
    assert type(b.tokens) is int
    assert type(a.snr) is float


def test_numpy_scalars_become_python_numbers():
    task = SpikedSLR(np.int64(3), np.float32(0.5), np.float64(2.0))
    assert task == SpikedSLR(3, 0.5, 2.0)
    assert [type(x) for x in (task.tokens, task.snr, task.relevant_std)] == [int, float, float]
    assert type(ProjectedDescent(0.1, np.int32(5), Overlaps(0, 0)).steps) is int


def test_specs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SpikedSLR(2, 1).snr = 3.0


def test_negative_zero_is_zero():
    a, b = SpikedSLR(2, -0.0), SpikedSLR(2, 0.0)
    assert a.id == b.id
    assert math.copysign(1, a.snr) == 1
    assert Overlaps(-0.0, 0.5, key_dot_value=-0.0).id == Overlaps(0.0, 0.5).id


@pytest.mark.exact
def test_length_laws_are_sorted_pairs():
    task = SpikedSLR({5: 0.25, 2: 0.75}, 1)
    assert task.tokens == ((2, 0.75), (5, 0.25))
    assert task == SpikedSLR([(5, 0.25), (2.0, 0.75)], 1)
    assert task.id == SpikedSLR({2: 0.75, 5: 0.25}, 1).id
    assert task.to_json()["tokens"] == [[2, 0.75], [5, 0.25]]


def test_one_certain_length_is_that_length():
    assert SpikedSLR({4: 1.0}, 1) == SpikedSLR(4, 1)


def test_probabilities_off_by_rounding_are_normalised():
    law = SpikedSLR(dict.fromkeys(range(1, 11), 0.1 + 1e-12), 1).tokens
    assert math.fsum(p for _, p in law) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.exact
def test_normalising_probabilities_is_idempotent():
    """Otherwise a spec read back from its own JSON is another spec with another id."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        p = rng.dirichlet(np.ones(rng.integers(2, 7)))
        once = SpikedSLR(dict(enumerate(p.tolist(), start=1)), 1)
        again = SpikedSLR(once.tokens, 1)
        assert again == once, p.tolist()
        assert again.id == once.id


def test_nested_mappings_and_tuples_are_specs():
    a, b = Overlaps(0.5, 0.1), Overlaps(0.2, -0.3)
    assert KeyValueAttention(Erf(0.5).to_json()) == KeyValueAttention(Erf(0.5))
    learner = ProjectedDescent(0.1, 5, [a.to_json(), b])
    assert learner.start == (a, b)


def test_none_is_a_free_constant_only_where_declared():
    assert Erf(scale=None).scale is None
    assert BayesOptimal().alpha is None
    with pytest.raises(InvalidParameter, match=r"^SpikedSLR\(snr=None\): snr must be >= 0"):
        SpikedSLR(2, None)


START = Overlaps(0.0, 0.0)


STARTS = f"'sphere' or 'manifold' or one of {', '.join(names('overlaps'))} or a tuple of them"


REFUSED = [
    (lambda: SpikedSLR(2, -1), "SpikedSLR(snr=-1.0): snr must be >= 0 and finite"),
    (lambda: SpikedSLR(2, math.inf), "SpikedSLR(snr=inf): snr must be >= 0 and finite"),
    (lambda: SpikedSLR(2, math.nan), "SpikedSLR(snr=nan): snr must be >= 0 and finite"),
    (lambda: SpikedSLR(2, "1.0"), "SpikedSLR(snr='1.0'): snr must be >= 0 and finite"),
    (lambda: SpikedSLR(2, True), "SpikedSLR(snr=True): snr must be >= 0 and finite"),
    (lambda: SpikedSLR(2, 1j), "SpikedSLR(snr=1j): snr must be >= 0 and finite"),
    (lambda: SpikedSLR(2, 1, 0), "SpikedSLR(relevant_std=0.0): relevant_std must be > 0 and finite"),
    (lambda: SpikedSLR(2, 1, noise=-1e-300), "SpikedSLR(noise=-1e-300): noise must be >= 0 and finite"),
    (lambda: Erf(0.0), "Erf(scale=0.0): scale must be > 0 and finite, or None (chosen by the library)"),
    (
        lambda: Erf(1.0, math.inf),
        "Erf(shift=inf): shift must be a real number that is finite, or None (chosen by the library)",
    ),
    (lambda: Overlaps("a", 0), "Overlaps(key='a'): key must be a real number that is finite"),
    (lambda: ProjectedDescent(0.1, 0, START), "ProjectedDescent(steps=0): steps must be a whole number >= 1"),
    (lambda: ProjectedDescent(0.1, 2.5, START), "ProjectedDescent(steps=2.5): steps must be a whole number >= 1"),
    (lambda: ProjectedDescent(0.1, True, START), "ProjectedDescent(steps=True): steps must be a whole number >= 1"),
    (lambda: ProjectedDescent(0.1, "3", START), "ProjectedDescent(steps='3'): steps must be a whole number >= 1"),
    (lambda: ProjectedDescent(0.1, None, START), "ProjectedDescent(steps=None): steps must be a whole number >= 1"),
    (lambda: ProjectedDescent(0.1, math.inf, START), "ProjectedDescent(steps=inf): steps must be a whole number >= 1"),
    (lambda: BayesOptimal(d=1), "BayesOptimal(d=1): d must be a whole number >= 2, or None"),
    (lambda: OnlineSGD(0.1, 1, 1, START, d=5), "OnlineSGD(d=5): d must be a whole number >= 6, or None"),
    (
        lambda: KeyValueAttention(Softmax(), unit_norm=1),
        "KeyValueAttention(unit_norm=1): unit_norm must be True or False",
    ),
    (lambda: Population("everything"), "Population(within='everything'): within must be one of 'manifold', 'all'"),
    (lambda: SpikedSLR(0, 1), "SpikedSLR(tokens=0): tokens must be a whole number >= 1"),
    (lambda: SpikedSLR(2.5, 1), "SpikedSLR(tokens=2.5): tokens must be a whole number >= 1"),
    (lambda: SpikedSLR("2", 1), "SpikedSLR(tokens='2'): tokens must be a whole number >= 1"),
    (
        lambda: SpikedSLR({2: 0.5, 3: 0.6}, 1),
        "SpikedSLR(tokens={2: 0.5, 3: 0.6}): tokens must be positive probabilities that sum to 1 (they sum to 1.1)",
    ),
    (
        lambda: SpikedSLR({2: 1.5, 3: -0.5}, 1),
        "SpikedSLR(tokens={2: 1.5, 3: -0.5}): tokens must be positive probabilities that sum to 1",
    ),
    (
        lambda: SpikedSLR({2: math.nan, 3: 0.5}, 1),
        "SpikedSLR(tokens={2: nan, 3: 0.5}): tokens must be positive probabilities that sum to 1",
    ),
    (lambda: SpikedSLR({}, 1), "SpikedSLR(tokens={}): tokens must be positive probabilities that sum to 1"),
    (
        lambda: SpikedSLR({2.5: 0.5, 3: 0.5}, 1),
        "SpikedSLR(tokens={2.5: 0.5, 3: 0.5}): tokens must be keyed by lengths that are whole and >= 1",
    ),
    (
        lambda: SpikedSLR({0: 0.5, 3: 0.5}, 1),
        "SpikedSLR(tokens={0: 0.5, 3: 0.5}): tokens must be keyed by lengths that are whole and >= 1",
    ),
    (
        lambda: SpikedSLR([(2, 0.5), (2, 0.5)], 1),
        "SpikedSLR(tokens=[(2, 0.5), (2, 0.5)]): tokens must be keyed by distinct lengths",
    ),
    (
        lambda: KeyValueAttention(Population()),
        "KeyValueAttention(activation=Population()): activation must be one of " + ", ".join(names("activation")),
    ),
    (lambda: KeyValueAttention(3), "KeyValueAttention(activation=3): activation must be one of Erf, "),
    (
        lambda: ProjectedDescent(0.1, 5, ()),
        "ProjectedDescent(start=()): start must be " + STARTS,
    ),
    (
        lambda: ProjectedDescent(0.1, 5, (START, Erf())),
        "ProjectedDescent(start=Erf()): start must be " + STARTS,
    ),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=[s.split(":")[0] for _, s in REFUSED])
def test_refusals_give_call_value_set_and_reason(make, sentence):
    with pytest.raises(InvalidParameter) as refused:
        make()
    said = str(refused.value)
    assert said.startswith(sentence)
    # what follows is at most a reason in parentheses and a full stop
    assert re.fullmatch(r"[^\n]*?( \([^\n]+\))?\.", said[len(sentence) :]), said


def test_the_reason_is_the_declared_one():
    with pytest.raises(InvalidParameter) as refused:
        SpikedSLR(2, -1)
    assert str(refused.value) == (
        "SpikedSLR(snr=-1.0): snr must be >= 0 and finite (it scales the spike in eq:slr-law)."
    )


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Population("manfold"), "(did you mean 'manifold'?)."),
        (lambda: ProjectedDescent(0.1, 5, "spere", d=9, runs=2), "(did you mean 'sphere'?)."),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(make, hint):
    with pytest.raises(InvalidParameter, match=re.escape(hint) + "$"):
        make()


HUGE = 10**400  # an int that no float can hold


@pytest.mark.parametrize(
    "make",
    [
        lambda: SpikedSLR(2, HUGE),
        lambda: SpikedSLR(2, -HUGE),
        lambda: SpikedSLR(HUGE, 1),
        lambda: SpikedSLR({2: HUGE}, 1),
        lambda: ProjectedDescent(0.1, HUGE, START),
    ],
    ids=["real", "negative real", "length", "probability", "count"],
)
def test_an_integer_beyond_float64_is_refused_with_a_sentence(make):
    with pytest.raises(InvalidParameter, match=" must be "):
        make()


@pytest.mark.contract
@pytest.mark.parametrize(("cls", "field"), FIELDS, ids=FIELD_IDS)
def test_every_field_refuses_what_lies_outside_its_kind(cls, field):
    kind, where = field.metadata["kind"], f"{cls.__name__}.{field.name}"
    outside = [object(), b"3", math.nan, "no such word", [], 1j]
    if isinstance(kind, Real):
        outside += [True, "1"]
        outside += [kind.lo - 1.0] if kind.lo > -math.inf else []
        outside += [kind.lo] if kind.open_lo else []
        outside += [kind.hi + 1.0] if kind.hi < math.inf else []
        outside += [] if kind.infinite else [math.inf, -math.inf, "inf"]
    if isinstance(kind, Count):
        outside += [kind.lo - 1, kind.lo + 0.5, True, "7", math.inf]
    if isinstance(kind, Flag):
        outside += [0, 1, "True", None]
    if not getattr(kind, "free", False):
        outside.append(None)
    shape = re.escape(f"{cls.__name__}({field.name}=") + r".*\): " + field.name + r" must be .+\.$"
    for value in outside:
        with pytest.raises(InvalidParameter, match=shape):
            kind.coerce(value, where)


@pytest.mark.contract
@pytest.mark.parametrize(("cls", "field"), FIELDS, ids=FIELD_IDS)
def test_every_default_lies_inside_its_kind(cls, field):
    if field.default is not dataclasses.MISSING:
        coerced = field.metadata["kind"].coerce(field.default, f"{cls.__name__}.{field.name}")
        assert coerced == field.default
        assert type(coerced) is type(field.default)


@pytest.mark.contract
@pytest.mark.parametrize("cls", REGISTERED)
def test_every_registered_spec_has_a_family_and_only_declared_fields(cls):
    assert cls.family
    assert cls.__name__ in names(cls.family)
    assert all("kind" in f.metadata for f in dataclasses.fields(cls))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Real(), "a real number that is finite"),
        (Real(infinite=True), "a real number or inf"),
        (Real(lo=0, infinite=True), ">= 0 or inf"),
        (Real(lo=0, hi=1, open_lo=True), "> 0 and <= 1 and finite"),
        (Real(hi=2), "<= 2 and finite"),
        (Real(lo=0, free=True), ">= 0 and finite, or None (chosen by the library)"),
    ],
)
def test_admissible_sets_in_words(kind, text):
    assert kind.admissible() == text


def test_bounds_are_closed_unless_declared_open():
    closed, half_open = Real(lo=0.0, hi=1.0), Real(lo=0.0, hi=1.0, open_lo=True)
    assert closed.coerce(0, "T.x") == 0.0
    assert closed.coerce(1, "T.x") == 1.0
    assert half_open.coerce(5e-324, "T.x") == 5e-324
    with pytest.raises(InvalidParameter, match=r"^T\(x=0\.0\): x must be > 0 and <= 1 and finite\.$"):
        half_open.coerce(0, "T.x")
    with pytest.raises(InvalidParameter, match=r"^T\(x=1\.0000000000000002\)"):
        closed.coerce(math.nextafter(1.0, 2.0), "T.x")

"""Activations that a user writes: what is accepted, what is refused and how, what an id means, what compiles."""

import contextlib
import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.core import specs
from needlepoint.core.text.parsing import parse_value
from needlepoint.models.user_activations import bare
from needlepoint.numerics.precision import float64
from needlepoint.simulation.location import risks

import waiting

TASK = ndl.MaxSLR(tokens=3, snr=2.0, noise=0.2)
AT = ndl.Overlaps(0.7, 0.8, key_sq=1.2, value_sq=0.9)


@pytest.fixture(autouse=True)
def names_are_given_back():
    before = set(specs.names())
    yield
    for name in set(specs.names()) - before:
        specs.forget(name)


def softmax(scores):
    return jax.nn.softmax(scores)


def relu(scores):
    return jnp.maximum(scores, 0.0)


def refused(call, *phrases):
    """One sentence that has these phrases."""
    with pytest.raises(ndl.InvalidParameter) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    for phrase in phrases:
        assert phrase in text
    return text


# --- accepted ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tempered:
    temperature: float

    def __call__(self, scores):
        return jax.nn.softmax(scores / self.temperature)


class Unhashable:
    __hash__ = None  # as of a dataclass that is not frozen

    def __call__(self, scores):
        return jax.nn.softmax(scores)


TENTH = np.array([0.1])
ACCEPTED = {
    "softmax": (softmax, special.softmax),
    "jitted": (jax.jit(softmax), special.softmax),
    "partial": (functools.partial(jax.nn.softmax, axis=-1), special.softmax),
    "object": (Tempered(2.0), lambda s: special.softmax(s / 2)),
    "naive exp": (lambda s: jnp.exp(s) / jnp.sum(jnp.exp(s)), special.softmax),
    "relu": (relu, lambda s: np.maximum(s, 0)),
    "hardmax": (lambda s: jnp.where(s == jnp.max(s), 1.0, 0.0), lambda s: np.where(s == s.max(), 1.0, 0.0)),
    "of the number of tokens": (lambda s: s / s.shape[0], lambda s: s / len(s)),
    "constant": (lambda s: jnp.ones_like(s), np.ones_like),
    "of the largest": (lambda s: s - jnp.sort(s)[-1], lambda s: s - s.max()),
    "JAX method": (lambda s: s.at[:].multiply(2.0), lambda s: 2 * s),
}


@pytest.mark.exact
@pytest.mark.parametrize("double", [False, True], ids=["32-bit caller", "64-bit caller"])
@pytest.mark.parametrize("case", ACCEPTED)
def test_a_good_function_is_an_activation_whatever_the_callers_precision(case, double):
    function, expected = ACCEPTED[case]
    scores = np.random.default_rng(1).standard_normal((2, 4, 5))
    with jax.enable_x64(double):
        activation = ndl.KeyValueAttention(function).activation
        assert jax.config.jax_enable_x64 is double
        assert activation.form == "general"
        found = activation(jnp.asarray(scores))
        assert found.dtype == (jnp.float64 if double else jnp.float32)
    truth = np.apply_along_axis(expected, -1, scores)
    # five operations of numbers of size one, in the precision of the caller
    np.testing.assert_allclose(found, truth, rtol=0, atol=64 * np.finfo(np.asarray(found).dtype).eps)


@pytest.mark.exact
@float64
def test_a_batch_of_scores_is_the_function_row_by_row():
    activation = ndl.activation("mine")(lambda s: jax.nn.softmax(s) * s.shape[0])
    scores = jnp.asarray(np.random.default_rng(2).standard_normal((7, 3)))
    rows = np.stack([np.asarray(activation(row)) for row in scores])
    np.testing.assert_allclose(activation(scores), rows, rtol=1e-15)
    np.testing.assert_allclose(activation(scores[None, :, None])[0, :, 0], rows, rtol=1e-15)
    assert activation(scores[:0]).shape == (0, 3)


@pytest.mark.exact
def test_a_float64_constant_keeps_its_digits():
    activation = ndl.KeyValueAttention(lambda s: TENTH * s).activation
    scores = np.linspace(-2.0, 3.0, 6)
    np.testing.assert_array_equal(float64(activation)(scores), 0.1 * scores)


@pytest.mark.exact
def test_a_function_without_a_hash_is_an_activation_or_a_sentence():
    with contextlib.suppress(ndl.InvalidParameter):
        assert ndl.KeyValueAttention(Unhashable()).activation.form == "general"


# --- refused -------------------------------------------------------------------------------------

THIRD = {bits: np.array([0.3], dtype=bits) for bits in ("float16", "float32")}
SHAPE, WRITE, DOUBLE = "return one array with one weight a score", "write it with jax.numpy", "Python floats"
FINITE, POSITION = "weights must be finite", "not on positions"
REFUSED = {
    "matrix": (lambda s: s[:, None], "(1, 1)", SHAPE),
    "twice as long": (lambda s: jnp.concatenate([s, s]), "(2,)", SHAPE),
    "fixed length": (lambda s: s * jnp.ones(3), "(3,)", SHAPE),
    "scalar": (lambda s: jnp.sum(s), "()", SHAPE),
    "number": (lambda s: 1.0, "()", SHAPE),
    "tuple": (lambda s: (s, s), "a tuple", SHAPE),
    "tuple of one": (lambda s: (s,), SHAPE),
    "list of one": (lambda s: [s], SHAPE),
    "dict": (lambda s: {"weights": s}, SHAPE),
    "None": (lambda s: None, "a NoneType", SHAPE),
    "length": (len, "()", SHAPE),
    "position": (lambda s: s * jnp.arange(s.shape[0]), POSITION),
    "cumsum": (jnp.cumsum, POSITION),
    "sort": (jnp.sort, POSITION),
    "causal softmax": (lambda s: jnp.exp(s) / jnp.cumsum(jnp.exp(s)), POSITION),
    "first token": (lambda s: s - s[0], POSITION),
    "random": (lambda s: s + jax.random.uniform(jax.random.key(0), s.shape), POSITION),
    "log": (jnp.log, "-inf for scores [0.]", FINITE),
    "sqrt": (jnp.sqrt, "nan", FINITE),
    "zero over zero": (lambda s: jnp.divide(s, s), "nan", FINITE),
    "overflow": (lambda s: jnp.exp(s**2) ** 10, "inf", "subtract the largest score before exp"),
    "float32 output": (lambda s: jax.nn.softmax(s.astype(jnp.float32)), "dtype float32", DOUBLE),
    "float32 inside": (lambda s: s.astype(jnp.float32).astype(jnp.float64), "float32", DOUBLE),
    "float16 inside": (lambda s: s.astype(jnp.float16).astype(jnp.float64), "float64", DOUBLE),
    "bfloat16 inside": (lambda s: s.astype(jnp.bfloat16).astype(jnp.float64), "float64", DOUBLE),
    "float32 constant": (lambda s: THIRD["float32"] * s, "float32", DOUBLE),
    "float16 constant": (lambda s: THIRD["float16"] * s, "float64", DOUBLE),
    "float32 scalar": (lambda s: np.float32(0.3) * s, "float32", DOUBLE),
    "whole numbers": (lambda s: (s > 0).astype(int), "dtype int64", DOUBLE),
    "truth values": (lambda s: s > 0, "dtype bool", DOUBLE),
    "complex": (lambda s: s + 1j, "dtype complex128", DOUBLE),
    "numpy": (lambda s: np.exp(np.asarray(s)), "TracerArrayConversionError", WRITE),
    "ufunc": (np.exp, WRITE),
    "math": (lambda s: math.exp(s), "TypeError", WRITE),
    "branch on a value": (lambda s: s if s[0] > 0 else -s, WRITE),
    "no argument": (lambda: 1.0, "takes 0 positional arguments", WRITE),
    "two arguments": (lambda s, t: s, "missing 1 required positional argument: 't'", WRITE),
    "keyword argument": (lambda *, s: s, "takes 0 positional arguments", WRITE),
    "raises": (lambda s: [][1], "IndexError: list index out of range", WRITE),
}


@pytest.mark.exact
@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_function_is_one_sentence_with_the_fix(case):
    function, *phrases = REFUSED[case]
    assert refused(lambda: ndl.activation("mine")(function), *phrases).startswith("activation('mine'): ")
    assert "mine" not in specs.names()


@pytest.mark.exact
@pytest.mark.parametrize("case", ["scalar", "None", "cumsum", "sqrt", "float32 output", "numpy", "two arguments"])
def test_a_bad_bare_function_is_one_sentence_with_the_fix(case):
    function, *phrases = REFUSED[case]
    assert refused(lambda: ndl.KeyValueAttention(function), *phrases).startswith("KeyValueAttention(activation=")


@pytest.mark.exact
def test_a_message_of_many_lines_is_one_line():
    def bad(scores):
        raise ValueError("first\nsecond")

    assert "second" not in refused(lambda: ndl.KeyValueAttention(bad), "ValueError: first ", WRITE)
    assert ndl.KeyValueAttention(softmax).activation == bare(softmax)  # a refusal leaves nothing behind


@pytest.mark.exact
@pytest.mark.parametrize("thing", [3, None, "softmax", (softmax,), [softmax]])
def test_what_is_not_a_function_is_refused(thing):
    refused(lambda: ndl.activation("mine")(thing), repr(thing), "is not a function from scores (L,) to weights (L,)")
    refused(lambda: ndl.KeyValueAttention(thing), "activation must be one of Erf, Linear, Softmax, SoftmaxOne")


@pytest.mark.exact
def test_a_class_is_not_taken_for_a_function():
    refused(lambda: ndl.KeyValueAttention(ndl.Softmax), "activation must be one of")


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("name", ["Softmax", "Erf", "MaxSLR", "KeyValueAttention", "Population", "Overlaps"])
def test_the_names_of_the_library_are_refused(name):
    before = specs.lookup(name)
    refused(lambda: ndl.activation(name)(softmax), f"{name} is the name of a part of needlepoint; take another")
    assert specs.lookup(name) is before


def test_the_names_of_parts_that_are_not_imported_yet_are_refused():
    program = (
        "import jax, needlepoint as ndl\n"
        "try: ndl.activation('MaxSLR')(jax.nn.softmax)\n"
        "except ndl.InvalidParameter as error: print(error)\n"
        "print(ndl.MaxSLR(3, 2.0))"
    )
    done = waiting.python(program)
    assert done.returncode == 0, done.stderr[-300:]
    assert "take another" in done.stdout


@pytest.mark.exact
@pytest.mark.parametrize("name", ["", "two words", "1st", "a-b", "a.b", softmax, None, 3, "class", "lambda"])
def test_a_name_must_be_one_that_can_be_written(name):
    refused(lambda: ndl.activation(name)(softmax), repr(name), "must be an identifier")


@pytest.mark.exact
@pytest.mark.parametrize("form", ["kernel", "elemntwise", None])
def test_the_form_is_one_of_two(form):
    refused(lambda: ndl.activation("mine", form=form), repr(form), "'general', 'elementwise'")


@pytest.mark.exact
def test_a_named_function_is_a_spec_that_can_be_written_and_read():
    activation = ndl.activation("sharp")(lambda s: jax.nn.softmax(2.0 * s))
    assert "sharp" in specs.names("activation")
    model = ndl.KeyValueAttention(activation)
    document = json.loads(json.dumps(model.to_json()))
    assert document["activation"]["type"] == "sharp"
    for copy in (specs.from_json(document), parse_value("KeyValueAttention(sharp())"), parse_value(repr(model))):
        assert copy == model
        assert hash(copy) == hash(model)
        assert copy.id == model.id
    assert repr(model) == "KeyValueAttention(activation=sharp())"


@pytest.mark.exact
def test_a_decorated_function_keeps_its_docstring_and_computes():
    @ndl.activation("documented")
    def documented(scores):
        """Twice the score."""
        return 2.0 * scores

    assert type(documented).__doc__ == "Twice the score."
    np.testing.assert_array_equal(documented(jnp.asarray([1.0, 2.0])), [2.0, 4.0])


@pytest.mark.exact
def test_naming_again_replaces_and_refuses_what_was_stored():
    first = ndl.activation("mine")(softmax)
    stored = first.to_json()
    assert ndl.activation("mine")(lambda s: jax.nn.softmax(s)).id == first.id  # the same formula
    second = ndl.activation("mine")(lambda s: jax.nn.softmax(3.0 * s))
    assert second.id != first.id
    assert specs.lookup("mine") is type(second)
    refused(lambda: specs.from_json(stored), "mine: stored with another definition", "another name", stored["source"])
    np.testing.assert_allclose(first(jnp.zeros(2)), [0.5, 0.5])  # what was made before still computes
    refused(lambda: parse_value("mine('0123')"), "another definition")
    specs.forget("mine")
    with pytest.raises(ndl.UnknownName, match="unknown name 'mine'"):
        specs.from_json(stored)


def scaled(c):
    return lambda s: jax.nn.softmax(c * s)


def tilted(array):
    return lambda s: jax.nn.softmax(array[0] * s) + array.sum()


@float64
def jax_array(*values):
    return jnp.asarray(values)


PAIRS = {
    "formula": (softmax, relu),
    "literal": (scaled(0.3), scaled(math.nextafter(0.3, 1))),
    "0-d array": (scaled(np.array(0.3)), scaled(np.array(0.4))),
    "array": (tilted(np.array([0.3, 0.4])), tilted(np.array([0.3, 0.4 + 1e-15]))),
    "long array": (tilted(np.full(5000, 0.3)), tilted(np.append(np.full(4999, 0.3), 0.4))),
    "JAX array": (tilted(jax_array(0.3, 0.4)), tilted(jax_array(0.3, 0.5))),
    "array under jit": (jax.jit(tilted(np.array([0.3, 0.4]))), jax.jit(tilted(np.array([0.3, 0.5])))),
    "JAX array under jit": (jax.jit(tilted(jax_array(0.3, 0.4))), jax.jit(tilted(jax_array(0.3, 0.5)))),
    "partial": (functools.partial(jax.nn.softmax, axis=-1), functools.partial(jax.nn.log_softmax, axis=-1)),
}


@pytest.mark.exact
@pytest.mark.parametrize("case", PAIRS)
def test_the_id_changes_with_the_formula_and_its_constants(case):
    one, other = PAIRS[case]
    first, again, second = (ndl.activation("mine")(f).id for f in (one, one, other))
    assert first == again
    assert first != second


@pytest.mark.exact
def test_the_id_does_not_depend_on_the_process_or_the_callers_precision():
    ids = set()
    for double in (False, True):
        with jax.enable_x64(double):
            ids.add(ndl.activation("mine")(jax.nn.relu).id)
    program = "import jax, needlepoint as ndl; print(ndl.activation('mine')(jax.nn.relu).id)"
    done = waiting.python(program, check=True)
    assert {*ids, done.stdout.strip()} == ids
    assert len(ids) == 1


# --- element-wise --------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "function", [softmax, lambda s: s / s.shape[0], lambda s: s - jnp.mean(s), lambda s: s * jnp.max(s)]
)
def test_a_form_that_is_not_true_is_refused(function):
    refused(
        lambda: ndl.activation("mine", form="elementwise")(function),
        "a weight depends on the other scores",
        "leave out form='elementwise'",
    )


@pytest.mark.quadrature
def test_an_elementwise_form_buys_the_integrals_of_the_same_numbers():
    # erf written by hand: the same numbers as the closed form, by one-dimensional means and by sampling
    honest = ndl.activation("by_hand", form="elementwise")(lambda s: 0.5 + jax.scipy.special.erf(0.8 * s + 0.1))
    closed = ndl.population_risk(TASK, ndl.KeyValueAttention(ndl.Erf(0.8, 0.1, 0.5)), AT)
    model = ndl.KeyValueAttention(honest)
    means, sampled = (ndl.population_risk(TASK, model, AT, method=m) for m in ("elementwise", "qmc"))
    assert ndl.population_risk(TASK, model, AT) == means
    assert means.error < 1e-9
    assert abs(means.value - closed.value) < 3 * (means.error + closed.error)
    assert abs(sampled.value - closed.value) < 3 * sampled.error
    general = ndl.KeyValueAttention(ndl.activation("general")(lambda s: 0.5 + jax.scipy.special.erf(0.8 * s + 0.1)))
    with pytest.raises(ndl.UnknownName, match="'elementwise'"):
        ndl.population_risk(TASK, general, AT, method="elementwise")


# --- bare functions ------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_bare_function_computes_but_cannot_be_stored():
    model = ndl.KeyValueAttention(softmax)
    assert repr(model) == "KeyValueAttention(activation=<function softmax>)"
    for call in (model.to_json, model.activation.to_json, lambda: model.id, lambda: model.activation.id):
        refused(call, "<function softmax>", "cannot be stored or sent to a worker", "@ndl.activation(...)")
    prediction = ndl.predict(TASK, model, ndl.Population())
    assert "<function softmax>" in str(prediction)
    refused(prediction.to_json, "cannot be stored")
    refused(lambda: prediction.id, "cannot be stored")


@pytest.mark.exact
def test_the_same_function_is_the_same_spec():
    one, same, other = (ndl.KeyValueAttention(f) for f in (softmax, softmax, lambda s: jax.nn.softmax(s)))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len({one, same, other}) == 2
    assert ndl.KeyValueAttention(Tempered(2.0)) == ndl.KeyValueAttention(Tempered(2.0))
    assert ndl.KeyValueAttention(Tempered(2.0)) != ndl.KeyValueAttention(Tempered(3.0))
    assert one != ndl.KeyValueAttention(softmax, unit_norm=True)
    assert one.replace(unit_norm=True) == ndl.KeyValueAttention(softmax, unit_norm=True)


@pytest.mark.exact
def test_the_same_function_compiles_once_and_another_one_is_not_mistaken_for_it():
    def measure(function, snr=2.0):
        model = ndl.KeyValueAttention(function)
        return ndl.simulate(
            TASK.replace(snr=snr), model, ndl.Population(), d=4, repeats=2, samples=64, overlaps=AT
        ).risk

    first = measure(softmax)
    compiled = risks._attention_error._cache_size()
    assert measure(softmax) == first
    measure(softmax, snr=3.0)
    assert risks._attention_error._cache_size() == compiled
    assert measure(relu) != first
    assert risks._attention_error._cache_size() == compiled + 1


@pytest.mark.exact
@pytest.mark.parametrize("double", [False, True], ids=["32-bit caller", "64-bit caller"])
def test_softmax_by_hand_is_softmax(double):
    """By sampling in both verbs, so that the same points give the same numbers to rounding."""
    with jax.enable_x64(double):
        models = [ndl.KeyValueAttention(a) for a in (softmax, ndl.Softmax(), ndl.activation("mine")(softmax))]
        by_hand, known, named = (ndl.population_risk(TASK, m, AT, method="qmc").value for m in models)
        assert by_hand == named == pytest.approx(known, rel=1e-12)
        options = {"d": 4, "repeats": 2, "samples": 64, "overlaps": AT}
        found = [ndl.simulate(TASK, m, ndl.Population(), **options).risk.value for m in models]
        assert found[0] == found[2] == pytest.approx(found[1], rel=1e-12)
        assert jax.config.jax_enable_x64 is double


@pytest.mark.montecarlo
def test_the_best_softmax_by_hand_is_bayes():
    prediction = ndl.predict(TASK, ndl.KeyValueAttention(softmax), ndl.Population())
    bayes = ndl.predict(TASK, None, ndl.BayesOptimal()).excess_risk
    found = prediction.excess_risk
    assert found.error < 0.01 * found.value
    assert abs(found.value - bayes.value) < 3 * found.error
    assert prediction.overlaps is not None
    # the risk is flat at its minimum: the key is known to the square root of the error
    assert prediction.overlaps.key == pytest.approx(TASK.snr, abs=3 * math.sqrt(found.error))

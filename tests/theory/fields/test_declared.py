"""What a task and a model declare is checked before anything is computed: each mistake is one sentence."""

import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core import specs
from needlepoint.losses import Loss

LEARNER = ndl.Ridge(4.0, 0.3)


@pytest.fixture
def registry():
    """Classes that a test declares are forgotten after it."""
    before = set(specs.names())
    yield
    for name in set(specs.names()) - before:
        specs.forget(name)


def task_of(**methods):
    """A task of two tokens, of which the first is relevant, with some of its methods replaced."""
    body = {
        "__annotations__": {"snr": float},
        "__module__": "mine",
        "tokens": 2,
        "teachers": ("key", "value"),
        "snr": ndl.real(lo=0.0, default=2.0),
        "shift": lambda self, place: {"key": jnp.sqrt(self.snr) * (np.arange(2) == 0)},
        "seen": lambda self, place: {"value": np.arange(2) == 0},
        "label": lambda self, fields, place, noise: fields.value[0] + 0.1 * noise,
    }
    return ndl.spec(type("Mine", (ndl.SequenceTask,), body | methods))()


def model_of(**methods):
    body = {
        "__module__": "mine",
        "columns": lambda self: ("key", "value"),
        "output": lambda self, fields: jnp.sum(jnp.tanh(fields.key) * fields.value),
    }
    return ndl.spec(type("MyModel", (ndl.FieldModel,), body | methods))()


SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())

TASKS = {
    "a label that ignores its arguments": (
        {"label": lambda self, fields, place, noise: jnp.asarray(1.0)},
        r"Mine\.label: it does not depend on the fields",
    ),
    "a label that is not jax": (
        {"label": lambda self, fields, place, noise: float(fields.value[0])},
        r"Mine\.label failed: .*write it with jax\.numpy",
    ),
    "a field that does not exist": (
        {"label": lambda self, fields, place, noise: fields.other[0]},
        r"Mine\.label failed: AttributeError: there is no field 'other'; the fields are key, value",
    ),
    "counts for labels": (
        {"label": lambda self, fields, place, noise: jnp.asarray(fields.value[0] > 0, int)},
        r"Mine\.label: it returned int",
    ),
    "a label that is not finite": (
        {"label": lambda self, fields, place, noise: jnp.log(fields.value[0])},
        r"Mine\.label: it returned nan for ordinary fields",
    ),
    "a tilt that is not normalised": (
        {
            "places": lambda self: 2,
            "exchangeable": False,
            "seen": lambda self, place: {"key": True, "value": True},
            "log_tilt": lambda self, fields, place: fields.key[place],
        },
        r"Mine\.log_tilt: .* average to .*, not to 1; add log\(places\)",
    ),
    "a seen that lies": (
        {"seen": lambda self, place: {"key": True}},
        r"Mine\.seen: label changes with fields that are not seen at place 0",
    ),
    "a teacher that does not exist": (
        {"shift": lambda self, place: {"query": 1.0}},
        r"Mine\.shift.*'query' is not one of the teachers \(key, value\)",
    ),
    "a flip that does not hold": (
        {"flips": (("key",),)},
        r"Mine\.flips: changing the signs of \('key',\) changes the tokens' means",
    ),
    "a flip of a name that is not there": (
        {"flips": (("valeu",),)},
        r"Mine\.flips: 'valeu' is not one of its teachers \(key, value\)",
    ),
    "a flip that is not in a tuple": ({"flips": ("value",)}, r"Mine\.flips: .* write flips = \(\('value',\),\)"),
    "teachers that are one word": ({"teachers": "key"}, r"Mine: teachers = 'key' must be a tuple of names"),
    "places that are no whole number": ({"places": lambda self: 2.0}, r"Mine\.places: it returned 2\.0"),
    "no places": ({"places": lambda self: 0}, r"Mine\.places: it returned 0; return a whole number >= 1"),
    "a tilt for every token": (
        {"log_tilt": lambda self, fields, place: fields.key},
        r"Mine\.log_tilt: it returned shape \(2,\); return one number",
    ),
    "a spread of zero": ({"spread": lambda self, place: 0.0}, r"Mine\.spread: .*a spread is positive"),
    "places that are not alike": (
        {"places": lambda self: 2, "label": lambda self, fields, place, noise: fields.value[0] * (1.0 + place)},
        r"Mine: place 1 is not place 0 with two tokens exchanged; write exchangeable = False",
    ),
}

MODELS = {
    "an output of the wrong shape": (
        {"output": lambda self, fields: fields.value},
        r"MyModel\.output: it has shape \(2,\) where the labels of Mine have \(\)",
    ),
    "a column that does not exist": ({"linear": ("weight",)}, r"MyModel\.linear: 'weight' is not one of its columns"),
    "columns that are not linear": ({"linear": ("key",)}, r"MyModel\.linear: the output is not linear in key"),
    "a flip that does not hold": (
        {"flips": (("key",),), "output": lambda self, f: jnp.sum(jnp.exp(f.key) * f.value)},
        r"MyModel\.flips: changing the signs of \('key',\) neither changes the output's sign nor leaves it",
    ),
    "an output that is not finite": (
        {"output": lambda self, f: jnp.sum(jnp.sqrt(f.key))},
        r"MyModel\.output: it returned nan",
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_mistakes_in_a_task_are_one_sentence(case, registry):
    methods, sentence = TASKS[case]
    with pytest.raises(ndl.InvalidParameter, match=sentence) as refused:
        ndl.predict(task_of(**methods), SOFTMAX, LEARNER)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("case", MODELS)
def test_mistakes_in_a_model_are_one_sentence(case, registry):
    methods, sentence = MODELS[case]
    with pytest.raises(ndl.InvalidParameter, match=sentence) as refused:
        ndl.predict(task_of(), model_of(**methods), LEARNER)
    assert "\n" not in str(refused.value)


def test_what_cannot_be_computed_says_where_it_stops():
    long = ndl.SpikedSLR(40, 2.0, relevant_std=0.5)
    with pytest.raises(ndl.NoTheory, match="minimised over 40 fields, and beyond 16 a point takes longer than minutes"):
        ndl.predict(long, SOFTMAX, LEARNER)
    with pytest.raises(ndl.InvalidParameter, match="labels must be 1 or -1, and SpikedSLR has the label"):
        ndl.predict(ndl.SpikedSLR(2, 2.0), SOFTMAX, ndl.Ridge(4.0, 0.3, loss=ndl.Logistic()))
    with pytest.raises(ndl.InvalidParameter, match="has 2 kinds of columns"):
        ndl.predict(ndl.Needles(2, 2.0), ndl.MultiHead(2, ndl.Softmax()), ndl.Ridge(4.0, (0.1, 0.2, 0.3)))
    indexed = ndl.AttentionIndexed(2, ndl.Wishart(0.5))
    with pytest.raises(ndl.NoTheory, match="answers where errors cost half their square"):
        ndl.predict(indexed, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1, loss=ndl.Logistic()))


def test_a_class_may_be_declared_again_and_is_stored_with_its_code(registry):
    first = task_of()
    stored = first.to_json()
    assert specs.from_json(stored) == first
    again = task_of()
    assert again.to_json() == stored
    changed = task_of(label=lambda self, fields, place, noise: fields.value[0] + 0.2 * noise)
    assert changed.id != first.id
    with pytest.raises(ndl.InvalidParameter, match="stored with another definition of this class"):
        specs.from_json(stored)
    with pytest.raises(ndl.InvalidParameter, match="the name of a part of needlepoint"):
        ndl.spec(type("SpikedSLR", (ndl.SequenceTask,), {"__module__": "mine"}))


def test_a_kinked_output_is_said_to_have_unknown_stability(registry):
    kinked = model_of(output=lambda self, f: jnp.sum(jnp.maximum(f.key, 0.0) * f.value), linear=("value",))
    found = ndl.predict(task_of(), kinked, ndl.Ridge(4.0, 0.5), throw=False)
    assert found.stable is None
    assert any("kinks" in note for note in found.notes)


def loss_of(cost, name="Bowl", **more):
    return ndl.spec(type(name, (Loss,), {"__module__": "mine", "cost": cost, **more}))()


def smooth(self, y, f):
    return jnp.sqrt(1.0 + jnp.sum((y - f) ** 2)) - 1.0


def test_a_loss_of_ones_own_is_stored_with_its_code(registry):
    learner = ndl.Ridge(2.0, 0.5, loss=loss_of(smooth))
    stored = learner.to_json()
    assert specs.from_json(stored) == learner
    # the same again, as in a notebook cell that is run twice
    assert ndl.Ridge(2.0, 0.5, loss=loss_of(lambda self, y, f: smooth(self, y, f))).id == learner.id
    steeper = ndl.Ridge(2.0, 0.5, loss=loss_of(lambda self, y, f: 2.0 * smooth(self, y, f)))
    assert steeper.id != learner.id
    with pytest.raises(ndl.InvalidParameter, match=r"stored with another definition of this class .* another name"):
        specs.from_json(stored)
    scaled = ndl.Ridge(2.0, 0.5, loss=loss_of(smooth, metric_scale=2.0))
    assert scaled.id != learner.id
    # one that works for arrays only, and one that works for numbers only, have hashes too
    hashes = {
        loss_of(cost).source_hash() for cost in (lambda s, y, f: jnp.abs(y[0] - f[0]), lambda s, y, f: abs(y - f))
    }
    assert len(hashes | {stored["loss"]["source_hash"]}) == 3
    assert ndl.Square(0.5).source_hash() is None
    assert "source_hash" not in ndl.Ridge(2.0, 0.5, loss=ndl.Logistic()).to_json()["loss"]


def test_a_study_with_a_changed_loss_is_recognised(registry, tmp_path):
    store, question = tmp_path / "study.needle", (task_of(), ndl.KeyValueAttention(ndl.Linear()))
    start = ndl.Overlaps(0.1, 0.1)
    learner = ndl.GradientFlow(0.2, start, 0.1, loss=loss_of(smooth))
    ndl.sweep(*question, learner, {"learner.time": [0.1, 0.2]}, store=store)
    assert len(list(ndl.open_study(store).points())) == 2
    loss_of(lambda self, y, f: 2.0 * smooth(self, y, f))
    with pytest.raises(ndl.InvalidParameter, match="stored with another definition of this class"):
        list(ndl.open_study(store).points())

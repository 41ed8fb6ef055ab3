"""What a sweep goes over: grids and lists of any field, checked before anything is computed."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needlepoint as ndl
from needlepoint.studies.axes import LIMIT, is_real, paths_of, read_axes

TASK = ndl.SpikedSLR(2, 1.0)
ERF = ndl.KeyValueAttention(ndl.Erf(0.5, shift=0.1), unit_norm=True)
LEARNER = ndl.Population()
BASE = (TASK, ERF, LEARNER)
BAYES = (TASK, None, ndl.BayesOptimal())
quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def questions(base, over):
    axes = read_axes(base, over)
    return [axes.question(at) for at in axes.points()]


# --- grids ---------------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_grid_is_the_product_with_the_last_axis_fastest():
    over = {"task.snr": [1, 2, 5], "model.activation.scale": [0.1, 0.2], "task.tokens": [4, 3]}
    axes = read_axes(BASE, over)
    expected = list(itertools.product([1.0, 2.0, 5.0], [0.1, 0.2], [4, 3]))
    assert axes.grid
    assert axes.paths == tuple(over)
    assert list(axes.points()) == expected
    assert len(axes) == len(expected)
    for at, (task, model, learner) in zip(expected, questions(BASE, over), strict=True):
        assert (task.snr, model.activation.scale, task.tokens) == at
        assert (model.activation.shift, model.unit_norm, learner) == (0.1, True, LEARNER)
    assert (TASK.snr, ERF.activation.scale) == (1.0, 0.5)


def test_values_are_as_their_specs_have_them():
    over = {"task.snr": [2, np.float32(0.5), True + 2], "task.tokens": [3.0, {5: 0.25, 2: 0.75}]}
    axes = read_axes(BASE, over)
    assert axes.values == ((2.0, 0.5, 3.0), (3, ((2, 0.75), (5, 0.25))))
    assert [type(x) for x in axes.values[0]] == [float] * 3
    assert type(axes.values[1][0]) is int


@pytest.mark.parametrize(
    "values",
    [np.array([1.0, 2.0]), np.array([1, 2]), np.linspace(1, 2, 2), (1, 2), range(1, 3), (x for x in (1, 2)), [1, 2.0]],
    ids=["array", "whole array", "linspace", "tuple", "range", "generator", "mixed"],
)
def test_any_sequence_of_values(values):
    axes = read_axes(BASE, {"task.snr": values})
    assert axes.values == ((1.0, 2.0),)
    assert all(type(v) is float for v in axes.values[0])


def test_whole_parts_and_activations_are_axes():
    tasks, models = [TASK, ndl.MaxSLR(3, math.inf)], [ERF, ndl.LinearRegression()]
    assert questions(BASE, {"task": tasks, "model": models}) == [(t, m, LEARNER) for t in tasks for m in models]
    activations = [ndl.Softmax(), ndl.Erf(0.3), ndl.Linear()]
    found = questions(BASE, {"model.activation": activations})
    assert [model for _, model, _ in found] == [ndl.KeyValueAttention(a, unit_norm=True) for a in activations]


def test_a_model_may_be_none():
    found = questions(BAYES, {"model": [None], "learner.d": [None, 5]})
    assert found == [(TASK, None, ndl.BayesOptimal()), (TASK, None, ndl.BayesOptimal(d=5))]


def test_words_flags_counts_and_free_constants_are_axes():
    assert [q[2].within for q in questions(BASE, {"learner.within": ["manifold", "all"]})] == ["manifold", "all"]
    assert [q[1].unit_norm for q in questions(BASE, {"model.unit_norm": [True, False]})] == [True, False]
    scales = questions(BASE, {"model.activation.scale": [None, 0.5]})
    assert [q[1].activation.scale for q in scales] == [None, 0.5]
    starts = [ndl.Overlaps(0.1, 0.2), (ndl.Overlaps(0.1, 0.2), ndl.Overlaps(0.3, 0.1))]
    descent = (TASK, ERF, ndl.ProjectedDescent(0.1, 3, starts[0]))
    assert [q[2].start for q in questions(descent, {"learner.start": starts})] == starts
    assert [q[2].start.key for q in questions(descent, {"learner.start.key": [0.2, 0.3]})] == [0.2, 0.3]


def test_a_field_is_set_inside_the_part_that_comes_before_it():
    over = {"model": [ERF, ERF.replace(unit_norm=False)], "model.activation.scale": [0.1, 0.2]}
    found = [(m.unit_norm, m.activation.scale) for _, m, _ in questions(BASE, over)]
    assert found == [(True, 0.1), (True, 0.2), (False, 0.1), (False, 0.2)]


def test_a_field_is_set_inside_the_part_that_comes_after_it():
    over = {"model.activation.scale": [0.1, 0.2], "model": [ERF, ERF.replace(unit_norm=False)]}
    found = [(m.activation.scale, m.unit_norm) for _, m, _ in questions(BASE, over)]
    assert found == [(0.1, True), (0.1, False), (0.2, True), (0.2, False)]


@quick
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    st.lists(st.floats(0.01, 10), min_size=1, max_size=4, unique=True),
)
def test_curves_are_the_same_points_along_the_last_real_axis(snr, tokens, scales):
    axes = read_axes(BASE, {"task.snr": snr, "model.activation.scale": scales, "task.tokens": tokens})
    curves = [list(curve) for curve in axes.curves()]
    assert sorted(at for curve in curves for at in curve) == sorted(axes.points())
    for curve in curves:
        assert [at[1] for at in curve] == list(axes.values[1])
        assert len({(at[0], at[2]) for at in curve}) == 1


def test_without_a_real_axis_there_is_one_curve():
    axes = read_axes(BASE, {"task.tokens": [2, 3], "model.unit_norm": [True, False]})
    assert [list(c) for c in axes.curves()] == [list(axes.points())]


def test_real_paths():
    real = [path for path in paths_of(BASE) if is_real(BASE, path)]
    assert real == [
        *("task.snr", "task.relevant_std", "task.noise"),
        *("model.activation.scale", "model.activation.shift", "model.activation.offset"),
    ]


# --- lists ---------------------------------------------------------------------------------------


def test_a_list_of_points_keeps_its_order():
    rows = [{"task.snr": 3, "task.tokens": 2}, {"task.snr": 1, "task.tokens": 5}, {"task.snr": 2, "task.tokens": 2}]
    axes = read_axes(BASE, rows)
    assert not axes.grid
    assert list(axes.points()) == [(3.0, 2), (1.0, 5), (2.0, 2)]
    assert len(axes) == 3
    assert [list(c) for c in axes.curves()] == [list(axes.points())]
    assert [(t.snr, t.tokens) for t, _, _ in questions(BASE, rows)] == list(axes.points())


def test_a_list_may_hold_specs_and_repeat_values():
    rows = [{"model": ERF, "task.snr": 1}, {"model": ndl.LinearRegression(), "task.snr": 1}]
    assert [m for _, m, _ in questions(BASE, rows)] == [ERF, ndl.LinearRegression()]


def test_the_order_of_the_paths_in_a_row_does_not_matter():
    axes = read_axes(BASE, [{"task.snr": 1, "task.tokens": 3}, {"task.tokens": 4, "task.snr": 2}])
    assert list(axes.points()) == [(1.0, 3), (2.0, 4)]


# --- refusals ------------------------------------------------------------------------------------

NAN = math.nan
BAD = {
    "no paths": ({}, "there is nothing to sweep"),
    "no points": ([], "there is nothing to sweep"),
    "no values": ({"task.snr": []}, "there is nothing to sweep"),
    "an empty array": ({"task.snr": np.zeros(0)}, "there is nothing to sweep"),
    "a word": ("task.snr", "over must be a mapping of paths to values (a grid), or a list of such mappings"),
    "a number": (3, "over must be a mapping"),
    "none": (None, "over must be a mapping"),
    "a list of numbers": ([1, 2], "over must be a mapping"),
    "unknown field": ({"task.snrr": [1]}, "over['task.snrr']: there is no such field; did you mean 'task.snr'"),
    "no part": ({"snr": [1]}, "over['snr']: there is no such field; did you mean 'task.snr'?"),
    "too short": ({"model.scale": [1]}, "did you mean 'model.activation.scale'?"),
    "the wrong part": ({"learner.noise": [1]}, "did you mean 'task.noise'?"),
    "below a number": ({"task.snr.x": [1]}, "over['task.snr.x']: there is no such field; did you mean 'task.snr'"),
    "far from all": ({"wibble": [1]}, "known: task, task.tokens, task.snr,"),
    "a number as a path": ({3: [1]}, "over['3']: there is no such field"),
    "nan": ({"task.snr": [1, NAN]}, "over['task.snr']: value 1 is NaN; an axis needs numbers."),
    "nan in an array": ({"task.snr": np.array([NAN])}, "value 0 is NaN"),
    "nan in a list": ([{"task.snr": 1}, {"task.snr": NAN}], "value 1 is NaN"),
    "twice": ({"task.snr": [1, 2, 1.0]}, "over['task.snr']: 1.0 is given twice; each value once."),
    "twice, specs": ({"model.activation": [ndl.Erf(1), ndl.Erf(1.0)]}, "is given twice"),
    "twice, lengths": ({"task.tokens": [3, {3: 1.0}]}, "over['task.tokens']: 3 is given twice"),
    "scalar": ({"task.snr": 3}, "over['task.snr']=3: give a list of values, such as [1, 2, 5]."),
    "word for values": ({"learner.within": "all"}, "give a list of values"),
    "mapping for values": ({"task.tokens": {2: 0.5, 3: 0.5}}, "give a list of values"),
    "spec for values": ({"model": ERF}, "give a list of values"),
    "none for values": ({"task.snr": None}, "give a list of values"),
    "negative": ({"task.snr": [1, -1]}, "SpikedSLR(snr=-1.0): snr must be >= 0 and finite"),
    "infinite": ({"task.snr": [math.inf]}, "SpikedSLR(snr=inf): snr must be >= 0 and finite"),
    "a word for a number": ({"task.snr": ["big"]}, "SpikedSLR(snr='big'): snr must be >= 0"),
    "half a token": ({"task.tokens": [2.5]}, "tokens must be a whole number"),
    "zero scale": ({"model.activation.scale": [0]}, "Erf(scale=0.0): scale must be > 0"),
    "a flag": ({"model.unit_norm": [1]}, "unit_norm must be True or False"),
    "a choice": ({"learner.within": ["al"]}, "within must be one of 'manifold', 'all'"),
    "refused in a list": ([{"task.snr": -1}], "SpikedSLR(snr=-1.0): snr must be >= 0"),
    "missing paths": (
        [{"task.snr": 1, "task.noise": 0}, {"task.snr": 2}],
        "over[1] has the paths task.snr; all points need task.snr, task.noise.",
    ),
    "other paths": ([{"task.snr": 1}, {"task.noise": 2}], "over[1] has the paths task.noise; all points need task.snr"),
    "a learner as model": ({"model": [LEARNER]}, "over['model']: value 0 is Population(), which is not a model."),
    "a word as model": ({"model": [ERF, "Erf"]}, "over['model']: value 1 is 'Erf', which is not a model."),
    "a number as task": ({"task": [1]}, "over['task']: value 0 is 1, which is not a task."),
    "a model as activation": ({"model.activation": [ERF]}, "activation must be"),
}


def refused(base, over, phrase):
    with pytest.raises(ndl.InvalidParameter, match=re.escape(phrase)) as caught:
        read_axes(base, over)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", BAD)
def test_bad_axes_are_one_sentence(case):
    refused(BASE, *BAD[case])


def test_a_part_that_is_not_there_has_no_fields():
    refused(BAYES, {"model.activation": [ndl.Erf()]}, "over['model.activation']: there is no such field")
    axes = read_axes(BASE, {"model": [ERF, None], "model.activation.scale": [0.1]})
    with pytest.raises(ndl.InvalidParameter, match=r"over\['model.activation.scale'\]: there is no model to change"):
        [axes.question(at) for at in axes.points()]


def test_a_later_axis_without_values_is_refused():
    refused(BASE, {"task.snr": [1, 2], "task.noise": []}, "nothing to sweep")


def test_an_array_without_axes_is_refused():
    refused(BASE, {"task.snr": np.array(1.0)}, "give a list of values")


# --- what only the sweep can check ---------------------------------------------------------------


def swept(over, base=BASE, **options):
    return ndl.sweep(*base, over, **options)


def test_a_bare_function_cannot_be_stored():
    import jax.numpy as jnp

    def squash(scores):
        return jnp.tanh(scores)

    sentence = r"<function squash>: a bare function cannot be stored .* name it with @ndl\.activation"
    for over, model in (
        ({"model.activation": [squash]}, ERF),
        ({"model.activation": [ndl.Softmax(), squash]}, ERF),  # of the same types as a point that can be stored
        ({"task.snr": [1]}, ndl.KeyValueAttention(squash)),
    ):
        with pytest.raises(ndl.InvalidParameter, match=sentence):
            swept(over, (TASK, model, LEARNER))


def test_a_combination_without_theory_is_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(ndl, "predict", lambda *a, **o: pytest.fail("computed"))
    with pytest.raises(ndl.NoTheory, match=r"no rule for predict\(SpikedSLR, LinearRegression, BayesOptimal\)"):
        swept({"learner": [LEARNER, ndl.BayesOptimal()]}, (TASK, ndl.LinearRegression(), LEARNER))
    with pytest.raises(ndl.NoTheory, match=r"no rule for predict\(SpikedSLR, KeyValueAttention, None\)"):
        swept({"learner": [None]})


def test_values_that_a_spec_refuses_only_together_are_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(ndl, "predict", lambda *a, **o: pytest.fail("computed"))
    descent = ndl.ProjectedDescent(0.1, 3, ndl.Overlaps(0.1, 0.1))
    with pytest.raises(ndl.InvalidParameter, match="the Gram matrix of"):
        swept({"learner.start.key": [0.1, 0.8], "learner.start.key_on_value": [0.0, 0.7]}, (TASK, ERF, descent))


def test_a_grid_above_the_limit_asks(monkeypatch):
    monkeypatch.setattr(ndl, "predict", lambda *a, **o: pytest.fail("computed"))
    over = {"task.snr": np.linspace(1, 2, 201), "task.noise": np.linspace(1, 2, 100)}
    with pytest.raises(ndl.InvalidParameter, match=r"20,100 points are more than 20,000; .* say limit=20100"):
        swept(over)
    assert LIMIT == 20_000
    linear = (TASK, ndl.LinearRegression(), LEARNER)
    also = ndl.Simulation(d=(5, 6), repeats=4, at={"task.snr": [1, 2]})
    with pytest.raises(ndl.InvalidParameter, match="19 points are more than 18"):  # 3 + 2 places x 2 sizes x 4 seeds
        swept({"task.snr": [1, 2, 3]}, linear, also=also, limit=18)

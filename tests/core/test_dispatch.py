"""The table of rules: found along the inheritance, never twice, misses answered with the nearest."""

from typing import ClassVar

import pytest

from needlepoint.core import dispatch
from needlepoint.core.dispatch import describe, find, rule, rules
from needlepoint.core.errors import NeedlepointError, NoTheory
from needlepoint.core.specs import Spec


class Task(Spec):
    family: ClassVar[str] = "task"


class SubTask(Task):
    pass


class SubSubTask(SubTask):
    pass


class Model(Spec):
    family: ClassVar[str] = "model"


class SubModel(Model):
    pass


class Learner(Spec):
    family: ClassVar[str] = "learner"


class SubLearner(Learner):
    pass


class Other(Spec):
    family: ClassVar[str] = "learner"


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """An empty table, so that these rules do not outlive the test."""
    monkeypatch.setattr(dispatch, "_RULES", {})


def add(verb, task, model, learner):
    def answer():
        return describe((verb, task, type(None) if model is None else model, learner))

    return rule(verb, task, model, learner)(answer)


def test_the_decorator_returns_the_function_itself():
    def formula():
        return 1

    assert rule("predict", Task, Model, Learner)(formula) is formula
    assert find("predict", Task(), Model(), Learner()) is formula


def test_rules_are_found_along_the_inheritance():
    base = add("predict", Task, Model, Learner)
    assert find("predict", SubSubTask(), SubModel(), SubLearner()) is base
    nearer = add("predict", SubTask, Model, Learner)
    assert find("predict", SubSubTask(), SubModel(), SubLearner()) is nearer
    assert find("predict", Task(), SubModel(), SubLearner()) is base
    nearest = add("predict", SubSubTask, SubModel, SubLearner)
    assert find("predict", SubSubTask(), SubModel(), SubLearner()) is nearest
    assert find("predict", SubSubTask(), Model(), SubLearner()) is nearer


def test_a_rule_for_the_base_class_covers_every_spec():
    anything = add("describe", Spec, Spec, Spec)
    assert find("describe", Task(), Model(), Learner()) is anything


def test_fewer_steps_up_win_and_ties_go_to_the_task():
    one_up = add("predict", SubTask, Model, SubLearner)
    two_up = add("predict", Task, Model, SubLearner)
    assert find("predict", SubTask(), SubModel(), SubLearner()) is one_up
    del dispatch._RULES[("predict", SubTask, Model, SubLearner)]
    assert find("predict", SubTask(), SubModel(), SubLearner()) is two_up
    # one step up in the model or one in the task: the task's own rule is the more specific
    add("simulate", Task, SubModel, Learner)
    own_task = add("simulate", SubTask, Model, Learner)
    assert find("simulate", SubTask(), SubModel(), Learner()) is own_task


def test_a_subclass_rule_does_not_serve_its_base():
    add("predict", SubTask, Model, Learner)
    with pytest.raises(NoTheory):
        find("predict", Task(), Model(), Learner())


def test_no_model_is_a_model_of_its_own():
    without = add("predict", Task, None, Learner)
    assert find("predict", SubTask(), None, Learner()) is without
    with pytest.raises(NoTheory, match=r"^no rule for predict\(Task, Model, Learner\)"):
        find("predict", Task(), Model(), Learner())
    add("simulate", Task, Spec, Learner)
    with pytest.raises(NoTheory, match=r"^no rule for simulate\(Task, None, Learner\)"):
        find("simulate", Task(), None, Learner())


def test_verbs_do_not_mix():
    add("predict", Task, Model, Learner)
    with pytest.raises(NoTheory, match=r"^no rule for simulate\(Task, Model, Learner\); the nearest are none yet\.$"):
        find("simulate", Task(), Model(), Learner())


def test_duplicates_are_refused_and_the_first_stays():
    first = add("predict", Task, Model, Learner)
    with pytest.raises(ValueError, match=r"^two rules for predict\(Task, Model, Learner\): answer, answer$"):
        add("predict", Task, Model, Learner)
    assert find("predict", Task(), Model(), Learner()) is first
    add("simulate", Task, Model, Learner)
    add("predict", Task, None, Learner)
    assert len(rules()) == 3


def test_a_miss_names_the_nearest_rules_first():
    add("predict", SubTask, SubModel, Other)
    add("predict", SubSubTask, SubModel, Other)
    add("predict", SubTask, None, SubLearner)
    add("predict", Task, SubModel, Learner)
    add("predict", Task, Model, SubLearner)
    add("simulate", Task, Model, Learner)
    with pytest.raises(NoTheory) as missed:
        find("predict", Task(), Model(), Learner())
    said = str(missed.value)
    head, _, listed = said.removesuffix(".").partition("; the nearest are ")
    assert head == "no rule for predict(Task, Model, Learner)"
    nearest = listed.split("; ")
    assert len(nearest) == 3
    assert set(nearest[:2]) == {"predict(Task, SubModel, Learner)", "predict(Task, Model, SubLearner)"}
    assert "simulate" not in said


def test_a_miss_is_an_error_of_this_library_and_a_lookup_error():
    with pytest.raises(NoTheory) as missed:
        find("predict", Task(), None, Learner())
    assert isinstance(missed.value, NeedlepointError)
    assert isinstance(missed.value, LookupError)


def test_the_table_that_is_shown_is_a_copy():
    add("predict", Task, None, Learner)
    shown = rules()
    assert list(shown) == [("predict", Task, type(None), Learner)]
    shown.clear()
    assert rules()

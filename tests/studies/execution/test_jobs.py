"""Ids: one question has one, however it is spelled; another question has another."""

import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needlepoint as ndl
from needlepoint.studies.execution import jobs
from needlepoint.studies.execution.jobs import Job, Unit, digest

TASK = ndl.SpikedSLR(2, 1.0, noise=0.3)
ERF = ndl.KeyValueAttention(ndl.Erf(0.5), unit_norm=True)
DESCENT = ndl.ProjectedDescent(0.01, 4, "sphere", d=8, runs=3)
QUESTION = (TASK, ERF, DESCENT)
OPTIONS = {"d": 5, "repeats": 2, "seed": 3, "samples": 50}
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def job(snr=1.0, verb="predict", **options):
    return Job(verb, (ndl.SpikedSLR(2, snr), ndl.LinearRegression(), ndl.Population()), options)


# --- equal questions -----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "other",
    [
        Job("simulate", (ndl.SpikedSLR(2.0, 1, 1, 0.3), ERF, DESCENT), OPTIONS),
        Job("simulate", QUESTION, dict(reversed(OPTIONS.items()))),
        Job("simulate", QUESTION, {**OPTIONS, "seed": np.int64(3), "d": np.int32(5)}),
        Job("simulate", (TASK, ndl.KeyValueAttention(ERF.activation.to_json(), unit_norm=True), DESCENT), OPTIONS),
        Job("simulate", (ndl.SpikedSLR({2: 1.0}, np.float32(1)).replace(noise=0.3), ERF, DESCENT), OPTIONS),
    ],
    ids=["numbers", "order", "numpy options", "mappings", "numpy fields"],
)
def test_another_spelling_has_the_same_id(other):
    assert other.id == Job("simulate", QUESTION, OPTIONS).id


def test_arrays_lists_and_tuples_of_the_same_numbers_are_one_question():
    grids = (np.array([[0.1, 0.2], [0.3, 0.4]]), [[0.1, 0.2], [0.3, 0.4]], ((0.1, 0.2), (0.3, 0.4)))
    assert len({job(key=g, value=g).id for g in grids}) == 1


def test_ids_are_the_same_in_every_process():
    code = (
        "import needlepoint as ndl; from needlepoint.studies.execution.jobs import Job, Unit\n"
        "q = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population())\n"
        "a = Job('predict', q, {'seed': 0}); b = Job('simulate', q, {'d': 5, 'key': [0.1]}, follow=a)\n"
        "print(a.id, b.id, Unit([a, b], (1, 1)).id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}
    )
    a = job(seed=0)
    b = Job("simulate", a.question, {"d": 5, "key": np.array([0.1])}, follow=a)
    assert done.stdout.split() == [a.id, b.id, Unit([a, b], (1, 1)).id]


# --- other questions -----------------------------------------------------------------------------


def variants():
    """The question and everything that differs from it in one place."""
    yield "itself", Job("simulate", QUESTION, OPTIONS)
    yield "verb", Job("predict", QUESTION, OPTIONS)
    for name, value in OPTIONS.items():
        yield f"option {name}", Job("simulate", QUESTION, {**OPTIONS, name: value + 1})
        yield f"no {name}", Job("simulate", QUESTION, {k: v for k, v in OPTIONS.items() if k != name})
    yield "another option", Job("simulate", QUESTION, {**OPTIONS, "overlaps": None})
    fields = {
        "task": {"tokens": [3, {2: 0.5, 3: 0.5}], "snr": [1 + 1e-15, 2], "relevant_std": [0.5], "noise": [0.0, 0.4]},
        "model": {"activation": [ndl.Softmax(), ndl.Erf(0.5, 1e-300), ndl.Erf(None)], "unit_norm": [False]},
        "learner": {
            "lr": [0.02],
            "steps": [5],
            "start": ["manifold"],
            "schedule": [0.1],
            "record_every": [2],
            "d": [9],
            "runs": [4],
        },
    }
    for i, (part, changes) in enumerate(fields.items()):
        assert {f.name for f in dataclasses.fields(QUESTION[i])} == set(changes), f"a field of {part} has no change"
        for name, values in changes.items():
            for value in values:
                question = list(QUESTION)
                question[i] = QUESTION[i].replace(**{name: value})
                yield f"{part}.{name}={value}", Job("simulate", tuple(question), OPTIONS)
    yield "another task", Job("simulate", (ndl.MaxSLR(2, 1.0, 0.3), ERF, DESCENT), OPTIONS)
    yield "no model", Job("simulate", (TASK, None, DESCENT), OPTIONS)
    yield "no learner", Job("simulate", (TASK, ERF, None), OPTIONS)
    first, second = Job("predict", QUESTION, {"seed": 0}), Job("predict", QUESTION, {"seed": 1})
    yield "following", Job("simulate", QUESTION, OPTIONS, first)
    yield "following another", Job("simulate", QUESTION, OPTIONS, second)


def test_any_change_is_another_id():
    ids = {name: made.id for name, made in variants()}
    assert len(ids) > 30
    for (a, first), (b, second) in itertools.combinations(ids.items(), 2):
        assert first != second, (a, b)


def test_new_numbers_of_the_library_are_new_questions(monkeypatch):
    before = job().id
    monkeypatch.setattr(jobs, "NUMBERS_VERSION", jobs.NUMBERS_VERSION + 1)
    assert job().id != before


@quick
@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_ids_are_equal_exactly_where_the_numbers_are(a, b):
    assert (job(a).id == job(b).id) == (a == b)
    assert (job(tol=a).id == job(tol=b).id) == (str(a) == str(b))


@quick
@given(st.data())
def test_every_array_entry_counts(data):
    shape = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 60)))
    array = np.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
    place = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    moved = array.copy()
    moved[place] = np.nextafter(moved[place], 2)
    assert job(key=array).id != job(key=moved).id
    assert job(key=array).id == job(key=array.copy()).id
    assert job(key=array, value=moved).id != job(key=moved, value=array).id


# --- units ---------------------------------------------------------------------------------------

JOBS = [job(snr) for snr in (1.0, 2.0, 3.0, 4.0)]


def test_a_job_by_itself_is_its_own_unit():
    unit = Unit([JOBS[0]])
    assert (unit.chunk, unit.id) == ("", JOBS[0].id)
    assert Unit([JOBS[0]], (1,)).id != JOBS[0].id  # solved by the batched rule: another answer to the last digit


def test_chunk_ids_depend_on_company_order_and_curves():
    made = [
        Unit(JOBS, (4,)),
        Unit(JOBS, (2, 2)),
        Unit(JOBS, (1, 3)),
        Unit(JOBS[::-1], (4,)),
        Unit(JOBS[:3], (3,)),
        Unit([*JOBS[:3], job(5.0)], (4,)),
        *(Unit([j], (1,)) for j in JOBS),
    ]
    assert len({unit.id for unit in made}) == len(made)
    assert all(unit.id == unit.chunk for unit in made)
    assert Unit([job(snr) for snr in (1, 2, 3, 4)], (4,)).id == made[0].id


@quick
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_chunks_are_equal_exactly_where_their_orders_are(a, b):
    first, second = (Unit([JOBS[i] for i in order], (4,)) for order in (a, b))
    assert (first.chunk == second.chunk) == (a == b)


def test_digests_do_not_run_parts_together():
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest(["ab", "c"]), digest("ab", "c", None)}) == 5
    assert len(digest("x")) == 24

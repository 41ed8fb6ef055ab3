"""The plan of a study: every point once, chunks and seeds that are a function of the study alone."""

import itertools
import json
import math
import re
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needlepoint as ndl
from needlepoint.studies import sweeps
from needlepoint.studies.refining import Refine
from needlepoint.studies.sweeps import CHUNK, CURVE, Simulation, Sweep, plan

TASK, LINEAR, LEARNER = ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population()
SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
ALSO = Simulation(d=(5, 6), repeats=3, seed=4, samples=50)
quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def made(over, also=None, refine=None, base=(TASK, LINEAR, LEARNER), **options):
    return Sweep.of(*base, over, also, refine, **options)


def read_again(sweep):
    return Sweep.from_json(json.loads(json.dumps(sweep.to_json(), allow_nan=False)))


# --- chunks of curves ----------------------------------------------------------------------------


def planned(curves, curve=3, chunk=7):
    """The plan of curves of (shape, number) pairs; shape None is not batched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "_shape", lambda question: question[0])
        patch.setattr(sweeps, "CURVE", curve)
        patch.setattr(sweeps, "CHUNK", chunk)
        jobs = ((SimpleNamespace(question=q) for q in one) for one in curves)
        return [([job.question for job in unit.jobs], unit.curves) for unit in plan(jobs)]


@st.composite
def curve_lists(draw):
    number = itertools.count()
    shapes = st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12)
    return [[(shape, next(number)) for shape in one] for one in draw(st.lists(shapes, max_size=6))]


@pytest.mark.exact
@quick
@given(curve_lists(), st.integers(1, 5), st.integers(1, 12))
def test_every_point_is_in_exactly_one_unit(curves, curve, chunk):
    units = planned(curves, curve, chunk)
    assert sorted(n for jobs, _ in units for _, n in jobs) == [n for one in curves for _, n in one]
    where = {n: (i, j) for i, one in enumerate(curves) for j, (_, n) in enumerate(one)}
    for jobs, counts in units:
        assert len({shape for shape, _ in jobs}) == 1
        if jobs[0][0] is None:
            assert (len(jobs), counts) == (1, ())
            continue
        assert sum(counts) == len(jobs) <= max(chunk, curve)
        assert max(counts) <= curve
        numbers = iter(jobs)
        for count in counts:  # a piece is a stretch of one curve
            piece = [where[n] for _, n in itertools.islice(numbers, count)]
            assert piece == [(piece[0][0], piece[0][1] + i) for i in range(count)]


@quick
@given(curve_lists())
def test_a_plan_is_the_same_twice(curves):
    assert planned(curves) == planned(curves)


def test_pieces_are_as_long_as_they_may_be():
    curves = [[("a", i) for i in range(8)], [("a", i) for i in range(8, 12)]]
    assert [counts for _, counts in planned(curves)] == [(3, 3), (2, 3), (1,)]
    broken = [[("a", 0), ("a", 1), ("b", 2), ("a", 3), (None, 4), ("a", 5)]]
    assert {jobs[0][0]: counts for jobs, counts in planned(broken)} == {None: (), "a": (2, 1, 1), "b": (1,)}


def test_full_chunks_leave_before_the_sweep_is_read_to_the_end():
    """A study of a million points is planned as it goes."""
    read = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "_shape", lambda question: "a")
        endless = ((SimpleNamespace(question=(next(read),)) for _ in range(CURVE)) for _ in itertools.count())
        first = next(plan(endless))
    assert len(first.jobs) == CHUNK
    assert set(first.curves) == {CURVE}
    assert next(read) <= CHUNK + CURVE


@pytest.mark.parametrize("length", [10, 16, 25])
def test_chunks_of_the_real_sizes(length):
    units = planned([[("a", 100 * i + j) for j in range(length)] for i in range(200)], CURVE, CHUNK)
    sizes = [len(jobs) for jobs, _ in units]
    assert sum(sizes) == 200 * length
    assert all(CHUNK - CURVE < n <= CHUNK for n in sizes[:-1])  # a curve is not cut to fill a chunk up
    assert all(max(counts) <= CURVE for _, counts in units)


# --- units of a sweep ----------------------------------------------------------------------------

OVERS = {
    "grid": {"task.snr": [1, 2, 5], "task.tokens": [2, 3]},
    "list": [{"task.snr": 1, "task.tokens": 3}, {"task.snr": 2, "task.tokens": 2}, {"task.snr": 3, "task.tokens": 3}],
    "parts": {"task": [TASK, ndl.MaxSLR(2, math.inf)], "task.noise": [0.0, 0.5]},
}


def keyed(question):
    """A stand-in for static keys: the task's type and lengths, nothing for three tokens."""
    task = question[0]
    return None if task.tokens == 3 else (type(task), task.tokens)


@pytest.fixture(params=["one by one", "batched"])
def shapes(request, monkeypatch):
    monkeypatch.setattr(sweeps, "_shape", keyed if request.param == "batched" else lambda question: None)
    return request.param


@pytest.mark.parametrize("over", OVERS.values(), ids=OVERS)
def test_every_prediction_is_in_exactly_one_unit(shapes, over):
    sweep = made(over)
    units = list(sweep.theory_units())
    found = [job.id for unit in units for job in unit.jobs]
    assert sorted(found) == sorted(sweep.prediction(at).id for at in sweep.axes.points())
    assert len(set(found)) == len(found) == len(sweep.axes)
    for unit in units:
        keys = {keyed(job.question) for job in unit.jobs} if unit.curves else {None}
        assert len(keys) == 1
    assert any(unit.curves for unit in units) == (shapes == "batched")


@pytest.mark.parametrize("over", OVERS.values(), ids=OVERS)
def test_the_plan_is_a_function_of_the_study_alone(shapes, over):
    sweep = made(over, ALSO)
    plans = [[u.id for u in s.theory_units()] for s in (sweep, made(over, ALSO), read_again(sweep), made(over))]
    assert plans[1:] == plans[:1] * 3
    seeds = [[u.id for u in s.simulation_units()] for s in (sweep, made(over, ALSO), read_again(sweep))]
    assert seeds[1:] == seeds[:1] * 2
    assert plans[0] != [u.id for u in made(over, seed=1).theory_units()]


def test_curves_follow_the_last_real_axis(monkeypatch):
    monkeypatch.setattr(sweeps, "_shape", lambda question: "all")
    snr, tokens, noise = (1.0, 2.0, 5.0), (2, 3), (0.1, 0.2)
    (unit,) = made({"task.noise": noise, "task.snr": snr, "task.tokens": tokens}).theory_units()
    assert unit.curves == (3,) * 4
    found = [(job.question[0].noise, job.question[0].tokens, job.question[0].snr) for job in unit.jobs]
    assert found == list(itertools.product(noise, tokens, snr))


def test_refined_points_are_planned_one_by_one_along_no_curve(monkeypatch):
    monkeypatch.setattr(sweeps, "_shape", lambda question: "all")
    sweep = made({"task.snr": [1, 2]})
    (unit,) = sweep.theory_units([(1.5,), (1.25,)])
    assert unit.curves == (1, 1)
    assert [job.question[0].snr for job in unit.jobs] == [1.5, 1.25]


def test_real_questions_with_one_static_key_share_a_chunk():
    """Erf with free norms has batched theory; softmax has none."""
    base = (TASK, ndl.KeyValueAttention(ndl.Erf(offset=1.0)), LEARNER)
    activations = [ndl.Erf(offset=1.0), ndl.Softmax()]
    units = list(made({"task.snr": [1, 2, 5], "model.activation": activations}, base=base).theory_units())
    assert sorted((len(u.jobs), u.curves) for u in units) == [(1, ())] * 3 + [(3, (3,))]


def test_options_of_predictions():
    assert made({"task.snr": [1]}).prediction((1.0,)).options == {"seed": 0}
    assert made({"task.snr": [1]}, seed=3, tol=1e-6).prediction((1.0,)).options == {"seed": 3, "tol": 1e-6}


# --- simulations ---------------------------------------------------------------------------------


def seeds(sweep):
    return [unit.jobs[0].options["seed"] for unit in sweep.simulation_units()]


@pytest.mark.parametrize("over", OVERS.values(), ids=OVERS)
def test_every_seed_is_a_unit_with_its_own_number(over):
    sweep = made(over, ALSO)
    units = list(sweep.simulation_units())
    assert all(len(u.jobs) == 1 and u.curves == () for u in units)
    assert len(units) == len(sweep.axes) * 2 * 3 == len(sweep) - len(sweep.axes)
    assert len(set(seeds(sweep))) == len(units) == len({u.id for u in units})
    assert all(0 <= s < 2**53 for s in seeds(sweep))
    for unit in units:
        job = unit.jobs[0]
        assert (job.verb, job.options["repeats"], job.options["samples"]) == ("simulate", 1, 50)
        assert job.options["d"] in (5, 6)
        assert job.follow.question == job.question
        assert job.follow.id == Sweep.prediction(sweep, at_of(sweep, job)).id


def at_of(sweep, job):
    return next(at for at in sweep.axes.points() if sweep.axes.question(at) == job.question)


def test_seeds_stay_when_the_study_grows():
    few = seeds(made({"task.snr": [1, 5]}, Simulation(d=5, repeats=2)))
    many = seeds(made({"task.snr": [1, 2, 5]}, Simulation(d=(5, 6), repeats=4)))
    assert set(few) < set(many)
    assert not set(few) & set(seeds(made({"task.snr": [1, 5]}, Simulation(d=5, repeats=2, seed=1))))
    assert not set(few) & set(seeds(made({"task.snr": [1, 5]}, Simulation(d=5, repeats=2), seed=1)))


def test_simulations_only_where_they_are_asked_for():
    also = Simulation(d=5, repeats=2, at={"task.snr": [1, 5], "task.tokens": (3,)})
    sweep = made({"task.snr": [1, 2, 5], "task.tokens": [2, 3]}, also)
    assert sweep.also.at == {"task.snr": (1.0, 5.0), "task.tokens": (3,)}
    found = [(u.jobs[0].question[0].snr, u.jobs[0].question[0].tokens) for u in sweep.simulation_units()]
    assert found == [(1.0, 3)] * 2 + [(5.0, 3)] * 2
    assert len(sweep) == 6 + 4
    assert sweep.simulations((2.0, 3), sweep.prediction((2.0, 3))) == []
    assert [len(jobs) for jobs in sweep.simulations((5.0, 3), sweep.prediction((5.0, 3)))] == [2]


def test_sizes_are_a_tuple():
    assert Simulation(d=5).sizes == Simulation(d=[5]).sizes == (5,)
    assert Simulation(d=(5, 7.0)).d == (5, 7)
    assert type(Simulation(d=5.0).sizes[0]) is int


BAD = {
    "no size": ({"d": ()}, "Simulation(d=()): give at least one d."),
    "d of one": ({"d": 1}, "Simulation(d=1): d must be a whole number >= 2."),
    "half a dimension": ({"d": (5, 2.5)}, "Simulation(d=2.5): d must be a whole number"),
    "a word": ({"d": "5"}, "Simulation(d='5'): d must be a whole number"),
    "none": ({"d": None}, "Simulation(d=None): d must be a whole number"),
    "a size twice": ({"d": (5, 5)}, "Simulation(d=(5, 5)): a size is given twice."),
    "no repeats": ({"d": 5, "repeats": 0}, "Simulation(repeats=0): repeats must be a whole number >= 1."),
    "half a repeat": ({"d": 5, "repeats": 1.5}, "Simulation(repeats=1.5)"),
    "no samples": ({"d": 5, "samples": 0}, "Simulation(samples=0)"),
    "negative seed": ({"d": 5, "seed": -1}, "Simulation(seed=-1): seed must be a whole number >= 0."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_simulations_are_one_sentence(case):
    fields, phrase = BAD[case]
    with pytest.raises(ndl.InvalidParameter, match=re.escape(phrase)):
        Simulation(**fields)


BAD_AT = {
    "not swept": ({"task.noise": [0]}, "Simulation(at={'task.noise': ...}): it is not swept over; over has task.snr."),
    "not a value": ({"task.snr": [3]}, "Simulation(at={'task.snr': ...}): 3.0 is not among the swept values."),
    "scalar": ({"task.snr": 1}, "over['task.snr']=1: give a list of values"),
    "empty": ({"task.snr": []}, "there is nothing to sweep"),
    "refused": ({"task.snr": [-1]}, "snr must be >= 0"),
}


@pytest.mark.parametrize("case", BAD_AT)
def test_bad_places_are_one_sentence(case):
    at, phrase = BAD_AT[case]
    with pytest.raises(ndl.InvalidParameter, match=re.escape(phrase)):
        made({"task.snr": [1, 2]}, Simulation(d=5, at=at))


def test_places_that_are_no_mapping_are_refused():
    with pytest.raises(ndl.InvalidParameter, match="at"):
        made({"task.snr": [1, 2]}, Simulation(d=5, at=[1]))


def test_whole_numbers_may_be_written_as_floats():
    """As everywhere else in the library, and as TOML may have them."""
    assert Simulation(d=5, repeats=2.0, samples=50.0, seed=0.0) == Simulation(d=5, repeats=2, samples=50)
    a, b = (seeds(made({"task.snr": [1]}, Simulation(d=5, repeats=n))) for n in (2, 2.0))
    assert a == b


def test_other_things_in_their_places_are_refused():
    with pytest.raises(ndl.InvalidParameter, match=r"sweep\(also=16\): write it as Simulation\(d=\.\.\., repeats"):
        made({"task.snr": [1]}, 16)
    with pytest.raises(ndl.InvalidParameter, match=r"sweep\(refine='status'\): write it as Refine\("):
        made({"task.snr": [1, 2]}, None, "status")
    with pytest.raises(ndl.InvalidParameter, match=r"sweep\(seed=-1\): seed must be a whole number"):
        made({"task.snr": [1]}, seed=-1)
    with pytest.raises(ndl.InvalidParameter, match=r"sweep\(model=Population\(\)\): this is a learner, not a model"):
        made({"task.snr": [1]}, base=(TASK, LEARNER, LEARNER))


def test_a_combination_that_cannot_be_simulated_is_refused(monkeypatch):
    from needlepoint.core import dispatch

    made({"task.snr": [1]}, ALSO)  # loads the rules
    rules = {key: rule for key, rule in dispatch._RULES.items() if key[:3] != ("simulate", ndl.SpikedSLR, type(LINEAR))}
    monkeypatch.setattr(dispatch, "_RULES", rules)
    assert len(made({"task.snr": [1]})) == 1
    with pytest.raises(ndl.NoTheory, match=r"no rule for simulate\(SpikedSLR, LinearRegression, Population\)"):
        made({"task.snr": [1]}, ALSO)


# --- writing it down -----------------------------------------------------------------------------

WRITTEN = {
    "grid": lambda: made({"task.snr": [1, 0.1 + 0.2], "task.tokens": [2, 3]}),
    "list": lambda: made([{"task.snr": 1, "task.noise": 0.1}, {"task.snr": 1, "task.noise": 0.2}]),
    "infinite": lambda: made({"task.snr": [1, math.inf]}, base=(ndl.MaxSLR(2, 1.0), SOFTMAX, LEARNER)),
    "lengths": lambda: made({"task.tokens": [2, {2: 0.5, 3: 0.5}]}, base=(TASK, SOFTMAX, LEARNER)),
    "specs": lambda: made({"model": [LINEAR, SOFTMAX], "task": [TASK, ndl.MaxSLR(3, 1.0)]}),
    "no model": lambda: made({"learner.d": [None, 5]}, base=(TASK, None, ndl.BayesOptimal())),
    "simulated": lambda: made(
        {"task.snr": [1, 2]}, Simulation(d=(5, 6), repeats=2, at={"task.snr": [2]}), seed=3, tol=1e-7
    ),
    "refined": lambda: made({"task.snr": [1, 2]}, None, Refine("risk", 2, 0.5)),
}


@pytest.mark.exact
@pytest.mark.parametrize("case", WRITTEN)
def test_a_study_is_read_as_it_was_written(case):
    sweep = WRITTEN[case]()
    again = read_again(sweep)
    assert again == sweep
    assert again.to_json() == sweep.to_json()
    assert list(again.axes.points()) == list(sweep.axes.points())
    assert [u.id for u in again.theory_units()] == [u.id for u in sweep.theory_units()]


@pytest.mark.negative
def test_studies_that_differ_are_not_equal():
    for a, b in itertools.combinations([make() for make in WRITTEN.values()], 2):
        assert a != b
    assert made({"task.snr": [1]}) != made({"task.snr": [1]}, tol=1e-7)

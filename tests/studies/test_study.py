"""Studies from end to end: the numbers are those of the verbs, nothing is computed twice, and nothing is lost."""

import json
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.results import mean_estimate
from needlepoint.core.specs import from_json
from needlepoint.studies import sweeps
from needlepoint.studies.execution import executors
from needlepoint.studies.execution.jobs import Job, Unit
from needlepoint.studies.execution.work import message, solve
from needlepoint.studies.storage.codec import decode
from needlepoint.studies.storage.store import Store
from needlepoint.studies.study import Study

from study_cases import ALSO, BASE, HARD, LEARNER, LINEAR, OVER, SOFTMAX, TASK, documents, swept


class Unlucky:
    """A verb that fails at some tasks, until it is repaired."""

    def __init__(self, monkeypatch, verb, bad, error=None):
        self.broken, self.asked = True, []
        honest = getattr(ndl, verb)

        def call(task, *args, **options):
            self.asked.append(task)
            if self.broken and bad(task):
                raise error or ndl.InvalidParameter(f"{task!r}: not today.")
            return honest(task, *args, **options)

        monkeypatch.setattr(ndl, verb, call)


@pytest.mark.exact
def test_predictions_are_those_of_predict():
    study = swept(seed=4)
    points = list(study.points())
    assert [tuple(p.at.values()) for p in points] == [(s, n) for s in (1.0, 2.0, 5.0) for n in (0.1, 0.3)]
    for p in points:
        direct = ndl.predict(ndl.SpikedSLR(2, p.at["task.snr"], noise=p.at["task.noise"]), SOFTMAX, LEARNER, seed=4)
        assert p.prediction.to_json() == direct.to_json()
        assert p.prediction.risk == direct.risk
        assert (p.measurements, p.message, p.comparison) == ((), "", None)
    assert len({p.prediction.risk.value for p in points}) == 6


@pytest.mark.exact
def test_pooled_simulations_are_means_of_simulate_at_the_stored_seeds():
    study = swept(also=ALSO)
    seeds = {}
    for row in study.store.rows("verb = 'simulate'"):
        options = json.loads(row["options"])
        assert options["seed"] == row["seed"]
        seeds.setdefault((row["task"], options["d"]), []).append(row["seed"])
    for p in study.points():
        assert [m.d for m in p.measurements] == [5, 6]
        for m in p.measurements:
            task, model, learner = p.prediction.resolved
            mine = seeds[next(t for t, d in seeds if json.loads(t) == task.to_json() and d == m.d), m.d]
            assert len(set(mine)) == 3
            runs = [
                ndl.simulate(task, model, learner, d=m.d, repeats=1, samples=50, seed=s, overlaps=p.prediction.overlaps)
                for s in mine
            ]
            for name in m.metrics:
                direct = mean_estimate(np.array([r.metrics[name].value for r in runs]))
                # the rows are not in the order of the seeds: the sums differ by rounding
                assert m.metrics[name].value == pytest.approx(direct.value, rel=1e-14)
                assert m.metrics[name].error == pytest.approx(direct.error, rel=1e-12)
            assert (m.repeats, m.overlaps) == (3, p.prediction.overlaps)
        assert p.comparison.to_json() == ndl.compare(p.prediction, list(p.measurements)).to_json()


@pytest.mark.montecarlo
def test_theory_and_simulation_agree():
    study = swept({"task.snr": [1, 4]}, (TASK, LINEAR, LEARNER), also=ndl.Simulation(d=5, repeats=16, samples=50))
    for p in study.points():
        (m,) = p.measurements
        assert m.risk.error < 0.01 * m.risk.value
    assert study.worst < 5
    assert study.worst == max(p.comparison.worst for p in study.points())


def test_descent_trains_at_every_seed():
    """Its weights come from training: a simulation takes the prediction's specs, not its overlaps."""
    erf = ndl.KeyValueAttention(ndl.Erf(0.5), unit_norm=True)
    base = (ndl.SpikedSLR(2, 4.0), erf, ndl.ProjectedDescent(0.01, 4, "sphere", d=8, runs=3))
    study = swept({"learner.lr": [0.01, 0.02]}, base, also=ndl.Simulation(d=8, repeats=2, samples=50))
    assert study.failures() == []
    for p in study.points():
        (m,) = p.measurements
        assert m.trajectory.runs == 2
        assert m.overlaps != p.prediction.overlaps


@pytest.mark.exact
def test_what_the_library_chooses_is_what_is_simulated():
    """A simulation is asked for the resolved specs, and for the optimum's weights where these are given by theory."""
    free = (TASK, ndl.KeyValueAttention(ndl.Erf(scale=None), unit_norm=True), LEARNER)
    chosen = (TASK, ndl.KeyValueAttention(ndl.Erf(0.4), unit_norm=True), LEARNER)
    before = Job("predict", free, {"seed": 0})
    overlaps = ndl.Overlaps(0.6, 0.7)
    prediction = ndl.Prediction(*free, {}, overlaps=overlaps, resolved=chosen)
    unit = Unit([Job("simulate", free, {"d": 5, "repeats": 1, "seed": 9}, before)])
    (call,) = message(unit, {before.id: prediction})["calls"]
    assert [from_json(s) for s in call["specs"]] == list(chosen)
    assert decode(call["options"], {}) == {"d": 5, "repeats": 1, "seed": 9, "overlaps": overlaps}
    assert call["id"] == unit.jobs[0].id


def test_a_list_of_points():
    rows = [{"task.snr": 3, "model": SOFTMAX}, {"task.snr": 1, "model": LINEAR}, {"task.snr": 2, "model": SOFTMAX}]
    study = swept(rows, also=ndl.Simulation(d=5, repeats=2, samples=50, at={"model": [LINEAR]}))
    points = list(study.points())
    assert [p.at for p in points] == [dict(row, **{"task.snr": float(row["task.snr"])}) for row in rows]
    assert [len(p.measurements) for p in points] == [0, 1, 0]
    assert (study.grid, len(study)) == (False, 3)
    assert points[1].prediction.risk == ndl.predict(TASK, LINEAR, LEARNER).risk


def test_a_second_run_computes_nothing(path, monkeypatch):
    with swept(also=ALSO, store=path) as first:
        before = documents(first)
    monkeypatch.setattr(executors, "solve", lambda *a: pytest.fail("computed"))
    tallies = []
    with swept(also=ALSO, store=path, report=lambda t: tallies.append((t.done, t.reused))) as again:
        assert documents(again) == before
        assert tallies[-1] == (6 + 36, 6 + 36)
        assert {row["times"] for row in again.store.rows()} == {1}


def test_memory_and_file_have_the_same_numbers(path):
    with swept(also=ALSO, store=path) as kept, swept(also=ALSO) as passing:
        assert documents(kept) == documents(passing)
        assert not passing.store.kept


@pytest.mark.parametrize("after", [1, 6, 9])
def test_an_interrupted_study_goes_on_and_ends_with_the_same_numbers(path, monkeypatch, computed, after):
    undisturbed = documents(swept(also=ALSO))
    computed.clear()

    def stop(tally):
        if tally.done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(also=ALSO, store=path, report=stop)
    done = len(computed)
    assert done == after
    with Store(path) as store:
        assert sum(store.counts().values()) == done
        assert store._one("SELECT count(*) FROM claims") == 0
    with swept(also=ALSO, store=path) as study:
        assert len(computed) == 42
        assert documents(study) == undisturbed
        assert {row["times"] for row in study.store.rows()} == {1}


def test_an_interrupted_unit_is_given_back_at_once(path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    definition = sweeps.Sweep.of(*BASE, OVER)
    with Study(definition, Store(path)) as study, Store(path) as other:
        with monkeypatch.context() as patch:
            patch.setattr(executors, "solve", interrupted)
            with pytest.raises(KeyboardInterrupt):
                study.run()
        assert study.store.counts() == {}
        assert other.claim(next(definition.theory_units()))


def test_an_interrupted_sweep_keeps_its_definition_and_closes_its_store(path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(executors, "solve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            swept(store=path)
    with ndl.open_study(path) as study:
        assert study.store._one("SELECT count(*) FROM owners") == 0
        assert study.run().done == 6
        assert documents(study) == documents(swept())


def test_a_larger_grid_takes_what_is_there(path, computed):
    swept({"task.snr": [1, 5]}, also=ndl.Simulation(d=5, repeats=2, samples=50), store=path).close()
    assert len(computed) == 2 + 4
    computed.clear()
    with swept({"task.snr": [1, 2, 5]}, also=ndl.Simulation(d=5, repeats=3, samples=50), store=path) as study:
        assert len(computed) == 1 + (2 + 3)
        assert [len(p.measurements) for p in study.points()] == [1, 1, 1]
        assert study.failures() == []
    assert (
        documents(study_of(path))[0]
        == documents(swept({"task.snr": [1, 2, 5]}, also=ndl.Simulation(d=5, repeats=3, samples=50)))[0]
    )


def study_of(path):
    return ndl.open_study(path, readonly=True)


def test_points_that_another_process_finishes_in_the_meantime_are_taken_over(path, computed):
    """Two runs on one file: what the other has claimed is waited for, what it gives up is computed."""
    definition = sweeps.Sweep.of(*BASE, OVER)
    with Store(path) as other:
        units = list(definition.theory_units())
        assert other.claim(units[0])
        assert other.claim(units[1])

        def report(tally):
            if tally.done == 4:  # all that is free is done
                other.put(units[0], solve(message(units[0], {})))
                other.release(units[1])

        with Study(definition, Store(path)) as study:
            tally = study.run(report=report)
            assert (tally.done, tally.reused, len(computed)) == (6, 1, 5)
            assert study.failures() == []
            assert {row["times"] for row in study.store.rows()} == {1}


def test_failed_points_stay_and_a_retry_computes_only_them(path, monkeypatch, computed):
    verb = Unlucky(monkeypatch, "predict", lambda task: task.snr == 2.0)
    with swept(store=path) as study:
        bad = [p for p in study.points() if p.message]
        assert [tuple(p.at.values()) for p in bad] == [(2.0, 0.1), (2.0, 0.3)]
        assert all(p.prediction is None for p in bad)
        assert study.failures() == [(dict(p.at), p.message) for p in bad]
        assert bad[0].message == f"{ndl.SpikedSLR(2, 2.0, noise=0.1)!r}: not today."
        assert study.store.counts() == {("done", "CONVERGED"): 4, ("failed", "InvalidParameter"): 2}
    verb.broken = False
    computed.clear()
    with swept(store=path) as again:  # without retry they stay as they are
        assert computed == []
        assert len(again.failures()) == 2
        tally = again.run(retry=True)
        assert len(computed) == 2
        assert (tally.total, tally.done, tally.reused, tally.failed) == (6, 6, 4, 0)
        assert again.failures() == []
        assert documents(again) == documents(swept())
        assert sorted(row["times"] for row in again.store.rows()) == [1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ZeroDivisionError("a\nb"), "ZeroDivisionError", "ZeroDivisionError: a b"),
        (MemoryError(), "MemoryError", "this needs more memory than there is."),
        (ndl.NoTheory("nothing"), "NoTheory", "nothing"),
    ],
    ids=["a defect", "memory", "a sentence"],
)
def test_whatever_a_point_raises_is_one_sentence_and_the_others_go_on(monkeypatch, error, status, text):
    Unlucky(monkeypatch, "predict", lambda task: task.snr == 2.0, error)
    study = swept({"task.snr": [1, 2, 5]})
    assert study.failures() == [({"task.snr": 2.0}, text)]
    assert study.store.counts() == {("done", "CONVERGED"): 2, ("failed", status): 1}


def test_simulations_of_a_failed_prediction_say_so_and_follow_it_when_it_is_repaired(monkeypatch):
    verb = Unlucky(monkeypatch, "predict", lambda task: task.snr == 2.0)
    study = swept({"task.snr": [1, 2]}, also=ndl.Simulation(d=5, repeats=2, samples=50))
    good, bad = study.points()
    assert (len(good.measurements), bad.measurements) == (1, ())
    row = next(iter(study.store.rows("status = 'NoPrediction'")))
    assert row["message"].startswith("its prediction failed: SpikedSLR(")
    verb.broken = False
    study.run(retry=True)
    assert study.failures() == []
    assert [len(p.measurements) for p in study.points()] == [1, 1]


def test_a_seed_that_failed_is_told_and_the_others_are_pooled(monkeypatch):
    verb = Unlucky(monkeypatch, "simulate", lambda task: len(verb.asked) == 2)
    study = swept({"task.snr": [1]}, also=ndl.Simulation(d=5, repeats=3, samples=50))
    (p,) = study.points()
    assert p.measurements[0].repeats == 2
    assert p.message.startswith("1 of 3 seeds: SpikedSLR(")
    assert len(study.failures()) == 1


def test_an_optimum_that_is_not_attained_has_no_simulations_and_the_others_go_on():
    study = swept({"task.snr": [1, math.inf, 2]}, HARD, also=ndl.Simulation(d=5, repeats=2, samples=50))
    first, hard, last = study.points()
    assert hard.prediction.status is ndl.Status.UNBOUNDED
    assert (hard.prediction.overlaps, hard.measurements, hard.comparison) == (None, (), None)
    sentence = "2 of 2 seeds: its prediction is UNBOUNDED and has no weights to measure at."
    assert study.failures() == [({"task.snr": math.inf}, sentence)]
    assert [len(p.measurements) for p in (first, last)] == [1, 1]
    counts = {("done", "CONVERGED"): 6, ("done", "UNBOUNDED"): 1, ("failed", "NoPrediction"): 2}
    assert study.store.counts() == counts


def test_a_worker_that_is_lost_is_a_failed_point(monkeypatch):
    class Losing(executors.Serial):
        def wait(self, timeout):
            finished = super().wait(timeout)
            return [(n, "its worker died." if n == 2 else out) for n, out in finished]

    study = swept({"task.snr": [1, 2, 5]}, executor=Losing())
    assert study.failures() == [({"task.snr": 2.0}, "its worker died.")]
    assert study.store.counts()["failed", "WorkerLost"] == 1


LENGTHS = {"task.snr": [1, 2, 5], "task.tokens": [2, 3]}


@pytest.fixture
def batched(monkeypatch):
    """A stand-in for batched theory: one by one behind the interface; the number of batches is counted."""
    from needlepoint.theory import curves

    sizes = []

    def together(asked, *, progress, **options):
        sizes.append([len(curve) for curve in asked])
        return [[ndl.predict(*question, throw=False, **options) for question in curve] for curve in asked]

    monkeypatch.setattr(sweeps, "_shape", lambda question: question[0].tokens)
    monkeypatch.setattr(curves, "predict_curves", together)
    return sizes


@pytest.mark.exact
def test_chunks_are_solved_together_and_stored_point_by_point(batched, path):
    with swept(LENGTHS, store=path) as study:
        assert batched == [[3], [3]]
        rows = list(study.store.rows())
        assert len({row["chunk"] for row in rows}) == 2
        assert all(row["seconds"] > 0 for row in rows)
        assert [p.prediction.to_json() for p in study.points()] == [
            ndl.predict(*study.definition.axes.question(at)).to_json() for at in study.definition.axes.points()
        ]


def test_a_chunk_that_was_cut_off_is_computed_as_a_whole(batched, path, monkeypatch):
    swept(LENGTHS, store=path).close()
    with Store(path) as store:
        some = next(iter(store.rows()))["id"]
        store._db.execute("DELETE FROM points WHERE id = ?", (some,))
    batched.clear()
    with swept(LENGTHS, store=path) as study:
        assert batched == [[3]]
        assert sorted(row["times"] for row in study.store.rows()) == [1, 1, 1, 1, 2, 2]


def test_a_point_that_cannot_be_asked_is_alone_with_it(batched, monkeypatch):
    Unlucky(monkeypatch, "predict", lambda task: task.snr == 2.0)
    study = swept(LENGTHS)
    assert batched == [[3], [3]]
    assert [tuple(at.values()) for at, _ in study.failures()] == [(2.0, 2), (2.0, 3)]


def test_a_defect_in_a_batch_leaves_its_points_to_answer_for_themselves(batched, monkeypatch):
    Unlucky(monkeypatch, "predict", lambda task: task.snr == 2.0, ZeroDivisionError("a defect"))
    study = swept(LENGTHS)
    assert [tuple(at.values()) for at, _ in study.failures()] == [(2.0, 2), (2.0, 3)]

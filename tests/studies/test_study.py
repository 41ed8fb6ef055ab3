"""Studies from end to end: the numbers are those of the verbs, nothing is computed twice, and nothing is lost."""

import csv
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
from needlepoint.studies.execution.running import Tally
from needlepoint.studies.execution.work import message, solve
from needlepoint.studies.storage.codec import decode
from needlepoint.studies.storage.store import Store
from needlepoint.studies.study import Study

TASK, LEARNER = ndl.SpikedSLR(2, 1.0, noise=0.3), ndl.Population()
LINEAR, SOFTMAX = ndl.LinearRegression(), ndl.KeyValueAttention(ndl.Softmax())
BASE = (TASK, SOFTMAX, LEARNER)
OVER = {"task.snr": [1, 2, 5], "task.noise": [0.1, 0.3]}
ALSO = ndl.Simulation(d=(5, 6), repeats=3, samples=50)
HARD = (ndl.MaxSLR(2, 1.0), SOFTMAX, LEARNER)


def swept(over=OVER, base=BASE, **options):
    return ndl.sweep(*base, over, **options)


def documents(study):
    """What the store has of each point, without when and how long."""
    kept = ("id", "verb", "task", "model", "learner", "options", "chunk", "state", "status", "message", "seed")
    rows = {row["id"]: [row[name] for name in (*kept, "document")] for row in study.store.rows()}
    blobs = study.store._db.execute("SELECT point, name, data FROM blobs ORDER BY point, name").fetchall()
    metrics = study.store._db.execute("SELECT * FROM metrics ORDER BY point, name").fetchall()
    return rows, blobs, metrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.sqlite"


@pytest.fixture
def computed(monkeypatch):
    """The jobs that are computed, call by call."""
    calls = []

    def watched(unit, *args):
        calls.extend(unit["calls"])
        return honest(unit, *args)

    honest = executors.solve
    monkeypatch.setattr(executors, "solve", watched)
    return calls


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


# --- the numbers ---------------------------------------------------------------------------------


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


# --- the store -----------------------------------------------------------------------------------


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


# --- failures ------------------------------------------------------------------------------------


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


# --- batched theory ------------------------------------------------------------------------------


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


# --- refinement ----------------------------------------------------------------------------------

CONTOUR = ndl.Refine("excess_risk", levels=4, level=0.3)


@pytest.mark.exact
def test_refinement_finds_a_contour(computed):
    snr = [0.5, 1.0, 2.0, 4.0, 8.0]
    study = swept({"task.snr": snr, "task.tokens": [2, 3]}, refine=CONTOUR)
    assert len(computed) == 10 + 2 * 4 == len(study)  # one new point a level and slice; the full grid has 130
    assert not study.grid
    points = list(study.points())
    assert [p.at["task.snr"] for p in points[:10:2]] == snr
    for tokens in (2, 3):
        mine = sorted(
            (p.at["task.snr"], p.prediction.excess_risk.value) for p in points if p.at["task.tokens"] == tokens
        )
        below = max(x for x, risk in mine if risk > 0.3)
        above = min(x for x, risk in mine if risk <= 0.3)
        assert above / below == pytest.approx(2 ** (1 / 16), rel=1e-9)
        assert [x for x, _ in mine if below < x < above] == []


def test_a_refined_study_goes_on_and_is_read_again(path, computed):
    over = {"task.snr": [0.5, 1.0, 2.0, 4.0]}

    def stop(tally):
        if tally.done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(over, refine=CONTOUR, store=path, report=stop)
    with swept(over, refine=CONTOUR, store=path) as study:
        assert len(computed) == 4 + 4
        assert documents(study) == documents(swept(over, refine=CONTOUR))
    computed.clear()
    with ndl.open_study(path) as again:
        assert again.definition == study.definition
        assert len(again) == 8
        tally = again.run()
        assert (tally.total, tally.done, tally.reused, computed) == (8, 8, 8, [])


def test_refined_points_are_not_told_to_lack_simulations():
    study = swept({"task.snr": [0.5, 1, 2, 4]}, refine=CONTOUR, also=ndl.Simulation(d=5, repeats=2, samples=50))
    assert study.failures() == []


# --- the report ----------------------------------------------------------------------------------


def test_the_tally_counts_every_job_once(path):
    seen = []

    def report(tally):
        seen.append((tally.done, tally.total, tally.reused, tally.failed, tally.flagged, tally.last))
        assert tally.job is not None

    over = {"task.snr": [1, math.inf, 2]}
    also = ndl.Simulation(d=5, repeats=2, samples=50)
    swept(over, HARD, also=also, store=path, report=report).close()
    assert [s[0] for s in seen] == list(range(1, 10))
    assert {s[1] for s in seen} == {9}
    assert seen[-1][2:5] == (0, 2, 0)  # two seeds without weights to measure at; the infimum itself is known
    assert seen[1][5] == "UNBOUNDED"
    seen.clear()
    with ndl.open_study(path) as study:
        tally = study.run(report=report)
    assert (tally.done, tally.reused, tally.failed, tally.flagged) == (9, 9, 2, 0)
    assert seen[-1][:5] == (9, 9, 9, 2, 0)


def test_rate_and_time_left():
    tally = Tally(10, began=0.0)
    assert tally.left == math.inf
    tally.done, tally.reused = 4, 4
    assert tally.left == math.inf  # what was found says nothing about how long the rest takes
    tally.done = 6
    assert tally.rate > 0
    assert tally.left == pytest.approx(4 / tally.rate, rel=1e-3)


def test_a_study_as_text():
    study = swept(
        {"task.snr": np.linspace(1, 2, 9), "model": [SOFTMAX, LINEAR]},
        also=ndl.Simulation(d=5, repeats=1, samples=50, at={"task.snr": [1]}),
    )
    assert str(study).splitlines() == [
        f"Study: {TASK!r}, {SOFTMAX!r}, {LEARNER!r}",
        "  over          task.snr: 1, 1.125, ..., 2 (9 values)",
        f"  over          model: {SOFTMAX!r}, {LINEAR!r}",
        f"  also          {study.definition.also}",
        "  done          20 CONVERGED",
    ]
    assert repr(study) == str(study)
    refined = swept({"task.snr": [0.5, 8]}, refine=CONTOUR)
    assert f"  refine        {CONTOUR}" in str(refined)


# --- opening again -------------------------------------------------------------------------------


def test_a_study_is_opened_as_it_was_written(path):
    with swept(also=ALSO, store=path, seed=3) as study:
        table, shown = list(csv_rows(study, path.with_suffix(".csv"))), str(study)
    for readonly in (False, True):
        with ndl.open_study(path, readonly=readonly) as again:
            assert again.definition == study.definition
            assert str(again) == shown
            assert list(csv_rows(again, path.with_suffix(".csv"))) == table
            assert again.paths == ("task.snr", "task.noise")
            assert again.axes == {"task.snr": (1.0, 2.0, 5.0), "task.noise": (0.1, 0.3)}


def test_what_is_no_study_is_refused(path, tmp_path):
    with pytest.raises(ndl.InvalidParameter, match=r"there is no store .*study\.sqlite"):
        ndl.open_study(path)
    Store(path).close()
    with pytest.raises(ndl.InvalidParameter, match="has points but no study"):
        ndl.open_study(path)


def test_a_half_finished_study_can_be_read(path):
    def stop(tally):
        if tally.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(store=path, report=stop)
    with ndl.open_study(path) as study:
        points = list(study.points())
        assert [p.prediction is not None for p in points].count(True) == 2
        assert {p.message for p in points if p.prediction is None} == {"not computed yet."}
        table = study.to_dataframe()
        assert list(table["status"]).count("MISSING") == 4
        assert (study.to_xarray()["status"].values == -1).sum() == 4


# --- tables --------------------------------------------------------------------------------------


def csv_rows(study, path):
    study.to_csv(path)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def table_study():
    """A grid with simulations at some places, a point that is not attained, and several sizes."""
    also = ndl.Simulation(d=(5, 6), repeats=2, samples=50, at={"task.noise": [0.3]})
    return ndl.sweep(*HARD, {"task.snr": [1, math.inf, 2], "task.noise": [0, 0.3]}, also=also)


def expected_rows(study):
    """The long table from the points, written independently."""
    for p in study.points():
        for m in p.measurements or [None]:
            row = {"status": p.prediction.status.name, "risk": p.prediction.risk.value, **p.at}
            row["risk_error"] = p.prediction.risk.error
            if p.prediction.overlaps is not None:
                row["overlaps.key"] = p.prediction.overlaps.key
            if m is not None:
                z = next(r.z for r in p.comparison.rows if (r.metric, r.d) == ("risk", m.d))
                row |= {"d": m.d, "repeats": 2, "measured_risk": m.risk.value, "measured_risk_error": m.risk.error}
                row |= {"z_risk": z, "measured_status": "CONVERGED"}
            yield row


def test_csv_has_every_number_to_the_last_digit(table_study, tmp_path):
    rows, expected = csv_rows(table_study, tmp_path / "x.csv"), list(expected_rows(table_study))
    assert len(rows) == len(expected) == 8  # 6 points, two of which have two sizes
    for row, want in zip(rows, expected, strict=True):
        for name, value in want.items():
            assert type(value)(row[name]) == value, name
        for name in set(row) & {"d", "measured_risk", "overlaps.key"} - set(want):
            assert row[name] == ""
    assert [row["message"] for row in rows if row["status"] == "UNBOUNDED"] == [
        "the Bayes risk, approached as the norm of the key goes to infinity.",
        "2 of 2 seeds: its prediction is UNBOUNDED and has no weights to measure at.",
    ]


def test_data_frames_have_the_same_rows(table_study):
    frame, expected = table_study.to_dataframe(), list(expected_rows(table_study))
    assert len(frame) == len(expected)
    for i, want in enumerate(expected):
        for name, value in want.items():
            assert frame[name][i] == value, name
        for name in {"d", "measured_risk", "overlaps.key"} - set(want):
            assert math.isnan(frame[name][i])


def check_arrays(data, study):
    assert dict(data.sizes) == {"task.snr": 3, "task.noise": 2, "d": 2}
    np.testing.assert_array_equal(data["task.snr"], [1.0, math.inf, 2.0])
    np.testing.assert_array_equal(data["d"], [5, 6])
    for p in study.points():
        here = data.sel(dict(p.at))
        assert float(here["risk"]) == p.prediction.risk.value
        assert float(here["risk_error"]) == p.prediction.risk.error
        assert int(here["status"]) == p.prediction.status.value
        assert str(here["branch"].values) == (p.prediction.branch or "")
        assert str(here["message"].values) == (p.message or " ".join(p.prediction.notes))
        if p.prediction.overlaps is None:
            assert math.isnan(here["overlaps.key"])
        else:
            assert float(here["overlaps.key"]) == p.prediction.overlaps.key
        found = {m.d: m for m in p.measurements}
        for d in (5, 6):
            cell = here.sel(d=d)
            if d in found:
                assert float(cell["measured_risk"]) == found[d].risk.value
                assert float(cell["measured_excess_risk_error"]) == found[d].excess_risk.error
                assert int(cell["measured_status"]) == 0
            else:
                assert math.isnan(cell["measured_risk"])
                assert int(cell["measured_status"]) == -1
    assert data.attrs["task"] == repr(HARD[0])
    assert "4 UNBOUNDED" in data.attrs["status_codes"]


def test_labelled_arrays(table_study):
    check_arrays(table_study.to_xarray(), table_study)


def test_netcdf_read_again(table_study, tmp_path):
    import xarray

    table_study.to_netcdf(tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
        check_arrays(data.load(), table_study)
        assert data.equals(table_study.to_xarray())


def test_lists_and_refined_studies_have_one_dimension(tmp_path):
    import xarray

    listed = swept([{"task.snr": 3, "model": SOFTMAX}, {"task.snr": 1, "model": LINEAR}])
    refined = swept({"task.snr": [0.5, 8]}, refine=CONTOUR)
    for study, count in ((listed, 2), (refined, 6)):
        data = study.to_xarray()
        assert dict(data.sizes) == {"point": count}
        assert list(data["risk"].values) == [p.prediction.risk.value for p in study.points()]
        assert list(data["task.snr"].values) == [p.at["task.snr"] for p in study.points()]
        study.to_netcdf(tmp_path / "x.nc")
        with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as again:
            assert again.load().equals(data)
    assert list(listed.to_xarray()["model"].values) == [repr(SOFTMAX), repr(LINEAR)]


def test_specs_words_and_free_constants_are_coordinates(tmp_path):
    import xarray

    study = swept({"learner.d": [None, 5]}, (TASK, None, ndl.BayesOptimal()))
    study.to_netcdf(tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
        assert list(data["learner.d"].values) == ["None", "5"]
    assert [row["learner.d"] for row in csv_rows(study, tmp_path / "x.csv")] == ["None", "5"]


def test_tables_that_cannot_be_written_are_one_sentence(table_study, tmp_path):
    for write in (table_study.to_csv, table_study.to_netcdf):
        with pytest.raises(ndl.InvalidParameter, match=r"^cannot write .*none.*: "):
            write(tmp_path / "none" / "x")


# --- bad arguments -------------------------------------------------------------------------------


def test_bad_executors_are_refused_before_anything_is_computed(path):
    for options, phrase in (
        ({"executor": "proceses"}, "unknown executor 'proceses': did you mean 'processes'"),
        ({"workers": 2}, "the serial executor is one process"),
        ({"address": "tcp://x:1"}, "only executor='dask' has an address"),
        ({"executor": "processes", "memory": "1 MB"}, "memory must be at least 700 MB"),
        ({"executor": "processes", "workers": 0}, "workers must be a whole number >= 1"),
    ):
        with pytest.raises(ndl.InvalidParameter, match=phrase):
            swept(store=path, **options)
    with Store(path) as store:
        assert store.counts() == {}


@pytest.mark.parametrize("tol", [-1.0, math.nan, "small"])
def test_a_bad_tolerance_is_refused(tol):
    with pytest.raises(ndl.InvalidParameter, match="tol must be > 0 and finite"):
        swept(tol=tol)


def test_the_worst_of_a_study_is_nan_wherever_the_nan_is(monkeypatch):
    """As `Comparison.worst`: one repeat has no standard error and no z."""
    one, many = (
        list(swept({"task.snr": [1]}, also=ndl.Simulation(d=5, repeats=n, samples=50)).points()) for n in (1, 3)
    )
    found = []
    for points in ([*one, *many], [*many, *one]):
        study = swept({"task.snr": [1]})
        monkeypatch.setattr(study, "points", lambda points=points: iter(points))
        found.append(math.isnan(study.worst))
    assert found == [True, True]

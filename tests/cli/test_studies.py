"""`needlepoint sweep` and `needlepoint study`: files in, one store, text or one JSON document out."""

import json
from pathlib import Path

import pytest

import needlepoint as ndl
from needlepoint.core import progress
from needlepoint.studies import axes
from needlepoint.studies.execution import executors
from needlepoint.studies.files import read_study
from needlepoint.studies.storage.store import Store
from needlepoint.studies.sweeps import Sweep

from studies_cli_cases import ALSO, HARD, HEAD, OVER, refused

ROOT = Path(__file__).parents[2]


EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


NOISY = """
task = "SpikedSLR(tokens=2, snr=1)"
learner = "BayesOptimal()"
tol = 1e-30
over = { "task.snr" = [1.0, 2.0] }
"""


@pytest.fixture
def nothing_is_computed(monkeypatch):
    monkeypatch.setattr(executors, "solve", lambda *a: pytest.fail("computed"))


def test_a_sweep_from_a_file(document, call, written):
    file = written(HEAD + OVER + ALSO)
    found = document("sweep", file)
    store = file.with_suffix(".sqlite")
    counts = {name: found[name] for name in ("total", "done", "reused", "failed", "flagged")}
    assert counts == {"total": 7, "done": 7, "reused": 0, "failed": 0, "flagged": 0}
    assert (found["store"], found["failures"]) == (str(store), [])
    with ndl.open_study(store) as study:
        direct = ndl.sweep(
            *study.definition.axes.base,
            {"task.snr": [1, 2, 5]},
            also=ndl.Simulation(d=5, repeats=2, samples=50, at={"task.snr": [1, 5]}),
        )
        assert study.definition == direct.definition
        for a, b in zip(study.points(), direct.points(), strict=True):
            assert a.prediction.to_json() == b.prediction.to_json()
            assert [m.to_json() for m in a.measurements] == [m.to_json() for m in b.measurements]
        assert found["largest_z"] == pytest.approx(study.worst)
        shown = str(study)
    code, out, err = call("sweep", file)
    assert (code, err) == (0, "")
    assert out == f"{shown}\n  largest |z|   {found['largest_z']:.2f}\n{store}\n"


def test_a_second_run_takes_everything_from_the_store(document, written, monkeypatch):
    file = written(HEAD + OVER + ALSO)
    document("sweep", file)
    monkeypatch.setattr(executors, "solve", lambda *a: pytest.fail("computed"))
    again = document("sweep", file)
    assert (again["done"], again["reused"], again["failed"]) == (7, 7, 0)


def test_json_files_and_tables_ask_the_same(document, written, tmp_path):
    toml = written(HEAD + OVER)
    as_json = written(
        json.dumps(
            {
                "task": {"type": "SpikedSLR", "tokens": 2, "snr": 1, "noise": 0.3},
                "model": "KeyValueAttention(Softmax())",
                "learner": {"type": "Population"},
                "over": {"task.snr": [1, 2, 5]},
            }
        ),
        "study.json",
    )
    assert read(toml) == read(as_json)
    store = tmp_path / "one.sqlite"
    document("sweep", toml, "--store", store)
    assert document("sweep", as_json, "--store", store)["reused"] == 3
    assert not as_json.with_suffix(".sqlite").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.sqlite", "study.json", "study.toml"]


def read(file, *changes):
    return Sweep.of(**read_study(file, list(changes))[0])


def test_changes_come_on_top(document, written):
    file = written(HEAD + OVER)
    document("sweep", file, "--set", "task.noise=0.5", "--set", "model.activation=Linear()")
    with ndl.open_study(file.with_suffix(".sqlite")) as study:
        assert study.definition.axes.base[:2] == (
            ndl.SpikedSLR(2, 1.0, noise=0.5),
            ndl.KeyValueAttention(ndl.Linear()),
        )
        assert [p.prediction.task.noise for p in study.points()] == [0.5] * 3


def test_lists_of_points_seeds_and_specs(written):
    rows = """
seed = 3
tol = 1e-7
[[over]]
"task.snr" = 1
"model" = "LinearRegression()"
[[over]]
"task.snr" = 2
"model" = "KeyValueAttention(Linear())"
"""
    sweep = read(written(HEAD + rows))
    assert list(sweep.axes.points()) == [(1.0, ndl.LinearRegression()), (2.0, ndl.KeyValueAttention(ndl.Linear()))]
    assert (sweep.axes.grid, sweep.seed, sweep.tol) == (False, 3, 1e-7)


@pytest.mark.exact
def test_ranges(written):
    over = """
[over]
"task.snr" = { from = 0.1, to = 10, points = 5, spacing = "log" }
"task.noise" = { from = 1, to = 0, points = 3 }
"""
    snr, noise = read(written(HEAD + over)).axes.values
    assert snr == pytest.approx((0.1, 10**-0.5, 1.0, 10**0.5, 10.0), rel=1e-15)
    assert (snr[0], snr[-1]) == (0.1, 10.0)
    assert noise == (1.0, 0.5, 0.0)


def test_refinement_and_plot_are_read(written):
    tables = """
[refine]
on = "excess_risk"
level = 0.5
[plot]
metric = "risk"
"""
    arguments, plot = read_study(written(HEAD + OVER + tables), [])
    assert arguments["refine"] == ndl.Refine("excess_risk", 3, 0.5)
    assert plot == {"metric": "risk"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_short_and_can_be_asked(path):
    lines = path.read_text().splitlines()
    assert len(lines) < 30
    assert any(f"needlepoint sweep examples/{path.name}" in line for line in lines if line.startswith("#"))
    sweep = read(path)
    assert 10 < len(sweep) < 1000
    assert Sweep.from_json(json.loads(json.dumps(sweep.to_json()))) == sweep


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


def test_flagged_points_are_code_3(document, call, written):
    file = written(NOISY)
    found = document("sweep", file, code=3)
    assert (found["done"], found["failed"], found["flagged"], found["largest_z"]) == (2, 0, 2, None)
    code, out, _ = call("sweep", file)
    assert code == 3
    assert "  done          2 NOISE_LIMITED\n" in out


def test_an_infimum_that_is_known_is_an_answer(document, call, written):
    file = written(HARD)
    for _ in range(2):  # computed, and found in the store
        found = document("sweep", file)
        assert (found["done"], found["failed"], found["flagged"]) == (2, 0, 0)
    code, out, _ = call("sweep", file)
    assert code == 0
    assert "  done          1 UNBOUNDED\n" in out


def test_failed_points_are_code_3_with_their_reasons(document, call, written):
    file = written(HARD + ALSO.replace("[1, 5]", "[1, inf]"))
    sentence = "2 of 2 seeds: its prediction is UNBOUNDED and has no weights to measure at."
    found = document("sweep", file, code=3)
    assert (found["done"], found["failed"]) == (6, 2)
    assert found["failures"] == [{"at": {"task.snr": "inf"}, "message": sentence}]
    code, out, _ = call("sweep", file)
    assert code == 3
    assert f"  failed        {{'task.snr': inf}}: {sentence}\n" in out


def test_a_short_sweep_says_nothing_on_the_way(call, written, monkeypatch):
    monkeypatch.delenv(progress.SILENCE)
    monkeypatch.setattr(progress, "TIMING", progress.Timing(patience=1e6))
    code, out, err = call("sweep", written(HEAD + OVER))
    assert code == 0
    assert err == ""
    assert "Study:" in out


def test_a_long_sweep_says_a_line_now_and_then(call, written, monkeypatch):
    monkeypatch.delenv(progress.SILENCE)
    monkeypatch.setattr(progress, "TIMING", progress.Timing(patience=0.0, line=0.0))
    update = progress.Watch.update

    def updated(watch, *args):
        update(watch, *args)
        watch.tick()

    monkeypatch.setattr(progress.Watch, "run", lambda watch: None)  # ticks come with the points, not with the clock
    monkeypatch.setattr(progress.Watch, "update", updated)
    code, out, err = call("sweep", written(HEAD + OVER), "--json")
    assert code == 0
    json.loads(out)  # standard output has the document and nothing else
    lines = err.splitlines()
    assert {line.split()[1] for line in lines} == {"0/3", "1/3", "2/3", "3/3"}
    assert lines[-1].startswith("needlepoint: 3/3 points, 0 failed, 0 flagged, last CONVERGED: done after ")
    assert "\r" not in err
    assert "\x1b" not in err


RANGE = '[over]\n"task.snr" = { from = %s }\n'


BAD = {
    "unknown key": (HEAD + OVER.replace("[over]", "[ovre]"), "unknown part of the study"),
    "unknown key, hint": ("overs = 1\n" + HEAD + OVER, "did you mean 'over'?"),
    "no over": (HEAD, 'over is missing, such as [over] with "task.snr" = [1, 2, 5].'),
    "no task": (OVER, 'task is missing, such as task = "SpikedSLR(tokens=2, snr=1)".'),
    "no learner": ('task = "SpikedSLR(2, 1)"\n' + OVER, "learner is missing"),
    "empty over": (HEAD + "[over]\n", "there is nothing to sweep"),
    "over is a number": ("over = 3\n" + HEAD, "over must be a table of paths and values, or a list of such tables."),
    "over is a list of numbers": ("over = [1, 2]\n" + HEAD, "over must be a table of paths and values"),
    "unknown path": (HEAD + '[over]\n"snr" = [1]\n', "did you mean 'task.snr'?"),
    "unquoted path": (HEAD + "[over]\ntask.snr = [1]\n", "unknown field of the range of task 'snr'"),
    "a number for values": (HEAD + '[over]\n"task.snr" = 1\n', "give a list of values, such as [1, 2, 5]."),
    "a refused value": (HEAD + '[over]\n"task.snr" = [-1]\n', "SpikedSLR(snr=-1.0): snr must be >= 0"),
    "nan": (HEAD + '[over]\n"task.snr" = [nan]\n', "value 0 is NaN"),
    "a bad spec": (HEAD + '[over]\n"model.activation" = ["Ert()"]\n', "did you mean 'Erf'?"),
    "a spec that cannot be read": (HEAD + '[over]\n"model" = ["KeyValueAttention("]\n', "write it as in Python"),
    "a bad task": (HEAD.replace("SpikedSLR", "SpikeSLR") + OVER, "did you mean 'SpikedSLR'?"),
    "no theory": (HEAD.replace("KeyValueAttention(Softmax())", "None") + OVER, "no rule for predict(SpikedSLR, None"),
    "range without to": (HEAD + RANGE % "1", "the range of task.snr needs to, as in {from=1, to=9, points=5}."),
    "range without points": (HEAD + RANGE % "1, to = 2", "the range of task.snr needs points"),
    "one point": (HEAD + RANGE % "1, to = 2, points = 1", "needs two finite numbers and at least 2 points."),
    "half a point": (HEAD + RANGE % "1, to = 2, points = 2.5", "needs two finite numbers and at least 2 points."),
    "infinite range": (HEAD + RANGE % "1, to = inf, points = 3", "needs two finite numbers and at least 2 points."),
    "a word in a range": (HEAD + RANGE % "'a', to = 2, points = 3", "needs two finite numbers"),
    "unknown spacing": (HEAD + RANGE % "1, to = 2, points = 3, spacing = 'lgo'", "did you mean 'log'?"),
    "unknown field of a range": (HEAD + RANGE % "1, to = 2, point = 3", "did you mean 'points'?"),
    "log range from zero": (
        HEAD + RANGE % "0, to = 2, points = 3, spacing = 'log'",
        "a log range of task.snr needs positive ends.",
    ),
    "log range below zero": (HEAD + RANGE % "1, to = -2, points = 3, spacing = 'log'", "needs positive ends."),
    "a range of one value": (HEAD + RANGE % "1, to = 1, points = 3", "is given twice"),
    "also without d": (HEAD + OVER + "[also]\nrepeats = 3\n", "[also] needs d, the dimension of a token."),
    "unknown field of also": (HEAD + OVER + "[also]\nd = 5\nrepeat = 3\n", "did you mean 'repeats'?"),
    "bad d": (HEAD + OVER + "[also]\nd = 1\n", "Simulation(d=1): d must be a whole number >= 2."),
    "also is a number": ("also = 5\n" + HEAD + OVER, "also must be a table, [also]."),
    "also elsewhere": (HEAD + OVER + '[also]\nd = 5\nat = { "task.snr" = [3] }\n', "3.0 is not among the swept"),
    "bad levels": (HEAD + OVER + "[refine]\nlevels = 0\n", "Refine(levels=0)"),
    "refine without level": (HEAD + OVER + '[refine]\non = "risk"\n', "a metric needs the level of its contour"),
    "unknown field of refine": (HEAD + OVER + "[refine]\nlevls = 2\n", "did you mean 'level"),
    "refine a list": (HEAD + '[[over]]\n"task.snr" = 1\n[refine]\non = "branch"\n', "a list of points has no cells"),
    "unknown field of plot": (HEAD + OVER + "[plot]\nmetrc = 'risk'\n", "did you mean 'metric'?"),
    "bad seed": ("seed = -1\n" + HEAD + OVER, "sweep(seed=-1): seed must be a whole number"),
    "no TOML": (HEAD + "[over", "is not valid TOML"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_study_file_is_one_sentence(call, written, tmp_path, nothing_is_computed, case):
    text, phrase = BAD[case]
    refused(call("sweep", written(text)), phrase)
    assert [p.name for p in tmp_path.iterdir()] == ["study.toml"]  # and no store is left behind


DEFECTS = {
    "points": (HEAD + RANGE % "1, to = 2, points = 3.0", None),
    "repeats": (HEAD + OVER + "[also]\nd = 5\nrepeats = 2.0\nsamples = 50\n", None),
    "levels": (HEAD + OVER + "[refine]\non = 'branch'\nlevels = 2.0\n", None),
    "at": (HEAD + OVER + "[also]\nd = 5\nat = [1]\n", "at"),
    "level": (HEAD + OVER + "[refine]\non = 'risk'\nlevel = 'a'\n", "level"),
    "an empty second axis": (HEAD + OVER + '"task.noise" = []\n', "nothing to sweep"),
    "tol": ("tol = -1\n" + HEAD + OVER, "tol must be > 0"),
}


@pytest.mark.parametrize("case", DEFECTS)
def test_odd_study_files_are_answered_or_refused(call, written, case):
    text, phrase = DEFECTS[case]
    answer = call("sweep", written(text))
    if phrase is None:
        assert answer[0] == 0
    else:
        refused(answer, phrase)


OPTIONS = {
    "unknown executor": (["--executor", "proceses"], "unknown executor 'proceses': did you mean 'processes'?"),
    "address without dask": (["--address", "tcp://127.0.0.1:1"], "only executor='dask' has an address"),
    "workers without a pool": (["--workers", "2"], "the serial executor is one process"),
    "no workers": (["--executor", "processes", "--workers", "0"], "workers must be a whole number >= 1"),
    "little memory": (["--executor", "processes", "--memory", "1 KB"], "memory must be at least 700 MB"),
    "a word for memory": (["--executor", "processes", "--memory", "much"], "memory must be at least 700 MB"),
    "bad change": (["--set", "task.nois=1"], "did you mean 'noise'?"),
    "unknown option": (["--sote", "x"], "No such option"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options_are_one_sentence(call, written, nothing_is_computed, case):
    args, phrase = OPTIONS[case]
    refused(call("sweep", written(HEAD + OVER), *args), phrase)


def test_a_missing_study_file_is_one_sentence(call, tmp_path):
    refused(call("sweep", tmp_path / "none.toml"), "none.toml: No such file or directory")


def test_a_store_that_cannot_be_written_is_one_sentence(call, written, tmp_path, nothing_is_computed):
    file = written(HEAD + OVER)
    where = tmp_path / "none" / "x.sqlite"
    refused(call("sweep", file, "--store", where), f"cannot open the store {where}: the folder does not exist")
    refused(call("sweep", file, "--store", file), "it is not a sqlite file; give another name.")
    assert file.read_text() == HEAD + OVER


def test_more_points_than_the_limit_ask_for_yes(call, document, written, monkeypatch):
    monkeypatch.setattr(axes, "LIMIT", 2)
    file = written(HEAD + OVER)
    refused(call("sweep", file), "3 points are more than 2; if that is meant, say --yes.")
    assert not file.with_suffix(".sqlite").exists()
    assert document("sweep", file, "--yes")["done"] == 3


def test_a_full_disk_is_one_sentence_and_the_rest_is_kept(call, document, written, monkeypatch):
    file = written(HEAD + OVER)
    document("sweep", file)
    honest = Store._prepare

    def small(self):
        honest(self)
        self._db.execute(f"PRAGMA max_page_count = {self._one('PRAGMA page_count')}")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_prepare", small)
        more = written(HEAD + OVER.replace("[1, 2, 5]", str(list(range(1, 60)))))
        code, out, err = call("sweep", more)
    assert (code, out) == (2, "")
    assert "the disk is full; the points stored so far are kept. Free some space and run again." in err
    with ndl.open_study(file.with_suffix(".sqlite")) as study:
        assert study.store._one("PRAGMA integrity_check") == "ok"
        assert sum(study.store.counts().values()) >= 3
    assert document("sweep", more)["done"] == 59

"""The command line: one JSON document or text on stdout, sentences on stderr, exit codes 0, 2 and 3."""

import csv
import dataclasses
import json
import math
import sys
from pathlib import Path

import pytest

import needlepoint as ndl

import waiting

TASK = "SpikedSLR(tokens=3, snr=4, relevant_std=0.8, noise=0.1)"
MODEL = "KeyValueAttention(Erf(scale=0.4), unit_norm=True)"
FREE = "KeyValueAttention(Erf(scale=None), unit_norm=True)"
DESCENT = "ProjectedDescent(lr=0.01, steps=4, start='sphere', d=8, runs=3)"
SGD = "OnlineSGD(lr=0.01, steps=4, batch=2, start='sphere', d=8, runs=3)"
SMALL = ("--d", "8", "--repeats", "3", "--samples", "100")
ORACLE = ("--overlaps", "Overlaps(key=1, value=1)")
POPULATION = "Population()"


def asked(task=TASK, model=MODEL, learner=POPULATION):
    parts = {"--task": task, "--model": model, "--learner": learner}
    return [word for name, value in parts.items() if value is not None for word in (name, value)]


# --- answers -----------------------------------------------------------------------------------


def test_predict_prints_what_python_returns(document, call):
    found = document("predict", *asked())
    expected = ndl.predict(
        ndl.SpikedSLR(3, 4, 0.8, 0.1), ndl.KeyValueAttention(ndl.Erf(0.4), unit_norm=True), ndl.Population()
    )
    assert found == json.loads(json.dumps(expected.to_json()))
    code, out, err = call("predict", *asked())
    assert (code, out, err) == (0, f"{expected}\n", "")


def test_predict_without_a_model_and_with_a_chosen_constant(document):
    bayes = document("predict", *asked(model=None, learner="BayesOptimal(d=8)"))
    assert bayes["model"] is None
    assert 0 < bayes["metrics"]["excess_risk"]["value"] < 0.64
    chosen = document("predict", *asked(model=FREE))
    assert chosen["model"]["activation"]["scale"] is None
    assert chosen["resolved"]["model"]["activation"]["scale"] > 0


def test_simulate_prints_what_python_returns(document):
    found = document("simulate", *asked(), *SMALL, *ORACLE, "--seed", 5)
    expected = ndl.simulate(
        ndl.SpikedSLR(3, 4, 0.8, 0.1),
        ndl.KeyValueAttention(ndl.Erf(0.4), unit_norm=True),
        ndl.Population(),
        d=8,
        repeats=3,
        samples=100,
        seed=5,
        overlaps=ndl.Overlaps(1, 1),
    )
    assert found == json.loads(json.dumps(expected.to_json()))
    assert (found["d"], found["repeats"], found["seed"]) == (8, 3, 5)
    assert document("simulate", *asked(), *SMALL, *ORACLE, "--seed", 6)["metrics"] != found["metrics"]


def test_starts_are_handed_on(document):
    ridge = asked("SpikedSLR(2, 2, noise=0.1)", "KeyValueAttention(Softmax())", "Ridge(4, 0.5)")
    found = document("simulate", *ridge, *SMALL, "--starts", 3)
    expected = ndl.simulate(
        ndl.SpikedSLR(2, 2.0, noise=0.1), ndl.KeyValueAttention(ndl.Softmax()), ndl.Ridge(4.0, 0.5),
        d=8, repeats=3, samples=100, starts=3,
    )  # fmt: skip
    assert found == json.loads(json.dumps(expected.to_json()))
    assert "energy_best_of_3" in found["metrics"]
    compared = document("compare", *ridge, *SMALL, "--starts", 3)
    assert "energy_best_of_3" in compared["measurements"][0]["metrics"]


def test_compare_follows_the_chosen_constants_and_overlaps(document, call):
    found = document("compare", *asked(model=FREE), *SMALL, "--d", 12)
    prediction, measurements = found["prediction"], found["measurements"]
    assert [m["d"] for m in measurements] == [8, 12]
    for m in measurements:
        assert m["model"] == prediction["resolved"]["model"]
        assert m["overlaps"] == prediction["overlaps"]
        assert m["seed"] != prediction["seed"]
    rows = found["comparison"]["rows"]
    assert {(r["metric"], r["d"]) for r in rows} == {(m, d) for m in ("risk", "excess_risk") for d in (8, 12)}
    for r in rows:
        measured = next(m for m in measurements if m["d"] == r["d"])["metrics"][r["metric"]]
        assert (r["predicted"], r["measured"]) == (prediction["metrics"][r["metric"]]["value"], measured["value"])
        assert r["exact"] is True
        assert abs(r["z"]) < 5
    code, out, err = call("compare", *asked(model=FREE), *SMALL)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["metric", "d", "predicted", "measured", "error", "z", "theory"]


def test_figures_are_listed(document, call):
    rows = document("figures")
    assert {"erf-schedule", "erf-manifold", "erf-sgd", "erf-flow", "erf-dimension"} <= {r["id"] for r in rows}
    code, out, err = call("figures")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [r["id"] for r in rows]


def test_cite(document, call):
    code, out, err = call("cite", "2410.01537")
    assert (code, err) == (0, "")
    assert out.strip() == ndl.cite("2410.01537")
    assert document("cite") == {"bibtex": ndl.cite()}


# --- spec files and changes --------------------------------------------------------------------

TOML = """
task = "SpikedSLR(tokens=3, snr=4, relevant_std=0.8, noise=0.1)"
[model]
type = "KeyValueAttention"
unit_norm = true
activation = {type = "Erf", scale = 0.4}
[learner]
type = "ProjectedDescent"
lr = 0.01
steps = 4
start = {type = "Overlaps", key = 0.3, value = 0.4}
"""
AS_JSON = {
    "task": {"type": "SpikedSLR", "tokens": 3, "snr": 4, "relevant_std": 0.8, "noise": 0.1},
    "model": MODEL,
    "learner": "ProjectedDescent(0.01, 4, Overlaps(0.3, 0.4))",
}


@pytest.fixture(params=["toml", "json"])
def spec_file(request, tmp_path):
    path = tmp_path / f"question.{request.param}"
    path.write_text(TOML if request.param == "toml" else json.dumps(AS_JSON))
    return path


def test_a_spec_file_asks_the_same_as_options(document, spec_file):
    by_options = document("predict", *asked(learner="ProjectedDescent(0.01, 4, Overlaps(0.3, 0.4))"))
    assert document("predict", "--spec", spec_file) == by_options


def test_changes_come_on_top_of_options_on_top_of_the_file(document, spec_file):
    changed = document(
        *("predict", "--spec", spec_file, "--task", "SpikedSLR(2, 4)"),
        *("--set", "learner.lr=0.01/5", "--set", "model.activation.scale=0.3", "--set", "task.noise=0.2"),
    )
    assert changed["learner"]["lr"] == 0.002
    assert changed["learner"]["steps"] == 4
    assert changed["model"]["activation"]["scale"] == 0.3
    assert (changed["task"]["tokens"], changed["task"]["noise"]) == (2, 0.2)


def test_a_printed_prediction_is_a_spec_file(document, tmp_path):
    first = document("predict", *asked(model=FREE))
    path = tmp_path / "resolved.json"
    path.write_text(json.dumps(first["resolved"]))
    again = document("predict", "--spec", path)
    assert again["model"] == first["resolved"]["model"]
    # the chosen scale is the best one, so fixing it changes nothing but rounding
    assert math.isclose(again["metrics"]["risk"]["value"], first["metrics"]["risk"]["value"], rel_tol=1e-9)


# --- bad input ---------------------------------------------------------------------------------

PREDICT, SIMULATE = ("predict",), ("simulate", *SMALL)
NO_ROOM = "Overlaps(key=0.6, value=0.6, value_on_key=0.6, key_on_value=0.6, key_dot_value=0.4)"
BAD = {
    "negative snr": ([*PREDICT, *asked("SpikedSLR(3, -1)")], "SpikedSLR(snr=-1.0): snr must be >= 0"),
    "nan snr": ([*PREDICT, *asked("SpikedSLR(3, nan)")], "SpikedSLR(snr=nan): snr must be >= 0 and finite"),
    "infinite snr": ([*PREDICT, *asked("SpikedSLR(3, inf)")], "SpikedSLR(snr=inf): snr must be >= 0 and finite"),
    "negative noise": ([*PREDICT, *asked("SpikedSLR(3, 1, noise=-0.1)")], "noise must be >= 0"),
    "zero spread": ([*PREDICT, *asked("SpikedSLR(3, 1, 0)")], "relevant_std must be > 0"),
    "no tokens": ([*PREDICT, *asked("SpikedSLR(0, 1)")], "tokens must be a whole number >= 1"),
    "half a token": ([*PREDICT, *asked("SpikedSLR(2.5, 1)")], "tokens must be a whole number"),
    "probabilities": ([*PREDICT, *asked("SpikedSLR({2: 0.5, 3: 0.4}, 1)")], "sum to 1 (they sum to 0.9)"),
    "zero scale": ([*PREDICT, *asked(model="KeyValueAttention(Erf(0))")], "Erf(scale=0.0): scale must be > 0"),
    "nan lr": ([*PREDICT, *asked(learner=DESCENT), "--set", "learner.lr=nan"], "lr must be > 0 and finite"),
    "negative lr": ([*PREDICT, *asked(learner=DESCENT), "--set", "learner.lr=-1"], "lr must be > 0"),
    "infinite lr": ([*PREDICT, *asked(learner=DESCENT), "--set", "learner.lr=inf"], "lr must be > 0 and finite"),
    "no steps": ([*PREDICT, *asked(learner=DESCENT), "--set", "learner.steps=0"], "steps must be a whole number >= 1"),
    "no batch": ([*PREDICT, *asked(learner=SGD), "--set", "learner.batch=0"], "batch must be a whole number >= 1"),
    "no arithmetic": ([*PREDICT, *asked("SpikedSLR(3, 1/0)")], "has no real value"),
    "key longer than one": ([*SIMULATE, *asked(), "--overlaps", "Overlaps(2, 1)"], "Gram matrix of (k*, k)"),
    "value longer than one": ([*SIMULATE, *asked(), "--overlaps", "Overlaps(1, -1.1)"], "Gram matrix of (v*, v)"),
    "two overlaps of k": (
        [*PREDICT, *asked(learner="ProjectedDescent(0.1, 4, Overlaps(0.8, 0, key_on_value=0.8))")],
        "Gram matrix of (k*, v*, k)",
    ),
    "four vectors": ([*SIMULATE, *asked(), "--overlaps", NO_ROOM], "Gram matrix of (k*, v*, k, v)"),
    "overlaps of another kind": ([*SIMULATE, *asked(), "--overlaps", "3"], "write it as"),
    "norms on the sphere": (
        [*SIMULATE, *asked(), "--overlaps", "Overlaps(1, 1, key_sq=2)"],
        "key_sq and value_sq must be 1",
    ),
    "d for the manifold": (
        [*PREDICT, *asked(learner="ProjectedDescent(0.1, 4, 'manifold', d=2, runs=2)")],
        "d must be >= 3 for start='manifold'",
    ),
    "d for the overlaps": (
        ["simulate", "--d", "3", *asked(), "--overlaps", "Overlaps(0.5, 0.5)"],
        "d must be >= 4 to hold vectors",
    ),
    "d for a random start": (
        [*PREDICT, *asked(learner="ProjectedDescent(0.1, 4, 'sphere')")],
        "needs d= and runs=",
    ),
    "d of SGD": ([*PREDICT, *asked(learner=SGD), "--set", "learner.d=5"], "d must be a whole number >= 6"),
    "no d of SGD": ([*PREDICT, *asked(learner=SGD), "--set", "learner.d=None"], "d is needed"),
    "two d": (["simulate", "--d", "9", *asked(learner=DESCENT)], "says d=8; the two must agree"),
    "no starts": (["simulate", *SMALL, "--starts", "0", *asked(), *ORACLE], "starts must be a whole number >= 1"),
    "starts of none": (["simulate", *SMALL, "--starts", "4", *asked(), *ORACLE], "Population seeks no minimum"),
    "d of one": (["simulate", "--d", "1", *asked(), *ORACLE], "d must be a whole number >= 2"),
    "no repeats": ([*SIMULATE, *asked(), *ORACLE, "--repeats", "0"], "repeats must be a whole number >= 1"),
    "no samples": ([*SIMULATE, *asked(), *ORACLE, "--samples", "0"], "samples must be a whole number >= 1"),
    "unknown task": ([*PREDICT, *asked("SpikeSLR(3, 1)")], "unknown name 'SpikeSLR': did you mean 'SpikedSLR'?"),
    "unknown activation": ([*PREDICT, *asked(model="KeyValueAttention(Ert())")], "did you mean 'Erf'?"),
    "unknown learner": ([*PREDICT, *asked(learner="Populaton()")], "did you mean 'Population'?"),
    "unknown start": (
        [*PREDICT, *asked(learner="ProjectedDescent(0.1, 4, 'shpere', d=8, runs=2)")],
        "did you mean 'sphere'?",
    ),
    "unknown choice": ([*PREDICT, *asked(learner="Population('manifolds')")], "did you mean 'manifold'?"),
    "unknown field": (
        [*PREDICT, *asked("SpikedSLR(3, snrr=1)")],
        "unknown field of SpikedSLR 'snrr': did you mean 'snr'?",
    ),
    "unknown field in --set": ([*PREDICT, *asked(), "--set", "task.nois=1"], "did you mean 'noise'?"),
    "unknown part in --set": ([*PREDICT, *asked(), "--set", "tsk.noise=1"], "did you mean 'task'?"),
    "--set without a value": ([*PREDICT, *asked(), "--set", "task.noise"], "write it as part.field=value"),
    "--set below a number": ([*PREDICT, *asked(), "--set", "task.noise.x=1"], "has no fields"),
    "missing field": ([*PREDICT, *asked("SpikedSLR(3)")], "snr is missing"),
    "a task as learner": ([*PREDICT, *asked(learner=TASK)], "is not a learner"),
    "not an expression": ([*PREDICT, *asked("SpikedSLR(3, ")], "write it as in Python"),
    "code": ([*PREDICT, *asked("__import__('os').getcwd()")], "cannot read"),
    "missing task": ([*PREDICT, *asked(task=None)], "--task is missing"),
    "missing learner": ([*PREDICT, *asked(learner=None)], "--learner is missing"),
    "missing d": (["simulate", *asked()], "Missing option '--d'"),
    "unknown option": ([*PREDICT, *asked(), "--sed", "1"], "No such option"),
    "unknown command": (["predikt"], "No such command"),
    "word for --seed": ([*PREDICT, *asked(), "--seed", "one"], "--seed"),
    "fraction for --seed": ([*PREDICT, *asked(), "--seed", "1.5"], "--seed"),
    "negative --seed": ([*PREDICT, *asked(), "--seed", "-1"], "--seed"),
    "word for --tol": ([*PREDICT, *asked(), "--tol", "fine"], "--tol"),
    "--tol 0": ([*PREDICT, *asked(), "--tol", "0"], "tol must be > 0 and finite"),
    "nan for --tol": (["compare", *asked(), *SMALL, "--tol", "nan"], "tol must be > 0 and finite"),
    "word for --d": (["simulate", *asked(), "--d", "many"], "--d"),
    "unresolved constant": ([*SIMULATE, *asked(model=FREE), *ORACLE], "scale is None; simulate takes resolved specs"),
    "population without overlaps": ([*SIMULATE, *asked()], "overlaps= is needed"),
    "random lengths, linear": (
        [*PREDICT, *asked("SpikedSLR({2: 0.5, 3: 0.5}, 4)", "LinearRegression()")],
        "LinearRegression needs a fixed length",
    ),
    "random lengths, linear, measured": (
        [*SIMULATE, *asked("SpikedSLR({2: 0.5, 3: 0.5}, 4)", "LinearRegression()")],
        "LinearRegression needs a fixed length",
    ),
    "random lengths, SGD": (
        [*PREDICT, *asked("SpikedSLR({2: 0.5, 3: 0.5}, 4)", learner=SGD)],
        "OnlineSGD with random lengths",
    ),
    "too large a regression": (["simulate", "--d", "5000", *asked(model="LinearRegression()")], "take a smaller d"),
    "a free scale with free norms": (
        [*PREDICT, *asked(model="KeyValueAttention(Erf(scale=None))")],
        "scale=None needs unit_norm=True",
    ),
    "no model": ([*PREDICT, *asked(model="None")], "predict(SpikedSLR, None, BayesOptimal)"),
    "linear regression by descent": (
        [*PREDICT, *asked(model="LinearRegression()", learner=DESCENT)],
        "no rule for predict(SpikedSLR, LinearRegression, ProjectedDescent); the nearest are",
    ),
    "linear regression trained": (
        [*SIMULATE, *asked(model="LinearRegression()", learner=DESCENT)],
        "no rule for simulate(SpikedSLR, LinearRegression, ProjectedDescent); the nearest are",
    ),
    "descent with a free constant": ([*PREDICT, *asked(model=FREE, learner=DESCENT)], "does not choose it"),
    "Bayes with finite data": ([*PREDICT, *asked(model=None, learner="BayesOptimal(2)")], "relevant_std=1 has one"),
    "compare at another d": (["compare", "--d", "9", *asked(learner=DESCENT)], "says d=8; the two must agree"),
    "unknown figure": (["reproduce", "erf-flo"], "unknown figure 'erf-flo': did you mean 'erf-flow'?"),
    "unknown paper": (["cite", "2410.0153"], "unknown paper '2410.0153': did you mean '2410.01537'?"),
}


def refused(answer, phrase):
    code, out, err = answer
    assert code == 2
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert err.startswith("needlepoint: ")
    assert phrase in err


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_code_2(call, case):
    args, phrase = BAD[case]
    refused(call(*args), phrase)


SPECS = {
    "toml": ("x.toml", b"task = ", "is not valid TOML"),
    "json": ("x.json", b"{'task': 1}", "is not valid JSON"),
    "cut off": ("x.json", b'{"task": {"type": "SpikedSLR"', "is not valid JSON"),
    "bytes": ("x.toml", b"\xff\xfe\x00", "is not valid TOML"),
    "a list": ("x.json", b"[1, 2]", "must be a table with task, model and learner"),
    "unknown part": ("x.toml", b'taks = "SpikedSLR(3, 1)"', "unknown part of a spec 'taks': did you mean 'task'?"),
    "no type": ("x.json", b'{"task": {"tokens": 3}}', "with a 'type'"),
    "a number": ("x.json", b'{"task": 7}', "with a 'type'"),
    "unknown type": ("x.json", b'{"task": {"type": "SpikdSLR"}}', "did you mean 'SpikedSLR'?"),
    "unknown field": ("x.json", b'{"task": {"type": "SpikedSLR", "token": 3}}', "did you mean 'tokens'?"),
    "NaN": ("x.json", b'{"task": {"type": "SpikedSLR", "tokens": 3, "snr": NaN}}', "snr must be >= 0"),
    "a learner as task": (
        "x.json",
        b'{"task": {"type": "Population"}}',
        "is not a task; one of AttentionIndexed, MaxSLR",
    ),
    "empty": ("x.toml", b"", "--task is missing"),
}


@pytest.mark.parametrize("case", SPECS)
def test_a_bad_spec_file_is_one_sentence(call, tmp_path, case):
    name, content, phrase = SPECS[case]
    (tmp_path / name).write_bytes(content)
    refused(call("predict", "--spec", tmp_path / name), phrase)


def test_an_unreadable_spec_file_is_one_sentence(call, tmp_path):
    refused(call("predict", "--spec", tmp_path / "none.toml"), "none.toml: No such file or directory")
    refused(call("predict", "--spec", tmp_path), "Is a directory")


def test_a_folder_that_cannot_be_written_is_one_sentence(call, tmp_path):
    (tmp_path / "file").write_text("taken")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        refused(call("reproduce", "erf-flow", "--out", out), f"cannot write to the folder {out}")
    assert (tmp_path / "file").read_text() == "taken"


# finite numbers far outside any use: an answer, a status or a sentence, but never a traceback
ABSURD = {
    "noise": [*PREDICT, *asked("SpikedSLR(3, 4, noise=1e200)")],
    "spread": [*PREDICT, *asked("SpikedSLR(3, 4, relevant_std=1e200)")],
    "narrow": [*PREDICT, *asked("SpikedSLR(3, 4, relevant_std=1e-200)")],
    "spike": [*PREDICT, *asked("SpikedSLR(3, 1e308)", learner=DESCENT)],
    "scale": [*PREDICT, *asked(model="KeyValueAttention(Erf(1e200), unit_norm=True)")],
    "scale, trained": [*SIMULATE, *asked(model="KeyValueAttention(Erf(1e200), unit_norm=True)", learner=DESCENT)],
    "offset": [*PREDICT, *asked(model="KeyValueAttention(Erf(1, offset=1e200), unit_norm=True)")],
    "seed": [*PREDICT, *asked(), "--seed", 2**64],
    "seed, measured": [*SIMULATE, *asked(), *ORACLE, "--seed", 2**64],
    "tokens": [*PREDICT, *asked("SpikedSLR(10**15, 4)", model=None, learner="BayesOptimal()")],
    "memory": ["simulate", "--d", 10**9, "--repeats", 10**5, *asked(), *ORACLE],
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_numbers_end_in_a_code(call, case):
    code, out, err = call(*ABSURD[case], "--json")
    assert code in (0, 2, 3)
    if code == 2:
        assert (out, err.count("\n")) == ("", 1)
    else:
        assert err == ""
        json.loads(out)


# --- not converged -----------------------------------------------------------------------------


@pytest.mark.parametrize("learner", [DESCENT, SGD], ids=["descent", "sgd"])
@pytest.mark.parametrize("verb", [PREDICT, SIMULATE], ids=["predict", "simulate"])
def test_a_run_that_diverges_has_code_3_and_nulls(document, verb, learner):
    found = document(*verb, *asked(learner=learner), "--set", "learner.lr=1e300", code=3)
    assert found["status"] == "DIVERGED"
    assert found["status_sentence"] == ndl.Status.DIVERGED.sentence
    assert found["metrics"]["risk"]["value"] is None
    assert found["metrics"]["excess_risk"]["value"] is None
    assert found["overlaps"] is None
    risks = found["trajectory"]["excess_risk"]
    assert all(run[0] is not None and run[-1] is None for run in risks)
    assert "diverged" in found["notes"][0]


def test_a_diverged_prediction_is_printed_without_json_too(call):
    code, out, _ = call("predict", *asked(learner=DESCENT), "--set", "learner.lr=1e300")
    assert code == 3
    assert "DIVERGED" in out


def test_compare_keeps_its_shape_when_the_prediction_diverges(document):
    found = document("compare", *asked(learner=DESCENT), "--set", "learner.lr=1e300", "--d", 8, code=3)
    assert found["prediction"]["status"] == "DIVERGED"


def test_compare_says_when_the_measurement_diverges(document, monkeypatch):
    honest = ndl.simulate

    def broken(*args, **options):
        result = honest(*args, **options)
        nothing = {name: ndl.Estimate(math.nan, math.inf, "stderr") for name in result.metrics}
        return dataclasses.replace(result, status=ndl.Status.DIVERGED, metrics=nothing)

    monkeypatch.setattr(ndl, "simulate", broken)
    found = document("compare", *asked(), *SMALL, code=3)
    assert found["measurements"][0]["status"] == "DIVERGED"
    assert all(row["z"] is None for row in found["comparison"]["rows"])


# --- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["predict", "simulate", "compare", "figures", "reproduce", "cite"])
def test_help_of_every_command(call, command):
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: ")
    assert f" {command} [OPTIONS]" in out.splitlines()[0]
    assert "--json" in out


def test_without_a_command_the_help_is_readable(call):
    code, out, err = call()
    assert code in (0, 2)
    shown = (out + err).splitlines()
    assert sum(line.lstrip().startswith(("predict ", "reproduce ")) for line in shown) == 2


# --- as a program ------------------------------------------------------------------------------


def program(*args, **options):
    installed = Path(sys.executable).with_name("needlepoint")
    return waiting.program([installed, *args], **options)


@pytest.mark.slow
def test_reproduce_as_a_program(tmp_path):
    """`needlepoint reproduce erf-flow --quick`: five fixed points at each of three scales, one report."""
    done = program("reproduce", "erf-flow", "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    first, *between, last = done.stderr.splitlines()  # between them a line every five seconds, if it takes that long
    assert first.startswith("1 figure: 9 points to compute by one process, about ")
    assert last.startswith("[1/1] erf-flow: ")
    assert all(" %, 0 of 1 figures" in line for line in between)
    names = ["erf-flow.png", "erf-flow.pdf", "erf-flow-field.csv", "erf-flow-points.csv"]
    assert found["files"] == [f"out/{n}" for n in (*names, "agreement.csv", "report.html")]
    written = [*(Path(f).name for f in found["files"]), "points.sqlite"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(written)
    assert (found["size"], found["agreement"], found["troubles"]) == ("quick", [], [])
    assert (tmp_path / "out/erf-flow.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out/erf-flow.pdf").read_bytes().startswith(b"%PDF")
    assert 'id="erf-flow"' in (tmp_path / "out/report.html").read_text()
    with (tmp_path / "out/erf-flow-points.csv").open(newline="") as file:
        points = list(csv.DictReader(file))
    expected = []
    for scale in (0.1, 0.3, 0.9):
        model = ndl.KeyValueAttention(ndl.Erf(scale), unit_norm=True)
        for p in ndl.fixed_points(ndl.SpikedSLR(10, 200, math.sqrt(0.5)), model):
            expected.append((scale, p.overlaps.key, p.overlaps.value, p.kind, p.excess_risk))
    got = [(*(float(r[c]) for c in ("scale", "key", "value")), r["kind"], float(r["excess_risk"])) for r in points]
    assert got == expected


def test_bad_input_as_a_program():
    # Python warns while it parses this text; the user still reads one sentence
    done = program("predict", "--task", "SpikedSLR(tokens=3or 2, snr='\\d')", "--learner", "Population()")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("needlepoint: InvalidParameter: cannot read")

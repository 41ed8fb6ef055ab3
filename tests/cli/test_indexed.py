"""The attention-indexed model from the command line: thresholds, spectra, and pictures of any one answer."""

import csv
import json
import math

import numpy as np
import pytest

import needlepoint as ndl

import waiting

TASK, MODEL, RIDGE = "AttentionIndexed(1, Wishart(0.5), noise_var=0.5)", "TiedAttention()", "Ridge(0.5, 0.1)"
SMALL = ("--d", 12, "--repeats", 3, "--samples", 200)
LOCATION = ("--task", "SpikedSLR(3, 4)", "--model", "KeyValueAttention(Erf(0.4), unit_norm=True)")
PNG = b"\x89PNG"


def asked(task=TASK, model=MODEL, learner=RIDGE):
    parts = {"--task": task, "--model": model, "--learner": learner}
    return [word for name, value in parts.items() if value is not None for word in (name, value)]


def specs():
    return ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5), ndl.TiedAttention(), ndl.Ridge(0.5, 0.1)


def refused(answer, phrase):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("needlepoint: ")
    assert err.count("\n") == 1, err
    assert phrase in err


# --- thresholds ----------------------------------------------------------------------------------


@pytest.mark.paper
@pytest.mark.parametrize(
    ("task", "values"),
    [
        # theory sheet 03, section 4: Wishart targets of width d/2, eight digits
        (TASK, (0.30696421, math.inf, math.inf)),
        ("AttentionIndexed(1, Wishart(0.5))", (0.4375, 0.42217498, 0.375)),
        ("AttentionIndexed(2, Wishart(0.5))", (0.21875, 0.21108749, 0.1875)),
    ],
)
def test_thresholds_are_those_of_python_and_of_the_sheet(document, task, values):
    found = document("thresholds", "--task", task)
    shown = [found[name] for name in ("interpolation", "recovery", "bayes_recovery")]
    assert [math.inf if x == "inf" else x for x in shown] == pytest.approx(values, abs=6e-9)
    assert all(0 <= e < 1e-12 for e in found["errors"].values())
    assert found["model"]["type"] == "TiedAttention"
    assert all(sentence.endswith(".") for sentence in found["sentences"].values())


def test_thresholds_say_infinity_in_words(call):
    code, out, err = call("thresholds", "--task", TASK)
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.startswith("Thresholds: AttentionIndexed(tokens=1")
    assert [line.split()[:2] for line in lines] == [
        ["interpolation", "0.306964205718"],
        ["recovery", "infinite"],
        ["bayes_recovery", "infinite"],
    ]
    assert "inf " not in out
    assert "no number of sequences" in lines[1]


def test_thresholds_of_another_model_and_from_a_file(document, tmp_path):
    direct = document("thresholds", "--task", "AttentionIndexed(2, Wishart(0.5))", "--model", "DirectAttention()")
    assert (direct["interpolation"], direct["recovery"]) == (0.25, 0.25)
    path = tmp_path / "question.toml"
    path.write_text("task = 'AttentionIndexed(2, Wishart(0.5))'\nmodel = 'DirectAttention()'\n")
    assert document("thresholds", "--spec", path) == direct
    assert document("thresholds", "--spec", path, "--set", "task.noise_var=0.1")["recovery"] == "inf"


def test_thresholds_of_a_narrow_layer_are_bounds_and_say_so(call, document):
    question = ("thresholds", "--task", TASK, "--model", "TiedAttention(width_ratio=0.1)")
    found = document(*question)
    assert found["interpolation"] + found["errors"]["interpolation"] == pytest.approx(0.095, rel=1e-9)
    assert "W is only 0.1 d wide" in found["notes"][0]
    code, out, _ = call(*question)
    assert code == 0
    assert "0.059(36)" in out
    assert found["notes"][0] in out


BAD_THRESHOLDS = {
    "no task": ((), "--task is missing"),
    "another task": (("--task", "SpikedSLR(3, 1)"), "no thresholds for SpikedSLR"),
    "another model": (("--task", TASK, "--model", "LinearRegression()"), "with LinearRegression"),
    "negative width": (("--task", "AttentionIndexed(2, Wishart(-1))"), "rank_ratio must be > 0"),
    "overflow": (
        ("--task", "AttentionIndexed(2, Eigenvalues([1e200]))"),
        "the largest must be between 1e-12 and 1e+12",
    ),
    "underflow": (("--task", "AttentionIndexed(2, Eigenvalues([1e-200]))"), "the largest must be between"),
    "unknown target": (("--task", "AttentionIndexed(2, Wishar(1))"), "did you mean 'Wishart'?"),
}


@pytest.mark.parametrize("case", BAD_THRESHOLDS)
def test_bad_thresholds_are_one_sentence(call, case):
    args, phrase = BAD_THRESHOLDS[case]
    refused(call("thresholds", *args), phrase)


# --- spectrum ------------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_spectrum_is_that_of_python(document, tmp_path):
    table, picture = tmp_path / "density.csv", tmp_path / "spectrum.png"
    found = document("spectrum", *asked(), "--d", 7, "--csv", table, "--plot", picture)
    expected = ndl.predict(*specs()).spectrum
    assert found["spectrum"] == json.loads(json.dumps(expected.to_json()))
    assert found["eigenvalues"] == expected.quantiles(7).tolist()
    for q in found["quantiles"]:
        assert q["value"] == pytest.approx(np.interp(q["level"], expected.levels, expected.values), rel=1e-12)
    with table.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["x", "density"]
    assert [[float(a), float(b)] for a, b in rows] == np.column_stack([expected.x, expected.density]).tolist()
    assert picture.read_bytes().startswith(PNG)
    # tied attention is what is meant if no model is given
    assert document("spectrum", *asked(model=None))["spectrum"] == found["spectrum"]


def test_the_spectrum_in_words(call, tmp_path):
    table = tmp_path / "density.csv"
    code, out, err = call("spectrum", *asked(), "--d", 3, "--csv", table)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    law = ndl.predict(*specs()).spectrum
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:-1]}
    assert said["atom"].startswith(f"{law.atom:.8g} of the eigenvalues are exactly zero")
    assert said["edges"] == f"0 to {law.edges[0, 1]:.6g}"
    assert said["outliers"] == "none"
    assert "at 50 %" in said["quantiles"]
    assert [float(said[str(i)]) for i in (1, 2, 3)] == pytest.approx(law.quantiles(3), rel=1e-9)
    assert lines[-1] == str(table)


def test_outliers_and_a_law_that_is_all_cut(call):
    spiked = "AttentionIndexed(1, Eigenvalues((0, 1, 6), (0.6, 0.4, 0)), noise_var=0.5)"
    code, out, _ = call("spectrum", *asked(spiked))
    law = ndl.predict(
        ndl.AttentionIndexed(1, ndl.Eigenvalues((0, 1, 6), (0.6, 0.4, 0)), noise_var=0.5), *specs()[1:]
    ).spectrum
    assert code == 0
    assert f"  outliers      {law.outliers[0]:.6g}" in out.splitlines()
    code, out, _ = call("spectrum", *asked(learner="Ridge(0.5, 30)"))
    assert code == 0
    assert "none: every eigenvalue is zero" in out


BAD_SPECTRUM = {
    "a task without one": (asked("SpikedSLR(3, 1)", None, "Population()"), "SpikedSLR has no spectrum"),
    "no learner": (asked(learner=None), "--learner is missing"),
    "no eigenvalues": ([*asked(), "--d", "0"], "--d"),
    "a picture of another kind": ([*asked(), "--plot", "x.gif"], "must end in one of .png, .pdf, .svg"),
    "a table of another kind": ([*asked(), "--csv", "x.txt"], "must end in .csv"),
    "no folder": ([*asked(), "--csv", "none/x.csv"], "there is no folder"),
}


@pytest.mark.parametrize("case", BAD_SPECTRUM)
def test_a_bad_spectrum_is_one_sentence(call, case):
    args, phrase = BAD_SPECTRUM[case]
    refused(call("spectrum", *args), phrase)


def test_a_prediction_without_a_spectrum_is_one_sentence(call):
    known = ("--task", "AttentionIndexed(1, Wishart(0.5))", "--learner", "BayesOptimal(alpha=2)")
    refused(call("spectrum", *known), "knows the target exactly")


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "begins"), [("png", PNG), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_predict_draws(call, tmp_path, suffix, begins):
    path = tmp_path / f"out.{suffix}"
    code, out, err = call("predict", *asked(), "--plot", path)
    assert (code, err) == (0, "")
    assert out == f"{ndl.predict(*specs())}\n{path}\n"
    assert path.read_bytes().startswith(begins)


def test_simulate_and_compare_draw_what_they_print(document, tmp_path):
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    measured = document("simulate", *asked(), *SMALL, "--plot", one)
    assert measured == document("simulate", *asked(), *SMALL)
    compared = document("compare", *asked(), *SMALL, "--plot", two)
    assert {row["metric"] for row in compared["comparison"]["rows"]} >= {"risk", "estimation_error", "rank_fraction"}
    assert one.read_bytes().startswith(PNG)
    assert two.read_bytes().startswith(PNG)


def test_other_results_are_drawn_too(call, tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    descent = "ProjectedDescent(lr=0.01, steps=4, start='sphere', d=8, runs=3)"
    assert call("predict", *LOCATION, "--learner", "Population()", "--plot", paths[0])[0] == 0
    assert call("predict", *LOCATION, "--learner", descent, "--plot", paths[1])[0] == 0
    small = ("--d", 8, "--repeats", 3, "--samples", 100)
    assert call("compare", *LOCATION, "--learner", "Population()", *small, "--plot", paths[2])[0] == 0
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_an_answer_that_did_not_converge_is_drawn_with_code_3(call, tmp_path):
    path = tmp_path / "out.png"
    descent = "ProjectedDescent(lr=1e300, steps=4, start='sphere', d=8, runs=3)"
    for verb in (("predict",), ("compare", "--d", 8)):
        code, out, _ = call(*verb, *LOCATION, "--learner", descent, "--plot", path)
        assert code == 3
        assert "DIVERGED" in out
        assert path.read_bytes().startswith(PNG)
        path.unlink()


@pytest.mark.parametrize("verb", [("predict",), ("simulate", *SMALL), ("compare", *SMALL), ("spectrum",)])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_computed(call, tmp_path, monkeypatch, verb):
    def never(*args, **options):
        raise AssertionError("computed")

    monkeypatch.setattr(ndl, "predict", never)
    monkeypatch.setattr(ndl, "simulate", never)
    (tmp_path / "taken.png").mkdir()
    for path, phrase in (
        (tmp_path / "out.gif", "must end in one of .png, .pdf, .svg"),
        (tmp_path / "out", "must end in one of"),
        (tmp_path / "none" / "out.png", "there is no folder"),
        (tmp_path / "taken.png", "it is a folder"),
    ):
        refused(call(*verb, *asked(), "--plot", path), phrase)


def test_numbers_are_printed_even_if_the_picture_fails(call, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    code, out, err = call("predict", *asked(), "--plot", tmp_path / "out.png")
    assert code == 2
    assert "estimation_error" in out
    assert err.count("\n") == 1
    assert "No space left on device" in err


def test_two_tokens_from_prediction_to_picture(document, tmp_path):
    """The softmax channel too: measured eigenvalues over the predicted law."""
    path = tmp_path / "out.png"
    found = document("predict", *asked("AttentionIndexed(2, Wishart(0.5), noise_var=0.5)"), "--plot", path)
    assert found["spectrum"]["atom"] == pytest.approx(1 - found["metrics"]["rank_fraction"]["value"], abs=1e-6)
    assert path.read_bytes().startswith(PNG)


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["thresholds", "spectrum"])
def test_help(call, command):
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert f" {command} [OPTIONS]" in out.splitlines()[0]
    assert "--json" in out


def test_help_and_refusals_import_nothing_heavy():
    """A mistyped picture is refused before jax or matplotlib is there."""
    code = (
        "import sys\nfrom needlepoint.cli import run\n"
        "run(['spectrum', '--help'])\nrun(['thresholds', '--help'])\nrun(['predict', '--plot', 'x.gif'])\n"
        "print('heavy:', sorted({'jax', 'matplotlib', 'scipy', 'xarray'} & set(sys.modules)))"
    )
    done = waiting.python(code, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert done.stderr.count("\n") == 1

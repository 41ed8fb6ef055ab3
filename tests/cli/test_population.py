"""The population optimum from the command line, for MaxSLR: predict, simulate at weights, compare, codes and JSON."""

import json
import math

import pytest

import needlepoint as ndl

TASK = "MaxSLR(tokens=2, snr=2, noise=0.2)"
HARD = "MaxSLR(tokens=3, snr=inf, noise=0.2)"
POPULATION, BAYES = "Population()", "BayesOptimal()"
SMALL, FEW = ("--d", 6, "--repeats", 4, "--samples", 2000), ("--d", 8, "--repeats", 4, "--samples", 200)
"""For attention and for the best predictor: sizes of other tests, whose kernels these are."""
MODELS = {
    "softmax": "KeyValueAttention(Softmax())",
    "linear": "KeyValueAttention(Linear())",
    "erf": "KeyValueAttention(Erf(scale=1, shift=None, offset=1))",
    "softplus": "KeyValueAttention(Softplus())",
}
# theory sheet 02, section 2, row "max L2 nu2": independent derivation, six digits
EXCESS = {"softmax": 0.240012, "linear": 0.384788, "erf": 0.381997, "softplus": 0.247148}


def asked(task=TASK, model=MODELS["softmax"], learner=POPULATION):
    parts = {"--task": task, "--model": model, "--learner": learner}
    return [word for name, value in parts.items() if value is not None for word in (name, value)]


@pytest.mark.paper
@pytest.mark.parametrize("model", MODELS)
def test_predict_prints_what_python_returns(document, call, model):
    found = document("predict", *asked(model=MODELS[model]))
    activation = {
        "softmax": ndl.Softmax(),
        "linear": ndl.Linear(),
        "erf": ndl.Erf(1.0, None, 1.0),
        "softplus": ndl.Softplus(),
    }[model]
    expected = ndl.predict(ndl.MaxSLR(2, 2.0, 0.2), ndl.KeyValueAttention(activation), ndl.Population())
    assert found == json.loads(json.dumps(expected.to_json()))
    assert found["status"] == "CONVERGED"
    assert found["branch"] == "oracle"
    # half a unit of the sixth digit
    assert found["metrics"]["excess_risk"]["value"] == pytest.approx(EXCESS[model], abs=6e-7)
    assert call("predict", *asked(model=MODELS[model])) == (0, f"{expected}\n", "")


@pytest.mark.parametrize("model", ["softmax", "linear", "erf", pytest.param("softplus", marks=pytest.mark.slow)])
def test_compare_measures_at_the_chosen_weights(document, model):
    found = document("compare", *asked(model=MODELS[model]), *SMALL)
    prediction, (measurement,) = found["prediction"], found["measurements"]
    assert measurement["model"] == prediction["resolved"]["model"]
    assert None not in measurement["model"]["activation"].values()
    assert measurement["overlaps"] == prediction["overlaps"]
    rows = {row["metric"]: row for row in found["comparison"]["rows"]}
    assert set(rows) == {"risk", "excess_risk"}
    for metric, row in rows.items():
        assert row["predicted"] == prediction["metrics"][metric]["value"]
        assert row["exact"] is True
        assert abs(row["z"]) < 5


def test_compare_bayes_and_random_lengths(document, call):
    task = "MaxSLR({2: 0.5, 3: 0.5}, snr=2, noise=0.2)"
    found = document("compare", *asked(task, None, BAYES), *FEW)
    assert found["prediction"]["task"]["tokens"] == [[2, 0.5], [3, 0.5]]
    assert found["prediction"]["model"] is None
    assert all(abs(row["z"]) < 5 for row in found["comparison"]["rows"])
    softmax = document("predict", *asked(task))
    # one (k, v) of softmax serves all lengths and reaches the Bayes risk
    assert softmax["metrics"] == found["prediction"]["metrics"]
    code, out, err = call("compare", *asked(task, None, BAYES), *FEW)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["metric", "d", "predicted", "measured", "error", "z", "theory"]


def test_simulate_prints_what_python_returns(document):
    at = "Overlaps(key=2, value=1, key_sq=4)"
    found = document("simulate", *asked(HARD, MODELS["linear"]), *SMALL, "--overlaps", at, "--seed", 3)
    expected = ndl.simulate(
        ndl.MaxSLR(3, math.inf, 0.2),
        ndl.KeyValueAttention(ndl.Linear()),
        ndl.Population(),
        d=6,
        repeats=4,
        samples=2000,
        seed=3,
        overlaps=ndl.Overlaps(2, 1, key_sq=4),
    )
    assert found == json.loads(json.dumps(expected.to_json()))
    assert found["task"]["snr"] == "inf"
    assert found["overlaps"]["key_sq"] == 4.0


def test_one_repeat_has_an_infinite_error_in_words(document):
    found = document("simulate", *asked(), *SMALL, "--repeats", 1, "--overlaps", "Overlaps(1, 1)")
    assert found["metrics"]["risk"]["error"] == "inf"


@pytest.mark.slow
def test_what_was_printed_is_a_spec_file(document, tmp_path):
    first = document("predict", *asked(HARD, MODELS["erf"]))
    path = tmp_path / "question.json"
    path.write_text(json.dumps(first["resolved"]))
    again = document("predict", "--spec", path)
    assert again["task"] == first["task"]
    assert again["model"]["activation"]["shift"] == first["resolved"]["model"]["activation"]["shift"] < 0
    # the chosen shift is the best one: fixing it moves the minimum by its error only
    error = first["metrics"]["risk"]["error"] + again["metrics"]["risk"]["error"]
    assert abs(again["metrics"]["risk"]["value"] - first["metrics"]["risk"]["value"]) <= 3 * error + 1e-12
    toml = tmp_path / "question.toml"
    toml.write_text(f"task = {HARD!r}\nmodel = {MODELS['erf']!r}\nlearner = 'Population()'\n")
    assert document("predict", "--spec", toml) == first
    softer = document("predict", "--spec", toml, "--set", "task.snr=2", "--set", "model.activation=Softmax()")
    assert softer == document("predict", *asked(HARD.replace("inf", "2")))
    assert document("predict", "--spec", toml, "--set", "task.snr=inf") == first


# --- an infimum that is not attained -------------------------------------------------------------


def test_softmax_at_an_infinite_snr_has_an_infimum_that_is_known(document, call):
    found = document("predict", *asked(HARD))
    assert found["status"] == "UNBOUNDED"
    assert found["status_sentence"] == ndl.Status.UNBOUNDED.sentence
    assert found["overlaps"] is None
    assert found["residual"] is None
    assert found["metrics"]["excess_risk"]["value"] == 0.0
    assert found["metrics"]["risk"]["value"] == pytest.approx(0.04, rel=1e-15)
    assert "the norm of the key goes to infinity" in found["notes"][0]
    code, out, err = call("predict", *asked(HARD))
    assert (code, err) == (0, "")
    assert "UNBOUNDED" in out


def test_compare_keeps_its_shape_when_the_optimum_is_not_attained(document):
    found = document("compare", *asked(HARD), *SMALL)
    assert found["prediction"] == document("predict", *asked(HARD))
    assert (found["measurements"], found["comparison"]) == ([], None)


def test_zero_offset_erf_with_free_norms_is_unbounded(document):
    found = document("predict", *asked("SpikedSLR(tokens=3, snr=2)", "KeyValueAttention(Erf())"))
    assert found["status"] == "UNBOUNDED"
    assert found["residual"] is None
    assert "0, with the value growing" in found["notes"][0]
    # as |k| goes to 0 with |k||v| fixed, erf is linear without an offset: 1 - S1^2/S2 = 1 - nu/(L + nu)
    assert found["metrics"]["risk"]["value"] == pytest.approx(0.6, abs=1e-14)


def test_python_returns_the_same_result():
    result = ndl.predict(ndl.MaxSLR(3, math.inf, 0.2), ndl.KeyValueAttention(ndl.Softmax()), ndl.Population())
    assert (result.status, result.overlaps, result.ok) == (ndl.Status.UNBOUNDED, None, True)

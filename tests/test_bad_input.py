"""Bad input, in Python and on the command line: one sentence that has the value and what would be admissible."""

import json
import math

import jax
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.cli import run

K, POPULATION, SOFTMAX = ndl.KeyValueAttention, ndl.Population(), ndl.KeyValueAttention(ndl.Softmax())
MAX, SPIKED = ndl.MaxSLR(3, 2.0, 0.2), ndl.SpikedSLR(3, 2.0, noise=0.2)
RANDOM = {2: 0.5, 3: 0.5}
START = ndl.Overlaps(0.3, 0.4)
DESCENT = ndl.ProjectedDescent(0.01, 5, START)
UNIT = K(ndl.Erf(0.4), unit_norm=True)
RIDGE = ndl.Ridge(2.0, 0.5)


def sentence(error):
    text = str(error)
    assert "\n" not in text
    assert text[-1] in ".?"
    return text


# --- values of a task ----------------------------------------------------------------------------

SUM, WHOLE, LENGTH = "positive probabilities that sum to 1", "whole and >= 1", "a whole number >= 1"
TOKENS = {
    "short of one": ({2: 0.5, 3: 0.4}, SUM, "they sum to 0.9"),
    "above one": ({2: 0.5, 3: 0.6}, SUM, "they sum to 1.1"),
    "negative": ({2: 1.5, 3: -0.5}, SUM),
    "zero": ({2: 0.0, 3: 1.0}, SUM),
    "nan": ({2: math.nan, 3: 1.0}, SUM),
    "infinite": ({2: math.inf, 3: 1.0}, SUM),
    "none": ({}, SUM),
    "length zero": ({0: 0.5, 2: 0.5}, WHOLE),
    "negative length": ({-1: 0.5, 2: 0.5}, WHOLE),
    "half a length": ({2.5: 0.5, 3: 0.5}, WHOLE),
    "words": ({"2": 0.5, "3": 0.5}, WHOLE),
    "twice": ([(2, 0.5), (2, 0.5)], "distinct lengths"),
    "no tokens": (0, LENGTH),
    "fewer": (-3, LENGTH),
    "fraction": (2.5, LENGTH, "{length: probability, ...}"),
    "text": ("3", LENGTH),
    "truth": (True, LENGTH),
    "nothing": (None, LENGTH),
    "list": ([2, 3], LENGTH),
    "infinity": (math.inf, LENGTH),
}
NUMBERS = {
    "negative snr": ({"snr": -1}, "snr=-1.0", "snr must be >= 0"),
    "nan snr": ({"snr": math.nan}, "snr=nan", "snr must be >= 0"),
    "minus infinity": ({"snr": -math.inf}, "snr=-inf", "snr must be >= 0"),
    "word": ({"snr": "abc"}, "snr='abc'", "snr must be >= 0"),
    "no snr": ({"snr": None}, "snr=None", "snr must be >= 0"),
    "truth": ({"snr": True}, "snr=True", "snr must be >= 0"),
    "complex": ({"snr": 1j}, "snr=1j", "snr must be >= 0"),
    "huge": ({"snr": 1e60}, "snr=1e+60", "at most 1e+50"),
    "negative noise": ({"noise": -0.1}, "noise=-0.1", "noise must be >= 0 and finite"),
    "nan noise": ({"noise": math.nan}, "noise=nan", "noise must be >= 0 and finite"),
    "infinite noise": ({"noise": math.inf}, "noise=inf", "noise must be >= 0 and finite"),
}


@pytest.mark.parametrize("task", [ndl.MaxSLR, ndl.SpikedSLR], ids=["max", "spiked"])
@pytest.mark.parametrize("case", TOKENS)
def test_lengths(case, task):
    tokens, *phrases = TOKENS[case]
    with pytest.raises(ndl.InvalidParameter) as caught:
        task(tokens, snr=2.0)
    text = sentence(caught.value)
    assert text.startswith(f"{task.__name__}(tokens={tokens!r}): tokens must be ")
    assert all(phrase in text for phrase in phrases), text


@pytest.mark.parametrize("task", [ndl.MaxSLR, ndl.SpikedSLR], ids=["max", "spiked"])
@pytest.mark.parametrize("case", NUMBERS)
def test_numbers(case, task):
    given, *phrases = NUMBERS[case]
    with pytest.raises(ndl.InvalidParameter) as caught:
        task(**{"tokens": 3, "snr": 2.0, **given})
    text = sentence(caught.value)
    assert text.startswith(f"{task.__name__}(")
    assert all(phrase in text for phrase in phrases), text


def test_only_the_softmax_place_has_an_infinite_snr():
    assert ndl.MaxSLR(3, math.inf).snr == ndl.MaxSLR(3, "inf").snr == ndl.MaxSLR(3, np.inf).snr == math.inf
    with pytest.raises(ndl.InvalidParameter, match=r"SpikedSLR\(snr=inf\): snr must be >= 0 and finite") as caught:
        ndl.SpikedSLR(3, math.inf)
    sentence(caught.value)


# --- questions -----------------------------------------------------------------------------------


def predict(task=MAX, model=SOFTMAX, learner=POPULATION, **options):
    return lambda: ndl.predict(task, model, learner, **options)


def simulate(task=MAX, model=SOFTMAX, learner=POPULATION, **options):
    return lambda: ndl.simulate(task, model, learner, **{"d": 6, "repeats": 2, "samples": 2000, **options})


def risk(task=MAX, model=SOFTMAX, overlaps=START, method=None):
    return lambda: ndl.population_risk(task, model, overlaps, method=method)


BAD, MISS, NAME = ndl.InvalidParameter, ndl.NoTheory, ndl.UnknownName
NEAREST = "predict(SpikedSLR, KeyValueAttention, ProjectedDescent)"
QUESTIONS = {
    "scale with free norms": (
        predict(model=K(ndl.Erf(None))),
        BAD,
        "scale=None needs unit_norm=True",
        "give scale=1.0",
    ),
    "lengths of a regression": (
        predict(MAX.replace(tokens=RANDOM), ndl.LinearRegression()),
        BAD,
        "{2: 0.5, 3: 0.5}",
        "give tokens as a whole number",
    ),
    "lengths of a regression, measured": (
        simulate(MAX.replace(tokens=RANDOM), ndl.LinearRegression()),
        BAD,
        "LinearRegression needs a fixed length",
    ),
    "descent": (
        predict(model=UNIT, learner=DESCENT),
        MISS,
        "predict(MaxSLR, KeyValueAttention",
        NEAREST,
    ),
    "descent, measured": (
        simulate(model=UNIT, learner=DESCENT),
        MISS,
        "simulate(SpikedSLR, KeyValueAttention, ProjectedDescent)",
    ),
    "SGD": (predict(model=UNIT, learner=ndl.OnlineSGD(0.1, 4, 2, START, d=8, runs=2)), MISS, "nearest are predict("),
    "no model": (predict(model=None), MISS, "predict(MaxSLR, None, Population)", "predict(MaxSLR, None, BayesOptimal)"),
    "Bayes with a model": (predict(learner=ndl.BayesOptimal()), MISS, "predict(MaxSLR, None, BayesOptimal)"),
    "method": (risk(method="kernl"), NAME, "method for Softmax 'kernl'", "did you mean 'kernel'?"),
    "method of another": (risk(method="closed"), NAME, "'closed'", "known: fields, kernel, qmc."),
    "method of linear": (risk(model=K(ndl.Linear()), method="closed"), NAME, "'closed'", "elementwise"),
    "method, spiked": (risk(SPIKED, method="qcm"), NAME, "'qcm'", "did you mean 'qmc'?"),
    "risk of a regression": (
        risk(model=ndl.LinearRegression()),
        MISS,
        "(MaxSLR, LinearRegression)",
        "(MaxSLR, KeyValue",
    ),
    "risk at a dict": (risk(overlaps={"key": 1}), BAD, "{'key': 1}", "Overlaps(key=..., value=...)"),
    "risk with a free constant": (
        risk(model=K(ndl.Erf(shift=None))),
        BAD,
        "shift is None",
        ".resolved has the best one",
    ),
    "risk off the sphere": (
        risk(model=UNIT, overlaps=ndl.Overlaps(1, 1, key_sq=2)),
        BAD,
        "key_sq=2.0",
        "must be 1 for a model with unit_norm=True",
    ),
    "no overlaps": (simulate(), BAD, "overlaps= is needed", "predict(...).overlaps are the best ones"),
    "overlaps of Bayes": (
        simulate(model=None, learner=ndl.BayesOptimal(), overlaps=START),
        BAD,
        "BayesOptimal chooses its weights; leave it out",
    ),
    "unresolved": (simulate(model=K(ndl.Erf(offset=None))), BAD, "offset is None", "use predict(...).resolved"),
    "Gram matrix": (lambda: ndl.Overlaps(2, 1), BAD, "Overlaps(key=2.0", "Gram matrix of (k*, k)", "eigenvalue is -1"),
    "Gram matrix of four": (
        lambda: ndl.Overlaps(0.6, 0.6, 0.6, 0.6, 0.4),
        BAD,
        "Gram matrix of (k*, v*, k, v) must be positive semi-definite",
    ),
    "nan overlap": (lambda: ndl.Overlaps(math.nan, 1), BAD, "Overlaps(key=nan): key must be", "(k . k*)"),
    "tolerance": (predict(tol=0), BAD, "predict(tol=0)", "> 0 and finite"),
    "seed": (predict(seed=1.5), BAD, "predict(seed=1.5)", "from 0 to 2**63 - 1"),
    "text for a task": (predict("MaxSLR(3, 2)"), BAD, "task='MaxSLR(3, 2)'", "not a task"),
    "a model for a learner": (predict(learner=SOFTMAX), BAD, "not a learner"),
    "an activation for a model": (predict(model=ndl.Softmax()), BAD, "model=Softmax()", "not a model"),
    "a function for a model": (predict(model=np.exp), BAD, "not a model"),
    "within": (lambda: ndl.Population("manifolds"), BAD, "'manifolds'", "did you mean 'manifold'?"),
    "text for an activation": (
        lambda: K("Softmax"),
        BAD,
        "activation='Softmax'",
        "one of Erf, Linear, Softmax, SoftmaxOne, Softplus",
    ),
    "no samples": (lambda: ndl.Ridge(0, 1), BAD, "Ridge(alpha=0.0): alpha must be > 0", "samples over d"),
    "fewer samples": (lambda: ndl.Ridge(-2, 1), BAD, "Ridge(alpha=-2.0)", "> 0"),
    "negative penalty": (lambda: ndl.Ridge(2, -0.1), BAD, "Ridge(lam=-0.1)", ">= 0"),
    "negative penalty of a pair": (lambda: ndl.Ridge(2, (0.1, -0.1)), BAD, "lam=(0.1, -0.1)", ">= 0"),
    "one penalty of several": (lambda: ndl.Ridge(2, (0.1,)), BAD, "lam=(0.1,)", "pair"),
    "three penalties": (predict(learner=ndl.Ridge(2, (0.1, 0.2, 0.3))), BAD, "lam=(0.1, 0.2, 0.3)", "pair"),
    "penalty by a wrong word": (lambda: ndl.Ridge(2, "optimum"), BAD, "lam='optimum'", "optimal"),
    "start of ridge": (lambda: ndl.Ridge(2, 1, start="teacher"), BAD, "start='teacher'", "informed"),
    "algorithm of ridge": (lambda: ndl.Ridge(2, 1, algorithm="sgd"), BAD, "algorithm='sgd'", "lbfgs"),
    "ridge on the sphere": (
        predict(SPIKED, UNIT, RIDGE),
        MISS,
        "a penalty chooses the norms",
        "unit_norm=False has one",
    ),
    "ridge with a free constant": (predict(model=K(ndl.Erf(shift=None)), learner=RIDGE), BAD, "shift is None"),
    "landscape": (lambda: ndl.key_landscape(MAX, SOFTMAX, 1.5, 1.0), BAD, "alignment must be from -1 to 1"),
    "landscape of a regression": (
        lambda: ndl.key_landscape(MAX, ndl.LinearRegression(), 0.5, 1.0),
        BAD,
        "MaxSLR and attention without free constants",
    ),
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_question_without_an_answer_says_what_has_one(case):
    question, kind, *phrases = QUESTIONS[case]
    with pytest.raises(ndl.NeedlepointError) as caught:
        question()
    assert type(caught.value) is kind
    text = sentence(caught.value)
    assert all(phrase in text for phrase in phrases), text


def test_a_weight_that_nothing_holds_is_said_to_be_so():
    """Fewer samples than weights and no penalty: the training error is zero on a whole subspace."""
    with pytest.raises(ndl.NotConverged, match="UNBOUNDED") as caught:
        ndl.predict(SPIKED.replace(tokens=2), K(ndl.Linear()), ndl.Ridge(0.5, 0.0))
    text = sentence(caught.value)
    assert "held neither by the penalty nor by alpha=0.5 d samples" in text
    assert "give a small penalty" in text
    found = caught.value.result
    assert found.status is ndl.Status.UNBOUNDED
    assert found.stable is None
    assert found.train_loss.value < 1e-3
    assert not found.ok  # a step of the iteration is no infimum
    assert math.isinf(found.excess_risk.error)


def test_a_tolerance_that_the_most_points_do_not_meet_is_reported(document):
    question = SPIKED, K(ndl.Linear()), ndl.Ridge(5.0, 2.0)
    with pytest.raises(ndl.NotConverged, match="NOISE_LIMITED") as caught:
        ndl.predict(*question, tol=1e-7)
    assert "1e-07 was asked for" in sentence(caught.value)
    found = caught.value.result
    assert found.status is ndl.Status.NOISE_LIMITED
    assert 1e-7 < found.excess_risk.error < 1e-2
    assert found.stable is True
    words = [w for name, part in zip(("--task", "--model", "--learner"), question, strict=True) for w in (name, part)]
    assert document("predict", *words, "--tol", 1e-7, code=3) == json.loads(json.dumps(found.to_json()))


# --- the command line ----------------------------------------------------------------------------


def asked(task="MaxSLR(3, 2)", model="KeyValueAttention(Softmax())", learner="Population()"):
    parts = {"--task": task, "--model": model, "--learner": learner}
    return [word for name, value in parts.items() if value is not None for word in (name, value)]


SIMULATE = ("simulate", "--d", "8", "--repeats", "2", "--samples", "50")
COMMANDS = {
    "sum": (["predict", *asked("MaxSLR({2: 0.5, 3: 0.4}, 2)")], "{2: 0.5, 3: 0.4}", SUM, "they sum to 0.9"),
    "negative probability": (["predict", *asked("MaxSLR({2: 1.5, 3: -0.5}, 2)")], "{2: 1.5, 3: -0.5}", SUM),
    "length zero": (["predict", *asked("MaxSLR({0: 0.5, 2: 0.5}, 2)")], "{0: 0.5, 2: 0.5}", WHOLE),
    "half a length": (["predict", *asked("MaxSLR({2.5: 0.5, 3: 0.5}, 2)")], "{2.5: 0.5, 3: 0.5}", WHOLE),
    "pairs twice": (["predict", *asked("MaxSLR([(2, 0.5), (2, 0.5)], 2)")], "(2, 0.5)", "distinct lengths"),
    "length twice": (["predict", *asked("MaxSLR({2: 0.5, 2: 0.5}, 2)")], "MaxSLR(", "2: 0.5"),
    "length twice, one of them sure": (["predict", *asked("MaxSLR({2: 0.5, 2: 1.0}, 2)")], "2: 0.5"),
    "no tokens": (["predict", *asked("MaxSLR(0, 2)")], "MaxSLR(tokens=0)", LENGTH),
    "negative snr": (["predict", *asked("MaxSLR(3, -1)")], "MaxSLR(snr=-1.0)", ">= 0"),
    "nan snr": (["predict", *asked("MaxSLR(3, nan)")], "MaxSLR(snr=nan)", ">= 0"),
    "minus infinity": (["predict", *asked("MaxSLR(3, -inf)")], "MaxSLR(snr=-inf)", ">= 0"),
    "infinite spike": (["predict", *asked("SpikedSLR(3, inf)")], "SpikedSLR(snr=inf)", ">= 0 and finite"),
    "quoted word": (["predict", *asked("MaxSLR(3, snr='abc')")], "MaxSLR(snr='abc')", ">= 0"),
    "word": (["predict", *asked("MaxSLR(3, snr=abc)")], "unknown name 'abc'"),
    "infinity by a wrong name": (["predict", *asked("MaxSLR(3, snr=infinity)")], "'infinity'", "did you mean 'inf'?"),
    "negative noise": (["predict", *asked("MaxSLR(3, 2, noise=-1)")], "MaxSLR(noise=-1.0)", ">= 0 and finite"),
    "unknown task": (["predict", *asked("MaxSlr(3, 2)")], "unknown name 'MaxSlr': did you mean 'MaxSLR'?"),
    "unknown field": (["predict", *asked("MaxSLR(3, snrr=2)")], "field of MaxSLR 'snrr': did you mean 'snr'?"),
    "field of another task": (["predict", *asked("MaxSLR(3, 2, relevant_std=2)")], "known: noise, snr, tokens"),
    "missing snr": (["predict", *asked("MaxSLR(3)")], "MaxSLR: snr is missing", "tokens, snr, noise"),
    "unknown activation": (["predict", *asked(model="KeyValueAttention(Sofmax())")], "did you mean 'Softmax'?"),
    "activation without parentheses": (["predict", *asked(model="KeyValueAttention(Softmax)")], "Softmax(...)"),
    "scale with free norms": (["predict", *asked(model="KeyValueAttention(Erf(None))")], "needs unit_norm=True"),
    "regression": (
        ["predict", *asked("MaxSLR({2: 0.5, 3: 0.5}, 2)", "LinearRegression()")],
        "give tokens as a whole number",
    ),
    "descent": (
        [
            "predict",
            *asked(model="KeyValueAttention(Erf(1), True)", learner="ProjectedDescent(0.1, 4, Overlaps(1, 1))"),
        ],
        "NoTheory",
        NEAREST,
    ),
    "no overlaps": ([*SIMULATE, *asked()], "overlaps= is needed"),
    "Gram matrix": ([*SIMULATE, *asked(), "--overlaps", "Overlaps(2, 1)"], "Gram matrix of (k*, k)"),
    "overlaps of another kind": ([*SIMULATE, *asked(), "--overlaps", "MaxSLR(3, 2)"], "Overlaps(key=1, value=1)"),
    "small d": (["simulate", "--d", "3", *asked(), "--overlaps", "Overlaps(0.5, 0.5)"], "d=3", "d must be >= 4"),
    "changed to nan": (["predict", *asked(), "--set", "task.snr=nan"], "MaxSLR(snr=nan)"),
    "changed to a word": (["predict", *asked(), "--set", "task.snr=abc"], "MaxSLR(snr='abc')"),
    "compare without a rule": (["compare", "--d", "8", *asked(model=None)], "predict(MaxSLR, None, BayesOptimal)"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_bad_command_is_one_line_and_code_2(case, capsys):
    args, *phrases = COMMANDS[case]
    code = run([*args, "--json"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("needlepoint: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert all(phrase in err for phrase in phrases), err


# --- finite numbers far outside any use ----------------------------------------------------------

ABSURD = {
    "tokens": [*asked("MaxSLR(10**15, 2)", None, "BayesOptimal()")],
    "many tokens": [*asked("MaxSLR(10**10, 0.5)", None, "BayesOptimal()")],
    "tokens of linear": [*asked("MaxSLR(10**15, inf)", "KeyValueAttention(Linear())")],
    "snr": [*asked("MaxSLR(3, 1e49)")],
    "snr of Bayes": [*asked("MaxSLR(3, 1e49)", None, "BayesOptimal()")],
    "small snr": [*asked("MaxSLR(3, 1e-300)", None, "BayesOptimal()")],
    "small snr of erf": [*asked("MaxSLR(3, 1e-300)", "KeyValueAttention(Erf(1, None, 1))")],
    "noise": [*asked("MaxSLR(3, 2, 1e49)")],
    "scale": [*asked(model="KeyValueAttention(Erf(1e49, 0, 1), unit_norm=True)")],
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_numbers_end_in_a_possible_risk_or_a_sentence(case, capsys):
    code = run(["predict", *ABSURD[case], "--json"])
    out, err = capsys.readouterr()
    if code == 2:
        assert (out, err.count("\n")) == ("", 1)
        return
    assert (err, code in (0, 3)) == ("", True)
    excess = json.loads(out)["metrics"]["excess_risk"]
    if excess["value"] is not None and case != "scale":
        # with free norms (all but the scale) v = 0 has an excess risk of 1, and none is negative
        assert -excess["error"] <= excess["value"] <= 1 + excess["error"]


@pytest.mark.parametrize("case", ["snr", "snr of Bayes"])
def test_absurd_numbers_are_measured_or_refused(case, capsys):
    at = ["--overlaps", "Overlaps(1e49, 1, key_sq=1e98)"] if case == "snr" else []
    code = run([*SIMULATE, *ABSURD[case], *at, "--json"])
    out, err = capsys.readouterr()
    if code == 2:
        assert (out, err.count("\n")) == ("", 1)
        return
    found = json.loads(out)
    # a number that is not finite needs a status that says so
    assert (found["metrics"]["risk"]["value"] is not None) == (found["status"] == "CONVERGED")
    assert code == (0 if found["status"] == "CONVERGED" else 3)


# --- values that Python itself has trouble with --------------------------------------------------

HUGE = 10**5000  # Python does not write integers of more than 4,300 digits
PREDICTED = ndl.predict(SPIKED, ndl.LinearRegression(), POPULATION)
ODD = {
    "huge tokens": (lambda: ndl.SpikedSLR(HUGE, 1.0), "<integer of 5,001 digits>", "tokens must be"),
    "huge length": (lambda: ndl.SpikedSLR({HUGE: 1.0}, 1.0), "integer of more than 4,300 digits", "tokens must be"),
    "huge snr": (lambda: ndl.SpikedSLR(2, HUGE), "<integer of 5,001 digits>", "snr must be"),
    "huge negative snr": (lambda: ndl.SpikedSLR(2, -HUGE), "<integer of 5,001 digits>", "snr must be"),
    "huge penalty": (lambda: ndl.Ridge(1.0, HUGE), "<integer of 5,001 digits>", "lam must be"),
    "huge eigenvalue": (lambda: ndl.Eigenvalues([HUGE]), "integer of more than 4,300 digits", "values must be"),
    "huge choice": (lambda: ndl.Ridge(1.0, 1.0, start=HUGE), "<integer of 5,001 digits>", "start must be"),
    "huge start": (lambda: ndl.ProjectedDescent(0.1, 5, HUGE), "<integer of 5,001 digits>", "start must be"),
    "huge flag": (lambda: K(ndl.Softmax(), HUGE), "<integer of 5,001 digits>", "unit_norm must be"),
    "huge seed": (lambda: ndl.predict(SPIKED, SOFTMAX, POPULATION, seed=HUGE), "<integer of 5,001 digits>", "seed"),
    "huge task": (lambda: ndl.predict(HUGE, SOFTMAX, POPULATION), "<integer of 5,001 digits>", "not a task"),
    "huge tol": (lambda: ndl.predict(SPIKED, SOFTMAX, POPULATION, tol=HUGE), "<integer of 5,001 digits>", "tol must"),
    "huge d": (
        lambda: ndl.simulate(SPIKED, SOFTMAX, POPULATION, d=HUGE, repeats=1),
        "<integer of 5,001 digits>",
        "d must be",
    ),
    "huge repeats": (lambda: ndl.Simulation(d=4, repeats=HUGE), "<integer of 5,001 digits>", "repeats must be"),
    "huge axis": (
        lambda: ndl.sweep(SPIKED, SOFTMAX, POPULATION, {"task.snr": HUGE}),
        "<integer of 5,001 digits>",
        "give a list",
    ),
    "huge value of an axis": (
        lambda: ndl.sweep(SPIKED, SOFTMAX, POPULATION, {"task.snr": [HUGE]}),
        "<integer of 5,001 digits>",
        "snr must be",
    ),
    "huge pool": (lambda: ndl.Processes(HUGE), "<integer of 5,001 digits>", "workers must be"),
    "huge memory": (lambda: ndl.Processes(1, HUGE), "<integer of 5,001 digits>", "memory must be"),
    "huge name": (lambda: ndl.activation(HUGE), "<integer of 5,001 digits>", "must be an identifier"),
    "compare nothing": (lambda: ndl.compare(None, None), "takes a Prediction", "Measurements"),
    "compare with nothing": (lambda: ndl.compare(PREDICTED, None), "takes a Prediction", "Measurements"),
    "compare with a number": (lambda: ndl.compare(PREDICTED, 3), "takes a Prediction", "Measurements"),
    "compare swapped": (lambda: ndl.compare([PREDICTED], PREDICTED), "takes a Prediction", "Measurements"),
    "class of a learner": (lambda: ndl.predict(SPIKED, SOFTMAX, ndl.Population), "is a class", "write Population(...)"),
    "class of a task": (
        lambda: ndl.simulate(ndl.SpikedSLR, SOFTMAX, POPULATION, d=4, repeats=2),
        "is a class",
        "SpikedSLR(...)",
    ),
    "class of an activation": (lambda: K(ndl.Softmax), "activation=Softmax", "write Softmax(...)"),
    "class of a target": (lambda: ndl.AttentionIndexed(1, ndl.Wishart), "is a class", "write Wishart(...)"),
    "plot of two predictions": (lambda: ndl.plot(PREDICTED, PREDICTED), "plot(prediction, measurements)", "sweep"),
    "plot of a number": (lambda: ndl.plot(3), "plot(int)", "takes a prediction or measurement"),
    "inside jit": (lambda: jax.jit(lambda x: ndl.SpikedSLR(2, x).snr)(2.0), "traced value", "Call it outside"),
    "inside grad": (lambda: jax.grad(lambda x: ndl.Ridge(x, 1.0).alpha)(2.0), "traced value", "Call it outside"),
    "long text": (lambda: ndl.SpikedSLR("x" * 300_000, 1.0), " ... ", "tokens must be"),
    "long list": (lambda: ndl.Eigenvalues(["a"] * 100_000), " ... ", "values must be"),
    "cite a number": (lambda: ndl.cite(3), "cite(3)", "arXiv number"),
    "full-width name": (lambda: ndl.activation("ｍｉｎｅ"), "activation('ｍｉｎｅ')", "reads this name as 'mine'"),
    "ligature in a name": (lambda: ndl.activation("ﬁt"), "activation('ﬁt')", "reads this name as 'fit'"),
    "tol is true": (lambda: ndl.predict(SPIKED, SOFTMAX, POPULATION, tol=True), "tol=True", "tol must be > 0"),
    "tol of a sweep is true": (
        lambda: ndl.sweep(SPIKED, SOFTMAX, POPULATION, {"task.snr": [1.0]}, tol=True),
        "tol=True",
        "tol must be > 0",
    ),
    "tol of branches is true": (lambda: ndl.bayes_branches(SPIKED, 2.0, tol=True), "tol=True", "tol must be > 0"),
    "array of a word": (lambda: ndl.Ridge(1.0, 1.0, start=np.array("both")), "start=array('both'", "'both'"),
    "array of words": (lambda: ndl.Ridge(1.0, 1.0, start=np.array(["both"])), "start=array(['both']", "'both'"),
    "array of a number": (lambda: ndl.SpikedSLR(2, np.array([1.0])), "snr=array([1.])", "snr must be"),
    "array of a count": (lambda: ndl.SpikedSLR(np.array([2]), 1.0), "tokens=array([2])", "tokens must be"),
    "array on many lines": (lambda: ndl.SpikedSLR(2, np.eye(3)), "snr=array([[1., 0., 0.], [0.", "snr must be"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_values_are_one_sentence(case):
    call, *phrases = ODD[case]
    with pytest.raises(ndl.InvalidParameter) as caught:
        call()
    text = sentence(caught.value)
    assert all(phrase in text for phrase in phrases), text
    assert len(text) < 1000


def test_words_of_numpy_are_words():
    made = ndl.Ridge(1.0, np.str_("optimal"), start=np.str_("both"))
    assert made == ndl.Ridge(1.0, "optimal", start="both")
    assert {type(made.lam), type(made.start)} == {str}
    assert type(ndl.ProjectedDescent(0.1, 5, np.str_("sphere"), d=4, runs=2).start) is str


def test_a_long_number_on_the_command_line_is_one_sentence(capsys, tmp_path):
    digits = "9" * 5000
    for words in (["--task", f"SpikedSLR(2, {digits})"], ["--seed", digits], ["--set", f"task.snr={digits}"]):
        assert run(["predict", "--task", "SpikedSLR(2, 1)", "--learner", "BayesOptimal()", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "spec.json").write_text('{"task": {"type": "SpikedSLR", "tokens": 2, "snr": ' + digits + "}}")
    assert run(["predict", "--spec", str(tmp_path / "spec.json")]) == 2
    assert "is not valid JSON" in capsys.readouterr().err

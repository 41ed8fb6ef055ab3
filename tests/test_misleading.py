"""Mistakes of the first ten minutes: each is one sentence that says what to write instead, however long the input."""

import io
import json

import jax
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.cli import run
from needlepoint.core.errors import brief

TASK, MODEL, RIDGE = ndl.SpikedSLR(2, 2.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Ridge(2.0, 0.5)
INDEXED = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5)
AT = ndl.Overlaps(1.0, 1.0)
OVER = {"task.snr": [1.0]}
LONG = "x" * 300_000


def sentence(call, *phrases):
    with pytest.raises(ndl.InvalidParameter) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    assert len(text) <= 1300
    assert all(phrase in text for phrase in phrases), text


CLASSES = {
    "a learner": (
        lambda: ndl.predict(TASK, MODEL, ndl.Population),
        "write Population(...), as in `needlepoint learners`",
    ),
    "a task": (lambda: ndl.predict(ndl.SpikedSLR, MODEL, ndl.Population()), "write SpikedSLR(...)"),
    "a model": (lambda: ndl.predict(TASK, ndl.LinearRegression, ndl.Population()), "write LinearRegression(...)"),
    "an activation": (lambda: ndl.KeyValueAttention(ndl.Softmax), "this is a class; write Softmax(...)"),
    "a target": (lambda: ndl.AttentionIndexed(1, ndl.Wishart), "this is a class; write Wishart(...)"),
    "a start": (lambda: ndl.ProjectedDescent(0.1, 3, ndl.Overlaps), "this is a class; write Overlaps(...)"),
    "in simulate": (lambda: ndl.simulate(TASK, None, ndl.BayesOptimal, d=8, repeats=2), "write BayesOptimal(...)"),
    "in sweep": (lambda: ndl.sweep(TASK, MODEL, ndl.Ridge, OVER), "write Ridge(...)"),
    "in over": (lambda: ndl.sweep(TASK, MODEL, RIDGE, {"learner": [ndl.Population]}), "a class; write Population(...)"),
    "nested in over": (
        lambda: ndl.sweep(TASK, MODEL, RIDGE, {"model.activation": [ndl.Softmax]}),
        "write Softmax(...)",
    ),
    "in also": (lambda: ndl.sweep(TASK, MODEL, RIDGE, OVER, also=ndl.Simulation), "write it as Simulation(d=..."),
    "in population_risk": (lambda: ndl.population_risk(ndl.SpikedSLR, MODEL, AT), "write SpikedSLR(...)"),
    "model in population_risk": (lambda: ndl.population_risk(TASK, ndl.KeyValueAttention, AT), "this is a class"),
    "overlaps": (lambda: ndl.population_risk(TASK, MODEL, ndl.Overlaps), "write it as Overlaps(key=..., value=...)"),
    "in thresholds": (lambda: ndl.thresholds(INDEXED, ndl.TiedAttention), "write TiedAttention(...)"),
    "task in thresholds": (lambda: ndl.thresholds(ndl.AttentionIndexed, ndl.TiedAttention()), "this is a class"),
    "in bayes_branches": (lambda: ndl.bayes_branches(ndl.SpikedSLR, 2.0), "write SpikedSLR(...)"),
    "in key_landscape": (lambda: ndl.key_landscape(ndl.SpikedSLR, MODEL, [0.0], [1.0]), "write SpikedSLR(...)"),
    "an activation for a model": (
        lambda: ndl.predict(TASK, ndl.Softmax(), ndl.Population()),
        "write KeyValueAttention(Softmax(...))",
    ),
    "its class for a model": (
        lambda: ndl.predict(TASK, ndl.Softmax, ndl.Population()),
        "write KeyValueAttention(Softmax(...))",
    ),
    "another order": (lambda: ndl.predict(MODEL, TASK, ndl.Population()), "the order is task, model, learner"),
}


@pytest.mark.parametrize("case", CLASSES)
def test_a_class_where_an_instance_is_meant(case):
    call, phrase = CLASSES[case]
    sentence(call, phrase)


# --- answers in the wrong place ------------------------------------------------------------------


@pytest.fixture(scope="module")
def both():
    bayes = ndl.BayesOptimal()
    return ndl.predict(TASK, None, bayes), ndl.simulate(TASK, None, bayes, d=8, repeats=2, samples=20)


def test_compare_in_another_order(both):
    prediction, measurement = both
    for one, two in ((measurement, prediction), (prediction, prediction), ([measurement], prediction)):
        sentence(lambda one=one, two=two: ndl.compare(one, two), "a Prediction and one or several Measurements")


def test_plot_of_two_answers(both):
    prediction, measurement = both
    several = "several predictions are drawn as a study (sweep)"
    sentence(lambda: ndl.plot(prediction, prediction), several)
    sentence(lambda: ndl.plot([prediction, prediction]), several)
    sentence(lambda: ndl.plot(measurement, measurement), "give that first")
    sentence(lambda: ndl.plot(prediction, colour="red"), "plot(colour=...)", "eigenvalues, ax, path")
    sentence(lambda: ndl.plot(prediction, ax=3), "ax must be one axes of matplotlib")
    sentence(lambda: ndl.plot(ndl.Prediction), "takes a prediction or measurement, a comparison, a spectrum")


def test_plot_of_a_spectrum_is_a_picture():
    found = ndl.predict(INDEXED, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1))
    figure = ndl.plot(found.spectrum)
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    assert figure.axes[0].get_xlabel() == "eigenvalue of the learned matrix"


# --- inside jax.jit ------------------------------------------------------------------------------

JITTED = {
    "predict": lambda x: x * ndl.predict(TASK, None, ndl.BayesOptimal()).risk.value,
    "simulate": lambda x: x * ndl.simulate(TASK, None, ndl.BayesOptimal(), d=8, repeats=2).risk.value,
    "sweep": lambda x: ndl.sweep(TASK, None, ndl.BayesOptimal(), {"task.snr": [1.0]}),
    "population_risk": lambda x: x * ndl.population_risk(TASK, MODEL, AT).value,
    "thresholds": lambda x: x * ndl.thresholds(INDEXED, ndl.TiedAttention()).interpolation.value,
    "a traced d": lambda x: ndl.simulate(TASK, None, ndl.BayesOptimal(), d=x, repeats=2),
    "a traced tol": lambda x: ndl.predict(TASK, None, ndl.BayesOptimal(), tol=x),
    "a traced field": lambda x: ndl.predict(ndl.SpikedSLR(2, x), None, ndl.BayesOptimal()),
    "a traced overlap": lambda x: ndl.population_risk(TASK, MODEL, ndl.Overlaps(x, 1.0)),
}


@pytest.mark.parametrize("case", JITTED)
def test_inside_a_users_jit(case):
    sentence(lambda: jax.jit(JITTED[case])(1.0), "inside jax.jit", "outside")


@pytest.mark.parametrize("transformed", [jax.grad, jax.vmap])
def test_inside_other_transformations(transformed):
    sentence(lambda: transformed(JITTED["a traced field"])(np.ones(2) if transformed is jax.vmap else 1.0), "jax.jit")


# --- very long input -----------------------------------------------------------------------------

MANY = np.arange(200_000.0)
ECHOED = {
    "a word": lambda: ndl.Population(within=LONG),
    "an array": lambda: ndl.SpikedSLR(2, MANY),
    "a law": lambda: ndl.SpikedSLR(dict.fromkeys(range(1, 50000), 1.0), 2.0),
    "a paper": lambda: ndl.cite(LONG),
    "a method": lambda: ndl.population_risk(TASK, MODEL, AT, method=LONG),
    "a kind": lambda: ndl.Estimate(1.0, 1.0, LONG),
    "a path": lambda: ndl.sweep(TASK, None, ndl.BayesOptimal(), {LONG: [1.0]}),
    "a store": lambda: ndl.sweep(TASK, None, ndl.BayesOptimal(), OVER, store=LONG),
    "a store of numbers": lambda: ndl.sweep(TASK, None, ndl.BayesOptimal(), OVER, store=MANY.tolist()),
    "a study": lambda: ndl.open_study(LONG),
    "an executor": lambda: ndl.sweep(TASK, None, ndl.BayesOptimal(), OVER, executor=LONG),
    "a picture": lambda: ndl.plot(ndl.predict(TASK, None, ndl.BayesOptimal()), path=LONG),
}


@pytest.mark.parametrize("case", ECHOED)
def test_long_input_is_not_echoed(case):
    sentence(ECHOED[case])


def test_a_missing_metric_with_a_long_name(both):
    with pytest.raises(AttributeError) as caught:
        getattr(both[0], LONG)
    assert len(str(caught.value)) < 500


def test_an_answer_to_a_long_question_is_short():
    task = INDEXED.replace(target=ndl.Eigenvalues(tuple(np.linspace(0.0, 1.0, 5000))))
    found = ndl.Prediction(task, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1), {"risk": ndl.Estimate(1.0)})
    assert len(repr(found)) < 1000
    assert len(found._repr_html_()) < 2000


PLAIN = ("--learner", "Population()")
TYPED = {
    "a task": ("predict", "--task", LONG, *PLAIN),
    "a string": ("predict", "--task", f'SpikedSLR(2, snr="{LONG[:90_000]}")', *PLAIN),
    "a lambda": ("predict", "--task", f'SpikedSLR(2, lambda: "{LONG[:90_000]}")', *PLAIN),
    "no task": ("predict", "--task", f'"{LONG[:90_000]}"', *PLAIN),
    "a change": ("predict", "--task", "SpikedSLR(2, 2)", *PLAIN, "--set", LONG),
    "a field": ("predict", "--task", "SpikedSLR(2, 2)", *PLAIN, "--set", f"task.{LONG}=1"),
    "overlaps": ("simulate", "--task", "SpikedSLR(2, 2)", *PLAIN, "--d", "8", "--overlaps", f'"{LONG[:90_000]}"'),
    "a file": ("predict", "--spec", LONG),
    "a picture": ("predict", "--task", "SpikedSLR(2, 2)", *PLAIN, "--plot", LONG),
    "a command": (LONG,),
    "an option": ("predict", f"--{LONG}"),
    "a number": ("simulate", "--d", LONG),
    "a store": ("study", "show", LONG),
    "activations": ("predict", "--activations", LONG),
}


@pytest.mark.parametrize("case", TYPED)
def test_long_input_is_not_echoed_on_the_command_line(case, capsys):
    assert run(list(TYPED[case])) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("needlepoint: ")
    assert err.count("\n") == 1
    assert len(err) < 1400


@pytest.mark.parametrize(
    "document", [{"task": {"type": "SpikedSLR", "snr": LONG}}, {LONG: 1}, {"task": {"type": LONG}}]
)
def test_long_input_in_a_file_is_not_echoed(document, tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    assert run(["predict", "--spec", str(path)]) == 2
    assert len(capsys.readouterr().err) < 1400


@pytest.mark.exact
def test_a_brief_message_keeps_its_ends():
    assert brief("as it is.") == "as it is."
    found = brief("begin " + LONG + " end.")
    assert found.startswith("begin x")
    assert found.endswith("x end.")
    assert len(found) <= 1200
    assert "characters left out" in found

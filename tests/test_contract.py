"""Every registered rule answers a small question; every other combination says what is nearest."""

import itertools
import math
import subprocess
import sys

import pytest

import needlepoint as ndl
from needlepoint.core import dispatch, specs
from needlepoint.core.routes import routes
from needlepoint.simulation import simulating
from needlepoint.theory import curves, predicting

for verb in (predicting, curves, simulating):
    verb.load_rules()

ERF = ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
FREE = ndl.KeyValueAttention(ndl.Erf(scale=0.4, offset=1.0))
SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
START = ndl.Overlaps(0.3, 0.4, 0.1, -0.1, 0.2)
# the smallest sensible instance of every spec; a new spec must be added here to be covered
EXAMPLES = {
    "SpikedSLR": ndl.SpikedSLR(3, snr=4.0, relevant_std=0.8, noise=0.2),
    "MaxSLR": ndl.MaxSLR(3, snr=2.0, noise=0.2),
    "AttentionIndexed": ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04),
    "KeyValueAttention": ERF,
    "TiedAttention": ndl.TiedAttention(),
    "DirectAttention": ndl.DirectAttention(),
    "LinearRegression": ndl.LinearRegression(),
    "SeveralSLR": ndl.SeveralSLR(3, snr=3.0, noise=0.2),
    "Needles": ndl.Needles(2, snr=3.0, noise=0.2),
    "SignSLR": ndl.SignSLR(2, snr=3.0),
    "PositionalSemantic": ndl.PositionalSemantic(0.3),
    "MultiHead": ndl.MultiHead(2, ndl.Softmax()),
    "LowRankTied": ndl.LowRankTied(),
    "NoneType": None,
    "Population": ndl.Population(),
    "BayesOptimal": ndl.BayesOptimal(d=8),
    "Ridge": ndl.Ridge(alpha=3.0, lam=1.0),
    "ProjectedDescent": ndl.ProjectedDescent(0.01, 5, START),
    "OnlineSGD": ndl.OnlineSGD(0.01, 5, 2, START, d=8, runs=3),
    "GradientFlow": ndl.GradientFlow(0.5, START, 0.25),
}
NAMES = {family: specs.names(family) for family in ("task", "model", "learner")}
NOISE_VAR = 0.04  # of every task above
LOCATION = ["SpikedSLR", "MaxSLR"]


def test_every_spec_has_an_example():
    for names in NAMES.values():
        assert set(names) <= set(EXAMPLES)


# where a rule asks for more than the example: free norms, tokens of one spread; two tokens, as in the tests of ridge
SPECIAL = {
    "Ridge": {
        "KeyValueAttention": SOFTMAX,
        "SpikedSLR": ndl.SpikedSLR(2, snr=4.0, noise=0.2),
        "MaxSLR": ndl.MaxSLR(2, snr=2.0, noise=0.2),
    },
    "GradientFlow": {"KeyValueAttention": FREE},
}


def asked(task, model, learner):
    """The example question, with what the rule asks for."""
    special = SPECIAL.get(learner, {})
    if (task, learner) == ("MaxSLR", "OnlineSGD"):
        special = {"KeyValueAttention": FREE}
    if (task, learner) == ("AttentionIndexed", "BayesOptimal"):
        special = {"BayesOptimal": ndl.BayesOptimal(0.5)}
    return tuple(special.get(name, EXAMPLES[name]) for name in (task, model, learner))


def noise_of(result):
    """What noisy labels cost: the excess risk is without it, as is the risk on clean labels."""
    clean = result.metrics.get("excess_risk") or result.metrics["clean_risk"]
    return result.risk.value - clean.value


def combinations():
    """All but those of tasks and models that only the rules for every field law answer: these have tests of their
    own."""
    tasks = [name for name in NAMES["task"] if any(key[1].__name__ == name for key in dispatch.rules())]
    models = [name for name in NAMES["model"] if any(key[2].__name__ == name for key in dispatch.rules())]
    return list(itertools.product(tasks, [*models, "NoneType"], NAMES["learner"]))


@pytest.mark.contract
@pytest.mark.parametrize(
    ("package", "modules"),
    [("theory", predicting.RULES | curves.RULES), ("simulation", simulating.RULES)],
)
def test_every_module_declares_the_tasks_and_learners_that_it_has_rules_for(package, modules):
    """A rule whose module does not name its task and learner is found only after all others were loaded."""
    found = {}
    for (_, task, _, learner), function in dispatch.rules().items():
        if function.__module__.startswith(f"needlepoint.{package}."):
            names = found.setdefault(function.__module__.removeprefix(f"needlepoint.{package}."), set())
            names |= {task.__name__, learner.__name__}
    assert {module: set(names) for module, names in modules.items()} == found


@pytest.mark.contract
def test_a_question_loads_the_rules_that_it_needs_and_no_others():
    code = (
        "import sys, needlepoint as ndl\n"
        "question = ndl.SpikedSLR(2, 1), ndl.KeyValueAttention(ndl.Linear())\n"
        "ndl.predict(*question, ndl.Ridge(2, 0.5))\n"
        "rooms = [m for m in sys.modules if m.startswith('needlepoint.theory.')]\n"
        "assert not [m for m in rooms if 'indexed' in m or 'dynamics' in m or 'bayes' in m], rooms\n"
        "assert not {'scipy.stats', 'scipy.interpolate', 'scipy.optimize'} & set(sys.modules)\n"
        "try:\n"
        "    ndl.predict(ndl.MaxSLR(2, 1), ndl.LinearRegression(), ndl.BayesOptimal())\n"
        "except ndl.NoTheory as error:\n"
        "    assert 'predict(AttentionIndexed' in str(error), error\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.contract
@pytest.mark.parametrize(("task", "model", "learner"), combinations())
def test_predict_answers_or_names_the_nearest(task, model, learner):
    question = asked(task, model, learner)
    if ("predict", *(type(q) for q in question)) in dispatch.rules():
        result = ndl.predict(*question)
        in_time = learner in ("GradientFlow", "OnlineSGD", "ProjectedDescent")
        assert result.status is (ndl.Status.FINISHED if in_time else ndl.Status.CONVERGED)
        assert all(e.finite for e in result.metrics.values())
        assert math.isclose(noise_of(result), NOISE_VAR, rel_tol=1e-9)
    else:
        with pytest.raises(ndl.NoTheory, match="the nearest are predict"):
            ndl.predict(*question)


SIZES = {
    ("KeyValueAttention", "Population"): {"d": 6, "samples": 2000},
    ("LinearRegression", "Population"): {"d": 4},
    ("KeyValueAttention", "Ridge"): {"d": 40, "samples": 4000},
    ("KeyValueAttention", "GradientFlow"): {"d": 4, "samples": 200},
}
"""Those of other tests, whose kernels are these; of a flow, those in which its risk is measured."""


@pytest.mark.contract
@pytest.mark.parametrize(("task", "model", "learner"), combinations())
def test_simulate_answers_or_names_the_nearest(task, model, learner):
    question = asked(task, model, learner)
    if (model, learner) == ("KeyValueAttention", "Population"):
        question = question[0], SOFTMAX, question[2]
    if ("simulate", *(type(q) for q in question)) in dispatch.rules():
        given = {"overlaps": START} if learner == "Population" else {}
        size = SIZES.get((model, learner), {"d": 8, "samples": 200})
        result = ndl.simulate(*question, repeats=3, **size, **given)
        assert result.d == size["d"]
        assert all(e.finite for e in result.metrics.values())
        if task in LOCATION:  # elsewhere the clean labels are drawn
            assert math.isclose(noise_of(result), NOISE_VAR, rel_tol=1e-9)
    else:
        with pytest.raises(ndl.NoTheory, match="the nearest are simulate"):
            ndl.simulate(*question, d=8, repeats=3)


@pytest.mark.contract
def test_theory_and_simulation_answer_the_same_questions():
    keys = dispatch.rules()
    assert {k[1:] for k in keys if k[0] == "predict"} == {k[1:] for k in keys if k[0] == "simulate"}


# --- the population optimum: every activation on every task -------------------------------------

ACTIVATIONS = {
    "Softmax": ndl.Softmax(),
    "SoftmaxOne": ndl.SoftmaxOne(),
    "Softplus": ndl.Softplus(),
    "Linear": ndl.Linear(),
    "Erf": ndl.Erf(1.0, shift=None, offset=1.0),
}
RANDOM = {2: 0.5, 3: 0.5}


def test_every_activation_has_an_example():
    assert set(specs.names("activation")) == set(ACTIVATIONS)


@pytest.mark.contract
@pytest.mark.parametrize("tokens", [3, RANDOM], ids=["fixed", "random"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("task", LOCATION)
def test_every_activation_has_a_population_optimum_that_can_be_measured(task, activation, tokens):
    task = EXAMPLES[task].replace(tokens=tokens)
    model = ndl.KeyValueAttention(ACTIVATIONS[activation])
    prediction = ndl.predict(task, model, ndl.Population())
    least = ndl.predict(task, None, ndl.BayesOptimal()).excess_risk
    excess = prediction.excess_risk
    assert least.value - 3 * (least.error + excess.error) <= excess.value < task.label_var
    assert prediction.resolved is not None
    _, resolved, _ = prediction.resolved
    assert resolved.free_constants() == []
    assert prediction.overlaps is not None
    # the risk at the reported optimum is the reported risk
    again = ndl.population_risk(task, resolved, prediction.overlaps)
    assert abs(again.value - prediction.risk.value) <= 3 * (again.error + prediction.risk.error) + 1e-12


@pytest.mark.contract
@pytest.mark.parametrize("task", LOCATION)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_route_gives_the_same_risk(task, activation):
    constants = {"shift": -0.3} if activation == "Erf" else {}
    model = ndl.KeyValueAttention(ACTIVATIONS[activation].replace(**constants))
    methods = [one.name for one in routes("excess risk", task=EXAMPLES[task], model=model)]
    assert methods[-2:] == ["qmc", "fields"]
    assert len(methods) > 2 or model.activation.form == "general", "a known form has a route besides sampling"
    found = [ndl.population_risk(EXAMPLES[task], model, START, method=m) for m in methods]
    assert ndl.population_risk(EXAMPLES[task], model, START) == found[0]
    for other in found[1:]:
        # errors of qmc and fields are three standard errors of scramblings, the others' are numerical ones
        assert abs(other.value - found[0].value) < 2 * (other.error + found[0].error)

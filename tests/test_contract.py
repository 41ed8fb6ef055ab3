"""Every registered rule answers a small question; every other combination says what is nearest."""

import itertools
import math

import pytest

import needlepoint as ndl
from needlepoint.core import dispatch, specs
from needlepoint.simulation.simulating import _load_rules as load_simulation
from needlepoint.theory.predicting import _load_rules as load_theory

load_theory()
load_simulation()

ERF = ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
START = ndl.Overlaps(0.3, 0.4, 0.1, -0.1, 0.2)
# the smallest sensible instance of every spec; a new spec must be added here to be covered
EXAMPLES = {
    "SpikedSLR": ndl.SpikedSLR(3, snr=4.0, relevant_std=0.8, noise=0.2),
    "KeyValueAttention": ERF,
    "LinearRegression": ndl.LinearRegression(),
    "NoneType": None,
    "Population": ndl.Population(),
    "BayesOptimal": ndl.BayesOptimal(d=8),
    "ProjectedDescent": ndl.ProjectedDescent(0.01, 5, START),
    "OnlineSGD": ndl.OnlineSGD(0.01, 5, 2, START, d=8, runs=4),
}
NAMES = {family: specs.names(family) for family in ("task", "model", "learner")}


def test_every_spec_has_an_example():
    for names in NAMES.values():
        assert set(names) <= set(EXAMPLES)


def combinations():
    return list(itertools.product(NAMES["task"], [*NAMES["model"], "NoneType"], NAMES["learner"]))


@pytest.mark.contract
@pytest.mark.parametrize(("task", "model", "learner"), combinations())
def test_predict_answers_or_names_the_nearest(task, model, learner):
    question = (EXAMPLES[task], EXAMPLES[model], EXAMPLES[learner])
    if ("predict", *(type(q) for q in question)) in dispatch.rules():
        result = ndl.predict(*question)
        assert result.status is ndl.Status.CONVERGED
        assert {"risk", "excess_risk"} <= set(result.metrics)
        assert all(e.finite for e in result.metrics.values())
        assert math.isclose(result.risk.value - result.excess_risk.value, 0.04, rel_tol=1e-9)
    else:
        with pytest.raises(ndl.NoTheory, match="the nearest are predict"):
            ndl.predict(*question)


@pytest.mark.contract
@pytest.mark.parametrize(("task", "model", "learner"), combinations())
def test_simulate_answers_or_names_the_nearest(task, model, learner):
    question = (EXAMPLES[task], EXAMPLES[model], EXAMPLES[learner])
    if ("simulate", *(type(q) for q in question)) in dispatch.rules():
        given = {"overlaps": START} if learner == "Population" else {}
        result = ndl.simulate(*question, d=8, repeats=3, samples=200, **given)
        assert result.d == 8
        assert all(e.finite for e in result.metrics.values())
    else:
        with pytest.raises(ndl.NoTheory, match="the nearest are simulate"):
            ndl.simulate(*question, d=8, repeats=3)


@pytest.mark.contract
def test_theory_and_simulation_answer_the_same_questions():
    keys = dispatch.rules()
    assert {k[1:] for k in keys if k[0] == "predict"} == {k[1:] for k in keys if k[0] == "simulate"}

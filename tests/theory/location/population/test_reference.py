"""The population entries of reference/softmax-location.json and the table of sheet 02, section 2."""

import math

import pytest

import needlepoint as ndl

from reference_values import reference_values

REFERENCE = reference_values("softmax-location")["values"]
POPULATION = [v for v in REFERENCE if not v["id"].startswith(("RS_", "BO_"))]
UNIFORM = dict.fromkeys((1, 2, 3), 1 / 3)
INF = math.inf

MODELS = {
    "bayes": ndl.Softmax(),
    "linear": ndl.Linear(),
    "erf": ndl.Erf(shift=None, offset=1.0),
    "softplus": ndl.Softplus(),
}
KINDS = {"bayes": "bayes", "lin": "linear", "linear": "linear", "erf": "erf", "softplus": "softplus", "elem": "bound"}


def setting(kind, tokens, snr):
    return (ndl.SpikedSLR if kind == "spiked" else ndl.MaxSLR)(tokens, snr=float(snr))


def values(task, what):
    """The number asked for by every route that has it; an infimum that is not attained counts."""
    if what == "bound":
        return [ndl.elementwise_bound(task)]
    model = ndl.KeyValueAttention(MODELS[what])
    found = [ndl.predict(task, model, ndl.Population(), throw=False).excess_risk]
    if what == "bayes":
        found.append(ndl.predict(task, None, ndl.BayesOptimal()).excess_risk)
    return found


@pytest.mark.paper
@pytest.mark.parametrize("entry", POPULATION, ids=lambda v: v["id"])
def test_reference_values(entry):
    inputs = entry["inputs"]
    tokens = UNIFORM if inputs["L"] == "Unif{1,2,3}" else inputs["L"]
    for found in values(setting(inputs["task"], tokens, inputs["nu"]), KINDS[entry["id"].split("_")[0]]):
        # the tolerance is the file's; the library's own error must be far inside it
        assert found.error < entry["tol"] / 5
        assert found.value == pytest.approx(entry["value"], abs=entry["tol"])


def test_every_kind_of_population_entry_has_a_test():
    """Ridge (RS_) and finite-sample Bayes (BO_) entries belong to the equations of sections 3 to 6."""
    assert {v["id"].split("_")[0] for v in POPULATION} == set(KINDS)
    assert {v["id"].split("_")[0] for v in REFERENCE} == {*KINDS, "RS", "BO"}
    assert {v["inputs"]["task"] for v in POPULATION} == {"spiked", "max"}
    assert all(isinstance(v["inputs"]["L"], int) or v["inputs"]["L"] == "Unif{1,2,3}" for v in POPULATION)


TABLE = [  # task, tokens, snr, bayes, linear, erf, softplus, bound
    ("spiked", 2, 1, 0.324943, 0.400000, 0.397997, 0.329059, 0.397973),
    ("spiked", 2, 2, 0.224800, 0.333333, 0.324993, 0.235227, 0.324943),
    ("spiked", 2, 5, 0.084397, 0.222222, 0.189147, 0.111752, 0.189079),
    ("max", 2, 1, 0.363162, 0.434057, 0.433496, 0.365322, None),
    ("max", 2, 2, 0.240012, 0.384788, 0.381997, 0.247148, 0.381996),
    ("max", 2, 5, 0.109359, 0.350508, 0.344367, 0.128550, 0.344367),
    ("max", 2, INF, 0.0, 0.340845, 0.333333, None, 0.333333),
    ("max", 3, INF, 0.0, 0.427934, 0.400012, None, 0.400000),
    ("max", 5, INF, 0.0, 0.529503, 0.444500, None, 0.444444),
    ("max", 10, INF, 0.0, 0.663224, 0.473828, None, 0.473684),
    ("spiked", 3, 2, 0.352423, 0.461538, 0.444590, 0.369829, 0.444476),
    ("spiked", 5, 2, 0.499950, 0.606061, 0.569960, 0.525771, 0.569756),
    ("spiked", 10, 2, 0.666521, 0.762712, 0.706660, 0.700351, 0.706367),
    ("spiked", UNIFORM, 2, 0.192408, 0.333333, 0.324993, None, None),
    ("spiked", UNIFORM, 5, 0.076547, 0.222222, 0.189147, None, None),
    ("max", UNIFORM, 2, 0.198064, 0.421541, 0.419283, None, None),
    ("max", UNIFORM, INF, 0.0, 0.389476, 0.383678, None, None),
]


@pytest.mark.paper
@pytest.mark.parametrize(("kind", "tokens", "snr", "bayes", "linear", "erf", "softplus", "bound"), TABLE)
def test_the_table_of_optimal_risks(kind, tokens, snr, bayes, linear, erf, softplus, bound):
    """Printed to six digits: half a unit of the last, and its rounding."""
    task = setting(kind, tokens, snr)
    printed = {"bayes": bayes, "linear": linear, "erf": erf, "softplus": softplus, "bound": bound}
    for what, value in printed.items():
        if value is not None:
            for found in values(task, what):
                assert found.value == pytest.approx(value, abs=5.1e-7), what


@pytest.mark.paper
@pytest.mark.parametrize(("tokens", "value"), [(2, 0.34085), (10, 0.66322), (100, 0.92712), (10_000, 0.99842)])
def test_linear_attention_on_the_argmax_task(tokens, value):
    """sheet 02, section 2, five digits; the risk goes to 1 with the length."""
    assert ndl.linear_optimum(ndl.MaxSLR(tokens, snr=INF))[0].value == pytest.approx(value, abs=5.1e-6)

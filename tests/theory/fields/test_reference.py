"""The field engine against the values of the theory sheet, and against the rules of single-location tasks."""

import jax
import numpy as np
import pytest
from tests.reference_values import reference_values

import needlepoint as ndl
from needlepoint.losses import Square
from needlepoint.theory.fields.population import risks

ACTIVATIONS = {"softmax": ndl.Softmax(), "linear": ndl.Linear(), "erf": ndl.Erf(scale=0.7, offset=1.0)}
TASKS = {"SpikedSLR": ndl.SpikedSLR, "MaxSLR": ndl.MaxSLR, "Spiked": ndl.SpikedSLR, "Max": ndl.MaxSLR}
QUICK = {"ridge-Spiked-softmax-2-5", "ridge-Max-linear-2-3"}
VALUES = reference_values("field-engine")["values"]
RIDGE = sorted({v["id"] for v in VALUES if v["id"].startswith("ridge-")})
OFF = {"key": 0.8, "value": 0.9, "value_on_key": 0.1, "key_on_value": -0.2, "key_dot_value": 0.15}
OVERLAPS = ndl.Overlaps(**OFF, key_sq=1.3, value_sq=1.1)


def of(name):
    return {v["quantity"]: (v["value"], v["tolerance"]) for v in VALUES if v["id"] == name}


def close(estimate, value, tolerance):
    """Both errors are three standard errors; the largest of the sheet's 112 gaps was 0.76 of their root of squares."""
    return abs(float(estimate) - value) <= 1.5 * np.hypot(estimate.error, tolerance)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RIDGE])
def test_ridge_by_the_generic_rule_is_the_specialised_one(name):
    setting = next(v["setting"] for v in VALUES if v["id"] == name)
    task = TASKS[setting["task"]](setting["tokens"], setting["snr"], noise=setting["noise"])
    model = ndl.KeyValueAttention(ACTIVATIONS[setting["activation"]])
    learner = ndl.Ridge(setting["alpha"], tuple(setting["lam"]))
    found = ndl.predict(task, model, learner, method="fields", throw=False)
    # the generic rule has a cap on its points: one setting of three tokens stays above the usual tolerance, and says so
    assert found.status in (ndl.Status.CONVERGED, ndl.Status.NOISE_LIMITED)
    assert found.risk.error < 0.02 * found.risk.value
    for quantity, (value, tolerance) in of(name).items():
        assert close(getattr(found, quantity), value, tolerance), (quantity, getattr(found, quantity), value)
    other = ndl.predict(task, model, learner)
    gaps = {n: x - getattr(other.overlaps, n) for n, x in found.overlaps.items()}
    for n, gap in gaps.items():
        assert abs(gap) <= 1.5 * (found.overlaps_error[n] + other.overlaps_error.get(n, 0.0)) + 1e-12, n
    assert abs(found.replicon - other.replicon) < 0.03 + 0.1 * other.replicon


@pytest.mark.parametrize(
    ("task", "activation", "tokens"),
    [("Spiked", "softmax", 2), ("Max", "erf", 3)]
    + [
        pytest.param(t, a, n, marks=pytest.mark.slow)
        for t in ("Spiked", "Max")
        for a in ("softmax", "linear", "erf")
        for n in (2, 3)
        if (t, a, n) not in (("Spiked", "softmax", 2), ("Max", "erf", 3))
    ],
)
def test_population_risks_off_the_manifold(task, activation, tokens):
    kind = f"{task} {activation} {tokens},"
    value = next(v["value"] for v in VALUES if v["id"] == "population" and kind in str(v["setting"]) + ",")
    asked = TASKS[task](tokens, 2.0, noise=0.1)
    model = ndl.KeyValueAttention(ACTIVATIONS[activation])
    gram = OVERLAPS.gram()
    with jax.enable_x64(True):
        found = risks(asked, model, Square(), gram[2:, :2], gram[2:, 2:]).risk
    assert abs(found.value - value) <= 1.5 * found.error
    assert found.error < 0.02 * value  # it would see a wrong route


NEW = {
    "pair": (
        (ndl.SeveralSLR(3, 3.0, noise=0.1), ndl.KeyValueAttention(ndl.Softmax()), ndl.Ridge(4.0, 0.3)),
        {"excess_risk": "excess_risk", "train_loss": "train_loss", "energy": "energy"},
        {"key": "key", "value": "value", "key_sq": "key_sq", "value_sq": "value_sq"},
    ),
    "two-heads": (
        (ndl.Needles(3, 4.0, noise=0.1), ndl.MultiHead(2, ndl.Softmax()), ndl.Ridge(5.0, 0.3)),
        {"excess": "excess_risk", "train": "train_loss", "energy": "energy"},
        {
            "kk": "key1_on_key",
            "k_cross": "key1_on_key2",
            "vv": "value1_on_value",
            "v_cross": "value1_on_value2",
            "qk": "key1_sq",
            "qkk": "key1_dot_key2",
            "qv": "value1_sq",
            "qvv": "value1_dot_value2",
        },
    ),
    "logistic": (
        (ndl.SignSLR(2, 3.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Ridge(6.0, 0.3, loss=ndl.Logistic())),
        {"risk": "risk", "train": "train_loss", "energy": "energy"},
        {"mk": "key", "mv": "value", "qk": "key_sq", "qv": "value_sq"},
    ),
    "relevant-std": (
        (
            ndl.SpikedSLR(2, 2.0, relevant_std=0.5, noise=0.1),
            ndl.KeyValueAttention(ndl.Softmax()),
            ndl.Ridge(4.0, 0.4),
        ),
        {"excess_risk": "excess_risk", "train": "train_loss", "energy": "energy"},
        {"mk": "key", "mv": "value", "qk": "key_sq", "qv": "value_sq"},
    ),
}


@pytest.mark.parametrize(
    "name", ["pair", pytest.param("two-heads", marks=pytest.mark.slow), "logistic", "relevant-std"]
)
def test_new_theories_have_the_values_of_the_sheet(name):
    question, metrics, overlaps = NEW[name]
    found = ndl.predict(*question)
    assert found.status is ndl.Status.CONVERGED
    assert found.stable
    values, known = of(name), dict(found.overlaps.items())
    for short, full in metrics.items():
        assert close(getattr(found, full), *values[short]), (full, getattr(found, full), values[short])
    for short, full in overlaps.items():
        mine = ndl.Estimate(known[full], found.overlaps_error[full])
        assert close(mine, *values[short]), (full, mine, values[short])


def branch_values(branch, alpha):
    text = f"{branch} branch, alpha {alpha}"
    picked = [v for v in VALUES if v["id"] == "positional-semantic" and str(v["setting"]).endswith(text)]
    return {v["quantity"]: (v["value"], v["tolerance"]) for v in picked}


@pytest.mark.parametrize(
    "alpha", [2, pytest.param(1.57143, marks=pytest.mark.slow), pytest.param(1.24, marks=pytest.mark.slow)]
)
def test_positional_and_semantic_branches(alpha):
    task, learner = ndl.PositionalSemantic(0.3, 0.5), ndl.Ridge(alpha, 0.04, loss=ndl.Square(0.25))
    found = ndl.field_branches(task, ndl.LowRankTied(), learner)
    assert set(found) == {"semantic", "positional"}
    for branch, prediction in found.items():
        values, o = branch_values(branch, alpha), dict(prediction.overlaps.items())
        e = prediction.overlaps_error
        assert close(prediction.risk, *values["mse"])
        assert close(prediction.energy, *values["energy"])
        assert close(ndl.Estimate(o["query_sq"], e["query_sq"]), *values["q"])
        name, scale = ("theta", 0.5) if branch == "semantic" else ("m", 2.0)
        column = f"query_on_{branch}"
        assert close(ndl.Estimate(scale * o[column], scale * e[column]), *values[name])
    assert ndl.predict(task, ndl.LowRankTied(), learner).branch == min(found, key=lambda b: found[b].energy.value)

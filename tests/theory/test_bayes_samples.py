"""The Bayes-optimal state evolution: its integrals, its free energy, the references, and message passing on data."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.bayes_samples import bayes_branches, evolve, free_energy
from needlepoint.theory.spiked_posterior import posterior_means

REFERENCE = json.loads((Path(__file__).parent.parent / "reference" / "softmax-location.json").read_text())
TASK = ndl.SpikedSLR(2, 2.0, noise=0.1)
CASES = [
    (2.0, 2, 0.01, 0.4, 0.3),
    (2.0, 10, 1e-4, 0.7, 0.9996),
    (0.5, 5, 1e-4, 0.2, 0.01),
    (6.0, 30, 1e-4, 0.5, 0.5),
    (20.0, 4, 0.3, 0.99, 0.7),
    (2.0, 1, 0.01, 0.4, 0.3),
]


def monte_carlo(snr, length, noise_var, key, value, n=400_000):
    """The three means from sampled fields: nothing of the integrals is used."""
    rng = np.random.default_rng(1)
    T = noise_var + 1 - value
    w_chi = math.sqrt(key) * rng.standard_normal((n, length))
    w_chi[:, 0] += math.sqrt(snr) * key
    w_z = math.sqrt(value) * rng.standard_normal((n, length))
    y = w_z[:, 0] + math.sqrt(T) * rng.standard_normal(n)
    zeta = (y[:, None] - w_z) / math.sqrt(T)
    a = math.sqrt(snr) * w_chi - zeta**2 / 2
    top = a.max(axis=1, keepdims=True)
    weight = np.exp(a - top)
    pi = weight / weight.sum(axis=1, keepdims=True)
    log_sum = top[:, 0] + np.log(weight.sum(axis=1))
    each = np.stack([(pi**2).sum(axis=1), (pi**2 * zeta**2).sum(axis=1), log_sum])
    return each.mean(axis=1), each.std(axis=1) / math.sqrt(n)


@pytest.mark.montecarlo
@pytest.mark.parametrize("case", CASES, ids=str)
def test_integrals_against_sampled_fields(case):
    snr, length, noise_var, key, value = case
    found = np.array(posterior_means(snr, [(length, 1.0)], noise_var, key, value, 2.0))
    mean, error = monte_carlo(*case)
    assert np.all(error < 0.01 * np.maximum(np.abs(mean), 0.2))
    assert np.all(np.abs(found - mean) < 5 * error + 1e-9)


@pytest.mark.negative
def test_the_sampled_fields_see_a_wrong_variance():
    snr, length, noise_var, key, value = CASES[0]
    found = np.array(posterior_means(snr, [(length, 1.0)], noise_var + 0.5, key, value, 2.0))
    mean, error = monte_carlo(*CASES[0])
    assert np.any(np.abs(found - mean) > 5 * error)


@pytest.mark.quadrature
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_halved_steps_do_not_matter(case):
    snr, length, noise_var, key, value = case
    coarse, fine = (np.array(posterior_means(snr, [(length, 1.0)], noise_var, key, value, c)) for c in (2.0, 1.0))
    np.testing.assert_allclose(coarse, fine, rtol=0, atol=2e-9)


@pytest.mark.exact
@pytest.mark.parametrize("q", [(0.3, 0.4), (0.8, 0.97)])
def test_the_evolution_is_the_gradient_of_the_free_energy(q):
    task, alpha, h = ndl.SpikedSLR({2: 0.5, 3: 0.5}, 1.5, noise=0.2), 1.7, 1e-4

    def energy(x):
        return free_energy(task, alpha, x, evolve(task, alpha, x)[1])

    here = np.array(q)
    slope = np.array([(energy(here + h * e) - energy(here - h * e)) / (2 * h) for e in np.eye(2)])
    new = evolve(task, alpha, here)[0]
    # d Phi / d q = (q_hat - q / (1 - q)) / 2 with q_hat = new / (1 - new)
    np.testing.assert_allclose(slope, 0.5 * (new / (1 - new) - here / (1 - here)), rtol=1e-5, atol=1e-6)


def spiked_references():
    """(tokens, snr, alpha) -> {qk: (value, tol), qv: ...} of the reference file, noise variance 0.01."""
    found = {}
    for entry in REFERENCE["values"]:
        name = re.fullmatch(r"BO_spiked,L=(\d+),nu=([\d.]+),alpha=([\d.]+)_(qk|qv)", entry["id"])
        if name:
            case = (int(name[1]), float(name[2]), float(name[3]))
            found.setdefault(case, {})[name[4]] = (entry["value"], entry["tol"])
    return found


@pytest.mark.paper
@pytest.mark.parametrize("case", spiked_references(), ids=str)
def test_reference_overlaps(case):
    tokens, snr, alpha = case
    (branch,) = bayes_branches(ndl.SpikedSLR(tokens, snr, noise=0.1), alpha, tol=1e-7)
    wanted = spiked_references()[case]
    assert branch.status is ndl.Status.CONVERGED
    assert abs(branch.key - wanted["qk"][0]) < wanted["qk"][1]
    assert abs(branch.value - wanted["qv"][0]) < wanted["qv"][1]


@pytest.mark.paper
@pytest.mark.parametrize(
    ("alpha", "low", "high", "difference", "chosen"),
    [
        (1.4, (0.381, 0.286), (0.724, 0.9996), -0.482, "uninformed"),
        (1.8, (0.498, 0.435), (0.775, 0.9998), 0.494, "informed"),
    ],
)
def test_two_branches_and_the_hard_phase(alpha, low, high, difference, chosen):
    task = ndl.SpikedSLR(10, 2.0, noise=0.01)
    first, second = bayes_branches(task, alpha, tol=1e-7)
    for branch, (key, value) in ((first, low), (second, high)):
        assert abs(branch.key - key) < 0.004
        assert abs(branch.value - value) < 0.008
    assert abs(second.free_energy - first.free_energy - difference) < 0.006
    found = ndl.predict(task, None, ndl.BayesOptimal(alpha), tol=1e-7)
    assert found.branch == chosen
    assert ("hard phase" in found.notes[0]) is (chosen == "informed")


@pytest.mark.exact
def test_much_data_is_known_teachers():
    (branch,) = bayes_branches(TASK, 3000.0, tol=1e-7)
    known = ndl.predict(TASK, None, ndl.BayesOptimal()).excess_risk.value
    assert 0 < branch.excess_risk.value - known < 5e-4


@pytest.mark.training
def test_message_passing_reaches_the_fixed_point():
    """AMP at d = 200; errors over 16 seeds. Its finite-size bias is below the joined error here."""
    learner = ndl.BayesOptimal(2.0)
    predicted = ndl.predict(TASK, None, learner, tol=1e-7)
    measured = ndl.simulate(TASK, None, learner, d=200, repeats=16, samples=4000)
    rows = {row.metric: row for row in ndl.compare(predicted, measured).rows}
    assert {"excess_risk", "key", "value"} <= set(rows)
    assert rows["key"].measured_error < 0.012
    assert rows["excess_risk"].measured_error < 0.01 * TASK.label_var
    assert all(abs(row.z) < 4 for row in rows.values())
    # negative twin: half the data is another answer
    half = ndl.predict(TASK, None, ndl.BayesOptimal(1.0), tol=1e-7)
    assert abs(half.overlaps.key - measured.overlaps.key) > 8 * measured.overlaps_error["key"]


@pytest.mark.parametrize(
    ("question", "error", "phrase"),
    [
        (lambda: ndl.predict(ndl.SpikedSLR(2, 2), None, ndl.BayesOptimal(1)), ndl.InvalidParameter, "needs noise > 0"),
        (
            lambda: ndl.predict(ndl.SpikedSLR(2, 2, 0.5, noise=0.1), None, ndl.BayesOptimal(1)),
            ndl.NoTheory,
            "relevant_std=1 has one",
        ),
        (lambda: ndl.predict(ndl.MaxSLR(2, 2, noise=0.1), None, ndl.BayesOptimal(1)), ndl.NoTheory, "infinite data"),
        (lambda: bayes_branches(TASK, -1.0), ndl.InvalidParameter, "alpha must be > 0"),
        (lambda: bayes_branches(ndl.MaxSLR(2, 2, noise=0.1), 1.0), ndl.NoTheory, "SpikedSLR has one"),
        (
            lambda: ndl.simulate(TASK, None, ndl.BayesOptimal(50.0), d=10_000, repeats=1),
            ndl.InvalidParameter,
            "at most",
        ),
    ],
)
def test_bad_input_is_one_sentence(question, error, phrase):
    with pytest.raises(error, match=phrase):
        question()

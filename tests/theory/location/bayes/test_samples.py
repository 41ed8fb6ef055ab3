"""The Bayes-optimal state evolution: its integrals, its free energy, the references."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.honesty.references.posterior import fixed_point
from scipy import special

import needlepoint as ndl
from needlepoint.numerics.gaussian import sobol_normals, trapezoid_rule
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.bayes import max_posterior
from needlepoint.theory.location.bayes.samples import bayes_branches, evolve, free_energy, means
from needlepoint.theory.location.bayes.spiked_posterior import posterior_means

from reference_values import reference_values

REFERENCE = reference_values("softmax-location")
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
@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) if c[1] == 30 else c for c in CASES], ids=str)
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


LENGTHS = {2: 0.5, 3: 0.5}
GRADIENTS = [
    (ndl.SpikedSLR(LENGTHS, 1.5, noise=0.2), (0.3, 0.4)),
    (ndl.SpikedSLR(LENGTHS, 1.5, noise=0.2), (0.8, 0.97)),
    (ndl.MaxSLR({1: 0.3, 2: 0.7}, math.inf, noise=0.2), (0.3, 0.4)),
    (ndl.MaxSLR(2, math.inf, noise=0.1), (0.95, 0.99)),
    (ndl.MaxSLR(2, 1.5, noise=0.2), (0.6, 0.9)),
    (ndl.MaxSLR(2, 40.0, noise=0.2), (0.6, 0.5)),
]


@pytest.mark.exact
@pytest.mark.parametrize(("task", "q"), GRADIENTS, ids=str)
def test_the_evolution_is_the_gradient_of_the_free_energy(task, q):
    alpha, h, here = 1.7, 1e-4, np.array(q)
    h = h * np.minimum(1.0, 10 * (1 - here))

    def energy(x):
        return free_energy(alpha, x, means(task, x))[0]

    slope = np.array([(energy(here + h * e) - energy(here - h * e)) / (2 * h[i]) for i, e in enumerate(np.eye(2))])
    (new,) = evolve(alpha, means(task, here))
    # d Phi / d q = (q_hat - q / (1 - q)) / 2 with q_hat = new / (1 - new)
    np.testing.assert_allclose(slope, 0.5 * (new / (1 - new) - here / (1 - here)), rtol=1e-5, atol=1e-6)


@pytest.mark.quadrature
@pytest.mark.parametrize("snr", [math.inf, pytest.param(2.0, marks=pytest.mark.slow)])
def test_sampled_gradients_agree_within_their_scramblings(snr):
    """Three tokens: finite differences of E log Z against E|g|^2 / 2, both by the same 16 scramblings."""
    task, q, h = ndl.MaxSLR(3, snr, noise=0.2), np.array([0.5, 0.8]), 2e-3
    found = means(task, q, final=True)
    for e, squares in zip(np.eye(2), (found.key, found.value), strict=True):
        up, down = (means(task, q + a * h * e, final=True).log_evidence for a in (1, -1))
        gap = (up - down) / (2 * h) - squares / 2
        error = gap.std(ddof=1) / math.sqrt(len(gap))
        assert error < 0.005 * squares.mean()
        assert abs(gap.mean()) < 4 * error + 1e-4 * squares.mean()


def references():
    """(kind, tokens, snr, alpha) -> {qk: (value, tol), qv: ...} of the reference file, noise variance 0.01."""
    found = {}
    for entry in REFERENCE["values"]:
        name = re.fullmatch(r"BO_(spiked|max),L=(\d+),nu=([\d.]+|inf),alpha=([\d.]+)_(qk|qv)", entry["id"])
        if name:
            case = (name[1], int(name[2]), float(name[3]), float(name[4]))
            found.setdefault(case, {})[name[5]] = (entry["value"], entry["tol"])
    return found


TASKS = {"spiked": ndl.SpikedSLR, "max": ndl.MaxSLR}


@pytest.mark.paper
@pytest.mark.parametrize("case", references(), ids=str)
def test_reference_overlaps(case):
    kind, tokens, snr, alpha = case
    (branch,) = bayes_branches(TASKS[kind](tokens, snr, noise=0.1), alpha, tol=1e-7)
    wanted = references()[case]
    assert branch.status is ndl.Status.CONVERGED
    assert abs(branch.key - wanted["qk"][0]) < wanted["qk"][1]
    assert abs(branch.value - wanted["qv"][0]) < wanted["qv"][1]


@pytest.mark.negative
def test_the_references_see_a_wrong_snr_and_a_wrong_noise():
    wanted = references()["max", 2, math.inf, 2.0]
    (softer,) = bayes_branches(ndl.MaxSLR(2, 8.0, noise=0.1), 2.0, tol=1e-7)
    (noisier,) = bayes_branches(ndl.MaxSLR(2, math.inf, noise=0.12), 2.0, tol=1e-7)
    assert abs(softer.key - wanted["qk"][0]) > 3 * wanted["qk"][1]
    assert abs(noisier.value - wanted["qv"][0]) > 3 * wanted["qv"][1]


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


# --- the max task ---------------------------------------------------------------------------------


@pytest.mark.montecarlo
@pytest.mark.parametrize(
    ("snr", "key", "value"), [(math.inf, 0.66, 0.9), (2.0, 0.5, 0.98), (0.3, 0.4, 0.3), (30.0, 0.9, 0.7)]
)
def test_two_tokens_against_sampled_fields(snr, key, value):
    """Labels and places sampled, the place law by an average over the missing part of the key."""
    rng, T, n = np.random.default_rng(2), 0.05 + 1 - value, 400_000
    delta, s = math.sqrt(2 * key) * rng.standard_normal(n), math.sqrt(2 * (1 - key))
    grid = np.linspace(-12, 12, 4001)
    if math.isinf(snr):
        law = special.ndtr(grid / s)
    else:
        x, w = trapezoid_rule(256)
        law = special.expit(snr * (grid[:, None] + s * x)) @ w
    P, slope = np.interp(delta, grid, law), np.interp(delta, grid, np.gradient(law, grid))
    w_z = math.sqrt(value) * rng.standard_normal((n, 2))
    y = np.where(rng.random(n) < P, w_z[:, 0], w_z[:, 1]) + math.sqrt(T) * rng.standard_normal(n)
    zeta = (y[:, None] - w_z) / math.sqrt(T)
    N = np.exp(-(zeta**2) / 2)
    Z = P * N[:, 0] + (1 - P) * N[:, 1]
    pi = P * N[:, 0] / Z
    each = np.stack(
        [
            2 * (slope * (N[:, 0] - N[:, 1]) / Z) ** 2,
            pi**2 * zeta[:, 0] ** 2 + (1 - pi) ** 2 * zeta[:, 1] ** 2,
            np.log(Z),
            P**2 + (1 - P) ** 2,
        ]
    )
    mean, error = each.mean(axis=1), each.std(axis=1) / math.sqrt(n)
    assert np.all(error < 0.01 * np.abs(mean))
    found = max_posterior.two_tokens(snr, T, key, value, 2.0)
    assert np.all(np.abs(found - mean) < 5 * error + 1e-5 * np.abs(mean))
    # negative twin: a key that is known a little better
    other = max_posterior.two_tokens(snr, T, key + 0.05, value, 2.0)
    assert np.any(np.abs(other - mean) > 5 * error + 1e-5 * np.abs(mean))


@pytest.mark.quadrature
@pytest.mark.parametrize("snr", [0.0, 0.3, 2.0, 30.0, 1e6, math.inf])
@pytest.mark.parametrize(("key", "value"), [(0.01, 0.01), (0.6, 0.97), (0.999, 0.9999)])
def test_halved_steps_do_not_matter_for_two_tokens(snr, key, value):
    coarse, fine = (max_posterior.two_tokens(snr, 1.01 - value, key, value, c) for c in (2.0, 1.0))
    np.testing.assert_allclose(coarse, fine, rtol=1e-9, atol=1e-10)


@pytest.mark.quadrature
@pytest.mark.parametrize("snr", [0.3, 2.0, math.inf])
def test_a_table_that_is_too_coarse_shows_in_the_difference_of_the_two_rules(snr, monkeypatch):
    """The coarse rule interpolates in a coarser table, so a table's error is part of |fine - coarse|."""
    exact = max_posterior.two_tokens(snr, 0.2, 0.5, 0.85)
    monkeypatch.setattr(max_posterior, "ACCURACY", replace(max_posterior.ACCURACY, b_step=1.5))
    coarse, fine = (max_posterior.two_tokens(snr, 0.2, 0.5, 0.85, c) for c in (2.0, 1.0))
    assert np.any(np.abs(fine - exact) > 1e-8)
    assert np.all(np.abs(fine - exact) <= np.abs(fine - coarse) + 1e-12)


@pytest.mark.quadrature
@pytest.mark.parametrize("snr", [2.0, math.inf])
def test_the_sampled_route_gives_two_tokens(snr):
    rows = [
        float64(max_posterior._sampled)(snr, 0.2, 0.5, 0.85, x, 2) for x in sobol_normals(1 + 8 * 3, 11, 16, seed=1)
    ]
    mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / 4
    exact = max_posterior.two_tokens(snr, 0.2, 0.5, 0.85)
    assert np.all(error < 3e-3 * np.abs(exact))
    assert np.all(np.abs(mean - exact) < 4 * error + 1e-7)


@pytest.mark.exact
@pytest.mark.parametrize(("snr", "s"), [(math.inf, 0.5), (math.inf, 0.03), (2.0, 0.7), (50.0, 0.3), (0.2, 0.6)])
def test_the_place_law_sums_to_one_and_its_slopes_are_exchanges(snr, s):
    w, h = np.random.default_rng(3).standard_normal((40, 4)) * max(s, 0.2), 1e-5 * max(s, 0.2)
    race = max_posterior.Race(snr, s, 4)
    P, C = race(w)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-14)
    for m in range(4):
        up, down = (race(w + a * h * np.eye(4)[m])[0] for a in (1, -1))
        others = np.delete(np.arange(4), m)
        np.testing.assert_allclose(
            -(up - down)[:, others] / (2 * h), C[:, others, m], rtol=1e-4, atol=1e-5 / max(s, 0.2)
        )
    if math.isinf(snr):  # two tokens far ahead of the rest are a normal difference
        far = np.array([[0.3 * s, 0.0, -40 * s, -40 * s]])
        assert math.isclose(race(far)[0][0, 0], special.ndtr(0.3 / math.sqrt(2)), rel_tol=1e-7)


@pytest.mark.exact
def test_one_token_is_linear_regression():
    """The place is known: q_hat = alpha / (noise_var + 1 - q_v), and the key is not learned."""
    alpha, noise_var = 1.5, 0.04
    (branch,) = bayes_branches(ndl.MaxSLR(1, 2.0, noise=0.2), alpha)
    q = branch.value
    assert math.isclose(q / (1 - q), alpha / (noise_var + 1 - q), rel_tol=1e-8)
    assert branch.key < 1e-8
    assert math.isclose(branch.excess_risk.value, 1 - q, rel_tol=1e-8)


@pytest.mark.quadrature
def test_longer_sequences_come_with_an_honest_error():
    task, learner = ndl.MaxSLR({1: 0.2, 2: 0.3, 3: 0.5}, math.inf, noise=0.1), ndl.BayesOptimal(2.0)
    one, two = ndl.predict(task, None, learner), ndl.predict(task, None, learner, seed=1, tol=1e-6, throw=False)
    # a tolerance below what scramblings tell is not met
    assert one.status is ndl.Status.CONVERGED
    assert two.status is ndl.Status.NOISE_LIMITED
    for a, b, error in (
        (one.excess_risk.value, two.excess_risk.value, one.excess_risk.error + two.excess_risk.error),
        (one.overlaps.key, two.overlaps.key, one.overlaps_error["key"] + two.overlaps_error["key"]),
        (one.overlaps.value, two.overlaps.value, one.overlaps_error["value"] + two.overlaps_error["value"]),
    ):
        assert 1e-7 < error < 1e-3
        assert abs(a - b) < error


@pytest.mark.exact
def test_known_teachers_are_the_limit_of_the_max_task():
    task = ndl.MaxSLR(2, 3.0, noise=0.1)
    known = ndl.predict(task, None, ndl.BayesOptimal())
    many = ndl.predict(task, None, ndl.BayesOptimal(1e4))
    assert known.overlaps is None
    assert 0 < many.excess_risk.value - known.excess_risk.value < 1e-3
    few = ndl.predict(task, None, ndl.BayesOptimal(1e-3))
    assert 0.995 < few.excess_risk.value < 1


@pytest.mark.parametrize(
    ("question", "error", "phrase"),
    [
        (lambda: ndl.predict(ndl.SpikedSLR(2, 2), None, ndl.BayesOptimal(1)), ndl.InvalidParameter, "needs noise > 0"),
        (
            lambda: ndl.predict(ndl.SpikedSLR(2, 2, 0.5, noise=0.1), None, ndl.BayesOptimal(1)),
            ndl.NoTheory,
            "relevant_std=1 has one",
        ),
        (lambda: ndl.predict(ndl.MaxSLR(2, 2), None, ndl.BayesOptimal(1)), ndl.InvalidParameter, "needs noise > 0"),
        (lambda: bayes_branches(ndl.MaxSLR(500, 2, noise=0.1), 1.0), ndl.NoTheory, "up to 200"),
        (lambda: bayes_branches(TASK, 1e-6), ndl.NoTheory, "take a larger alpha"),
        (lambda: bayes_branches(TASK, -1.0), ndl.InvalidParameter, "alpha must be > 0"),
        (lambda: bayes_branches(ndl.Population(), 1.0), ndl.InvalidParameter, "a learner, not a task"),
    ],
)
def test_bad_input_is_one_sentence(question, error, phrase):
    with pytest.raises(error, match=phrase):
        question()


@pytest.mark.quadrature
@pytest.mark.parametrize(
    ("snr", "noise", "alpha"),
    [(2.0, 0.01, 1.0), (1.0, 0.929, 0.5), (21.1021, 0.0589351, 0.659367), (11.7088, 1.34496, 8.73421)],
    ids=["sought", "weak", "a spread of 4: 11 errors off with 64 nodes", "a spread of 3: 10 errors off"],
)
def test_the_error_knows_what_is_left_of_the_equations(snr, noise, alpha):
    # the point is sought with coarse integrals: its distance to the fixed point of the fine ones is part of its error
    task = ndl.SpikedSLR(2, snr, noise=noise)
    found = bayes_branches(task, alpha)[0]
    truth = fixed_point(task, alpha, (found.key, found.value), 1.4)
    assert abs(found.key - truth["key"]) <= found.key_error
    assert abs(found.value - truth["value"]) <= found.value_error
    assert abs(found.excess_risk.value - truth["excess_risk"]) <= found.excess_risk.error < 1e-10

"""Training on the attention-indexed model: objective and derivatives, four minimisers, what is reported."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.errors import InvalidParameter, UnknownName
from needlepoint.core.options import SimulationOptions
from needlepoint.simulation.indexed import amp as indexed_amp
from needlepoint.simulation.indexed import minimisers as indexed_training
from needlepoint.simulation.indexed import problem as indexed_problem
from needlepoint.simulation.indexed import training as indexed
from needlepoint.simulation.indexed.one_sequence import Errors, attention

WISHART = ndl.Wishart(0.5)
TIED, DIRECT = ndl.TiedAttention(), ndl.DirectAttention()
ONE = ndl.AttentionIndexed(1, WISHART, noise_var=0.5)
TWO = ndl.AttentionIndexed(2, WISHART, noise_var=0.5)


def problem(task=TWO, model=TIED, lam=0.3, n=23, d=7):
    return indexed_problem.draw_problem(task, model, lam, n, d, 0, 0)


def train(task, model, alpha, lam, d, algorithm, repeat=0, start="random"):
    return indexed.train(task, model, ndl.Ridge(alpha, lam, start=start), d, 0, repeat, algorithm)


def measure(task, model, learner, d, repeats, algorithm=None, **more):
    return indexed.simulated(task, model, learner, SimulationOptions(d, repeats, **more), algorithm)


def difference(function, x, step=1e-5):
    """Central differences of a scalar function, entry by entry."""
    found = np.empty_like(x)
    for i in np.ndindex(x.shape):
        move = np.zeros_like(x)
        move[i] = step
        found[i] = (function(x + move) - function(x - move)) / (2 * step)
    return found


def plain_scores(x, S, centre):
    d = x.shape[2]
    return (np.einsum("nai,ij,nbj->nab", x, S, x) - centre * np.eye(x.shape[1])) / math.sqrt(d)


# the objective ------------------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [1, 2, 3])
@pytest.mark.parametrize(
    "model", [TIED, ndl.TiedAttention(1.7, 0.6, "batch"), DIRECT, ndl.DirectAttention(0.5, "batch")]
)
@pytest.mark.parametrize("readout", ["seq2lab", "seq2seq"])
def test_the_objective_is_the_written_sum_and_its_gradient_the_derivative(tokens, model, readout):
    beta_star = 1.0 if tokens == 1 else 1.3  # one token has no temperature
    task = ndl.AttentionIndexed(tokens, WISHART, noise_var=0.5, beta_star=beta_star, readout=readout)
    p = problem(task, model)
    weights = np.random.default_rng(1).standard_normal((7, p.width))
    if not p.tied:
        weights = weights + weights.T
    value, gradient = p.value_and_gradient(weights)
    S = weights @ weights.T / math.sqrt(p.width * 7) if p.tied else weights
    x, n = p.data.x, p.n
    centre = np.trace(S) if model.centring == "trace" else np.einsum("nai,ij,naj->", x, S, x) / (n * tokens)
    error = attention(plain_scores(x, S, centre), model.beta) - attention(p.data.noisy, beta_star)
    carried = error @ x / math.sqrt(7) if readout == "seq2seq" else error
    penalty = 0.3 * np.sum(weights**2) * (1 if p.tied else 7)
    assert value == pytest.approx((np.sum(carried**2) + penalty) / 49, rel=1e-12)
    assert value == pytest.approx(p.energy(S), rel=1e-12)
    slopes = difference(lambda w: p.value_and_gradient(w)[0], weights)
    if not p.tied:
        slopes = (slopes + slopes.T) / 2  # the derivative along symmetric matrices
    # central differences: 1e-10 of a third derivative, and rounding over 1e-5
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-8)


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [1, 2, 4])
@pytest.mark.parametrize("metric", [False, True])
def test_local_derivatives(tokens, metric):
    rng = np.random.default_rng(0)
    shape = (5, tokens, tokens)
    z, labels, root = rng.standard_normal(shape), attention(rng.standard_normal(shape), 1.0), rng.standard_normal(shape)
    z = z + z.transpose(0, 2, 1)
    errors = Errors(1.4, labels, root @ root.transpose(0, 2, 1) if metric else None)
    _, slopes = errors.losses_and_slopes(z)
    by_entry = difference(lambda z: errors.losses_and_slopes(z)[0].sum(), z)
    np.testing.assert_allclose(slopes, (by_entry + by_entry.transpose(0, 2, 1)) / 2, rtol=0, atol=1e-7)
    basis = indexed_amp.symmetric_basis(tokens)
    np.testing.assert_allclose(np.einsum("iab,jab->ij", basis, basis), np.eye(len(basis)), atol=1e-15)
    found = indexed_amp._curvature(errors, basis, z)
    for i, direction in enumerate(basis):
        ahead, behind = (errors.losses_and_slopes(z + s * 1e-5 * direction)[1] for s in (1, -1))
        expected = np.einsum("jab,nab->nj", basis, (ahead - behind) / 2e-5)
        np.testing.assert_allclose(found[:, i], expected, rtol=0, atol=1e-7)


@pytest.mark.exact
@pytest.mark.parametrize("block", [1, 50, 10**9])
def test_blocks_do_not_change_the_sums(monkeypatch, block):
    monkeypatch.setattr(indexed_problem, "ACCURACY", replace(indexed_problem.ACCURACY, cached=block))
    p = problem(model=ndl.TiedAttention(centring="batch"))
    rng = np.random.default_rng(2)
    S, g = rng.standard_normal((7, 7)), rng.standard_normal((23, 2, 2))
    S, g = S + S.T, g + g.transpose(0, 2, 1)
    z = p.scores(p.data.x, S)
    np.testing.assert_allclose(z, plain_scores(p.data.x, S, np.sum(p.centre * S)), rtol=0, atol=1e-13)
    outer = np.einsum("nab,nai,nbj->ij", g, p.data.x, p.data.x) - np.trace(g, axis1=1, axis2=2).sum() * p.centre
    np.testing.assert_allclose(p.pull(g), outer / math.sqrt(7), rtol=0, atol=1e-12)
    assert np.sum(z * g) == pytest.approx(np.sum(S * p.pull(g)), rel=1e-12)


@pytest.mark.contract
def test_a_gradient_takes_little_more_memory_than_the_tokens():
    p = problem(n=2000, d=60)
    weights = np.random.default_rng(0).standard_normal((60, 60))
    p.value_and_gradient(weights)
    tracemalloc.start()
    p.value_and_gradient(weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * p.data.x.nbytes  # a d x d matrix for each sequence would be 30 times the tokens


@pytest.mark.montecarlo
@pytest.mark.parametrize("noise_var", [0.0, 0.8])
def test_scores_have_the_variance_of_the_model(noise_var):
    task = ndl.AttentionIndexed(2, WISHART, noise_var=noise_var)
    target = WISHART.draw(np.random.default_rng(0), 40)
    data = indexed_problem.draw_sequences(task, target, 100_000, np.random.default_rng(1), np.random.default_rng(2))
    # Var z_ab = (1 + delta_ab)(Q0 + noise_var / 2), at any d
    for a, b, expected in ((0, 0, 2.0), (1, 1, 2.0), (0, 1, 1.0)):
        squares = data.noisy[:, a, b] ** 2
        error = squares.std() / math.sqrt(len(squares))
        wanted = expected * (np.mean(target**2) + noise_var / 2)
        assert error < 0.01 * wanted
        assert abs(squares.mean() - wanted) < 5 * error
    np.testing.assert_allclose(data.noisy, data.noisy.transpose(0, 2, 1), rtol=0, atol=1e-13)
    assert (np.abs(data.noisy - data.clean).max() > 0) == (noise_var > 0)


@pytest.mark.exact
def test_data_are_reproducible_and_more_of_them_begin_with_the_same():
    few, many, other = problem(n=10), problem(n=20), indexed_problem.draw_problem(TWO, TIED, 0.3, 10, 7, 0, 1)
    np.testing.assert_array_equal(few.target, many.target)
    for a, b in zip(few.data, many.data, strict=True):
        np.testing.assert_array_equal(a, b[:10])
    assert not np.any(few.data.x == other.data.x)
    assert not np.allclose(few.target, other.target)


# the minimum --------------------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_the_weights_and_the_convex_problem_have_one_minimum(alpha):
    in_weights, in_matrix = (train(ONE, TIED, alpha, 0.1, 40, a).best for a in ("lbfgs", "fista"))
    assert in_weights.converged
    assert in_matrix.converged
    assert in_weights.energy == pytest.approx(in_matrix.energy, rel=1e-6)
    np.testing.assert_allclose(in_weights.S, in_matrix.S, rtol=0, atol=1e-3)
    # a width above the rank is as good, at the same lam times the root of p/d
    narrow = train(ONE, ndl.TiedAttention(width_ratio=0.8), alpha, 0.1 / math.sqrt(0.8), 40, "lbfgs").best
    assert narrow.energy == pytest.approx(in_matrix.energy, rel=1e-6)


@pytest.mark.negative
def test_a_width_below_the_rank_is_worse():
    full = train(ONE, TIED, 0.6, 0.1, 40, "fista").best
    narrow = train(ONE, ndl.TiedAttention(width_ratio=0.3), 0.6, 0.1 / math.sqrt(0.3), 40, "lbfgs").best
    assert narrow.energy > 1.01 * full.energy
    found, _ = measure(ONE, ndl.TiedAttention(width_ratio=0.3), ndl.Ridge(0.6, 0.1 / math.sqrt(0.3)), 40, 2, "fista")
    assert any("in 2 of 2 repeats the learned matrix has a higher rank than W has columns" in n for n in found.notes)


AMP_CASES = {
    "one token": (ONE, TIED, 0.3, 0.1, 60),
    "two tokens": (TWO, TIED, 0.3, 0.02, 30),
    "three tokens": (TWO.replace(tokens=3), TIED, 0.3, 0.02, 24),
    "other temperatures": (TWO.replace(beta_star=2.0), ndl.TiedAttention(1.5), 0.3, 0.1, 30),
    "tokens out, batch": (TWO.replace(readout="seq2seq"), ndl.TiedAttention(centring="batch"), 0.3, 0.02, 30),
    "direct, one token": (ONE, DIRECT, 0.3, 0.05, 40),
    "direct, two tokens": (TWO, DIRECT, 0.3, 0.01, 30),
}


@pytest.mark.exact
@pytest.mark.parametrize("case", AMP_CASES)
def test_message_passing_ends_at_the_minimum(case):
    passed, trained = (train(*AMP_CASES[case], a).best for a in ("amp", "lbfgs"))
    assert passed.converged
    assert passed.steps < 400
    assert trained.converged
    # what is left of the energy is about half the squared gradient, 1e-12 of that of S = 0
    assert passed.energy == pytest.approx(trained.energy, rel=1e-8)
    np.testing.assert_allclose(passed.S, trained.S, rtol=0, atol=1e-3)


@pytest.mark.negative
@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_message_passing_without_its_onsager_term_ends_elsewhere(monkeypatch, sign):
    trained = train(TWO, TIED, 0.3, 0.02, 24, "lbfgs").best
    monkeypatch.setattr(indexed_amp, "_cavity", lambda scores, Sigma, g: scores - sign * Sigma * g)
    monkeypatch.setattr(indexed_amp, "ACCURACY", replace(indexed_amp.ACCURACY, amp_steps=150))
    passed = train(TWO, TIED, 0.3, 0.02, 24, "amp").best
    assert not passed.converged
    assert passed.energy > 1.01 * trained.energy


@pytest.mark.exact
def test_divergences_are_derivatives_of_the_proximal_map():
    p, Sigma = problem(n=12), 1.7
    omega = p.data.clean + 0.3
    z, divergence = indexed_amp.proximal(p, omega, Sigma)
    _, slope = p.training.losses_and_slopes(z)
    np.testing.assert_allclose(slope + (z - omega) / (2 * Sigma), 0.0, atol=1e-9)
    total = np.zeros(12)
    for direction in indexed_amp.symmetric_basis(2):
        ahead, behind = (indexed_amp.proximal(p, omega + s * 1e-5 * direction, Sigma)[0] for s in (1, -1))
        total += np.einsum("ab,nab->n", direction, (ahead - behind) / 2e-5 - direction) / Sigma
    np.testing.assert_allclose(divergence, total, rtol=0, atol=1e-6)


@pytest.mark.exact
def test_divided_differences_are_the_derivative_of_the_soft_threshold():
    p = problem(lam=0.4, d=7)
    H = np.random.default_rng(3).standard_normal((7, 7))
    H = H + H.T + np.eye(7)

    def divergence(i, j):
        move = np.zeros((7, 7))
        move[i, j] = move[j, i] = 1.0 if i == j else math.sqrt(0.5)
        ahead, behind = (indexed_amp._threshold(p, H + s * 1e-6 * move, 1.3)[0] for s in (1, -1))
        return np.sum(move * (ahead - behind)) / 2e-6

    h = np.linalg.eigvalsh(H)
    f = np.maximum(h - 0.8, 0) / 1.3
    steps = np.where(np.eye(7) > 0, 1.0, h[:, None] - h)
    table = np.where(np.eye(7) > 0, (h > 0.8) / 1.3, (f[:, None] - f) / steps)
    assert indexed_amp._threshold(p, H, 1.3)[1] == pytest.approx(table.sum() / 49, rel=1e-12)
    # over all pairs a coordinate i < j of a symmetric matrix counts twice, and once among its derivatives
    derivatives = sum(divergence(i, j) for i in range(7) for j in range(i, 7))
    assert derivatives == pytest.approx((table.sum() + np.trace(table)) / 2, rel=1e-6)


@pytest.mark.exact
@pytest.mark.parametrize("centring", ["trace", "batch"])
def test_direct_attention_on_one_token_is_a_linear_solve(centring):
    d, lam = 12, 0.05
    trained = train(ONE, ndl.DirectAttention(centring=centring), 0.7, lam, d, "lbfgs")
    p = trained.problem
    rows, columns = np.triu_indices(d)
    basis = np.zeros((len(rows), d, d))
    basis[np.arange(len(rows)), rows, columns] = np.where(rows == columns, 1.0, math.sqrt(0.5))
    basis = np.maximum(basis, basis.transpose(0, 2, 1))
    A = np.stack([p.scores(p.data.x, b)[:, 0, 0] for b in basis], axis=1)
    solved = np.linalg.solve(A.T @ A + lam * d * np.eye(len(rows)), A.T @ p.data.noisy[:, 0, 0])
    np.testing.assert_allclose(trained.best.S, np.tensordot(solved, basis, 1), rtol=0, atol=1e-5)


@pytest.mark.exact
def test_adam_goes_where_lbfgs_goes():
    slow, fast = (train(TWO, TIED, 0.3, 0.02, 24, a).best for a in ("adam", "lbfgs"))
    assert slow.energy == pytest.approx(fast.energy, rel=1e-6)


def test_a_run_that_stops_early_says_so(monkeypatch):
    monkeypatch.setattr(indexed_training, "ACCURACY", replace(indexed_training.ACCURACY, adam_steps=20))
    found, _ = measure(TWO, TIED, ndl.Ridge(0.3, 0.02, start="random"), 16, 2, "adam", samples=100)
    assert found.status is ndl.Status.MAX_STEPS
    assert "in 2 of 2 runs Adam stopped before the gradient vanished." in found.notes


# what is reported ---------------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("model", [ndl.TiedAttention(width_ratio=0.9), DIRECT])
def test_metrics_are_consistent_and_reproducible(model):
    learner = ndl.Ridge(0.3, 0.02)
    found, learned = measure(TWO, model, learner, 20, 3, samples=500)
    again, _ = measure(TWO, model, learner, 20, 3, samples=500)
    assert found.status is ndl.Status.CONVERGED
    assert found.metrics == again.metrics
    v, d = learned.values, 20
    trace = learned.eigenvalues.sum(axis=1)
    lam = 0.02 * math.sqrt(18 / 20)
    penalty = lam * trace / d if model is not DIRECT else 0.02 * v["q"]
    np.testing.assert_allclose(v["energy"], 120 / 400 * v["train_loss"] + penalty, rtol=1e-9)
    np.testing.assert_allclose(v["q"], np.mean(learned.eigenvalues**2, axis=1), rtol=1e-9)
    np.testing.assert_allclose(
        v["estimation_error"], np.mean(learned.target**2, axis=1) - 2 * v["m"] + v["q"], rtol=0, atol=1e-12
    )
    assert found.overlaps.m == pytest.approx(v["m"].mean())
    assert found.overlaps_error["q"] == pytest.approx(v["q"].std(ddof=1) / math.sqrt(3))
    assert found.risk.error == pytest.approx(v["risk"].std(ddof=1) / math.sqrt(3))
    assert found.risk.kind == "stderr"
    assert found.starts_apart.value == 0.0
    assert found.energy_informed.value == pytest.approx(found.energy_random.value, rel=1e-6)
    largest = np.abs(learned.eigenvalues).max(axis=1, keepdims=True)
    np.testing.assert_allclose(v["rank_fraction"], np.mean(np.abs(learned.eigenvalues) > 1e-3 * largest, axis=1))


@pytest.mark.montecarlo
def test_risks_of_one_token_are_known_from_the_matrix():
    _, learned = measure(ONE, TIED, ndl.Ridge(0.5, 0.1), 20, 16, "fista", samples=200_000)
    v = learned.values
    # the score of S - S0 has variance 2 Tr(S - S0)^2 / d at every d, and noisy labels add noise_var
    for found, wanted in ((v["clean_risk"], 2 * v["estimation_error"]), (v["risk"], 2 * v["estimation_error"] + 0.5)):
        ratio = found / wanted
        error = ratio.std(ddof=1) / math.sqrt(len(ratio))
        assert error < 0.01
        assert abs(ratio.mean() - 1) < 5 * error


@pytest.mark.exact
def test_a_large_penalty_learns_nothing():
    for algorithm in ("lbfgs", "fista", "amp"):
        found, _ = measure(ONE, TIED, ndl.Ridge(0.3, 50.0), 16, 2, algorithm, samples=100)
        assert found.status is ndl.Status.CONVERGED
        assert found.rank_fraction.value == 0.0
        assert found.overlaps.q < 1e-10


@pytest.mark.training
@pytest.mark.parametrize(
    "other",
    [{"readout": "seq2seq"}, pytest.param({"centring": "batch"}, marks=pytest.mark.slow)],
    ids=["seq2seq", "batch"],
)
def test_readout_and_centring_matter_less_as_d_grows(other):
    apart = {}
    for d in (16, 48):
        ends = []
        for changed in ({}, other):
            task = TWO.replace(**{k: x for k, x in changed.items() if k == "readout"})
            model = TIED.replace(**{k: x for k, x in changed.items() if k == "centring"})
            ends.append([train(task, model, 0.3, 0.02, d, "lbfgs", repeat).best.S for repeat in range(4)])
        apart[d] = [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(*ends, strict=True)]
    # of the same data: the two differ by the fluctuations of x . x / d
    assert np.mean(apart[48]) < 0.6 * np.mean(apart[16])
    assert np.mean(apart[48]) > 0.0


def smooth(d):
    """The Wishart law of rank ratio 1/2 without its fluctuations: rms eigenvalues of d equal parts of a large one."""
    drawn = np.sort(WISHART.draw(np.random.default_rng(0), 2400))
    return ndl.Eigenvalues(tuple(np.sqrt(np.mean(drawn.reshape(d, -1) ** 2, axis=1))))


def extrapolated(task, learner, algorithm, sizes):
    """2 risk(2d) - risk(d), which has no correction in 1/d, its standard error, and risk(d) with its own."""
    ends = []
    for d, repeats in sizes.items():
        found, _ = measure(task.replace(target=smooth(d)), TIED, learner, d, repeats, algorithm)
        assert found.status is ndl.Status.CONVERGED
        ends.append(found.risk)
    low, high = ends
    return 2 * high.value - low.value, math.hypot(2 * high.error, low.error), low


@pytest.mark.training
@pytest.mark.parametrize(
    ("task", "learner", "algorithm", "sizes", "predicted"),
    [
        pytest.param(ONE, ndl.Ridge(1.0, 0.1), "fista", {20: 96, 40: 48}, 2 * (0.1344 + 0.25), marks=pytest.mark.slow),
        pytest.param(
            TWO, ndl.Ridge(1.0, 0.02, start="random"), "lbfgs", {20: 48, 40: 20}, 0.09999, marks=pytest.mark.slow
        ),
    ],
    ids=["one token", "two tokens"],
)
def test_risk_extrapolates_to_its_limit(task, learner, algorithm, sizes, predicted):
    value, error, at_20 = extrapolated(task, learner, algorithm, sizes)
    # the next correction, in 1/d^2, is a few per mille at these sizes
    assert error < 0.015 * predicted
    assert abs(value - predicted) < 4 * error
    # the negative twin: without extrapolation it disagrees
    assert abs(at_20.value - predicted) > 4 * at_20.error


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.parametrize(
    ("task", "learner", "algorithm", "predicted"),
    [
        (ONE, ndl.Ridge(0.5, 0.1), "fista", {"estimation_error": 0.3524, "energy": 0.14923, "rank_fraction": 0.606}),
        (
            TWO,
            ndl.Ridge(0.3, 0.02, start="random"),
            "lbfgs",
            {"risk": 0.15961, "clean_risk": 0.0954, "estimation_error": 0.3077, "energy": 0.01833},
        ),
    ],
    ids=["one token", "two tokens"],
)
def test_metrics_extrapolate_to_their_limits(task, learner, algorithm, predicted):
    ends = {d: measure(task, TIED, learner, d, repeats, algorithm)[0] for d, repeats in ((40, 48), (80, 24))}
    for name, limit in predicted.items():
        low, high = (ends[d].metrics[name] for d in (40, 80))
        error = math.hypot(2 * high.error, low.error)
        assert error < 0.04 * limit
        assert abs(2 * high.value - low.value - limit) < 4 * error


# bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract
@pytest.mark.parametrize(
    ("task", "model", "learner", "d", "algorithm", "kind", "sentence"),
    [
        (TWO, TIED, ndl.Ridge(0.3, (0.1, 0.2)), 10, None, InvalidParameter, "has one penalty; give lam as one number"),
        (TWO, TIED, ndl.Ridge(0.3, "optimal"), 10, None, InvalidParameter, "lam is not chosen yet"),
        (TWO, TIED, ndl.Ridge(0.3, 0.1), 10, "sgd", UnknownName, "unknown algorithm 'sgd'"),
        (TWO, TIED, ndl.Ridge(0.3, 0.1), 10, "fista", InvalidParameter, "needs TiedAttention and tokens=1"),
        (ONE, DIRECT, ndl.Ridge(0.3, 0.1), 10, "fista", InvalidParameter, "needs TiedAttention and tokens=1"),
        (TWO, TIED, ndl.Ridge(0.001, 0.1), 10, None, InvalidParameter, "at least one sequence"),
        (TWO, TIED, ndl.Ridge(100.0, 0.1), 400, None, InvalidParameter, "at most 4e+08 numbers"),
        (
            TWO.replace(target=ndl.PowerLaw(1.0, 30)),
            TIED,
            ndl.Ridge(1.0, 0.1),
            10,
            None,
            InvalidParameter,
            "needs d=30",
        ),
    ],
)
def test_bad_input_has_a_sentence(task, model, learner, d, algorithm, kind, sentence):
    with pytest.raises(kind) as caught:
        measure(task, model, learner, d, 1, algorithm)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.contract
def test_other_targets_train():
    for target in (ndl.PowerLaw(1.0, 16), ndl.Eigenvalues((0.0, 2.0), (0.7, 0.3))):
        found, learned = measure(ONE.replace(target=target), TIED, ndl.Ridge(0.5, 0.1), 16, 2, samples=100)
        assert found.status is ndl.Status.CONVERGED
        assert learned.target.shape == learned.eigenvalues.shape == (2, 16)

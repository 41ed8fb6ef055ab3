"""The attention-indexed model with a quadratic loss, its Bayes-optimal curve and its thresholds."""

import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.numerics.free_atoms import Atoms
from needlepoint.numerics.freeprob import MarchenkoPastur
from needlepoint.theory.indexed import bayes as indexed_bayes
from needlepoint.theory.indexed.quadratic_loss import best, on_ray, penalised, unpenalised
from needlepoint.theory.indexed.thresholds import thresholds

from reference_values import reference_values

REFERENCE = reference_values("attention-indexed")["values"]
HALF = MarchenkoPastur(0.5)
POWER = Atoms(math.sqrt(1000) / np.arange(1, 1001))
TIED = ndl.TiedAttention()


def named(*starts):
    return [v for v in REFERENCE if v["name"].startswith(starts)]


def law_of(inputs):
    return MarchenkoPastur(inputs["kappa0"]) if "kappa0" in inputs else POWER


def order(cut, a, noise, penalty):
    """Everything that the reference lists, from delta and eps."""
    at, delta, eps = cut.at, cut.delta, cut.eps
    found = {
        "delta": delta,
        "eps": eps,
        "q": at.J,
        "m": at.J - delta * at.d1 / 2 - eps * at.d2 / 2,
        "est": 2 * a * delta**2 - noise / 2,
        "rank": at.above,
        "meanS": -at.d2 / 2,
    }
    if penalty:
        mhat = 2 * penalty / eps
        fit = (delta * penalty / eps) ** 2 / 4
        found |= {"mhat": mhat, "qhat": (delta * mhat) ** 2, "Sigma": at.d1 / (2 * delta * mhat)}
        found |= {"fit": fit, "Phi": fit - penalty * at.d2 / 2}
    return found


@pytest.mark.paper
@pytest.mark.parametrize("case", named("linear_T1", "ridgeless"), ids=lambda v: f"{v['name'][:16]} {v['id']}")
def test_reference_values(case):
    inputs = case["inputs"]
    law, noise, penalty = law_of(inputs), inputs["Delta"], inputs.get("lam_tilde", 0.0)
    a = inputs["alpha"] if penalty else inputs["a"]
    Q = law.square + noise / 2
    found = order(penalised(law, a, Q, penalty) if penalty else unpenalised(law, a, Q), a, noise, penalty)
    for name, value in case["outputs"].items():
        assert abs(found[name] - value) <= case["tol"] * max(1.0, abs(value)), name


@pytest.mark.paper
@pytest.mark.parametrize("case", named("optimal"), ids=lambda v: str(v["id"]))
def test_reference_values_of_the_best_penalty(case):
    inputs, outputs = case["inputs"], case["outputs"]
    a, noise = inputs["alpha"], inputs["Delta"]
    cut = best(law_of(inputs), a, law_of(inputs).square + noise / 2)
    assert abs(cut.eps * cut.stiffness(a) - outputs["lam_opt"]) <= case["tol"]
    assert abs(2 * a * cut.delta**2 - noise / 2 - outputs["est"]) <= case["tol"]


@pytest.mark.slow
@pytest.mark.exact
def test_a_grid_of_problems_solves_both_equations():
    """eq:indexed-linear, and the error from m and q, at 200 problems at once."""
    a, penalty = np.geomspace(0.01, 5.0, 20)[:, None], np.geomspace(1e-4, 10.0, 10)[None, :]
    Q = HALF.square + 0.25
    cut = penalised(HALF, a, Q, penalty)
    at, delta, eps = cut.at, cut.delta, cut.eps
    np.testing.assert_allclose(at.d1, 4 * a * delta - penalty * delta / eps, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        Q + 2 * a * delta**2 - penalty * delta**2 / eps, at.J - eps * at.d2, rtol=1e-9, atol=1e-12
    )
    m = at.J - delta * at.d1 / 2 - eps * at.d2 / 2
    np.testing.assert_allclose(HALF.square - 2 * m + at.J, 2 * a * delta**2 - 0.25, rtol=1e-7, atol=1e-9)


@pytest.mark.exact
def test_the_best_penalty_is_better_than_its_neighbours():
    for a in (0.1, 0.4, 2.0):
        cut = best(HALF, a, HALF.square + 0.25)
        penalty = cut.eps * cut.stiffness(a)
        others = penalised(HALF, a, HALF.square + 0.25, penalty * np.array([0.8, 1.25]))
        assert np.all(others.delta > cut.delta)


@pytest.mark.exact
def test_a_small_penalty_leads_to_none():
    a = np.array([0.1, 0.2, 0.6, 2.0])  # two on each side of interpolation
    exact, near = unpenalised(HALF, a, 1.75), penalised(HALF, a, 1.75, 1e-9)
    np.testing.assert_allclose(near.delta, exact.delta, rtol=1e-6)
    np.testing.assert_allclose(near.eps, exact.eps, atol=1e-6)
    assert np.all(
        (exact.eps > 0) == (a < thresholds(ndl.AttentionIndexed(1, ndl.Wishart(0.5), 0.5), TIED).interpolation.value)
    )


@pytest.mark.exact
def test_interpolation_is_crossed_without_losing_a_point():
    """200 samples sizes across the threshold at a penalty of 1e-5: all solved, and none jumps."""
    a = np.linspace(0.25, 0.36, 200)
    cut = penalised(HALF, a, 1.75, 1e-5)
    np.testing.assert_allclose(cut.eps * cut.stiffness(a), 1e-5, rtol=1e-6)
    assert np.max(np.abs(cut.balance(a, 1.75))) < 1e-10
    assert np.max(np.abs(np.diff(cut.delta) / cut.delta[1:])) < 0.1


@pytest.mark.exact
def test_a_penalty_that_cuts_everything_off():
    cut = penalised(HALF, 0.3, 1.75, 1e3)
    assert cut.at.above == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(cut.delta, math.sqrt(1.75 / 0.6), rtol=1e-12)
    np.testing.assert_allclose(cut.eps, 1e3 / 1.2, rtol=1e-9)


@pytest.mark.negative
def test_another_penalty_has_another_cut():
    one, other = (penalised(HALF, 0.2, 1.75, x) for x in (0.1, 0.101))
    assert abs(one.delta - other.delta) > 1e-5
    assert abs(float(on_ray(HALF, 0.7, 0.2, 1.75).balance(0.21, 1.75))) > 1e-3


# --- Bayes and thresholds -------------------------------------------------------------------------


@pytest.mark.paper
@pytest.mark.parametrize("case", named("BO"), ids=lambda v: str(v["id"]))
def test_reference_values_of_bayes(case):
    task = ndl.AttentionIndexed(2, ndl.Wishart(case["inputs"]["kappa0"]))
    tau = indexed_bayes.noise_for(task, case["inputs"]["alpha"])
    assert abs(tau - case["outputs"]["tau"]) <= case["tol"] * max(1.0, tau)
    assert abs(indexed_bayes.least_error(task, tau) - case["outputs"]["mmse"]) <= case["tol"]


@pytest.mark.exact
def test_nothing_beats_bayes():
    for noise in (0.0, 0.5):
        task = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=noise)
        for a in (0.05, 0.2, 0.35):
            least = indexed_bayes.least_error(task, indexed_bayes.noise_for(task, a))
            assert 0 < least < 2 * a * best(HALF, a, 1.5 + noise / 2).delta ** 2 - noise / 2


@pytest.mark.exact
def test_bayes_recovers_from_its_threshold_on():
    task = ndl.AttentionIndexed(2, ndl.Wishart(0.3))
    edge = thresholds(task, TIED).bayes_recovery.value
    assert indexed_bayes.noise_for(task, 1.001 * edge) == 0.0
    assert 0 < indexed_bayes.least_error(task, indexed_bayes.noise_for(task, 0.999 * edge)) < 0.01
    assert indexed_bayes.noise_for(task.replace(noise_var=0.1), 1.001 * edge) > 1e-3


@pytest.mark.montecarlo
def test_the_best_denoiser_of_random_matrices_has_that_error():
    """Eigenvalues x shrink to x - 2 tau Re g(x); 16 matrices, d = 200."""
    d, tau, rng = 200, 0.3, np.random.default_rng(3)
    task = ndl.AttentionIndexed(2, ndl.Wishart(0.5))
    errors = []
    for _ in range(16):
        S0 = np.diag(task.target.draw(rng, d))
        noise = rng.standard_normal((d, d)) / math.sqrt(2 * d)
        x, vectors = np.linalg.eigh(S0 + math.sqrt(tau) * (noise + noise.T))
        shrunk = x - 2 * tau * HALF.resolvent(x, math.sqrt(tau)).real
        errors.append(np.sum((vectors * shrunk @ vectors.T - S0) ** 2) / d)
    error = np.std(errors, ddof=1) / 4
    assert error < 0.01 * np.mean(errors)
    least = indexed_bayes.least_error(task, tau)
    assert abs(np.mean(errors) - least) < 4 * error + least / d
    assert abs(np.mean(errors) - 1.05 * least) > 4 * error + least / d


@pytest.mark.paper
@pytest.mark.parametrize("case", named("thresholds"), ids=lambda v: f"{v['inputs']}")
def test_reference_values_of_thresholds(case):
    clean = ndl.AttentionIndexed(case["inputs"]["T"], ndl.Wishart(case["inputs"]["kappa0"]))
    found, noisy = thresholds(clean, TIED), thresholds(clean.replace(noise_var=0.5), TIED)
    expected = case["outputs"]
    for value, name in (
        (found.recovery, "alpha_perf"),
        (found.bayes_recovery, "alpha_BO"),
        (found.interpolation, "alpha_interp_Delta0"),
        (noisy.interpolation, "alpha_interp_Delta05"),
    ):
        assert abs(value.value - expected[name]) <= case["tol"]
    assert noisy.recovery.value == noisy.bayes_recovery.value == math.inf


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [2, 3, 5, 9])
def test_tokens_enter_through_one_number(tokens):
    for noise in (0.0, 0.5):
        one, many = (
            thresholds(ndl.AttentionIndexed(t, ndl.Wishart(0.3), noise), TIED).interpolation.value for t in (1, tokens)
        )
        assert many == pytest.approx(2 * one / (tokens**2 + tokens - 2), rel=1e-12)
    direct = thresholds(ndl.AttentionIndexed(tokens, ndl.Wishart(0.3)), ndl.DirectAttention())
    assert direct.interpolation.value == direct.recovery.value == 1 / (tokens**2 + tokens - 2)


@pytest.mark.exact
def test_targets_of_one_rank_share_their_thresholds():
    """Where S0 is found depends on its rank, not on its eigenvalues."""
    flat = ndl.AttentionIndexed(2, ndl.Eigenvalues([0.0, 1.0], [0.7, 0.3]))
    wishart = ndl.AttentionIndexed(2, ndl.Wishart(0.3))
    assert float(thresholds(flat, TIED).recovery) == pytest.approx(float(thresholds(wishart, TIED).recovery), rel=1e-12)
    # and that is where the error of the ridgeless solution goes
    law, a = flat.target.law, thresholds(flat, TIED).recovery.value * flat.components
    below, above = (2 * f * a * unpenalised(law, f * a, law.square).delta ** 2 for f in (0.98, 1.02))
    assert below > 1e-4
    assert above < 1e-12


def test_thresholds_of_another_task():
    with pytest.raises(ndl.NoTheory, match="no thresholds for SpikedSLR with KeyValueAttention"):
        thresholds(ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Softmax()))


# --- what predict says -----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [1, 2])
def test_energy_is_fit_and_penalty_with_their_errors(tokens):
    task, model = ndl.AttentionIndexed(tokens, ndl.Wishart(0.5), 0.5), ndl.TiedAttention(width_ratio=0.8)
    found = ndl.predict(task, model, ndl.Ridge(0.5, 0.1), tol=1e-3)
    x, density = found.spectrum.x, found.spectrum.density
    trace = np.mean(found.spectrum.values)  # Tr S / d by the quantiles
    assert found.energy.value == pytest.approx(0.5 * found.train_loss.value + math.sqrt(0.8) * 0.1 * trace, rel=2e-3)
    assert np.trapezoid(density, x) + found.spectrum.atom == pytest.approx(1.0, abs=0.02)
    assert found.rank_fraction.value == pytest.approx(1 - found.spectrum.atom, abs=1e-4)
    assert 0 < found.rank_fraction.error < 0.01
    assert 0 < found.energy.error < 1e-3 * found.energy.value


def test_what_cannot_be_answered_is_one_sentence():
    task, tied = ndl.AttentionIndexed(1, ndl.Wishart(0.5), 0.5), ndl.TiedAttention()
    with pytest.raises(ndl.InvalidParameter, match="one that counts must be positive"):
        ndl.Eigenvalues([0.0, 2.0], [1.0, 0.0])
    with pytest.raises(ndl.InvalidParameter, match="sum to 1"):
        ndl.Eigenvalues([0.0, 1.0], [0.5, 0.6])
    with pytest.raises(ndl.InvalidParameter, match="positive semi-definite"):
        ndl.Eigenvalues([-1.0, 1.0])
    with pytest.raises(ndl.InvalidParameter, match="one penalty"):
        ndl.predict(task, tied, ndl.Ridge(0.5, (0.1, 0.2)))
    with pytest.raises(ndl.NoTheory, match="beyond interpolation"):
        ndl.predict(task.replace(tokens=2), tied, ndl.Ridge(0.5, 0.0))
    narrow = ndl.predict(task, ndl.TiedAttention(width_ratio=0.2), ndl.Ridge(0.5, 0.1))
    assert narrow.status is ndl.Status.UNSTABLE
    assert "W is only 0.2 d wide" in narrow.notes[-1]


@pytest.mark.exact
@pytest.mark.parametrize("noise", [0.0, 1e-9, 0.3])
def test_a_penalty_that_cuts_nothing_off(noise):
    """S0 + delta Z - eps whole: the error is delta^2 + eps^2, and equal to 2 alpha delta^2 without the noise's part."""
    task = ndl.AttentionIndexed(1, ndl.Wishart(2.5), noise)
    found = ndl.predict(task, ndl.TiedAttention(), ndl.Ridge(2.0, 0.02))
    delta, eps = found.conjugates["noise"], found.conjugates["cut"]
    assert found.rank_fraction.value == pytest.approx(1.0, abs=1e-12)
    assert eps == pytest.approx(0.02 / 6, rel=1e-9)
    assert found.estimation_error.value == pytest.approx(delta**2 + eps**2, rel=1e-6, abs=1e-9)
    assert found.residual < 1e-12


@pytest.mark.exact
def test_a_penalty_that_begins_to_cut_continues_one_that_does_not():
    task = ndl.AttentionIndexed(1, ndl.Wishart(2.5))
    errors = [
        float(ndl.predict(task, ndl.TiedAttention(), ndl.Ridge(2.0, lam)).estimation_error)
        for lam in np.linspace(1.0, 2.0, 11)
    ]
    rises = np.diff(errors)
    assert np.all(rises > 0)
    assert np.max(np.abs(np.diff(rises))) < 0.3 * np.max(rises)

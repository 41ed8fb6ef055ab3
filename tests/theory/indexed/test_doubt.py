"""What speaks against predictions of the attention-indexed model, and what they may be off by."""

import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.answers.doubts import answers
from needlepoint.core.estimates import Estimate
from needlepoint.theory.indexed.doubt import HEAVY, advice, doubts, heavy_shares
from needlepoint.theory.indexed.equations import Learned
from needlepoint.theory.indexed.fields import State
from needlepoint.theory.indexed.solutions import Outcome, Solution

TIED = ndl.TiedAttention()
POWER = ndl.AttentionIndexed(2, ndl.PowerLaw(1.5, 90), 0.5)
WISHART = ndl.AttentionIndexed(2, ndl.Wishart(0.5), 0.5)


def solution(replicon=0.5, status=ndl.Status.CONVERGED, **numbers):
    value = Outcome(**{**dict.fromkeys(Outcome._fields, 0.5), "rivals": 0.0, **numbers})
    error = Outcome(*[1e-6] * len(value))
    return Solution(State(0.5, 0.5, 1.0), Learned(1, 1, 1, 1, 0.5, 1), value, error, status, 0.0, replicon)


# --- scores of heavy spectra ----------------------------------------------------------------------


@pytest.mark.montecarlo
@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.5])
def test_the_concentration_is_a_twelfth_of_the_excess_kurtosis(exponent):
    """Of diagonal scores, whose cumulants are those of squares of normals."""
    target, draws = ndl.PowerLaw(exponent, 45), 400_000
    rng, s = np.random.default_rng(3), target.eigenvalues()
    z = sum(si * (rng.standard_normal(draws) ** 2 - 1) for si in s)
    rows = (z / math.sqrt(2 * np.sum(s**2))).reshape(40, -1)
    excess = np.mean(rows**4, axis=1) - 3
    error = excess.std(ddof=1) / math.sqrt(len(excess))
    assert abs(excess.mean() - 12 * target.concentration) < 5 * error
    # a wrong factor fails: off-diagonal scores have half of it
    assert abs(excess.mean() - 6 * target.concentration) > 5 * error


@pytest.mark.exact
def test_heavy_power_laws_are_flagged_and_light_ones_are_not():
    """predict said CONVERGED at 0.1363 +- 1e-5 where training has 0.164(2), and the gap does not shrink with d."""
    said = ndl.predict(POWER, TIED, ndl.Ridge(0.1, 0.02))
    assert said.status is ndl.Status.UNSTABLE
    assert said.stable  # replica symmetry has nothing to do with it
    assert "excess kurtosis 8.4" in " ".join(said.notes)
    assert set(said.doubt) == set(said.metrics)
    assert 0.163 < said.risk.value * (1 + said.doubt["risk"]) < 0.18
    light = ndl.PowerLaw(0.2, 90)
    assert light.concentration < HEAVY
    assert not doubts(POWER.replace(target=light), TIED, solution()).reasons
    assert not doubts(WISHART, TIED, solution()).reasons


def test_the_best_predictor_of_labels_has_the_same_scores():
    said = ndl.predict(POWER, None, ndl.BayesOptimal(0.1))
    assert said.status is ndl.Status.UNSTABLE
    assert "the risks are not to be trusted: the scores are not Gaussian" in said.notes[0]
    assert ndl.predict(POWER.replace(tokens=1), None, ndl.BayesOptimal(0.1)).status.ok


def test_doubts_grow_with_the_exponent_and_vanish_with_the_limit():
    shares = [heavy_shares(ndl.PowerLaw(g, 90).concentration)["risk"] for g in (0.6, 1.0, 1.5, 2.0)]
    assert all(np.diff(shares) > 0)
    assert ndl.Eigenvalues([0.0, 1.0, 30.0]).concentration == ndl.Wishart(0.1).concentration == 0.0


def test_a_list_that_is_a_whole_spectrum_says_what_one_of_each_would_be():
    power = ndl.PowerLaw(1.5, 90)
    whole = ndl.Eigenvalues(tuple(power.eigenvalues().tolist()))
    assert whole.smallest_d == 90
    assert whole.concentration_at(90) == pytest.approx(power.concentration, rel=1e-12)
    (note,) = advice(POWER.replace(target=whole))
    assert "at d=90, scores have an excess kurtosis of 8.4" in note
    for light in (ndl.Eigenvalues([0.0, 1.0, 30.0]), ndl.Eigenvalues([1.0] * 90), ndl.Wishart(0.1), power):
        assert advice(POWER.replace(target=light)) == ()


# --- several minima, narrow layers ----------------------------------------------------------------


def test_reasons_add_up_and_what_was_never_trained_has_no_share():
    minima = doubts(WISHART, TIED, solution(rivals=0.002))
    assert minima.unstable
    assert set(minima.shares) == set(heavy_shares(0.5))
    worse = doubts(WISHART, TIED, solution(rivals=0.1))
    assert all(worse.shares[name] >= share for name, share in minima.shares.items())
    assert worse.shares["train_loss"] > 1  # which is then no answer
    both = doubts(POWER, TIED, solution(rivals=0.002))
    assert len(both.reasons) == 2
    assert both.shares["risk"] > minima.shares["risk"]
    assert not doubts(WISHART, TIED, solution(rivals=0.002, replicon=1.2)).shares
    narrow = doubts(WISHART, ndl.TiedAttention(width_ratio=0.1), solution())
    assert "only 0.1 d wide" in narrow.reasons[0]
    assert not narrow.shares
    assert not narrow.unstable


# --- numbers that are nothing ---------------------------------------------------------------------


def test_a_number_that_may_be_off_by_all_of_itself_is_refused():
    metrics = {"risk": Estimate(397.0, 1094.0), "energy": Estimate(0.2, 0.01)}
    kept, notes = answers(metrics, {}, {"risk": 2.0, "energy": 1.0})
    assert kept["risk"].error == math.inf
    assert kept["energy"] == metrics["energy"]
    assert notes == ("nothing is known of risk, which may be off by more than the whole value.",)
    # nor is one whose doubt is over 100 %
    kept, _ = answers(metrics, {"energy": 1.2}, {"risk": 2000.0, "energy": 1.0})
    assert kept["energy"].error == math.inf
    # but one that is small beside its scale even then is known to be small
    small, _ = answers({"energy": Estimate(1e-4, 1e-6)}, {"energy": 20.0}, {"energy": 1.0})
    assert small["energy"].finite
    # what is zero within rounding is known
    assert answers({"risk": Estimate(0.0, 1e-9)}, {}, {"risk": 1.0})[1] == ()


def test_equations_that_are_not_solved_have_no_error():
    unsolved = solution(status=ndl.Status.MAX_STEPS)
    assert unsolved.estimate("test").error == math.inf
    assert solution().estimate("test").error == 1e-6

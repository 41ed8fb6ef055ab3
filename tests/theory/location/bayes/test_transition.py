"""Branches along alpha: continued, their ends, and where they change places."""

import math

import pytest

import needlepoint as ndl
from needlepoint.theory.location.bayes.samples import bayes_branches
from needlepoint.theory.location.bayes.transition import bayes_scan, bayes_transition

QUIET = ndl.MaxSLR(2, math.inf, noise=0.01)


@pytest.fixture(scope="module")
def quiet():
    return bayes_transition(QUIET, 0.5, 3.0)


@pytest.mark.exact
def test_branches_end_at_the_spinodals(quiet):
    """A second route: started anew on both sides of each end."""
    for end, inside in ((quiet.informed_spinodal, 1), (quiet.uninformed_spinodal, -1)):
        assert len(bayes_branches(QUIET, end.value + inside * 1e-3)) == 2
        assert len(bayes_branches(QUIET, end.value - inside * 1e-3)) == 1


@pytest.mark.exact
def test_free_energies_are_equal_at_the_transition(quiet):
    alpha = quiet.transition.value
    assert quiet.informed_spinodal.value < alpha < quiet.uninformed_spinodal.value
    assert quiet.hard_phase == (alpha, quiet.uninformed_spinodal.value)

    def advantage(alpha):
        low, high = bayes_branches(QUIET, alpha)
        return high.free_energy - low.free_energy

    slope = (advantage(alpha + 1e-3) - advantage(alpha - 1e-3)) / 2e-3
    assert abs(advantage(alpha)) < 2 * quiet.transition.error * slope
    # negative twin: a thousandth away they differ by far more than that
    assert abs(advantage(alpha + 1e-3)) > 20 * quiet.transition.error * slope


@pytest.mark.paper
def test_ten_tokens():
    """Reference: spinodals about 1.28 and 2.34, equal free energies at 1.604; the last digit was read off curves."""
    found = bayes_transition(ndl.SpikedSLR(10, 2.0, noise=0.01), 1.0, 3.0)
    assert abs(found.informed_spinodal.value - 1.28) < 0.01
    assert abs(found.transition.value - 1.604) < 0.004
    assert abs(found.uninformed_spinodal.value - 2.34) < 0.01
    assert max(e.error for e in (found.informed_spinodal, found.transition, found.uninformed_spinodal)) < 1e-5
    assert "the phase is hard" in found.sentence


@pytest.mark.slow
@pytest.mark.paper
@pytest.mark.parametrize(
    ("tokens", "snr", "transition", "within"),
    [(5, 0.5, 1.477, 0.004), (30, 6.0, 1.405, 0.01), (10, 6.0, 1.175, 0.025)],
)
def test_other_transitions(tokens, snr, transition, within):
    found = bayes_transition(ndl.SpikedSLR(tokens, snr, noise=0.01), 0.8, 3.0)
    assert abs(found.transition.value - transition) < within
    if tokens == 5:
        assert abs(found.informed_spinodal.value - 1.215) < 0.01
        assert abs(found.uninformed_spinodal.value - 2.2) < 0.02


@pytest.mark.slow
@pytest.mark.quadrature
def test_three_tokens_have_a_transition_within_their_error():
    task = ndl.MaxSLR(3, math.inf, noise=0.01)
    one, two = (bayes_transition(task, 0.5, 3.0, seed=seed) for seed in (0, 1))
    for name in ("informed_spinodal", "transition", "uninformed_spinodal"):
        a, b = getattr(one, name), getattr(two, name)
        assert a.error < 0.01
        assert abs(a.value - b.value) < a.error + b.error


def test_no_second_branch_is_said():
    found = bayes_transition(ndl.MaxSLR(2, 2.0, noise=0.1), 0.5, 5.0)
    assert found.transition is None
    assert found.hard_phase is None
    assert found.sentence == "no second branch between alpha = 0.5 and 5."


@pytest.mark.exact
def test_a_scan_follows_both_branches(quiet):
    alphas = [1.2, 1.0, 1.05, 1.07, 1.1, 1.12, 1.14]
    points = bayes_scan(QUIET, alphas)
    assert [p.alpha for p in points] == sorted(alphas)
    ends = quiet.informed_spinodal.value, quiet.transition.value, quiet.uninformed_spinodal.value
    assert [p.two for p in points] == [ends[0] < p.alpha < ends[2] for p in points]
    assert [p.hard for p in points] == [ends[1] < p.alpha < ends[2] for p in points]
    for p in points:
        anew = bayes_branches(QUIET, p.alpha)
        for followed, fresh in ((p.uninformed, anew[0]), (p.informed, anew[-1])):
            assert followed.status is ndl.Status.CONVERGED
            assert abs(followed.value - fresh.value) < 1e-7
            assert abs(followed.key - fresh.key) < 1e-7
        assert p.optimal.free_energy > max(p.uninformed.free_energy, p.informed.free_energy) - 1e-12
    # along each branch more data is more overlap
    for kind in ("uninformed", "informed"):
        values = [getattr(p, kind).value for p in points]
        assert values == sorted(values)


@pytest.mark.parametrize(
    ("question", "phrase"),
    [
        (lambda: bayes_scan(QUIET, [1.0, -1.0]), "alpha must be > 0"),
        (lambda: bayes_scan(QUIET, []), "alpha must be > 0"),
        (lambda: bayes_transition(QUIET, 2.0, 1.0), "low must be below high"),
        (lambda: bayes_transition(ndl.MaxSLR(2, 2.0), 1.0, 2.0), "needs noise > 0"),
    ],
)
def test_bad_input_is_one_sentence(question, phrase):
    with pytest.raises(ndl.InvalidParameter, match=phrase):
        question()

"""What a gap's change with d says: gaps are made up with a known law, with and without noise."""

import math

import numpy as np
import pytest

from needlepoint.core.answers.comparison import Row
from needlepoint.papers.trends import AGREES, FLAGGED, OPEN, SIZE, WORDS, WRONG, extrapolated, trend, verdicts

SE = 0.01


def row(d, gap, se=SE, exact=False, flagged=False, numerical=0.0, z=None):
    """A comparison at d; the numerical error is a bound that z leaves out."""
    z = math.copysign(max(0.0, abs(gap) - numerical) / se, gap) if z is None else z
    return Row("risk", d, 1.0, numerical, "numerical", 1 + gap, se, "stderr", gap, z, 64, exact, flagged=flagged)


def rows(law, sizes=(20, 40), **options):
    return [row(d, law(d), **options) for d in sizes]


def words(found):
    return [verdict.word for verdict in found]


@pytest.mark.exact
@pytest.mark.parametrize("sizes", [(20, 40), (40, 20), (20, 40, 80), (50, 100)])
@pytest.mark.parametrize(
    ("law", "word", "reason"),
    [
        (lambda d: 6.0 / d, SIZE, "shrinks like 1/d"),
        (lambda d: -6.0 / d, SIZE, "shrinks like 1/d"),
        (lambda d: 0.1, WRONG, "does not shrink"),
        (lambda d: -0.1, WRONG, "does not shrink"),
        (lambda d: 0.004 * d, WRONG, "grows"),
        (lambda d: 2000.0 / d**2, SIZE, "shrinks faster than 1/d"),
        (lambda d: 5.0 / math.sqrt(d), OPEN, "shrinks, but more slowly than 1/d"),
    ],
    ids=["1/d", "-1/d", "constant", "-constant", "growing", "1/d^2", "1/sqrt d"],
)
def test_known_laws_are_told_apart(sizes, law, word, reason):
    found = trend(rows(law, sizes))
    assert (found.word, found.reason.partition(":")[0]) == (word, reason)


@pytest.mark.exact
def test_the_gap_is_extrapolated_by_a_line_in_one_over_d():
    """From two sizes: (d2 g2 - d1 g1) / (d2 - d1), with its error."""
    given = [row(20, 0.3), row(40, 0.2)]
    intercept, error = (40 * 0.2 - 20 * 0.3) / 20, SE * math.hypot(40, 20) / 20
    assert extrapolated(given) == pytest.approx(intercept / error)
    assert extrapolated(rows(lambda d: 6.0 / d)) == pytest.approx(0.0, abs=1e-10)
    assert extrapolated(rows(lambda d: 0.1 + 3.0 / d, (20, 40, 80))) > 4
    assert extrapolated(given[:1]) is None
    assert extrapolated([row(d, 0.1, exact=True) for d in (20, 40)]) is None


@pytest.mark.parametrize("small", [1e-3, 1e-9, 1e-14, 1e-200])
def test_errors_of_any_size_can_be_extrapolated(small):
    """A share that is the same in all repeats has an error of rounding, and the other size an ordinary one."""
    for errors in ((small, SE), (SE, small), (small, small)):
        given = [row(d, 0.1, se) for d, se in zip((20, 40), errors, strict=True)]
        z = extrapolated(given)
        assert z is None or z >= 0
        assert len(verdicts(given, ["a", "a"])) == 2


def test_numerical_errors_are_bounds():
    """A constant gap inside the numerical error of the theory is no gap."""
    inside = [row(d, 0.1, numerical=0.2) for d in (20, 40)]
    assert words(verdicts(inside, ["a", "a"])) == [AGREES, AGREES]
    outside = [row(d, 0.1, numerical=0.001) for d in (20, 40)]
    assert words(verdicts(outside, ["a", "a"])) == [WRONG, WRONG]


def test_what_agrees_at_the_largest_size_is_not_held_against_a_smaller_one():
    found = verdicts([row(20, 0.08), row(40, 0.03)], ["a", "a"])
    assert words(found) == [SIZE, AGREES]
    assert found[0].reason == "gone at d = 40"


def test_exact_theories_have_no_finite_size():
    found = verdicts([row(20, 0.2, exact=True), row(40, 0.01, exact=True)], ["a", "a"])
    assert words(found) == [WRONG, AGREES]


def test_flagged_rows_and_missing_numbers():
    assert words(verdicts(rows(lambda d: 0.5, flagged=True), ["a", "a"])) == [FLAGGED, FLAGGED]
    assert words(verdicts([row(20, 0.1, z=math.nan), row(40, 0.1)], ["a", "a"])) == [WRONG, WRONG]
    assert words(verdicts([row(40, 0.1)], ["a"])) == [OPEN]


def test_rows_of_other_questions_and_metrics_are_apart():
    found = verdicts([*rows(lambda d: 6 / d), *rows(lambda d: 0.1)], ["a", "a", "b", "b"])
    assert words(found) == [SIZE, SIZE, WRONG, WRONG]


@pytest.mark.montecarlo
@pytest.mark.parametrize(("law", "right", "never"), [(lambda d: 4.0 / d, SIZE, WRONG), (lambda d: 0.15, WRONG, SIZE)])
def test_noise_seldom_turns_the_verdict_round(law, right, never):
    """Gaps of 10 to 20 standard errors: over 2,000 draws the right verdict is usual and the opposite one rare."""
    rng = np.random.default_rng(5)
    seen = [trend([row(d, law(d) + SE * rng.standard_normal()) for d in (20, 40)]).word for _ in range(2000)]
    # the wrong hypothesis is more than six standard errors off; its acceptance needs a scatter of over two of them
    assert seen.count(right) > 0.9 * len(seen)
    assert seen.count(never) < 0.005 * len(seen)


def test_a_constant_that_fits_better_is_no_disagreement_while_a_finite_size_fits_too():
    """Red is for what is excluded: here the gap at 1/d = 0 is 2.3 standard errors from zero."""
    found = trend([row(20, -0.0330, 0.0172), row(40, -0.0465, 0.0101)])
    assert found.word == OPEN


def test_every_verdict_is_explained():
    assert set(WORDS) == {AGREES, SIZE, OPEN, FLAGGED, WRONG}

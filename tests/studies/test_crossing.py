"""Where the risks of two models part: the bracket, the line that is continued, and its error."""

import pytest

import needlepoint as ndl
from needlepoint.studies import crossing
from needlepoint.studies.crossing import continued, risk_crossing
from needlepoint.studies.verdicts import Contest, Entry

TASK = ndl.Needles(2, snr=4.0)
HEADS = {"one": ndl.MultiHead(1, ndl.Softmax()), "two": ndl.MultiHead(2, ndl.Softmax())}
LEARNER = ndl.Ridge(1.0, "optimal")


def known(risks, error=0.01):
    """A contest whose risks are given functions of alpha; it remembers where it was asked."""

    def asked(task, models, learner, *, seed, tol):
        asked.at.append(learner.alpha)
        entries = []
        for name, model in models.items():
            risk = ndl.Estimate(risks[name](learner.alpha), error)
            found = ndl.Prediction(task, model, learner, {"excess_risk": risk}, status=ndl.Status.CONVERGED)
            entries.append(Entry(name, model, learner, found))
        return Contest(task, tuple(entries))

    asked.at = []
    return asked


@pytest.fixture
def parting(monkeypatch):
    """Two heads are one head up to alpha = 2, and then gain 0.2 for every unit."""
    found = known({"one": lambda a: 1.0 - 0.1 * a, "two": lambda a: 1.0 - 0.1 * a - 0.2 * max(a - 2.0, 0.0)})
    monkeypatch.setattr(crossing, "contest", found)
    return found


def test_risks_that_part(parting):
    found = risk_crossing(TASK, HEADS, LEARNER, (1.0, 5.0))
    assert found.better == "two"
    assert found.alpha.value == pytest.approx(2.0)
    assert 0 < found.alpha.error < 0.5
    assert len(parting.at) == len(set(parting.at)) == 6  # both ends, and four halves of 4 are below a tenth of it
    assert [e.learner.alpha for e in found.contest.entries][::2] == sorted(parting.at)
    assert found.trusted


def test_risks_that_cross_and_the_better_one_at_few_samples(monkeypatch):
    monkeypatch.setattr(crossing, "contest", known({"one": lambda a: 0.5 + 0.1 * a, "two": lambda a: 1.0 - 0.1 * a}))
    found = risk_crossing(TASK, HEADS, LEARNER, (2.4, 5.0), width=0.5)
    assert (found.better, found.alpha.value) == ("two", pytest.approx(2.5))
    found = risk_crossing(TASK, HEADS, LEARNER, (1.0, 2.55), width=0.5)
    assert (found.better, found.alpha.value) == ("one", pytest.approx(2.5))


def test_the_error_is_that_of_both_gaps():
    exact = continued({2.0: ndl.Estimate(0.1, 0.0), 3.0: ndl.Estimate(0.3, 0.0)}, 1.0)
    assert (exact.value, exact.error) == (pytest.approx(1.5), 0.0)
    shifts = []
    for first, second in ((0.001, 0.0), (0.0, 0.001)):
        moved = continued({2.0: ndl.Estimate(0.1 + first, 0.0), 3.0: ndl.Estimate(0.3 + second, 0.0)}, 1.0)
        shifts.append(abs(moved.value - exact.value))
    found = continued({2.0: ndl.Estimate(0.1, 0.001), 3.0: ndl.Estimate(0.3, 0.001)}, 1.0)
    assert found.error == pytest.approx(sum(shifts), rel=0.02)  # what is of second order in a shift of one per cent


def test_curvature_enters_the_error():
    """Of a parabola the line through two points misses the zero by about what is added."""
    gaps = {a: ndl.Estimate((a - 1.0) * (a + 1.0), 0.0) for a in (1.5, 2.0, 3.0)}
    found = continued(gaps, 0.5)
    assert found.error < abs(found.value - 1.0) * 1.2 < 1.5 * found.error
    assert found.error < 0.5
    straight = continued({a: ndl.Estimate(a - 1.0, 0.0) for a in (1.5, 2.0, 3.0)}, 0.5)
    assert straight.error == pytest.approx(0.0, abs=1e-12)


def test_one_gap_alone_leaves_the_bracket():
    found = continued({2.0: ndl.Estimate(0.1, 0.01)}, 1.0)
    assert (found.value, found.error) == (1.5, 0.5)
    falling = continued({2.0: ndl.Estimate(0.3, 0.01), 3.0: ndl.Estimate(0.1, 0.01)}, 1.0)
    assert (falling.value, falling.error) == (1.5, 0.5)


@pytest.mark.parametrize("between", [(1.0, 1.5), (3.0, 5.0)])
def test_bounds_on_one_side_are_refused(parting, between):
    with pytest.raises(ndl.InvalidParameter, match="one model is better at one only"):
        risk_crossing(TASK, HEADS, LEARNER, between)
    assert len(parting.at) == 2


@pytest.mark.parametrize(
    ("models", "learner", "between", "said"),
    [
        (HEADS, ndl.Population(), (1.0, 2.0), "an alpha to vary"),
        (list(HEADS.values())[:1], LEARNER, (1.0, 2.0), "give two models"),
        (HEADS, LEARNER, (2.0, 1.0), "a lower and a higher alpha"),
    ],
)
def test_questions_that_make_no_sense(models, learner, between, said):
    with pytest.raises(ndl.InvalidParameter, match=said):
        risk_crossing(TASK, models, learner, between)

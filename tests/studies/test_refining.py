"""Refinement: new points only where the answer changes, and there to the last cell."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needlepoint as ndl
from needlepoint.studies.axes import read_axes
from needlepoint.studies.refining import Refine

BASE = (ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Erf(0.5)), ndl.Population())
quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def axes(*columns, **more):
    paths = ("task.snr", "model.activation.offset", "model.activation.shift")
    return read_axes(BASE, dict(zip(paths, columns, strict=False)) | {k.replace("__", "."): v for k, v in more.items()})


def prediction(branch=None, excess_risk=0.0, **more):
    return ndl.Prediction(*BASE, {"excess_risk": ndl.Estimate(excess_risk)}, branch=branch, **more)


def refined(refine, over, answer):
    """The new points of each level, where `answer` says what is known at a point that has been asked for."""
    known = set(over.points())

    def lookup(at):
        assert at in known, "asked for a point that nobody has computed"
        return answer(*at)

    levels = []
    for new in refine.stages(over, lookup):
        assert len(set(new)) == len(new)
        assert not known & set(new), "a point is asked for twice"
        known |= set(new)
        levels.append(new)
    return levels


# --- one axis ------------------------------------------------------------------------------------


@pytest.mark.exact
@quick
@given(st.floats(0.01, 9.99), st.integers(2, 12), st.integers(1, 8))
def test_one_boundary_is_bracketed_with_one_point_a_level(boundary, count, levels):
    over = axes(np.linspace(0, 10, count))
    found = refined(Refine("branch", levels), over, lambda x: prediction("high" if x > boundary else "low"))
    assert [len(new) for new in found] == [1] * levels  # the full fine grid has (count - 1)(2^levels - 1) more
    xs = sorted([x for (x,) in over.points()] + [x for new in found for (x,) in new])
    below, above = max(x for x in xs if x <= boundary), min(x for x in xs if x > boundary)
    assert above - below == pytest.approx(10 / (count - 1) / 2**levels, rel=1e-9)


@pytest.mark.negative
def test_a_uniform_answer_is_not_refined():
    found = refined(Refine("branch", 4), axes(np.linspace(0, 10, 11)), lambda x: prediction("low"))
    assert found == [[]] * 4


def test_several_boundaries_are_refined_each():
    over = axes(np.linspace(0, 10, 11))
    found = refined(Refine("branch", 5), over, lambda x: prediction(str(sum(x > b for b in (1.3, 4.7, 4.9, 8.1)))))
    # 4.7 and 4.9 lie in one cell, halved at 4.5 and 4.75, and are in cells of their own from there on
    assert [len(new) for new in found] == [3, 3, 4, 4, 4]
    xs = sorted([x for (x,) in over.points()] + [x for new in found for (x,) in new])
    for b in (1.3, 4.7, 4.9, 8.1):
        assert min(x for x in xs if x > b) - max(x for x in xs if x <= b) == pytest.approx(1 / 32)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([1.0, 10.0, 100.0], lambda a, b: math.sqrt(a * b)),
        ([100.0, 10.0, 1.0], lambda a, b: math.sqrt(a * b)),
        ([1.0, 2.0, 3.0], lambda a, b: (a + b) / 2),
        ([3.0, 2.0, 1.0], lambda a, b: (a + b) / 2),
        ([0.0, 1.0, 10.0, 100.0], lambda a, b: (a + b) / 2),  # 0 is no member of a geometric axis
        ([1.0, 100.0], lambda a, b: (a + b) / 2),  # two values do not say how they are spaced
    ],
    ids=["geometric", "geometric, falling", "even", "even, falling", "from zero", "two values"],
)
def test_new_values_are_spaced_as_the_axis_is(values, middle):
    a, b = values[-2:]
    (new,), *_ = refined(Refine("branch", 1), axes(values), lambda x: prediction(str(x == b)))
    assert new[0] == pytest.approx(middle(a, b), rel=1e-14)


def test_a_negative_axis_may_be_geometric():
    over = read_axes(BASE, {"model.activation.shift": [-1.0, -10.0, -100.0]})
    ((new,),) = refined(Refine("branch", 1), over, lambda x: prediction(str(x < -50)))
    assert new[0] == pytest.approx(-math.sqrt(1000), rel=1e-14)


def test_the_points_of_a_geometric_boundary():
    over = axes(np.geomspace(0.01, 100, 5))
    found = refined(Refine("branch", 6), over, lambda x: prediction(str(x > 3.3)))
    xs = sorted([x for (x,) in over.points()] + [x for new in found for (x,) in new])
    assert min(x for x in xs if x > 3.3) / max(x for x in xs if x <= 3.3) == pytest.approx(10 ** (1 / 64), rel=1e-9)


# --- two axes ------------------------------------------------------------------------------------


def line(x, y):
    return prediction("above" if y > 0.31 + 0.43 * x else "below")


@pytest.mark.exact
def test_a_line_across_a_map_is_followed_to_the_finest_cells():
    n, levels = 9, 4
    x = np.linspace(0, 1, n)
    found = refined(Refine("branch", levels), axes(x, x), line)
    fine = 2**levels * (n - 1)
    known = {(round(a * fine), round(b * fine)) for new in [itertools.product(x, x), *found] for a, b in new}
    for a in np.linspace(0.001, 0.999, 997):
        i, j = math.floor(a * fine), math.floor((0.31 + 0.43 * a) * fine)
        assert {(i, j), (i + 1, j), (i, j + 1), (i + 1, j + 1)} <= known
    # a line of slope below 1 crosses at most 2 cells a column: with at most 5 new points each, 10 columns' worth
    bound = sum(10 * (n - 1) * 2**level for level in range(levels))
    assert len(known) - n * n <= bound == 1200
    assert bound < 0.075 * (fine + 1) ** 2


@pytest.mark.exact
def test_only_cells_whose_corners_differ_are_split():
    n, levels = 6, 3
    x = np.linspace(0, 1, n)
    found = refined(Refine("branch", levels), axes(x, x), line)
    size, before = 1 / (n - 1), set()
    for new in found:
        cells = list(itertools.product(np.arange(0, 1 - size / 2, size), repeat=2))
        split = [(a, b) for a, b in cells if len({line(p, q).branch for p in (a, a + size) for q in (b, b + size)}) > 1]
        assert 0 < len(split) < len(cells)
        expected = {
            (round(a + i * size / 2, 9), round(b + j * size / 2, 9))
            for a, b in split
            for i, j in itertools.product(range(3), repeat=2)
            if (i, j) not in ((0, 0), (0, 2), (2, 0), (2, 2))
        }
        points = {(round(p, 9), round(q, 9)) for p, q in new}
        assert points <= expected
        assert expected - points <= before
        before |= points
        size /= 2


def test_slices_are_refined_by_themselves():
    over = axes(np.linspace(0, 10, 6), task__tokens=[2, 3, 4], learner__within=["manifold", "all"])
    boundaries = {2: 3.3, 3: 7.1}

    def answer(x, tokens, within):
        return prediction(str(within == "all" and x > boundaries.get(tokens, 99)))

    found = refined(Refine("branch", 5), over, answer)
    assert all(len(new) == 2 for new in found)
    for tokens, boundary in boundaries.items():
        mine = [at for new in found for at in new if at[1] == tokens]
        assert {within for _, _, within in mine} == {"all"}
        assert min(abs(x - boundary) for x, _, _ in mine) <= 2 / 2**5
    assert not any(at[1] == 4 for new in found for at in new)


# --- labels --------------------------------------------------------------------------------------


def test_points_that_failed_have_a_border():
    found = refined(Refine("status", 6), axes(np.linspace(0, 10, 6)), lambda x: None if x > 5.3 else prediction())
    assert [len(new) for new in found] == [1] * 6
    assert abs(found[-1][0][0] - 5.3) <= 2 / 2**6
    assert refined(Refine("status", 3), axes([1.0, 2.0]), lambda x: None) == [[]] * 3


@pytest.mark.parametrize(
    ("on", "low", "high"),
    [
        ("status", {}, {"status": ndl.Status.UNBOUNDED}),
        ("stable", {"stable": True}, {"stable": False}),
        ("stable", {"stable": True}, {"stable": None}),
        ("branch", {"branch": "oracle"}, {"branch": "swapped"}),
    ],
)
def test_labels_are_those_of_the_prediction(on, low, high):
    over = axes(np.linspace(0, 8, 5))
    found = refined(Refine(on, 3), over, lambda x: prediction(**(high if x > 4.9 else low)))
    assert [new[0][0] for new in found] == [5.0, 4.5, 4.75]
    others = [name for name in ("status", "stable", "branch") if name != on]
    assert all(refined(Refine(name, 1), over, lambda x: prediction(**low)) == [[]] for name in others)


@pytest.mark.exact
def test_a_contour_of_a_metric():
    over = axes(np.linspace(0, 2, 5))
    found = refined(Refine("excess_risk", 10, 2.0), over, lambda x: prediction(excess_risk=x * x))
    assert abs(found[-1][0][0] - math.sqrt(2)) <= 0.5 / 2**10
    assert [len(new) for new in found] == [1] * 10
    at_zero = refined(Refine("excess_risk", 2, 0.0), over, lambda x: prediction(excess_risk=x - 0.7))
    assert at_zero == [[(0.75,)], [(0.625,)]]


def test_values_that_are_not_finite_have_a_border():
    over = axes(np.linspace(0, 8, 5))
    found = refined(Refine("excess_risk", 2, 0.5), over, lambda x: prediction(excess_risk=math.nan if x > 5 else 0.1))
    assert [len(new) for new in found] == [1, 1]


# --- refusals ------------------------------------------------------------------------------------

BAD = {
    "no levels": ({"levels": 0}, "Refine(levels=0): levels must be a whole number from 1 to 12."),
    "too many levels": ({"levels": 13}, "Refine(levels=13): levels must be a whole number from 1 to 12."),
    "half a level": ({"levels": 1.5}, "Refine(levels=1.5)"),
    "a flag": ({"levels": True}, "Refine(levels=True)"),
    "a word": ({"levels": "3"}, "Refine(levels='3')"),
    "a label with a level": ({"on": "branch", "level": 0.5}, "Refine(on='branch', level=0.5): a label has no level"),
    "a metric without": ({"on": "risk"}, "Refine(on='risk'): a metric needs the level of its contour"),
    "nan": ({"on": "risk", "level": math.nan}, "a metric needs the level of its contour"),
    "infinite": ({"on": "risk", "level": math.inf}, "a metric needs the level of its contour"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_refinements_are_one_sentence(case):
    fields, phrase = BAD[case]
    with pytest.raises(ndl.InvalidParameter, match=re.escape(phrase)):
        Refine(**fields)


def test_a_word_for_the_level_is_refused():
    with pytest.raises(ndl.InvalidParameter, match="level must be a number"):
        Refine("risk", 2, "half")


def test_levels_may_be_written_as_a_whole_float():
    assert refined(Refine("branch", 2.0), axes([1.0, 2.0]), lambda x: prediction(str(x > 1.9))) == [[(1.5,)], [(1.75,)]]


@pytest.mark.parametrize(
    "over",
    [
        {"task.tokens": [2, 3, 4]},
        {"model.activation": [ndl.Erf(), ndl.Softmax()]},
        {"task.snr": [1.0]},
        {"task.snr": [1.0, 3.0, 2.0]},
        {"model.activation.scale": [None, 1.0]},
    ],
    ids=["whole numbers", "specs", "one value", "no order", "a free constant"],
)
def test_without_cells_there_is_nothing_to_refine(over):
    with pytest.raises(ndl.InvalidParameter, match="refine: no axis has two or more real numbers in order"):
        ndl.sweep(*BASE, over, refine=Refine("branch"))


def test_a_list_of_points_has_no_cells():
    with pytest.raises(ndl.InvalidParameter, match="refine: a list of points has no cells"):
        ndl.sweep(*BASE, [{"task.snr": 1.0}, {"task.snr": 2.0}], refine=Refine("branch"))


def test_an_unknown_metric_is_one_sentence():
    with pytest.raises(ndl.InvalidParameter, match=r"Refine\(on='rsik'\): the prediction has no such metric; it has"):
        refined(Refine("rsik", 1, 0.5), axes([1.0, 2.0]), lambda x: prediction())


def test_axes_that_cannot_be_refined_are_slices():
    over = axes([1.0, 3.0, 2.0], [0.0, 1.0], task__tokens=[2])
    assert Refine("branch").directions(over) == [1]
    found = refined(Refine("branch", 1), over, lambda x, y, tokens: prediction(str(y > 0.4 and x == 3.0)))
    assert found == [[(3.0, 0.5, 2)]]

"""Predictions that are not to be trusted look it: broken lines, crosses, counts."""

import io

import numpy as np
import pytest

from needlepoint.plotting.stability import (
    DOUBTFUL,
    DoubtCurve,
    DoubtPanel,
    StabilityPanel,
    doubt_panels,
    segments,
    stability_panels,
)


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)


@pytest.mark.parametrize(
    ("trusted", "pieces"),
    [
        ([True, True, True], [(0, 3, True)]),
        ([True, True, False, True, True], [(0, 2, True), (1, 4, False), (3, 5, True)]),
        ([False, False], [(0, 2, False)]),
        ([True], []),
        ([], []),
    ],
)
def test_a_piece_is_solid_between_trusted_points_only(trusted, pieces):
    assert [(s.start, s.stop, solid) for s, solid in segments(trusted)] == pieces


def labels(figure):
    (legend,) = figure.legends
    return [t.get_text() for t in legend.get_texts()]


def draw(trusted, points=((1.0, 0.6, 0.1),)):
    curve = DoubtCurve("softmax", [0.5, 1.0, 2.0], [0.9, 0.7, 0.5], trusted, points)
    rows = [[DoubtPanel("a", [curve]), DoubtPanel("b", [curve])], [DoubtPanel("c", [curve])]]
    return doubt_panels(rows, "alpha", "risk", (0, 1), "training", ticks=(0.5, 1, 2))


def test_the_drawn_numbers_are_the_given_ones():
    figure = draw([True, True, True])
    axis = figure.axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[0.5, 0.9], [1.0, 0.7], [2.0, 0.5]])
    assert axis.lines[0].get_linestyle() == "-"
    dots, _, (bars,) = axis.containers[0]
    np.testing.assert_array_equal(dots.get_xydata(), [[1.0, 0.6]])
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [0.5, 0.7], rtol=1e-15)
    assert labels(figure) == ["softmax", "theory", "training"]
    render(figure)


def test_doubtful_points_are_crossed_and_named():
    figure = draw([True, True, False])
    solid, broken, crosses = figure.axes[0].lines[:3]
    assert (solid.get_linestyle(), broken.get_linestyle(), crosses.get_marker()) == ("-", "--", "x")
    np.testing.assert_array_equal(broken.get_xdata(), [1.0, 2.0])
    np.testing.assert_array_equal(crosses.get_xydata(), [[2.0, 0.5]])
    assert DOUBTFUL in labels(figure)
    render(figure)


def test_a_place_without_a_panel_is_empty():
    assert [axis.get_visible() for axis in draw([True] * 3).axes] == [True, True, True, False]


def test_the_map_crosses_what_is_doubtful_and_counts_starts():
    replicon, trusted = np.array([[2.0, np.nan], [0.3, 0.5]]), [[False, False], [True, True]]
    panel = StabilityPanel(
        "softmax", [1.0, 2.0], [0.1, 1.0], replicon, np.array(trusted), [(1.0, 0.1, 7), (2.0, 1.0, 0)]
    )
    figure = stability_panels([panel, panel], 16, 100)
    axis = figure.axes[0]
    np.testing.assert_array_equal(np.floor(axis.lines[0].get_xydata()), [[0, 0], [1, 0]])  # cells (alpha, penalty)
    places = [(t.get_text(), *np.floor(t.get_position())) for t in axis.texts]
    assert places == [("7", 0, 0), ("0", 1, 1)]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["0.1", "1"]
    assert [t.get_color() for t in axis.texts] == ["white", "black"]
    values = axis.collections[0].get_array()
    assert np.ma.count_masked(values) == 1  # a replicon that is not known has no colour
    assert "training (d = 100): two starts agree in all 16 repeats" in labels(figure)
    render(figure)

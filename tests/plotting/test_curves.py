"""Curves against a parameter: the drawn numbers are the given ones."""

import io
import math

import numpy as np
import pytest

from needlepoint.plotting.curves import Curve, CurvePanel, curve_panels


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def test_lines_and_points_are_the_given_numbers():
    x, points = [8.0, 32.0, 128.0], [(8.0, 0.31, 0.01), (32.0, 0.12, 0.02)]
    curves = [Curve("one", x, [0.3, 0.1, 0.03], points), Curve("two", x, [0.9, 0.8, 0.7])]
    figure = curve_panels(
        [CurvePanel("left", "d", curves), CurvePanel("right", "d", curves[:1])], "risk", (1e-3, 2), "sampled"
    )
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_ydata(), curves[0].y)
    dots, _, (bars,) = left.containers[0]
    np.testing.assert_array_equal(np.column_stack(dots.get_data()), [p[:2] for p in points])
    ends = np.array([s[:, 1] for s in bars.get_segments()])
    np.testing.assert_allclose(ends, [[m - e, m + e] for _, m, e in points], rtol=1e-15)
    assert (len(left.containers), len(right.lines)) == (1, 2)
    assert (left.get_xscale(), left.get_yscale(), left.get_ylim()) == ("log", "log", (1e-3, 2))
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["one", "two", "sampled"]
    assert (left.get_title(), right.get_title(), left.get_ylabel()) == ("left", "right", "risk")
    render(figure)


@pytest.mark.negative
def test_a_legend_names_no_circles_where_there_are_none():
    figure = curve_panels(
        [CurvePanel("left", "d", [Curve("one", [8.0, 32.0], [0.3, 0.1])])], "risk", (1e-3, 2), "sampled"
    )
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["one"]


@pytest.mark.parametrize("y", [0.0, 1e-40, math.nan])
def test_values_that_a_logarithm_cannot_show(y):
    curve = Curve("edge", [8.0, 32.0], [0.5, y], [(8.0, 0.5, 0.6), (32.0, y, 0.1)])
    render(curve_panels([CurvePanel("edge", "d", [curve])], "risk", (1e-12, 2.0)))


def test_one_repeat_has_an_infinite_error_and_is_drawn():
    curve = Curve("edge", [8.0, 32.0], [0.5, 0.4], [(8.0, 0.5, math.inf)])
    render(curve_panels([CurvePanel("edge", "d", [curve])], "risk", (1e-12, 2.0)))


def test_more_curves_than_colours():
    many = [Curve(f"c{i}", [1.0, 2.0], [0.1, 0.2]) for i in range(9)]
    assert len(curve_panels([CurvePanel("many", "d", many)], "risk", (1e-2, 2.0)).axes[0].lines) == 9

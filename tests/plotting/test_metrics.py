"""Panels of metrics: what is drawn is what was given, and the legend says what it is."""

import io

import numpy as np
import pytest

from needlepoint.plotting.metrics import Line, MetricPanel, metric_panels
from needlepoint.plotting.stability import DOUBTFUL

X = (0.1, 0.3, 1.0, 3.0)
Y = (1.0, 0.5, 0.2, 0.1)


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    return figure


def names(legend):
    return [t.get_text() for t in legend.get_texts()]


def panel(*lines, **look):
    return MetricPanel("title", "x", "y", lines, **look)


def test_lines_points_and_marks_are_where_they_were_put():
    line = Line("one", X, Y, points=[(0.3, 0.55, 0.02)])
    figure = render(metric_panels([[panel(line, marks={"edge": 0.15})]], measured="training"))
    (axis,) = figure.axes
    first, *others = axis.lines
    np.testing.assert_array_equal(first.get_xydata(), np.column_stack([X, Y]))
    assert any(list(other.get_xdata()) == [0.15, 0.15] for other in others)
    ((dots, _, bars),) = axis.containers
    assert dots.get_xydata().tolist() == [[0.3, 0.55]]
    np.testing.assert_allclose(bars[0].get_segments()[0][:, 1], [0.53, 0.57])
    assert names(figure.legends[0]) == ["one", "edge", "theory", "training"]


def test_what_is_not_trusted_is_broken_and_crossed():
    figure = metric_panels([[panel(Line("one", X, Y, (True, True, False, True)))]])
    solid, broken, crosses = figure.axes[0].lines
    assert (solid.get_linestyle(), broken.get_linestyle(), crosses.get_marker()) == ("-", "--", "x")
    assert list(crosses.get_xdata()) == [1.0]
    assert DOUBTFUL in names(figure.legends[0])


@pytest.mark.negative
def test_what_is_trusted_is_not():
    figure = metric_panels([[panel(Line("one", X, Y, (True,) * 4))]])
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-"]
    assert DOUBTFUL not in names(figure.legends[0])


def test_own_legends_stand_above_their_panels():
    shown = [panel(Line(name, X, Y), Line("", X, Y, colour=None, faint=True)) for name in ("left", "right")]
    figure = render(metric_panels([shown], measured={"o": "circles", "s": "squares"}, legends="own", lines="limit"))
    assert [names(axis.get_legend()) for axis in figure.axes] == [["left"], ["right"]]
    assert names(figure.legends[0]) == ["limit", "circles", "squares"]
    for axis in figure.axes:
        assert axis.get_legend().get_window_extent().y0 >= axis.get_window_extent().y1


def test_rows_may_be_shorter_and_log_axes_read_as_numbers():
    one = panel(Line("one", X, Y))
    figure = render(metric_panels([[one, one], [one]]))
    assert [axis.get_visible() for axis in figure.axes] == [True, True, True, False]
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert {"0.1", "1"} <= set(labels)
    wide = panel(Line("one", (1e-4, 1e4), (1.0, 2.0)))
    assert "mathdefault" in render(metric_panels([[wide]])).axes[0].get_xticklabels()[3].get_text()

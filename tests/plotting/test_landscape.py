"""The flow: unit arrows, colour by speed, the fixed points where they are."""

import io

import numpy as np

from needlepoint.plotting.landscape import FlowPanel, HeatPanel, flow_panels, heat_panels

LINE = np.linspace(-1, 1, 11)


def panel(title="flow"):
    grid = np.linspace(-1, 1, 5)
    key, value = np.meshgrid(grid, grid)
    points = [(1.0, 1.0, "minimum"), (-1.0, -1.0, "minimum"), (1.0, -1.0, "maximum"), (0.0, 0.0, "saddle")]
    return FlowPanel(title, grid, (1 - key**2) * value, (1 - value**2) * key, points, (LINE, np.tanh(LINE)))


def test_arrows_have_unit_length_and_vanish_where_nothing_moves():
    one = panel()
    axis = flow_panels([one]).axes[0]
    (arrows,) = axis.collections
    speed = np.hypot(one.key_dot, one.value_dot).ravel()
    length = np.hypot(arrows.U, arrows.V)
    np.testing.assert_allclose(length[speed > 0], 1.0, rtol=1e-14)
    np.testing.assert_array_equal(length[speed == 0], 0.0)
    assert (speed == 0).sum() == 5
    np.testing.assert_array_equal(arrows.get_array()[speed > 1e-3], speed[speed > 1e-3])


def test_fixed_points_are_marked_and_named_once():
    one = panel()
    axis = flow_panels([one]).axes[0]
    nullcline, *marks = axis.lines
    np.testing.assert_array_equal(nullcline.get_xdata(), LINE)
    np.testing.assert_array_equal(nullcline.get_ydata(), np.tanh(LINE))
    assert [(*m.get_xdata(), *m.get_ydata()) for m in marks] == [p[:2] for p in one.points]
    names = axis.get_legend_handles_labels()[1]
    assert sorted(n for n in names if not n.startswith("$")) == ["maximum", "minimum", "saddle"]


def test_panels_share_one_colour_scale_and_render():
    fast, slow = panel("fast"), panel("slow")
    slow = FlowPanel("slow", slow.grid, 1e-9 * slow.key_dot, 1e-9 * slow.value_dot, slow.points, slow.nullcline)
    figure = flow_panels([fast, slow])
    norms = {id(axis.collections[0].norm) for axis in figure.axes[:2]}
    assert len(norms) == 1
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def test_heat_panels_share_one_scale_and_mark_the_best():
    grid = np.linspace(-1, 1, 5), np.linspace(0, 2, 4)
    shown = [
        HeatPanel("a", *grid, np.arange(20.0).reshape(4, 5), (1.0, 0.5)),
        HeatPanel("b", *grid, np.arange(20.0).reshape(4, 5) - 3),
    ]
    figure = heat_panels(shown, "risk")
    left, right = figure.axes[:2]
    assert left.collections[0].get_clim() == right.collections[0].get_clim() == (-3.0, 19.0)
    assert [tuple(map(float, line.get_xydata()[0])) for line in left.lines] == [(1.0, 0.5)]
    assert not right.lines
    figure.savefig(io.BytesIO(), format="png", dpi=30)

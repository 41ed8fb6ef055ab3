"""The house style stays inside the library: no pyplot, no change of matplotlib's settings."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.lines import Line2D

from needlepoint.plotting.curves import Curve, CurvePanel, curve_panels
from needlepoint.plotting.landscape import FlowPanel, flow_panels
from needlepoint.plotting.style import legend_above, panels, styled
from needlepoint.plotting.trajectories import four_panels

import waiting

GRID = np.linspace(-1, 1, 3)
FIELD = np.ones((3, 3))
DRAWINGS = {
    "trajectories": lambda make: four_panels(make(), make(seed=1), oracle=0.5),
    "curves": lambda make: curve_panels([CurvePanel("t", "d", [Curve("c", [1, 2], [0.1, 0.2])])], "y", (0.01, 1)),
    "landscape": lambda make: flow_panels(
        [FlowPanel("t", GRID, FIELD, FIELD, [(0, 0, "saddle")], (GRID, np.sin(GRID)))]
    ),
}


@pytest.fixture
def settings():
    """matplotlib's settings as stored, without asking for a backend (which would load pyplot)."""
    return lambda: {name: repr(dict.__getitem__(matplotlib.rcParams, name)) for name in matplotlib.rcParams}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_leaves_the_settings_alone(settings, trajectory, name):
    with matplotlib.rc_context({"font.size": 17.0, "axes.grid": False}):
        before = settings()
        DRAWINGS[name](trajectory)
        assert settings() == before


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_users_settings_do_not_change_the_style(trajectory, name):
    with matplotlib.rc_context({"axes.titlesize": 31.0, "axes.spines.top": True}):
        figure = DRAWINGS[name](trajectory)
    axis = figure.axes[0]
    assert axis.title.get_fontsize() == 10.0
    assert not axis.spines["top"].get_visible()


def test_settings_come_back_after_an_error(settings):
    before = settings()

    @styled
    def fail():
        assert matplotlib.rcParams["font.size"] == 9.0
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail()
    assert settings() == before


def test_panels_are_always_two_dimensional():
    for rows, columns in ((1, 1), (1, 3), (2, 1)):
        _, axes = panels(rows, columns, 4, 3)
        assert axes.shape == (rows, columns)


@pytest.mark.parametrize(("words", "columns"), [(1, 4), (7, 2), (12, 1)])
def test_a_legend_fits_its_figure(words, columns):
    @styled
    def draw():
        figure, _ = panels(1, 1, 8.0, 3.0)
        legend_above(figure, {f"{i} {'theory ' * words}": Line2D([], []) for i in range(6)}, columns=4)
        figure.savefig(io.BytesIO(), format="png", dpi=50)
        return figure

    figure = draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert figure.legends[0]._ncols == columns


def test_drawing_and_saving_does_not_import_pyplot():
    code = """
import io, sys
import numpy as np
from needlepoint.core.overlaps import FIVE
from needlepoint.core.results import Trajectory
from needlepoint.plotting.curves import Curve, CurvePanel, curve_panels
from needlepoint.plotting.landscape import FlowPanel, flow_panels
from needlepoint.plotting.trajectories import four_panels
x = np.full((2, 3), 0.5)
t = Trajectory(np.arange(3), np.ones(3), {n: x for n in FIVE}, x, ("oracle", "other"))
g, f = np.linspace(-1, 1, 3), np.ones((3, 3))
drawn = [
    four_panels(t, t, oracle=0.1),
    curve_panels([CurvePanel("t", "d", [Curve("c", [1, 2], [0.1, 0.2])])], "y", (0.01, 1)),
    flow_panels([FlowPanel("t", g, f, f, [(0, 0, "saddle")], (g, np.sin(g)))]),
]
for figure in drawn:
    for kind in ("png", "pdf"):
        figure.savefig(io.BytesIO(), format=kind)
print("matplotlib.pyplot" in sys.modules, "jax" in sys.modules)
"""
    done = waiting.python(code)
    assert (done.stdout, done.stderr) == ("False False\n", "")

"""Maps over two parameters, scattered points, and bad calls."""

import math

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LogNorm, to_hex

import needlepoint as ndl
from needlepoint.plotting.studies.pictures import plot
from needlepoint.plotting.studies.scales import Scale
from needlepoint.studies.points import StudyPoint

import waiting
from picture_cases import (
    DIVERGED,
    MAX_STEPS,
    OK,
    Study,
    grid,
    labelled,
    measurement,
    prediction,
    refuses,
    render,
    texts,
    xy,
)


def borders(axis, kind):
    (found,) = [c for c in axis.collections if isinstance(c, LineCollection) and c.get_label() == kind]
    return {tuple(sorted(map(tuple, s.round(10).tolist()))) for s in found.get_segments()}


def test_the_mesh_holds_the_values_in_cells_around_the_points():
    study = grid(
        lambda a, b: prediction(10 * a + b), learner__alpha=(1.0, 2.0, 4.0), learner__lam=(0.1, 1.0, 10.0, 100)
    )
    figure = render(plot(study, x="alpha", y="lam"))
    axis, bar = figure.axes
    mesh = axis.collections[0]
    np.testing.assert_array_equal(
        mesh.get_array(), [[10 * a + b for a in (1.0, 2.0, 4.0)] for b in (0.1, 1.0, 10.0, 100)]
    )
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], [0.5, 1.5, 3.0, 5.0])
    np.testing.assert_allclose(mesh.get_coordinates()[:, 0, 1], 10.0 ** np.arange(-1.5, 3))
    assert (axis.get_xscale(), axis.get_yscale(), bar.get_ylabel()) == ("linear", "log", "$R$ (excess risk)")
    assert (axis.get_xlabel(), axis.get_ylabel()) == (r"$\alpha$ (alpha)", "$r$ (lam)")
    assert not isinstance(mesh.norm, LogNorm)
    assert figure.legends == []


def test_contours_are_labelled_and_inside_the_values():
    study = grid(lambda a, b: prediction(a + b), task__snr=tuple(range(9)), task__noise=tuple(range(9)))
    axis = render(plot(study, levels=(2.5, 7.0, 99.0))).axes[0]
    (contours,) = [c for c in axis.collections if hasattr(c, "levels")]
    assert list(contours.levels) == [2.5, 7.0]
    assert {"2.5", "7"} <= {t.get_text() for t in axis.texts}
    (automatic,) = [c for c in plot(study).axes[0].collections if hasattr(c, "levels")]
    assert 4 <= len(automatic.levels) <= 8
    assert 0 < automatic.levels[0] < automatic.levels[-1] < 16
    for nothing in (0, ()):
        assert not [c for c in plot(study, levels=nothing).axes[0].collections if hasattr(c, "levels")]


def test_wide_values_have_logarithmic_colours():
    study = grid(lambda a, b: prediction(10.0 ** -(a + b)), task__snr=(0, 1, 2), task__noise=(0, 1, 2))
    assert isinstance(render(plot(study)).axes[0].collections[0].norm, LogNorm)


def test_a_constant_map_has_no_contours():
    axis = render(plot(grid(lambda a, b: prediction(1.0), task__snr=(1, 2, 3), task__noise=(1, 2, 3)))).axes[0]
    assert len(axis.collections) == 1


def flips(a, b):
    """At a = 3 the branch flips, at b = 2 the stability, and the corner (4, 1) fails, so that it has none."""
    status = MAX_STEPS if (a, b) == (4, 1) else OK
    return prediction(a + b, status=status, branch="oracle" if a < 3 else "swapped", stable=b < 2)


def test_lines_run_along_the_cells_where_a_label_flips():
    figure = render(plot(grid(flips, task__snr=(1, 2, 3, 4), task__noise=(1, 2, 3))))
    axis = figure.axes[0]
    assert borders(axis, "branch") == {((2.5, y), (2.5, y + 1)) for y in (0.5, 1.5, 2.5)}
    # the corner that failed has no stability to differ by
    assert borders(axis, "stability") == {((x, 1.5), (x + 1, 1.5)) for x in (0.5, 1.5, 2.5)}
    assert borders(axis, "status") == {((3.5, 0.5), (3.5, 1.5)), ((3.5, 1.5), (4.5, 1.5))}
    assert texts(figure) == [
        "MAX_STEPS",
        "status changes",
        "branch changes: oracle | swapped",
        "stability changes: stable | unstable",
    ]
    named = {t.get_text(): t.get_position() for t in axis.texts}
    assert {"oracle, stable", "oracle, unstable", "swapped, stable", "swapped, unstable"} <= set(named)
    assert named["oracle, unstable"][0] < 2.5 < named["swapped, unstable"][0]


@pytest.mark.negative
def test_labels_that_do_not_vary_draw_no_line():
    figure = plot(grid(lambda a, b: prediction(a, branch="oracle"), task__snr=(1, 2, 3), task__noise=(1, 2, 3)))
    assert not [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    assert figure.legends == []


def test_failed_cells_are_hatched_and_have_no_contour():
    def make(a, b):
        return prediction(math.nan if a == 1 else a + b, status=DIVERGED if a == 1 else OK)

    study = grid(make, task__snr=(1, 2, 3), task__noise=(1, 2, 3))
    study._points[-1] = StudyPoint(study._points[-1].at)  # not computed yet
    figure = render(plot(study))
    axis = figure.axes[0]
    hatched = {c.get_label(): c for c in axis.collections if isinstance(c, PolyCollection) and c.get_hatch()}
    assert set(hatched) == {"DIVERGED", "not computed"}
    corners = [tuple(p.vertices[0]) for p in hatched["DIVERGED"].get_paths()]
    assert corners == [(0.5, 0.5), (0.5, 1.5), (0.5, 2.5)]
    assert hatched["DIVERGED"].get_hatch() != hatched["not computed"].get_hatch()
    assert axis.collections[0].get_array().mask.sum() == 4
    assert texts(figure)[:2] == ["DIVERGED", "not computed"]


def test_other_axes_are_panels_of_one_scale():
    activations = (ndl.Softmax(), ndl.Linear())
    study = grid(
        lambda f, a, b: prediction((0 if math.isinf(a) else a) + b + 10 * activations.index(f)),
        model__activation=activations,
        task__snr=(1, 2, math.inf),
        task__noise=(1, 2, 3),
    )
    figure = render(plot(study))
    left, right, _ = figure.axes
    assert (left.get_title(), right.get_title()) == ("Softmax", "Linear")
    assert left.collections[0].get_clim() == right.collections[0].get_clim() == (1.0, 15.0)
    np.testing.assert_array_equal(left.collections[0].get_array(), [[2, 3, 1], [3, 4, 2], [4, 5, 3]])


def scattered(places, make):
    points = [StudyPoint({"task.snr": x, "task.noise": y}, make(x, y)) for x, y in places]
    return Study({}, points, grid=False)


SQUARE = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.5)]


def test_scattered_points_are_triangles_with_mid_edge_lines():
    study = scattered(SQUARE, lambda x, y: prediction(x + 2 * y, branch="oracle" if x < 0.75 else "swapped"))
    figure = render(plot(study))
    axis = figure.axes[0]
    means = [2.5 / 3, 3.5 / 3, 5.5 / 3, 6.5 / 3]  # of the three corners
    np.testing.assert_allclose(sorted(axis.collections[0].get_array()), means)
    (dots,) = labelled(axis, "points")
    assert {tuple(p) for p in xy(dots).tolist()} == set(SQUARE)
    assert borders(axis, "branch") == {
        ((0.5, 0.0), (0.75, 0.25)),
        ((0.75, 0.25), (0.75, 0.75)),
        ((0.5, 1.0), (0.75, 0.75)),
    }
    assert texts(figure) == ["branch changes: oracle | swapped"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == (r"$\mu$ (snr)", r"$\epsilon$ (noise)")


def test_three_labels_meet_in_the_middle_of_a_triangle():
    branch = {(0.0, 0.0): "a", (3.0, 0.0): "b", (0.0, 3.0): "c"}
    study = scattered(list(branch), lambda x, y: prediction(1.0, branch=branch[x, y]))
    axis = render(plot(study, kind="map")).axes[0]
    assert borders(axis, "branch") == {((1.0, 1.0), (1.5, 0.0)), ((0.0, 1.5), (1.0, 1.0)), ((1.0, 1.0), (1.5, 1.5))}


def test_failed_scattered_points_are_crosses_and_leave_a_hole():
    def make(x, y):
        bad = {(0.2, 0.5): (math.nan, DIVERGED), (1.0, 1.0): (3.0, MAX_STEPS)}
        value, status = bad.get((x, y), (x + 2 * y, OK))
        return prediction(value, status=status)

    places = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (2.0, 0.0), (2.0, 1.0), (0.2, 0.5)]
    figure = render(plot(scattered(places, make), kind="map"))
    axis = figure.axes[0]
    for wrong, place in {"DIVERGED": (0.2, 0.5), "MAX_STEPS": (1.0, 1.0)}.items():
        (cross,) = labelled(axis, wrong)
        assert tuple(xy(cross)[0]) == place
    assert len(axis.collections[0].get_array()) == 2  # the four around the failure have no colour
    assert texts(figure) == ["DIVERGED", "MAX_STEPS", "status changes"]


def test_neighbours_do_not_depend_on_units():
    rng = np.random.default_rng(0)
    places = rng.uniform(0.5, 1.5, (30, 2))

    def drawn(factor):
        study = scattered([(x * factor, y) for x, y in places], lambda x, y: prediction(x / factor + y))
        return np.sort(plot(study).axes[0].collections[0].get_array())

    np.testing.assert_allclose(drawn(1.0), drawn(1e6), rtol=1e-12)


@pytest.mark.parametrize("places", [[(0, 0), (1, 1), (2, 2), (3, 3)], [(1, 0), (2, 1)]])
def test_points_that_span_no_area(places):
    study = scattered([(float(x), float(y)) for x, y in places], lambda x, y: prediction(x))
    refuses("span no area (they lie on one line or are fewer than three)", study, kind="map")


def test_predictions_and_simulations_of_the_library():
    def make(snr):
        p = ndl.predict(ndl.SpikedSLR(2, snr), ndl.KeyValueAttention(ndl.Linear()), ndl.Population())
        m = ndl.simulate(*p.resolved, d=20, repeats=4, overlaps=p.overlaps, samples=1000)
        return p, (m,)

    study = grid(make, task__snr=(0.5, 2.0))
    main, strip = render(plot(study)).axes
    expected = [float(p.prediction.excess_risk) for p in study.points()]
    np.testing.assert_array_equal(main.lines[0].get_ydata(), expected)
    assert len(labelled(strip, "theory")) == 2


@pytest.fixture
def small():
    return grid(lambda snr: prediction(snr), task__snr=(1.0, 2.0))


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_picture_is_saved_by_its_suffix(small, tmp_path, suffix, start):
    path = tmp_path / f"picture.{suffix}"
    plot(small, path=path)
    assert path.read_bytes().startswith(start)
    assert plot(small, path=str(path)).axes


def test_paths_that_cannot_be_written(small, tmp_path):
    refuses("the file name must end in .png, .pdf, .svg.", small, path=tmp_path / "picture.gif")
    refuses("the file name must end in", small, path="")
    refuses("there is no folder", small, path=tmp_path / "none" / "picture.png")
    refuses("path must be a file name", small, path=3)
    (tmp_path / "folder.png").mkdir()
    refuses("cannot be written (Is a directory).", small, path=tmp_path / "folder.png")


def test_bad_input_is_one_sentence(small):
    refuses("or a study, which has axes, grid and points()", object())
    refuses("the study has no points; run it first.", Study({"task.snr": (1,)}, []))
    refuses("nothing is swept", Study({}, [StudyPoint({}, prediction(1.0))]))
    refuses("plot(metric='exces_risk'): the study has excess_risk (did you mean 'excess_risk'?).", small, "exces_risk")
    refuses("the study has excess_risk.", small, "zzz")
    refuses("kind must be 'curves', 'map' or None", small, kind="heat")
    refuses("plot(x='task.noise'): task.noise is not swept (swept: task.snr).", small, x="task.noise")
    refuses("no swept axis besides task.snr is numeric", small, kind="map")
    nothing = grid(lambda snr: (None, (), "NoTheory: no rule\ncovers this."), task__snr=(1.0, 2.0))
    refuses("has a number to draw (the first point says: NoTheory: no rule covers this.)", nothing)
    words = grid(lambda a, b: prediction(1.0), model__activation=("a", "b"), task__snr=(None, 2.0))
    refuses("no swept axis is numeric (swept: model.activation, task.snr)", words)


def test_bad_choices_of_axes_are_one_sentence():
    study = grid(
        lambda a, b, c: prediction(1.0 if a else math.nan), task__snr=(1, 2, 3), task__noise=(1, 2, 3), other__w=("a",)
    )
    refuses("x and y must be two different axes", study, x="snr", y="snr")
    refuses("other.w is not numeric; numeric axes: task.snr, task.noise.", study, x="w")
    many = grid(lambda a, b: prediction(1.0), task__snr=tuple(range(20)), task__noise=tuple(range(11)))
    refuses(
        "task.noise (11 values) make 11 curves, at most 10 can be told apart; "
        "choose x= among task.noise, draw kind='map', or sweep fewer values.",
        many,
        kind="curves",
    )
    eight, seven = tuple(range(8)), tuple(range(7))
    cube = grid(lambda a, b, c: prediction(1.0), task__snr=eight, task__noise=eight, other__z=seven)
    refuses("other.z (7 values) make 7 maps over task.snr and task.noise, at most 6 fit", cube)
    flat = grid(lambda a, b: prediction(1.0), task__snr=(1, 2, 3), task__noise=(1,))
    refuses("task.noise has one value; a map needs two or more", flat, kind="map")


def test_maps_that_cannot_be_drawn_are_one_sentence():
    axes = {"task__snr": (1, 2, 3), "task__noise": (1, 2, 3)}
    study = grid(lambda a, b: prediction(a + b), **axes)
    refuses("levels must be finite numbers", study, levels=[math.nan])
    refuses("levels must be finite numbers", study, levels="many")
    refuses("levels must be finite numbers", study, levels=2.5)
    refuses("a number of contours >= 0", study, levels=-1)
    refuses("no level lies inside the values, which go from 2 to 6.", study, levels=[7.0])
    lost = grid(lambda a, b: prediction(math.nan, status=DIVERGED), **axes)
    refuses("no point has a finite excess_risk (DIVERGED).", lost)
    twice = scattered([*SQUARE, SQUARE[0]], lambda x, y: prediction(x))
    refuses("two points lie at task.snr = 0, task.noise = 0; a map shows one.", twice, kind="map")
    sizes = grid(lambda a, b: (None, (measurement(1.0), measurement(1.0, d=200))), **axes)
    refuses("only Monte Carlo has excess_risk, at several sizes d; a map shows one size.", sizes, kind="map")


@pytest.mark.exact
def test_cells_of_a_logarithmic_axis_have_geometric_borders():
    scale = Scale.of((0.1, 1.0, 10.0, math.inf))
    assert scale.log
    np.testing.assert_allclose(scale.places, [0.1, 1, 10, 100])
    np.testing.assert_allclose(scale.edges(), 10.0 ** np.arange(-1.5, 3))
    assert Scale.of((math.inf,)).places.tolist() == [1.0]


def test_the_colours_are_the_house_colours():
    from needlepoint.plotting.style import COLOURS

    figure = plot(grid(lambda a, b: prediction(a + b), task__noise=(1, 2), task__snr=(1, 2, 3)))
    assert [to_hex(line.get_color()) for line in figure.axes[0].lines] == list(COLOURS[:2])


def test_drawing_does_not_import_pyplot_and_leaves_the_settings_alone():
    code = """
import sys
import matplotlib
before = {n: repr(dict.__getitem__(matplotlib.rcParams, n)) for n in matplotlib.rcParams}
import needlepoint as ndl
from needlepoint.core.results import Prediction
from needlepoint.plotting.studies.pictures import plot
from needlepoint.studies.points import StudyPoint

class Study:
    axes, grid = {"task.snr": (1, 2, 3), "task.noise": (1, 2, 3)}, True
    def points(self):
        for x in (1, 2, 3):
            for y in (1, 2, 3):
                branch = "oracle" if x < y else "swapped"
                made = Prediction(None, None, None, {"risk": ndl.Estimate(x + y)}, branch=branch)
                yield StudyPoint({"task.snr": x, "task.noise": y}, made)

for kind in ("map", "curves"):
    plot(Study(), "risk", kind=kind)
after = {n: repr(dict.__getitem__(matplotlib.rcParams, n)) for n in matplotlib.rcParams}
print("matplotlib.pyplot" in sys.modules, "jax" in sys.modules, before == after)
"""
    done = waiting.python(code)
    assert (done.stdout, done.stderr) == ("False False True\n", "")

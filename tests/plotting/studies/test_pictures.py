"""Pictures of a study: the artists hold the numbers of the points, and no point is left out."""

import io
import itertools
import math
import re

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.colors import LogNorm, to_hex

import needlepoint as ndl
from needlepoint.core.results import Measurement, Prediction
from needlepoint.plotting.studies.pictures import plot
from needlepoint.plotting.studies.scales import Scale
from needlepoint.studies.points import StudyPoint

import waiting

TASK, MODEL, LEARNER = ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Softmax()), ndl.Population()
OK, MAX_STEPS, DIVERGED = ndl.Status.CONVERGED, ndl.Status.MAX_STEPS, ndl.Status.DIVERGED


class Study:
    """What `plot` reads of a study."""

    def __init__(self, axes, points, grid=True):
        self.axes, self.grid, self._points = axes, grid, list(points)

    def points(self):
        return iter(self._points)


def prediction(value, error=0.0, status=OK, metric="excess_risk", **more):
    return Prediction(TASK, MODEL, LEARNER, {metric: ndl.Estimate(value, error)}, status=status, **more)


def measurement(value, error=0.01, d=100, status=OK, metric="excess_risk", **more):
    estimate = ndl.Estimate(value, error, "stderr")
    return Measurement(TASK, MODEL, LEARNER, {metric: estimate}, status=status, d=d, repeats=2000, **more)


def grid(make, grid=True, **axes):
    """A study over the product of the axes; `make(**values)` gives a StudyPoint's arguments or a prediction."""
    paths = {name.replace("__", "."): values for name, values in axes.items()}
    points = []
    for values in itertools.product(*axes.values()):
        made = make(*values)
        made = made if isinstance(made, tuple) else (made,)
        points.append(StudyPoint(dict(zip(paths, values, strict=True)), *made))
    return Study(paths if grid else {}, points, grid)


def render(figure):
    """Draw it for real: some warnings come only then."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    return figure


def texts(figure):
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


def labelled(axis, label):
    return [line for line in axis.lines if line.get_label() == label]


def xy(line):
    return np.column_stack(line.get_data())


def borders(axis, kind):
    (found,) = [c for c in axis.collections if isinstance(c, LineCollection) and c.get_label() == kind]
    return {tuple(sorted(map(tuple, s.round(10).tolist()))) for s in found.get_segments()}


def refuses(sentence, *args, **kwargs):
    with pytest.raises(ndl.InvalidParameter, match=re.escape(sentence)) as caught:
        plot(*args, **kwargs)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


# --- curves ------------------------------------------------------------------------------------


def test_lines_bands_and_error_bars_are_the_given_numbers():
    snrs, noises = (1.0, 2.0, 4.0), (0.0, 0.5)
    study = grid(
        lambda noise, snr: (
            prediction(1 / snr + noise, 0.05 * snr),
            (measurement(1 / snr + noise + 0.02, 0.01, 100), measurement(1 / snr + noise, 0.02, 400)),
        ),
        task__noise=noises,
        task__snr=snrs,
    )
    figure = render(plot(study))
    main, strip = figure.axes
    for i, noise in enumerate(noises):
        (line,) = labelled(main, rf"$\epsilon$ = {noise:g}")
        np.testing.assert_array_equal(xy(line), [(s, 1 / s + noise) for s in snrs])
        band = {tuple(v) for v in main.collections[3 * i].get_paths()[0].vertices.tolist()}
        assert {(s, 1 / s + noise + sign * 0.05 * s) for s in snrs for sign in (-1, 1)} <= band
        for container, shift, error in zip(main.containers[2 * i :], (0.02, 0.0), (0.01, 0.02), strict=False):
            dots, _, (bars,) = container
            mean = np.array([1 / s + noise + shift for s in snrs])
            np.testing.assert_array_equal(dots.get_ydata(), mean)
            ends = np.array([s[:, 1] for s in bars.get_segments()])
            np.testing.assert_allclose(ends, np.column_stack([mean - error, mean + error]), rtol=1e-12)
    assert [c[0].get_marker() for c in main.containers] == ["o", "s", "o", "s"]
    assert (main.get_ylabel(), strip.get_xlabel()) == ("$R$ (excess risk)", r"$\mu$ (snr)")
    assert texts(figure) == [
        r"$\epsilon$ = 0",
        r"$\epsilon$ = 0.5",
        "training, $d$ = 100",
        "training, $d$ = 400",
        "error of the theory",
    ]


def test_the_strip_shows_the_z_of_the_comparison_and_triangles_beyond_it():
    gaps = {1.0: 0.0, 2.0: 0.03, 3.0: -0.05, 4.0: 2.0, 5.0: -2.0}
    study = grid(lambda snr: (prediction(1.0), (measurement(1.0 + gaps[snr], 0.01),)), task__snr=tuple(gaps))
    _, strip = render(plot(study)).axes
    drawn = {float(x): (float(z), line.get_marker()) for line in labelled(strip, "theory") for x, z in xy(line)}
    z = {p.at["task.snr"]: p.comparison.rows[0].z for p in study.points()}
    low, high = strip.get_ylim()
    assert -low == high == 10.0
    for snr in (1.0, 2.0, 3.0):
        assert drawn[snr] == (z[snr], "o")
    assert (z[4.0] > high, z[5.0] < low) == (True, True)
    assert (drawn[4.0], drawn[5.0]) == ((high, "^"), (low, "v"))
    dashed = [line.get_ydata()[0] for line in strip.lines if line.get_linestyle() == "--"]
    assert dashed == [-4, 4]
    (band,) = strip.patches
    assert (band.get_y(), band.get_height()) == (-2, 4)
    assert strip.get_ylabel() == "$z$ at finite $d$"


def test_the_strip_reaches_four_and_a_half_and_is_absent_without_comparisons():
    quiet = grid(lambda snr: (prediction(1.0), (measurement(1.0),)), task__snr=(1.0, 2.0))
    assert plot(quiet).axes[1].get_ylim() == (-4.5, 4.5)
    exact = grid(lambda snr: (prediction(1.0, exact=True), (measurement(1.0),)), task__snr=(1.0, 2.0))
    assert plot(exact).axes[1].get_ylabel() == "$z$"
    assert len(plot(grid(lambda snr: prediction(snr), task__snr=(1.0, 2.0))).axes) == 1
    failed = grid(lambda snr: (prediction(1.0, status=MAX_STEPS), (measurement(1.0),)), task__snr=(1.0, 2.0))
    assert len(render(plot(failed)).axes) == 1


def test_failures_stay_in_the_picture():
    made = {
        1.0: (prediction(0.9),),
        2.0: (prediction(0.8, status=MAX_STEPS),),
        3.0: (prediction(math.nan, status=DIVERGED),),
        4.0: (prediction(0.6),),
        5.0: (None, (), "NoTheory: none."),
        6.0: (None, ()),
        7.0: (prediction(0.5), (measurement(0.7, status=DIVERGED),)),
        8.0: (prediction(0.4), (measurement(math.nan),)),
        9.0: (prediction(0.3), (), "simulation refused."),
        10.0: (prediction(0.3, metric="risk"), ()),
        11.0: (prediction(0.2), (measurement(0.2, math.inf),)),
    }
    figure = render(plot(grid(lambda snr: made[snr], task__snr=tuple(made))))
    axis = figure.axes[0]
    (line,) = labelled(axis, "theory")
    gone = [x for x, y in xy(line) if math.isnan(y)]
    assert gone == [2.0, 3.0, 5.0, 6.0, 10.0]
    assert list(np.asarray(line.get_xdata())[line.get_markevery()]) == [1.0, 4.0, 11.0]  # alone: a short dash
    for wrong, place in {"MAX_STEPS": (2.0, 0.8), "training: DIVERGED": (7.0, 0.7)}.items():
        (cross,) = labelled(axis, wrong)
        assert tuple(xy(cross)[0]) == place
        assert cross.get_markerfacecolor() == "white"
    ticks = {3.0: "DIVERGED", 5.0: "no prediction", 6.0: "not computed", 10.0: "no excess_risk"}
    ticks |= {8.0: "training: not finite", 9.0: "no training"}
    for x, wrong in ticks.items():
        (tick,) = labelled(axis, wrong)
        assert (tick.get_marker(), tick.get_xdata()[0]) == ("|", x)
        assert 0 < tick.get_ydata()[0] < 0.1
        assert tick.get_transform() == axis.get_xaxis_transform()
    assert {"MAX_STEPS", "DIVERGED, no value", "no prediction", "not computed", "training: DIVERGED"} <= set(
        texts(figure)
    )
    assert "no bar: error unknown (one repeat)" in texts(figure)
    assert [t.get_xdata()[0] for t in labelled(figure.axes[1], "no z")] == [8.0, 11.0]


def test_ticks_of_two_curves_do_not_cover_each_other():
    study = grid(lambda noise, snr: prediction(math.nan, status=DIVERGED), task__noise=(0, 1), task__snr=(1.0, 2.0, 3))
    axis = render(plot(study)).axes[0]
    assert len({float(t.get_ydata()[0]) for t in labelled(axis, "DIVERGED")}) == 2


def test_points_without_an_order_are_sorted_along_x():
    points = [StudyPoint({"task.snr": s}, prediction(1 / s)) for s in (4.0, 1.0, 2.0)]
    (line,) = plot(Study({}, points, grid=False)).axes[0].lines
    np.testing.assert_array_equal(xy(line), [(1, 1), (2, 0.5), (4, 0.25)])


def test_infinity_has_a_place_beyond_the_last_value_and_no_line_to_it():
    study = grid(lambda snr: prediction(1.0 if math.isinf(snr) else snr), task__snr=(1.0, 2.0, math.inf))
    axis = render(plot(study)).axes[0]
    (line,) = labelled(axis, "theory")
    np.testing.assert_array_equal(xy(line), [(1, 1), (2, 2), (3, math.nan), (3, 1)])
    assert [t.get_text() for t in axis.get_xticklabels()] == ["1", "2", "∞"]


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (np.geomspace(0.1, 10, 5), "log"),
        (np.linspace(0.1, 10, 5), "linear"),
        (np.geomspace(1, 29, 5), "linear"),
        ((0.0, 1.0, 10.0, 100.0), "linear"),
        ((-1.0, 10.0, 100.0), "linear"),
    ],
)
def test_the_x_axis_is_logarithmic_where_the_steps_are(values, scale):
    study = grid(lambda snr: prediction(1.0), task__snr=tuple(map(float, values)))
    assert render(plot(study)).axes[0].get_xscale() == scale


@pytest.mark.parametrize(("low", "scale"), [(1e-4, "log"), (1e-2, "linear"), (0.0, "linear"), (-1.0, "linear")])
def test_the_y_axis_is_logarithmic_over_a_factor_1000(low, scale):
    study = grid(lambda snr: prediction(low if snr == 2 else 1.0), task__snr=(1.0, 2.0, 3.0))
    assert render(plot(study)).axes[0].get_yscale() == scale


def test_overlaps_are_metrics():
    def make(snr):
        overlaps = ndl.Overlaps(key=snr / 10, value=0.5)
        more = {"overlaps": overlaps, "overlaps_error": {"key": 0.01}}
        return prediction(1.0, **more), (measurement(1.0, **more),)

    main, strip = render(plot(grid(make, task__snr=(1.0, 2.0)), "overlaps.key")).axes
    np.testing.assert_array_equal(xy(main.lines[0]), [(1, 0.1), (2, 0.2)])
    assert main.get_ylabel() == r"$\kappa$ (overlap key)"
    assert [float(line.get_ydata()[0]) for line in labelled(strip, "theory")] == [0.0, 0.0]


def test_a_metric_that_only_training_has():
    study = grid(
        lambda noise, snr: (prediction(1.0), (measurement(snr, metric="train_loss"),)),
        task__noise=(0.0, 1.0),
        task__snr=(1.0, 2.0, 3.0),
    )
    figure = render(plot(study, "train_loss"))
    (axis,) = figure.axes
    assert not [line for line in axis.lines if line.get_linestyle() == "-"]
    assert texts(figure) == [r"$\epsilon$ = 0", r"$\epsilon$ = 1", "training, $d$ = 100"]
    assert axis.get_ylabel() == r"$E_{\mathrm{train}}$ (train loss)"
    mesh = render(plot(study, "train_loss", kind="map")).axes[0].collections[0]
    np.testing.assert_array_equal(mesh.get_array(), [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])


def test_specs_and_words_are_named_briefly():
    models = (ndl.KeyValueAttention(ndl.Softmax()), ndl.KeyValueAttention(ndl.Erf(scale=0.3)), ndl.LinearRegression())
    study = grid(
        lambda model, within, length, snr: prediction(snr),
        model=models,
        learner__within=("manifold",),
        other__strange=("a$b",),
        task__snr=(1.0, 2.0),
    )
    figure = render(plot(study))
    assert texts(figure) == ["KeyValueAttention(Softmax)", "KeyValueAttention(Erf(scale=0.3))", "LinearRegression"]
    assert figure.axes[0].get_title() == r"within = manifold, strange = a\$b"


def test_values_that_look_alike_in_few_digits_stay_apart():
    figure = plot(grid(lambda a, b: prediction(b), other__a=(0.1234567, 0.1234568), task__snr=(1.0, 2.0, 3.0)))
    assert texts(figure) == ["a = 0.1234567", "a = 0.1234568"]


def test_two_axes_of_one_name_are_told_by_their_paths():
    study = grid(lambda a, b: prediction(a), learner__d=(1.0, 2.0, 3.0), task__d=(5.0, 6.0))
    figure = plot(study, kind="curves")
    assert figure.axes[0].get_xlabel() == "$d$ (learner.d)"
    assert texts(figure)[0] == "$d$ (task.d) = 5"
    refuses("plot(x='d'): d could be learner.d, task.d.", study, x="d", kind="curves")


def test_ten_curves_can_be_told_apart():
    study = grid(lambda a, b: prediction(a + b), task__noise=tuple(range(10)), task__snr=tuple(range(11)))
    figure = render(plot(study, kind="curves"))
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 10


# --- which picture -----------------------------------------------------------------------------


def is_map(figure):
    return any(isinstance(c, QuadMesh) for c in figure.axes[0].collections)


@pytest.mark.parametrize(
    ("axes", "simulated", "expected"),
    [
        ({"task__snr": (1, 2, 3), "task__noise": (1, 2, 3)}, False, True),
        ({"task__snr": (1, 2, 3), "task__noise": (1, 2, 3)}, True, False),
        ({"task__snr": (1, 2, 3, 4), "task__noise": (1, 2)}, False, False),
        ({"task__snr": (1, 2, 3, 4), "task__noise": ("a", "b", "c")}, False, False),
    ],
)
def test_the_kind_is_chosen_from_the_study(axes, simulated, expected):
    study = grid(lambda a, b: (prediction(a), (measurement(a),) if simulated else ()), **axes)
    assert is_map(plot(study)) == expected
    if expected:
        assert not is_map(plot(study, kind="curves"))


def test_y_or_levels_ask_for_a_map():
    study = grid(lambda a, b: prediction(a), task__snr=(1, 2, 3), task__noise=(1, 2))
    assert is_map(plot(study, y="task.noise"))
    assert is_map(plot(study, levels=3))
    refuses("y belongs to maps", study, y="noise", kind="curves")
    refuses("levels belongs to maps", study, levels=3, kind="curves")


def test_the_axis_with_most_values_is_x_unless_chosen():
    study = grid(lambda a, b: prediction(a + b), task__noise=(1, 2), task__snr=(1, 2, 3))
    assert plot(study).axes[0].get_xlabel() == r"$\mu$ (snr)"
    assert plot(study, x="noise").axes[0].get_xlabel() == r"$\epsilon$ (noise)"
    figure = plot(study, y="snr")
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == (r"$\epsilon$ (noise)", r"$\mu$ (snr)")


# --- maps --------------------------------------------------------------------------------------


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


# --- scattered points --------------------------------------------------------------------------


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


# --- real questions ----------------------------------------------------------------------------


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


# --- saving and refusing -----------------------------------------------------------------------


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
    refuses("takes a study, which has axes, grid and points()", object())
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
    refuses("only training has excess_risk, at several sizes d; a map shows one size.", sizes, kind="map")


# --- scales ------------------------------------------------------------------------------------


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

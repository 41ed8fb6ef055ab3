"""Pictures of a study: the artists hold the numbers of the points, and no point is left out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import QuadMesh

import needlepoint as ndl
from needlepoint.plotting.studies.pictures import plot
from needlepoint.studies.points import StudyPoint

from picture_cases import (
    DIVERGED,
    MAX_STEPS,
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
        "Monte Carlo, $d$ = 100",
        "Monte Carlo, $d$ = 400",
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
    for wrong, place in {"MAX_STEPS": (2.0, 0.8), "Monte Carlo: DIVERGED": (7.0, 0.7)}.items():
        (cross,) = labelled(axis, wrong)
        assert tuple(xy(cross)[0]) == place
        assert cross.get_markerfacecolor() == "white"
    ticks = {3.0: "DIVERGED", 5.0: "no prediction", 6.0: "not computed", 10.0: "no excess_risk"}
    ticks |= {8.0: "Monte Carlo: not finite", 9.0: "no Monte Carlo"}
    for x, wrong in ticks.items():
        (tick,) = labelled(axis, wrong)
        assert (tick.get_marker(), tick.get_xdata()[0]) == ("|", x)
        assert 0 < tick.get_ydata()[0] < 0.1
        assert tick.get_transform() == axis.get_xaxis_transform()
    assert {"MAX_STEPS", "DIVERGED, no value", "no prediction", "not computed", "Monte Carlo: DIVERGED"} <= set(
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


def test_a_metric_that_only_measurements_have():
    study = grid(
        lambda noise, snr: (prediction(1.0), (measurement(snr, metric="train_loss"),)),
        task__noise=(0.0, 1.0),
        task__snr=(1.0, 2.0, 3.0),
    )
    figure = render(plot(study, "train_loss"))
    (axis,) = figure.axes
    assert not [line for line in axis.lines if line.get_linestyle() == "-"]
    assert texts(figure) == [r"$\epsilon$ = 0", r"$\epsilon$ = 1", "Monte Carlo, $d$ = 100"]
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


@pytest.mark.parametrize(
    ("learner", "word"),
    [
        (ndl.Population(), "Monte Carlo"),
        (ndl.BayesOptimal(), "Monte Carlo"),
        (ndl.BayesOptimal(alpha=2.0), "message passing"),
        (ndl.Ridge(2.0, 0.1), "training"),
    ],
)
def test_training_is_said_only_where_something_is_trained(learner, word):
    """A measurement at given weights trains nothing; a study of two kinds says simulation."""

    def asked(chosen):
        return replace(prediction(0.5), learner=chosen), (replace(measurement(0.5), learner=chosen),)

    alone = plot(grid(lambda snr: asked(learner), task__snr=(1.0, 2.0)))
    assert f"{word}, $d$ = 100" in texts(render(alone))
    other = ndl.Ridge(2.0, 0.1) if word != "training" else ndl.Population()
    mixed = plot(grid(lambda snr: asked(learner if snr < 2 else other), task__snr=(1.0, 2.0)))
    assert "simulation, $d$ = 100" in texts(render(mixed))

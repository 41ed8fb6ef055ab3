"""The four panels draw, and the tables hold, the mean, 95 % interval and standard error over runs."""

import dataclasses
import io
import math

import numpy as np
import pytest

from needlepoint.plotting.trajectories import FLOOR, four_panels, quantities, run_table, trajectory_table

NAMES = ("excess_risk", "abs_key", "abs_value", "distance")


def render(figure):
    """Draw it for real: some warnings come only then."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def lines(axis):
    return [np.column_stack(line.get_data()) for line in axis.lines]


def columns_of(table):
    head, rows = table
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


# --- what is shown -----------------------------------------------------------------------------


def test_quantities_are_the_absolute_alignments_and_the_distance(trajectory):
    t = trajectory()
    shown = quantities(t)
    assert tuple(shown) == NAMES
    np.testing.assert_array_equal(shown["abs_key"], np.abs(t.overlaps["key"]))
    np.testing.assert_array_equal(shown["abs_value"], np.abs(t.overlaps["value"]))
    off = [t.overlaps[name] ** 2 for name in ("value_on_key", "key_on_value", "key_dot_value")]
    np.testing.assert_allclose(shown["distance"] ** 2, sum(off), rtol=1e-14)
    np.testing.assert_array_equal(shown["excess_risk"], t.excess_risk)


@pytest.mark.exact
def test_the_theory_is_drawn_as_mean_and_quantiles(trajectory):
    t = trajectory()
    figure = four_panels(t, None, oracle=0.5)
    risk, alignment, _, distance = figure.axes
    for axis, i, name in ((risk, 0, "excess_risk"), (alignment, 0, "abs_key"), (alignment, 1, "abs_value")):
        runs = quantities(t)[name]
        np.testing.assert_array_equal(lines(axis)[i], np.column_stack([t.steps, runs.mean(axis=0)]))
        band = axis.collections[i].get_paths()[0].vertices
        for edge in np.quantile(runs, [0.025, 0.975], axis=0):
            assert {*zip(t.steps.tolist(), edge.tolist(), strict=True)} <= {tuple(v) for v in band.tolist()}
    np.testing.assert_array_equal(lines(distance)[0][:, 1], quantities(t)["distance"].mean(axis=0))
    assert distance.get_yscale() == "log"
    assert risk.lines[1].get_ydata() == [0.5, 0.5]  # the oracle
    assert (risk.get_ylim(), distance.get_ylim()) == ((-0.1, 6.0), (FLOOR, 2.0))
    render(figure)


@pytest.mark.exact
def test_training_is_drawn_as_means_with_standard_errors(trajectory):
    theory, training = trajectory(), trajectory(runs=5, seed=1)
    figure = four_panels(theory, training, oracle=None)
    risk, alignment, _, distance = figure.axes
    places = ((risk, 0), (alignment, 0), (alignment, 1), (distance, 0))
    for (axis, i), runs in zip(places, quantities(training).values(), strict=True):
        dots, _, (bars,) = axis.containers[i]
        at = np.searchsorted(training.steps, dots.get_xdata())
        assert (at[0], at[-1]) == (0, len(training.steps) - 1)
        mean, error = runs.mean(axis=0)[at], runs.std(axis=0, ddof=1)[at] / math.sqrt(5)
        np.testing.assert_array_equal(dots.get_ydata(), mean)
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends, np.column_stack([mean - error, mean + error]), rtol=1e-14)
    labels = [text for axis in figure.axes for text in axis.get_legend_handles_labels()[1]]
    assert sum("5 runs" in text for text in labels) == 3  # once a panel that shows training
    render(figure)


def test_every_run_can_be_drawn(trajectory):
    t = trajectory()
    figure = four_panels(t, None, oracle=None, all_runs=True)
    for axis, names in zip(figure.axes[:2], (["excess_risk"], ["abs_key", "abs_value"]), strict=True):
        expected = [run for name in names for run in quantities(t)[name]]
        assert len(axis.lines) == len(expected)
        for drawn, run in zip(lines(axis), expected, strict=True):
            np.testing.assert_array_equal(drawn[:, 1], run)
    render(figure)


def test_paths_are_told_by_their_end(trajectory):
    t = trajectory(runs=6, branches=("oracle", "oracle", "swapped"))
    axis = four_panels(t, None, oracle=None).axes[2]
    paths = [line for line in lines(axis) if len(line) > 1]
    for run, path in enumerate(paths):
        np.testing.assert_array_equal(path, np.column_stack([t.overlaps["key"][run], t.overlaps["value"][run]]))
    assert len(paths) == 6
    assert axis.get_legend_handles_labels()[1] == ["ends oracle (4 of 6)", "ends swapped (2 of 6)"]


# --- edges -------------------------------------------------------------------------------------


def test_zero_distances_are_drawn_on_the_floor(trajectory):
    figure = four_panels(trajectory(off=0.0), trajectory(off=0.0, seed=1), oracle=None)
    distance = figure.axes[3]
    dots = distance.containers[0][0]
    for drawn in (lines(distance)[0][:, 1], dots.get_ydata()):
        np.testing.assert_allclose(drawn, FLOOR, rtol=1e-14)
    render(figure)
    # the table keeps the truth
    table = columns_of(trajectory_table(trajectory(off=0.0), trajectory(off=0.0, seed=1)))
    assert set(table["distance_mean"]) == {0.0}


def test_distances_below_the_floor_are_raised_to_it_only_there(trajectory):
    t = trajectory()
    small = {n: x * np.where(np.arange(20) < 10, 1.0, 1e-30) for n, x in t.overlaps.items()}
    figure = four_panels(dataclasses.replace(t, overlaps=small), None, oracle=None)
    drawn = lines(figure.axes[3])[0][:, 1]
    np.testing.assert_array_equal(drawn[:10], quantities(t)["distance"].mean(axis=0)[:10])
    np.testing.assert_allclose(drawn[10:], FLOOR, rtol=1e-14)
    render(figure)


def test_one_run_and_one_record(trajectory):
    render(four_panels(trajectory(runs=1), trajectory(runs=1, seed=1), oracle=0.1))
    render(four_panels(trajectory(records=2), trajectory(records=2), oracle=0.1))


def test_a_diverged_run_can_still_be_drawn(trajectory):
    t = trajectory(branches=("other",))
    risk, overlaps = t.excess_risk.copy(), {n: x.copy() for n, x in t.overlaps.items()}
    for array in (risk, *overlaps.values()):
        array[1, 8:] = np.nan
    broken = dataclasses.replace(t, excess_risk=risk, overlaps=overlaps)
    render(four_panels(broken, broken, oracle=None))
    render(four_panels(broken, broken, oracle=None, all_runs=True))
    table = columns_of(trajectory_table(broken, None))
    assert [math.isnan(x) for x in table["excess_risk_mean"]] == [False] * 8 + [True] * 12


# --- tables ------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("with_training", [True, False])
def test_the_table_holds_exactly_what_is_drawn(trajectory, with_training):
    theory, training = trajectory(), trajectory(runs=4, records=7, seed=1) if with_training else None
    table = columns_of(trajectory_table(theory, training))
    parts = [("theory", theory), *([("training", training)] if training else [])]
    assert table["source"] == [name for name, t in parts for _ in t.steps]
    assert table["step"] == [s for _, t in parts for s in t.steps.tolist()]
    assert table["scale"] == [s for _, t in parts for s in t.scale.tolist()]
    for name in NAMES:
        for suffix, expected in {
            "mean": lambda x: x.mean(axis=0),
            "low": lambda x: np.quantile(x, 0.025, axis=0),
            "high": lambda x: np.quantile(x, 0.975, axis=0),
            "stderr": lambda x: x.std(axis=0, ddof=1) / np.sqrt(len(x)),
        }.items():
            assert table[f"{name}_{suffix}"] == [y for _, t in parts for y in expected(quantities(t)[name]).tolist()]
    assert all(type(x) in (str, int, float) for row in trajectory_table(theory, training)[1] for x in row)


def test_one_run_has_no_standard_error(trajectory):
    """As everywhere (`mean_estimate`): the spread of a single run is unknown, which is not zero."""
    table = columns_of(trajectory_table(trajectory(runs=1), None))
    for name in NAMES:
        assert not any(x == 0.0 for x in table[f"{name}_stderr"])


@pytest.mark.exact
def test_the_run_table_holds_every_overlap(trajectory):
    t = trajectory(runs=3, records=4)
    table = columns_of(run_table(t))
    assert list(table) == ["run", "branch", "step", *t.overlaps]
    assert table["run"] == [r for r in range(3) for _ in range(4)]
    assert table["branch"] == [b for b in t.branches for _ in range(4)]
    assert table["step"] == t.steps.tolist() * 3
    for name, x in t.overlaps.items():
        assert table[name] == x.ravel().tolist()

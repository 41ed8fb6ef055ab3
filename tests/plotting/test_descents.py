"""Descents coloured by their end: medians and intervals for each end, training over the theory from the same starts."""

import dataclasses
import io

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from needlepoint.plotting.descents import ENDS, descent_panels
from needlepoint.plotting.trajectories import FLOOR, quantities


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def lines(axis, colour, style="-", thin=False):
    """The lines of a colour and style in a panel, medians (or with `thin` single runs), without circles and dots."""
    found = [x for x in axis.lines if to_hex(x.get_color()) == to_hex(colour) and x.get_linestyle() == style]
    return [x for x in found if x.get_marker() == "None" and (x.get_linewidth() < 1) == thin]


def names(figure):
    return [t.get_text() for t in figure.legends[0].get_texts()]


@pytest.mark.exact
def test_each_end_has_its_median_and_interval(trajectory):
    t = trajectory(branches=("oracle", "swapped", "oracle"))  # four of six end at the oracle
    figure = descent_panels(t, None, oracle=0.5)
    risk, alignment, _, distance = figure.axes
    for end in ("oracle", "swapped"):
        mine = np.array([b == end for b in t.branches])
        for axis, name, style in (
            (risk, "excess_risk", "-"),
            (alignment, "abs_key", "-"),
            (alignment, "abs_value", "--"),
            (distance, "distance", "-"),
        ):
            runs = quantities(t)[name][mine]
            (line,) = lines(axis, ENDS[end], style)
            np.testing.assert_allclose(line.get_ydata(), np.maximum(np.median(runs, axis=0), FLOOR), rtol=1e-14)
    assert len(risk.collections) == 2  # the intervals
    render(figure)


def test_the_median_is_not_the_mean(trajectory):
    """On a logarithmic axis the mean of many small distances and a large one would say nothing of the many."""
    t = trajectory(branches=("oracle",))
    wide = {n: x * (1e3 if n != "key" else 1.0) ** (np.arange(len(x)) == 0)[:, None] for n, x in t.overlaps.items()}
    figure = descent_panels(dataclasses.replace(t, overlaps=wide), None, oracle=None)
    (line,) = lines(figure.axes[3], ENDS["oracle"])
    runs = quantities(dataclasses.replace(t, overlaps=wide))["distance"]
    assert np.all(line.get_ydata() < 0.5 * runs.mean(axis=0))


def test_training_is_drawn_run_by_run_over_the_theory_it_follows(trajectory):
    cloud, followed = trajectory(), trajectory(runs=3, seed=1)
    figure = descent_panels(cloud, followed, oracle=None, followed=followed)
    risk = figure.axes[0]
    thin = [line for end in set(followed.branches) for line in lines(risk, ENDS[end], thin=True)]
    assert len(thin) == followed.runs
    circles = [x for x in risk.lines if x.get_marker() == "o"]
    drawn = {tuple(p) for x in circles for p in x.get_xydata().tolist()}
    paths = {(s, y) for run in followed.excess_risk.tolist() for s, y in zip(followed.steps.tolist(), run, strict=True)}
    assert drawn <= paths
    assert any("3 runs; thin lines: theory from the same starts" in text for text in names(figure))
    render(figure)


@pytest.mark.parametrize("all_runs", [False, True])
def test_every_colour_line_and_marker_is_in_the_legend(trajectory, all_runs):
    ends = ("oracle", "swapped", "oracle")
    other = trajectory(seed=1, branches=ends)
    figure = descent_panels(trajectory(branches=ends), other, oracle=0.3, followed=other, all_runs=all_runs)
    said = dict(zip(names(figure), figure.legends[0].legend_handles, strict=True))
    shown = {to_hex(x.get_color()) for axis in figure.axes for x in axis.lines}
    named = {to_hex(handle.get_color()) for handle in said.values()}
    assert shown <= named
    assert {x.get_linestyle() for axis in figure.axes for x in axis.lines} <= {"-", "--", ":", "None"}
    assert {handle.get_linestyle() for handle in said.values()} >= {"-", "--", ":", "None"}
    assert "ends at the oracle (4 of 6 theory runs)" in said
    assert "ends at the swapped minimum (2 of 6 theory runs)" in said
    assert any(text.startswith("theory: each run" if all_runs else "theory: median") for text in said)
    assert any(text.startswith("training with vectors, 6 runs") for text in said)


@pytest.mark.negative
def test_a_legend_does_not_speak_of_what_is_not_there(trajectory):
    said = " ".join(names(descent_panels(trajectory(branches=("oracle",)), None, oracle=None)))
    assert not any(word in said for word in ("training", "swapped", "last scale", "thin"))


def test_time_goes_along_a_path(trajectory):
    t = trajectory(runs=2)
    axis = descent_panels(t, None, oracle=None).axes[2]
    paths = [c for c in axis.collections if isinstance(c, LineCollection)]
    assert len(paths) == 2
    for path in paths:
        opacity = path.get_colors()[:, 3]
        assert np.all(np.diff(opacity) >= 0)
        assert opacity[0] < 0.4 < 0.95 < opacity[-1]


def test_axes_fit_what_is_drawn(trajectory):
    low = trajectory()
    high = dataclasses.replace(low, excess_risk=low.excess_risk + 100.0)
    bottom, top = descent_panels(low, None, oracle=None).axes[0].get_ylim()
    assert bottom <= 0 < low.excess_risk.max() < top * 1.1
    bottom, top = descent_panels(high, None, oracle=None, most_risk=1e3).axes[0].get_ylim()
    assert 0 < bottom < high.excess_risk.min()
    assert high.excess_risk.max() < 1.1 * top
    assert descent_panels(high, None, oracle=None, most_risk=6.0).axes[0].get_ylim()[1] == 6.0


def test_zero_distances_are_said(trajectory):
    figure = descent_panels(trajectory(off=0.0), trajectory(off=0.0), oracle=None)
    assert [t.get_text() for t in figure.axes[3].texts] == ["zero, up to rounding"]
    assert not descent_panels(trajectory(), None, oracle=None).axes[3].texts
    render(figure)


def test_a_diverged_run_and_a_single_one_can_be_drawn(trajectory):
    t = trajectory(branches=("other",))
    risk = t.excess_risk.copy()
    risk[1, 8:] = np.nan
    render(descent_panels(dataclasses.replace(t, excess_risk=risk), None, oracle=None))
    render(descent_panels(trajectory(runs=1), trajectory(runs=1), oracle=0.1, all_runs=True))

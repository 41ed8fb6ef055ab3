"""Spectra: what is drawn is the law and the eigenvalues that were given, with the share at zero in numbers."""

import dataclasses
import io

import matplotlib
import numpy as np
import pytest

from needlepoint.core.answers.spectra import Spectrum
from needlepoint.core.errors import InvalidParameter
from needlepoint.plotting.spectra import ROOM, SpectrumPanel, curve, histogram, spectrum_panels
from needlepoint.tasks.targets import Eigenvalues, PowerLaw, Wishart


def render(figure):
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def law(atom=0.4, low=0.0, high=4.0, outliers=()):
    """(1 - atom) of a semicircle on [low, high]: everything about it is known."""
    middle, radius = (low + high) / 2, (high - low) / 2
    u = np.cos(np.linspace(np.pi, 0, 202))[1:-1]
    density = (1 - atom) * 2 / (np.pi * radius) * np.sqrt(1 - u**2)
    levels = (np.arange(1025) + 0.5) / 1025
    share = np.clip((levels - atom) / (1 - atom), 0, 1)
    grid = np.linspace(-1, 1, 20_001)
    below = 0.5 + (grid * np.sqrt(1 - grid**2) + np.arcsin(grid)) / np.pi
    values = np.where(levels < atom, 0.0, middle + radius * np.interp(share, below, grid))
    x = middle + radius * u
    return Spectrum(x, density, atom, np.array([[low, high]]), np.array(outliers, dtype=float), levels, values)


@pytest.fixture
def trained():
    """d = 200 eigenvalues, 16 repeats, of which 41 % are zero up to rounding."""
    rng = np.random.default_rng(0)
    found = np.sort(2 + 2 * (2 * rng.beta(1.5, 1.5, (16, 118)) - 1), axis=1)
    return np.concatenate([1e-9 * rng.standard_normal((16, 82)), found], axis=1)


def texts(axis):
    return [t.get_text() for t in axis.texts]


@pytest.mark.exact
def test_the_line_is_the_given_density_and_breaks_between_pieces():
    one, two = law(0.5, 0.5, 1.0), law(0.5, 3.0, 4.0)
    both = dataclasses.replace(
        one,
        x=np.r_[one.x, two.x],
        density=np.r_[one.density, two.density] / 2,
        edges=np.r_[one.edges, two.edges],
        atom=0.5,
    )
    x, y = curve(both)
    gap = np.flatnonzero(np.isnan(x))
    assert len(gap) == 2
    inside = np.isfinite(x) & (y > 0)
    np.testing.assert_array_equal(x[inside], both.x)
    np.testing.assert_array_equal(y[inside], both.density)
    ends = [x[0], x[gap[0] - 1], x[gap[0] + 1], x[gap[1] - 1]]
    assert ends == [0.5, 1.0, 3.0, 4.0]
    assert np.trapezoid(y[: gap[0]], x[: gap[0]]) == pytest.approx(0.25, rel=1e-3)  # 200 nodes


def test_a_law_that_is_cut_starts_at_the_height_of_the_cut():
    cut = dataclasses.replace(law(), x=np.array([0.1, 0.2, 3.9]), density=np.array([0.5, 0.45, 0.01]))
    x, y = curve(cut)
    assert (x[0], y[0]) == (0.0, pytest.approx(0.55, rel=1e-12))
    free = dataclasses.replace(cut, atom=0.0)
    assert curve(free)[1][0] == 0.0


@pytest.mark.exact
def test_bars_have_the_area_of_the_eigenvalues_that_are_not_zero(trained):
    panel = SpectrumPanel("", law(), trained)
    heights, ends = histogram(panel)
    assert heights @ np.diff(ends) == pytest.approx(118 / 200, rel=1e-12)
    assert ends[0] == 0.0
    assert ends[-1] == trained.max()
    # and follow the density that they were drawn from: 1888 of them, 12 or more bars, a few standard errors
    middle = (ends[1:] + ends[:-1]) / 2
    expected = 118 / 200 * 2 / (2 * np.pi) * np.sqrt(np.maximum(1 - ((middle - 2) / 2) ** 2, 0))
    error = np.sqrt(expected / np.diff(ends) / trained.size)
    inner = slice(1, -1)
    assert np.max(np.abs(heights - expected)[inner] / error[inner]) < 5


@pytest.mark.negative
def test_bars_of_another_law_do_not_follow_it(trained):
    heights, ends = histogram(SpectrumPanel("", law(), trained**2 / 4))
    middle = (ends[1:] + ends[:-1]) / 2
    expected = 118 / 200 * 2 / (2 * np.pi) * np.sqrt(np.maximum(1 - ((middle - 2) / 2) ** 2, 0))
    error = np.sqrt(np.maximum(expected, 1e-3) / np.diff(ends) / trained.size)
    assert np.max(np.abs(heights - expected) / error) > 20


def test_the_share_at_zero_is_compared_in_words_and_in_height(trained):
    figure = spectrum_panels([SpectrumPanel("both", law(), trained)])
    (axis,) = figure.axes
    assert texts(axis) == ["40 % at zero (trained 41 %)"]
    (bars,) = axis.child_axes  # on a scale of their own: a density has another unit than a share
    assert [bar.get_height() for bar in bars.patches] == pytest.approx([0.40, 0.41], rel=1e-12)
    assert bars.get_ylim() == (0, 1)
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["theory", "trained"]
    assert axis.get_title() == "both"
    render(figure)


def test_a_measured_share_goes_before_counting(trained):
    (axis,) = spectrum_panels([SpectrumPanel("", law(), trained, zeros=0.5)]).axes
    assert texts(axis) == ["40 % at zero (trained 50 %)"]
    heights, ends = histogram(SpectrumPanel("", law(), trained, zeros=0.5))
    assert heights @ np.diff(ends) == pytest.approx(0.5, rel=1e-12)


def test_theory_alone_and_training_alone(trained):
    figure = spectrum_panels([SpectrumPanel("theory", law(0.25)), SpectrumPanel("training", None, trained)])
    assert [texts(axis) for axis in figure.axes] == [["25 % at zero"], ["41 % at zero"]]
    render(figure)


def test_without_an_atom_nothing_stands_at_zero(trained):
    figure = spectrum_panels([SpectrumPanel("direct", law(0.0, -1.0, 3.0), trained[:, 82:] - 1)])
    (axis,) = figure.axes
    assert texts(axis) == []
    low, high = axis.get_xlim()
    assert low < -1
    assert high > 3
    render(figure)


@pytest.mark.parametrize("peak", [1.0, 500.0])
def test_a_narrow_divergence_does_not_set_the_height(peak):
    """A piece of width 1e-4 that is 500 high is said in words; one that fits is drawn whole."""
    wide = law(0.5, 0.1, 4.0)
    spike = Spectrum(
        np.r_[0.25e-4, 0.75e-4, wide.x],
        np.r_[peak, peak, wide.density],
        0.4,
        np.array([[0.0, 1e-4], [0.1, 4.0]]),
        wide.outliers,
        wide.levels,
        wide.values,
    )
    (axis,) = spectrum_panels([SpectrumPanel("", spike)]).axes
    highest = float(wide.density.max())
    assert axis.get_ylim()[1] <= 2.5 * highest / ROOM + 1e-12
    assert ("↑ 500" in texts(axis)) == (peak == 500)
    assert axis.get_ylim()[1] >= highest / ROOM


def test_what_training_cannot_tell_from_zero_is_said_of_the_theory_too(trained):
    near = dataclasses.replace(law(), values=np.where(law().levels < 0.55, 1e-5 * (law().levels > 0.4), law().values))
    (axis,) = spectrum_panels([SpectrumPanel("", near, trained)]).axes
    assert texts(axis) == ["40 % at zero, 55 % below 0.004\n(trained 41 %)"]


def test_outliers_are_ticks_and_trained_ones_are_dots(trained):
    spiked = trained.copy()
    spiked[:, -1] = np.linspace(6.8, 7.2, 16)
    figure = spectrum_panels([SpectrumPanel("spike", law(outliers=(7.0,)), spiked)])
    (axis,) = figure.axes
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["theory", "trained", "predicted outlier", "trained, outside"]
    dots = [line for line in axis.lines if line.get_marker() == "o" and len(line.get_xdata()) == 16]
    np.testing.assert_array_equal(np.sort(dots[0].get_xdata()), spiked[:, -1])
    render(figure)


def test_everything_cut_and_one_eigenvalue():
    empty = Spectrum(*(np.empty(0),) * 2, 1.0, np.empty((0, 2)), np.empty(0), law().levels, 0 * law().levels)
    for eigenvalues in (None, np.zeros((2, 5)), np.r_[np.zeros(4), 0.3]):
        figure = spectrum_panels([SpectrumPanel("all cut", empty, eigenvalues)])
        assert texts(figure.axes[0])[0].startswith("100 % at zero")
        assert all(np.isfinite(figure.axes[0].get_xlim()))
        render(figure)
        # an empty line must not be laid out at the corner of the figure
        assert figure.axes[0].get_position().x0 < 0.25


@pytest.mark.exact
@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0])
def test_the_outline_of_a_wishart_target_has_its_moments(ratio):
    """The mass is the rank, the mean square that of the law by which the theory computes."""
    target = Wishart(ratio)
    s, density = target.outline()
    n = len(s)  # the points are even in an angle, in which the midpoint rule converges fast
    low, high = (np.sqrt(ratio) - 1) ** 2 / np.sqrt(ratio), (np.sqrt(ratio) + 1) ** 2 / np.sqrt(ratio)
    weights = np.pi / n * (high - low) / 2 * np.sin((np.arange(n) + 0.5) / n * np.pi)
    assert weights @ density == pytest.approx(target.rank, rel=1e-4)  # a square root at r = 1 costs digits
    assert weights @ (s**2 * density) == pytest.approx(target.law.square, rel=1e-10)


@pytest.mark.negative
def test_the_outline_of_another_ratio_has_others():
    s, density = Wishart(0.5).outline()
    assert abs(np.trapezoid(s**2 * density, s) / Wishart(0.55).law.square - 1) > 0.01


def test_a_target_stands_behind(trained):
    panel = SpectrumPanel("", law(), trained, target=Wishart(0.5))
    figure = spectrum_panels([panel])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["theory", "trained", "target"]
    heights = [bar.get_height() for bar in figure.axes[0].child_axes[0].patches]
    assert heights == pytest.approx([0.5, 0.40, 0.41], rel=1e-12)
    render(figure)
    for target, count in ((Eigenvalues((0.0, 1.0, 3.0)), 2), (PowerLaw(1.5, 30), 30)):
        figure = spectrum_panels([SpectrumPanel("", law(), target=target)])
        (ticks,) = [c for c in figure.axes[0].collections if len(c.get_paths()) == count]
        np.testing.assert_allclose(
            sorted(p.vertices[0, 0] for p in ticks.get_paths()), sorted(target.eigenvalues()[target.eigenvalues() > 0])
        )
        render(figure)


def test_repeats_that_diverged_are_left_out(trained):
    broken = trained.copy()
    broken[3] = np.nan
    (axis,) = spectrum_panels([SpectrumPanel("", law(), broken)]).axes
    assert texts(axis) == ["40 % at zero (trained 41 %)"]
    render(spectrum_panels([SpectrumPanel("", law(), np.full((2, 9), np.nan))]))


def test_panels_stand_in_rows():
    figure = spectrum_panels([SpectrumPanel(str(i), law()) for i in range(5)], columns=2)
    assert len(figure.axes) == 6
    assert [axis.get_title() for axis in figure.axes[:5]] == list("01234")
    assert not figure.axes[5].axison
    fixed = spectrum_panels([SpectrumPanel("", law(), limits=(-1.0, 2.0))])
    assert fixed.axes[0].get_xlim() == (-1.0, 2.0)


def test_nothing_to_draw_is_one_sentence():
    with pytest.raises(InvalidParameter, match="there is nothing to draw"):
        spectrum_panels([])
    with pytest.raises(InvalidParameter, match="give a spectrum, eigenvalues or both"):
        SpectrumPanel("none", None)


def test_drawing_leaves_the_settings_alone(trained):
    with matplotlib.rc_context({"axes.titlesize": 31.0}):
        figure = spectrum_panels([SpectrumPanel("t", law(), trained)])
        assert matplotlib.rcParams["axes.titlesize"] == 31.0
    assert figure.axes[0].title.get_fontsize() == 10.0

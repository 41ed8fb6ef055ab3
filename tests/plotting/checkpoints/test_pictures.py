"""Pictures of real checkpoints show what they are given."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.probing.probe import PUBLISHED
from needlepoint.plotting.checkpoints.heads import head_maps, spectra_grid
from needlepoint.plotting.checkpoints.losses import loss_panels
from needlepoint.plotting.checkpoints.probes import probe_bars

TEXT = "The old man walked to the harbour. She read a long letter on the train. It was very nice in our city. " * 20


@pytest.fixture
def checkpoint(tmp_path):
    return ndl.read_checkpoint(tiny_checkpoint(tmp_path, "bert"))


def test_every_value_of_every_head_is_in_the_grid(checkpoint):
    report = ndl.heads(checkpoint)
    figure = spectra_grid(report)
    assert [axis.get_ylabel() for axis in figure.axes] == ["layer 0", "layer 1"]
    drawn = sum(len(line.get_xdata()) for axis in figure.axes for line in axis.lines if line.get_linestyle() == "None")
    assert drawn == sum(len(h.values) for h in report.heads)


def test_a_deep_model_has_two_columns(tmp_path):
    report = ndl.heads(ndl.read_checkpoint(tiny_checkpoint(tmp_path, "llama", layers=13)))
    figure = spectra_grid(report)
    assert len(figure.axes) == 14
    assert sum(axis.get_visible() for axis in figure.axes) == 13
    figure.canvas.draw()


def test_maps_have_a_cell_for_every_head(checkpoint):
    report = ndl.heads(checkpoint)
    rank, outliers, *_ = head_maps(report).axes
    assert rank.images[0].get_array().shape == (2, 4)
    assert outliers.images[0].get_array().sum() == sum(report.outliers_by_layer().values())


def test_losses_are_drawn_at_the_chosen_ranks(checkpoint):
    cut = ndl.truncation(checkpoint, text=TEXT)
    ranks = cut.ranks(rank=3)
    effect = cut.effect(ranks)
    left, right = loss_panels(cut, effect, ranks).axes
    predicted = left.lines[0].get_ydata()
    np.testing.assert_allclose(predicted, [h.predicted[3] for h in cut.heads])
    assert len(right.lines) == len(cut.heads) + 1
    whole = cut.ranks(rank=8)
    loss_panels(cut, cut.effect(whole), whole).canvas.draw()  # nothing is lost, so there is nothing to draw on the left


def test_bars_carry_their_intervals_and_the_published_ones(checkpoint):
    report = ndl.probe(checkpoint, sentences=40)
    axis = probe_bars(report, PUBLISHED).axes[0]
    heights = [bar.get_height() for bar in axis.patches]
    want = [report.bars(p)[name].share for p in ("first", "mean") for name in report.bars(p)]
    np.testing.assert_allclose(heights, want)
    assert [text.get_text().replace("\n", " ") for text in axis.get_xticklabels()] == list(PUBLISHED)

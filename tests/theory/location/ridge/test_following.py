"""Minima of sequences that are followed from step to step: the ends are those of an iteration that searches always."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.numerics.fixed_points import linearised_rows
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.ridge.branches import STARTS
from needlepoint.theory.location.ridge.equations import COARSE, SCRAMBLES, Equations, unpack

PLAIN = Equations(ndl.SpikedSLR(3, 3.0, noise=0.1), ndl.KeyValueAttention(ndl.Softmax()), 4.0, (0.2, 0.6), COARSE, 1, 0)
LOOSE = [1.0, np.log(2.0), np.log(30.0)] * 2
"""Coordinates at which sequences have several minima."""
FOLLOWING = dataclasses.replace(PLAIN, follows=True)


@pytest.mark.exact
@float64
def test_an_iteration_that_follows_minima_ends_where_one_that_searches_does():
    start = STARTS["informed"][None]
    ends = [equations.settle(start, 1e-6) for equations in (PLAIN, FOLLOWING)]
    # both stop at steps below 1e-6; the map contracts by less than one half here, so that ends differ by less than 1e-5
    assert np.max(np.abs(ends[0].x - ends[1].x)) < 1e-5
    # the residual that is reported is that of the map with a search, not of the cheap one
    fresh = dataclasses.replace(PLAIN)
    residual = np.max(np.abs(fresh.map(ends[1].x) - ends[1].x))
    assert ends[1].residual[0] == pytest.approx(residual, rel=1e-6, abs=1e-12)


@pytest.mark.negative
@float64
def test_minima_that_are_only_followed_can_be_left_behind_by_lower_ones():
    """With loose weights sequences have several minima, and those followed from far away are not the lowest: this is
    why an iteration ends with a search."""
    loose = dataclasses.replace(FOLLOWING, penalties=(0.01, 0.01))
    far, here = unpack(STARTS["uninformed"][None]), unpack(np.array([LOOSE]))
    searched = float(np.mean(loose.means(here).envelope))
    other = dataclasses.replace(loose)  # what the first has found at this order is not known to it
    with other.following(far):
        followed = float(np.mean(other.means(here).envelope))
    assert followed > searched * 1.001


ROWS = dataclasses.replace(PLAIN, scrambles=SCRAMBLES)


@pytest.mark.exact
@float64
def test_slopes_of_followed_minima_are_those_of_searches():
    x = np.repeat(STARTS["informed"][None], SCRAMBLES, axis=0)
    searched, followed = (linearised_rows(ROWS.map, nearby=nearby)(x) for nearby in (None, ROWS.nearby))
    np.testing.assert_array_equal(followed[0], searched[0])  # the values are of a search either way
    # minima are known to 1e-6, forces follow them by a factor of order one, and differences are over a step of 1e-3
    np.testing.assert_allclose(followed[1], searched[1], rtol=0, atol=1e-3)


@pytest.mark.negative
@float64
def test_followed_from_far_away_the_map_is_another():
    """Left to themselves, minima with loose weights stay behind: only differences are taken between followed ones."""
    far, here = (np.repeat(x[None], SCRAMBLES, axis=0) for x in (STARTS["uninformed"], np.array(LOOSE)))
    other = dataclasses.replace(ROWS)
    other.map(far)
    # a hundred times the rounding that the test above allows
    assert np.max(np.abs(other.nearby(here) - ROWS.map(here))) > 0.01

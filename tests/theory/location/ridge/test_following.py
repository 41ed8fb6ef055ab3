"""Minima of sequences that are followed from step to step: the ends are those of an iteration that searches always."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.channels.any_activation import AFTER
from needlepoint.numerics.fixed_points import anderson, linearised_rows
from needlepoint.numerics.precision import float64
from needlepoint.theory.curves import predict_curves
from needlepoint.theory.location.ridge.accuracy import ACCURACY
from needlepoint.theory.location.ridge.branches import STARTS
from needlepoint.theory.location.ridge.equations import COARSE, SCRAMBLES, Equations, unpack
from needlepoint.theory.location.ridge.fields import _followed, settled

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
    # the residual that is reported is that of the map with a search, not of the cheap one; minima are known to 1e-6
    early = FOLLOWING.settle(start, 1e-2)
    residual = np.max(np.abs(dataclasses.replace(PLAIN).map(early.x) - early.x))
    assert residual > 1e-4
    assert early.residual[0] == pytest.approx(residual, abs=1e-6)


@pytest.mark.negative
@float64
def test_minima_that_are_only_followed_can_be_left_behind_by_lower_ones():
    """With loose weights sequences have several minima, and those followed from far away are not the lowest: this is
    why an iteration ends with a search."""
    loose = dataclasses.replace(FOLLOWING, penalties=(0.01, 0.01))
    far, here = unpack(STARTS["uninformed"][None]), unpack(np.array([LOOSE]))
    searched = float(np.mean(loose.means(here).envelope))
    other = dataclasses.replace(loose)  # what the first has found at this order is not known to it
    with other.following(other.minima(far)):
        followed = float(np.mean(other.means(here).envelope))
    assert followed > searched * 1.001


ROWS = dataclasses.replace(PLAIN, scrambles=SCRAMBLES)
JUMPING = dataclasses.replace(ROWS, alpha=2.5, penalties=(0.12, 0.5))
"""Few samples and weak penalties: some sequences have two minima at the solution."""


@float64
def ends_from_wrong_minima(confirmed):
    """Where an iteration ends that begins from minima of sequences at other coordinates, and where one does that always
    searches."""
    start = dataclasses.replace(JUMPING, scrambles=1).settle(STARTS["informed"][None], 1e-6).x
    slopes = np.repeat(JUMPING.slope(start[0])[None], SCRAMBLES, axis=0)
    rows, far = (np.repeat(np.atleast_2d(x), SCRAMBLES, axis=0) for x in (start, LOOSE))
    searched = dataclasses.replace(JUMPING).solve(rows, 1e-6, slopes, most=40)
    following = dataclasses.replace(JUMPING, follows=True)
    following.recall(following.minima(unpack(far)))
    if confirmed:
        return following.solve(rows, 1e-6, slopes, most=40), searched
    with following.following():
        return anderson(following.map, rows, tol=1e-6, most=40, slope=slopes), searched


@pytest.mark.exact
def test_a_search_at_its_end_brings_an_iteration_back_from_wrong_minima():
    confirmed, searched = ends_from_wrong_minima(True)
    # far below the differences between scramblings is all that is asked of an iteration
    apart = ACCURACY.quiet * np.max(np.std(searched.x, axis=0))
    assert np.max(np.abs(confirmed.x - searched.x)) < apart
    assert np.max(confirmed.residual) < apart


@pytest.mark.negative
def test_without_that_search_it_takes_wrong_minima_for_a_solution():
    followed, searched = ends_from_wrong_minima(False)
    assert np.max(followed.residual) < 1e-6  # it believes to have converged
    assert np.max(np.abs(followed.x - searched.x)) > 2 * ACCURACY.quiet * np.max(np.std(searched.x, axis=0))


@pytest.mark.exact
@float64
def test_few_steps_follow_minima_as_far_as_many():
    x = np.repeat(STARTS["informed"][None], SCRAMBLES, axis=0)
    near = unpack(x + 0.1)  # a large step of an iteration
    equations = dataclasses.replace(JUMPING)
    ((_, base),), (known,) = equations.blocks, equations.minima(unpack(x))
    few, many = (settled(*equations.kinds, *equations.numbers, near, base, known, steps) for steps in (3, AFTER))
    assert np.max(few.left) <= ACCURACY.far
    # `far` is about how far a score may be from its minimum
    assert np.max(np.abs(np.asarray(few.scores) - np.asarray(many.scores))) < 10 * ACCURACY.far


@pytest.mark.negative
@float64
def test_one_step_alone_does_not():
    x = np.repeat(STARTS["informed"][None], SCRAMBLES, axis=0)
    equations = dataclasses.replace(JUMPING)
    ((_, base),), (known,) = equations.blocks, equations.minima(unpack(x))
    found = _followed(*equations.kinds, 1, *equations.numbers, unpack(x + 0.1), base, known)
    assert np.max(found.left) > 100 * ACCURACY.far


@pytest.mark.quadrature
def test_a_curve_that_keeps_minima_is_its_points():
    model = ndl.KeyValueAttention(ndl.Softmax())
    curve = [(ndl.SpikedSLR(3, 3.0, noise=0.1), model, ndl.Ridge(alpha, "optimal")) for alpha in (3.6, 4.0)]
    (together,) = predict_curves([curve])
    alone = ndl.predict(*curve[1], throw=False)
    assert together[1].status is alone.status
    gap = abs(together[1].excess_risk.value - alone.excess_risk.value)
    assert gap <= together[1].excess_risk.error + alone.excess_risk.error


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

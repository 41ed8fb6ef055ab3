"""Sobol points: those of scipy, bit for bit, and what they are for."""

import numpy as np
import pytest
from scipy import stats

from needlepoint.numerics.sobol import sobol_points


@pytest.mark.exact
@pytest.mark.parametrize(("dimension", "log2_points"), [(1, 0), (1, 5), (2, 9), (7, 12), (48, 10), (49, 6)])
def test_the_points_are_those_of_scipy(dimension, log2_points):
    for seed in range(3):
        mine = sobol_points(dimension, log2_points, np.random.default_rng(seed))
        engine = stats.qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(seed))
        assert np.array_equal(mine, engine.random_base2(log2_points))


@pytest.mark.exact
def test_consecutive_scramblings_go_on_with_the_generator():
    mine, theirs = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(3):
        a = sobol_points(4, 6, mine)
        b = stats.qmc.Sobol(4, scramble=True, rng=theirs).random_base2(6)
        assert np.array_equal(a, b)


@pytest.mark.exact
def test_every_dyadic_interval_has_its_share():
    points = sobol_points(20, 8, np.random.default_rng(1))
    for column in points.T:
        assert np.array_equal(np.bincount((column * 256).astype(int), minlength=256), np.ones(256))

"""Trajectories made by hand: nothing is trained for a picture's test."""

import numpy as np
import pytest

from needlepoint.core.overlaps import FIVE
from needlepoint.core.results import Trajectory


def make(runs=6, records=20, seed=0, off=0.3, branches=("oracle", "swapped", "other")):
    """Random paths; `off` is the size of the three overlaps that vanish on the manifold."""
    rng = np.random.default_rng(seed)
    sizes = (0.9, 0.9, off, off, off)
    overlaps = {name: s * rng.uniform(-1, 1, (runs, records)) for name, s in zip(FIVE, sizes, strict=True)}
    ends = tuple(branches[i % len(branches)] for i in range(runs))
    steps, scale = 250 * np.arange(records), 1 / (1 + np.arange(records))
    return Trajectory(steps, scale, overlaps, rng.uniform(0, 4, (runs, records)), ends)


@pytest.fixture
def trajectory():
    return make

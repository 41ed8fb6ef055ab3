"""The numbers that steer the means of attention weights over the fields, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MomentsAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; `benchmarks/honesty` and the tests of this
    room hold what comes of it.
    """

    # elementwise.py

    steep: float = 4.0
    """Largest slope of erf(slope x + turn) at which the lattice of x is exact to rounding; above it that of t is."""

    step_t: float = 0.4
    """Step of the lattice of t in eq:steep-erf."""

    last_t: int = 16
    """Index of the last node of that lattice on either side."""

    # kernels.py

    table: int = 20_000_000
    """Largest number of (u, score) pairs; beyond it the kernel is too steep for this route."""

    wide: float = 2.0
    """Slope of log w per standard deviation of the score above which the step in u grows with it."""

    bend: float = 8.0
    """The b of the map u = c + tau + b exp(tau / b) that lengthens the steps, in units of u."""

    block: int = 2_000_000
    """(u, score) pairs held in memory at once."""

    # place_race.py

    gumbel_nodes: int = 96
    """Nodes of the rule over the Gumbel noise with up to 50 tokens; longer sequences take two or four times as many."""

    dense: int = 400
    """Nodes up to which a convolution is faster as a product with a matrix than by FFT."""

    soft: float = 1.0
    """Below this snr the Gumbel noise is wider than the key field: its law is the smooth one, the sum is over the
    field."""

    fine: int = 8
    """Divisions of the rule's step, so many that quintic interpolation is exact to rounding."""

    # sampled.py

    chunk: int = 2**22
    """Normals held at once."""

    largest_dimension: int = 21_201
    """Largest dimension of the Sobol sequence that SciPy provides."""

    # score_nodes.py

    sharp: float = 6.0
    """Largest snr at which the law of the place is smooth enough for the lines of a product."""

    points: int = 2**21
    """About how many normals all scramblings hold together."""


ACCURACY = MomentsAccuracy()

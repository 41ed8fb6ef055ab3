"""The numbers that steer sampling, training and message passing on fields, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldTrainingAccuracy:
    """Steps, tolerances and sizes, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; the tests of this room hold what comes of it.
    """

    # problem.py

    largest: float = 4e8
    """Most numbers in a data set (3.2 GB)."""

    drawn: int = 256
    """Sequences drawn at once, so that one compilation serves every n and copies are small."""

    drawn_numbers: int = 4_000_000
    """Fewer sequences are drawn at once if they have more numbers than this (32 MB)."""

    cached: int = 2**18
    """Numbers in a block that is multiplied by all columns while it is in the cache (2 MB)."""

    padded: int = 8192
    """Sequences whose small derivatives are taken at once; fewer are padded to a power of two."""

    tolerance: float = 1e-6
    """Slope at which a minimum has been found; `Problem.tolerance` says in which units."""

    # gauges.py

    gauge_sequences: int = 8
    """Random sequences on which an exchange or a change of sign of columns is tried."""

    gauge_tolerance: float = 1e-9
    """Change of the output, relative to its size, below which it is rounding."""

    most_gauges: int = 4096
    """Most changes that are tried; with more columns than that allows, signs are tried by kinds of columns."""

    # amp.py

    amp_steps: int = 600
    """Most steps of message passing."""

    amp_damping: float = 0.5
    """Share of the old state; undamped, modes that the pattern of V leaves out grow and single sequences oscillate."""

    amp_least: float = 0.5
    """Least curvature that a column is given, as a share of the least penalty; at a minimum it is above the penalty
    but for columns whose fields the loss bends down."""

    newton_steps: int = 60
    """Most steps of the search for a sequence's reply; most need fewer than ten."""

    newton_tolerance: float = 1e-11
    """Slope, in units of the root of V, at which a reply has been found."""

    # bayes.py

    noises: int = 151
    """Values of the label's noise over which its mean is taken."""

    noise_reach: float = 6.5
    """The largest of them; one in ten thousand million is larger."""

    # dynamics.py

    largest_sample: int = 100_000_000
    """Most token coordinates of a fixed sample (800 MB)."""

    rtol: float = 1e-6
    """Relative tolerance of the integrator of a flow, far below the sampling error."""


ACCURACY = FieldTrainingAccuracy()

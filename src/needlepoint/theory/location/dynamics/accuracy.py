"""The numbers that steer descent, flow and SGD in the overlaps, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DynamicsAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; `benchmarks/honesty` and the tests of this
    room hold what comes of it.
    """

    # descent.py

    records: int = 64
    """Records of one compiled call: always as many, so that it is compiled once."""

    runs: int = 4096
    """Runs of one compiled call in a batch."""

    shadow: float = 1.0 - 2.0**-48
    """Given starts run again, moved by this factor: the difference shows how rounding grows."""

    # elementwise_rates.py

    spiked_nodes: int = 256
    """Nodes of the trapezoid rule over the score of a spiked token."""

    # flow.py

    tight: float = 1e-9
    """Relative tolerance of the integrator."""

    loose: float = 1e-7
    """Relative tolerance of a second path: its difference from the first is the error."""

    sampled: float = 1e-6
    """Relative tolerance where the field is sampled, which makes a larger error."""

    diverged: float = 1e8
    """A path with an overlap beyond this counts as diverged."""

    # sgd_on_spheres.py

    block: int = 256
    """Most steps of one compiled call."""

    budget: int = 4_000_000
    """Most normals drawn at once."""

    tiny: float = 1e-150
    """Least divisor, so that 0 / 0 is 0."""


ACCURACY = DynamicsAccuracy()

"""The numbers that steer the closed forms of erf attention and the search for their optima, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ErfAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; `benchmarks/honesty` and the tests of this
    room hold what comes of it.
    """

    # many_optima.py

    block: int = 256
    """Points of one compiled call."""

    calls: int = 12
    """Most calls of Newton's method, each with the questions that have not ended."""

    lower: float = 1e-9
    """By how much a risk must be lower to count as lower, in units of the label's variance."""

    scanned: float = 1e-6
    """The same for a scanned risk, whose quadrature is coarse."""

    far: float = 1e-3
    """The same at the largest norm scanned, where the risk is only about this close to its limit."""

    linear: float = 0.03
    """erf scale times |k| below which an unfinished run is taken to go to k = 0, where erf is linear."""

    narrow: float = 1e-3
    """Smallest erf scale times |k| of a finished run that counts as a minimum (if constants are free)."""

    tilts: tuple[float, float] = (0.05, 0.4)
    """Angles to k* at which a lower risk is looked for, in radians."""

    # newton.py

    steps: int = 12
    """Steps of Newton's method in one call; questions that need more go into the next, smaller call."""

    radius: float = 0.7
    """Longest move, in log |k| and the units of the constants."""

    short: float = 1e-7
    """Length of a move after which only rounding is left."""

    # on_spheres.py

    random_starts: int = 48
    """Random starts of the search on spheres."""


ACCURACY = ErfAccuracy()

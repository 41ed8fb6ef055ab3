"""The numbers that steer the search for best penalties, in one place."""

from __future__ import annotations

from dataclasses import dataclass

LOWEST, HIGHEST = 1e-3, 1e3
"""Bounds of the search for the penalties."""


@dataclass(frozen=True)
class PenaltyAccuracy:
    """The numbers that steer the search, set by hand. The risk of predicting zero is about 1."""

    grid: tuple[float, ...] = (0.03, 0.3, 3.0)
    """Common penalties that a search for the best ones starts from."""

    far: float = 0.1
    """Points of this grid whose risk is so much above the best of them are not solved again at the next point of a
    curve."""

    solves: int = 12
    """Most solutions along one descent to the best penalties."""

    enough: float = 1e-2
    """A descent ends where the risk would fall by less than this share of its tolerance."""

    share: float = 0.15
    """Penalties are good enough if their risk is surely within this share of its tolerance above the least."""

    checks: int = 3
    """Most rounds in which independent scramblings correct the penalties."""

    checks_most: int = 5
    """The same where the risk may be above the least by more than half of its tolerance."""

    reach: float = 0.4
    """Distance of log penalties over which these rounds take differences of the risk."""

    finer: int = 1
    """Most doublings of the points of these rounds. What noise is left is stated with the answer."""

    finest: int = 3
    """The same where the risk may be above the least by more than half of its tolerance."""

    rows: int = 5
    """Fewest scramblings, of eight, that must have a solution for a gradient's error to be known."""

    bound: float = 0.02
    """Difference of log penalties within which they are at a bound."""

    response_step: float = 0.03
    """Step of the central differences of the map in each coordinate, from which the response to penalties follows."""

    trend: float = 0.3
    """Largest move of a coordinate by extrapolation."""

    rate: float = 0.75
    """The error is taken to fall as the inverse of the number of points to this power."""


ACCURACY = PenaltyAccuracy()

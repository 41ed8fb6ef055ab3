"""What a search for the best penalties comes back with, and what it adds to the error of the risk."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.status import Status
from needlepoint.numerics.trust_region import Place
from needlepoint.theory.penalties.accuracy import ACCURACY
from needlepoint.theory.penalties.sensitivity import Sensitivity


@dataclass(frozen=True)
class Trail:
    """What a search leaves for the next one along a curve: where it ended, the curvature there, and its first grid."""

    place: Place
    curvature: np.ndarray
    grid: dict[float, Sensitivity]


@dataclass(frozen=True)
class Best:
    """The penalties of least predicted risk, one a kind of weight.

    known      the fixed point there, by the points of the search; `solves` of them on the way
    shortfall  how far the risk at these penalties may be above the least one
    factor     the penalties are known to this factor, the same for all where they are one
    """

    penalties: tuple[float, ...]
    known: Sensitivity | None
    shortfall: float
    factor: tuple[float, ...]
    solves: int
    notes: tuple[str, ...] = ()
    trail: Trail | None = None

    @property
    def x(self) -> np.ndarray | None:
        """Return the coordinates (k,) of the fixed point."""
        return None if self.known is None else self.known.x

    def left(self, tol: float) -> float:
        """Return the tolerance that the solution at these penalties has, so that with the shortfall it is `tol`."""
        return tol - min(max(self.shortfall, ACCURACY.share * tol), tol / 2)

    def how_known(self, scale: float = 1.0) -> str:
        """Return a sentence that says how well the best penalties are known; `scale` is the unit of the risk."""
        if math.isinf(self.shortfall):
            return (
                "how far the risk at these penalties is above the least is not known: too few scramblings are solved."
            )
        factors = " and ".join(f"{max(x, 1.01):.2f}" for x in self.factor)
        verb = "penalty is" if len(self.factor) == 1 else "penalties are"
        above = f"the risk is at most {scale * self.shortfall:.1g} above the least"
        return f"the best {verb} known to a factor of {factors}; {above}."


def raised(risk: Estimate, status: Status, shortfall: float, tol: float) -> tuple[Estimate, Status]:
    """Return a risk with the shortfall added to its error, and its status: converged if the sum is known and within
    `tol`. The solution's own tolerance was smaller, to leave room for that."""
    known = not math.isinf(shortfall)
    error = risk.error + (shortfall if known else 0.0)
    if status in (Status.CONVERGED, Status.NOISE_LIMITED):
        status = Status.CONVERGED if known and error <= tol else Status.NOISE_LIMITED
    return replace(risk, error=error), status

"""What one step of replica symmetry breaking says beyond the ground state: the states that lie above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from needlepoint.core.estimates import Estimate
from needlepoint.core.text.jsonio import plain


@dataclass(frozen=True, eq=False)
class States:
    """The minima of the training objective, as states, along the breaking parameter x.

    breaking    the x of the ground state, where the complexity vanishes
    between     column -> product of that column with itself in two states (q_0); its squared norm is that of one state
    x, energy, complexity, free_energy
                arrays along the branch, computed with few points: states of this energy number exp(d times complexity)
    share       the effective share of the points of the inner average at the ground state

    >>> ndl.States(ndl.Estimate(10.7, 3.0), {"key": ndl.Estimate(0.33, 0.03)}).between["key"].value
    0.33
    """

    breaking: Estimate
    between: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    x: np.ndarray = field(default_factory=lambda: np.empty(0))
    energy: np.ndarray = field(default_factory=lambda: np.empty(0))
    complexity: np.ndarray = field(default_factory=lambda: np.empty(0))
    free_energy: np.ndarray = field(default_factory=lambda: np.empty(0))
    share: float = 1.0

    @property
    def largest_complexity(self) -> float:
        return float(np.max(self.complexity, initial=0.0))

    @property
    def threshold_energy(self) -> float:
        """Return the energy of the most numerous states."""
        return float(self.energy[int(np.argmax(self.complexity))])

    @property
    def text(self) -> str:
        """Return one line for people."""
        between = ", ".join(f"{name} {estimate}" for name, estimate in self.between.items())
        return (
            f"x = {self.breaking}, products of two of them: {between}; complexity at most "
            f"{self.largest_complexity:.2g}, at the energy {self.threshold_energy:.4g}"
        )

    def to_json(self) -> dict[str, Any]:
        return plain(
            {
                "breaking": self.breaking,
                "between": dict(self.between),
                "x": self.x,
                "energy": self.energy,
                "complexity": self.complexity,
                "free_energy": self.free_energy,
                "share": self.share,
                "largest_complexity": self.largest_complexity,
                "threshold_energy": self.threshold_energy,
            }
        )

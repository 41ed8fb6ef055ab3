"""A point of a study: where it is, and what theory and simulation say there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from needlepoint.core.comparison import Comparison
from needlepoint.core.results import Measurement, Prediction


@dataclass(frozen=True)
class StudyPoint:
    """`at` maps the swept paths to their values here; `message` says why there is no prediction or measurement."""

    at: Mapping[str, Any]
    prediction: Prediction | None = None
    measurements: tuple[Measurement, ...] = ()
    message: str = ""

    @property
    def comparison(self) -> Comparison | None:
        """Theory against simulation, where there are both and both can be used."""
        good = [m for m in self.measurements if m.status.ok]
        if self.prediction is None or not self.prediction.status.ok or not good:
            return None
        from needlepoint.theory.comparing import compare  # loads the theory

        return compare(self.prediction, good)

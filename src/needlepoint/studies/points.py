"""A point of a study: where it is, and what theory and simulation say there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from needlepoint.core.answers.comparison import Comparison
from needlepoint.core.results import Measurement, Prediction


@dataclass(frozen=True)
class StudyPoint:
    """A point of a study.

    at            the swept paths and their values here
    prediction    what theory says, if it has been computed
    measurements  what simulation says, one for each d
    message       why there is no prediction or measurement
    key, memory   comparisons that the study has made so far, by the `key` of what is compared. They are kept because
                  a comparison on the attention-indexed model solves the equations again for every target drawn.
    """

    at: Mapping[str, Any]
    prediction: Prediction | None = None
    measurements: tuple[Measurement, ...] = ()
    message: str = ""
    key: Hashable = None
    memory: dict[Hashable, Comparison] = field(default_factory=dict, repr=False, compare=False)

    @property
    def comparison(self) -> Comparison | None:
        """Return theory against simulation; None unless there are both and both can be used."""
        good = [m for m in self.measurements if m.status.ok]
        if self.prediction is None or not self.prediction.status.ok or not good:
            return None
        if self.key not in self.memory:
            from needlepoint.theory.comparing import compare  # imported late, because it loads the theory

            self.memory[self.key] = compare(self.prediction, good)
        return self.memory[self.key]

"""Several relevant tokens: the label is the sum of what they carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import count, real, spec
from needlepoint.tasks.sequence import Fields, SequenceTask


@spec
class SeveralSLR(SequenceTask):
    r"""eq:several-law. `relevant` of the tokens are shifted by $\sqrt{snr}$ along $k^*$; the label is the sum of their
    values over the square root of their number, $y = \sum_lv^*\cdot X_l/\sqrt r + noise\,\xi$.

    >>> ndl.SeveralSLR(tokens=3, snr=3.0, noise=0.1)
    SeveralSLR(tokens=3, snr=3.0, noise=0.1)
    """

    teachers: ClassVar[tuple[str, ...]] = ("key", "value")
    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("value",),)

    tokens: int = count(lo=1, why="it is the sequence length")
    snr: float = real(lo=0.0, largest=1e50, why="it shifts the relevant tokens")
    relevant: int = count(lo=1, default=2, why="it is the number of relevant tokens")
    noise: float = real(lo=0.0, largest=1e50, default=0.0, why="it is the standard deviation of the label noise")

    def check(self) -> None:
        if self.relevant > self.tokens:
            raise InvalidParameter(
                f"{self!r}: relevant must be at most tokens ({self.tokens}); the others are irrelevant."
            )

    def _here(self) -> np.ndarray:
        return np.arange(self.tokens) < self.relevant

    def shift(self, place: Any) -> Mapping[str, Any]:
        import jax.numpy as jnp

        return {"key": jnp.sqrt(self.snr) * self._here()}

    def seen(self, place: int) -> Mapping[str, Any]:
        return {"value": self._here()}

    def label(self, fields: Fields, place: Any, noise: Any) -> Any:
        return (fields.value * self._here()).sum() / np.sqrt(self.relevant) + self.noise * noise

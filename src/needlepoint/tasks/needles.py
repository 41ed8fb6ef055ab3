"""Several needles: each has a key and a value of its own, and one head finds only one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import count, real, spec
from needlepoint.tasks.sequence import Fields, SequenceTask


@spec
class Needles(SequenceTask):
    r"""eq:needles-law. Token $j$ of the first `needles` is shifted by $\sqrt{snr}$ along a key of its own, $k_j^*$, and
    the label is $\sum_jv_j^*\cdot X_j/\sqrt{needles} + noise\,\xi$.

    >>> ndl.Needles(tokens=3, snr=4.0).teachers
    ('key', 'key2', 'value', 'value2')
    """

    tokens: int = count(lo=1, why="it is the sequence length")
    snr: float = real(lo=0.0, largest=1e50, why="it shifts each needle along its key")
    needles: int = count(lo=1, default=2, why="it is the number of needles")
    noise: float = real(lo=0.0, largest=1e50, default=0.0, why="it is the standard deviation of the label noise")

    def check(self) -> None:
        if self.needles > self.tokens:
            raise InvalidParameter(f"{self!r}: needles must be at most tokens ({self.tokens}); each is a token.")

    def _named(self, name: str) -> tuple[str, ...]:
        return (name, *(f"{name}{j + 1}" for j in range(1, self.needles)))

    @property
    def teachers(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]  # depends on needles
        return (*self._named("key"), *self._named("value"))

    @property
    def flips(self) -> tuple[tuple[str, ...], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]  # as above
        return (self._named("value"),)

    def shift(self, place: Any) -> Mapping[str, Any]:
        import jax.numpy as jnp

        at = np.arange(self.tokens)
        return {name: jnp.sqrt(self.snr) * (at == j) for j, name in enumerate(self._named("key"))}

    def seen(self, place: int) -> Mapping[str, Any]:
        at = np.arange(self.tokens)
        return {name: at == j for j, name in enumerate(self._named("value"))}

    def label(self, fields: Fields, place: Any, noise: Any) -> Any:
        total = sum(fields[name][j] for j, name in enumerate(self._named("value")))
        return total / np.sqrt(self.needles) + self.noise * noise

"""Sign labels: the label says only on which side of a hyperplane the relevant token lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.specs import count, real, spec
from needlepoint.tasks.sequence import Fields, SequenceTask


@spec
class SignSLR(SequenceTask):
    r"""eq:sign-law. Tokens as in SpikedSLR, the first one shifted by $\sqrt{snr}$ along $k^*$; $y =
    \mathrm{sign}(v^*\cdot X_1 + noise\,\xi)$.

    >>> ndl.SignSLR(tokens=2, snr=3.0)
    SignSLR(tokens=2, snr=3.0)
    """

    teachers: ClassVar[tuple[str, ...]] = ("key", "value")
    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("value",),)

    tokens: int = count(lo=1, why="it is the sequence length")
    snr: float = real(lo=0.0, largest=1e50, why="it shifts the relevant token")
    noise: float = real(lo=0.0, largest=1e50, default=0.0, why="it is the standard deviation of the noise in the sign")

    def shift(self, place: Any) -> Mapping[str, Any]:
        import jax.numpy as jnp

        return {"key": jnp.sqrt(self.snr) * (np.arange(self.tokens) == 0)}

    def seen(self, place: int) -> Mapping[str, Any]:
        return {"value": np.arange(self.tokens) == 0}

    def label(self, fields: Fields, place: Any, noise: Any) -> Any:
        import jax.numpy as jnp

        return jnp.sign(fields.value[0] + self.noise * noise)

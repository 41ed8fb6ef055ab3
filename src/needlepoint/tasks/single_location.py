"""Single-location regression: the label depends on one token at a hidden place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import Spec, lengths, real, spec

if TYPE_CHECKING:
    import jax


LARGEST = 1e50
"""Squares and products of the task's numbers stay finite below this."""


class FieldLaw(NamedTuple):
    """The Gaussian law of a token's fields (k* . x, v* . x, k . x, v . x), relevant and other tokens."""

    relevant_mean: np.ndarray
    relevant_covariance: np.ndarray
    other_covariance: np.ndarray


@spec
class SpikedSLR(Spec):
    r"""eq:slr-law. $X_l \sim N(0, I_d)$ except $X_J \sim N(\sqrt{snr}\,k^*, \gamma^2 I_d)$, $J$ uniform;
    $y = v^* \cdot X_J + noise\,\xi$ with orthonormal $k^*, v^*$.

    Arguments: `tokens`, a length or {length: probability}; `snr`, the squared shift of the relevant
    token; `relevant_std` = gamma; `noise`, the standard deviation of the label noise.
    The setting of arXiv 2410.01537 at dimension d is SpikedSLR(L, snr=d/2, relevant_std=gamma).
    """

    family: ClassVar[str] = "task"

    tokens: Any = lengths(why="it is the sequence length of eq:slr-law")
    snr: float = real(lo=0.0, largest=LARGEST, why="it scales the spike in eq:slr-law")
    relevant_std: float = real(
        lo=0.0, open_lo=True, largest=LARGEST, default=1.0, why="it is the spread of the relevant token in eq:slr-law"
    )
    noise: float = real(lo=0.0, largest=LARGEST, default=0.0, why="it is the standard deviation of the label noise")

    def check(self) -> None:
        if self.relevant_std < 1 / LARGEST:
            raise InvalidParameter(
                f"{self!r}: relevant_std must be at least {1 / LARGEST:g} (its square must not vanish)."
            )

    @property
    def length_law(self) -> tuple[tuple[int, float], ...]:
        """((length, probability), ...)."""
        return ((self.tokens, 1.0),) if isinstance(self.tokens, int) else self.tokens

    @property
    def fixed_length(self) -> int | None:
        return self.tokens if isinstance(self.tokens, int) else None

    @property
    def noise_var(self) -> float:
        """What separates risk from excess risk."""
        return self.noise**2

    def length_moments(self) -> dict[str, float]:
        """E[L - 1] and E[(L - 1)(L - 2)]: all an element-wise activation feels of the lengths."""
        law = self.length_law
        return {
            "task.others": sum(p * (n - 1) for n, p in law),
            "task.pairs": sum(p * (n - 1) * (n - 2) for n, p in law),
        }

    def field_law(self, overlaps: Overlaps) -> FieldLaw:
        """The law that samples projected onto (k*, v*, k, v) follow."""
        gram = overlaps.gram()
        return FieldLaw(np.sqrt(self.snr) * gram[:, 0], self.relevant_std**2 * gram, gram)

    def sample(
        self, key: jax.Array, k_star: jax.Array, v_star: jax.Array, n: int, length: int
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """n sequences of one length: X (n, length, d), labels y (n,), places J (n,)."""
        return sample_spiked(
            key, k_star, v_star, n, length, snr=self.snr, relevant_std=self.relevant_std, noise=self.noise
        )


def sample_spiked(
    key: jax.Array,
    k_star: jax.Array,
    v_star: jax.Array,
    n: int,
    length: int,
    *,
    snr: Any,
    relevant_std: Any,
    noise: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """eq:slr-law sampled with real vectors; the numbers may be traced."""
    import jax
    import jax.numpy as jnp

    tokens_key, place_key, label_key = jax.random.split(key, 3)
    x = jax.random.normal(tokens_key, (n, length, k_star.shape[-1]), dtype=k_star.dtype)
    place = jax.random.randint(place_key, (n,), 0, length)
    relevant = (jnp.arange(length) == place[:, None])[..., None]
    x = jnp.where(relevant, relevant_std * x + jnp.sqrt(snr) * k_star, x)
    clean = jnp.sum(jnp.where(relevant, x, 0.0), axis=1) @ v_star
    return x, clean + noise * jax.random.normal(label_key, (n,), dtype=x.dtype), place

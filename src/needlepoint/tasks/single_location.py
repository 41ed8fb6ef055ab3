"""Single-location regression: the label depends on one token at a hidden place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import lower
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.specs import lengths, real, spec
from needlepoint.tasks.sequence import Fields, SequenceTask

if TYPE_CHECKING:
    import jax


LARGEST = 1e50
"""Squares and products of the task's numbers stay finite below this."""


Sequences = tuple["jax.Array", "jax.Array", "jax.Array"]
"""X (n, length, d), labels y (n,), places J (n,)."""


class FieldLaw(NamedTuple):
    """The Gaussian law of a token's fields (k* . x, v* . x, k . x, v . x), relevant and other tokens."""

    relevant_mean: np.ndarray
    relevant_covariance: np.ndarray
    other_covariance: np.ndarray


class MaxFieldLaw(NamedTuple):
    """All tokens' fields (k* . x, v* . x, k . x, v . x) have this covariance; J ~ softmax(snr * first field)."""

    covariance: np.ndarray
    snr: float


class SingleLocation(SequenceTask):
    """What the tasks share: teachers (key, value), a label that is the value of one token, label noise, and a sampler
    whose numbers may be traced."""

    teachers: ClassVar[tuple[str, ...]] = ("key", "value")
    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("value",),)

    # what every task of this kind declares as a field of its own
    tokens: int | tuple[tuple[int, float], ...]
    snr: float
    noise: float

    def places(self) -> int:
        return cast("int", self.tokens)

    def seen(self, place: int) -> Mapping[str, Any]:
        return {"value": np.arange(self.places()) == place}

    def label(self, fields: Fields, place: Any, noise: Any) -> Any:
        return fields.value[place] + self.noise * noise

    @property
    def noise_var(self) -> float:
        """What separates risk from excess risk."""
        return self.noise**2

    @property
    def label_var(self) -> float:
        """The variance of the clean label: the excess risk of predicting 0."""
        return self.relevant_spread**2

    # what tells the relevant token: its shift and its spread, or how its place depends on the fields

    @property
    def shift_sq(self) -> float:
        """The squared shift of the relevant token along k*."""
        return 0.0

    @property
    def relevant_spread(self) -> float:
        """The standard deviation of the relevant token."""
        return 1.0

    @property
    def tilt(self) -> float:
        """The inverse temperature of the place given the teacher's scores; 0 where it does not depend on them."""
        return 0.0

    def length_moments(self) -> dict[str, float]:
        """E[L - 1] and E[(L - 1)(L - 2)]."""
        law = self.length_law
        return {
            "task.others": sum(p * (n - 1) for n, p in law),
            "task.pairs": sum(p * (n - 1) * (n - 2) for n, p in law),
        }

    @staticmethod
    def draw(
        key: jax.Array, k_star: jax.Array, v_star: jax.Array, n: int, length: int, law: Mapping[str, Any]
    ) -> Sequences:
        """n sequences of one length; `law` has the task's numbers, `lower(task)[1]`."""
        raise NotImplementedError

    @staticmethod
    def place_scores(x: jax.Array, k_star: jax.Array, law: Mapping[str, Any]) -> jax.Array:
        """log P(J = l | X) up to a constant, for sequences x (n, length, d)."""
        raise NotImplementedError

    def sample(self, key: jax.Array, k_star: jax.Array, v_star: jax.Array, n: int, length: int) -> Sequences:
        """n sequences of one length: X (n, length, d), labels y (n,), places J (n,)."""
        return self.draw(key, k_star, v_star, n, length, lower(self)[1])


@spec
class SpikedSLR(SingleLocation):
    r"""eq:slr-law. $X_l \sim N(0, I_d)$ except $X_J \sim N(\sqrt{snr}\,k^*, \gamma^2 I_d)$, $J$ uniform;
    $y = v^* \cdot X_J + noise\,\xi$ with orthonormal $k^*, v^*$.

    Arguments: `tokens`, a length or {length: probability}; `snr`, the squared shift of the relevant
    token; `relevant_std` = gamma; `noise`, the standard deviation of the label noise.
    The setting of arXiv 2410.01537 at dimension d is SpikedSLR(L, snr=d/2, relevant_std=gamma).

    >>> ndl.SpikedSLR(tokens=10, snr=2.0).noise_var
    0.0
    >>> ndl.SpikedSLR({2: 0.5, 4: 0.5}, snr=2.0).longest
    4
    """

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
    def shift_sq(self) -> float:
        return self.snr

    @property
    def relevant_spread(self) -> float:
        return self.relevant_std

    def shift(self, place: Any) -> Mapping[str, Any]:
        import jax.numpy as jnp

        return {"key": jnp.sqrt(self.snr) * (np.arange(self.tokens) == place)}

    def spread(self, place: Any) -> Any:
        import jax.numpy as jnp

        return cast("Any", jnp).where(np.arange(self.tokens) == place, self.relevant_std, 1.0)

    def field_law(self, overlaps: Overlaps) -> FieldLaw:
        """The law that samples projected onto (k*, v*, k, v) follow."""
        gram = overlaps.gram()
        return FieldLaw(np.sqrt(self.snr) * gram[:, 0], self.relevant_std**2 * gram, gram)

    @staticmethod
    def draw(
        key: jax.Array, k_star: jax.Array, v_star: jax.Array, n: int, length: int, law: Mapping[str, Any]
    ) -> Sequences:
        import jax
        import jax.numpy as jnp

        tokens_key, place_key, label_key = jax.random.split(key, 3)
        x = jax.random.normal(tokens_key, (n, length, k_star.shape[-1]), dtype=k_star.dtype)
        place = jax.random.randint(place_key, (n,), 0, length)
        here: jax.Array = cast("Any", jnp).arange(length) == place[:, None]
        relevant = here[..., None]
        x = jnp.where(relevant, law["relevant_std"] * x + jnp.sqrt(law["snr"]) * k_star, x)
        clean = jnp.sum(jnp.where(relevant, x, 0.0), axis=1) @ v_star
        return x, clean + law["noise"] * jax.random.normal(label_key, (n,), dtype=x.dtype), place

    @staticmethod
    def place_scores(x: jax.Array, k_star: jax.Array, law: Mapping[str, Any]) -> jax.Array:
        import jax.numpy as jnp

        spike = jnp.sqrt(law["snr"]) * k_star
        return -jnp.sum((x - spike) ** 2, axis=-1) / (2 * law["relevant_std"] ** 2) + jnp.sum(x**2, axis=-1) / 2


@spec
class MaxSLR(SingleLocation):
    r"""eq:max-law. $X_l \sim N(0, I_d)$, $P(J = l | X) \propto \exp(snr\,k^*\cdot X_l)$, the argmax for an infinite
    `snr`; $y = v^* \cdot X_J + noise\,\xi$ with orthonormal $k^*, v^*$.

    Arguments: `tokens`, a length or {length: probability}; `snr`, how sharply the relevant token is the one with
    the largest $k^*\cdot X_l$ (0 to infinity); `noise`, the standard deviation of the label noise.

    >>> import math
    >>> ndl.MaxSLR(tokens=3, snr=math.inf)
    MaxSLR(tokens=3, snr=inf)
    """

    tokens: Any = lengths(why="it is the sequence length of eq:max-law")
    snr: float = real(
        lo=0.0, infinite=True, largest=LARGEST, why="it is the inverse temperature of the place in eq:max-law"
    )
    noise: float = real(lo=0.0, largest=LARGEST, default=0.0, why="it is the standard deviation of the label noise")

    @property
    def tilt(self) -> float:
        return self.snr

    def seen(self, place: int) -> Mapping[str, Any]:
        return {"key": True, **super().seen(place)}

    def log_tilt(self, fields: Fields, place: Any) -> Any:
        import jax
        import jax.numpy as jnp

        if isinstance(self.snr, float) and math.isinf(self.snr):
            return jnp.where(jnp.argmax(fields.key) == place, jnp.log(self.tokens), -jnp.inf)
        return jnp.log(self.tokens) + jax.nn.log_softmax(self.snr * fields.key)[place]

    def field_law(self, overlaps: Overlaps) -> MaxFieldLaw:
        """The law that samples projected onto (k*, v*, k, v) follow."""
        return MaxFieldLaw(overlaps.gram(), self.snr)

    @staticmethod
    def draw(
        key: jax.Array, k_star: jax.Array, v_star: jax.Array, n: int, length: int, law: Mapping[str, Any]
    ) -> Sequences:
        import jax
        import jax.numpy as jnp

        tokens_key, place_key, label_key = jax.random.split(key, 3)
        x = jax.random.normal(tokens_key, (n, length, k_star.shape[-1]), dtype=k_star.dtype)
        scores = x @ k_star
        if "snr" in law:  # an infinite snr is not among the traced numbers
            scores = law["snr"] * scores + jax.random.gumbel(place_key, scores.shape, dtype=x.dtype)
        place = jnp.argmax(scores, axis=-1)
        clean = jnp.take_along_axis(x @ v_star, place[:, None], axis=-1)[:, 0]
        return x, clean + law["noise"] * jax.random.normal(label_key, (n,), dtype=x.dtype), place

    @staticmethod
    def place_scores(x: jax.Array, k_star: jax.Array, law: Mapping[str, Any]) -> jax.Array:
        import jax.numpy as jnp

        scores = x @ k_star
        behind = scores - jnp.max(scores, axis=-1, keepdims=True)
        return law["snr"] * behind if "snr" in law else jnp.where(behind == 0, 0.0, -jnp.inf)

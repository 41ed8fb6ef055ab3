"""Positional against semantic attention: labels that mix what tokens say with where they stand (arXiv 2402.03902)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.specs import real, spec
from needlepoint.tasks.sequence import Fields, SequenceTask


@spec
class PositionalSemantic(SequenceTask):
    r"""eq:positional-law. Two tokens $x_l = \pm p + \sigma N(0, I)$ with a positional vector $p$ of norm 1; the label
    is the attention matrix $(1 - \omega)\,\mathrm{softmax}(tt^\top) + \omega\,A$ with $t$ the tokens' semantic fields
    and $A$ the positional part, 0.6 on the diagonal and 0.4 off it.

    Fields are in units of $\sigma$, and so are penalties: with `Square(weight=sigma**2)` a penalty $r$ here is
    $\lambda/\sigma^2$ of the paper.

    >>> ndl.PositionalSemantic(omega=0.3, sigma=0.4)
    PositionalSemantic(omega=0.3, sigma=0.4)
    """

    teachers: ClassVar[tuple[str, ...]] = ("semantic", "positional")
    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("semantic",),)
    exchangeable: ClassVar[bool] = False
    tokens: ClassVar[int] = 2  # pyright: ignore[reportIncompatibleVariableOverride]  # always two

    omega: float = real(lo=0.0, hi=1.0, why="it is the weight of the positional part")
    sigma: float = real(lo=0.0, open_lo=True, largest=1e6, default=0.5, why="it is the spread of the tokens")

    def shift(self, place: Any) -> Mapping[str, Any]:
        return {"positional": np.array([1.0, -1.0]) / self.sigma}

    def seen(self, place: int) -> Mapping[str, Any]:
        return {"semantic": True}

    def label(self, fields: Fields, place: Any, noise: Any) -> Any:
        import jax
        import jax.numpy as jnp

        t = self.sigma * fields.semantic
        where = np.array([[0.6, 0.4], [0.4, 0.6]])
        return (1 - self.omega) * jax.nn.softmax(jnp.outer(t, t), axis=-1) + self.omega * where

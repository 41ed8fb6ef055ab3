"""Several heads: attention whose output is the sum of what each head reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from needlepoint.core.specs import count, nested, spec
from needlepoint.models.activations import Activation
from needlepoint.models.fields import FieldModel
from needlepoint.tasks.sequence import Fields


@spec
class MultiHead(FieldModel):
    r"""eq:multi-head. $f(X) = \sum_h\sum_l\sigma(Xk_h)_l\,(Xv_h)_l$: `heads` keys and values, one activation.

    >>> ndl.MultiHead(2, ndl.Softmax()).labels
    ('key1', 'key2', 'value1', 'value2')
    """

    linear: ClassVar[tuple[str, ...]] = ("value",)
    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("value",),)

    heads: int = count(lo=1, why="it is the number of heads")
    activation: Activation = nested("activation", why="it turns scores into token weights")

    def columns(self) -> Mapping[str, int]:
        return {"key": self.heads, "value": self.heads}

    def output(self, fields: Fields) -> Any:
        import jax
        import jax.numpy as jnp

        return jnp.sum(jax.vmap(self.activation, 1, 1)(fields.key) * fields.value)

    def free_constants(self) -> list[str]:
        return self.activation.free_constants()

"""Several heads: attention whose output is the sum of what each head reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.specs import count, nested, spec
from needlepoint.models.activations import Activation
from needlepoint.models.fields import FieldModel, Merged
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

    def merged(self) -> Merged | None:
        r"""eq:equal-heads. Return the one head $(k,u)$ that equal heads $k_h=k$, $v_h=u/H$ are; None for one head.

        >>> ndl.MultiHead(2, ndl.Softmax()).merged().penalties((0.3, 0.3, 0.4, 0.4))
        (0.6, 0.2)
        """
        if self.heads == 1:
            return None
        equal = np.ones((self.heads, 1))
        return Merged(MultiHead(1, self.activation), np.kron(np.diag([1.0, 1.0 / self.heads]), equal))

    def free_constants(self) -> list[str]:
        return self.activation.free_constants()

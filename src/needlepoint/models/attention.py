"""Models: attention with one key and one value, and the regression that cannot locate."""

from __future__ import annotations

from typing import Any, ClassVar

from needlepoint.core.lowering import lower
from needlepoint.core.specs import Spec, flag, nested, spec
from needlepoint.models.activations import Activation
from needlepoint.models.user_activations import bare


@spec
class KeyValueAttention(Spec):
    r"""eq:attention. $f(X) = \sum_l \sigma(X k)_l \, (X v)_l$; with `unit_norm` k and v are on the unit sphere.

    `activation` is a spec (Softmax(), Erf(...), one named by @activation) or a function from scores to weights.
    """

    family: ClassVar[str] = "model"

    activation: Activation = nested("activation", why="it turns scores into token weights")
    unit_norm: bool = flag(default=False)

    def __post_init__(self) -> None:
        if callable(self.activation) and not isinstance(self.activation, (Spec, type)):
            object.__setattr__(self, "activation", bare(self.activation))
        super().__post_init__()

    def constants(self) -> dict[str, float]:
        """The activation's constants, to be traced."""
        return lower(self.activation)[1]

    def free_constants(self) -> list[str]:
        """The activation's constants that are None, to be chosen by Population()."""
        return self.activation.free_constants()

    def __call__(self, x: Any, key: Any, value: Any) -> Any:
        """Predictions (n,) for sequences x (n, tokens, d)."""
        return ((self.activation(x @ key)) * (x @ value)).sum(axis=-1)


@spec
class LinearRegression(Spec):
    """No attention: one weight vector a position and an intercept. It cannot find a random place."""

    family: ClassVar[str] = "model"

"""Models: attention with one key and one value, and the regression that cannot locate."""

from __future__ import annotations

from typing import Any, ClassVar

from needlepoint.core.lowering import lower
from needlepoint.core.specs import Spec, choice, flag, nested, real, spec
from needlepoint.models.activations import Activation
from needlepoint.models.fields import FieldModel
from needlepoint.models.user_activations import bare
from needlepoint.tasks.sequence import Fields


@spec
class KeyValueAttention(FieldModel):
    r"""eq:attention. $f(X) = \sum_l \sigma(X k)_l \, (X v)_l$; with `unit_norm` k and v are on the unit sphere.

    `activation` is a spec (Softmax(), Erf(...), one named by @activation) or a function from scores to weights.

    >>> ndl.KeyValueAttention(ndl.Softmax())
    KeyValueAttention(activation=Softmax())
    >>> ndl.KeyValueAttention(ndl.Erf(scale=None)).free_constants()
    ['scale']
    """

    linear: ClassVar[tuple[str, ...]] = ("value",)
    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("value",),)

    activation: Activation = nested("activation", why="it turns scores into token weights")
    unit_norm: bool = flag(default=False)

    def __post_init__(self) -> None:
        if callable(self.activation) and not isinstance(self.activation, (Spec, type)):
            object.__setattr__(self, "activation", bare(self.activation))
        super().__post_init__()

    def columns(self) -> tuple[str, ...]:
        return ("key", "value")

    def output(self, fields: Fields) -> Any:
        return (self.activation(fields.key) * fields.value).sum()

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
    """No attention: one weight vector a position and an intercept. It cannot find a random place.

    >>> found = ndl.predict(ndl.SpikedSLR(4, snr=1.0), ndl.LinearRegression(), ndl.Population())
    >>> f"{found.excess_risk.value:.6f}"
    '0.750000'
    """

    family: ClassVar[str] = "model"


@spec
class TiedAttention(Spec):
    r"""eq:tied. Scores $z_{ab} = (x_a^\top Sx_b - \delta_{ab}\mathrm{Tr}S)/\sqrt d$ of $S = WW^\top/\sqrt{pd}$, $W$ of
    $d \times p$, and $\mathrm{softmax}(\beta z)$ of them; the penalty is on $W$. `width_ratio` is $p/d$. `centring`
    says what is subtracted from the diagonal: the trace of S, or the mean over the batch, the same in the limit.

    >>> ndl.TiedAttention(beta=2.0, width_ratio=0.5)
    TiedAttention(beta=2.0, width_ratio=0.5)
    """

    family: ClassVar[str] = "model"

    beta: float = real(lo=0.0, open_lo=True, largest=1e6, default=1.0, why="it is the inverse temperature")
    width_ratio: float = real(lo=0.0, open_lo=True, largest=1e6, default=1.0, why="it is the width of W over d")
    centring: str = choice("trace", "batch", default="trace")


@spec
class DirectAttention(Spec):
    """eq:tied with a symmetric S whose entries are trained themselves; the penalty is on S.

    >>> ndl.DirectAttention(beta=2.0)
    DirectAttention(beta=2.0)
    """

    family: ClassVar[str] = "model"

    beta: float = real(lo=0.0, open_lo=True, largest=1e6, default=1.0, why="it is the inverse temperature")
    centring: str = choice("trace", "batch", default="trace")

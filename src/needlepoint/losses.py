"""Losses: what a model's output costs beside the label."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import Template, lower
from needlepoint.core.specs import Spec, real, spec
from needlepoint.numerics.fingerprints import Call, fingerprint


class Loss(Spec):
    """Base of losses. `cost` takes a label and an output of one shape and returns a number.

    `risk` and `train_loss` are means of `metric_scale` times the loss. A loss with `signs` is for labels that are 1 or
    -1; `error_rate` is then the share of outputs of the wrong sign.
    """

    family: ClassVar[str] = "loss"
    metric_scale: ClassVar[float] = 1.0
    signs: ClassVar[bool] = False

    def cost(self, y: Any, f: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no cost(self, y, f)")

    def source_hash(self) -> str | None:
        """Return a hash of what the cost of a user's class computes, for labels that are numbers and for arrays."""
        if type(self).__module__.partition(".")[0] == "needlepoint":
            return None
        template, numbers, calls, refused = Template(self), lower(self)[1], list[Call](), b""
        for shape in ((), (2,), (2, 2)):
            y, call = np.zeros(shape), (lambda n, y, f: template.bind(n).cost(y, f))
            try:
                fingerprint([(call, (numbers, y, y))])
            except Exception:  # a cost need not be for labels of every shape
                refused += repr(shape).encode()
            else:
                calls.append((call, (numbers, y, y)))
        return fingerprint(calls, refused + repr((self.metric_scale, self.signs)).encode())

    def check_labels(self, task: Spec, y: np.ndarray) -> None:
        """Raise an error if labels of the task are not such as the loss is for."""
        other = y[np.abs(y) != 1.0] if self.signs else y[:0]
        if other.size:
            found = f"{type(task).__name__} has the label {float(other.flat[0]):.6g}"
            raise InvalidParameter(
                f"{self!r}: labels must be 1 or -1, and {found}; take a task with such labels, or loss=Square()."
            )


@spec
class Square(Loss):
    r"""Half the squared error times `weight`: $\frac w2|y - f|^2$. Risks are means of twice that.

    >>> ndl.Square(), ndl.Square(weight=0.25)
    (Square(), Square(weight=0.25))
    """

    metric_scale: ClassVar[float] = 2.0

    weight: float = real(lo=0.0, open_lo=True, largest=1e12, default=1.0, why="it multiplies the squared error")

    def cost(self, y: Any, f: Any) -> Any:
        import jax.numpy as jnp

        return self.weight * jnp.sum((y - f) ** 2) / 2


@spec
class Logistic(Loss):
    r"""$\log(1 + e^{-yf})$ for labels that are 1 or -1.

    >>> ndl.Ridge(alpha=6, lam=0.3, loss=ndl.Logistic())
    Ridge(alpha=6.0, lam=0.3, loss=Logistic())
    """

    signs: ClassVar[bool] = True

    def cost(self, y: Any, f: Any) -> Any:
        import jax

        return jax.nn.softplus(-y * f)


def squared_error(task: Spec, model: Spec | None, learner: Any) -> bool:
    """Return whether errors cost half their square: for rules whose formulas know no other loss."""
    return learner.loss == Square()

"""Attention activations: functions from the scores of a sequence to the weights of its tokens.

`form` says what a theory may use: "elementwise" (a weight depends on its own score only), "kernel"
(a positive function of each score, normalised by their sum), or "general".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.lowering import lower
from needlepoint.core.specs import Spec, declared, real, spec

Form = Literal["elementwise", "kernel", "general"]


class Activation(Spec):
    """Base of activations. `weights` takes the constants apart from the spec, so that they can be traced."""

    family: ClassVar[str] = "activation"
    form: ClassVar[Form]
    smooth: ClassVar[bool] = False
    """Whether it is known to have no kinks, so that risks are smooth functions of the key."""
    jumps: ClassVar[bool] = True
    """Whether a training sequence may have several minima, between which it jumps."""
    differences: ClassVar[bool] = False
    """Whether weights depend on the differences of scores alone."""

    @property
    def odd(self) -> bool:
        """Whether weights change sign with the scores, so that (k, v) -> (-k, -v) changes nothing."""
        return False

    @classmethod
    def bend(cls, constants: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the score around which a weight changes most, and over which width."""
        return 0.0, 0.7

    @classmethod
    def weights(cls, scores: Any, constants: Mapping[str, Any]) -> Any:
        """Scores (..., tokens) to weights of the same shape."""
        raise NotImplementedError

    def __call__(self, scores: Any) -> Any:
        """The weights of these scores, in the precision that JAX works in where this is called."""
        missing = self.free_constants()
        if missing:
            raise InvalidParameter(f"{self!r}: {missing[0]} is None; weights need its value.")
        return self.weights(scores, lower(self)[1])

    def free_constants(self) -> list[str]:
        """The constants that are None, to be chosen by Population()."""
        return [f.name for f in declared(type(self)) if getattr(self, f.name) is None]


@spec
class Erf(Activation):
    """offset + erf(scale * score + shift), element-wise. A constant given as None is free.

    >>> ndl.Erf(scale=0.3, offset=1.0)
    Erf(scale=0.3, offset=1.0)
    """

    form: ClassVar[Form] = "elementwise"
    smooth: ClassVar[bool] = True

    scale: float | None = real(
        lo=0.0, open_lo=True, largest=1e50, free=True, default=1.0, why="it multiplies the score; its sign is the key's"
    )
    shift: float | None = real(largest=1e50, free=True, default=0.0)
    offset: float | None = real(largest=1e50, free=True, default=0.0)

    @property
    def odd(self) -> bool:
        """True for a pure erf, where (k, v) -> (-k, -v) changes nothing."""
        return self.shift == 0.0 and self.offset == 0.0

    @classmethod
    def bend(cls, constants: Mapping[str, Any]) -> tuple[Any, Any]:
        return -constants["shift"] / constants["scale"], 0.7 / constants["scale"]

    @classmethod
    def weights(cls, scores: Any, constants: Mapping[str, Any]) -> Any:
        from jax.scipy.special import erf

        return constants["offset"] + erf(constants["scale"] * scores + constants["shift"])


@spec
class Linear(Activation):
    """1 + score, element-wise.

    >>> ndl.KeyValueAttention(ndl.Linear())
    KeyValueAttention(activation=Linear())
    """

    form: ClassVar[Form] = "elementwise"
    smooth: ClassVar[bool] = True
    jumps: ClassVar[bool] = False

    @classmethod
    def weights(cls, scores: Any, constants: Mapping[str, Any]) -> Any:
        return 1.0 + scores


class KernelActivation(Activation):
    """A positive function of each score over its sum: exp(log_kernel) normalised."""

    form: ClassVar[Form] = "kernel"
    smooth: ClassVar[bool] = True

    @staticmethod
    def log_kernel(scores: Any, xp: Any) -> Any:
        """Logarithm of the kernel, with the array functions of `xp` (numpy or jax.numpy)."""
        raise NotImplementedError

    @classmethod
    def weights(cls, scores: Any, constants: Mapping[str, Any]) -> Any:
        import jax
        import jax.numpy as jnp

        return jax.nn.softmax(cls.log_kernel(scores, jnp), axis=-1)


@spec
class Softmax(KernelActivation):
    """exp(score) over its sum.

    >>> ndl.KeyValueAttention(ndl.Softmax())
    KeyValueAttention(activation=Softmax())
    """

    differences: ClassVar[bool] = True

    @staticmethod
    def log_kernel(scores: Any, xp: Any) -> Any:
        return scores


@spec
class Softplus(KernelActivation):
    """log(1 + exp(score)) over its sum, without an offset.

    >>> ndl.KeyValueAttention(ndl.Softplus())
    KeyValueAttention(activation=Softplus())
    """

    @staticmethod
    def log_kernel(scores: Any, xp: Any) -> Any:
        # log softplus(x) is x + O(e^x) far left, where softplus underflows
        low = scores < -30.0
        return xp.where(low, scores, xp.log(xp.logaddexp(0.0, xp.where(low, 0.0, scores))))


@spec
class SoftmaxOne(Activation):
    """exp(score) over 1 + their sum: a softmax with a place to put no weight at all.

    >>> ndl.KeyValueAttention(ndl.SoftmaxOne())
    KeyValueAttention(activation=SoftmaxOne())
    """

    form: ClassVar[Form] = "general"

    @classmethod
    def weights(cls, scores: Any, constants: Mapping[str, Any]) -> Any:
        import jax.numpy as jnp

        top = jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), 0.0)
        raised = jnp.exp(scores - top)
        return raised / (jnp.exp(-top) + jnp.sum(raised, axis=-1, keepdims=True))

"""Activations that a user writes: a JAX function from the scores of a sequence to the weights of its tokens."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.kinds import Kind
from needlepoint.core.specs import forget, lookup, names, spec
from needlepoint.models.activations import Activation, Form
from needlepoint.numerics.fingerprints import constants, fingerprint

Function = Callable[[Any], Any]

_LENGTHS = (1, 2, 3, 5)
_FORMS = ("general", "elementwise")
_RESERVED = ("inf", "nan", "pi", "sqrt")  # what the command line reads as numbers
_CLOSE = 1e-9  # relative to the largest weight


class UserActivation(Activation):
    """A user's function. Its class carries it, so that compiled kernels know one function from another."""

    form: ClassVar[Form] = "general"
    function: ClassVar[Function]

    @classmethod
    def weights(cls, scores: Any, constants: Mapping[str, Any]) -> Any:
        import jax.numpy as jnp

        return jnp.vectorize(cls.function, signature="(n)->(n)")(scores)


class BareFunction(UserActivation):
    """A function without a registered name: it computes, but has no text to be stored or sent by."""

    def to_json(self) -> dict[str, Any]:
        raise InvalidParameter(
            f"{self!r}: a bare function cannot be stored or sent to a worker; name it with @ndl.activation(...)."
        )

    def __repr__(self) -> str:
        return f"<function {getattr(self.function, '__name__', 'activation')}>"


@dataclasses.dataclass(frozen=True)
class Fingerprint(Kind):
    """The hash of a function's jaxpr: a stored spec of another definition is refused."""

    value: str

    def coerce(self, value: Any, where: str) -> str:
        if value != self.value:
            raise InvalidParameter(
                f"{where.partition('.')[0]}: stored with another definition of this function ({value}, now "
                f"{self.value}); give the changed function another name."
            )
        return self.value


def activation(name: str, form: Form = "general") -> Callable[[Function], UserActivation]:
    """Name a function from scores (L,) to weights (L,), written with jax.numpy, as an activation.

    It is checked for shape, precision, finite output and permutation equivariance. `form="elementwise"` says that a
    weight depends on its own score only, which buys exact one-dimensional integrals. Naming a changed function again
    replaces it; its id changes with its jaxpr.

    >>> import jax.numpy as jnp
    >>> @ndl.activation("example_relu")
    ... def example_relu(scores):
    ...     return jnp.maximum(scores, 0.0)
    >>> ndl.KeyValueAttention(example_relu)
    KeyValueAttention(activation=example_relu())
    """
    where = f"activation({shown(name)})"
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidParameter(f"{where}: the name must be an identifier, such as 'sink_softmax'.")
    plain = unicodedata.normalize("NFKC", name)
    if plain != name:  # an expression with it would be read as the plain name, and a stored spec not be found
        raise InvalidParameter(f"{where}: Python reads this name as {plain!r}; give it that one.")
    if form not in _FORMS:
        raise InvalidParameter(
            f"{where}: form={form!r} must be one of {', '.join(map(repr, _FORMS))} "
            "(for a normalised kernel, subclass KernelActivation)."
        )

    def named(function: Function) -> UserActivation:
        known = lookup(name) if name in names() else None
        ours = known is not None and not issubclass(known, UserActivation)
        if ours or name in sys.modules["needlepoint"].__all__ or name in _RESERVED:
            raise InvalidParameter(f"{where}: {name} is the name of a part of needlepoint; take another.")
        check_function(function, where, form)
        fingerprint = _fingerprint(function)
        kept = known if known is not None and issubclass(known, UserActivation) else None
        if kept is not None and (kept.form, getattr(kept, "source", None)) == (form, fingerprint):
            return kept()  # the same function again, as in a notebook cell that is run twice
        forget(name)
        body = {
            "__annotations__": {"source": str},
            "__doc__": function.__doc__,
            "__module__": getattr(function, "__module__", None) or __name__,
            "source": dataclasses.field(default=fingerprint, metadata={"kind": Fingerprint(fingerprint)}),
            "function": staticmethod(function),
            "form": form,
        }
        return spec(type(name, (UserActivation,), body))()

    return named


def bare(function: Function) -> BareFunction:
    """A checked activation for a function without a name; one class a function, so that kernels compile once."""
    try:
        return _bare(function)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        raise InvalidParameter(
            f"KeyValueAttention(activation={function!r}): it is not hashable; wrap it in a plain function."
        ) from None


@functools.lru_cache(maxsize=4096)
def _bare(function: Function) -> BareFunction:
    check_function(function, f"KeyValueAttention(activation={getattr(function, '__name__', function)})", "general")
    made = type("BareFunction", (BareFunction,), {"function": staticmethod(function)})
    return dataclasses.dataclass(frozen=True, repr=False)(made)()


def check_function(function: Any, where: str, form: str) -> None:
    """Shape, float64, finite output, equivariance; each failure is one sentence with the fix."""
    import jax

    from needlepoint.core.process import forks

    forks.note_use()
    if not callable(function):
        raise InvalidParameter(f"{where}: {function!r} is not a function from scores (L,) to weights (L,).")
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for length in _LENGTHS:
            _check_trace(function, where, length)
            for scores in (np.zeros(length), rng.standard_normal(length), 12.0 * rng.standard_normal(length)):
                _check_values(function, where, form, scores, rng)


def _check_trace(function: Function, where: str, length: int) -> None:
    import jax
    import jax.numpy as jnp

    try:
        traced, out = jax.make_jaxpr(function, return_shape=True)(jnp.zeros(length))
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:160]
        raise InvalidParameter(
            f"{where}: it failed on scores of shape ({length},): {type(error).__name__}: {reason} "
            "(write it with jax.numpy, for any number of tokens)."
        ) from error
    if getattr(out, "shape", None) != (length,):
        found = f"shape {out.shape}" if hasattr(out, "shape") else f"a {type(out).__name__}"
        raise InvalidParameter(
            f"{where}: it returned {found} for scores of shape ({length},); return one array with one weight a score."
        )
    low = re.search(r"\b(b?f16|f32|f8\w*)\[", str(traced)) or any(map(_single, constants(traced)))
    if low or out.dtype != np.float64:
        raise InvalidParameter(
            f"{where}: it does not compute in float64 (dtype {out.dtype}, or a float32 constant or step inside); "
            "write constants as Python floats and leave the dtype of the scores alone."
        )


def _single(constant: Any) -> bool:
    """Whether a float64 number is a float32 one that was promoted: it fits 24 bits of mantissa but not 20."""
    if np.ndim(constant) != 0 or np.asarray(constant).dtype != np.float64 or not np.isfinite(constant):
        return False
    x = float(constant)
    with np.errstate(over="ignore"):
        return float(np.float32(x)) == x and not (math.frexp(x)[0] * 2**20).is_integer()


def _check_values(function: Function, where: str, form: str, scores: np.ndarray, rng: np.random.Generator) -> None:
    import jax.numpy as jnp

    def apply(given: np.ndarray) -> np.ndarray:
        return np.asarray(function(jnp.asarray(given)))

    weights = apply(scores)
    shown = np.array2string(scores, precision=3, separator=", ")
    if not np.all(np.isfinite(weights)):
        raise InvalidParameter(
            f"{where}: it returned {weights[~np.isfinite(weights)][0]} for scores {shown}; weights must be finite "
            "(subtract the largest score before exp, and keep arguments of log and sqrt positive)."
        )
    close = _CLOSE * max(1.0, float(np.max(np.abs(weights))))
    order = np.roll(rng.permutation(len(scores)), 1)
    # ties count: a position that breaks them would give away the relevant token
    if np.max(np.abs(apply(scores[order]) - weights[order])) > close:
        raise InvalidParameter(
            f"{where}: permuting the scores {shown} does not permute the weights; an attention weight may depend on "
            "its own score and on the set of all scores, not on positions (ties must share)."
        )
    alone = [float(apply(scores[i : i + 1])[0]) for i in range(len(scores))]
    if form == "elementwise" and np.max(np.abs(np.array(alone) - weights)) > close:
        raise InvalidParameter(
            f"{where}: with scores {shown} a weight depends on the other scores; leave out form='elementwise'."
        )


def _fingerprint(function: Function) -> str:
    """A hash of the jaxpr and its constants at a few lengths."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        return fingerprint((function, (jnp.zeros(length),)) for length in _LENGTHS)

"""What identifies a function that a user wrote: a hash of what JAX traces of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def fingerprint(calls: Iterable[Call], more: bytes = b"") -> str:
    """Return a hash, 12 hexadecimal digits, of the jaxprs of functions at arguments, their constants, and `more`."""
    import jax

    digest = hashlib.sha256()
    with jax.enable_x64(True):
        for function, args in calls:
            traced = jax.make_jaxpr(function)(*args)
            digest.update(str(traced).encode())
            for constant in constants(traced):
                digest.update(np.asarray(constant).tobytes())
    digest.update(more)
    return digest.hexdigest()[:12]


def constants(traced: Any) -> Iterator[Any]:
    """Return constants and literals of a closed jaxpr and of those inside it (a jitted function keeps its own)."""
    yield from traced.consts
    for equation in traced.jaxpr.eqns:
        yield from (v.val for v in equation.invars if hasattr(v, "val"))
        for parameter in equation.params.values():
            inner = parameter if isinstance(parameter, (tuple, list)) else [parameter]
            for one in inner:
                if hasattr(one, "consts") and hasattr(one, "jaxpr"):
                    yield from constants(one)

"""Lowering: splitting a spec into the part that fixes a compiled JAX kernel and the floats that are its arguments."""

from __future__ import annotations

import math
from typing import Any, cast

from needlepoint.core.specs import Spec, declared

Lowered = tuple[tuple[Any, ...], dict[str, float]]


def lower(value: Spec, prefix: str = "") -> Lowered:
    """Return (static key, {dotted path: float}): what fixes the compiled kernel, and the arguments it is called with.

    Finite reals are arguments ("traced"); everything else (lengths, choices, counts, which constants are free, an
    infinite snr, the types) is static. Specs with equal static keys share one kernel.
    """
    static: list[Any] = [type(value).__name__]
    traced: dict[str, float] = {}
    for f in declared(type(value)):
        kind, x, path = f.metadata["kind"], getattr(value, f.name), prefix + f.name
        several = cast("tuple[Any, ...]", x) if isinstance(x, tuple) else ()
        parts: list[tuple[str, Spec]] = [(f"{path}.", x)] if isinstance(x, Spec) else []
        if isinstance(x, tuple) and all(isinstance(one, Spec) for one in several):
            parts = [(f"{path}.{i}.", one) for i, one in enumerate(several)]
        if parts:
            lowered = [lower(one, prefix) for prefix, one in parts]
            keys = tuple(key for key, _ in lowered)
            static.append((path, keys[0] if isinstance(x, Spec) else keys))
            for _, inner in lowered:
                traced.update(inner)
        elif kind.traced and isinstance(x, float) and math.isfinite(x):
            traced[path] = x
        elif kind.traced and isinstance(x, tuple):
            static.append((path, len(several)))
            traced.update({f"{path}.{i}": one for i, one in enumerate(several)})
        else:
            static.append((path, x))
    return tuple(static), traced

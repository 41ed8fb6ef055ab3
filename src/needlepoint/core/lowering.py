"""Lowering: splitting a spec into the part that fixes a compiled JAX kernel and the floats that are its arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from needlepoint.core.kinds import is_traced
from needlepoint.core.specs import Spec, declared

Lowered = tuple[tuple[Any, ...], dict[str, float]]

_S = TypeVar("_S", bound=Spec)


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
        elif kind.traced and (is_traced(cast("Any", x)) or (isinstance(x, float) and math.isfinite(x))):
            traced[path] = cast("float", x)
        elif kind.traced and isinstance(x, tuple):
            static.append((path, len(several)))
            traced.update({f"{path}.{i}": one for i, one in enumerate(several)})
        else:
            static.append((path, x))
    return tuple(static), traced


def bind(value: _S, numbers: Mapping[str, Any], prefix: str = "") -> _S:
    """Return the spec with the numbers that `lower` took out of it replaced by these, which may be traced.

    It is for use inside a kernel: nothing is converted or checked.
    """
    made = object.__new__(type(value))
    for f in declared(type(value)):
        x, path = getattr(value, f.name), prefix + f.name
        if isinstance(x, Spec):
            x = bind(x, numbers, f"{path}.")
        elif isinstance(x, tuple):
            several = cast("tuple[Any, ...]", x)
            parts = [numbers.get(f"{path}.{i}", one) for i, one in enumerate(several)]
            x = tuple(bind(p, numbers, f"{path}.{i}.") if isinstance(p, Spec) else p for i, p in enumerate(parts))
        else:
            x = numbers.get(path, x)
        object.__setattr__(made, f.name, x)
    return made


class Template:
    """A spec without its traced numbers: equal, and of equal hash, for all specs that share one kernel."""

    def __init__(self, value: Spec) -> None:
        self.value: Any = value
        self._key = (type(value), lower(value)[0])

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self._key == other._key

    def bind(self, numbers: Mapping[str, Any]) -> Any:
        return bind(self.value, numbers)

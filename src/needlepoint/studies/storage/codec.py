"""Results as JSON documents with named arrays beside them, and back; no pickles, so a store never runs code."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import needlepoint as ndl
import needlepoint.specs_by_name
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import Spec, from_json
from needlepoint.core.status import Status

Arrays = dict[str, np.ndarray]


def encode(value: Any, arrays: Arrays, name: str = "") -> Any:
    """Return a JSON value; arrays are put into `arrays`, named by their dotted place in the value."""
    match value:
        case None | bool() | str():
            return value
        case np.bool_():
            return bool(value)
        case Status():
            return {"$status": value.name}
        case Spec():
            return {"$spec": value.to_json()}
        case np.ndarray():
            if value.dtype.hasobject:
                raise InvalidParameter(f"an array of {value.dtype} cannot be stored; arrays of numbers and words can.")
            free = itertools.chain([name or "value"], (f"{name}~{i}" for i in itertools.count(2)))
            chosen = next(n for n in free if n not in arrays)
            arrays[chosen] = value
            return {"$array": chosen}
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        case tuple():
            return {"$tuple": [encode(v, arrays, f"{name}.{i}") for i, v in enumerate(value)]}
        case list():
            return [encode(v, arrays, f"{name}.{i}") for i, v in enumerate(value)]
        case Mapping():
            return {"$map": [[encode(k, arrays), encode(v, arrays, _join(name, k))] for k, v in value.items()]}
    kind = type(value)
    if _result_type(kind.__name__) is not kind:
        raise InvalidParameter(f"{kind.__name__}: a result of this type cannot be stored; the public ones can.")
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {"$type": kind.__name__, "fields": {k: encode(v, arrays, _join(name, k)) for k, v in fields.items()}}


def decode(document: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return what `encode` was given, from its JSON value and arrays."""
    match document:
        case list():
            return [decode(v, arrays) for v in document]
        case {"$status": name}:
            return Status[name]
        case {"$spec": spec}:
            return from_json(spec)
        case {"$array": name}:
            return arrays[name]
        case {"$float": text}:
            return float(text)
        case {"$tuple": items}:
            return tuple(decode(v, arrays) for v in items)
        case {"$map": pairs}:
            return {decode(k, arrays): decode(v, arrays) for k, v in pairs}
        case {"$type": name, "fields": fields}:
            kind = _result_type(name)
            if kind is None:
                raise InvalidParameter(f"the store has a {name}, which this version does not know.")
            return kind(**{k: decode(v, arrays) for k, v in fields.items()})
    return document


@functools.cache
def _result_type(name: str) -> Any:
    """Return the public result class of this name, from core or theory; None for anything else.

    A store that was tampered with can thus name no other class to be created.
    """
    found = getattr(ndl, name) if name in ndl.__all__ else None
    home = str(getattr(found, "__module__", ""))
    plain = isinstance(found, type) and dataclasses.is_dataclass(found) and not issubclass(found, Spec)
    return found if plain and home.startswith(("needlepoint.core.", "needlepoint.theory.")) else None


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)

"""Specs: plain frozen dataclasses that say what is computed.

Each field is declared once, with its kind. The kind converts values, refuses those out of range, writes JSON, and says
whether the field is traced (a float argument of a compiled JAX kernel) or static (a new value compiles a new kernel).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from needlepoint.core.errors import InvalidParameter, UnknownName, shown
from needlepoint.core.kinds import (
    Choice,
    Count,
    Flag,
    Kind,
    Lengths,
    NamedNumbers,
    Numbers,
    Penalty,
    Real,
    is_traced,
    refusal,
)
from needlepoint.core.text.jsonio import canonical

NUMBERS_VERSION = 2
"""Raised when a formula changes its numbers, so that stored results of old code are not reused."""

_REGISTRY: dict[str, type[Spec]] = {}
_REQUIRED: Any = dataclasses.MISSING


@dataclasses.dataclass(frozen=True)
class Nested(Kind):
    """A field that holds another spec of the named family; or one of `words`; or, with `many`, a tuple of specs."""

    family: str = ""
    words: tuple[str, ...] = ()
    many: bool = False
    why: str = ""

    def coerce(self, value: Any, where: str) -> Any:
        if isinstance(value, str) and value in self.words:
            return str(value)
        if isinstance(value, Mapping):
            value = from_json(value)
        if isinstance(value, (list, tuple)) and self.many:
            if not value:
                raise InvalidParameter(refusal(where, value, self.admissible(), "it is empty"))
            return tuple(self._one(v, where) for v in cast("Iterable[Any]", value))
        return self._one(value, where)

    def _one(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping):
            value = from_json(value)
        if not isinstance(value, Spec) or value.family != self.family:
            near = difflib.get_close_matches(shown(value).strip("'"), self.words, n=1)
            hint = f"did you mean {near[0]!r}?" if near else self.why
            if isinstance(value, type):
                hint = f"this is a class; write {value.__name__}(...)"
            raise InvalidParameter(refusal(where, value, self.admissible(), hint))
        return value

    def admissible(self) -> str:
        options = [repr(w) for w in self.words]
        options.append(f"one of {', '.join(names(self.family))}")
        if self.many:
            options.append("a tuple of them")
        return " or ".join(options)

    def to_json(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [v.to_json() for v in cast("tuple[Spec, ...]", value)]
        return value.to_json() if isinstance(value, Spec) else value


# --- declaring fields -------------------------------------------------------------------------


def _declare(kind: Kind, default: Any, later: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "later": later})


def real(
    *,
    lo: float = -math.inf,
    hi: float = math.inf,
    open_lo: bool = False,
    infinite: bool = False,
    free: bool = False,
    largest: float = math.inf,
    default: Any = _REQUIRED,
    why: str = "",
) -> Any:
    """Declare a real number from `lo` (excluded with `open_lo`) to `hi`; `why` is the reason that an error gives.

    >>> @ndl.spec
    ... class Wide(ndl.FieldModel):
    ...     width: float = ndl.real(lo=0.0, why="it is a width")
    >>> Wide(-1)
    Traceback (most recent call last):
    needlepoint.core.errors.InvalidParameter: Wide(width=-1.0): width must be >= 0 and finite (it is a width).
    """
    return _declare(Real(lo, hi, open_lo, infinite, free, largest, why), default)


def count(*, lo: int = 1, free: bool = False, default: Any = _REQUIRED, why: str = "") -> Any:
    """Declare a whole number >= `lo`; None too if `free`.

    >>> @ndl.spec
    ... class Deep(ndl.FieldModel):
    ...     layers: int = ndl.count(lo=1, default=2)
    >>> Deep(), Deep(3)
    (Deep(), Deep(layers=3))
    """
    return _declare(Count(lo, free, why), default)


def flag(*, default: Any = _REQUIRED, why: str = "", later: bool = False) -> Any:
    """Declare a flag. With `later` it is left out of JSON at its default: specs that were stored before the field
    existed keep their ids."""
    return _declare(Flag(why), default, later)


def choice(*options: str, default: Any = _REQUIRED, why: str = "") -> Any:
    return _declare(Choice(options, why), default)


def lengths(*, default: Any = _REQUIRED, why: str = "") -> Any:
    return _declare(Lengths(why), default)


def penalty(*, default: Any = _REQUIRED, why: str = "") -> Any:
    return _declare(Penalty(why), default)


def numbers(*, lo: float = -math.inf, free: bool = False, default: Any = _REQUIRED, why: str = "") -> Any:
    return _declare(Numbers(lo, free, why), default)


def named_numbers(*, default: Any = _REQUIRED, why: str = "") -> Any:
    return _declare(NamedNumbers(why), default)


def nested(
    family: str,
    *,
    words: tuple[str, ...] = (),
    many: bool = False,
    default: Any = _REQUIRED,
    why: str = "",
    later: bool = False,
) -> Any:
    """Declare another spec of this family, one of `words`, or with `many` a tuple of specs.

    >>> @ndl.spec
    ... class Headed(ndl.FieldModel):
    ...     activation: object = ndl.nested("activation")
    >>> Headed(ndl.Softmax())
    Headed(activation=Softmax())
    """
    return _declare(Nested(family, words, many, why), default, later)


# --- the base class ---------------------------------------------------------------------------

_S = TypeVar("_S", bound="type[Spec]")


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(real, count, flag, choice, lengths, penalty, numbers, named_numbers, nested, dataclasses.field),
)
def spec(cls: _S) -> _S:
    """Declare a spec: a frozen dataclass whose fields carry their kinds, registered by class name.

    A class of your own may be declared again, as in a notebook cell that is run twice: the new one takes its name. The
    name of a part of needlepoint is refused.

    >>> @ndl.spec
    ... class Halves(ndl.FieldModel):
    ...     share: float = ndl.real(default=0.5)
    >>> Halves(0.25)
    Halves(share=0.25)
    """
    made = dataclasses.dataclass(frozen=True, repr=False)(cls)
    known = _REGISTRY.get(made.__name__)
    if known is not None and (_ours(known) or _ours(made)):
        raise InvalidParameter(f"class {made.__name__}: this is the name of a part of needlepoint; take another.")
    made._final = True  # pyright: ignore[reportPrivateUsage]  # the decorator is part of the class
    _REGISTRY[made.__name__] = made
    return made


def _ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "needlepoint"


class Spec:
    """Base of tasks, models, activations, learners and starts; `family` says which of these a class is.

    `_final` is set by `@spec`: a registered class cannot be subclassed.
    """

    family: ClassVar[str] = ""
    _final: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse subclasses of registered specs: rules are found along the inheritance, so a subclass would silently
        get the numbers of its base."""
        super().__init_subclass__(**options)
        if cls._final:
            final: type[Spec] = next(base for base in cls.__mro__ if "_final" in vars(base) and issubclass(base, Spec))
            open_base = next(base for base in final.__mro__ if not getattr(base, "_final", False))
            raise InvalidParameter(
                f"class {cls.__name__}({final.__name__}): {final.__name__} is final, because its formulas know it by "
                f"its type and would give {cls.__name__} numbers that are not its own; write the {final.family} as a "
                f"@spec class of its own ({open_base.__name__} is made for that) and register its rules, see "
                "docs/extending.md."
            )

    def __post_init__(self) -> None:
        for f in declared(type(self)):
            where = f"{type(self).__name__}.{f.name}"
            if is_traced(getattr(self, f.name)):
                raise InvalidParameter(
                    f"{type(self).__name__}({f.name}=a traced value): specs hold plain numbers; this one is inside "
                    "jax.jit, grad or vmap, through which needlepoint cannot be called. Call it outside, with numbers."
                )
            object.__setattr__(self, f.name, f.metadata["kind"].coerce(getattr(self, f.name), where))
        self.check()

    def check(self) -> None:
        """Check conditions that involve several fields; raises InvalidParameter. Subclasses override it."""

    def to_json(self) -> dict[str, Any]:
        fields = {
            f.name: f.metadata["kind"].to_json(getattr(self, f.name))
            for f in declared(type(self))
            if not (f.metadata.get("later") and getattr(self, f.name) == f.default)
        }
        source = self.source_hash()
        return {"type": type(self).__name__, **fields, **({} if source is None else {"source_hash": source})}

    def source_hash(self) -> str | None:
        """Return what identifies the code of a class that is not a part of needlepoint, or None where its fields say
        all."""
        return None

    @property
    def id(self) -> str:
        """Return a hash of the canonical JSON and `NUMBERS_VERSION`, 16 hexadecimal digits."""
        return spec_id(self)

    def replace(self, **changes: Any) -> Self:
        return cast("Self", dataclasses.replace(cast("Any", self), **changes))

    def __repr__(self) -> str:
        parts: list[str] = []
        for f in declared(type(self)):
            value = getattr(self, f.name)
            if f.default is not _REQUIRED and value == f.default:
                continue
            if isinstance(f.metadata["kind"], Lengths | NamedNumbers) and not isinstance(value, int):
                value = dict(value)
            parts.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def spec_id(*specs: Spec | None) -> str:
    text = canonical([NUMBERS_VERSION, *[None if s is None else s.to_json() for s in specs]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def declared(cls: type[Spec]) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a spec class, each with its kind in `metadata["kind"]`."""
    return tuple(f for f in dataclasses.fields(cast("Any", cls)) if "kind" in f.metadata)


def forget(name: str) -> None:
    """Take a name out of the registry, so that it can be declared again."""
    _REGISTRY.pop(name, None)


def names(family: str | None = None) -> list[str]:
    """Return the sorted names of the registered specs, of one family or of all."""
    return sorted(n for n, c in _REGISTRY.items() if family in (None, c.family))


def lookup(name: Any) -> type[Spec]:
    if not isinstance(name, str) or name not in _REGISTRY:
        raise UnknownName("name", name, _REGISTRY)
    return _REGISTRY[name]


def build(name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Spec:
    """Return a spec made by its registered name; wrong arguments raise one sentence instead of a TypeError."""
    cls, kwargs = lookup(name), dict(kwargs or {})
    fields = [f.name for f in declared(cls)]
    for key in kwargs:
        if key not in fields:
            raise UnknownName(f"field of {name}", key, fields)
    if len(args) > len(fields):
        raise InvalidParameter(f"{name}: takes {len(fields)} values ({', '.join(fields)}), got {len(args)}.")
    twice = [f for f in fields[: len(args)] if f in kwargs]
    if twice:
        raise InvalidParameter(f"{name}: {twice[0]} is given twice.")
    kwargs.update(zip(fields, args, strict=False))
    missing = [f.name for f in declared(cls) if f.default is _REQUIRED and f.name not in kwargs]
    if missing:
        raise InvalidParameter(f"{name}: {missing[0]} is missing (its fields are {', '.join(fields)}).")
    return cls(**kwargs)


def from_json(document: Any) -> Spec:
    """Return the spec that `to_json` wrote."""
    got: Any = document
    if not isinstance(document, Mapping) or "type" not in document:
        raise InvalidParameter(f"a spec is a JSON object with a 'type'; got {shown(got)}.")
    given = dict(cast("Mapping[str, Any]", document))
    source = given.pop("source_hash", None)
    made = build(given.pop("type"), (), given)
    if source is not None and source != made.source_hash():
        raise InvalidParameter(
            f"{type(made).__name__}: stored with another definition of this class ({source}, now "
            f"{made.source_hash()}); give the changed class another name."
        )
    return made


def assign(value: Spec, path: str, new: Any) -> Spec:
    """Return a copy with the field at a dotted path replaced: assign(model, "activation.scale", 0.3)."""
    head, _, rest = path.partition(".")
    fields = [f.name for f in declared(type(value))]
    if head not in fields:
        raise UnknownName(f"field of {type(value).__name__}", head, fields)
    if rest:
        inner = getattr(value, head)
        if not isinstance(inner, Spec):
            raise InvalidParameter(f"{type(value).__name__}.{head} has no fields; cannot set {path!r}.")
        new = assign(inner, rest, new)
    return value.replace(**{head: new})

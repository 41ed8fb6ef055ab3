"""Kinds of fields of a spec: what a field admits, how it is converted and written, and whether it is traced.

A traced field is a float that enters a compiled JAX kernel as an argument, so that a new value needs no compilation.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeGuard, cast

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.text.jsonio import number


def is_traced(value: object) -> bool:
    """Return whether a value stands for a number that JAX does not know yet, without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


class Kind:
    """What a field admits. `coerce` converts a value or raises InvalidParameter; `where` is "Class.field" for its
    message, and `why` of the subclasses is the reason given there."""

    traced: ClassVar[bool] = False

    def coerce(self, value: Any, where: str) -> Any:
        raise NotImplementedError

    def to_json(self, value: Any) -> Any:
        return value


@dataclasses.dataclass(frozen=True)
class Real(Kind):
    """A real number from `lo` (excluded if `open_lo`) to `hi`.

    infinite  whether inf is admitted
    free      whether None is admitted: the library then chooses the value
    largest   bound on the size of a finite value, so that its square does not overflow
    """

    lo: float = -math.inf
    hi: float = math.inf
    open_lo: bool = False
    infinite: bool = False
    free: bool = False
    largest: float = math.inf
    why: str = ""
    traced: ClassVar[bool] = True

    def admissible(self) -> str:
        lower = f"{'>' if self.open_lo else '>='} {self.lo:g}" if self.lo > -math.inf else ""
        upper = f"<= {self.hi:g}" if self.hi < math.inf else ""
        text = " and ".join(part for part in (lower, upper) if part) or "a real number"
        if self.infinite:
            text += " or inf" if self.hi == math.inf else ""
        else:
            text += " and finite" if (lower or upper) else " that is finite"
        return text + (", or None (chosen by the library)" if self.free else "")

    def coerce(self, value: Any, where: str) -> float | None:
        if value is None and self.free:
            return None
        if isinstance(value, str) and value in ("inf", "-inf"):
            value = float(value)
        try:
            if value is None or isinstance(value, (bool, str, bytes)) or getattr(value, "ndim", 0):
                raise TypeError
            x = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(refusal(where, value, self.admissible(), self.why)) from None
        below = x <= self.lo if self.open_lo else x < self.lo
        bad = math.isnan(x) or (math.isinf(x) and not self.infinite) or below or x > self.hi
        if bad:
            raise InvalidParameter(refusal(where, x, self.admissible(), self.why))
        if math.isfinite(x) and abs(x) > self.largest:
            raise InvalidParameter(refusal(where, x, f"at most {self.largest:g} in size", "its square must be finite"))
        return x + 0.0  # -0.0 becomes 0.0, so that equal specs have equal ids

    def to_json(self, value: Any) -> Any:
        return None if value is None else number(value)


@dataclasses.dataclass(frozen=True)
class Count(Kind):
    """A whole number >= `lo`; None too if `free`."""

    lo: int = 1
    free: bool = False
    why: str = ""

    def coerce(self, value: Any, where: str) -> int | None:
        if value is None and self.free:
            return None
        if not is_whole(value) or int(value) < self.lo:
            none = ", or None" if self.free else ""
            raise InvalidParameter(refusal(where, value, f"a whole number >= {self.lo}{none}", self.why))
        return int(value)


@dataclasses.dataclass(frozen=True)
class Flag(Kind):
    why: str = ""

    def coerce(self, value: Any, where: str) -> bool:
        if not isinstance(value, bool):
            raise InvalidParameter(refusal(where, value, "True or False", self.why))
        return value


@dataclasses.dataclass(frozen=True)
class Choice(Kind):
    options: tuple[str, ...] = ()
    why: str = ""

    def coerce(self, value: Any, where: str) -> str:
        # the type is checked too, because a NumPy array of one word compares equal to the word
        if not isinstance(value, str) or value not in self.options:
            near = difflib.get_close_matches(shown(value).strip("'"), self.options, n=1)
            hint = f"did you mean {near[0]!r}?" if near else self.why
            raise InvalidParameter(refusal(where, value, "one of " + ", ".join(map(repr, self.options)), hint))
        return str(value)


@dataclasses.dataclass(frozen=True)
class Lengths(Kind):
    """A sequence length, or a distribution of lengths {length: probability}, kept as sorted pairs."""

    why: str = ""

    def coerce(self, value: Any, where: str) -> int | tuple[tuple[int, float], ...]:
        if is_whole(value):
            if int(value) < 1:
                raise InvalidParameter(refusal(where, value, "a whole number >= 1", self.why))
            return int(value)
        try:
            law = cast("Mapping[Any, Any]", value).items() if isinstance(value, Mapping) else value
            given = cast("Iterable[tuple[Any, Any]]", law)
            pairs: list[tuple[Any, float]] = sorted((n, float(p)) for n, p in given)
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(
                refusal(where, value, "a whole number >= 1 or {length: probability, ...}", self.why)
            ) from None
        if any(not is_whole(n) or int(n) < 1 for n, _ in pairs):
            raise InvalidParameter(refusal(where, value, "keyed by lengths that are whole and >= 1", self.why))
        if len({n for n, _ in pairs}) < len(pairs):
            raise InvalidParameter(refusal(where, value, "keyed by distinct lengths", self.why))
        total = math.fsum(p for _, p in pairs)
        if not pairs or any(not p > 0 for _, p in pairs) or not math.isclose(total, 1.0, rel_tol=1e-9):
            raise InvalidParameter(
                refusal(where, value, f"positive probabilities that sum to 1 (they sum to {total:g})", self.why)
            )
        if len(pairs) == 1:
            return int(pairs[0][0])
        # probabilities that already sum to 1 are left alone: dividing again would change a last digit, and so the id
        share = 1.0 if abs(total - 1.0) < 1e-13 else total
        return tuple((int(n), p / share) for n, p in pairs)

    def to_json(self, value: Any) -> Any:
        return value if isinstance(value, int) else [[n, p] for n, p in value]


@dataclasses.dataclass(frozen=True)
class Penalty(Kind):
    """A penalty >= 0, several of them (on the key, on the value; in general in the order of a model's columns), or
    "optimal": chosen by the library."""

    why: str = ""
    lo: ClassVar[float] = 0.0
    open_lo: ClassVar[bool] = False
    traced: ClassVar[bool] = True
    OPTIMAL: ClassVar[str] = "optimal"

    def coerce(self, value: Any, where: str) -> float | tuple[float, ...] | str:
        if isinstance(value, str) and value == self.OPTIMAL:
            return self.OPTIMAL
        admissible = (
            "a number >= 0 and finite, a pair (key, value) of them (one for each kind of column the model has), or "
            "'optimal'"
        )
        number = Real(lo=0.0, largest=1e50, why=self.why)
        try:
            if isinstance(value, (tuple, list)):
                several = tuple(cast("float", number.coerce(x, where)) for x in cast("Sequence[Any]", value))
                if len(several) < 2:
                    raise ValueError
                return several[0] if len(set(several)) == 1 else several
            one = number.coerce(value, where)
        except (InvalidParameter, ValueError):
            raise InvalidParameter(refusal(where, value, admissible, self.why)) from None
        assert one is not None
        return one

    def to_json(self, value: Any) -> Any:
        return list(cast("tuple[float, ...]", value)) if isinstance(value, tuple) else value


@dataclasses.dataclass(frozen=True)
class Numbers(Kind):
    """A non-empty list of finite numbers >= `lo`, kept as a tuple; None too if `free`."""

    lo: float = -math.inf
    free: bool = False
    why: str = ""

    def coerce(self, value: Any, where: str) -> tuple[float, ...] | None:
        if value is None and self.free:
            return None
        admissible = "a list of finite numbers" + (f" >= {self.lo:g}" if self.lo > -math.inf else "")
        try:
            if value is None or isinstance(value, (str, bytes, Mapping)):
                raise TypeError
            found = tuple(float(x) + 0.0 for x in value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(refusal(where, value, admissible, self.why)) from None
        bad = [x for x in found if not math.isfinite(x) or x < self.lo]
        if bad or not found:
            raise InvalidParameter(refusal(where, bad[0] if bad else (), admissible, self.why))
        return found

    def to_json(self, value: Any) -> Any:
        return None if value is None else list(value)


@dataclasses.dataclass(frozen=True)
class NamedNumbers(Kind):
    """A finite number for each of some names, kept as sorted pairs."""

    why: str = ""

    def coerce(self, value: Any, where: str) -> tuple[tuple[str, float], ...]:
        try:
            pairs = cast("Mapping[Any, Any]", value).items() if isinstance(value, Mapping) else value
            if isinstance(value, list):  # a specification that was stored is a dictionary
                raise TypeError
            found = {name: float(x) + 0.0 for name, x in cast("Iterable[tuple[Any, Any]]", pairs)}
            if not all(isinstance(name, str) and math.isfinite(x) for name, x in found.items()):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(refusal(where, value, "{name: finite number, ...}", self.why)) from None
        return tuple(sorted(found.items()))

    def to_json(self, value: Any) -> Any:
        return dict(value)


def refusal(where: str, value: Any, admissible: str, why: str = "") -> str:
    """Return the message of a refusal, such as `SpikedSLR(snr=-1.0): snr must be >= 0 (it scales the spike).`"""
    owner, _, name = where.rpartition(".")
    reason = f" ({why})" if why else ""
    return f"{owner}({name}={shown(value)}): {name} must be {admissible}{reason}."


def is_whole(value: Any) -> TypeGuard[int]:
    if isinstance(value, (bool, str, bytes)) or getattr(value, "ndim", 0):
        return False
    try:
        return float(value) == int(value)
    except (TypeError, ValueError, OverflowError):
        return False

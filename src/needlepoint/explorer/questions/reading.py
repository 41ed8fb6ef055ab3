"""Reading a question from JSON: every value is checked here, by kind and size, before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from needlepoint.core.errors import InvalidParameter, UnknownName, shown
from needlepoint.core.specs import Spec
from needlepoint.core.text.parsing import parse_spec

LONGEST_TEXT = 4_000
"""Characters of a spec; the longest of the page's own have some hundred."""

_T = TypeVar("_T")


class Reader:
    """The fields of one question, taken out one by one; `done` refuses what is left over."""

    def __init__(self, document: Any):
        if not isinstance(document, dict):
            raise InvalidParameter(f"a question is a JSON object with a 'kind'; got {shown(document)}.")
        self.left = dict(cast("dict[str, Any]", document))
        self.kind = self.text("kind")

    def done(self) -> None:
        if self.left:
            raise InvalidParameter(f"the question {self.kind!r} has no field {shown(next(iter(self.left)))}.")

    def _take(self, name: str, default: Any) -> Any:
        if name not in self.left and default is ...:
            raise InvalidParameter(f"the question {getattr(self, 'kind', '')!r} needs {name!r}.")
        return self.left.pop(name, default)

    def _refuse(self, name: str, value: Any, wanted: str) -> InvalidParameter:
        return InvalidParameter(f"the question's {name} is {shown(value)}; it must be {wanted}.")

    def text(self, name: str, default: Any = ..., most: int = LONGEST_TEXT) -> str:
        value = self._take(name, default)
        if not isinstance(value, str) or len(value) > most:
            raise self._refuse(name, value, f"a text of at most {most} characters")
        return value

    def choice(self, name: str, known: Sequence[str], default: Any = ...) -> str:
        value = self.text(name, default)
        if value not in known:
            raise UnknownName(name, value, known)
        return value

    def number(self, name: str, lo: float, hi: float, default: Any = ...) -> float:
        return self._number(name, self._take(name, default), lo, hi)

    def _number(self, name: str, value: Any, lo: float, hi: float) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError
            x = float(value)
        except (TypeError, OverflowError):
            raise self._refuse(name, value, f"a number from {lo:g} to {hi:g}") from None
        if not lo <= x <= hi:  # NaN is refused too
            raise self._refuse(name, value, f"a number from {lo:g} to {hi:g}")
        return x

    def whole(self, name: str, lo: int, hi: int, default: Any = ...) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not lo <= value <= hi:
            raise self._refuse(name, value, f"a whole number from {lo} to {hi}")
        return value

    def flag(self, name: str, default: Any = ...) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self._refuse(name, value, "true or false")
        return value

    def _several(self, name: str, most: int, one: Callable[[Any], _T]) -> tuple[_T, ...]:
        value = self._take(name, ...)
        if not isinstance(value, (list, tuple)) or not 1 <= len(cast("list[Any]", value)) <= most:
            raise self._refuse(name, value, f"a list of 1 to {most} entries")
        return tuple(one(entry) for entry in cast("list[Any]", value))

    def numbers(self, name: str, lo: float, hi: float, most: int) -> tuple[float, ...]:
        return self._several(name, most, lambda x: self._number(name, x, lo, hi))

    def rows(self, name: str, lo: float, hi: float, most: int) -> tuple[tuple[float, ...], ...]:
        """Return a list of lists of numbers, all of one length."""

        def row(value: Any) -> tuple[float, ...]:
            if not isinstance(value, list) or not 1 <= len(cast("list[Any]", value)) <= most:
                raise self._refuse(name, value, f"rows of 1 to {most} numbers")
            return tuple(self._number(name, x, lo, hi) for x in cast("list[Any]", value))

        found = self._several(name, most, row)
        if len({len(row) for row in found}) > 1:
            raise InvalidParameter(f"the rows of the question's {name} differ in length.")
        return found

    def spec(self, name: str, family: str, default: Any = ...) -> Any:
        """Return the spec that a text names, read as on the command line; None for the model "None"."""
        return self._spec(self.text(name, default), family)

    def _spec(self, text: str, family: str) -> Spec | None:
        import needlepoint.specs_by_name  # noqa: F401

        return parse_spec(text, family)

    def specs(self, name: str, family: str, most: int) -> tuple[Any, ...]:
        def one(text: Any) -> Spec | None:
            if not isinstance(text, str) or len(text) > LONGEST_TEXT:
                raise self._refuse(name, text, f"a text of at most {LONGEST_TEXT} characters")
            return self._spec(text, family)

        return self._several(name, most, one)


def finite(x: float) -> float | None:
    """Return a float for the page, where what is not finite is null."""
    return x if math.isfinite(x) else None

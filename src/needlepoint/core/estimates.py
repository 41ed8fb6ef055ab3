"""A number and its error."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeGuard

import numpy as np

from needlepoint.core.errors import InvalidParameter, shown
from needlepoint.core.text.digits import with_error

Kind = Literal["numerical", "stderr"]


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value with its error.

    `kind` says what the error means: ``numerical`` is a bound (the truth lies within `error` of `value` except in rare
    cases; where the integration is random the bound is three standard errors), ``stderr`` is one standard error of a
    sample mean. An infinite error says that nothing is known: the equations were not solved, or there is a single
    repeat.

    Estimates print with the digits that their error leaves, compare and sort by value, and can be added, subtracted,
    multiplied and divided, with numbers and with each other. Bounds add up; standard errors are joined in quadrature,
    to first order, which is right only if the two are independent: that is the caller's claim. A bound and a standard
    error are never joined silently: that raises, and `ndl.compare` sets the two side by side. Two estimates are equal
    if value, error and kind are; an estimate equals a number if its value does.

    >>> linear, softmax = ndl.Estimate(0.4647, 2.4e-3), ndl.Estimate(0.3542, 1e-3)
    >>> print(linear, softmax, linear - softmax)
    0.4647(24) 0.3542(10) 0.1105(34)
    >>> print(f"{linear:.2f}", min(linear, softmax), softmax < 0.4)
    0.46 0.3542(10) True
    """

    value: float
    error: float = 0.0
    kind: Kind = "numerical"

    __array_ufunc__: ClassVar[None] = None  # np.float64(2) * estimate asks the estimate, and keeps the error

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "error", float(self.error))
        if self.kind not in ("numerical", "stderr"):
            raise InvalidParameter(
                f"Estimate(kind={shown(self.kind)}): kind must be 'numerical' (a bound) or 'stderr' (a standard error)."
            )
        if math.isnan(self.error):
            raise InvalidParameter("Estimate(error=nan): error must be >= 0 (it is a size; inf says it is unknown).")
        if self.error < 0:
            raise InvalidParameter(f"Estimate(error={self.error}): error must be >= 0 (it is a size).")

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(self.error)

    # --- a number like others ---------------------------------------------------------------------

    def __float__(self) -> float:
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the value, so that NumPy and matplotlib take lists of estimates for lists of numbers."""
        return np.array(self.value, dtype=dtype)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Estimate):
            return (self.value, self.error, self.kind) == (other.value, other.error, other.kind)
        return self.value == float(other) if isinstance(other, numbers.Real) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Estimate | float) -> bool:
        return self.value < float(other) if _comparable(other) else NotImplemented

    def __le__(self, other: Estimate | float) -> bool:
        return self.value <= float(other) if _comparable(other) else NotImplemented

    def __gt__(self, other: Estimate | float) -> bool:
        return self.value > float(other) if _comparable(other) else NotImplemented

    def __ge__(self, other: Estimate | float) -> bool:
        return self.value >= float(other) if _comparable(other) else NotImplemented

    # --- arithmetic -------------------------------------------------------------------------------

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.error, self.kind)

    def __pos__(self) -> Estimate:
        return self

    def __abs__(self) -> Estimate:
        return Estimate(abs(self.value), self.error, self.kind)

    def __add__(self, other: Estimate | float) -> Estimate:
        """Return the sum. A number is known exactly; if it is large it costs digits, which the error says."""
        b = self._operand(other)
        if b is None:
            return NotImplemented
        return self._result(self.value + b.value, (self.error, b.error), exact=b.value == 0 and b.error == 0)

    __radd__ = __add__

    def __sub__(self, other: Estimate | float) -> Estimate:
        return self + -other if _comparable(other) else NotImplemented

    def __rsub__(self, other: float) -> Estimate:
        return -self + other if _comparable(other) else NotImplemented

    def __mul__(self, other: Estimate | float) -> Estimate:
        b = self._operand(other)
        if b is None:
            return NotImplemented
        both = _times(self.error, b.error) if self.kind == "numerical" else 0.0
        parts = (_times(abs(b.value), self.error), _times(abs(self.value), b.error), both)
        return self._result(self.value * b.value, parts)

    __rmul__ = __mul__

    def __truediv__(self, other: Estimate | float) -> Estimate:
        b = self._operand(other)
        if b is None:
            return NotImplemented
        if b.value == 0:
            raise ZeroDivisionError("division of an Estimate by zero")
        value = self.value / b.value
        # a bound holds for every denominator that is possible: none, if that includes zero
        least = abs(b.value) - b.error if self.kind == "numerical" else abs(b.value)
        parts = (self.error / least, _times(abs(value), b.error) / least) if least > 0 else (math.inf,)
        return self._result(value, parts)

    def __rtruediv__(self, other: float) -> Estimate:
        return Estimate(float(other), 0.0, self.kind) / self if _comparable(other) else NotImplemented

    def _operand(self, other: object) -> Estimate | None:
        """Return the other side of an operation as an estimate of this kind; None if it is not a number."""
        if not _comparable(other):
            return None
        if not isinstance(other, Estimate):
            return Estimate(float(other), 0.0, self.kind)
        if other.kind != self.kind:
            raise InvalidParameter(
                "a bound (kind='numerical') and a standard error (kind='stderr') cannot be joined in one error; "
                "compare(prediction, measurement) sets them side by side, and .value drops the error."
            )
        return other

    def _result(self, value: float, parts: tuple[float, ...], exact: bool = False) -> Estimate:
        """Return `value` with the joined error: bounds and the rounding of the value add up; standard errors are added
        in quadrature, and are at least as large as the rounding."""
        rounding = 0.0 if exact or not math.isfinite(value) else math.ulp(value)
        error = sum(parts) + rounding if self.kind == "numerical" else max(math.hypot(*parts), rounding)
        return Estimate(value, math.inf if math.isnan(error) else error, self.kind)

    # --- text -------------------------------------------------------------------------------------

    def __format__(self, spec: str) -> str:
        """Return the value in the given number format; without a format, value and error."""
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        return with_error(self.value, self.error)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: value and error, as `print` does."""
        return str(self)

    def to_json(self) -> dict[str, Any]:
        from needlepoint.core.text.jsonio import number

        return {"value": number(self.value), "error": number(self.error), "kind": self.kind}


def _comparable(other: object) -> TypeGuard[Estimate | float]:
    return isinstance(other, (Estimate, numbers.Real))


def _times(a: float, error: float) -> float:
    """Return the product of a factor and an error, in which zero times an unknown error is zero."""
    return a * error if a and error else 0.0

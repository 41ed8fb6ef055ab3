"""A number and its error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from needlepoint.core.errors import InvalidParameter

Kind = Literal["numerical", "stderr"]


@dataclass(frozen=True)
class Estimate:
    """A value with its error.

    `kind` says what the error means: ``numerical`` is a bound (the truth lies within `error` of `value` except in rare
    cases; where the integration is random the bound is three standard errors), ``stderr`` is one standard error of a
    sample mean. The two are never added silently. An infinite error says that nothing is known: the equations were not
    solved, or there is a single repeat.

    >>> print(ndl.Estimate(0.5, 1e-3))
    0.5 (+- 1.0e-03)
    """

    value: float
    error: float = 0.0
    kind: Kind = "numerical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "error", float(self.error))
        if self.kind not in ("numerical", "stderr"):
            raise InvalidParameter(
                f"Estimate(kind={self.kind!r}): kind must be 'numerical' (a bound) or 'stderr' (one standard error)."
            )
        if math.isnan(self.error):
            raise InvalidParameter("Estimate(error=nan): error must be >= 0 (it is a size; inf says it is unknown).")
        if self.error < 0:
            raise InvalidParameter(f"Estimate(error={self.error}): error must be >= 0 (it is a size).")

    def __float__(self) -> float:
        return self.value

    def __add__(self, constant: float) -> Estimate:
        """Return the estimate shifted by an exactly known constant; two estimates cannot be added.

        A large constant costs digits, so the rounding of the sum is added to a numerical error, and a standard error is
        at least as large as it.
        """
        if isinstance(constant, Estimate):
            return NotImplemented
        value = self.value + constant
        rounding = math.ulp(value) if constant and math.isfinite(value) else 0.0
        error = self.error + rounding if self.kind == "numerical" else max(self.error, rounding)
        return Estimate(value, error, self.kind)

    def __format__(self, spec: str) -> str:
        """Return the value in the given number format; without a format, value and error."""
        return format(self.value, spec) if spec else str(self)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(self.error)

    def __str__(self) -> str:
        sign = "+-" if self.kind == "numerical" else "se"
        return f"{self.value:.10g} ({sign} {self.error:.1e})"

    def to_json(self) -> dict[str, Any]:
        from needlepoint.core.text.jsonio import number

        return {"value": number(self.value), "error": number(self.error), "kind": self.kind}

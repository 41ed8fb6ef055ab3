"""Errors whose message gives the call, the value, what is admissible, the reason and the next step."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

_LONGEST = 300  # characters; a longer value is shortened in an error message
_MOST = 1200  # characters of a whole message, whatever it quotes


class NeedlepointError(Exception):
    """Base of everything this library raises on purpose; a message that quotes very long input is shortened.

    >>> issubclass(ndl.InvalidParameter, ndl.NeedlepointError)
    True
    """

    def __init__(self, message: str = ""):
        super().__init__(brief(message))


class InvalidParameter(NeedlepointError, ValueError):
    """A value outside its admissible set.

    >>> try:
    ...     ndl.SpikedSLR(2, snr=-1.0)
    ... except ndl.InvalidParameter as error:
    ...     print(error)
    SpikedSLR(snr=-1.0): snr must be >= 0 and finite (it scales the spike in eq:slr-law).
    """


class UnknownName(InvalidParameter):
    """A name that is not registered; the message carries the nearest one that is.

    >>> from needlepoint.core.text.parsing import parse_value
    >>> try:
    ...     parse_value("Wishar(0.5)")
    ... except ndl.UnknownName as error:
    ...     print(str(error)[:30])
    unknown name 'Wishar': did you
    """

    def __init__(self, what: str, name: object, known: Iterable[str]):
        known = sorted(known)
        said = shown(name).strip("'")
        # numbers such as those of papers look alike without being near each other
        near = difflib.get_close_matches(said, known, n=1, cutoff=0.4 if any(map(str.isalpha, said)) else 0.85)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}."
        super().__init__(f"unknown {what} {shown(name)}: {hint}")


class NoTheory(NeedlepointError, LookupError):
    """No rule covers this combination of task, model and learner.

    >>> try:
    ...     ndl.predict(ndl.AttentionIndexed(2, ndl.Wishart(0.5)), None, ndl.Population())
    ... except ndl.NoTheory as error:
    ...     print(str(error)[:46])
    no rule for predict(AttentionIndexed, None, Po
    """


class NotConverged(NeedlepointError, ArithmeticError):
    """A solver or a run stopped without an answer; `result` is what it had.

    >>> issubclass(ndl.NotConverged, ndl.NeedlepointError)
    True
    """

    def __init__(self, message: str, result: object = None):
        super().__init__(message)
        self.result = result


def shown(value: object) -> str:
    """Return the text of a value for an error message: on one line, and shortened where it is very long.

    Python refuses to write integers of more than 4,300 digits and raises ValueError; these are described instead.
    """
    if isinstance(value, type):
        return value.__name__
    try:
        text = repr(value)
    except ValueError:
        if not isinstance(value, int):
            return f"<{type(value).__name__} with an integer of more than 4,300 digits>"
        return f"<integer of {math.floor(value.bit_length() * math.log10(2)) + 1:,} digits>"
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 60]} ... {text[-60:]}"


def brief(message: str) -> str:
    """Return a message with its middle left out where it is very long, so that its reason and next step are seen."""
    if len(message) <= _MOST:
        return message
    half = _MOST // 2 - 50
    return f"{message[:half]} ... ({len(message) - 2 * half:,} characters left out) ... {message[-half:]}"


def one_line(error: BaseException) -> str:
    """Return class name and message on one line, as the command line prints them."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"

"""The function that draws an answer: answers know of no plotting, so whoever does registers it here.

It imports nothing, because the package imports it first of all.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the real one would cost an import of typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_drawers: list[Callable[..., Any]] = []


def draw_with(function: Callable[..., Any]) -> None:
    """Register the function that draws an answer."""
    _drawers[:] = [function]


def draw(shown: Any, *args: Any, **options: Any) -> Any:
    """Return the picture of an answer by the registered function."""
    return _drawers[0](shown, *args, **options)

"""Computing in float64 whatever the caller's JAX setting is, without changing it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from needlepoint.core.process import caching, forks

_P = ParamSpec("_P")
_R = TypeVar("_R")


def float64(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run the function with 64-bit JAX types, or say that it would hang in a forked process.

    What it returns must be floats and NumPy arrays: a float64 JAX array loses its precision in arithmetic outside the
    scope.
    """

    @functools.wraps(function)
    def scoped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        forks.note_use()
        caching.suggest()
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return scoped

"""Refusal to compute in a process that was forked from one in which JAX has computed.

A fork copies the memory but not the threads of JAX, so that the first computation would wait for them forever.
"""

from __future__ import annotations

import os
import sys

from needlepoint.core.errors import InvalidParameter

_used = False  # whether this package has computed in this process
_broken = False  # whether this process was forked after JAX had computed


def note_use() -> None:
    """Note that this process computes; raise InvalidParameter where that would hang. Called before any computation."""
    global _used
    if _broken:
        raise InvalidParameter(
            "this process was forked from one in which JAX has computed, and computing here would hang: start "
            "processes with multiprocessing.get_context('spawn'), as executor='processes' of sweep does."
        )
    _used = True


def _in_child() -> None:
    global _broken
    _broken = _broken or _used or _jax_has_computed()


def _jax_has_computed() -> bool:
    """Return whether JAX has computed in this process, also by the user's own calls; JAX has no public function for
    this."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        return bridge is not None and bool(bridge.backends_are_initialized())
    except Exception:  # another version of JAX lacks this private function; `_used` still covers our own calls
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

"""Whether this process is a fork of one in which JAX has computed: its threads are gone here, and waiting for them
never ends."""

from __future__ import annotations

import os
import sys

from needlepoint.core.errors import InvalidParameter

_used = False  # whether this package has computed in this process
_broken = False  # whether this process was forked after JAX had computed


def note_use() -> None:
    """Called before anything is computed; one sentence where it would hang."""
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
    """Whether the caller has used JAX by itself; asked of JAX, which has no public word for it."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        return bridge is not None and bool(bridge.backends_are_initialized())
    except Exception:  # another version of JAX: what this package has done itself is still known
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

"""Compiled kernels on disk, so that the first answer of the next process does not wait for the compiler.

JAX keeps the kernels in a folder; this module says which one, keeps it small, and removes what was damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any, cast

from needlepoint.core.errors import InvalidParameter, shown

SWITCH = "NEEDLEPOINT_CACHE"
"""The environment variable that refuses the cache ("off") or names another folder for it."""

MEGABYTES = 500.0
"""Size of the folder above which the kernels that were not used for longest are removed. One question takes about 1."""

KEPT = 0.8
"""Share of the allowed size that is left after a removal, so that the next one is not needed at once."""

CHECKED = ".checked"
"""Name of the file whose time says up to when the kernels were checked for damage."""

_told = False  # whether the user of a notebook was told of the cache
_said: set[str] = set()  # sentences about a cache that cannot be used


def use_cache(folder: str | os.PathLike[str] | None = None, *, megabytes: float = MEGABYTES) -> Path | None:
    """Keep compiled kernels on disk from now on, and return their folder, or None where there is none to be used.

    The folder is in the user's cache folder, or in `folder`, one for each version of JAX and each kind of processor, so
    that a home that unlike machines share is safe. `NEEDLEPOINT_CACHE=off` in the environment refuses it, and a path
    there replaces the default. A cache that JAX was told to use already (JAX_COMPILATION_CACHE_DIR) is left as it is
    unless `folder` is given.
    Kernels beyond `megabytes`, those that were not used for longest, and damaged ones are removed when this is called.
    Worker processes that are started later use the same folder. A folder that cannot be written to is only read,
    which one sentence on standard error says.

    A cache is code that runs: use a folder that nobody else can write to.

    >>> folder = ndl.use_cache()
    """
    size = cast("object", megabytes)  # a caller may have passed anything
    if not isinstance(size, (int, float)) or isinstance(size, bool) or not 0 < size < float("inf"):
        raise InvalidParameter(f"use_cache(megabytes={shown(megabytes)}): megabytes must be > 0 and finite.")
    wanted = os.environ.get(SWITCH, "")
    if wanted.lower() == "off":
        return None
    given = _of_jax()
    if given is not None and folder is None:
        return given
    try:
        place = Path(folder or wanted or _default()) / _key()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        readable = os.access(place, os.R_OK | os.X_OK)
        writable = os.access(place, os.W_OK)
    except (OSError, RuntimeError, ValueError, TypeError) as error:  # no home, no permission, a path that cannot be one
        _say(f"compiled kernels are not kept: {_why(error, folder or wanted)}")
        return None
    if not readable:
        _say(f"compiled kernels are not kept: {place} may not be read")
        return None
    if not writable:
        _say(f"new kernels are not kept: {place} may only be read")
    with contextlib.suppress(OSError):  # a folder that is read only, or that another process tidies at the same time
        _tidy(place, megabytes * 1e6)
    _tell_jax(place)
    return place


def suggest() -> None:
    """Tell the user of a notebook, once, that kernels can be kept. Called before a computation."""
    global _told
    if _told:
        return
    _told = True
    shell = sys.modules.get("IPython")
    kernel = "ipykernel" in sys.modules and shell is not None
    if kernel and _of_jax() is None and os.environ.get(SWITCH, "").lower() != "off":
        print(
            "needlepoint: the first answers of a session take some seconds to compile; ndl.use_cache() keeps what was "
            "compiled for the next one.",
            file=sys.stderr,
        )


def _say(what: str) -> None:
    """Say once in a process, on standard error, what became of the cache; the work goes on without."""
    if what not in _said:
        _said.add(what)
        print(f"needlepoint: {what}; {SWITCH}=FOLDER names another place, {SWITCH}=off wants none.", file=sys.stderr)


def _why(error: Exception, place: object) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"cannot make {error.filename} ({error.strerror})"
    return f"{shown(place)} cannot be a folder" if place else "this user has no folder for them"


def _default() -> str:
    import platformdirs

    return platformdirs.user_cache_dir("needlepoint", appauthor=False)


def _of_jax() -> Path | None:
    """Return the folder that JAX uses or will use, if there is one."""
    jax = sys.modules.get("jax")
    used = jax.config.jax_compilation_cache_dir if jax is not None else os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return Path(used) if used else None


def _key() -> str:
    """Return the name of the folder for this version of JAX and this kind of processor."""
    from importlib.metadata import version

    features = [platform.machine(), platform.system(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        features += [line for line in lines if line.startswith(("flags", "Features", "model name"))][:2]
    kind = hashlib.sha256("\n".join(features).encode()).hexdigest()[:12]
    return f"jax-{version('jax')}-{version('jaxlib')}-{kind}"


def _tell_jax(place: Path) -> None:
    settings = {
        "jax_compilation_cache_dir": str(place),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    os.environ |= {name.upper(): str(value) for name, value in settings.items()}  # for processes started from here
    # a kernel that cannot be read or written is compiled, which is all that a user needs to know
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    if "jax" in sys.modules:
        import jax
        from jax.experimental.compilation_cache import compilation_cache

        config: Any = jax.config
        for name, value in settings.items():
            config.update(name, value)
        compilation_cache.reset_cache()  # it decides once, at the first compilation, whether there is a cache


def _tidy(place: Path, most: float) -> None:
    """Remove damaged kernels, and the ones not used for longest while all together exceed `most` bytes."""
    since = _time_of(place / CHECKED)
    (place / CHECKED).touch()
    found: list[tuple[float, int, Path]] = []
    for path in place.glob("*-cache"):
        with contextlib.suppress(OSError):  # removed meanwhile by another process
            state = path.stat()
            if state.st_mtime >= since and _is_damaged(path.read_bytes()):
                path.unlink()
            else:
                found.append((max(state.st_atime, state.st_mtime), state.st_size, path))
    total = sum(size for _, size, _ in found)
    if total > most:
        for _, size, path in sorted(found):
            if total <= KEPT * most:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _time_of(path: Path) -> float:
    """Return when a file was last touched, with a margin for clocks of whole seconds; 0 if it is not there."""
    try:
        return path.stat().st_mtime - 2.0
    except OSError:
        return 0.0


def _is_damaged(content: bytes) -> bool:
    """Return whether a kernel was not written to its end: zlib has a checksum, other formats are taken as they are."""
    if not content:
        return True
    if content[0] != 0x78:
        return False
    try:
        zlib.decompress(content)
    except zlib.error:
        return True
    return False

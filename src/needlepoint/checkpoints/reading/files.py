"""Which files of a checkpoint may be opened: regular ones, inside the folder that the user named, of bounded size."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from needlepoint.core.errors import InvalidParameter, shown

LARGEST_JSON = 10_000_000
"""Bytes. A header, an index or a config above this is refused: it would describe some 80,000 tensors in one file, and
reading it takes up to a hundred times its size in memory."""


class BadCheckpoint(InvalidParameter):
    """A file that is not a checkpoint this library can read; the message says what is wrong and where."""


def regular(path: Path) -> Path:
    """Return the path of a file that exists and is an ordinary file (not a folder, a pipe or a device)."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadCheckpoint(f"cannot read {path}: {why}.") from None
    if not stat.S_ISREG(mode):
        raise BadCheckpoint(f"cannot read {path}: it is not an ordinary file.")
    return path


def inside(folder: Path, name: object, *, follow_links: bool) -> Path:
    """Return the path of a file that a checkpoint's folder holds, by its name; nothing outside the folder is opened.

    A name with a path in it is refused, and so is a symbolic link that leads out of the folder unless `follow_links`.
    """
    if type(name) is not str or not name or len(name) > 255 or name in (".", ".."):
        raise BadCheckpoint(f"{folder} names a file {shown(name)}; a file name is expected.")
    if "/" in name or "\\" in name or "\0" in name:
        raise BadCheckpoint(f"{folder} names the file {shown(name)}, a path out of its folder; none is read there.")
    path = folder / name
    if not follow_links and path.is_symlink() and path.resolve().parent != folder.resolve():
        raise BadCheckpoint(
            f"{path} is a symbolic link that leads out of the folder; give follow_links=True (--follow-links) if this "
            "is meant, as in a Hugging Face cache."
        )
    return regular(path)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the name {shown(twice)} appears twice")
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Return the object that JSON text holds; duplicate names, NaN and anything but an object are refused."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else shown(str(error)).strip("'\"")
        raise BadCheckpoint(f"{where} cannot be read as JSON: {why}.") from None
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{where} holds {type(value).__name__} where a JSON object is expected.")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of at most `LARGEST_JSON` bytes."""
    if (size := regular(path).stat().st_size) > LARGEST_JSON:
        raise BadCheckpoint(f"{path} has {size:,} bytes; at most {LARGEST_JSON:,} are read as JSON.")
    with path.open("rb") as file:
        return parse_json(file.read(LARGEST_JSON + 1), str(path))

"""Messages for what can happen to the file of a store, and the rescue of its points when it is removed."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from pathlib import Path


def reason(error: Exception) -> str:
    text = "malformed" if isinstance(error, UnicodeDecodeError) else str(error)
    for part, sentence in (
        ("full", "the disk is full; the points stored so far are kept. Free some space and run again."),
        ("disk I/O", "the disk, a quota or a limit of file sizes refuses; the points stored so far are kept."),
        ("readonly", "it is read-only; the points stored so far are kept. Copy it to where you may write."),
        ("locked", "another process has held it for a minute; wait for it or stop it."),
        ("not a database", "it is not a sqlite file; give another name."),
        ("unable to open", "the folder does not exist or may not be written (a store that was not closed needs that)."),
        ("malformed", "the file is damaged; take a copy from before."),
    ):
        if part in text:
            return sentence
    return f"{text}."


def identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _rescued(path: str, i: int) -> str:
    """Return the name of rescue copy i: for study.sqlite it is study-rescued.sqlite, study-rescued-2.sqlite, ..."""
    name = Path(path)
    return f"{name.stem}-rescued{'' if i == 1 else f'-{i}'}{name.suffix}"


def rescue(db: sqlite3.Connection, path: str) -> str:
    """Copy the contents of a removed file to its folder, or else to the current one; return a sentence that says where.

    The open connection `db` can still read them.
    """
    for folder in (Path(path).absolute().parent, Path.cwd()):
        target = next(p for i in itertools.count(1) if not (p := folder / _rescued(path, i)).exists())
        try:
            with contextlib.closing(sqlite3.connect(target)) as copy:
                db.backup(copy)
                for table in ("claims", "owners"):  # no process works on the copy, so it must have no claims
                    copy.execute(f"DELETE FROM {table}")
                copy.commit()
        except (sqlite3.Error, OSError):
            target.unlink(missing_ok=True)
        else:
            return f"the points computed so far are kept in {target}: move it back and run again."
    return "the points computed so far could not be copied and are lost."

"""The sqlite file of a study: opening it, transactions, a sign of life while it is in use, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from needlepoint.core.errors import InvalidParameter
from needlepoint.studies.execution.work import versions
from needlepoint.studies.storage import schema
from needlepoint.studies.storage.owners import born_at, this_host
from needlepoint.studies.storage.schema import SCHEMA, StoreError
from needlepoint.studies.storage.troubles import identity, reason, rescue

MEMORY = ":memory:"
"""The path of a store that is kept nowhere."""

_BEAT = 2.0  # seconds between signs of life of a running process
_PATIENCE = 60.0  # seconds to wait for another writer


class StoreFile:
    """An open sqlite file with the tables of a store, or the same in memory. Errors of sqlite are one sentence."""

    def __init__(self, path: str | Path = MEMORY, *, create: bool = True, readonly: bool = False):
        self.path = str(path)
        self.kept = self.path != MEMORY
        self.owner = uuid.uuid4().hex
        self._heart: threading.Thread | None = None
        self._stop = threading.Event()
        self._version: int | None = None
        self._sealed = True  # whether there is a table of seals; not in a store of schema 1 that is only read
        self._file: tuple[int, int] | None = None  # which file this is, so that its removal is noticed
        if self.kept and (readonly or not create) and not Path(path).is_file():
            raise InvalidParameter(f"there is no store {self.path}.")
        with self._saying("open"):
            self._db = self._connect_to_read() if readonly else self._connect()
            try:
                # text that is no text is damage of its row, not of the store
                self._db.text_factory = lambda text: text.decode(errors="replace")
                if readonly:
                    self._sealed = schema.version_of(self._db, self.path) >= 2
                else:
                    self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, timeout=_PATIENCE)

    def _connect_to_read(self) -> sqlite3.Connection:
        """In a folder that may not be written sqlite has no place for its shared memory, and nothing can change."""
        name = f"{Path(self.path).absolute().as_uri()}?mode=ro"
        db = sqlite3.connect(name, uri=True, isolation_level=None, timeout=_PATIENCE)
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except UnicodeDecodeError:
            db.close()
            raise
        except sqlite3.OperationalError as error:
            db.close()
            log = Path(f"{self.path}-wal")
            if "locked" in str(error) or (log.exists() and log.stat().st_size > 0):
                raise
            db = sqlite3.connect(f"{name}&immutable=1", uri=True, isolation_level=None, timeout=_PATIENCE)
        return db

    def _prepare(self) -> None:
        if self._one("PRAGMA application_id") == 0 and self._one("SELECT count(*) FROM sqlite_master") == 0:
            self._keep_a_log()
            with self._writing():
                if self._one("SELECT count(*) FROM sqlite_master") == 0:  # another process may have been faster
                    schema.make(self._db)
                    self._put_meta("written by", json.dumps(versions()["needlepoint"]))
        if schema.version_of(self._db, self.path) < SCHEMA:
            with self._writing():
                if schema.version_of(self._db, self.path) < SCHEMA:
                    schema.upgrade(self._db)
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._file = identity(self.path) if self.kept else None

    def _keep_a_log(self) -> None:
        """Write-ahead logging. Changing to it does not wait for another process by itself."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(0.02)

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self._db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def _put_meta(self, key: str, text: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text))

    def _live(self) -> None:
        """Say that this process is alive, now and from time to time."""
        if self._heart is not None:
            return
        with self._saying("write"), self._writing():
            row = (self.owner, this_host(), os.getpid(), born_at(os.getpid()), time.time())
            self._db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?)", row)
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def _beat(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as db:
            while not self._stop.wait(_BEAT):
                with contextlib.suppress(sqlite3.Error):  # the main thread will meet the same trouble and say so
                    db.execute("UPDATE owners SET seen = ? WHERE id = ?", (time.time(), self.owner))

    def _still_there(self) -> None:
        """Notice that the file was removed or replaced: sqlite would go on writing to what no name leads to."""
        if self._file is None or identity(self.path) == self._file:
            return
        self._file = None  # said once
        raise StoreError(f"{self.path} was removed while it was in use; {rescue(self._db, self.path)}")

    def close(self) -> None:
        """Give back what was claimed and fold the log into the file; say so if it was removed in the meantime."""
        self._stop.set()
        try:
            if self._heart is not None:
                self._still_there()
        finally:
            self._close()

    def _close(self) -> None:
        if self._heart is not None:
            self._heart.join()
            self._heart = None
            with contextlib.suppress(sqlite3.Error, StoreError), self._writing():
                self._db.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))
                self._db.execute("DELETE FROM owners WHERE id = ?", (self.owner,))
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # another error is the one to be told
        with contextlib.suppress(StoreError) if error is not None else contextlib.nullcontext():
            self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: all of it or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._version = None  # its row may be gone with the rest
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        """sqlite's errors as one sentence with the way out."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # sqlite quotes damaged names in its errors
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot {what} the store {self.path}: {reason(error)}") from error

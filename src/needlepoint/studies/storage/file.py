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
"""The path of a store that lives in memory only."""

_BEAT = 2.0  # seconds between two updates of the time at which this process was last alive; see `owners.SILENCE`
_PATIENCE = 60.0  # seconds to wait while another process writes


class StoreFile:
    """An open sqlite file with the tables of a store, or the same in memory; errors of sqlite raise StoreError."""

    def __init__(self, path: str | Path = MEMORY, *, create: bool = True, readonly: bool = False):
        self.path = str(path)
        self.kept = self.path != MEMORY
        self.owner = uuid.uuid4().hex
        self._heart: threading.Thread | None = None
        self._stop = threading.Event()
        self._version: int | None = None
        self._sealed = True  # False for a store of schema 1 opened to read: it has no table of seals
        self._litter = False  # whether reading has made files beside the store, to be removed at the end
        self._file: tuple[int, int] | None = None  # device and inode of the file, by which its removal is noticed
        if self.kept and (readonly or not create) and not Path(path).is_file():
            raise InvalidParameter(f"there is no store {self.path}.")
        with self._saying("open"):
            self._db = self._connect_to_read() if readonly else self._connect()
            try:
                # bytes that are not valid text damage one row; they must not make the whole store unreadable
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
        """Return a connection that cannot write.

        sqlite needs to create a shared-memory file even to read. In a folder that may not be written it cannot, so the
        file is then opened as immutable, provided that no log of unfinished writes is left.
        """
        name = f"{Path(self.path).absolute().as_uri()}?mode=ro"
        self._litter = not Path(f"{self.path}-wal").exists()
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
            self._litter = False
        return db

    def _tidy(self) -> None:
        """Remove the empty log and shared memory that reading has made: sqlite does so when the last connection that
        may write is closed, and does nothing while another process has the file open."""
        with contextlib.suppress(sqlite3.Error, OSError, UnicodeDecodeError):
            if Path(f"{self.path}-wal").stat().st_size == 0:
                with contextlib.closing(self._connect()) as db:
                    db.execute("SELECT count(*) FROM sqlite_master").fetchone()

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
        """Turn on write-ahead logging; sqlite does not wait for a lock when it changes the mode, so this retries."""
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
        """Record that this process is alive, and start the thread that repeats it."""
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
        """Raise StoreError if the file was removed or replaced: sqlite would go on writing to a file without a name."""
        if self._file is None or identity(self.path) == self._file:
            return
        self._file = None  # so that it is reported once only
        raise StoreError(f"{self.path} was removed while it was in use; {rescue(self._db, self.path)}")

    def close(self) -> None:
        """Give up all claims and merge the write-ahead log into the file; raises StoreError if the file is gone."""
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
        if self._litter:
            self._tidy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # where another error is being raised, an error of closing must not hide it
        with contextlib.suppress(StoreError) if error is not None else contextlib.nullcontext():
            self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Run this context as one transaction: all of it is written, or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._version = None  # the row of this version may have been written in the transaction that is undone
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        """Turn errors of sqlite into a StoreError of one sentence that says what to do."""
        try:
            yield
        # UnicodeDecodeError: sqlite quotes damaged names in its error messages, which Python then fails to decode
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot {what} the store {self.path}: {reason(error)}") from error

"""One sqlite file a study: every finished point in its own transaction, claims so that no point is done twice."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.core.errors import InvalidParameter, NeedlepointError
from needlepoint.studies.jobs import Job, Unit
from needlepoint.studies.work import Outcome, versions

SCHEMA = 1
APPLICATION = 0x6E646C70  # "ndlp"
MEMORY = ":memory:"
_BEAT = 2.0  # seconds between signs of life of a running process
_SILENCE = 30.0  # seconds without one after which a process on another machine counts as dead
_PATIENCE = 60.0  # seconds to wait for another writer

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE versions (id INTEGER PRIMARY KEY, document TEXT UNIQUE);
CREATE TABLE points (
  id TEXT PRIMARY KEY, verb TEXT, task TEXT, model TEXT, learner TEXT, options TEXT,
  chunk TEXT, state TEXT, status TEXT, message TEXT, seed INTEGER, seconds REAL,
  version INTEGER REFERENCES versions, finished TEXT, times INTEGER, document TEXT
) WITHOUT ROWID;
CREATE TABLE metrics (
  point TEXT, name TEXT, value REAL, error REAL, kind TEXT, PRIMARY KEY (point, name)
) WITHOUT ROWID;
CREATE TABLE blobs (point TEXT, name TEXT, data BLOB, PRIMARY KEY (point, name));
CREATE TABLE owners (id TEXT PRIMARY KEY, host TEXT, pid INTEGER, born TEXT, seen REAL) WITHOUT ROWID;
CREATE TABLE claims (unit TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID;
"""


class StoreError(NeedlepointError, OSError):
    """The store cannot be read or written; what it holds is as it was."""


class Store:
    """The points of a study in a sqlite file, or in memory."""

    def __init__(self, path: str | Path = MEMORY, *, create: bool = True, readonly: bool = False):
        self.path = str(path)
        self.kept = self.path != MEMORY
        self.owner = uuid.uuid4().hex
        self._heart: threading.Thread | None = None
        self._stop = threading.Event()
        self._version: int | None = None
        if self.kept and (readonly or not create) and not Path(path).is_file():
            raise InvalidParameter(f"there is no store {self.path}.")
        with self._saying("open"):
            self._db = self._connect_to_read() if readonly else self._connect()
            try:
                if readonly:
                    self._check()
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
                    for statement in _TABLES.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA}")
                    self._put_meta("written by", json.dumps(versions()["needlepoint"]))
        self._check()
        self._db.execute("PRAGMA synchronous = NORMAL")

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

    def _check(self) -> None:
        if self._one("PRAGMA application_id") != APPLICATION:
            raise StoreError(f"{self.path} is not a needlepoint store; give another file.")
        schema = self._one("PRAGMA user_version")
        if schema != SCHEMA:
            row = self._db.execute("SELECT value FROM meta WHERE key = 'written by'").fetchone()
            writer = json.loads(row[0]) if row else "of an unknown version"
            raise StoreError(
                f"{self.path} has schema {schema} (needlepoint {writer}), this version reads schema {SCHEMA}; export "
                "it with the version that wrote it (needlepoint study export), or take a new file and run again."
            )

    # --- reading ---------------------------------------------------------------------------------

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        row = self._db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def missing(self, unit: Unit, retry: bool = False) -> bool:
        """Whether a unit has to be computed: a chunk that is partly there has to be, as a whole."""
        with self._saying("read"):
            for job in unit.jobs:
                row = self._db.execute("SELECT state, chunk FROM points WHERE id = ?", (job.id,)).fetchone()
                if row is None or row[1] != unit.chunk or (retry and row[0] == "failed"):
                    return True
        return False

    def state(self, job: Job) -> tuple[str, str]:
        """State and status of a job that is there."""
        with self._saying("read"):
            return self._db.execute("SELECT state, status FROM points WHERE id = ?", (job.id,)).fetchone()

    def row(self, job_id: str) -> dict[str, Any] | None:
        """All columns of a point but its arrays."""
        with self._saying("read"):
            cursor = self._db.execute("SELECT * FROM points WHERE id = ?", (job_id,))
            found = cursor.fetchone()
        return None if found is None else dict(zip([c[0] for c in cursor.description], found, strict=True))

    def rows(self, where: str = "1") -> Iterator[dict[str, Any]]:
        with self._saying("read"):
            cursor = self._db.execute(f"SELECT * FROM points WHERE {where} ORDER BY finished, id")
            names = [c[0] for c in cursor.description]
            for found in cursor:
                yield dict(zip(names, found, strict=True))

    def get(self, job_id: str) -> Outcome | None:
        """The outcome of a job with its arrays; None if it is not there."""
        row = self.row(job_id)
        if row is None:
            return None
        return Outcome(
            job_id,
            row["state"],
            row["status"],
            row["message"],
            row["seed"],
            row["seconds"],
            document=row["document"],
            arrays=self._arrays(job_id) if '"$array"' in row["document"] else {},
        )

    def _arrays(self, job_id: str) -> dict[str, np.ndarray]:
        with self._saying("read"):
            found = self._db.execute("SELECT name, data FROM blobs WHERE point = ?", (job_id,)).fetchall()
        return {name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in found}

    def counts(self) -> dict[tuple[str, str], int]:
        """How many points are in each (state, status)."""
        with self._saying("read"):
            rows = self._db.execute("SELECT state, status, count(*) FROM points GROUP BY state, status").fetchall()
        return {(state, status): n for state, status, n in rows}

    def meta(self, key: str) -> Any:
        with self._saying("read"):
            text = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return None if text is None else json.loads(text)

    # --- writing ---------------------------------------------------------------------------------

    def put_meta(self, key: str, value: Any) -> None:
        with self._saying("write"), self._writing():
            self._put_meta(key, json.dumps(value))

    def _put_meta(self, key: str, text: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text))

    def put(self, unit: Unit, outcomes: Sequence[Outcome]) -> None:
        """Store the outcomes, one transaction each; the last one gives the unit back."""
        for i, (job, outcome) in enumerate(zip(unit.jobs, outcomes, strict=True), start=1):
            with self._saying("write"), self._writing():
                self._put(job, outcome, unit.chunk)
                if i == len(unit.jobs):
                    self._release(unit)

    def _put(self, job: Job, o: Outcome, chunk: str) -> None:
        times = self._one("SELECT times FROM points WHERE id = ?", (o.id,)) or 0
        for table in ("metrics", "blobs"):
            self._db.execute(f"DELETE FROM {table} WHERE point = ?", (o.id,))
        text = job.text
        finished = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (o.id, job.verb, text["task"], text["model"], text["learner"], text["options"], chunk)
        row += (o.state, o.status, o.message, o.seed, o.seconds, self._versions(), finished, times + 1, o.document)
        self._db.execute(f"INSERT OR REPLACE INTO points VALUES ({', '.join('?' * 16)})", row)
        self._db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", [(o.id, *m) for m in o.metrics])
        self._db.executemany("INSERT INTO blobs VALUES (?, ?, ?)", [(o.id, n, _bytes(a)) for n, a in o.arrays.items()])

    def _versions(self) -> int:
        if self._version is None:
            text = json.dumps(versions())
            self._db.execute("INSERT OR IGNORE INTO versions (document) VALUES (?)", (text,))
            self._version = self._one("SELECT id FROM versions WHERE document = ?", (text,))
        assert self._version is not None
        return self._version

    # --- who does what ---------------------------------------------------------------------------

    def claim(self, unit: Unit, retry: bool = False) -> bool:
        """Take a unit that has to be computed and that nobody alive has taken."""
        if not self.kept:
            return True
        self._live()
        with self._saying("write"), self._writing():
            other = self._one("SELECT owner FROM claims WHERE unit = ?", (unit.id,))
            if other is not None and other != self.owner and self._alive(other):
                return False
            if not self.missing(unit, retry):
                return False  # finished by somebody in the meantime
            self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (unit.id, self.owner))
        return True

    def release(self, unit: Unit) -> None:
        """Give back a unit that was not computed."""
        if self.kept:
            with self._saying("write"), self._writing():
                self._release(unit)

    def _release(self, unit: Unit) -> None:
        self._db.execute("DELETE FROM claims WHERE unit = ? AND owner = ?", (unit.id, self.owner))

    def _alive(self, owner: str) -> bool:
        row = self._db.execute("SELECT host, pid, born, seen FROM owners WHERE id = ?", (owner,)).fetchone()
        if row is None:
            return False
        host, pid, born, seen = row
        if host == _host() and born:
            return _born(pid) == born
        return time.time() - seen < _SILENCE

    def _live(self) -> None:
        """Say that this process is alive, now and from time to time."""
        if self._heart is not None:
            return
        with self._saying("write"), self._writing():
            row = (self.owner, _host(), os.getpid(), _born(os.getpid()), time.time())
            self._db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?)", row)
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def _beat(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as db:
            while not self._stop.wait(_BEAT):
                with contextlib.suppress(sqlite3.Error):  # the main thread will meet the same trouble and say so
                    db.execute("UPDATE owners SET seen = ? WHERE id = ?", (time.time(), self.owner))

    def close(self) -> None:
        """Give back what was claimed and fold the log into the file."""
        self._stop.set()
        if self._heart is not None:
            self._heart.join()
            self._heart = None
            with contextlib.suppress(sqlite3.Error, StoreError), self._writing():
                self._db.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))
                self._db.execute("DELETE FROM owners WHERE id = ?", (self.owner,))
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
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
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot {what} the store {self.path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error)
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


def _host() -> str:
    return socket.gethostname()


def _born(pid: int) -> str:
    """When a process on this machine started, so that a number given out again is not taken for it; empty: dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2 :].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, ValueError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "alive"  # no /proc here: the number is all there is


def _bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()

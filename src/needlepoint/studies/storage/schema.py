"""The tables of a store: making them, taking over those of an older schema, and noticing that some are missing."""

from __future__ import annotations

import json
import sqlite3

from needlepoint.core.errors import NeedlepointError

SCHEMA = 2
APPLICATION = 0x6E646C70  # "ndlp" in ASCII: the mark in the file header by which a store is recognised

TABLES = """
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
SEALS = "CREATE TABLE seals (point TEXT PRIMARY KEY, numbers INTEGER, arrays TEXT, seal TEXT) WITHOUT ROWID;"
"""New in schema 2: for every point the `NUMBERS_VERSION` it was computed with, and hashes that reveal damage."""


class StoreError(NeedlepointError, OSError):
    """The store cannot be read or written; its contents are unchanged."""


def make(db: sqlite3.Connection) -> None:
    """Create all tables in an empty file; called inside a transaction."""
    for statement in f"{TABLES}{SEALS}".split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def upgrade(db: sqlite3.Connection) -> None:
    """Add the table of seals to a store of schema 1; its points have no seal, so they count as of older numbers."""
    db.execute(SEALS)
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def version_of(db: sqlite3.Connection, path: str) -> int:
    """Return the schema of a store that this version can read; raises StoreError for any other file."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        raise StoreError(f"{path} is not a needlepoint store; give another file.")
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    if schema not in (1, SCHEMA):
        raise StoreError(
            f"{path} has schema {schema} (needlepoint {_writer(db)}), this version reads schema {SCHEMA}; export "
            "it with the version that wrote it (needlepoint study export), or take a new file and run again."
        )
    _check_columns(db, path, schema)
    return schema


def _writer(db: sqlite3.Connection) -> str:
    try:
        (text,) = db.execute("SELECT value FROM meta WHERE key = 'written by'").fetchone()
        return str(json.loads(text))
    except (sqlite3.Error, TypeError, ValueError):
        return "of an unknown version"


def _check_columns(db: sqlite3.Connection, path: str, schema: int) -> None:
    """Raise StoreError unless every table has its columns in order, because some rows are written without names."""
    wanted = sqlite3.connect(":memory:")
    try:
        for statement in (TABLES + (SEALS if schema >= 2 else "")).split(";"):
            wanted.execute(statement)
        for (table,) in wanted.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = [row[1:3] for row in wanted.execute(f"PRAGMA table_info({table})")]
            found = [row[1:3] for row in db.execute(f"PRAGMA table_info({table})")]
            if columns != found:
                what = f"its table {table} is missing" if not found else f"its table {table} has other columns"
                raise StoreError(f"{path} is damaged: {what}; take a copy from before, or a new file and run again.")
    finally:
        wanted.close()

"""The store of a study, one sqlite file.

Every finished point is written in a transaction of its own. A process claims a unit before it computes it, so that
several processes can work on one store without computing a point twice.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from needlepoint.core.errors import one_line
from needlepoint.core.specs import NUMBERS_VERSION
from needlepoint.studies.execution.jobs import Job, Unit
from needlepoint.studies.execution.work import Outcome, versions
from needlepoint.studies.storage.file import MEMORY, StoreFile
from needlepoint.studies.storage.owners import alive
from needlepoint.studies.storage.schema import SCHEMA, StoreError
from needlepoint.studies.storage.seals import hashes, seal_of

__all__ = ["MEMORY", "SCHEMA", "Store", "StoreError"]

_AGAIN = "`study retry` (or sweep with retry) computes it again"


class Store(StoreFile):
    """The points of a study in a sqlite file, or in memory."""

    # --- reading ---------------------------------------------------------------------------------

    def missing(self, unit: Unit, retry: bool = False) -> bool:
        """Return whether a unit has to be computed; a batch that is stored in part has to be, as a whole.

        A damaged row counts as missing. With `retry` the arrays are checked for damage too, and failed jobs count as
        missing.
        """
        with self._saying("read"):
            for job in unit.jobs:
                row = self.row(job.id)
                if row is None or not self._sound(row, arrays=False) or row["chunk"] != unit.chunk:
                    return True
                if retry and ((outcome := self.get(job.id)) is None or outcome.state != "done"):
                    return True
        return False

    def state(self, job: Job) -> tuple[str, str]:
        """Return (state, status) of a job that is in the store."""
        with self._saying("read"):
            return self._db.execute("SELECT state, status FROM points WHERE id = ?", (job.id,)).fetchone()

    def _seal(self, job_id: str) -> tuple[Any, Any, Any] | None:
        """Return (numbers, arrays, seal) of a point; None if it has no seal."""
        if not self._sealed:
            return None
        return self._db.execute("SELECT numbers, arrays, seal FROM seals WHERE point = ?", (job_id,)).fetchone()

    def _sound(self, row: dict[str, Any], arrays: bool = True) -> bool:
        """Return whether a row, and with `arrays` its arrays, are still what was written."""
        seal = self._seal(row["id"])
        if seal is None:
            return False
        _, kept, text = seal
        sql = "SELECT name, value, error, kind FROM metrics WHERE point = ?"
        if seal_of(row, self._db.execute(sql, (row["id"],)).fetchall(), kept) != text:
            return False
        return not arrays or hashes(self._blobs(row["id"])) == kept

    def _blobs(self, job_id: str) -> list[tuple[str, bytes]]:
        return self._db.execute("SELECT name, data FROM blobs WHERE point = ?", (job_id,)).fetchall()

    def row(self, job_id: str) -> dict[str, Any] | None:
        """Return the columns of a point by name, without its arrays; None if it is not there."""
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
        """Return the outcome of a job with its arrays; None if it is not there, state "damaged" if it is unreadable."""
        with self._saying("read"):
            row = self.row(job_id)
            if row is None or self._seal(job_id) is None:
                return None
            if not self._sound(row):
                return Outcome(job_id, "damaged", "Damaged", f"what is stored of this point is damaged; {_AGAIN}.")
            blobs = self._blobs(job_id)
        kept = (row[name] for name in ("state", "status", "message", "seed", "seconds"))
        outcome = Outcome(job_id, *kept, document=row["document"])
        try:
            outcome.arrays = {name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in blobs}
            if outcome.state == "done":
                _ = outcome.result
        except Exception as error:  # the seal is intact, so another version or another program wrote this
            why = f"what is stored of this point cannot be read ({one_line(error)}); {_AGAIN}."
            return Outcome(job_id, "damaged", "Damaged", why)
        return outcome

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how many points are in each (state, status); points of another `NUMBERS_VERSION` are "older"."""
        known = "CASE WHEN state IN ('done', 'failed') AND typeof(status) = 'text' THEN"
        old = (
            "SELECT id FROM points"
            if not self._sealed
            else ("SELECT id FROM points LEFT JOIN seals ON point = id WHERE numbers IS NOT ?")
        )
        sql = (
            f"SELECT CASE WHEN id IN ({old}) THEN 'older' ELSE {known} state ELSE 'damaged' END END, "
            f"{known} status ELSE 'Damaged' END, count(*) FROM points GROUP BY 1, 2"
        )
        with self._saying("read"):
            rows = self._db.execute(sql, (NUMBERS_VERSION,) if self._sealed else ()).fetchall()
        return {(state, status): n for state, status, n in rows}

    def older(self) -> set[tuple[Any, ...]]:
        """Return (verb, task, model, learner) of all points that are of another `NUMBERS_VERSION`."""
        columns = "SELECT DISTINCT verb, task, model, learner FROM points"
        with self._saying("read"):
            if not self._sealed:
                return set(self._db.execute(columns).fetchall())
            sql = f"{columns} LEFT JOIN seals ON point = id WHERE numbers IS NOT ?"
            return set(self._db.execute(sql, (NUMBERS_VERSION,)).fetchall())

    def prune(self) -> int:
        """Remove the points of another `NUMBERS_VERSION` or without a seal; return how many."""
        with self._saying("write"), self._writing():
            sql = "SELECT id FROM points LEFT JOIN seals ON point = id WHERE numbers IS NOT ?"
            old = self._db.execute(sql, (NUMBERS_VERSION,)).fetchall()
            for table, column in (("metrics", "point"), ("blobs", "point"), ("seals", "point"), ("points", "id")):
                self._db.executemany(f"DELETE FROM {table} WHERE {column} = ?", old)
        return len(old)

    def ids(self, state: str | None = None) -> set[str]:
        """Return the ids of all points, or of those in one state."""
        with self._saying("read"):
            where, values = ("", ()) if state is None else (" WHERE state = ?", (state,))
            return {row[0] for row in self._db.execute(f"SELECT id FROM points{where}", values)}

    def seconds(self) -> float:
        """Return the seconds that all points together took."""
        with self._saying("read"):
            return float(self._one("SELECT total(seconds) FROM points WHERE typeof(seconds) = 'real'"))

    def meta(self, key: str) -> Any:
        """Return the value that `put_meta` stored under a key; None if there is none."""
        with self._saying("read"):
            found = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        try:
            return json.loads(found[0])
        except (TypeError, ValueError, RecursionError):
            raise StoreError(f"{self.path} is damaged: what it keeps as {key!r} cannot be read.") from None

    # --- writing ---------------------------------------------------------------------------------

    def put_meta(self, key: str, value: Any) -> None:
        with self._saying("write"), self._writing():
            self._put_meta(key, json.dumps(value))
        self._still_there()

    def put(self, unit: Unit, outcomes: Sequence[Outcome]) -> None:
        """Store the outcomes, one transaction each; the last one also ends the claim on the unit."""
        for i, (job, outcome) in enumerate(zip(unit.jobs, outcomes, strict=True), start=1):
            with self._saying("write"), self._writing():
                self._put(job, outcome, unit.chunk)
                if i == len(unit.jobs):
                    self._release(unit)
        self._still_there()

    def _put(self, job: Job, o: Outcome, chunk: str) -> None:
        times = self._one("SELECT times FROM points WHERE id = ?", (o.id,))
        times = times + 1 if isinstance(times, int) else 1
        for table in ("metrics", "blobs", "seals"):
            self._db.execute(f"DELETE FROM {table} WHERE point = ?", (o.id,))
        finished = datetime.now(UTC).isoformat(timespec="milliseconds")
        row: dict[str, Any] = {"id": o.id, "verb": job.verb, **job.text, "chunk": chunk, "state": o.state}
        row |= {"status": o.status, "message": o.message, "seed": o.seed, "seconds": float(o.seconds)}
        row |= {"version": self._versions(), "finished": finished, "times": times, "document": o.document}
        blobs = [(name, _bytes(array)) for name, array in o.arrays.items()]
        # sqlite cannot store NaN; None becomes NULL
        metrics = [(name, *(None if x != x else x for x in (v, e)), kind) for name, v, e, kind in o.metrics]
        arrays = hashes(blobs)
        marks = ", ".join(f":{name}" for name in row)
        self._db.execute(f"INSERT OR REPLACE INTO points ({', '.join(row)}) VALUES ({marks})", row)
        self._db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", [(o.id, *m) for m in metrics])
        self._db.executemany("INSERT INTO blobs VALUES (?, ?, ?)", [(o.id, *blob) for blob in blobs])
        seal = (o.id, NUMBERS_VERSION, arrays, seal_of(row, metrics, arrays))
        self._db.execute("INSERT INTO seals VALUES (?, ?, ?, ?)", seal)

    def _versions(self) -> int:
        if self._version is None:
            text = json.dumps(versions())
            self._db.execute("INSERT OR IGNORE INTO versions (document) VALUES (?)", (text,))
            self._version = self._one("SELECT id FROM versions WHERE document = ?", (text,))
        assert self._version is not None
        return self._version

    # --- who does what ---------------------------------------------------------------------------

    def claim(self, unit: Unit, retry: bool = False) -> bool:
        """Claim a unit for this process; return False if it is stored already or claimed by a running process."""
        if not self.kept:
            return True
        self._live()
        with self._saying("write"), self._writing():
            other = self._one("SELECT owner FROM claims WHERE unit = ?", (unit.id,))
            if other is not None and other != self.owner and self._alive(other):
                return False
            if not self.missing(unit, retry):
                return False  # another process has finished it in the meantime
            self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (unit.id, self.owner))
        self._still_there()
        return True

    def release(self, unit: Unit) -> None:
        """End the claim on a unit that was not computed."""
        if self.kept:
            with self._saying("write"), self._writing():
                self._release(unit)

    def _release(self, unit: Unit) -> None:
        self._db.execute("DELETE FROM claims WHERE unit = ? AND owner = ?", (unit.id, self.owner))

    def _alive(self, owner: str) -> bool:
        row = self._db.execute("SELECT host, pid, born, seen FROM owners WHERE id = ?", (owner,)).fetchone()
        return row is not None and alive(row)


def _bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()

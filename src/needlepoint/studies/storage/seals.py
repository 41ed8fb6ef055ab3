"""Seals: a hash of everything that is stored of a point, by which damage is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

SEALED = (
    *("id", "verb", "task", "model", "learner", "options", "chunk"),
    *("state", "status", "message", "seed", "seconds", "document"),
)
"""The columns of a row that a seal covers: all but when, how often and with which packages it was computed."""


def seal_of(row: Mapping[str, Any], metrics: Iterable[Any], arrays: str) -> str:
    """Return the hash of a row, its metrics and the hashes of its arrays (`arrays`, from `hashes`)."""
    numbers = sorted([str(name), *map(repr, numbers)] for name, *numbers in metrics)
    parts = [[repr(row[name]) for name in SEALED], numbers, arrays]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def hashes(blobs: Iterable[tuple[Any, Any]]) -> str:
    """Return the hash of each array by name, as JSON text."""
    return json.dumps({str(name): _hash(data) for name, data in sorted(blobs, key=lambda pair: str(pair[0]))})


def _hash(data: Any) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else repr(data).encode()).hexdigest()

"""Seals: a hash of everything that is stored of a point, by which a row that was damaged is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

SEALED = (
    *("id", "verb", "task", "model", "learner", "options", "chunk"),
    *("state", "status", "message", "seed", "seconds", "document"),
)
"""The columns of a row that a seal covers; when and how often it was computed is not among them."""


def seal_of(row: Mapping[str, Any], metrics: Iterable[Any], arrays: str) -> str:
    """The hash of a row, its metrics and the hashes of its arrays (`arrays`, from `hashes`)."""
    numbers = sorted([str(name), *map(repr, numbers)] for name, *numbers in metrics)
    parts = [[repr(row[name]) for name in SEALED], numbers, arrays]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def hashes(blobs: Iterable[tuple[Any, Any]]) -> str:
    """The hash of each array, as JSON."""
    return json.dumps({str(name): _hash(data) for name, data in sorted(blobs, key=lambda pair: str(pair[0]))})


def _hash(data: Any) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else repr(data).encode()).hexdigest()

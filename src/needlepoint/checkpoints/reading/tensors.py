"""Tensors in files: name, type, shape and place, mapped into memory and read a part at a time."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.core.errors import shown

PLAIN = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
"""Types that NumPy has, by the name that safetensors gives them."""


@dataclass(frozen=True)
class Place:
    """One tensor of a file: `dtype` and `shape` as stored, and its bytes `start` to `stop` counted from the file's
    beginning."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Coding(Protocol):
    """How the bytes of a tensor become numbers."""

    def bytes_of(self, dtype: str, count: int) -> int:
        """Return how many bytes `count` numbers take; raises BadCheckpoint for a type that is not known."""
        ...

    def decode(self, raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return bytes (uint8) as an array of the shape: float32, or float64 where it is stored so."""
        ...


class Mapped:
    """The tensors of one file, mapped into memory: what is asked for is read, nothing else."""

    def __init__(self, path: Path, places: Iterable[Place], coding: Coding):
        self.path, self.coding = path, coding
        self.places = {place.name: place for place in places}
        self._map: mmap.mmap | None = None

    def raw(self, name: str) -> np.ndarray:
        """Return the bytes of a tensor as a view of the file (uint8, read-only)."""
        place = self.places[name]
        if self._map is None:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if place.stop > len(self._map):
            raise BadCheckpoint(f"{self.path} has become shorter since it was opened; read it again.")
        return np.frombuffer(self._map, np.uint8)[place.start : place.stop]

    def read(self, name: str) -> np.ndarray:
        """Return a whole tensor."""
        place = self.places[name]
        return self.coding.decode(self.raw(name), place.dtype, place.shape)

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return the rows start..stop of a matrix, or entries of a vector; only these are read and converted."""
        place = self.places[name]
        count, rest = place.shape[0], place.shape[1:]
        if not 0 <= start <= stop <= count:
            raise BadCheckpoint(f"{name} of {self.path} has {count} rows; {start} to {stop} were asked for.")
        size = self.coding.bytes_of(place.dtype, math.prod(rest)) if rest else 0
        if not rest:
            return self.read(name)[start:stop]
        raw = self.raw(name)[start * size : stop * size]
        return self.coding.decode(raw, place.dtype, (stop - start, *rest))

    def columns(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return the columns start..stop of a matrix; only these are converted."""
        place = self.places[name]
        rows, count = place.shape
        if not 0 <= start <= stop <= count:
            raise BadCheckpoint(f"{name} of {self.path} has {count} columns; {start} to {stop} were asked for.")
        first, last = (self.coding.bytes_of(place.dtype, at) for at in (start, stop))
        raw = self.raw(name).reshape(rows, -1)[:, first:last]
        return self.coding.decode(np.ascontiguousarray(raw).reshape(-1), place.dtype, (rows, stop - start))


class PlainCoding:
    """Numbers as NumPy has them, and bfloat16 as the upper half of float32."""

    def bytes_of(self, dtype: str, count: int) -> int:
        """Return how many bytes `count` numbers take."""
        if dtype == "BF16":
            return 2 * count
        if dtype not in PLAIN:
            known = ", ".join(sorted([*PLAIN, "BF16"]))
            raise BadCheckpoint(f"the type {shown(dtype)} is not known; known: {known}.")
        return np.dtype(PLAIN[dtype]).itemsize * count

    def decode(self, raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the bytes as float32; float64 if they are stored as float64 or as integers of 32 bits or more."""
        if dtype == "BF16":
            high = np.frombuffer(raw.tobytes(), "<u2").astype("<u4")
            return (high << np.uint32(16)).view("<f4").reshape(shape)
        kind = np.dtype(PLAIN[dtype])
        values = np.frombuffer(raw.tobytes(), kind).reshape(shape)
        wide = kind.kind in "iu" and kind.itemsize >= 4
        return values.astype(np.float64 if dtype == "F64" or wide else np.float32)


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Return numbers as the bytes of a float type; to bfloat16 they are rounded to the nearest, ties to even."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    if dtype not in ("F64", "F32", "F16"):
        raise BadCheckpoint(f"weights cannot be written as {dtype}; F64, F32, F16 and BF16 can.")
    return np.ascontiguousarray(values, PLAIN[dtype]).tobytes()

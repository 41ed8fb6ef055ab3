"""safetensors files: the header is checked in full before any number is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from needlepoint.checkpoints.reading.files import LARGEST_JSON, BadCheckpoint, parse_json, regular
from needlepoint.checkpoints.reading.tensors import Mapped, Place, PlainCoding
from needlepoint.core.errors import shown

LONGEST_NAME = 512
"""Characters of a tensor's name; names are matched against patterns, and real ones have less than 150."""
_MOST_AXES = 8


def read_safetensors(path: Path) -> Mapped:
    """Return the tensors of a file. Refused are files whose header does not describe exactly the bytes that follow it:
    overlapping or missing bytes, sizes that do not fit the shape, a name twice, types that are not known."""
    size = regular(path).stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little") if size >= 8 else -1
        if length < 2 or length > size - 8:
            raise BadCheckpoint(
                f"{path} is not a whole safetensors file: it has {size:,} bytes, and its header claims {length:,}."
                if size >= 8
                else f"{path} is not a whole safetensors file: it has {size} bytes, and a header alone has more."
            )
        if length > LARGEST_JSON:
            raise BadCheckpoint(f"{path} has a header of {length:,} bytes; at most {LARGEST_JSON:,} are read.")
        header = parse_json(file.read(length), f"the header of {path}")
    header.pop("__metadata__", None)
    coding = PlainCoding()
    places = [_place(path, name, entry, 8 + length, size, coding) for name, entry in header.items()]
    _cover(path, places, 8 + length, size)
    return Mapped(path, places, coding)


def _place(path: Path, name: str, entry: Any, base: int, size: int, coding: PlainCoding) -> Place:
    where = f"the header of {path}: tensor {shown(name)}"
    if len(name) > LONGEST_NAME:
        raise BadCheckpoint(f"{where} has a name of {len(name)} characters; at most {LONGEST_NAME} are read.")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BadCheckpoint(f"{where} must have dtype, shape and data_offsets and nothing else; it has {shown(entry)}.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not _naturals(shape) or len(shape) > _MOST_AXES:
        raise BadCheckpoint(f"{where} has the shape {shown(shape)}; at most {_MOST_AXES} whole numbers are expected.")
    if not _naturals(offsets) or len(offsets) != 2:
        raise BadCheckpoint(f"{where} has the offsets {shown(offsets)}; two whole numbers are expected.")
    if type(dtype) is not str:
        raise BadCheckpoint(f"{where} has the type {shown(dtype)}; a word is expected.")
    start, stop = offsets
    if not start <= stop <= size - base:
        raise BadCheckpoint(f"{where} claims bytes {start:,} to {stop:,} of {size - base:,}.")
    if coding.bytes_of(dtype, math.prod(shape)) != stop - start:
        raise BadCheckpoint(f"{where} has {stop - start:,} bytes, which do not fit {dtype} of shape {shape}.")
    return Place(name, dtype, tuple(shape), base + start, base + stop)


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def _cover(path: Path, places: list[Place], base: int, size: int) -> None:
    """Check that the tensors follow each other without overlap, hole or rest."""
    end = base
    for place in sorted(places, key=lambda p: (p.start, p.stop)):
        if place.start != end:
            what = "overlaps the tensor before it" if place.start < end else "leaves bytes before it unused"
            raise BadCheckpoint(f"the header of {path}: tensor {shown(place.name)} {what}.")
        end = place.stop
    if end != size:
        raise BadCheckpoint(f"{path} has {size - end:,} bytes after its last tensor.")

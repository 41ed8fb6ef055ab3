"""Writing safetensors files, a tensor at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from needlepoint.checkpoints.reading.tensors import PlainCoding, encode


class Entry(NamedTuple):
    """A tensor to be written: `data` is called when its turn comes and returns its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Callable[[], bytes]


def entry(name: str, values: np.ndarray, dtype: str = "F32") -> Entry:
    """Return an array as an entry."""
    return Entry(name, dtype, values.shape, lambda: encode(values, dtype))


def write_safetensors(path: Path, entries: Iterable[Entry], metadata: dict[str, str] | None = None) -> None:
    """Write the tensors to a file, in order; at no time is more than one of them in memory."""
    entries = list(entries)
    coding = PlainCoding()
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for one in entries:
        size = coding.bytes_of(one.dtype, math.prod(one.shape))
        header[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of eight
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for one in entries:
            file.write(one.data())

"""GGUF files: the header is walked and checked here; the `gguf` package turns quantised bytes into numbers."""

from __future__ import annotations

import functools
import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from needlepoint.checkpoints.extra import need
from needlepoint.checkpoints.reading.files import BadCheckpoint, regular
from needlepoint.checkpoints.reading.safetensors import LONGEST_NAME
from needlepoint.checkpoints.reading.tensors import Mapped, Place, PlainCoding
from needlepoint.core.errors import shown

# the types of metadata values by their numbers in the file; 8 is a text and 9 an array
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_LONGEST_TEXT = 1_000_000  # bytes of one text that is returned; templates of chats are the longest, with some 10,000
_MOST_AXES = 4
_MOST_MEMBERS = 10_000_000  # of an array of texts; vocabularies have some 300,000
_MOST_ENTRIES = 1_000_000  # tensors, and metadata pairs; both are walked one by one


class Array(NamedTuple):
    """An array in the metadata: the type of its members, how many there are, and where the first begins."""

    kind: int
    members: int
    start: int


class Walk:
    """A position in a file's header that moves forward; reading past the end is refused."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.at = path, data, 0

    def take(self, form: str) -> Any:
        """Return one number."""
        self.skip(size := struct.calcsize(form))
        return struct.unpack_from(form, self.data, self.at - size)[0]

    def skip(self, count: int) -> None:
        """Move on by so many bytes."""
        if count < 0 or count > len(self.data) - self.at:
            raise BadCheckpoint(f"{self.path} ends early: its header goes on past its {len(self.data):,} bytes.")
        self.at += count

    def text(self, most: int) -> str:
        """Return a text of at most `most` bytes."""
        length = self.take("<Q")
        if length > most:
            raise BadCheckpoint(
                f"{self.path}: a text in its header claims {length:,} bytes; at most {most:,} are read."
            )
        self.skip(length)
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """Return a metadata value; of an array only where it is."""
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind == _TEXT:
            return self.text(_LONGEST_TEXT)
        if kind != _ARRAY or depth > 1:
            raise BadCheckpoint(f"{self.path}: its header has a value of unknown type {kind}.")
        member, count = self.take("<I"), self.take("<Q")
        start = self.at
        if member in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[member]))
        elif count > min(len(self.data), _MOST_MEMBERS):
            raise BadCheckpoint(
                f"{self.path}: an array in its header claims {count:,} members, more than can be meant."
            )
        elif member == _TEXT:
            for _ in range(count):
                self.skip(self.take("<Q"))
        else:
            for _ in range(count):
                self.value(member, depth + 1)
        return Array(member, count, start)


class GgufCoding:
    """Numbers of GGUF: plain ones, and quantised blocks by the `gguf` package."""

    def __init__(self):
        gguf = need("gguf", "reading a GGUF file")
        self.types, self.sizes = gguf.GGMLQuantizationType, gguf.GGML_QUANT_SIZES
        self._dequantize = gguf.quants.dequantize
        self._plain = PlainCoding()

    def bytes_of(self, dtype: str, count: int) -> int:
        """Return how many bytes `count` numbers of one row take."""
        block, size = self.sizes[self.types[dtype]]
        if count % block:
            raise BadCheckpoint(f"rows of {count} numbers do not fit the type {dtype}, whose blocks have {block}.")
        return count // block * size

    def decode(self, raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the bytes as numbers of the shape."""
        if self.sizes[self.types[dtype]][0] == 1:
            return self._plain.decode(raw, dtype, shape)
        rows = np.ascontiguousarray(raw).reshape(*shape[:-1], -1)
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused by those who read weights
                return np.asarray(self._dequantize(rows, self.types[dtype]), np.float32).reshape(shape)
        except NotImplementedError:
            raise BadCheckpoint(f"the type {dtype} cannot be read by this version of gguf; convert to F16.") from None


class Gguf(Mapped):
    """The tensors of a GGUF file, with its metadata; `tail` is where the list of tensors begins in the file, and
    `base` where their numbers begin."""

    def __init__(self, path: Path):
        size = regular(path).stat().st_size
        if size < 24:
            raise BadCheckpoint(f"{path} is not a whole GGUF file: it has {size} bytes, and a header alone has 24.")
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        walk = Walk(path, data)
        self.version, count, pairs = _head(walk)
        self.metadata: dict[str, Any] = {}
        for _ in range(pairs):
            name = walk.text(LONGEST_NAME)
            if name in self.metadata:
                raise BadCheckpoint(f"{path}: the metadata name {shown(name)} appears twice.")
            self.metadata[name] = walk.value(walk.take("<I"))
        self.tail = walk.at
        self.alignment = self.metadata.get("general.alignment", 32)
        if type(self.alignment) is not int or not 8 <= self.alignment <= 2**20 or self.alignment % 8:
            raise BadCheckpoint(f"{path}: the alignment is {shown(self.alignment)}; a multiple of 8 is expected.")
        coding = GgufCoding()
        found = [_tensor(walk, coding) for _ in range(count)]
        self.base = -(-walk.at // self.alignment) * self.alignment
        super().__init__(path, _placed(path, found, self.base, size, self.alignment), coding)
        if len(self.places) < count:
            raise BadCheckpoint(f"{path}: a tensor's name appears twice.")
        self._map = data
        self._walk = walk

    @functools.cached_property
    def architecture(self) -> str:
        """Return the name of the architecture, as `llama`."""
        value = self.metadata.get("general.architecture")
        if type(value) is not str:
            raise BadCheckpoint(f"{self.path} does not say its architecture (general.architecture).")
        return value

    def array(self, name: str, most: int = 2_000_000) -> list[Any]:
        """Return an array of the metadata as a list; empty if there is none."""
        place = self.metadata.get(name)
        if not isinstance(place, Array):
            return []
        if place.members > most:
            raise BadCheckpoint(f"{self.path}: {name} has {place.members:,} members; at most {most:,} are read.")
        walk = self._walk
        walk.at = place.start
        return [walk.value(place.kind) for _ in range(place.members)]


def _head(walk: Walk) -> tuple[int, int, int]:
    """Return version, number of tensors and number of metadata pairs; both numbers must fit into the file."""
    if walk.data[:4] != b"GGUF":
        raise BadCheckpoint(f"{walk.path} is not a GGUF file: it begins with {walk.data[:4]!r}.")
    walk.skip(4)
    version = walk.take("<I")
    if version not in (2, 3):
        raise BadCheckpoint(f"{walk.path} is GGUF version {version}; 2 and 3 (little-endian) can be read.")
    count, pairs = walk.take("<Q"), walk.take("<Q")
    # the least bytes that a pair and a tensor's entry take
    if 13 * pairs + 32 * count > len(walk.data) or max(pairs, count) > _MOST_ENTRIES:
        raise BadCheckpoint(
            f"{walk.path} ends early: it claims {count:,} tensors and {pairs:,} metadata pairs in {len(walk.data):,} "
            "bytes."
        )
    return version, count, pairs


def _tensor(walk: Walk, coding: GgufCoding) -> Place:
    """Return a tensor's entry, its bytes counted from where the numbers begin; the shape is turned to (out, in)."""
    name = walk.text(LONGEST_NAME)
    axes = walk.take("<I")
    if not 1 <= axes <= _MOST_AXES:
        raise BadCheckpoint(f"{walk.path}: tensor {shown(name)} has {axes} axes; 1 to {_MOST_AXES} are expected.")
    shape = tuple(reversed([walk.take("<Q") for _ in range(axes)]))
    kind, start = walk.take("<I"), walk.take("<Q")
    try:
        dtype = coding.types(kind).name
    except ValueError:
        raise BadCheckpoint(f"{walk.path}: tensor {shown(name)} has the unknown type {kind}.") from None
    try:
        size = math.prod(shape[:-1]) * coding.bytes_of(dtype, shape[-1])
    except BadCheckpoint as error:
        raise BadCheckpoint(f"{walk.path}: tensor {shown(name)}: {error}") from None
    return Place(name, dtype, shape, start, start + size)


def _placed(path: Path, found: list[Place], base: int, size: int, alignment: int) -> list[Place]:
    """Return the entries with bytes counted from the beginning of the file; they must lie in it and not overlap."""
    end = 0
    for place in sorted(found, key=lambda p: (p.start, p.stop)):
        if place.start % alignment:
            raise BadCheckpoint(f"{path}: tensor {shown(place.name)} does not begin at a multiple of {alignment}.")
        if place.start < end:
            raise BadCheckpoint(f"{path}: tensor {shown(place.name)} overlaps the tensor before it.")
        end = place.stop
        if base + end > size:
            raise BadCheckpoint(
                f"{path} ends early: tensor {shown(place.name)} claims bytes up to {base + end:,} of {size:,}."
            )
    return [Place(p.name, p.dtype, p.shape, base + p.start, base + p.stop) for p in found]

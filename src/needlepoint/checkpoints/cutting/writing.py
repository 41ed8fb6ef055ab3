"""Writing a cut back: the query weights change, every other tensor stays byte for byte."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from needlepoint.checkpoints.cutting.calibration import HeadLoss
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.checkpoints.reading.gguf import Gguf
from needlepoint.checkpoints.reading.tensors import encode
from needlepoint.checkpoints.reading.writing import Entry, entry, write_safetensors

_F16 = 1  # the number of the type F16 in GGUF files


def cut_queries(checkpoint: Checkpoint, layer: int, cut: np.ndarray) -> np.ndarray:
    """eq:written-query. Return the query weights of a layer with every head's rows W_Q replaced by P^T W_Q."""
    place = checkpoint.layer(layer)
    weight = checkpoint.tensors.read(place.query.tensor).astype(np.float64)
    for head in range(place.heads):
        start, stop = place.query.span(head)
        weight[start:stop] = cut[head].T @ weight[start:stop]
    return weight


def write_cut(checkpoint: Checkpoint, path: Path, cuts: Mapping[int, np.ndarray]) -> str:
    """Write the checkpoint with cut queries and return a sentence about what was written.

    From safetensors, one safetensors file with all tensors, each in its own type. From GGUF, a .gguf file in which the
    changed tensors are F16 (quantising them again would fill the rank), or a .safetensors file with those alone.
    """
    path = _target(checkpoint, path)
    if isinstance(checkpoint.tensors.files[0], Gguf):
        return _write_gguf(checkpoint, checkpoint.tensors.files[0], path, cuts)
    changed = {checkpoint.layer(layer).query.tensor: layer for layer in cuts}

    def data_of(name: str, dtype: str) -> bytes:
        if name in changed:
            return encode(cut_queries(checkpoint, changed[name], cuts[changed[name]]), dtype)
        return checkpoint.tensors.home(name).raw(name).tobytes()

    entries = []
    for file in checkpoint.tensors.files:
        for name, place in file.places.items():
            entries.append(
                Entry(name, place.dtype, place.shape, lambda name=name, dtype=place.dtype: data_of(name, dtype))
            )
    _replace(path, lambda new: write_safetensors(new, entries, {"format": "pt"}))
    return f"{path}: the query weights of {len(changed)} layers are changed, all other tensors are byte for byte."


def write_factors(
    checkpoint: Checkpoint, path: Path, heads: list[HeadLoss], ranks: Mapping[tuple[int, int], int]
) -> str:
    """Write the query weights as factors, `NAME.HEAD.up` (p, r) and `NAME.HEAD.down` (r, d) in float16, and every other
    tensor byte for byte; returns a sentence with the bytes saved. Only programs that know the names can read it."""
    path = _target(checkpoint, path)
    if isinstance(checkpoint.tensors.files[0], Gguf):
        raise BadCheckpoint("factors are written from safetensors only.")
    found: dict[str, list[Entry]] = {}
    for one in heads:
        place = checkpoint.layer(one.layer)
        rows = checkpoint.tensors.rows(place.query.tensor, *place.query.span(one.head)).astype(np.float64)
        rank = ranks[one.layer, one.head]
        stem = f"{place.query.tensor.removesuffix('.weight')}.{one.head}"
        dtype = checkpoint.tensors.dtype(place.query.tensor)
        up = one.maps.right[:rank].T * one.maps.values[:rank]
        down = one.maps.left[:, :rank].T @ rows
        found.setdefault(place.query.tensor, []).extend(
            [entry(f"{stem}.up", up, dtype), entry(f"{stem}.down", down, dtype)]
        )
    entries: list[Entry] = []
    for file in checkpoint.tensors.files:
        for name, place in file.places.items():
            raw = Entry(name, place.dtype, place.shape, lambda file=file, name=name: file.raw(name).tobytes())
            entries += found.get(name, [raw])
    _replace(path, lambda new: write_safetensors(new, entries, {"format": "pt"}))
    saved = sum(file.path.stat().st_size for file in checkpoint.tensors.files) - path.stat().st_size
    return f"{path}: the query weights of {len(found)} layers are factors; the file is {saved:,} bytes smaller."


def _target(checkpoint: Checkpoint, path: Path) -> Path:
    path = Path(path)
    packed = isinstance(checkpoint.tensors.files[0], Gguf)
    kinds = (".gguf", ".safetensors") if packed else (".safetensors",)
    if path.suffix not in kinds:
        raise BadCheckpoint(f"{path}: a file that ends in {' or '.join(kinds)} is expected.")
    if any(path.exists() and os.path.samefile(path, file.path) for file in checkpoint.tensors.files):
        raise BadCheckpoint(f"{path} is the checkpoint itself, which is not overwritten; give another name.")
    if not path.absolute().parent.is_dir():
        raise BadCheckpoint(f"{path}: there is no folder {path.absolute().parent}.")
    return path


def _replace(path: Path, write) -> None:
    """Write to a name beside the target and put it in place in one step, so that no half file is left."""
    new = path.with_name(f".{path.name}.new")
    try:
        write(new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _write_gguf(checkpoint: Checkpoint, file: Gguf, path: Path, cuts: Mapping[int, np.ndarray]) -> str:
    changed = {checkpoint.layer(layer).query.tensor: layer for layer in cuts}
    if path.suffix == ".safetensors":
        entries = [
            Entry(
                name, "F16", file.places[name].shape, lambda n=layer: encode(cut_queries(checkpoint, n, cuts[n]), "F16")
            )
            for name, layer in changed.items()
        ]
        _replace(path, lambda new: write_safetensors(new, entries, {"format": "pt"}))
        return (
            f"{path}: the query weights of {len(changed)} layers alone, in F16 under their GGUF names; from a GGUF "
            "file the other tensors cannot be carried over byte for byte. Give a .gguf name for a whole model."
        )
    _replace(path, lambda new: _copy_gguf(checkpoint, file, new, cuts, changed))
    return (
        f"{path}: the query weights of {len(changed)} layers are changed and stored in F16, because quantising them "
        "again would fill the rank; all other tensors are byte for byte."
    )


def _copy_gguf(
    checkpoint: Checkpoint, file: Gguf, path: Path, cuts: Mapping[int, np.ndarray], changed: Mapping[str, int]
) -> None:
    """Write metadata as they are, the list of tensors with new places, and the tensors."""
    at, table, sizes = 0, b"", []
    for name, place in file.places.items():
        raw = name.encode()
        # the coding of a file that is written here is one with types
        kind = _F16 if name in changed else int(file.coding.types[place.dtype])  # pyright: ignore[reportAttributeAccessIssue]
        size = 2 * int(np.prod(place.shape)) if name in changed else place.stop - place.start
        table += struct.pack("<Q", len(raw)) + raw + struct.pack("<I", len(place.shape))
        table += struct.pack(f"<{len(place.shape)}Q", *reversed(place.shape)) + struct.pack("<IQ", kind, at)
        sizes.append(size)
        at += -(-size // file.alignment) * file.alignment
    with file.path.open("rb") as source, path.open("wb") as target:
        target.write(source.read(file.tail) + table)
        target.write(bytes(-target.tell() % file.alignment))
        for (name, _), size in zip(file.places.items(), sizes, strict=True):
            if name in changed:
                data = encode(cut_queries(checkpoint, changed[name], cuts[changed[name]]), "F16")
            else:
                data = file.raw(name).tobytes()
            target.write(data + bytes(-size % file.alignment))

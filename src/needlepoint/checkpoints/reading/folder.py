"""From a path to tensors and settings: one file, a folder as Hugging Face lays it out, or shards with an index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from needlepoint.checkpoints.reading.files import BadCheckpoint, inside, read_json, regular
from needlepoint.checkpoints.reading.gguf import Gguf
from needlepoint.checkpoints.reading.safetensors import read_safetensors
from needlepoint.checkpoints.reading.settings import Settings, from_config, from_gguf
from needlepoint.checkpoints.reading.tensors import Mapped
from needlepoint.core.errors import shown

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_MAGIC = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # of zip files and of pickles
_MOST_SHARDS = 2_000


class Tensors:
    """The tensors of a checkpoint, whichever of its files they are in."""

    def __init__(self, files: list[Mapped]):
        self.files = files
        self._home: dict[str, Mapped] = {}
        for file in files:
            for name in file.places:
                if name in self._home:
                    raise BadCheckpoint(f"tensor {shown(name)} is in two files: {self._home[name].path}, {file.path}.")
                self._home[name] = file
        self.shapes = {name: file.places[name].shape for name, file in self._home.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._home

    def dtype(self, name: str) -> str:
        """Return the type a tensor is stored in, as F32 or Q4_1."""
        return self._home[name].places[name].dtype

    def home(self, name: str) -> Mapped:
        """Return the file that a tensor is in."""
        return self._home[name]

    def read(self, name: str) -> np.ndarray:
        """Return a whole tensor; refused if a number in it is not finite."""
        return self._finite(name, self._home[name].read(name))

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return some rows of a tensor; refused if a number in them is not finite."""
        return self._finite(name, self._home[name].rows(name, start, stop))

    def columns(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return some columns of a matrix; refused if a number in them is not finite."""
        return self._finite(name, self._home[name].columns(name, start, stop))

    def _finite(self, name: str, values: np.ndarray) -> np.ndarray:
        if not np.isfinite(values).all():
            raise BadCheckpoint(
                f"tensor {shown(name)} of {self._home[name].path} holds NaN or infinite weights; the file is damaged, "
                "or the training that wrote it had diverged."
            )
        return values


@dataclass(frozen=True)
class Opened:
    """What a path led to: the tensors, what the model says of itself (None if nothing), and the folder of its
    tokenizer."""

    path: Path
    tensors: Tensors
    settings: Settings | None
    folder: Path
    follow_links: bool


def open_path(path: Path, *, follow_links: bool) -> Opened:
    """Return the tensors and settings of a checkpoint; nothing of it is executed, nothing outside its folder read."""
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"cannot read {shown(str(path))}: {error}.") from None
    if is_folder:
        return _open_folder(path, follow_links)
    refuse_pickle(regular(path))
    if path.name.endswith(".index.json"):
        return _open_index(path.parent, path.name, follow_links)
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"GGUF" or path.suffix == ".gguf":
        file = Gguf(path)
        return Opened(path, Tensors([file]), from_gguf(file), path.parent, follow_links)
    if path.suffix != ".safetensors":
        raise BadCheckpoint(f"{path} is not a checkpoint this library reads: .safetensors, .gguf, or their folder.")
    tensors = Tensors([read_safetensors(path)])
    return Opened(path, tensors, _config(path.parent, follow_links), path.parent, follow_links)


def refuse_pickle(path: Path) -> None:
    """Raise BadCheckpoint for a file that is or may be a pickle, with the command that converts it."""
    with path.open("rb") as file:
        start = file.read(8)
    # a header of 640 bytes also begins like a pickle, so the length that a header would have must be impossible as well
    looks = start[:2] in _MAGIC and int.from_bytes(start, "little") > path.stat().st_size
    if path.suffix.lower() in PICKLES or looks:
        raise BadCheckpoint(
            f"{path} is a pickle, and reading one can run code, so it is refused. Convert it where it is trusted: "
            f'python -c "import torch, safetensors.torch as s; s.save_file(torch.load({path.name!r}, '
            "weights_only=True), 'model.safetensors')\"."
        )


def _config(folder: Path, follow_links: bool) -> Settings | None:
    if not (folder / "config.json").exists() and not (folder / "config.json").is_symlink():
        return None
    return from_config(read_json(inside(folder, "config.json", follow_links=follow_links)))


def _open_folder(folder: Path, follow_links: bool) -> Opened:
    if (folder / INDEX).exists() or (folder / INDEX).is_symlink():
        return _open_index(folder, INDEX, follow_links)
    names = sorted(p.name for p in folder.iterdir())
    weights = [n for n in names if n.endswith(".safetensors")]
    packed = [n for n in names if n.endswith(".gguf")]
    if "model.safetensors" in weights:
        weights = ["model.safetensors"]
    if len(weights) == 1:
        path = inside(folder, weights[0], follow_links=follow_links)
        refuse_pickle(path)
        tensors = Tensors([read_safetensors(path)])
        return Opened(folder, tensors, _config(folder, follow_links), folder, follow_links)
    if not weights and len(packed) == 1:
        file = Gguf(inside(folder, packed[0], follow_links=follow_links))
        return Opened(folder, Tensors([file]), from_gguf(file), folder, follow_links)
    for name in names:
        if not weights and name.lower().endswith(PICKLES):
            refuse_pickle(inside(folder, name, follow_links=follow_links))
    several = f"has {len(weights) + len(packed)} files of weights; name one of them"
    what = several if weights + packed else "holds no weights"
    raise BadCheckpoint(f"{folder} {what} (model.safetensors, an index of shards, or a .gguf file is expected).")


def _open_index(folder: Path, name: str, follow_links: bool) -> Opened:
    """Return the tensors of all shards that an index names; each must hold what the index says."""
    index = read_json(inside(folder, name, follow_links=follow_links))
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise BadCheckpoint(f"{folder / name} has no weight_map.")
    shards: dict[str, None] = {}
    for shard in places.values():
        if type(shard) is not str:
            raise BadCheckpoint(f"{folder / name} names a file {shown(shard)}; a file name is expected.")
        shards[shard] = None
    if len(shards) > _MOST_SHARDS:
        raise BadCheckpoint(f"{folder / name} names {len(shards):,} files; at most {_MOST_SHARDS:,} are read.")
    files = {}
    for shard in shards:
        path = inside(folder, shard, follow_links=follow_links)
        refuse_pickle(path)
        files[shard] = read_safetensors(path)
    for tensor, shard in places.items():
        if tensor not in files[shard].places:
            raise BadCheckpoint(f"{folder / name} says that {shown(tensor)} is in {shard}, and it is not there.")
    return Opened(folder, Tensors(list(files.values())), _config(folder, follow_links), folder, follow_links)

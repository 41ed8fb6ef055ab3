"""A checkpoint that has been opened: its attention heads, one at a time, with norms folded in and keys mapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.checkpoints.reading.families import GGUF, SAFETENSORS, Family, layers_of, of_patterns
from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.checkpoints.reading.folder import Opened, Tensors, open_path
from needlepoint.checkpoints.reading.layout import AttentionLayer, Part, Unfit, lay_out
from needlepoint.checkpoints.reading.settings import Settings
from needlepoint.core.errors import shown

# model types whose names of tensors mean what the family says; others are read the same way, with a sentence about it
_KNOWN = {
    "LLaMA-like": ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text"),
    "BERT-like": ("bert", "roberta", "xlm-roberta", "camembert", "electra"),
    "GPT-2-like": ("gpt2",),
    "GPT-NeoX-like": ("gpt_neox",),
    "Phi-3-like": ("phi3",),
}


@dataclass(frozen=True)
class Skipped:
    """A layer (all its heads) that is not read, and why."""

    where: str
    reason: str


@dataclass(frozen=True)
class HeadWeights:
    """The query and key weights of one head: `query` and `key` (p, d), biases (p) or None, all float64.

    The score of tokens a, b is (query x_a + query_bias) . (key x_b + key_bias) / sqrt(p), x the layer's input after its
    norm without gain and bias (these are folded in), or the input itself where `folded` is False or there is no norm.
    """

    layer: int
    head: int
    key_head: int
    query: np.ndarray
    key: np.ndarray
    query_bias: np.ndarray | None
    key_bias: np.ndarray | None
    folded: bool


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint. `layers` has where each attention layer is, `skipped` what is not read and why, and
    `assumptions` what was taken for granted, in sentences."""

    path: Path
    family: Family
    settings: Settings
    tensors: Tensors
    layers: tuple[AttentionLayer, ...]
    skipped: tuple[Skipped, ...]
    assumptions: tuple[str, ...]
    opened: Opened

    @property
    def name(self) -> str:
        """Return the name of the file or folder, with the folder above it where many models are called so."""
        own = self.path.name
        return f"{self.path.resolve().parent.name}/{own}" if self.path.stem == "model" else own

    def __repr__(self) -> str:
        first = self.layers[0]
        shared = "" if first.key_heads == first.heads else f" on {first.key_heads} key heads"
        more = f", {len(self.skipped)} skipped" if self.skipped else ""
        return (
            f"Checkpoint({self.name}: {self.family.name}, {len(self.layers)} layers x {first.heads} heads{shared}"
            f", d = {first.width}, p = {first.head_width}{more})"
        )

    def ids(self) -> Iterator[tuple[int, int]]:
        """Return (layer, head) of every head that can be read."""
        return ((layer.layer, head) for layer in self.layers for head in range(layer.heads))

    def layer(self, number: int) -> AttentionLayer:
        """Return where a layer's attention is; raises BadCheckpoint for a layer that is not there."""
        for layer in self.layers:
            if layer.layer == number:
                return layer
        there = ", ".join(str(layer.layer) for layer in self.layers)
        raise BadCheckpoint(f"layer {number} is not in {self.path.name}; there are {there}.")

    def head(self, layer: int, head: int, *, folded: bool = True) -> HeadWeights:
        """Return the weights of one head; nothing else of the file is read."""
        place = self.layer(layer)
        if not 0 <= head < place.heads:
            raise BadCheckpoint(f"head {head} is not in layer {layer}; there are 0 to {place.heads - 1}.")
        of_key = place.key_head(head)
        query, key = self._matrix(place.query, head), self._matrix(place.key, of_key)
        query_bias = self._vector(place.query_bias, head)
        key_bias = self._vector(place.key_bias, of_key)
        if folded:
            query, query_bias = self._fold(place, query, query_bias)
            key, key_bias = self._fold(place, key, key_bias)
            query = query * self._head_gain(place.query_norm, place)
            key = key * self._head_gain(place.key_norm, place)
        return HeadWeights(layer, head, of_key, query, key, query_bias, key_bias, folded)

    def _matrix(self, part: Part, head: int) -> np.ndarray:
        start, stop = part.span(head)
        if part.columns:
            return self.tensors.columns(part.tensor, start, stop).T.astype(np.float64)
        return self.tensors.rows(part.tensor, start, stop).astype(np.float64)

    def _vector(self, part: Part | None, head: int) -> np.ndarray | None:
        return None if part is None else self.tensors.rows(part.tensor, *part.span(head)).astype(np.float64)

    def _fold(
        self, place: AttentionLayer, weight: np.ndarray, bias: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """eq:folded-norm. Return weights that act on the normed input without its gain and bias."""
        if place.shift:
            moved = weight @ self.tensors.read(place.shift).astype(np.float64)
            bias = moved if bias is None else bias + moved
        if place.gain:
            weight = weight * (self.tensors.read(place.gain).astype(np.float64) + place.gain_plus)
        if place.centred:
            weight = weight - weight.mean(axis=1, keepdims=True)
        return weight, bias

    def _head_gain(self, name: str, place: AttentionLayer) -> np.ndarray | float:
        if not name:
            return 1.0
        return (self.tensors.read(name).astype(np.float64) + place.gain_plus)[:, None]


def read_checkpoint(
    path: str | Path,
    *,
    heads: int | None = None,
    key_heads: int | None = None,
    patterns: Mapping[str, Any] | None = None,
    follow_links: bool = False,
) -> Checkpoint:
    """Open a checkpoint and return its attention heads, to be read one at a time; no code in it is run.

    path       a .safetensors or .gguf file, or a folder with config.json and one file or an index of shards
    heads, key_heads  how many a layer has, where the files do not say (given, they take precedence)
    patterns   names of an unknown family's tensors: query and key with {layer} in them, and as needed value, output,
               norm, query_norm, key_norm, order, transposed, centred, pairs (see `reading.families.Family`)
    follow_links  also read files that a symbolic link in the folder points to elsewhere

    >>> import tempfile
    >>> from needlepoint.checkpoints.examples import tiny_checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = ndl.read_checkpoint(tiny_checkpoint(folder, "bert"))
    ...     print(checkpoint)
    ...     print(checkpoint.head(1, 3).query.shape)
    Checkpoint(tiny-bert: BERT-like, 2 layers x 4 heads, d = 32, p = 8)
    (8, 32)
    """
    opened = open_path(Path(path), follow_links=follow_links)
    settings = opened.settings or Settings("", gguf=False)
    for name, value in (("heads", heads), ("key_heads", key_heads)):
        if value is not None and (type(value) is not int or value < 1):
            raise BadCheckpoint(f"read_checkpoint({name}={shown(value)}): a whole number from 1 on is expected.")
    if heads is not None:
        settings = replace(settings, heads=heads, key_heads=heads)
    if key_heads is not None:
        settings = replace(settings, key_heads=key_heads)
    family = _family(opened, settings) if patterns is None else of_patterns(**{"query": "", **patterns})
    return _described(opened, family, settings)


def _family(opened: Opened, settings: Settings) -> Family:
    """Return the family that the names of the tensors belong to."""
    names = opened.tensors.shapes
    if settings.gguf:
        family = GGUF.get(settings.model)
        if family is not None and layers_of(family, names):
            return family
        if family is not None and layers_of(fused := replace(GGUF["phi3"], pairs=family.pairs), names):
            return replace(fused, name=family.name, norm=family.norm, centred=family.centred)
        known = ", ".join(GGUF)
    else:
        for family in SAFETENSORS:
            if layers_of(family, names):
                return family
        known = ", ".join(f.name for f in SAFETENSORS)
    some = ", ".join(shown(n) for n in list(names)[:3])
    raise BadCheckpoint(
        f"{opened.path} is of no family this library knows ({known}); its {len(names)} tensors begin with {some}. "
        "Give patterns= with the names of its query and key weights."
    )


def _described(opened: Opened, family: Family, settings: Settings) -> Checkpoint:
    found = layers_of(family, opened.tensors.shapes)
    if not found:
        raise BadCheckpoint(f"no tensor of {opened.path} fits the pattern {family.query!r}.")
    counts = Counter(pre for pre, _ in found)
    chosen = max(counts, key=lambda pre: (counts[pre], -len(pre)))
    layers, skipped = [], []
    for (pre, number), names in sorted(found.items(), key=lambda item: (item[0][0], item[0][1])):
        if pre != chosen:
            skipped.append(Skipped(f"{pre}{number}", f"another stack of layers than {chosen or 'the main one'!r}"))
            continue
        try:
            layers.append(lay_out(family, settings, number, names, opened.tensors.shapes))
        except Unfit as reason:
            skipped.append(Skipped(f"layer {number}", str(reason)))
    if not layers:
        raise BadCheckpoint(f"no head of {opened.path} can be read: {skipped[0].where}: {skipped[0].reason}.")
    if settings.layers is not None and settings.layers > len(counts) and settings.layers > counts[chosen]:
        missing = settings.layers - counts[chosen]
        skipped.append(Skipped(f"{missing} of {settings.layers} layers", "they have no query weights in the file"))
    said = _assumptions(family, settings, opened, layers)
    return Checkpoint(opened.path, family, settings, opened.tensors, tuple(layers), tuple(skipped), said, opened)


def _assumptions(family: Family, settings: Settings, opened: Opened, layers: list[AttentionLayer]) -> tuple[str, ...]:
    """Return in sentences what was taken for granted in reading."""
    first = layers[0]
    said = [
        f"Names and shapes are read as {family.name}" + (f" (model type {settings.model})." if settings.model else ".")
    ]
    if not settings.gguf and settings.model not in _KNOWN.get(family.name, (settings.model,)):
        said.append(
            f"The model type {shown(settings.model)} is not known; only its names are {family.name}, so norms, rotary "
            "positions and the order of rows may be others than said here."
        )
    if family.norm is None:
        said.append("The norm stands after attention (post-norm), so there is no gain to fold.")
    elif first.gain:
        kind = "LayerNorm, whose mean is projected out" if first.centred else "RMSNorm"
        plus = " as 1 + gain" if first.gain_plus else ""
        said.append(f"The gain of the norm before attention ({kind}) is folded into queries and keys{plus}.")
    else:
        said.append("No norm was found before attention, so no gain is folded.")
    if first.key_heads != first.heads:
        said.append(f"{first.heads // first.key_heads} neighbouring query heads share a key head.")
    if first.query_norm or first.key_norm:
        said.append("Norms of queries and keys: a head's map holds up to one positive factor per token.")
    if family.pairs:
        base = settings.rope_base
        named = f"base {base:g}" if base else "base 10000, which the file does not say"
        said.append(f"Rotary positions turn {family.pairs} pairs, {named}.")
    return (*said, *(f"The model has {what}." for what in settings.unusual))

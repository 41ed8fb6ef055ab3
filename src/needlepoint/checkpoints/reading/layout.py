"""Which rows or columns of which tensor belong to which head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from needlepoint.checkpoints.reading.families import Family
from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.checkpoints.reading.settings import Settings

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Part:
    """The part of a tensor that belongs to head h: `width` rows from `first + h * stride` on; columns if
    `columns`."""

    tensor: str
    first: int
    stride: int
    width: int
    columns: bool = False

    def span(self, head: int) -> tuple[int, int]:
        """Return the first row of a head and the row after its last."""
        start = self.first + head * self.stride
        return start, start + self.width


@dataclass(frozen=True)
class AttentionLayer:
    """Where the attention of one layer is: the parts of query and key weights and biases, and the norms around.

    Heads `h` use the key head `h // (heads // key_heads)`. `unused` says in words what is known but not folded.
    """

    layer: int
    heads: int
    key_heads: int
    head_width: int
    width: int
    query: Part
    key: Part
    query_bias: Part | None
    key_bias: Part | None
    gain: str = ""
    shift: str = ""
    centred: bool = False
    gain_plus: float = 0.0
    query_norm: str = ""
    key_norm: str = ""
    names: Mapping[str, str] | None = None

    def key_head(self, head: int) -> int:
        """Return the key head that a query head looks at (grouped keys)."""
        return head // (self.heads // self.key_heads)


class Unfit(Exception):
    """The reason why the heads of a layer are skipped."""


def lay_out(family: Family, settings: Settings, layer: int, names: Mapping[str, str], shapes: Shapes) -> AttentionLayer:
    """Return where the heads of a layer are; raises Unfit with the reason where shapes do not fit."""
    heads, key_heads = settings.heads, settings.key_heads or settings.heads
    if heads is None or key_heads is None:
        raise BadCheckpoint(
            "the file does not say how many heads a layer has; put its config.json beside it, or give heads=."
        )
    if heads % key_heads:
        raise Unfit(f"{heads} query heads cannot share {key_heads} key heads evenly")
    across = 1 if family.transposed else 0
    shape = _matrix(shapes, names["query"])
    rows, width = shape[across], shape[1 - across]
    query, key, each = _parts(family, names, shapes, heads, key_heads, rows, settings.head_width)
    if settings.width is not None and width != settings.width:
        raise Unfit(f"{names['query']}.weight takes {width} inputs, and the model is {settings.width} wide")
    gain, shift, centred = _norm(family, names, shapes, width)
    query_norm, key_norm = (_head_norm(names[role], shapes, each) for role in ("query_norm", "key_norm"))
    return AttentionLayer(
        layer,
        heads,
        key_heads,
        each,
        width,
        query,
        key,
        _bias(query, shapes),
        _bias(key, shapes),
        gain,
        shift,
        centred,
        settings.gain_plus,
        query_norm,
        key_norm,
        names,
    )


def _matrix(shapes: Shapes, name: str) -> tuple[int, ...]:
    shape = shapes.get(f"{name}.weight")
    if shape is None:
        raise Unfit(f"there is no tensor {name}.weight")
    if len(shape) != 2 or 0 in shape:
        raise Unfit(f"{name}.weight has the shape {shape}; a matrix is expected")
    return shape


def _parts(
    family: Family,
    names: Mapping[str, str],
    shapes: Shapes,
    heads: int,
    key_heads: int,
    rows: int,
    head_width: int | None,
) -> tuple[Part, Part, int]:
    """Return the parts of queries and keys and the width p of a head, which must account for every row."""
    tensor, columns = f"{names['query']}.weight", family.transposed
    all_heads = {"apart": heads, "kv": heads, "qkv": heads + 2 * key_heads, "heads": 3 * heads}[family.order]
    each = head_width or rows // all_heads
    if each < 1 or each * all_heads != rows:
        raise Unfit(f"{tensor} has {rows} rows, which do not fit {all_heads} heads of width {each}")
    if family.order == "heads":
        if key_heads != heads:
            raise Unfit("keys that are grouped do not fit the order head by head")
        return Part(tensor, 0, 3 * each, each), Part(tensor, each, 3 * each, each), each
    query = Part(tensor, 0, each, each, columns)
    if family.order == "qkv":
        return query, Part(tensor, heads * each, each, each, columns), each
    other = _matrix(shapes, names["key"])
    count = other[1 if columns else 0]
    wanted = key_heads * each * (2 if family.order == "kv" else 1)
    if count != wanted or other[0 if columns else 1] != shapes[tensor][0 if columns else 1]:
        raise Unfit(f"{names['key']}.weight has the shape {other}, which does not fit {key_heads} heads of {each}")
    return query, Part(f"{names['key']}.weight", 0, each, each, columns), each


def _bias(part: Part, shapes: Shapes) -> Part | None:
    """Return the part of the bias that goes with a part of the weights; None if the file has none."""
    name = f"{part.tensor.removesuffix('.weight')}.bias"
    if name not in shapes:
        return None
    whole = shapes[part.tensor][1 if part.columns else 0]
    if shapes[name] != (whole,):
        raise Unfit(f"{name} has the shape {shapes[name]}; ({whole},) is expected")
    return Part(name, part.first, part.stride, part.width)


def _norm(family: Family, names: Mapping[str, str], shapes: Shapes, width: int) -> tuple[str, str, bool]:
    """Return the tensors of gain and bias before the layer ("" for none) and whether the norm takes the mean away."""
    if family.norm is None:
        return "", "", False
    gain, shift = f"{names['norm']}.weight", f"{names['norm']}.bias"
    for name in (gain, shift):
        if name in shapes and shapes[name] != (width,):
            raise Unfit(f"{name} has the shape {shapes[name]}; ({width},) is expected")
    gain, shift = gain if gain in shapes else "", shift if shift in shapes else ""
    return gain, shift, bool(shift) if family.centred is None else family.centred


def _head_norm(name: str, shapes: Shapes, each: int) -> str:
    full = f"{name}.weight"
    if not name or full not in shapes:
        return ""
    if shapes[full] != (each,):
        raise Unfit(f"{full} has the shape {shapes[full]}: a norm over all heads at once mixes heads")
    return full

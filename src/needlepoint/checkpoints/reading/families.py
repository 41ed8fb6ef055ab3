"""Families of models: which tensors hold queries and keys, in which order, and what stands before them.

A name is a template in which {pre} and {layer} are filled by what the family's `anchor` finds in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from needlepoint.checkpoints.reading.files import BadCheckpoint

ORDERS = ("apart", "qkv", "heads", "kv")


@dataclass(frozen=True)
class Family:
    """How a family stores attention. Names are templates without `.weight` and `.bias`, which follow.

    anchor      regular expression for the query weights, with the groups `pre` and `layer`
    order       `apart`: query and key are tensors of their own; `qkv`: one tensor, queries, keys, values;
                `heads`: one tensor, query, key and value of each head in turn; `kv`: keys and values in one
    transposed  True if weights are (in, out) and act from the right, as in GPT-2
    norm        the norm that the layer's input goes through before (None: post-norm, nothing to fold)
    centred     True for LayerNorm, which takes the mean away; None: it is one if it has a bias
    query_norm, key_norm  norms between weights and scores
    pairs       coordinates that rotary positions turn together: `half` (j with j + p/2), `adjacent`, or `` for none
    """

    name: str
    anchor: str
    query: str
    key: str
    value: str = ""
    output: str = ""
    order: str = "apart"
    transposed: bool = False
    norm: str | None = None
    centred: bool | None = None
    query_norm: str = ""
    key_norm: str = ""
    pairs: str = ""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise BadCheckpoint(f"the order of a family is one of {', '.join(ORDERS)}; {self.order!r} was given.")


_LLAMA = "{pre}layers.{layer}.self_attn."
_BERT = "{pre}layer.{layer}.attention."
_NEOX = "{pre}layers.{layer}."

SAFETENSORS = (
    Family(
        "BERT-like",
        r"(?P<pre>(?:.*\.)?encoder\.)layer\.(?P<layer>\d{1,6})\.attention\.self\.query\.weight",
        f"{_BERT}self.query",
        f"{_BERT}self.key",
        f"{_BERT}self.value",
        f"{_BERT}output.dense",
    ),
    Family(
        "GPT-2-like",
        r"(?P<pre>(?:.*\.)?)h\.(?P<layer>\d{1,6})\.attn\.c_attn\.weight",
        "{pre}h.{layer}.attn.c_attn",
        "",
        order="qkv",
        transposed=True,
        norm="{pre}h.{layer}.ln_1",
        centred=True,
    ),
    Family(
        "LLaMA-like",
        r"(?P<pre>(?:.*\.)?)layers\.(?P<layer>\d{1,6})\.self_attn\.q_proj\.weight",
        f"{_LLAMA}q_proj",
        f"{_LLAMA}k_proj",
        f"{_LLAMA}v_proj",
        f"{_LLAMA}o_proj",
        norm="{pre}layers.{layer}.input_layernorm",
        query_norm=f"{_LLAMA}q_norm",
        key_norm=f"{_LLAMA}k_norm",
        pairs="half",
    ),
    Family(
        "Phi-3-like",
        r"(?P<pre>(?:.*\.)?)layers\.(?P<layer>\d{1,6})\.self_attn\.qkv_proj\.weight",
        f"{_LLAMA}qkv_proj",
        "",
        output=f"{_LLAMA}o_proj",
        order="qkv",
        norm="{pre}layers.{layer}.input_layernorm",
        pairs="half",
    ),
    Family(
        "GPT-NeoX-like",
        r"(?P<pre>(?:.*\.)?)layers\.(?P<layer>\d{1,6})\.attention\.query_key_value\.weight",
        f"{_NEOX}attention.query_key_value",
        "",
        order="heads",
        norm=f"{_NEOX}input_layernorm",
        centred=True,
        pairs="half",
    ),
    Family(
        "fused key-value",
        r"(?P<pre>(?:.*?\.)?)(?P<layer>\d{1,6})\.(?P<rest>(?:\d{1,3}\.)*)(?:fn\.)?to_q\.weight",
        "{pre}{layer}.{rest}fn.to_q",
        "{pre}{layer}.{rest}fn.to_kv",
        order="kv",
        norm="{pre}{layer}.{rest}norm",
    ),
)

_BLOCK = r"blk\.(?P<layer>\d{1,6})\."
_APART = Family(
    "",
    _BLOCK + r"attn_q\.weight",
    "blk.{layer}.attn_q",
    "blk.{layer}.attn_k",
    "blk.{layer}.attn_v",
    "blk.{layer}.attn_output",
    norm="blk.{layer}.attn_norm",
    query_norm="blk.{layer}.attn_q_norm",
    key_norm="blk.{layer}.attn_k_norm",
)
_FUSED = replace(_APART, anchor=_BLOCK + r"attn_qkv\.weight", query="blk.{layer}.attn_qkv", key="", order="qkv")
_HALF = ("qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma", "gemma2", "gemma3")

GGUF = {
    # the converter permutes rows of these so that coordinates turned together are neighbours
    "llama": replace(_APART, name="LLaMA-like", pairs="adjacent"),
    **{name: replace(_APART, name="LLaMA-like", pairs="half") for name in _HALF},
    "bert": replace(_APART, name="BERT-like", norm=None),
    "gpt2": replace(_FUSED, name="GPT-2-like", centred=True),
    "phi3": replace(_FUSED, name="Phi-3-like", pairs="half"),
    "gptneox": replace(_FUSED, name="GPT-NeoX-like", centred=True, pairs="half"),
}


def layers_of(family: Family, names: Iterable[str]) -> dict[tuple[str, int], dict[str, str]]:
    """Return the names of every attention layer in the file by (pre, layer): the templates filled in."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    anchor = re.compile(family.anchor)
    for name in names:
        if match := anchor.fullmatch(name):
            groups = {"pre": "", "rest": "", **{k: v or "" for k, v in match.groupdict().items()}}
            filled = {role: _filled(getattr(family, role), groups) for role in _ROLES}
            if family.order == "kv" and "fn." not in name:
                filled = {role: text.replace("fn.", "") for role, text in filled.items()}
            found[groups["pre"] + groups["rest"], int(groups["layer"])] = filled
    return found


_ROLES = ("query", "key", "value", "output", "norm", "query_norm", "key_norm")
assert set(_ROLES) <= {f.name for f in fields(Family)}


def _filled(template: str | None, groups: dict[str, str]) -> str:
    return (template or "").format(**groups) if template else ""


def of_patterns(query: str, key: str = "", **others: object) -> Family:
    """Return a family from names that a user gives, in which {layer} stands for the layer's number and `.weight` may be
    left out."""
    if "{layer}" not in query:
        raise BadCheckpoint(f"the pattern {query!r} must have {{layer}} where the layer's number stands.")
    texts = {k: v.removesuffix(".weight") if isinstance(v, str) else v for k, v in others.items()}
    unknown = set(texts) - {f.name for f in fields(Family)}
    if unknown:
        raise BadCheckpoint(f"patterns do not have {', '.join(sorted(unknown))}; they have {', '.join(_KNOWN)}.")
    bare = query.removesuffix(".weight")
    before, _, after = bare.partition("{layer}")
    anchor = f"{re.escape(before)}(?P<layer>\\d{{1,6}}){re.escape(after)}\\.weight"
    try:
        family = Family("by given patterns", anchor, bare, key.removesuffix(".weight"), **texts)  # pyright: ignore
        layers_of(family, [bare.format(layer=0, pre="") + ".weight"])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise BadCheckpoint(f"the patterns cannot be used: {error}.") from None
    return family


_KNOWN = [f.name for f in fields(Family) if f.name not in ("name", "anchor")]

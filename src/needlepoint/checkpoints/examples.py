"""Tiny checkpoints with random weights, laid out as the real ones of each family: for examples and tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.checkpoints.reading.writing import entry, write_safetensors

_TEXT = (
    "[PAD] [UNK] [CLS] [SEP] the a my our city dog cat is very nice mean cute dreadful lovely nasty clean dirty red "
    "big small hello good evening how are you old man walked to harbour every morning and read newspaper he she it . , "
    "? in of was on bread train house river night long letter"
)
WORDS = tuple(_TEXT.split())
FAMILIES = ("bert", "gpt2", "llama", "qwen2", "qwen3", "gemma", "phi3", "gpt_neox", "fused_kv")


def tiny_checkpoint(
    folder: str | Path, family: str = "bert", *, seed: int = 0, heads: int = 4, key_heads: int = 2, layers: int = 2
) -> Path:
    """Write a checkpoint of a family with random weights (d = 32, p = 8) and return its folder, `folder`/tiny-FAMILY.

    `bert`, `llama`, `qwen2` and `qwen3` are whole models with a tokenizer of some sixty words; the others have
    attention only. `key_heads` is for the families with grouped keys.
    """
    if family not in FAMILIES:
        raise BadCheckpoint(f"tiny_checkpoint(family={family!r}): one of {', '.join(FAMILIES)} is expected.")
    into = Path(folder) / f"tiny-{family}"
    into.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    d, p = 8 * heads, 8
    sizes = {"d": d, "p": p, "heads": heads, "key_heads": key_heads, "layers": layers}
    build = {"bert": _bert, "gpt2": _gpt2, "phi3": _phi3, "gpt_neox": _neox, "fused_kv": _fused_kv}.get(family, _llama)
    tensors, config = build(rng, family, **sizes)
    config = {"model_type": family, "num_attention_heads": heads, "num_hidden_layers": layers, **config}
    (into / "config.json").write_text(json.dumps(config, indent=1))
    write_safetensors(into / "model.safetensors", [entry(name, values) for name, values in tensors.items()])
    if family in ("bert", "llama", "qwen2", "qwen3"):
        (into / "tokenizer.json").write_text(json.dumps(_tokenizer(family == "bert")))
    return into


Tensors = dict[str, np.ndarray]


def _linear(rng: np.random.Generator, rows: int, columns: int, size: float = 1.0) -> np.ndarray:
    return (size * rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)


def _gain(rng: np.random.Generator, count: int, around: float = 1.0) -> np.ndarray:
    return (around + 0.3 * rng.standard_normal(count)).astype(np.float32)


def _bias(rng: np.random.Generator, count: int) -> np.ndarray:
    return (0.3 * rng.standard_normal(count)).astype(np.float32)


def _bert(rng: np.random.Generator, _: str, *, d: int, layers: int, **__: int) -> tuple[Tensors, dict[str, Any]]:
    found: Tensors = {}

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = _gain(rng, d), _bias(rng, d)

    def dense(name: str, rows: int, columns: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = _linear(rng, rows, columns, 1.5), _bias(rng, rows)

    for name, rows in (("word_embeddings", len(WORDS)), ("position_embeddings", 64), ("token_type_embeddings", 2)):
        found[f"embeddings.{name}.weight"] = _linear(rng, rows, d, np.sqrt(d))
    norm("embeddings.LayerNorm")
    for layer in range(layers):
        here = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            dense(f"{here}attention.self.{part}", d, d)
        dense(f"{here}attention.output.dense", d, d)
        norm(f"{here}attention.output.LayerNorm")
        dense(f"{here}intermediate.dense", 2 * d, d)
        dense(f"{here}output.dense", d, 2 * d)
        norm(f"{here}output.LayerNorm")
    more = {"hidden_size": d, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "max_position_embeddings": 64}
    return found, more


def _llama(
    rng: np.random.Generator, family: str, *, d: int, p: int, heads: int, key_heads: int, layers: int
) -> tuple[Tensors, dict[str, Any]]:
    found: Tensors = {"model.embed_tokens.weight": _linear(rng, len(WORDS), d, np.sqrt(d))}
    around = 0.0 if family == "gemma" else 1.0  # Gemma stores gains without the one
    for layer in range(layers):
        here = f"model.layers.{layer}."
        for part, rows in (("q", heads * p), ("k", key_heads * p), ("v", key_heads * p)):
            found[f"{here}self_attn.{part}_proj.weight"] = _linear(rng, rows, d, 1.5)
            if family == "qwen2":
                found[f"{here}self_attn.{part}_proj.bias"] = _bias(rng, rows)
            if family == "qwen3" and part != "v":
                found[f"{here}self_attn.{part}_norm.weight"] = _gain(rng, p)
        found[f"{here}self_attn.o_proj.weight"] = _linear(rng, d, heads * p)
        for part, rows, columns in (("gate", 2 * d, d), ("up", 2 * d, d), ("down", d, 2 * d)):
            found[f"{here}mlp.{part}_proj.weight"] = _linear(rng, rows, columns)
        for part in ("input_layernorm", "post_attention_layernorm"):
            found[f"{here}{part}.weight"] = _gain(rng, d, around)
    found["model.norm.weight"] = _gain(rng, d, around)
    more = {"hidden_size": d, "num_key_value_heads": key_heads, "head_dim": p, "rms_norm_eps": 1e-5}
    return found, {**more, "rope_theta": 1000.0, "hidden_act": "silu", "tie_word_embeddings": True}


def _gpt2(rng: np.random.Generator, _: str, *, d: int, layers: int, **__: int) -> tuple[Tensors, dict[str, Any]]:
    found: Tensors = {}
    for layer in range(layers):
        here = f"h.{layer}."
        found[f"{here}attn.c_attn.weight"] = _linear(rng, d, 3 * d)
        found[f"{here}attn.c_attn.bias"] = _bias(rng, 3 * d)
        found[f"{here}attn.bias"] = np.tril(np.ones((4, 4), np.float32))[None, None]  # a mask, not a bias
        found[f"{here}ln_1.weight"], found[f"{here}ln_1.bias"] = _gain(rng, d), _bias(rng, d)
    return found, {"n_embd": d}


def _phi3(
    rng: np.random.Generator, _: str, *, d: int, p: int, heads: int, key_heads: int, layers: int
) -> tuple[Tensors, dict[str, Any]]:
    found: Tensors = {}
    for layer in range(layers):
        found[f"model.layers.{layer}.self_attn.qkv_proj.weight"] = _linear(rng, (heads + 2 * key_heads) * p, d)
        found[f"model.layers.{layer}.input_layernorm.weight"] = _gain(rng, d)
    return found, {"hidden_size": d, "num_key_value_heads": key_heads, "rope_theta": 10000.0}


def _neox(rng: np.random.Generator, _: str, *, d: int, layers: int, **__: int) -> tuple[Tensors, dict[str, Any]]:
    found: Tensors = {}
    for layer in range(layers):
        here = f"gpt_neox.layers.{layer}."
        found[f"{here}attention.query_key_value.weight"] = _linear(rng, 3 * d, d)
        found[f"{here}attention.query_key_value.bias"] = _bias(rng, 3 * d)
        found[f"{here}input_layernorm.weight"] = _gain(rng, d)
        found[f"{here}input_layernorm.bias"] = _bias(rng, d)
    return found, {"hidden_size": d, "rotary_pct": 0.25, "rotary_emb_base": 10000}


def _fused_kv(rng: np.random.Generator, _: str, *, d: int, layers: int, **__: int) -> tuple[Tensors, dict[str, Any]]:
    found: Tensors = {}
    for layer in range(layers):
        found[f"layers.{layer}.0.fn.to_q.weight"] = _linear(rng, d, d)
        found[f"layers.{layer}.0.fn.to_kv.weight"] = _linear(rng, 2 * d, d)
        found[f"layers.{layer}.0.norm.weight"], found[f"layers.{layer}.0.norm.bias"] = _gain(rng, d), _bias(rng, d)
    return found, {}


def _tokenizer(marks: bool) -> dict[str, Any]:
    """Return a tokenizer.json that knows `WORDS`; with `marks`, [CLS] and [SEP] stand around a sentence."""
    pieces = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pieces.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    special = {name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    around = {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": special}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": around if marks else None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }

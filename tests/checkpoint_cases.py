"""Helpers of the checkpoint tests: raw tensors of a file, GGUF files as the converter would write them, fixtures."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def raw_tensors(path):
    """Read a float32 safetensors file in the plainest way, as a second route."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, about in header.items():
        start, stop = about["data_offsets"]
        values = np.frombuffer(data[8 + length + start : 8 + length + stop], "<f4")
        found[name] = values.reshape(about["shape"]).copy()
    return found


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def permuted(weight, heads):
    """Rows of each head from halves to neighbours, as llama.cpp's converter turns them."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def write_gguf(path, tensors, family, heads=4, key_heads=2, quantise=None):
    """Write a LLaMA-like model as GGUF with the public writer."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(2)
    writer.add_embedding_length(32)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_key_length(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1000.0)
    for name, values in tensors.items():
        values = values.copy()
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            values = permuted(values, heads if "q_proj" in name else key_heads)
        if family == "gemma" and "norm" in name:
            values = values + 1.0
        name = name.replace("model.embed_tokens", "token_embd").replace("model.norm", "output_norm")
        name = name.replace("model.layers.", "blk.")
        for theirs, ours in GGUF_NAMES.items():
            name = name.replace(theirs, ours)
        if quantise is not None and values.ndim == 2:
            kind = gguf.GGMLQuantizationType[quantise]
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def fixture_folder(name):
    """The folder of a model that `make fixtures` has fetched; the test is skipped if it is not there."""
    from needlepoint.checkpoints.fixtures import FIXTURES, home

    place = FIXTURES[name].place(home(os.environ.get("NEEDLEPOINT_FIXTURES") or ROOT / ".cache" / "fixtures"))
    if not place.exists():
        pytest.skip(f"{name} is not there: make fixtures")
    return place


def real_value(beginning):
    """Value and tolerance of the entry of real-weights.json whose name begins so; relative tolerances as absolute."""
    document = json.loads((ROOT / "tests" / "reference" / "real-weights.json").read_text())
    (found,) = [v for v in document["values"] if v["name"].startswith(beginning)]
    return found["value"], found["tol"]


def real_note(beginning):
    """The note of an entry of real-weights.json."""
    document = json.loads((ROOT / "tests" / "reference" / "real-weights.json").read_text())
    return next(v["note"] for v in document["values"] if v["name"].startswith(beginning))


def real_sentences(kind):
    """The fixed sentences of real-weights.json: `calibration` or `test`."""
    document = json.loads((ROOT / "tests" / "reference" / "real-weights.json").read_text())
    return document["sentences"][kind]

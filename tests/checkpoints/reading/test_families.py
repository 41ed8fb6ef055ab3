"""Every family's orientation, order, grouping, gains and biases, against scores computed from the raw tensors."""

import json
import math

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import FAMILIES, tiny_checkpoint
from needlepoint.checkpoints.reading.writing import entry, write_safetensors

from checkpoint_cases import raw_tensors, write_gguf

D, P = 32, 8


def norm(x, gain, bias=None, centred=False, eps=0.0):
    """The plain definitions: LayerNorm if `centred`, else RMSNorm."""
    x = x - x.mean(-1, keepdims=True) if centred else x
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain
    return x if bias is None else x + bias


def true_scores(family, t, x, layer, head, heads, key_heads, plus_one=1.0):
    """Scores of all pairs of tokens without positions and without query-key norms, as the families define them."""
    group = head // (heads // key_heads)
    rows, shared = slice(head * P, (head + 1) * P), slice(group * P, (group + 1) * P)
    if family == "bert":
        at = f"encoder.layer.{layer}.attention.self."
        q = (x @ t[at + "query.weight"].T + t[at + "query.bias"])[:, rows]
        k = (x @ t[at + "key.weight"].T + t[at + "key.bias"])[:, rows]
    elif family == "gpt2":
        y = norm(x, t[f"h.{layer}.ln_1.weight"], t[f"h.{layer}.ln_1.bias"], centred=True)
        q, k, _ = np.split(y @ t[f"h.{layer}.attn.c_attn.weight"] + t[f"h.{layer}.attn.c_attn.bias"], 3, axis=1)
        q, k = q[:, rows], k[:, rows]
    elif family in ("llama", "qwen2", "gemma"):
        at = f"model.layers.{layer}."
        gain = t[at + "input_layernorm.weight"].astype(float) + (plus_one if family == "gemma" else 0.0)
        y = norm(x, gain)
        q, k = y @ t[at + "self_attn.q_proj.weight"].T, y @ t[at + "self_attn.k_proj.weight"].T
        if family == "qwen2":
            q, k = q + t[at + "self_attn.q_proj.bias"], k + t[at + "self_attn.k_proj.bias"]
        q, k = q[:, rows], k[:, shared]
    elif family == "phi3":
        y = norm(x, t[f"model.layers.{layer}.input_layernorm.weight"])
        qkv = y @ t[f"model.layers.{layer}.self_attn.qkv_proj.weight"].T
        q, k = qkv[:, rows], qkv[:, heads * P + group * P : heads * P + (group + 1) * P]
    elif family == "gpt_neox":
        at = f"gpt_neox.layers.{layer}."
        y = norm(x, t[at + "input_layernorm.weight"], t[at + "input_layernorm.bias"], centred=True)
        qkv = y @ t[at + "attention.query_key_value.weight"].T + t[at + "attention.query_key_value.bias"]
        q, k = (qkv.reshape(len(x), heads, 3, P)[:, head, part] for part in (0, 1))
    else:
        y = norm(x, t[f"layers.{layer}.0.norm.weight"], t[f"layers.{layer}.0.norm.bias"], centred=True)
        q = (y @ t[f"layers.{layer}.0.fn.to_q.weight"].T)[:, rows]
        k = np.split(y @ t[f"layers.{layer}.0.fn.to_kv.weight"].T, 2, axis=1)[0][:, rows]
    return q @ k.T / math.sqrt(P)


def read_scores(head, x, centred):
    """The same scores from what `head` returns, on the norm without gain and bias."""
    y = norm(x, 1.0, centred=centred) if centred is not None else x
    q = y @ head.query.T + (0 if head.query_bias is None else head.query_bias)
    k = y @ head.key.T + (0 if head.key_bias is None else head.key_bias)
    return q @ k.T / math.sqrt(P)


CENTRED = {"bert": None, "gpt2": True, "gpt_neox": True, "fused_kv": True}
SCORED = [f for f in FAMILIES if f != "qwen3"]
GROUPED = ("llama", "qwen2", "gemma", "phi3")


@pytest.mark.exact
@pytest.mark.parametrize("family", SCORED)
def test_scores_are_those_of_the_raw_tensors(family, tmp_path, rng):
    folder = tiny_checkpoint(tmp_path, family)
    checkpoint = ndl.read_checkpoint(folder)
    tensors, x = raw_tensors(folder / "model.safetensors"), rng.standard_normal((5, D)) * 3
    key_heads = 2 if family in GROUPED else 4
    for layer, head in checkpoint.ids():
        got = read_scores(checkpoint.head(layer, head), x, CENTRED.get(family, False))
        want = true_scores(family, tensors, x, layer, head, 4, key_heads)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.negative
@pytest.mark.parametrize("family", SCORED)
def test_another_head_or_layer_has_other_scores(family, tmp_path, rng):
    folder = tiny_checkpoint(tmp_path, family)
    checkpoint = ndl.read_checkpoint(folder)
    tensors, x = raw_tensors(folder / "model.safetensors"), rng.standard_normal((5, D))
    key_heads = 2 if family in GROUPED else 4
    want = true_scores(family, tensors, x, 0, 1, 4, key_heads)
    for layer, head in ((0, 0), (0, 2), (1, 1)):
        got = read_scores(checkpoint.head(layer, head), x, CENTRED.get(family, False))
        assert np.abs(got - want).max() > 0.1


@pytest.mark.exact
@pytest.mark.parametrize("key_heads", [1, 2, 4, 8])
def test_heads_are_told_apart_under_grouped_keys(key_heads, tmp_path):
    """A checkpoint in which key head g is g + 1 times the first one: the size of a head's map names its group."""
    folder = tiny_checkpoint(tmp_path, "llama", heads=8, key_heads=key_heads)
    tensors = raw_tensors(folder / "model.safetensors")
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn.k_proj.weight"
        tensors[at] = np.concatenate([(g + 1) * tensors[at][:P] for g in range(key_heads)])
        tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = np.tile(
            tensors[f"model.layers.{layer}.self_attn.q_proj.weight"][:P], (8, 1)
        )
    write_safetensors(folder / "model.safetensors", [entry(n, v) for n, v in tensors.items()])
    checkpoint = ndl.read_checkpoint(folder)
    sizes = [np.linalg.norm((w := checkpoint.head(1, h)).query.T @ w.key) for h in range(8)]
    ratio = np.array(sizes) / sizes[0]
    np.testing.assert_allclose(ratio, [1 + h // (8 // key_heads) for h in range(8)], rtol=1e-7)  # float32
    assert [checkpoint.head(0, h).key_head for h in range(8)] == [h // (8 // key_heads) for h in range(8)]
    if key_heads in (2, 4):  # the quiet mistake h mod key_heads gives other heads
        assert not np.allclose(ratio, [1 + h % key_heads for h in range(8)])


@pytest.mark.negative
def test_one_plus_gain_is_added_once(tmp_path, rng):
    folder = tiny_checkpoint(tmp_path, "gemma")
    tensors, x = raw_tensors(folder / "model.safetensors"), rng.standard_normal((5, D))
    got = read_scores(ndl.read_checkpoint(folder).head(0, 1), x, False)
    for wrong in (0.0, 2.0):
        want = true_scores("gemma", tensors, x, 0, 1, 4, 2, plus_one=wrong)
        assert np.abs(got - want).max() > 0.1


@pytest.mark.exact
def test_query_key_norms_scale_the_head(tmp_path):
    folder = tiny_checkpoint(tmp_path, "qwen3")
    tensors = raw_tensors(folder / "model.safetensors")
    checkpoint = ndl.read_checkpoint(folder)
    at = "model.layers.0."
    gain = tensors[at + "input_layernorm.weight"].astype(float)
    want = tensors[at + "self_attn.q_norm.weight"].astype(float)[:, None]
    want = want * tensors[at + "self_attn.q_proj.weight"][P : 2 * P] * gain
    np.testing.assert_allclose(checkpoint.head(0, 1).query, want, rtol=1e-12)
    assert any("one positive factor per token" in said for said in checkpoint.assumptions)


@pytest.mark.exact
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma"])
def test_gguf_has_the_same_maps(family, tmp_path):
    """The converter permutes rows of LLaMA's weights and adds one to Gemma's gains; the head's map is the same."""
    folder = tiny_checkpoint(tmp_path, family)
    path = write_gguf(tmp_path / "tiny.gguf", raw_tensors(folder / "model.safetensors"), family)
    plain, packed = ndl.read_checkpoint(folder), ndl.read_checkpoint(path)
    assert packed.family.pairs == ("adjacent" if family == "llama" else "half")
    for layer, head in plain.ids():
        a, b = plain.head(layer, head), packed.head(layer, head)
        np.testing.assert_allclose(b.query.T @ b.key, a.query.T @ a.key, rtol=1e-5, atol=1e-6)


def test_patterns_read_an_unknown_family(tmp_path):
    folder = tiny_checkpoint(tmp_path, "llama")
    tensors = raw_tensors(folder / "model.safetensors")
    renamed = {
        n.replace("model.layers.", "blocks.").replace("self_attn.q_proj", "wq").replace("self_attn.k_proj", "wk"): v
        for n, v in tensors.items()
    }
    write_safetensors(tmp_path / "other.safetensors", [entry(n, v) for n, v in renamed.items()])
    with pytest.raises(ndl.InvalidParameter, match="no family this library knows"):
        ndl.read_checkpoint(tmp_path / "other.safetensors")
    patterns = {
        "query": "blocks.{layer}.wq.weight",
        "key": "blocks.{layer}.wk.weight",
        "norm": "blocks.{layer}.input_layernorm",
    }
    got = ndl.read_checkpoint(tmp_path / "other.safetensors", patterns=patterns, heads=4, key_heads=2)
    want = ndl.read_checkpoint(folder)
    np.testing.assert_array_equal(got.head(1, 3).query, want.head(1, 3).query)
    for wrong, said in (
        ({"query": "blocks.0.wq"}, "must have {layer}"),
        ({**patterns, "colour": "x"}, "do not have colour"),
        ({**patterns, "order": "mixed"}, "order of a family is one of"),
        ({**patterns, "query": "nothing.{layer}"}, "no tensor of"),
    ):
        with pytest.raises(ndl.InvalidParameter, match=said):
            ndl.read_checkpoint(tmp_path / "other.safetensors", patterns=wrong, heads=4)


@pytest.mark.exact
def test_shards_and_types_read_the_same(tmp_path):
    """One file, two shards with an index, and bfloat16, float16 and float64 within their rounding."""
    folder = tiny_checkpoint(tmp_path, "llama")
    tensors = raw_tensors(folder / "model.safetensors")
    want = ndl.read_checkpoint(folder)
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    (sharded / "config.json").write_text((folder / "config.json").read_text())
    names = list(tensors)
    halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in halves.items():
        write_safetensors(sharded / file, [entry(n, tensors[n]) for n in part])
    places = {n: file for file, part in halves.items() for n in part}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for path in (sharded, sharded / "model.safetensors.index.json"):
        np.testing.assert_array_equal(ndl.read_checkpoint(path).head(1, 2).key, want.head(1, 2).key)
    for dtype, error in (("BF16", 2**-8), ("F16", 2**-11), ("F64", 0.0)):
        other = tmp_path / dtype
        other.mkdir()
        (other / "config.json").write_text((folder / "config.json").read_text())
        write_safetensors(other / "model.safetensors", [entry(n, v, dtype) for n, v in tensors.items()])
        got = ndl.read_checkpoint(other).head(1, 2, folded=False).key
        np.testing.assert_allclose(got, want.head(1, 2, folded=False).key, rtol=error, atol=1e-7 * (error > 0))


@pytest.mark.exact
def test_the_safetensors_package_reads_the_same(tmp_path):
    numpy_reader = pytest.importorskip("safetensors.numpy")
    folder = tiny_checkpoint(tmp_path, "bert")
    theirs = numpy_reader.load_file(folder / "model.safetensors")
    ours = ndl.read_checkpoint(folder).tensors
    assert set(theirs) == set(ours.shapes)
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours.read(name), values)


def test_layers_that_do_not_fit_are_listed_with_their_reason(tmp_path):
    folder = tiny_checkpoint(tmp_path, "llama", layers=3)
    tensors = raw_tensors(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.weight"] = tensors["model.layers.1.self_attn.k_proj.weight"][:-1]
    del tensors["model.layers.2.self_attn.q_proj.weight"]
    write_safetensors(folder / "model.safetensors", [entry(n, v) for n, v in tensors.items()])
    checkpoint = ndl.read_checkpoint(folder)
    assert [layer.layer for layer in checkpoint.layers] == [0]
    assert [s.where for s in checkpoint.skipped] == ["layer 1", "1 of 3 layers"]
    assert "does not fit 2 heads of 8" in checkpoint.skipped[0].reason

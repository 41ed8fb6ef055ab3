"""`truncation` on tiny and real models: reference values, effects on held-out text, files that read back."""

import shutil

import numpy as np
import pytest
from scipy import stats

import needlepoint as ndl
from needlepoint.checkpoints.cutting.calibration import calibrate
from needlepoint.checkpoints.cutting.effects import losses_of
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.forward.models import model_of
from needlepoint.checkpoints.reading.files import BadCheckpoint

from checkpoint_cases import fixture_folder, raw_tensors, real_sentences, real_value, write_gguf
from checkpoint_texts import licences, manual, split

TEXT = (
    "The old man walked to the harbour every morning. She read a long letter on the train. It was very nice in our "
    "city. A big dog and a small cat are in the house. Good evening, how are you? He was on the river every night. "
) * 12


@pytest.mark.exact
@pytest.mark.parametrize("family", ["bert", "llama", "qwen2"])
def test_a_cut_that_is_written_reads_back_with_the_same_states(family, tmp_path):
    """Only query weights change; hidden states are those of the cut; the written maps have the rank they should."""
    folder = tiny_checkpoint(tmp_path, family)
    cut = ndl.truncation(ndl.read_checkpoint(folder), text=TEXT)
    ranks = cut.ranks(budget=3)
    assert sum(ranks.values()) == 3 * len(cut.heads)
    other = tmp_path / "cut"
    other.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(folder / name, other / name)
    assert "byte for byte" in cut.write(other / "model.safetensors", ranks)
    before, after = (raw_tensors(f / "model.safetensors") for f in (folder, other))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    query = "attention.self.query.weight" if family == "bert" else "self_attn.q_proj.weight"
    assert changed == {name for name in before if name.endswith(query)}
    assert list(before) == list(after)
    *_, want = cut.model.states(cut.held_out, cuts=cut.maps(ranks))
    *_, got = model_of(ndl.read_checkpoint(other)).states(cut.held_out)
    np.testing.assert_allclose(got, want, atol=2e-5)
    checkpoint = ndl.read_checkpoint(other)
    for (layer, head), rank in ranks.items():
        values = np.linalg.svd(checkpoint.head(layer, head, folded=False).query, compute_uv=False)
        assert np.sum(values > 1e-5 * max(values[0], 1e-9)) == rank
    with pytest.raises(BadCheckpoint, match="the checkpoint itself"):
        cut.write(folder / "model.safetensors", ranks)
    for bad, said in (("x.bin", "that ends in"), ("none/x.safetensors", "no folder")):
        with pytest.raises(BadCheckpoint, match=said):
            cut.write(tmp_path / bad, ranks)


@pytest.mark.exact
def test_full_rank_changes_nothing_and_the_loss_is_measured_right(tmp_path):
    """The measured loss of one head against a direct computation from its attention weights."""
    checkpoint = ndl.read_checkpoint(tiny_checkpoint(tmp_path, "bert"))
    cut = ndl.truncation(checkpoint, text=TEXT, ranks=[0, 2, 4, 8])
    assert cut.effect(cut.ranks(rank=8)).after == pytest.approx(1.0, abs=1e-6)
    seen = {}

    def watch(state):
        seen[state.layer] = state

    for _ in cut.model.states(cut.calibration, watch):
        pass
    one = cut.heads[5]
    state = seen[one.layer]
    total = count = output = 0.0
    for span in state.spans():
        q, k, v = state.queries[span, one.head], state.keys[span, one.head], state.values[span, one.head]
        bias = state.query_bias[one.head]
        a, b = (
            np.exp(z) / np.exp(z).sum(axis=1)[:, None]
            for z in ((q + bias) @ k.T / np.sqrt(8), (q @ one.maps.at(4) + bias) @ k.T / np.sqrt(8))
        )
        total += np.sum((a - b) ** 2)
        output += np.sum(((b - a) @ v @ state.output[one.head].T) ** 2)
        count += len(q)
    size = np.median(np.sum(state.inputs.astype(float) ** 2, axis=1))
    assert one.attention[2] == pytest.approx(total / count, rel=1e-3)
    assert one.output[2] == pytest.approx(output / count / size, rel=1e-3)


def test_factors_save_bytes_and_multiply_to_the_cut(tmp_path):
    folder = tiny_checkpoint(tmp_path, "llama")
    cut = ndl.truncation(ndl.read_checkpoint(folder), text=TEXT)
    ranks = cut.ranks(rank=2)
    said = cut.write(tmp_path / "factors.safetensors", ranks, factors=True)
    assert "bytes smaller" in said
    cut.write(tmp_path / "whole.safetensors", ranks)
    whole, parts = (raw_tensors(tmp_path / f"{name}.safetensors") for name in ("whole", "factors"))
    assert (tmp_path / "factors.safetensors").stat().st_size < (folder / "model.safetensors").stat().st_size
    at = "model.layers.1.self_attn.q_proj"
    product = parts[f"{at}.3.up"] @ parts[f"{at}.3.down"]
    np.testing.assert_allclose(product, whole[f"{at}.weight"][24:32], atol=1e-5)


@pytest.mark.exact
def test_gguf_is_written_with_the_other_tensors_byte_for_byte(tmp_path):
    gguf = pytest.importorskip("gguf")
    folder = tiny_checkpoint(tmp_path, "llama")
    path = write_gguf(folder / "tiny.gguf", raw_tensors(folder / "model.safetensors"), "llama", quantise="Q8_0")
    cut = ndl.truncation(ndl.read_checkpoint(path), text=TEXT)
    ranks = cut.ranks(rank=3)
    assert "F16" in cut.write(folder / "cut.gguf", ranks)
    theirs, ours = (gguf.GGUFReader(p) for p in (path, folder / "cut.gguf"))
    assert list(theirs.fields) == list(ours.fields)
    for a, b in zip(theirs.tensors, ours.tensors, strict=True):
        assert a.name == b.name
        if a.name.endswith("attn_q.weight"):
            assert b.tensor_type == gguf.GGMLQuantizationType.F16
        else:
            assert a.data.tobytes() == b.data.tobytes()
    *_, want = cut.model.states(cut.held_out, cuts=cut.maps(ranks))
    *_, got = model_of(ndl.read_checkpoint(folder / "cut.gguf")).states(cut.held_out)
    np.testing.assert_allclose(got, want, atol=0.02)  # float16 keeps three digits
    assert "alone" in cut.write(folder / "only.safetensors", ranks)


def test_choices_and_refusals(tmp_path):
    checkpoint = ndl.read_checkpoint(tiny_checkpoint(tmp_path, "bert"))
    cut = ndl.truncation(checkpoint, text=TEXT)
    assert any("calibration tokens" in said for said in cut.warnings())
    for options in ({}, {"rank": 2, "loss": 0.1}):
        with pytest.raises(ndl.InvalidParameter, match="give one of rank, loss and budget"):
            cut.ranks(**options)
    low = cut.ranks(loss=0.001)
    assert all(h.measured_at(low[h.layer, h.head]) <= 0.001 for h in cut.heads)
    effect = cut.effect(cut.ranks(rank=2))
    assert effect.worst <= effect.after < 1
    assert cut.effect(cut.ranks(rank=2), whitened=False).kind == "cosine"
    assert cut.to_json()["heads"][0]["ranks"][0] == 0
    with pytest.raises(ndl.InvalidParameter, match="norms its queries or keys"):
        ndl.truncation(ndl.read_checkpoint(tiny_checkpoint(tmp_path, "qwen3")), text=TEXT)
    for text, said in (("", "no sentence"), (["a", 3], "a text or a list of texts"), ("Hello.", "too few")):
        with pytest.raises(ndl.InvalidParameter, match=said):
            ndl.truncation(checkpoint, text=text)
    with pytest.raises(ndl.InvalidParameter, match="two or more whole numbers"):
        ndl.truncation(checkpoint, text=TEXT, ranks=[3, 99])


@pytest.mark.paper
def test_minilm_on_the_fixed_sentences():
    model = model_of(ndl.read_checkpoint(fixture_folder("minilm")))
    calibration, test = ([model.tokenizer.encode(s) for s in real_sentences(kind)] for kind in ("calibration", "test"))
    assert [sum(map(len, part)) for part in (calibration, test)] == real_value("fixed sentences: calibration")[0]
    heads = calibrate(model, calibration)
    first = heads[0]
    want, tol = real_value("fixed sentences, l0h0: whitened")
    np.testing.assert_allclose(first.values[:4], want, rtol=tol)
    cuts = {layer: np.array([h.maps.at(8) for h in heads if h.layer == layer]) for layer in range(6)}
    losses = losses_of(model, test, cuts)
    want, tol = real_value("fixed sentences, l0h0: F")
    got = [first.response, first.predicted[8], losses[0, 0], first.measured_at(8)]
    np.testing.assert_allclose(got, want, rtol=tol)
    predicted, there = (np.array(x) for x in ([h.predicted[8] for h in heads], list(losses.values())))
    want, tol = real_value("fixed sentences: median predicted")
    got = [np.median(predicted / there), stats.spearmanr(predicted, there)[0], there.mean()]
    np.testing.assert_allclose(got, want, rtol=tol)


@pytest.mark.paper
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manual", "licences"])
def test_minilm_at_rank_eight(kind):
    """Two kinds of text, 300 sentences for calibration and 100 others for testing, two splits of each."""
    checkpoint = ndl.read_checkpoint(fixture_folder("minilm"))
    ratios, orders, greedy = [], [], []
    for seed in (1, 2):
        calibration, test = split(kind, seed)
        cut = ndl.truncation(checkpoint, text=calibration, held_out=test)
        same = cut.ranks(rank=8)
        effect = cut.effect(same)
        there = np.array([effect.attention[h.layer, h.head] for h in cut.heads])
        predicted = np.array([h.predicted[8] for h in cut.heads])
        here = np.array([h.measured_at(8) for h in cut.heads])
        ratios.append(np.median(predicted / there))
        assert stats.spearmanr(predicted, there)[0] > 0.85
        assert stats.spearmanr(here, there)[0] > 0.98
        orders.append(stats.spearmanr(predicted, there)[0])
        greedy.append(cut.effect(cut.ranks(budget=8)).after)
        assert greedy[-1] > effect.after
    assert 0.9 < np.mean(ratios) < 1.15
    (low, high), tol = real_value("minilm rank 8, >= 200 calibration")
    assert low - tol < np.mean(ratios) < high + tol
    (low, high), tol = real_value("minilm rank 8 Spearman")
    assert low - tol < np.mean(orders) < high + tol
    ranges, tol = real_value("minilm embedding cosine, same rank")
    tol += 0.01  # these are other texts than the sheet's
    for rank, (low, high) in zip((4, 8, 16), ranges, strict=True):
        after = effect.after if rank == 8 else cut.effect(cut.ranks(rank=rank)).after
        assert low - tol < after < high + tol
    assert np.mean(greedy) > 0.96
    assert cut.effect(same, whitened=False).after < 0.8
    assert not cut.warnings(effect, same)


@pytest.mark.paper
@pytest.mark.slow
def test_another_kind_of_text_is_noticed():
    cut = ndl.truncation(
        ndl.read_checkpoint(fixture_folder("minilm")), text=split("manual", 1)[0], held_out=split("licences", 1)[1]
    )
    ranks = cut.ranks(rank=8)
    assert any("differ in kind" in said for said in cut.warnings(cut.effect(ranks), ranks))


@pytest.mark.paper
@pytest.mark.slow
def test_smollm2_at_half_rank():
    """Running text of both kinds, some 1,900 tokens for calibration and 950 others for testing."""
    checkpoint = ndl.read_checkpoint(fixture_folder("smollm2"))
    texts = (manual(), licences())
    cut = ndl.truncation(
        checkpoint,
        text=[" ".join(t[:36]) for t in texts],
        held_out=[" ".join(t[400:418]) for t in texts],
    )
    same = cut.ranks(rank=32)
    shared = cut.effect(cut.ranks(budget=32))
    rise = shared.after - shared.before
    assert rise < 0.08
    uniform, bare = cut.effect(same), cut.effect(same, whitened=False)
    assert rise < uniform.after - uniform.before
    assert bare.after - bare.before > 1.0

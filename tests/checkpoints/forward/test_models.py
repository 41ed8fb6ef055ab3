"""Hidden states against a second implementation, on tiny and on real models; wrong choices must differ."""

import json
import re
import tempfile

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.forward.models import model_of

from checkpoint_cases import GGUF_NAMES, fixture_folder, raw_tensors, real_note, real_value, write_gguf
from checkpoint_twins import decoder_states, encoder_states, nats

TEXT = "The old man walked to the harbour every morning and read the newspaper ."


def hf_names(tensors):
    return {name.removeprefix("model."): values.astype(np.float64) for name, values in tensors.items()}


@pytest.mark.exact
def test_a_tiny_encoder_has_the_states_of_its_twin(tmp_path):
    folder = tiny_checkpoint(tmp_path, "bert")
    model = model_of(ndl.read_checkpoint(folder), np.float64)
    numbers = [model.tokenizer.encode(text) for text in (TEXT, "A cat is very nice .")]
    states = list(model.states(numbers))
    start = 0
    for one in numbers:  # sequences do not see each other
        for got, want in zip(states, encoder_states(raw_tensors(folder / "model.safetensors"), one, 4), strict=True):
            np.testing.assert_allclose(got[start : start + len(one)], want, atol=1e-10)
        start += len(one)


@pytest.mark.exact
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_tiny_decoder_has_the_states_of_its_twin(family, packed, tmp_path):
    folder = tiny_checkpoint(tmp_path, family)
    raw = raw_tensors(folder / "model.safetensors")
    path = write_gguf(folder / "tiny.gguf", raw, family) if packed else folder
    model = model_of(ndl.read_checkpoint(path), np.float64)
    numbers = model.tokenizer.encode(TEXT)
    options = {"heads": 4, "key_heads": 2, "base": 1000.0, "eps": 1e-5, "pairs": "half", "q_norm": family == "qwen3"}
    want, logits = decoder_states(hf_names(raw), numbers, **options)
    states = list(model.states([numbers]))
    for got, true in zip(states, want, strict=True):
        np.testing.assert_allclose(got, true, rtol=1e-6, atol=1e-6)  # eps is float32 in GGUF
    np.testing.assert_allclose(model.logits(states[-1]), logits, rtol=1e-5, atol=1e-5)
    assert model.nats([numbers]).mean() == pytest.approx(nats(logits, numbers), rel=1e-6)
    for wrong in ("half pairing", "no rotary", "base", "modulo", "gain"):
        other, _ = decoder_states(hf_names(raw), numbers, **options, wrong=wrong)
        assert np.abs(states[-1] - other[-1]).max() > 1e-3, wrong


@pytest.mark.paper
def test_minilm_embeds_as_it_should():
    model = model_of(ndl.read_checkpoint(fixture_folder("minilm")))
    numbers = [model.tokenizer.encode(s) for s in ("A man is eating food.", "A man is eating a piece of bread.")]
    assert numbers[0] == real_value("minilm ids")[0]
    vectors = model.embeddings(numbers)
    want, tol = real_value("minilm cosine")
    assert vectors[0] @ vectors[1] == pytest.approx(want, abs=tol)
    want, tol = real_value("minilm embedding of that sentence")
    np.testing.assert_allclose(vectors[0][:4], want, atol=tol)


@pytest.mark.exact
def test_minilm_has_the_states_of_its_twin():
    folder = fixture_folder("minilm")
    model = model_of(ndl.read_checkpoint(folder))
    tensors = raw_floats(folder / "model.safetensors")
    numbers = model.tokenizer.encode("The judge asked the witness to repeat his answer.")
    for got, want in zip(model.states([numbers]), encoder_states(tensors, numbers, 12), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def raw_floats(path):
    """The tensors of MiniLM by the safetensors package (one of them is not float32)."""
    return pytest.importorskip("safetensors.numpy").load_file(path)


@pytest.fixture(scope="module")
def paragraph():
    return real_note("smollm2 nats").split(" [")[0]


@pytest.fixture(scope="module")
def smollm2():
    return model_of(ndl.read_checkpoint(fixture_folder("smollm2")))


@pytest.mark.paper
def test_smollm2_reads_the_paragraph(smollm2, paragraph):
    numbers = smollm2.tokenizer.encode(paragraph)
    want, _ = real_value("smollm2 first ids")
    assert [*numbers[:8], len(numbers)] == want
    want, tol = real_value("smollm2 nats")
    assert smollm2.nats([numbers]).mean() == pytest.approx(want, abs=tol)


@pytest.mark.paper
def test_smollm2_knows_the_capital(smollm2):
    numbers = smollm2.tokenizer.encode("The capital of France is")
    start = len(numbers)
    for _ in range(2):
        *_, last = smollm2.states([numbers])
        numbers.append(int(smollm2.logits(last[-1:]).argmax()))
    assert smollm2.tokenizer.decode(numbers[start:]) == real_value("smollm2 greedy")[0]


def smollm2_tensors(dtype):
    """All tensors by the gguf package's own reader, under Hugging Face's names."""
    gguf = pytest.importorskip("gguf")
    back = {ours: theirs for theirs, ours in GGUF_NAMES.items()}
    found = {}
    for tensor in gguf.GGUFReader(fixture_folder("smollm2")).tensors:
        name = tensor.name.replace("token_embd", "embed_tokens").replace("output_norm", "norm")
        name = re.sub(r"^blk\.(\d+)\.(\w+)\.", lambda m: f"layers.{m[1]}.{back[m[2]]}.", name)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found[name] = values.reshape(tuple(reversed(tensor.shape.tolist()))).astype(dtype)
    return found


SMOL = {"heads": 9, "key_heads": 3, "base": 100_000.0, "eps": 9.999999747378752e-06, "pairs": "adjacent"}


@pytest.mark.exact
@pytest.mark.slow
def test_smollm2_has_the_states_of_its_twin(smollm2):
    """States grow to a thousand in this model, so they are compared relative to the largest of their layer."""
    numbers = smollm2.tokenizer.encode("Light from the star takes eleven years to reach us.")
    want, logits = decoder_states(smollm2_tensors(np.float64), numbers, **SMOL)
    for got, true in zip(smollm2.states([numbers]), want, strict=True):
        assert np.abs(got - true).max() < 1e-5 * np.abs(true).max()
    *_, last = smollm2.states([numbers])
    np.testing.assert_allclose(smollm2.logits(last), logits, atol=2e-3)


@pytest.mark.negative
@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "loss"), [("half pairing", 4.06), ("no rotary", 4.71), ("base", 2.87), ("modulo", 14.8), ("gain", 10.6)]
)
def test_every_wrong_choice_is_worse_on_the_paragraph(wrong, loss, smollm2, paragraph):
    """The sheet's values of the mistakes that would go unnoticed; the right choice has 2.777."""
    numbers = smollm2.tokenizer.encode(paragraph)
    _, logits = decoder_states(smollm2_tensors(np.float32), numbers, **SMOL, wrong=wrong)
    assert nats(logits, numbers) == pytest.approx(loss, abs=0.006 if loss < 10 else 0.06)


def test_what_cannot_be_run_says_why(tmp_path):
    for family, said in (("gpt2", "no forward pass here"), ("gemma", "model type 'gemma'")):
        with pytest.raises(ndl.InvalidParameter, match=said):
            model_of(ndl.read_checkpoint(tiny_checkpoint(tmp_path, family)))
    folder = tiny_checkpoint(tmp_path, "bert")
    model = model_of(ndl.read_checkpoint(folder))
    with pytest.raises(ndl.InvalidParameter, match="at most 64"):
        list(model.states([[5] * 65]))
    with pytest.raises(ndl.InvalidParameter, match="no text to run"):
        list(model.states([[]]))
    with pytest.raises(ndl.InvalidParameter, match="the model has"):
        list(model.states([[5, 10_000]]))
    for text, said in (("{", "cannot be read as a tokenizer"), ("", "cannot be read as a tokenizer")):
        (folder / "tokenizer.json").write_text(text)
        with pytest.raises(ndl.InvalidParameter, match=said):
            model_of(ndl.read_checkpoint(folder)).tokenizer.encode("a")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ndl.InvalidParameter, match=r"no tokenizer\.json"):
        model_of(ndl.read_checkpoint(folder)).tokenizer.encode("a")


@pytest.mark.parametrize(("family", "kind"), [("bert", "esm"), ("llama", "phi"), ("llama", "cohere"), ("llama", "")])
def test_models_that_only_share_names_are_not_run(family, kind, tmp_path):
    """ESM has BERT's names and rotary positions, Phi LLaMA's names and another order of parts: no wrong states."""
    folder = tiny_checkpoint(tmp_path, family)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": kind}
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = ndl.read_checkpoint(folder)
    assert any("is not known" in said for said in checkpoint.assumptions)
    assert len(ndl.heads(checkpoint).heads) == 8
    with pytest.raises(ndl.InvalidParameter, match="has no forward pass here"):
        model_of(checkpoint)


def test_layers_that_are_missing_stop_a_run():
    with tempfile.TemporaryDirectory() as folder:
        from needlepoint.checkpoints.reading.writing import entry, write_safetensors

        place = tiny_checkpoint(folder, "bert")
        tensors = raw_tensors(place / "model.safetensors")
        kept = {n: v for n, v in tensors.items() if not n.startswith("encoder.layer.0.attention.self")}
        write_safetensors(place / "model.safetensors", [entry(n, v) for n, v in kept.items()])
        with pytest.raises(ndl.InvalidParameter, match="not all of it is read"):
            model_of(ndl.read_checkpoint(place))
        kept = {n: v for n, v in tensors.items() if "LayerNorm" not in n}
        write_safetensors(place / "model.safetensors", [entry(n, v) for n, v in kept.items()])
        with pytest.raises(ndl.InvalidParameter, match="has no tensor"):
            list(model_of(ndl.read_checkpoint(place)).states([[5, 6]]))

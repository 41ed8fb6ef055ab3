"""Files that are damaged, lie or lead elsewhere: one sentence, bounded memory, nothing read outside the folder."""

import json
import os
import struct
import tracemalloc

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint
from needlepoint.checkpoints.reading.writing import entry, write_safetensors

from checkpoint_cases import raw_tensors, write_gguf


def safetensors_bytes(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def four(start, stop, dtype="F32", shape=(2, 2)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


NAME = "encoder.layer.0.attention.self.query.weight"
DATA = bytes(16)
TWICE = b'{"a":%s,"a":%s}' % ((json.dumps(four(0, 16)).encode(),) * 2)

BAD = {
    "empty": (b"", "a header alone has more"),
    "seven bytes": (b"1234567", "a header alone has more"),
    "header longer than the file": (struct.pack("<Q", 10**6) + b"{}", "its header claims 1,000,000"),
    "header of 2^63 bytes": (struct.pack("<Q", 2**63) + b"{}", "its header claims"),
    "not JSON": (safetensors_bytes(b"{not json", b""), "cannot be read as JSON"),
    "not UTF-8": (safetensors_bytes(b'{"\xff":1}', b""), "cannot be read as JSON"),
    "a list": (safetensors_bytes(b"[]", b""), "a JSON object is expected"),
    "nested deeply": (safetensors_bytes(b"[" * 200_000, b""), "cannot be read as JSON"),
    "NaN in the header": (safetensors_bytes(b'{"a": NaN}', b""), "NaN is not JSON"),
    "a number of 10,000 digits": (safetensors_bytes(b'{"a": ' + b"9" * 10_000 + b"}", b""), "cannot be read as JSON"),
    "a name twice": (safetensors_bytes(TWICE, DATA), "'a' appears twice"),
    "an entry that is no object": (safetensors_bytes({"a": 3}, b""), "must have dtype, shape and data_offsets"),
    "more in an entry": (safetensors_bytes({"a": four(0, 16) | {"x": 1}}, DATA), "and nothing else"),
    "unknown type": (safetensors_bytes({"a": four(0, 16, "F7")}, DATA), "'F7' is not known"),
    "a type that is a list": (safetensors_bytes({"a": four(0, 16, ["F32"])}, DATA), "a word is expected"),
    "size and shape differ": (safetensors_bytes({"a": four(0, 16, shape=(2, 3))}, DATA), "do not fit F32"),
    "a shape below zero": (safetensors_bytes({"a": four(0, 16, shape=(-2, -2))}, DATA), "whole numbers are expected"),
    "a shape with True": (safetensors_bytes({"a": four(0, 16, shape=(True, 4))}, DATA), "whole numbers are expected"),
    "a huge shape": (safetensors_bytes({"a": four(0, 16, shape=(2**62, 2**62))}, DATA), "do not fit"),
    "offsets backwards": (safetensors_bytes({"a": four(16, 0)}, DATA), "claims bytes 16 to 0"),
    "offsets past the end": (safetensors_bytes({"a": four(0, 32, shape=(2, 4))}, DATA), "claims bytes 0 to 32 of 16"),
    "overlap": (safetensors_bytes({"a": four(0, 16), "b": four(8, 24)}, DATA + DATA), "overlaps the tensor before it"),
    "a hole": (safetensors_bytes({"a": four(0, 16), "b": four(20, 36)}, bytes(36)), "leaves bytes before it unused"),
    "bytes behind": (safetensors_bytes({"a": four(0, 16)}, bytes(17)), "1 bytes after its last tensor"),
    "a long name": (safetensors_bytes({"a" * 600: four(0, 16)}, DATA), "a name of 600 characters"),
    "no known family": (safetensors_bytes({"a": four(0, 16)}, DATA), "no family this library knows"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_bad_safetensors_are_refused_in_a_sentence(case, tmp_path):
    data, said = BAD[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(BadCheckpoint, match=said) as caught:
        ndl.read_checkpoint(path, heads=2)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 900


def test_a_header_of_100_mb_takes_no_memory(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 100_000_000) + b"{")
        file.truncate(100_000_100)
    tracemalloc.start()
    with pytest.raises(BadCheckpoint, match="a header of 100,000,000 bytes"):
        ndl.read_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_nan_weights_are_refused(tmp_path):
    folder = tiny_checkpoint(tmp_path, "bert")
    tensors = raw_tensors(folder / "model.safetensors")
    tensors[NAME][3, 5] = np.nan
    write_safetensors(folder / "model.safetensors", [entry(n, v) for n, v in tensors.items()])
    checkpoint = ndl.read_checkpoint(folder)
    assert np.isfinite(checkpoint.head(1, 0).query).all()
    with pytest.raises(BadCheckpoint, match="holds NaN or infinite weights"):
        checkpoint.head(0, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_attention_heads": 5}, "do not fit 5 heads"),
        ({"num_attention_heads": 0}, "from 1 to"),
        ({"num_attention_heads": "four"}, "from 1 to"),
        ({"num_attention_heads": 10**12}, "from 1 to"),
        ({"num_attention_heads": None}, "how many heads"),
        ({"hidden_size": 31}, "the model is 31 wide"),
        ({"num_key_value_heads": 3}, "cannot share 3 key heads"),
        ({"head_dim": 7}, "heads of width 7"),
        ({"model_type": ["bert"]}, "a word is expected"),
    ],
)
def test_settings_that_do_not_fit(change, said, tmp_path):
    folder = tiny_checkpoint(tmp_path, "bert")
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint, match=said):
        ndl.read_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.ckpt", "hidden.safetensors"])
def test_pickles_are_refused_with_the_way_out(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(BadCheckpoint, match="can run code, so it is refused"):
        ndl.read_checkpoint(path)
    with pytest.raises(BadCheckpoint, match="refused"):
        ndl.read_checkpoint(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [name]


@pytest.mark.parametrize("length", [640, 896, 1152, 19280])
def test_headers_whose_length_begins_like_a_pickle_are_read(length, tmp_path):
    """640 is written as the bytes 80 02, as pickles begin, and 19280 as PK, as zip files do."""
    folder = tiny_checkpoint(tmp_path, "bert", layers=1)
    names = ("encoder.layer.0.attention.self.query.weight", "encoder.layer.0.attention.self.key.weight")
    tensors = raw_tensors(folder / "model.safetensors")
    header = {n: four(4096 * i, 4096 * (i + 1), shape=(32, 32)) for i, n in enumerate(names)}
    text = json.dumps(header).encode().ljust(length)
    data = b"".join(tensors[n].tobytes() for n in names)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + text + data)
    for path in (folder, folder / "model.safetensors"):
        assert len(ndl.read_checkpoint(path).layers) == 1


def sharded(folder, places):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_shards_stay_in_their_folder(tmp_path):
    outside = tmp_path / "secret.safetensors"
    write_safetensors(outside, [entry(NAME, np.eye(4, dtype=np.float32))])
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert", "num_attention_heads": 2}')
    for name in ("../secret.safetensors", str(outside), "a\\b", "a\0b", "..", "", 7, "x" * 300):
        with pytest.raises(BadCheckpoint, match=r"a path out of its folder|a file name is expected"):
            ndl.read_checkpoint(sharded(folder, {NAME: name}))
    with pytest.raises(BadCheckpoint, match="No such file"):
        ndl.read_checkpoint(sharded(folder, {NAME: "model-00001-of-00002.safetensors"}))
    (folder / "link.safetensors").symlink_to(outside)
    with pytest.raises(BadCheckpoint, match="symbolic link that leads out of the folder"):
        ndl.read_checkpoint(sharded(folder, {NAME: "link.safetensors"}))
    with pytest.raises(BadCheckpoint, match="there is no tensor"):  # followed: it has queries and no keys
        ndl.read_checkpoint(folder, follow_links=True)
    with pytest.raises(BadCheckpoint, match="and it is not there"):
        ndl.read_checkpoint(sharded(folder, {"other": "link.safetensors"}), follow_links=True)
    for bad in ("{}", '{"weight_map": []}', '{"weight_map": {}}'):
        (folder / "model.safetensors.index.json").write_text(bad)
        with pytest.raises(BadCheckpoint, match="no weight_map"):
            ndl.read_checkpoint(folder)


def test_links_within_the_folder_are_read(tmp_path):
    folder = tiny_checkpoint(tmp_path, "bert")
    (folder / "model.safetensors").rename(folder / "blob")
    (folder / "model.safetensors").symlink_to("blob")
    assert len(ndl.read_checkpoint(folder).layers) == 2
    (folder / "config.json").rename(tmp_path / "config.json")
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(BadCheckpoint, match="symbolic link"):
        ndl.read_checkpoint(folder)


@pytest.mark.parametrize("kind", ["nothing", "pipe", "folder", "two", "text"])
def test_paths_that_are_no_checkpoints(kind, tmp_path):
    path = tmp_path / "model.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "two":
        path = tmp_path
        for name in "ab":
            write_safetensors(tmp_path / f"{name}.safetensors", [])
    elif kind == "text":
        path = tmp_path / "notes.txt"
        path.write_text("hello")
    with pytest.raises(BadCheckpoint):
        ndl.read_checkpoint(path)


def gguf_file(tmp_path):
    folder = tiny_checkpoint(tmp_path, "llama")
    return write_gguf(tmp_path / "tiny.gguf", raw_tensors(folder / "model.safetensors"), "llama", quantise="Q8_0")


def use(path):
    """Read everything there is to read; BadCheckpoint is the only way to fail."""
    checkpoint = ndl.read_checkpoint(path, heads=4)
    for layer, head in checkpoint.ids():
        checkpoint.head(layer, head)


def test_gguf_that_ends_early_is_refused_wherever_it_ends(tmp_path):
    whole = gguf_file(tmp_path).read_bytes()
    path = tmp_path / "short.gguf"
    for length in [*range(0, 1500, 7), *range(1500, len(whole), 997), len(whole) - 33]:
        path.write_bytes(whole[:length])
        with pytest.raises(BadCheckpoint):
            use(path)


@pytest.mark.parametrize(
    ("at", "form", "value", "said"),
    [
        (0, "<I", 1, "begins with"),
        (4, "<I", 1, "GGUF version 1"),
        (4, "<I", 0x03000000, "GGUF version"),
        (8, "<Q", 10**9, "ends early"),
        (16, "<Q", 2**60, "ends early"),
        (24, "<Q", 10**6, "claims 1,000,000 bytes"),
    ],
)
def test_gguf_that_lies_is_refused(at, form, value, said, tmp_path):
    data = bytearray(gguf_file(tmp_path).read_bytes())
    struct.pack_into(form, data, at, value)
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(BadCheckpoint, match=said):
        use(path)


def mutated(data, rng):
    """One to eight changes, mostly in the header: bytes set, flipped, cut out or doubled."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        if not data:
            break
        at = int(rng.integers(0, min(len(data), 3000) if rng.random() < 0.9 else len(data)))
        match rng.integers(0, 5):
            case 0:
                data[at] = int(rng.integers(0, 256))
            case 1:
                data[at] ^= 1 << int(rng.integers(0, 8))
            case 2:
                del data[at : at + int(rng.integers(1, 20))]
            case 3:
                data[at:at] = data[at : at + int(rng.integers(1, 20))]
            case _:
                data[at : at + 1] = bytes(rng.choice(list(b'0123456789-{}[]",:'), 1).astype(np.uint8))
    return bytes(data)


@pytest.mark.parametrize(("kind", "count"), [("safetensors", 6000), ("gguf", 4000)])
def test_mutations_are_read_or_refused(kind, count, tmp_path, rng):
    if kind == "gguf":
        path = gguf_file(tmp_path)
    else:
        path = tiny_checkpoint(tmp_path, "bert", layers=1) / "model.safetensors"
        (path.parent / "config.json").unlink()
    whole = path.read_bytes()
    refused = several = 0
    for _ in range(count):
        path.write_bytes(mutated(whole, rng))
        try:
            use(path)
        except BadCheckpoint as error:
            refused += "\n" not in str(error)
            several += "\n" in str(error)
    assert refused > count // 3
    assert several == 0


VALUES = [None, 0, -1, 1, 3, 8, 64, 10**12, 1.5, 1e300, "x", "", [], [1], {}, {"a": 1}, True, "gemma", "qwen3", "relu"]
KEYS = [
    "model_type",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_size",
    "num_hidden_layers",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "layer_types",
    "rope_local_base_freq",
    "sliding_window_pattern",
    "query_pre_attn_scalar",
    "rms_norm_eps",
    "layer_norm_eps",
    "hidden_act",
    "max_position_embeddings",
    "pad_token_id",
    "text_config",
    "attn_logit_softcapping",
    "position_embedding_type",
]


@pytest.mark.parametrize("family", ["bert", "llama", "phi3"])
def test_configs_with_strange_values_are_read_or_refused(family, tmp_path, rng):
    from needlepoint.checkpoints.forward.models import model_of

    folder = tiny_checkpoint(tmp_path, family)
    base = json.loads((folder / "config.json").read_text())
    refused = 0
    for _ in range(150):
        changes = {KEYS[rng.integers(len(KEYS))]: VALUES[rng.integers(len(VALUES))] for _ in range(3)}
        (folder / "config.json").write_text(json.dumps(base | changes))
        try:
            checkpoint = ndl.read_checkpoint(folder)
            ndl.heads(checkpoint, layer=0, head=0)
            list(model_of(checkpoint).states([[5, 6, 7]]))
        except ndl.InvalidParameter:
            refused += 1
    assert refused > 30

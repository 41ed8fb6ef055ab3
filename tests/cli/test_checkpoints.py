"""The commands about real transformers: what they print, and bad input as one sentence with exit code 2."""

import json
import struct

import numpy as np
import pytest

from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.reading.writing import entry, write_safetensors

from checkpoint_cases import raw_tensors, write_gguf

TEXT = "The old man walked to the harbour. She read a long letter on the train. It was very nice in our city. " * 40


@pytest.fixture
def model(tmp_path):
    return tiny_checkpoint(tmp_path, "bert")


def refused(answer, said):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("needlepoint: ")
    assert said in err


def test_heads_are_printed_with_what_was_assumed(model, call, tmp_path):
    code, out, _ = call("heads", model, "--layer", "1", "--out", tmp_path / "h.csv", "--plot", tmp_path / "h.png")
    assert code == 0
    assert "post-norm" in out
    assert "median of s_i / null s_i" in out
    assert "null" in out
    assert len((tmp_path / "h.csv").read_text().splitlines()) == 5
    assert (tmp_path / "h.png").stat().st_size > 5000


def test_skipped_layers_are_listed(model, call):
    tensors = raw_tensors(model / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.key.weight"]
    write_safetensors(model / "model.safetensors", [entry(n, v) for n, v in tensors.items()])
    code, out, _ = call("heads", model)
    assert code == 0
    assert "skipped layer 1: there is no tensor encoder.layer.1.attention.self.key.weight." in out


def test_documents_are_whole(model, document, tmp_path):
    found = document("heads", model, "--law", "tied")
    assert len(found["heads"]) == 8
    assert found["null"]["p"] == 8
    (tmp_path / "t.txt").write_text(TEXT)
    found = document("truncate", model, "--text", tmp_path / "t.txt", "--budget", "4")
    assert sum(row["rank"] for row in found["chosen"]) == 32
    assert found["effect"]["kind"] == "cosine"
    assert any("calibration tokens" in note for note in found["notes"])
    found = document("probe", model, "--sentences", "40")
    assert found["published"]["test"] == 0.95


def test_a_cut_is_written_and_read_again(call, tmp_path):
    folder = tiny_checkpoint(tmp_path, "llama")
    path = write_gguf(folder / "tiny.gguf", raw_tensors(folder / "model.safetensors"), "llama")
    (tmp_path / "t.txt").write_text(TEXT)
    code, out, _ = call("truncate", path, "--text", tmp_path / "t.txt", "--rank", "2", "--write", folder / "cut.gguf")
    assert code == 0
    assert "nats uncut" in out
    assert "stored in F16" in out
    assert call("heads", folder / "cut.gguf")[0] == 0


def test_bad_files_are_one_sentence(model, call, tmp_path):
    whole = (model / "model.safetensors").read_bytes()
    cases = {
        "truncated": (whole[:-1], "claims bytes"),
        "no header": (b"12", "a header alone has more"),
        "header beyond the file": (struct.pack("<Q", 2**40) + whole[8:], "its header claims"),
        "huge header": (struct.pack("<Q", 10**8) + whole[8:] + bytes(10**8), "at most 10,000,000"),
        "a pickle": (b"\x80\x04" + whole, "is a pickle"),
    }
    for data, said in cases.values():
        (model / "model.safetensors").write_bytes(data)
        refused(call("heads", model), said)
    tensors = raw_tensors_of(whole, tmp_path)
    tensors["encoder.layer.0.attention.self.key.weight"][0, 0] = np.nan
    write_safetensors(model / "model.safetensors", [entry(n, v) for n, v in tensors.items()])
    refused(call("heads", model), "holds NaN or infinite weights")
    refused(call("heads", tmp_path / "nothing"), "No such file")
    refused(call("heads", tmp_path), "holds no weights")


def raw_tensors_of(data, folder):
    (folder / "copy.bin").write_bytes(data)
    found = raw_tensors(folder / "copy.bin")
    (folder / "copy.bin").unlink()
    return found


def test_bad_choices_are_one_sentence(model, call, tmp_path):
    (tmp_path / "t.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xfd")
    text = ("--text", tmp_path / "t.txt")
    refused(call("heads", model, "--law", "free"), "'product' or 'tied'")
    refused(call("heads", model, "--layer", "7"), "layer 7 is not in")
    refused(call("heads", model, "--name", "query"), "--name is given as")
    refused(call("heads", model, "--plot", tmp_path / "x.txt"), ".png")
    refused(call("truncate", model, *text, "--rank", "4", "--loss", "0.1"), "give one of")
    refused(call("truncate", model, *text, "--rank", "99"), "from 0 to 8")
    refused(call("truncate", model, "--text", tmp_path / "b.txt"), "not UTF-8")
    refused(call("truncate", model, "--text", tmp_path / "none.txt"), "No such file")
    refused(call("truncate", model, *text, "--rank", "4", "--write", tmp_path / "c.gguf"), "ends in .safetensors")
    refused(call("probe", model, "--data", tmp_path / "t.txt"), "columns text and label")
    refused(call("truncate", tiny_checkpoint(tmp_path, "gpt2"), *text), "no forward pass here")
    refused(call("reproduce", "real-probing", "--out", tmp_path / "o"), "make fixtures")


@pytest.fixture(autouse=True)
def _no_fixtures(monkeypatch, tmp_path):
    """The figures of real models find none here."""
    monkeypatch.setenv("NEEDLEPOINT_FIXTURES", str(tmp_path / "none"))


def test_figures_of_real_models_are_listed(call, document):
    assert "real-spectra" in call("figures")[1]
    assert {"real-losses", "real-probing"} <= {row["id"] for row in document("figures")}


def test_a_figure_of_a_real_model_is_drawn(call, tmp_path, monkeypatch):
    """With a tiny model in the fixture's place: picture, table and a section of the report."""
    from needlepoint.checkpoints import figures
    from needlepoint.checkpoints.fixtures import FIXTURES

    monkeypatch.setenv("NEEDLEPOINT_FIXTURES", str(tmp_path / "f"))
    place = FIXTURES["minilm"].place(tmp_path / "f")
    place.parent.mkdir(parents=True)
    tiny_checkpoint(tmp_path, "bert").rename(place)
    assert figures.missing(figures.REAL["real-maps"]) == ""
    assert "make fixtures" in figures.missing(figures.REAL["real-spectra-decoder"])
    code, out, err = call("reproduce", "real-maps", "real-spectra", "real-losses", "--out", tmp_path / "o", "--json")
    assert code == 0, err
    assert "real-maps" in json.loads(out)["files"][0]
    for name in ("real-maps.png", "real-maps.pdf", "real-maps-heads.csv", "real-spectra.png", "real-losses-losses.csv"):
        assert (tmp_path / "o" / name).stat().st_size > 100
    assert "Effective rank and outliers" in (tmp_path / "o" / "report.html").read_text()

"""`heads` against dense matrices, on real models, and what it says."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.heads.measures import ranks, symmetric_share, trace_share
from needlepoint.checkpoints.heads.rotary import rotated, rotation
from needlepoint.checkpoints.heads.tied import fit_tied, tied_values

from checkpoint_cases import fixture_folder, raw_tensors, real_value, write_gguf


@pytest.fixture(scope="module")
def minilm():
    return ndl.heads(ndl.read_checkpoint(fixture_folder("minilm")))


@pytest.fixture(scope="module")
def smollm2():
    return ndl.heads(ndl.read_checkpoint(fixture_folder("smollm2")))


@pytest.mark.exact
@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_numbers_are_those_of_the_dense_map(family, tmp_path):
    checkpoint = ndl.read_checkpoint(tiny_checkpoint(tmp_path, family))
    for head in ndl.heads(checkpoint).heads:
        weights = checkpoint.head(head.layer, head.head)
        m = weights.query.T @ weights.key
        np.testing.assert_allclose(head.values, np.linalg.svd(m, compute_uv=False)[:8], rtol=1e-9)
        assert head.symmetric == pytest.approx(np.sum(((m + m.T) / 2) ** 2) / np.sum(m**2), rel=1e-10)
        assert head.trace == pytest.approx(np.trace(m) / (np.linalg.norm(m) * np.sqrt(8)), rel=1e-9)
        for offset, ratio in head.offsets.items():
            turned = weights.query.T @ rotation(8, offset, 8, 1000.0, "half") @ weights.key
            assert ratio == pytest.approx(np.linalg.norm(turned, 2) / np.linalg.norm(m, 2), rel=1e-9)
    assert bool(head.offsets) == (family == "llama")


@pytest.mark.exact
def test_ranks_of_known_spectra():
    flat = ranks(np.ones(10))
    assert (flat.effective, flat.stable, flat.participation, flat.r90) == pytest.approx((10, 10, 10, 9))
    one = ranks(np.array([3.0, 0.0, 0.0]))
    assert (one.effective, one.stable, one.participation, one.r90) == pytest.approx((1, 1, 1, 1))
    assert ranks(np.zeros(3)).r90 == 0
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 4)))[0].T
    assert (symmetric_share(q, q), trace_share(q, q)) == pytest.approx((1.0, 1.0))


@pytest.mark.exact
@pytest.mark.parametrize("pairs", ["half", "adjacent"])
def test_scores_depend_on_the_offset_alone(pairs, rng):
    """q at a and k at b, each turned by its own position, against R at b - a; the sign and the pairing matter."""
    q, k = rng.standard_normal((2, 1, 8))
    a, b = np.array([11]), np.array([4])
    score = rotated(q, a, 8, 100.0, pairs) @ rotated(k, b, 8, 100.0, pairs).T
    assert score.item() == pytest.approx((q @ rotation(8, -7, 8, 100.0, pairs) @ k.T).item(), rel=1e-12)
    other = "half" if pairs == "adjacent" else "adjacent"
    for wrong in (rotation(8, 7, 8, 100.0, pairs), rotation(8, -7, 8, 100.0, other), rotation(8, -7, 8, 10.0, pairs)):
        assert abs((q @ wrong @ k.T).item() - score.item()) > 1e-3


@pytest.mark.exact
def test_a_gguf_file_has_the_same_rotary_spread(tmp_path):
    """Permuted rows with adjacent pairs are plain rows with half pairs; the other pairing would differ."""
    folder = tiny_checkpoint(tmp_path, "llama")
    path = write_gguf(tmp_path / "tiny.gguf", raw_tensors(folder / "model.safetensors"), "llama")
    plain, packed = (ndl.heads(ndl.read_checkpoint(p)).heads for p in (folder, path))
    for a, b in zip(plain, packed, strict=True):
        assert b.offsets == pytest.approx(a.offsets, rel=1e-5)
    tops = [rotation(8, -8, 8, 1000.0, pairs) for pairs in ("half", "adjacent")]
    assert np.abs(tops[0] - tops[1]).max() > 0.1


@pytest.mark.paper
def test_minilm_has_the_reference_values(minilm):
    first = minilm.heads[0]
    want, tol = real_value("minilm l0h0 singular values")
    np.testing.assert_allclose(first.values[:4], want, atol=tol)
    want, tol = real_value("minilm largest top value")
    top = max(minilm.heads, key=lambda head: head.values[0])
    assert (top.layer, top.head) == (0, 2)
    assert top.values[0] == pytest.approx(want, abs=tol)
    want, tol = real_value("minilm l0h0 effective")
    r = first.ranks
    np.testing.assert_allclose([r.effective, r.stable, r.participation, r.r90], want, atol=tol)
    want, tol = real_value("minilm outliers")
    by_layer = list(minilm.outliers_by_layer().values())
    assert abs(sum(by_layer) - want[0]) <= tol
    assert np.all(np.abs(np.array(by_layer) - want[1:]) <= 2)
    want, tol = real_value("minilm median symmetric share")
    assert minilm.median("symmetric") == pytest.approx(want, abs=tol)
    assert minilm.median("misfit") == pytest.approx(0.062, abs=0.001)
    assert any("The bulk is not Gaussian" in note for note in minilm.notes())


@pytest.mark.paper
def test_smollm2_has_the_reference_values(smollm2):
    first = smollm2.heads[0]
    want, tol = real_value("smollm2 l0h0 top 4 folded")
    np.testing.assert_allclose(first.values[:4], want, atol=tol)
    want, tol = real_value("smollm2 l0h0 top at offsets")
    np.testing.assert_allclose([first.offsets[t] * first.values[0] for t in (-1, -8, -64)], want, atol=tol)
    assert len(smollm2.heads) == 270
    assert smollm2.median("outliers") == pytest.approx(11, abs=0.5)
    checkpoint = ndl.read_checkpoint(fixture_folder("smollm2"))
    want, tol = real_value("smollm2 l0h0 top 4 unfolded")
    np.testing.assert_allclose(ndl.heads(checkpoint, layer=0, head=0, folded=False).heads[0].values[:4], want, atol=tol)
    want, tol = real_value("smollm2 Frobenius")
    got = [np.linalg.norm(checkpoint.tensors.read(f"blk.0.attn_{x}.weight").astype(float)) for x in "qk"]
    np.testing.assert_allclose(got, want, atol=tol)


@pytest.mark.paper
def test_offsets_ahead_are_other_values():
    """The values at +1, +8, +64, which no causal token sees, catch a wrong sign."""
    checkpoint = ndl.read_checkpoint(fixture_folder("smollm2"))
    weights = checkpoint.head(0, 0)
    want, tol = real_value("smollm2 l0h0 top at +1")
    for offset, top in zip((1, 8, 64), want, strict=True):
        m = weights.query.T @ rotation(64, offset, 64, 100000.0, "adjacent") @ weights.key
        assert np.linalg.norm(m, 2) == pytest.approx(top, abs=tol)


@pytest.mark.exact
def test_the_gguf_package_reads_the_same():
    gguf = pytest.importorskip("gguf")
    place = fixture_folder("smollm2")
    ours = ndl.read_checkpoint(place).tensors
    reader = gguf.GGUFReader(place)
    assert {t.name for t in reader.tensors} == set(ours.shapes)
    for tensor in reader.tensors[5:12]:
        theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours.read(tensor.name), theirs.reshape(ours.shapes[tensor.name]))


def test_the_tied_law_is_said_with_its_limits(rng):
    """A spectrum drawn from the tied law is near it; the sentence says that noise and cut are not identified."""
    law = tied_values(32, 384)[25, 8]
    fit = fit_tied(law * 3.0, 384, 1.0)
    assert fit.distance < 1e-6
    assert fit.distinct == (abs(fit.distance - fit.null_distance) > 0.029) or fit.distinct
    assert "does not identify" in fit.sentence
    assert fit.least <= fit.noise <= fit.most
    from needlepoint.checkpoints.heads.null import null_draws

    pure = fit_tied(null_draws(32, 384, 1, rng)[0], 384, 0.5)
    assert pure.null_distance < 0.03


def test_choices_are_checked(tmp_path):
    checkpoint = ndl.read_checkpoint(tiny_checkpoint(tmp_path, "bert"))
    for options, said in (
        ({"law": "free"}, "'product' or 'tied'"),
        ({"layer": 9}, "layer 9 is not in"),
        ({"head": 9}, "heads 0 to 3"),
        ({"level": 2.0}, "probability from"),
    ):
        with pytest.raises(ndl.InvalidParameter, match=said):
            ndl.heads(checkpoint, **options)
    tied = ndl.heads(checkpoint, layer=1, law="tied")
    assert len(tied.heads) == 4
    assert all(head.tied is not None for head in tied.heads)
    document = tied.to_json()
    assert document["heads"][0]["tied"]["sentence"].startswith("Distance")
    assert document["null"]["ranks"]["effective"] > 1


def test_memory_does_not_grow_with_layers(tmp_path):
    """One head at a time: twelve times the layers, the same peak (the results themselves are small)."""
    import tracemalloc

    peaks = []
    for layers in (2, 24):
        checkpoint = ndl.read_checkpoint(tiny_checkpoint(tmp_path / str(layers), "llama", layers=layers, heads=32))
        ndl.heads(checkpoint, layer=0, head=0)
        tracemalloc.start()
        ndl.heads(checkpoint)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 24 * 32 * 4000  # 4 kB a head for what is kept of it


def test_an_extra_that_is_missing_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "gguf", None)
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    with pytest.raises(ndl.InvalidParameter, match=r"needs gguf: pip install 'needlepoint\[checkpoints\]'"):
        ndl.read_checkpoint(path)


def test_weights_of_zero_have_no_spectrum_to_compare(tmp_path):
    """A head that was pruned to zeros is reported as such, in Python, as a document and as a picture."""
    from needlepoint.checkpoints.reading.writing import entry, write_safetensors
    from needlepoint.plotting.checkpoints.heads import spectra_grid

    folder = tiny_checkpoint(tmp_path, "llama")
    tensors = raw_tensors(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"][:8] = 0.0
    write_safetensors(folder / "model.safetensors", [entry(n, v) for n, v in tensors.items()])
    report = ndl.heads(ndl.read_checkpoint(folder), law="tied")
    first = report.heads[0]
    assert (first.scale, first.outliers, first.ranks.r90, first.offsets, first.tied) == (0.0, (), 0, {}, None)
    assert np.isnan(first.misfit)
    assert report.to_json()["heads"][0]["misfit"] is None
    spectra_grid(report).canvas.draw()

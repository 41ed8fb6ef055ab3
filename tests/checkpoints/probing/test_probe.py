"""Sentence sets, pooled states, intervals and probes."""

import numpy as np
import pytest
from scipy import stats

import needlepoint as ndl
from needlepoint.checkpoints.examples import tiny_checkpoint
from needlepoint.checkpoints.forward.models import model_of
from needlepoint.checkpoints.probing.features import pooled_states
from needlepoint.checkpoints.probing.intervals import wilson
from needlepoint.checkpoints.probing.sentences import read_examples, sentence_sets, thinned

from checkpoint_cases import fixture_folder


@pytest.mark.paper
def test_the_sets_have_the_published_sizes():
    sets = sentence_sets()
    assert {name: len(rows) for name, rows in sets.items()} == {
        "train": 5184 + 10368,
        "test": 2304 + 2304,
        "new tokens": 1536 + 1536,
        "new structure": 144,
        "new structure and tokens": 96,
    }
    for rows in sets.values():
        assert len({row.text for row in rows}) == len(rows)
        assert sum(row.label == "+1" for row in rows) == len(rows) // 2


def test_one_adjective_decides_and_the_city_does_not():
    good, bad = (
        {"nice", "cute", "delightful", "lovely", "charming"},
        {"mean", "dreadful", "aggressive", "nasty", "foul"},
    )
    for rows in sentence_sets().values():
        for text, label in rows[::37]:
            after = text.split(".", 1)[-1] if text.startswith("The city") else text
            words = set(after.replace(",", " ").split())
            assert bool(words & good) == (label == "+1")
            assert bool(words & bad) == (label == "-1")
    texts = [row.text for row in sentence_sets()["train"]]
    for city in ("nice", "dreadful"):
        mine = [row.label for row in sentence_sets()["train"] if row.text.startswith(f"The city is {city}.")]
        assert mine.count("+1") == mine.count("-1") == len(texts) // 8
    train, test = ({w for row in sentence_sets()[name] for w in row.text.split()} for name in ("train", "test"))
    assert {"her", "their", "golden", "goat", "quite"} <= test - train


@pytest.mark.exact
def test_wilson_intervals_solve_their_equation():
    """The ends are where the normal test at 95 % just rejects."""
    for hits, count in ((3, 10), (50, 60), (0, 20), (20, 20)):
        low, high = wilson(hits, count)
        for end in (low, high):
            if 0 < end < 1:
                z = abs(hits / count - end) / np.sqrt(end * (1 - end) / count)
                assert z == pytest.approx(stats.norm.ppf(0.975), rel=1e-5)
        assert low <= hits / count <= high
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.exact
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_states_are_pooled_sentence_by_sentence(family, tmp_path):
    model = model_of(ndl.read_checkpoint(tiny_checkpoint(tmp_path, family)))
    texts = ["the old man is nice", "a cat", "my dog is very mean ."] * 90  # more than one batch
    pooled = pooled_states(model, texts)
    single = list(model.states([model.tokenizer.encode(texts[2])]))
    one = "first" if family == "bert" else "last"
    assert pooled[one].shape == (3, 270, 32)
    for layer, x in enumerate(single):
        np.testing.assert_allclose(pooled[one][layer, 269], x[0 if family == "bert" else -1], atol=1e-4)
        np.testing.assert_allclose(pooled["mean"][layer, 2], x.mean(axis=0), atol=1e-4)


def test_first_states_of_the_embeddings_are_chance(tmp_path):
    """[CLS] is the same in every sentence before the first layer, so its probe cannot know the label."""
    report = ndl.probe(ndl.read_checkpoint(tiny_checkpoint(tmp_path, "bert")), sentences=100)
    assert abs(report.row(0, "first", "train").share - 0.5) < 0.12
    assert set(report.bars("first")) == {"initial embeddings", *sentence_sets()}
    document = report.to_json()
    assert document["published"]["test"] == 0.95
    assert len(document["rows"]) == 2 * 3 * 5
    for call in (lambda: report.row(9, "first", "train"), lambda: report.bars("last")):
        with pytest.raises(ndl.InvalidParameter, match="there is no"):
            call()


def test_labels_of_ones_own(tmp_path):
    checkpoint = ndl.read_checkpoint(tiny_checkpoint(tmp_path, "llama"))
    path = tmp_path / "mine.csv"
    rows = [f'"the {w} is {a}",{a}' for w in ("dog", "cat", "city", "man", "house", "train") for a in ("nice", "mean")]
    path.write_text("text,label\n" + "\n".join(rows * 3))
    report = ndl.probe(checkpoint, data=path)
    assert {r.set for r in report.rows} == {"train", "test"}
    assert report.row(2, "last", "train").share == 1.0  # the last word is the label
    assert report.row(0, "last", "test").share == 1.0
    path.write_text("text,label,set\na cat,1,train\na dog,2,train\nthe cat,1,mine\n")
    report = ndl.probe(checkpoint, data=path)
    assert report.row(1, "mean", "mine").count == 1
    with pytest.raises(ndl.InvalidParameter, match="from 20 on"):
        ndl.probe(checkpoint, sentences=3)
    given = ndl.probe(checkpoint, data={"train": [("a cat", "x"), ("a dog", "y")]})
    assert given.row(0, "mean", "train").count == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must have a header"),
        ("a,b\n1,2\n", "must have a header"),
        ("text,label\nhello\n", "must have a header"),
        ("text,label\n" + "a cat,1\n" * 8, "has 1 labels"),
        ('text,label,set\n"",1,train\nx,2,train\ny,1,t\n', "empty text"),
        ("text,label,set\nx,2,other\n", "has 0 labels"),
    ],
)
def test_bad_tables_are_refused(text, said, tmp_path, rng):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ndl.InvalidParameter, match=said):
        read_examples(path, rng)


def test_bytes_that_are_no_text_are_refused(tmp_path, rng):
    path = tmp_path / "bad.csv"
    path.write_bytes(b"text,label\n\xff\xfe,1\n")
    with pytest.raises(ndl.InvalidParameter, match="UTF-8"):
        read_examples(path, rng)


def test_thinning_keeps_order(rng):
    assert thinned([1, 2, 3], None, rng) == [1, 2, 3]
    some = thinned(list(range(100)), 10, rng)
    assert some == sorted(some)
    assert len(some) == 10


@pytest.mark.paper
@pytest.mark.slow
def test_minilm_beside_the_published_bars():
    """Measured, not a target: chance before the first layer, all of the training set after it, less on new text."""
    report = ndl.probe(ndl.read_checkpoint(fixture_folder("minilm")), sentences=600)
    bars = report.bars("first")
    assert bars["initial embeddings"].low < 0.5 < bars["initial embeddings"].high
    assert bars["train"].share > 0.99
    assert 0.75 < bars["test"].share < 0.95
    for name in ("new tokens", "new structure", "new structure and tokens"):
        assert 0.5 <= bars[name].share < bars["test"].share

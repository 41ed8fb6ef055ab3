"""`probe`: how well a label can be read from the hidden states of every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.checkpoints.extra import need
from needlepoint.checkpoints.forward.models import model_of
from needlepoint.checkpoints.probing.features import pooled_states
from needlepoint.checkpoints.probing.intervals import wilson
from needlepoint.checkpoints.probing.sentences import Example, check_examples, read_examples, sentence_sets, thinned
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.core.errors import InvalidParameter
from needlepoint.core.text.jsonio import plain

PUBLISHED = {
    "initial embeddings": 0.50,
    "train": 1.00,
    "test": 0.95,
    "new tokens": 0.64,
    "new structure": 0.75,
    "new structure and tokens": 0.69,
}
"""The bars of Figure 1 of arXiv 2410.01537 (bert-base-uncased, [CLS], read from the image): another model's numbers."""
_STEPS = 2000  # of the solver, at most
_PENALTY = 1.0  # scikit-learn's C on standardised states


@dataclass(frozen=True)
class Accuracy:
    """The share of a set's labels that the probe of a layer gets right, with its 95 % interval. `layer` 0 is the
    embeddings."""

    layer: int
    pooling: str
    set: str
    share: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class ProbeReport:
    """The accuracies of every layer, way of pooling and set, and the bars made of them."""

    name: str
    rows: tuple[Accuracy, ...]
    own_data: bool
    notes: tuple[str, ...]

    def row(self, layer: int, pooling: str, name: str) -> Accuracy:
        """Return one accuracy."""
        for one in self.rows:
            if (one.layer, one.pooling, one.set) == (layer, pooling, name):
                return one
        raise InvalidParameter(f"there is no layer {layer}, pooling {pooling!r}, set {name!r} in this report.")

    def bars(self, pooling: str) -> dict[str, Accuracy]:
        """Return the paper's bars: the training set at the embeddings, and every set pooled over all later layers. The
        intervals count each sentence once, because layers are not independent."""
        mine = [r for r in self.rows if r.pooling == pooling]
        if not mine:
            raise InvalidParameter(
                f"there is no pooling {pooling!r}; there are {sorted({r.pooling for r in self.rows})}."
            )
        first = next(r for r in mine if r.layer == 0 and r.set == "train")
        found = {"initial embeddings": first}
        for name in dict.fromkeys(r.set for r in mine):
            deep = [r for r in mine if r.set == name and r.layer > 0]
            share, count = float(np.mean([r.share for r in deep])), deep[0].count
            found[name] = Accuracy(-1, pooling, name, share, *wilson(share * count, count), count)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        poolings = sorted({r.pooling for r in self.rows})
        bars = {p: {name: vars(bar) for name, bar in self.bars(p).items()} for p in poolings}
        rows = [vars(r) for r in self.rows]
        return plain({"name": self.name, "rows": rows, "bars": bars, "published": PUBLISHED, "notes": self.notes})

    def __repr__(self) -> str:
        pooling = self.rows[0].pooling
        said = ", ".join(f"{name} {bar.share:.2f}" for name, bar in self.bars(pooling).items())
        return f"ProbeReport({self.name}, {pooling}: {said})"


def probe(
    checkpoint: Checkpoint,
    *,
    data: str | Path | Mapping[str, Sequence[tuple[str, str]]] | None = None,
    sentences: int | None = 1200,
    seed: int = 0,
) -> ProbeReport:
    """Return how well linear probes read a label from each layer: the sentiment of one adjective, or the user's own.

    checkpoint  a BERT-like encoder or a LLaMA-like decoder from `read_checkpoint`
    data        a CSV file (text, label and perhaps set), or sets of (text, label) of which one is `train`
    sentences   at most so many of every set, chosen at random (None: all; there are 15,552 for training)
    seed        of what is chosen

    >>> import tempfile
    >>> from needlepoint.checkpoints.examples import tiny_checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = ndl.probe(ndl.read_checkpoint(tiny_checkpoint(folder, "bert")), sentences=60)
    >>> report.row(2, "mean", "train").count, sorted(report.bars("first"))[0]
    (60, 'initial embeddings')
    """
    linear, scaling = need("sklearn.linear_model", "probing"), need("sklearn.preprocessing", "probing")
    if sentences is not None and (type(sentences) is not int or sentences < 20):
        raise InvalidParameter(f"probe(sentences={sentences}): a whole number from 20 on, or None, is expected.")
    model = model_of(checkpoint)
    rng = np.random.default_rng(seed)
    sets = {name: thinned(examples, sentences, rng) for name, examples in _sets(data, rng).items()}
    check_examples(sets, "the sentences that were chosen")
    states = {name: pooled_states(model, [e.text for e in examples]) for name, examples in sets.items()}
    labels = {name: np.array([e.label for e in examples]) for name, examples in sets.items()}
    rows = []
    for pooling in states["train"]:
        for layer in range(len(checkpoint.layers) + 1):
            scaler = scaling.StandardScaler().fit(_at(states, "train", pooling, layer))
            fit = linear.LogisticRegression(C=_PENALTY, max_iter=_STEPS)
            fit.fit(scaler.transform(_at(states, "train", pooling, layer)), labels["train"])
            for name in sets:
                right = fit.predict(scaler.transform(_at(states, name, pooling, layer))) == labels[name]
                share, count = float(right.mean()), len(right)
                rows.append(Accuracy(layer, pooling, name, share, *wilson(right.sum(), count), count))
    said = ["Intervals are Wilson's 95 % for independent sentences; sentences that share words are less than that."]
    if data is None:
        said.append("Published bars are bert-base-uncased's with [CLS]: another model's numbers, not a target.")
    return ProbeReport(checkpoint.name, tuple(rows), data is not None, tuple(said))


def _sets(data: Any, rng: np.random.Generator) -> dict[str, list[Example]]:
    if data is None:
        return sentence_sets()
    if isinstance(data, (str, Path)):
        return read_examples(Path(data), rng)
    found = {str(name): [Example(str(text), str(label)) for text, label in rows] for name, rows in data.items()}
    check_examples(found, "data")
    return found


def _at(states: Mapping[str, Mapping[str, np.ndarray]], name: str, pooling: str, layer: int) -> np.ndarray:
    return states[name][pooling][layer].astype(np.float64)

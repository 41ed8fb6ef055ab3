"""Sentences whose label is the sentiment of one adjective, the animal's; a first sentence distracts.

The design is that of Figure 1 of arXiv 2410.01537 (sizes included); the words are our own choice of them.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from needlepoint.checkpoints.reading.files import regular
from needlepoint.core.errors import InvalidParameter, shown

_GOOD, _BAD = ("nice", "cute", "delightful"), ("mean", "dreadful", "aggressive")
_NEW_GOOD, _NEW_BAD = ("lovely", "charming"), ("nasty", "foul")
_CITIES = ("The city is nice.", "The city is dreadful.", "The city is clean.", "The city is dirty.")
_LARGEST = 20_000_000  # bytes of a user's file
_MOST_LABELS = 20


class Example(NamedTuple):
    """A text and its label."""

    text: str
    label: str


class Words(NamedTuple):
    """The words of a set of sentences; an adverb may be empty."""

    owners: Sequence[str]
    colours: Sequence[str]
    animals: Sequence[str]
    adverbs: Sequence[str]
    sizes: Sequence[str]


_TRAIN = Words(
    ("my", "our", "his"),
    ("brown", "black", "white", "grey", "red", "spotted"),
    ("dog", "cat", "horse", "rabbit"),
    ("", "very", "really"),
    ("big", "small"),
)
_ANIMALS = ("goat", "parrot", "mouse", "cow")
_TEST_A = Words(("her", "their"), ("golden", "yellow", "silver", "striped"), _ANIMALS, ("", "quite", "so"), ())
_TEST_B = Words(("her", "their"), ("golden", "yellow", "silver"), _ANIMALS, ("quite", "so"), ("huge", "tiny"))
_SHORT = Words(("my", "our"), ("brown", "black", "white"), ("dog", "cat"), ("", "very"), ())


def _after(words: Words, good: Iterable[str], bad: Iterable[str], openings: Iterable[str]) -> list[Example]:
    """Return sentences with the adjective at the end: "The city is nice. my brown dog is very mean"."""
    found = []
    for adjective, label in _labelled(good, bad):
        for opening, owner, colour, animal, adverb in itertools.product(
            openings, words.owners, words.colours, words.animals, words.adverbs
        ):
            found.append(
                Example(" ".join(f"{opening} {owner} {colour} {animal} is {adverb} {adjective}".split()), label)
            )
    return found


def _before(words: Words, good: Iterable[str], bad: Iterable[str], openings: Iterable[str]) -> list[Example]:
    """Return sentences with the adjective before the animal: "The city is nice. my very mean brown dog is big"."""
    found = []
    for adjective, label in _labelled(good, bad):
        for opening, owner, adverb, colour, animal, size in itertools.product(
            openings, words.owners, words.adverbs, words.colours, words.animals, words.sizes
        ):
            text = f"{opening} {owner} {adverb} {adjective} {colour} {animal} is {size}"
            found.append(Example(" ".join(text.split()), label))
    return found


def _labelled(good: Iterable[str], bad: Iterable[str]) -> list[tuple[str, str]]:
    return [*((word, "+1") for word in good), *((word, "-1") for word in bad)]


def sentence_sets() -> dict[str, list[Example]]:
    """Return the sets by name: `train`, `test` (other owners, colours, animals, adverbs), `new tokens` (also other
    adjectives), `new structure` (another opening), `new structure and tokens`."""
    greeting = ("Hello, how are you? Good evening,",)
    return {
        "train": _after(_TRAIN, _GOOD, _BAD, _CITIES) + _before(_TRAIN, _GOOD, _BAD, _CITIES),
        "test": _after(_TEST_A, _GOOD, _BAD, _CITIES) + _before(_TEST_B, _GOOD, _BAD, _CITIES),
        "new tokens": _after(_TEST_A, _NEW_GOOD, _NEW_BAD, _CITIES) + _before(_TEST_B, _NEW_GOOD, _NEW_BAD, _CITIES),
        "new structure": _after(_SHORT, _GOOD, _BAD, greeting),
        "new structure and tokens": _after(_SHORT, _NEW_GOOD, _NEW_BAD, greeting),
    }


def thinned(examples: Sequence[Example], most: int | None, rng: np.random.Generator) -> list[Example]:
    """Return at most so many of the examples, chosen at random and kept in order; None is all."""
    if most is None or len(examples) <= most:
        return list(examples)
    return [examples[i] for i in np.sort(rng.choice(len(examples), most, replace=False))]


def read_examples(path: Path, rng: np.random.Generator) -> dict[str, list[Example]]:
    """Return a user's labelled sentences by set, from a CSV file with the columns text, label and perhaps set.

    Without the column `set`, a quarter of the rows, chosen at random, is `test` and the rest `train`."""
    if regular(path).stat().st_size > _LARGEST:
        raise InvalidParameter(f"{path} has more than {_LARGEST:,} bytes; take fewer sentences.")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidParameter(f"{path} cannot be read as CSV in UTF-8: {error}.") from None
    if not rows or any(row.get(name) is None for row in rows for name in ("text", "label")):
        raise InvalidParameter(f"{path} must have a header with the columns text and label, and both in every row.")
    found: dict[str, list[Example]] = {}
    names = [row.get("set") or "train" for row in rows]
    if all(name == "train" for name in names):
        held = set(rng.permutation(len(rows))[: len(rows) // 4].tolist())
        names = ["test" if i in held else "train" for i in range(len(rows))]
    for name, row in zip(names, rows, strict=True):
        found.setdefault(name, []).append(Example(row["text"].strip(), row["label"].strip()))
    check_examples(found, str(path))
    return found


def check_examples(sets: dict[str, list[Example]], where: str) -> None:
    """Raise InvalidParameter unless there is a set `train` with two labels or more, and no empty text."""
    labels = {example.label for example in sets.get("train", [])}
    if not 2 <= len(labels) <= _MOST_LABELS:
        raise InvalidParameter(
            f"{where}: the set 'train' has {len(labels)} labels; from 2 to {_MOST_LABELS} are expected."
        )
    for name, examples in sets.items():
        if (empty := next((e for e in examples if not e.text), None)) is not None:
            raise InvalidParameter(f"{where}: the set {shown(name)} has an empty text with the label {empty.label!r}.")

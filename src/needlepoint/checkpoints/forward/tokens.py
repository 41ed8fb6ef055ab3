"""Text to token numbers: tokenizer.json through the `tokenizers` package, or the vocabulary of a GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from needlepoint.checkpoints.extra import need
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint, inside
from needlepoint.checkpoints.reading.gguf import Gguf

_LARGEST = 60_000_000  # bytes of a tokenizer.json; the largest public ones have 35 million
_DIGITS = ("smollm", "starcoder", "refact", "command-r")  # GGUF: digits one by one, then GPT-2's split
_PLAIN = ("gpt-2", "default", "gpt2")


class Tokenizer:
    """Turns text into token numbers and back; nothing is padded or truncated."""

    def __init__(self, inner: Any):
        self._inner = inner

    def encode(self, text: str, *, marks: bool = True) -> list[int]:
        """Return the numbers of a text's tokens, with the marks that the model wants around it."""
        return list(self._inner.encode(text, add_special_tokens=marks).ids)

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token numbers."""
        return self._inner.decode(list(numbers))


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """Return the tokenizer of a checkpoint: tokenizer.json beside it, or what its GGUF file holds."""
    tokenizers = need("tokenizers", "turning text into tokens")
    folder = checkpoint.opened.folder
    if (folder / "tokenizer.json").exists():
        path = inside(folder, "tokenizer.json", follow_links=checkpoint.opened.follow_links)
        if path.stat().st_size > _LARGEST:
            raise BadCheckpoint(f"{path} has more than {_LARGEST:,} bytes, which is no tokenizer.")
        try:
            inner = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the package raises bare Exception
            raise BadCheckpoint(f"{path} cannot be read as a tokenizer: {error}.") from None
        inner.no_padding()  # pads would enter the moments
        inner.no_truncation()
        return Tokenizer(inner)
    file = checkpoint.tensors.files[0]
    if isinstance(file, Gguf):
        return Tokenizer(_from_gguf(tokenizers, file))
    raise BadCheckpoint(f"there is no tokenizer.json in {folder}; text cannot be turned into tokens without it.")


def _from_gguf(tokenizers: Any, file: Gguf) -> Any:
    kind, split = file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or split not in (*_DIGITS, *_PLAIN):
        raise BadCheckpoint(
            f"the vocabulary of {file.path} is of kind {kind}, {split}, which is not supported; put the model's "
            "tokenizer.json beside it."
        )
    words, merges = file.array("tokenizer.ggml.tokens"), file.array("tokenizer.ggml.merges")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise BadCheckpoint(f"{file.path}: a merge of its vocabulary is not a pair.")
    try:
        inner = tokenizers.Tokenizer(
            tokenizers.models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=pairs)
        )
    except Exception as error:
        raise BadCheckpoint(f"the vocabulary of {file.path} cannot be used: {error}.") from None
    pre = tokenizers.pre_tokenizers
    bytes_of = pre.ByteLevel(add_prefix_space=False, use_regex=True)
    inner.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), bytes_of]) if split in _DIGITS else bytes_of
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner

"""Hidden states of whole sentences: one vector per layer and way of pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder

_BATCH = 256
"""Sentences that run together; their states are pooled before the next ones come, so that memory stays small."""


def poolings(model: Encoder | Decoder) -> tuple[str, str]:
    """Return the ways of pooling: the first token ([CLS]) of an encoder or the last of a decoder, and the mean."""
    return ("first", "mean") if model.kind == "encoder" else ("last", "mean")


def pooled_states(model: Encoder | Decoder, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return for each way of pooling the vectors (layers + 1, texts, d), the embeddings first."""
    numbers = [model.tokenizer.encode(text) for text in texts]
    rows: dict[str, list[list[np.ndarray]]] = {name: [] for name in poolings(model)}
    for start in range(0, len(numbers), _BATCH):
        batch = numbers[start : start + _BATCH]
        bounds = np.concatenate([[0], np.cumsum([len(one) for one in batch])])
        found: dict[str, list[np.ndarray]] = {name: [] for name in rows}
        for x in model.states(batch):
            ends = bounds[:-1] if model.kind == "encoder" else bounds[1:] - 1
            found[poolings(model)[0]].append(x[ends])
            found["mean"].append(np.add.reduceat(x, bounds[:-1], axis=0) / np.diff(bounds)[:, None].astype(x.dtype))
        for name, states in found.items():
            rows[name].append(states)
    return {name: np.concatenate([np.stack(states) for states in parts], axis=1) for name, parts in rows.items()}

"""What one layer shows of its attention: queries, keys and values of all tokens, and weights of a head."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from needlepoint.checkpoints.forward.layers import softmax
from needlepoint.checkpoints.heads.rotary import rotated


@dataclass(frozen=True)
class Turning:
    """Rotary positions of a layer: how many coordinates turn, the base of the angles, which pairs."""

    width: int
    base: float
    pairs: str


@dataclass(frozen=True)
class AttentionState:
    """The attention of a layer over several sequences, whose tokens follow each other (n in all).

    inputs   the stream of the model before the layer (n, d)
    queries  without their bias and before positions (n, heads, p); `query_bias` (heads, p) or None
    keys, values  (n, key_heads, p); keys with their bias `key_bias` (key_heads, p) or None, before positions
    output   the part of the output projection that each head has (heads, d, p)
    bounds   where each sequence begins, and the end of the last
    """

    layer: int
    inputs: np.ndarray
    queries: np.ndarray
    query_bias: np.ndarray | None
    keys: np.ndarray
    key_bias: np.ndarray | None
    values: np.ndarray
    output: np.ndarray
    bounds: np.ndarray
    causal: bool
    turning: Turning | None
    scale: float

    @property
    def heads(self) -> int:
        """Return the number of query heads."""
        return self.queries.shape[1]

    def key_head(self, head: int) -> int:
        """Return the key head of a query head."""
        return head // (self.heads // self.keys.shape[1])

    def spans(self):
        """Return the slices of all sequences."""
        return [slice(int(a), int(b)) for a, b in itertools.pairwise(self.bounds)]

    def turn(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors (t, ..., p) of one sequence, turned by their positions."""
        if self.turning is None:
            return vectors
        return rotated(vectors, np.arange(len(vectors)), self.turning.width, self.turning.base, self.turning.pairs)

    def weights(self, head: int, span: slice, maps: np.ndarray | None = None) -> np.ndarray:
        """Return the attention weights (t, t) of a head in a sequence; with `maps` (r, p, p) those with the queries
        replaced by q P for each of them, (r, t, t). The bias of the queries is kept as it is."""
        q, k = self.queries[span, head], self.turn(self.keys[span, self.key_head(head)])
        many = q[:, None] if maps is None else np.stack([q @ one for one in maps.astype(q.dtype)], axis=1)
        if self.query_bias is not None:
            many = many + self.query_bias[head]
        many = self.turn(many)
        scores = np.moveaxis(many, 1, 0) @ k.T * np.asarray(self.scale, q.dtype)
        found = softmax(masked(scores) if self.causal else scores)
        return found[0] if maps is None else found


def masked(scores: np.ndarray) -> np.ndarray:
    """Return scores (..., t, t) with those of later tokens at minus infinity."""
    t = scores.shape[-1]
    return np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf).astype(scores.dtype)

"""A transformer that runs layer by layer, with one layer's weights in memory at a time."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from needlepoint.checkpoints.forward.layers import ACTIVATIONS, rms_norm, softmax
from needlepoint.checkpoints.forward.states import AttentionState, Turning, masked
from needlepoint.checkpoints.forward.tokens import Tokenizer, tokenizer_of
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint

Watch = Callable[[AttentionState], None]
Cuts = Mapping[int, np.ndarray]
"""Matrices P (heads, p, p) of layers; the queries become q P."""


class Model(abc.ABC):
    """A transformer in NumPy. `states` runs it; `watch` sees the attention of every layer."""

    causal: bool
    kind: str

    def __init__(self, checkpoint: Checkpoint, dtype: type = np.float32):
        self.checkpoint, self.dtype = checkpoint, dtype
        self.tensors, self.settings = checkpoint.tensors, checkpoint.settings
        self._tokenizer: Tokenizer | None = None
        numbers = [layer.layer for layer in checkpoint.layers]
        if checkpoint.skipped or numbers != list(range(len(numbers))):
            what = checkpoint.skipped[0].reason if checkpoint.skipped else "layers are missing"
            raise BadCheckpoint(f"{checkpoint.path.name} cannot be run, because not all of it is read: {what}.")
        if self.settings.unusual:
            raise BadCheckpoint(
                f"{checkpoint.path.name} cannot be run: it has {', '.join(self.settings.unusual)}, which the forward "
                "pass does not have. Its heads can be read."
            )

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; it is read when it is first needed."""
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of(self.checkpoint)
        return self._tokenizer

    def tensor(self, *names: str) -> np.ndarray:
        """Return the first tensor that is there under one of the names, in the model's number type."""
        for name in names:
            if name in self.tensors:
                return self.tensors.read(name).astype(self.dtype, copy=False)
        raise BadCheckpoint(f"{self.checkpoint.path.name} has no tensor {names[0]}, which the forward pass needs.")

    def optional(self, name: str) -> np.ndarray | None:
        """Return a tensor, or None if it is not there."""
        return self.tensor(name) if name in self.tensors else None

    def states(
        self, sequences: Sequence[Sequence[int]], watch: Watch | None = None, cuts: Cuts | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the hidden states (n, d) of all tokens: the embeddings first, then those after each layer."""
        bounds = self._bounds(sequences)
        x = self.embed(np.concatenate([np.asarray(s, np.int64) for s in sequences]), bounds)
        yield x
        for layer in range(len(self.checkpoint.layers)):
            x = self.layer(layer, x, bounds, watch, (cuts or {}).get(layer))
            yield x

    def _bounds(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        lengths = [len(s) for s in sequences]
        if not lengths or min(lengths) < 1:
            raise BadCheckpoint("there is no text to run: every sequence must have at least one token.")
        most = self.settings.positions
        if most is not None and max(lengths) > most:
            raise BadCheckpoint(f"a sequence has {max(lengths)} tokens; the model takes at most {most}. Split it.")
        return np.concatenate([[0], np.cumsum(lengths)])

    @abc.abstractmethod
    def embed(self, numbers: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return the first states (n, d)."""

    @abc.abstractmethod
    def layer(
        self, layer: int, x: np.ndarray, bounds: np.ndarray, watch: Watch | None, cut: np.ndarray | None
    ) -> np.ndarray:
        """Return the states after one layer."""

    def attend(
        self,
        layer: int,
        stream: np.ndarray,
        x: np.ndarray,
        bounds: np.ndarray,
        watch: Watch | None,
        cut: np.ndarray | None,
    ) -> np.ndarray:
        """Return what attention adds to the stream; x is the stream after the norm before it, if there is one."""
        place = self.checkpoint.layers[layer]
        names = place.names or {}
        heads, shared, p = place.heads, place.key_heads, place.head_width

        def project(role: str, count: int) -> tuple[np.ndarray, np.ndarray | None]:
            weight = self.tensor(f"{names[role]}.weight")
            if weight.shape[0] != count * p:
                raise BadCheckpoint(
                    f"{names[role]}.weight has the shape {weight.shape}; {count} heads of {p} are meant."
                )
            bias = self.optional(f"{names[role]}.bias")
            bias = None if bias is None else bias.reshape(count, p)
            return (x @ weight.T).reshape(len(x), count, p), bias

        q, q_bias = project("query", heads)
        k, k_bias = project("key", shared)
        v, v_bias = project("value", shared)
        k = k if k_bias is None else k + k_bias
        v = v if v_bias is None else v + v_bias
        if place.query_norm or place.key_norm:
            if cut is not None:
                raise BadCheckpoint(
                    "queries that are normed cannot be cut: the norm stands between weights and scores."
                )
            q = q if q_bias is None else q + q_bias
            q_bias = None
            eps = self.settings.norm_eps or 1e-6
            q = rms_norm(q, self.tensor(place.query_norm), eps) if place.query_norm else q
            k = rms_norm(k, self.tensor(place.key_norm), eps) if place.key_norm else k
        q = q if cut is None else np.einsum("nhp,hpr->nhr", q, cut.astype(q.dtype), optimize=True)
        weight = self.tensor(f"{names['output']}.weight")
        split = np.ascontiguousarray(np.moveaxis(weight.reshape(len(weight), heads, p), 1, 0))
        turning = self._turning(layer, p)
        scale = self.settings.score_scale or p**-0.5
        state = AttentionState(layer, stream, q, q_bias, k, k_bias, v, split, bounds, self.causal, turning, scale)
        if watch is not None:
            watch(state)
        mixed = np.empty_like(q)
        group = heads // shared
        for span in state.spans():
            whole = q[span] if q_bias is None else q[span] + q_bias
            turned = np.moveaxis(state.turn(whole), 1, 0)
            keys = np.repeat(np.moveaxis(state.turn(k[span]), 1, 0), group, axis=0)
            scores = turned @ np.swapaxes(keys, 1, 2) * np.asarray(scale, q.dtype)
            weights = softmax(masked(scores) if self.causal else scores)
            mixed[span] = np.moveaxis(weights @ np.repeat(np.moveaxis(v[span], 1, 0), group, axis=0), 0, 1)
        added = mixed.reshape(len(x), heads * p) @ weight.T
        bias = self.optional(f"{names['output']}.bias")
        return added if bias is None else added + bias

    def _turning(self, layer: int, p: int) -> Turning | None:
        if not self.checkpoint.family.pairs:
            return None
        base = self.settings.base_of(layer) or 10_000.0
        return Turning(min(self.settings.rope_width or p, p), base, self.checkpoint.family.pairs)


def check_numbers(numbers: np.ndarray, count: int) -> None:
    """Raise BadCheckpoint for token numbers that the embedding does not have."""
    if numbers.min() < 0 or numbers.max() >= count:
        raise BadCheckpoint(f"the tokenizer gives number {numbers.max()}, and the model has {count} tokens.")


def activation_named(name: str):
    """Return the function of an activation by the name that configs give it."""
    if name not in ACTIVATIONS:
        raise BadCheckpoint(f"the activation {name!r} is not known; known: {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]

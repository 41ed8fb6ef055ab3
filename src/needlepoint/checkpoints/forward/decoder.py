"""LLaMA-like decoders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from needlepoint.checkpoints.forward.layers import in_chunks, rms_norm
from needlepoint.checkpoints.forward.model import Cuts, Model, Watch, activation_named, check_numbers
from needlepoint.checkpoints.reading.checkpoint import Checkpoint


class Decoder(Model):
    """A LLaMA-like decoder: a token sees those before it; norms stand before attention and before the gated part."""

    causal, kind = True, "decoder"

    def __init__(self, checkpoint: Checkpoint, dtype: type = np.float32):
        super().__init__(checkpoint, dtype)
        self._gguf = self.settings.gguf
        name = (checkpoint.layers[0].names or {})["query"]
        self._root = "" if self._gguf else name[: name.index("layers.")]
        self._eps = self.settings.norm_eps or 1e-6
        self._act = activation_named(self.settings.activation or "silu")

    def _name(self, theirs: str, ours: str) -> str:
        return theirs if self._gguf else f"{self._root}{ours}"

    def _embedding(self) -> np.ndarray:
        return self.tensor(self._name("token_embd.weight", "embed_tokens.weight"))

    def embed(self, numbers: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return the embeddings of the tokens."""
        table = self._embedding()
        check_numbers(numbers, len(table))
        return table[numbers]

    def layer(
        self, layer: int, x: np.ndarray, bounds: np.ndarray, watch: Watch | None, cut: np.ndarray | None
    ) -> np.ndarray:
        """Return the states after one layer."""
        place = self.checkpoint.layers[layer]
        x = x + self.attend(layer, x, rms_norm(x, self.tensor(place.gain), self._eps), bounds, watch, cut)
        at, own = f"blk.{layer}.", f"layers.{layer}."
        gain = self.tensor(self._name(f"{at}ffn_norm.weight", f"{own}post_attention_layernorm.weight"))
        gate = self.tensor(self._name(f"{at}ffn_gate.weight", f"{own}mlp.gate_proj.weight"))
        up = self.tensor(self._name(f"{at}ffn_up.weight", f"{own}mlp.up_proj.weight"))
        down = self.tensor(self._name(f"{at}ffn_down.weight", f"{own}mlp.down_proj.weight"))

        def dense(y: np.ndarray) -> np.ndarray:
            y = rms_norm(y, gain, self._eps)
            return (self._act(y @ gate.T) * (y @ up.T)) @ down.T

        return x + in_chunks(dense, x)

    def logits(self, last: np.ndarray) -> np.ndarray:
        """Return the scores of every word after each state (n, d)."""
        gain = self.tensor(self._name("output_norm.weight", "norm.weight"))
        own = "output.weight" if self._gguf else "lm_head.weight"
        table = self.tensor(own) if own in self.tensors else self._embedding()
        return rms_norm(last, gain, self._eps) @ table.T

    def nats(self, sequences: Sequence[Sequence[int]], cuts: Cuts | None = None) -> np.ndarray:
        """Return the loss in nats of every token but the first of each sequence (all of them in one array)."""
        *_, last = self.states(sequences, cuts=cuts)
        found, start = [], 0
        for numbers in sequences:
            scores = self.logits(last[start : start + len(numbers) - 1]).astype(np.float64)
            top = scores.max(axis=1)
            partition = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
            found.append(partition - scores[np.arange(len(numbers) - 1), list(numbers[1:])])
            start += len(numbers)
        return np.concatenate(found)

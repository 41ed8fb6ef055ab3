"""BERT-like encoders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from needlepoint.checkpoints.forward.layers import in_chunks, layer_norm
from needlepoint.checkpoints.forward.model import Cuts, Model, Watch, activation_named, check_numbers
from needlepoint.checkpoints.reading.checkpoint import Checkpoint
from needlepoint.checkpoints.reading.files import BadCheckpoint


class Encoder(Model):
    """A BERT-like encoder: every token sees all of its sequence; norms stand after attention and after the dense
    part."""

    causal, kind = False, "encoder"

    def __init__(self, checkpoint: Checkpoint, dtype: type = np.float32):
        super().__init__(checkpoint, dtype)
        name = (checkpoint.layers[0].names or {})["query"]
        self._root = name[: name.index("encoder.layer.")]
        self._eps = self.settings.norm_eps or 1e-12
        self._act = activation_named(self.settings.activation or "gelu")

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(x, self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias"), self._eps)

    def embed(self, numbers: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return words, places and the first segment together, normed."""
        at = f"{self._root}embeddings."
        words = self.tensor(f"{at}word_embeddings.weight")
        check_numbers(numbers, len(words))
        places = np.concatenate([np.arange(b - a) for a, b in itertools.pairwise(bounds)])
        if "roberta" in self.settings.model:  # places count from after the padding's number
            places = places + (self.settings.padding or 1) + 1
        table = self.tensor(f"{at}position_embeddings.weight")
        if places.max() >= len(table):
            raise BadCheckpoint(f"a sequence has {places.max() + 1} tokens; the model has {len(table)} places.")
        x = words[numbers] + table[places]
        segment = self.optional(f"{at}token_type_embeddings.weight")
        return self._norm(x if segment is None else x + segment[0], f"{at}LayerNorm")

    def layer(
        self, layer: int, x: np.ndarray, bounds: np.ndarray, watch: Watch | None, cut: np.ndarray | None
    ) -> np.ndarray:
        """Return the states after one layer."""
        at = f"{self._root}encoder.layer.{layer}."
        x = self._norm(x + self.attend(layer, x, x, bounds, watch, cut), f"{at}attention.output.LayerNorm")
        up, up_bias = self.tensor(f"{at}intermediate.dense.weight"), self.tensor(f"{at}intermediate.dense.bias")
        down, down_bias = self.tensor(f"{at}output.dense.weight"), self.tensor(f"{at}output.dense.bias")
        wide = in_chunks(lambda y: self._act(y @ up.T + up_bias) @ down.T + down_bias, x)
        return self._norm(x + wide, f"{at}output.LayerNorm")

    def embeddings(self, sequences: Sequence[Sequence[int]], cuts: Cuts | None = None) -> np.ndarray:
        """Return the unit vectors (sequences, d) of the mean last states, as sentence embeddings are made."""
        *_, last = self.states(sequences, cuts=cuts)
        bounds = self._bounds(sequences)
        means = np.add.reduceat(last, bounds[:-1], axis=0) / np.diff(bounds)[:, None]
        return means / np.linalg.norm(means, axis=1, keepdims=True)

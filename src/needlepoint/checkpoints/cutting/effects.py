"""What a cut does to text that it has not seen: the whole model, before and after."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.checkpoints.cutting.losses import measured
from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder
from needlepoint.checkpoints.forward.model import Cuts
from needlepoint.checkpoints.forward.states import AttentionState


@dataclass(frozen=True)
class Effect:
    """The effect of a cut of all heads at once on held-out text.

    kind    `cosine`: mean cosine of sentence embeddings with those of the uncut model (`before` is 1), `worst` the
            lowest; `nats`: mean loss of the next token, `worst` the largest rise of one sequence
    error   standard error over sequences of `after` (cosine) or of the rise (nats)
    attention  the measured loss of each (layer, head) on its own
    """

    kind: str
    before: float
    after: float
    error: float
    worst: float
    sequences: int
    tokens: int
    attention: dict[tuple[int, int], float]


class HeldOut:
    """Watches an uncut pass and measures what each head would lose with the maps of a cut."""

    def __init__(self, cuts: Cuts):
        self.cuts, self.losses = cuts, dict[tuple[int, int], float]()

    def __call__(self, state: AttentionState) -> None:
        """Take in the attention of one layer."""
        cut = self.cuts.get(state.layer)
        for head in range(state.heads if cut is not None else 0):
            assert cut is not None
            loss, _ = measured(state, head, cut[head][None], state.spans(), None)
            self.losses[state.layer, head] = float(loss[0])


def losses_of(
    model: Encoder | Decoder, sequences: Sequence[Sequence[int]], cuts: Cuts
) -> Mapping[tuple[int, int], float]:
    """Return the measured attention loss of every head on its own, on the given sequences."""
    watch = HeldOut(cuts)
    for _ in model.states(sequences, watch):
        pass
    return watch.losses


def effect_of(model: Encoder | Decoder, sequences: Sequence[Sequence[int]], cuts: Cuts) -> Effect:
    """Return the effect of a cut on sequences: two passes, without and with it."""
    attention = dict(losses_of(model, sequences, cuts))
    tokens = sum(len(s) for s in sequences)
    if isinstance(model, Encoder):
        cosines = np.sum(model.embeddings(sequences) * model.embeddings(sequences, cuts), axis=1)
        error = float(np.std(cosines) / np.sqrt(max(len(cosines) - 1, 1)))
        return Effect(
            "cosine", 1.0, float(cosines.mean()), error, float(cosines.min()), len(sequences), tokens, attention
        )
    before, after = model.nats(sequences), model.nats(sequences, cuts)
    ends = np.cumsum([0, *(len(s) - 1 for s in sequences)])
    rises = np.array([np.mean((after - before)[a:b]) for a, b in itertools.pairwise(ends)])
    error = float(np.std(rises) / np.sqrt(max(len(rises) - 1, 1)))
    mean = (float(before.mean()), float(after.mean()))
    return Effect("nats", *mean, error, float(rises.max()), len(sequences), tokens, attention)

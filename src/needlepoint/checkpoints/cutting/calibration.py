"""One pass over calibration text: every head's whitened spectrum, prediction and measured losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.checkpoints.cutting.losses import measured, responses
from needlepoint.checkpoints.cutting.rotary_metric import averaged, distance_shares
from needlepoint.checkpoints.cutting.whitening import HeadMap, best_maps, score_losses
from needlepoint.checkpoints.forward.decoder import Decoder
from needlepoint.checkpoints.forward.encoder import Encoder
from needlepoint.checkpoints.forward.states import AttentionState

MEASURED_TOKENS = {"encoder": 3200, "decoder": 512}
"""Tokens of the calibration text on which losses are measured; on more the order of heads hardly changes."""


@dataclass(frozen=True)
class HeadLoss:
    """What a head loses when its queries are cut.

    values     the whitened spectrum (p)
    response   F: squared change of attention per squared change of a score
    predicted  attention loss at every rank 0..p, to first order (p + 1)
    ranks      those at which losses were measured on the calibration text (k)
    attention  the mean over tokens of sum_b (A'_b - A_b)^2 there (k)
    output     that of |W_O (A' - A) v|^2 over the median |x|^2 of the layer's input (k)
    """

    layer: int
    head: int
    values: np.ndarray
    response: float
    predicted: np.ndarray
    ranks: np.ndarray
    attention: np.ndarray
    output: np.ndarray
    maps: HeadMap

    def measured_at(self, rank: int) -> float:
        """Return the measured attention loss at a rank, interpolated between those that were measured."""
        return float(np.interp(rank, self.ranks, self.attention))


def offered_ranks(p: int) -> np.ndarray:
    """Return the ranks at which losses are measured: all small ones, then wider apart, up to p."""
    fractions = (0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32)
    return np.unique([round(f * p / 32) for f in fractions])


def spread_out(bounds: np.ndarray, tokens: int) -> list[int]:
    """Return the numbers of sequences, spread evenly over the text, that together have about so many tokens."""
    total = int(bounds[-1])
    if total <= tokens:
        return list(range(len(bounds) - 1))
    count = max(1, round((len(bounds) - 1) * tokens / total))
    return sorted({int(i) for i in np.linspace(0, len(bounds) - 2, count)})


class Calibration:
    """Watches a forward pass and keeps what each head loses, measured on about `measure` tokens of it."""

    def __init__(self, ranks: Sequence[int] | None = None, measure: int = 3200):
        self.ranks, self.measure = ranks, measure
        self.heads: list[HeadLoss] = []

    def __call__(self, state: AttentionState) -> None:
        """Take in the attention of one layer."""
        p = state.queries.shape[2]
        ranks = offered_ranks(p) if self.ranks is None else np.asarray(self.ranks)
        spans = state.spans()
        chosen = spread_out(state.bounds, self.measure)
        size = float(np.median(np.sum(state.inputs.astype(np.float64) ** 2, axis=1)))
        key_moments = {}
        for head in range(state.heads):
            of_key = state.key_head(head)
            if of_key not in key_moments:
                key_moments[of_key] = second_moments(_bare_keys(state, of_key))
            weights = [state.weights(head, span) for span in spans]
            response = float(np.mean(np.concatenate([responses(w) for w in weights])))
            metric = key_moments[of_key]
            if state.turning is not None:
                metric = averaged(metric, _shares(weights), state.turning)
            maps = best_maps(second_moments(state.queries[:, head]), metric)
            some = [weights[i] for i in chosen]
            put_in = np.array([maps.at(int(r)) for r in ranks])
            attention, output = measured(state, head, put_in, [spans[i] for i in chosen], some)
            predicted = response * score_losses(maps.values, state.scale)
            self.heads.append(
                HeadLoss(state.layer, head, maps.values, response, predicted, ranks, attention, output / size, maps)
            )


def second_moments(vectors: np.ndarray) -> np.ndarray:
    """Return E v v^T (p, p) over vectors (n, p)."""
    wide = vectors.astype(np.float64)
    return wide.T @ wide / len(wide)


def _bare_keys(state: AttentionState, head: int) -> np.ndarray:
    """Return the keys of a head without their bias, which softmax does not see unless positions turn it."""
    keys = state.keys[:, head]
    return keys if state.key_bias is None or state.turning is not None else keys - state.key_bias[head]


def _shares(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the share of attention at each distance over all sequences."""
    total = np.zeros(max(len(w) for w in weights))
    for one in weights:
        found = distance_shares(one)
        total[: len(found)] += found
    return total / total.sum()


def calibrate(
    model: Encoder | Decoder, sequences: Sequence[Sequence[int]], ranks: Sequence[int] | None = None
) -> list[HeadLoss]:
    """Return what every head loses, from one pass over the sequences."""
    watch = Calibration(ranks, MEASURED_TOKENS[model.kind])
    for _ in model.states(sequences, watch):
        pass
    return watch.heads

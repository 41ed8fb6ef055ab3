"""What attention loses: to first order from its own weights, and measured with maps put in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from needlepoint.checkpoints.forward.states import AttentionState


def responses(weights: np.ndarray) -> np.ndarray:
    r"""eq:attention-loss. Return $\sum_ba_b^2(1 - 2a_b + |a|^2)$ of each row of weights: how much the squared weights
    change per squared, independent change of the scores."""
    squares = weights**2
    return np.sum(squares * (1 - 2 * weights + squares.sum(axis=-1, keepdims=True)), axis=-1)


def measured(
    state: AttentionState, head: int, maps: np.ndarray, spans: Sequence[slice], weights: Sequence[np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    r"""eq:output-loss. Return for each map (r) the mean over tokens of $\sum_b(A'_b - A_b)^2$, and that of
    $|W_O(A' - A)v|^2$, both over the given sequences; `weights` are those without a cut, if they are at hand."""
    p = state.queries.shape[2]
    gram = (state.output[head].T @ state.output[head]).astype(np.float64)
    attention, output, count = np.zeros(len(maps)), np.zeros(len(maps)), 0
    for i, span in enumerate(spans):
        plain = state.weights(head, span) if weights is None else weights[i]
        change = state.weights(head, span, maps) - plain
        moved = (change @ state.values[span, state.key_head(head)]).reshape(len(maps), -1, p)
        attention += np.sum(change**2, axis=(1, 2))
        output += np.einsum("rtp,pq,rtq->r", moved, gram, moved, optimize=True)
        count += len(plain)
    return attention / count, output / count

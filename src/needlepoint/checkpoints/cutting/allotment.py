"""Ranks over heads: the same everywhere, by a loss that none may exceed, or greedily at a fixed total."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from needlepoint.checkpoints.cutting.calibration import HeadLoss
from needlepoint.core.errors import InvalidParameter, shown

Ranks = dict[tuple[int, int], int]
"""The rank of every (layer, head)."""


def same_rank(heads: Sequence[HeadLoss], rank: int) -> Ranks:
    """Return the same rank for every head."""
    most = min(len(h.values) for h in heads)
    if type(rank) is not int or not 0 <= rank <= most:
        raise InvalidParameter(f"rank={shown(rank)}: a whole number from 0 to {most} is expected.")
    return {(h.layer, h.head): rank for h in heads}


def least_ranks(heads: Sequence[HeadLoss], loss: float) -> Ranks:
    """Return for each head the least measured rank from which on its attention loss stays at or below `loss`."""
    if not 0 < loss < 10:
        raise InvalidParameter(f"loss={shown(loss)}: a number between 0 and 10 is expected.")
    found = {}
    for h in heads:
        worse = np.flatnonzero(h.attention > loss)
        found[h.layer, h.head] = int(h.ranks[min(worse[-1] + 1, len(h.ranks) - 1)]) if len(worse) else int(h.ranks[0])
    return found


def greedy(heads: Sequence[HeadLoss], mean_rank: float) -> Ranks:
    """eq:greedy-ranks. Return ranks with the given mean that make the sum of output losses small: one step after the
    other goes to the head whose measured curve (its lower convex hull) falls most per rank.

    Measured curves, not predicted ones: a head whose attention is nearly one-hot has a prediction near zero and would
    be cut to nothing.
    """
    most = float(np.mean([len(h.values) for h in heads]))
    if not 0 <= mean_rank <= most:
        raise InvalidParameter(f"budget={shown(mean_rank)}: a mean rank from 0 to {most:g} is expected.")
    total = round(mean_rank * len(heads))
    steps: list[tuple[float, int, int]] = []
    for i, h in enumerate(heads):
        corners = lower_hull(h.ranks, h.output)
        for a, b in itertools.pairwise(corners):
            width = int(h.ranks[b] - h.ranks[a])
            steps.append(((h.output[a] - h.output[b]) / width, i, width))
    found = [int(h.ranks[0]) for h in heads]
    left = total - sum(found)
    # slopes of one hull fall, so the order of steps within a head is kept by a stable sort
    for _, i, width in sorted(steps, key=lambda step: -step[0]):
        taken = min(width, max(left, 0))
        found[i] += taken
        left -= taken
    return {(h.layer, h.head): rank for h, rank in zip(heads, found, strict=True)}


def lower_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Return the indices of the corners of the lower convex hull of points with rising x."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):  # b lies below the line from a to i
                break
            corners.pop()
        corners.append(i)
    return corners

"""What rotary positions do to a head: its map at a distance between two tokens."""

from __future__ import annotations

import numpy as np

OFFSETS = (-1, -8, -64)
"""Distances b - a that are reported; a causal model sees the zero and negative ones only."""


def frequencies(width: int, base: float) -> np.ndarray:
    """eq:rotary. Return the angle by which each of width/2 pairs turns from one token to the next, base^(-2j/width)."""
    return base ** (-2 * np.arange(width // 2) / width)


def pair_indices(width: int, pairs: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and second coordinates of all pairs: `half` is (j, j + width/2), `adjacent` (2j, 2j + 1)."""
    j = np.arange(width // 2)
    return (2 * j, 2 * j + 1) if pairs == "adjacent" else (j, j + width // 2)


def rotated(vectors: np.ndarray, positions: np.ndarray, width: int, base: float, pairs: str) -> np.ndarray:
    """eq:rotary. Return vectors (n, ..., p) turned by their positions (n): in each pair (u, v) of the first `width`
    coordinates to (u cos - v sin, u sin + v cos)."""
    angle = np.asarray(positions)[:, None] * frequencies(width, base)
    angle = angle.reshape(len(angle), *(1,) * (vectors.ndim - 2), -1).astype(vectors.dtype)
    first, second = pair_indices(width, pairs)
    u, v = vectors[..., first], vectors[..., second]
    found = vectors.copy()
    found[..., first] = u * np.cos(angle) - v * np.sin(angle)
    found[..., second] = u * np.sin(angle) + v * np.cos(angle)
    return found


def rotation(p: int, offset: float, width: int, base: float, pairs: str) -> np.ndarray:
    """eq:rotary. Return R_t (p, p) at the distance t = b - a: the score of tokens a, b is q_a . R_t k_b."""
    turned = rotated(np.eye(p), np.full(p, offset), width, base, pairs)
    return turned.T


def top_at_offsets(r_query: np.ndarray, r_key: np.ndarray, width: int, base: float, pairs: str) -> dict[int, float]:
    """Return the largest singular value of the head's map at each of the offsets."""
    p = r_query.shape[1]
    return {
        t: float(np.linalg.norm(r_query @ rotation(p, t, width, base, pairs) @ r_key.T, 2))  # largest singular value
        for t in OFFSETS
    }

"""Pieces of a transformer's layer, in the number type of their input."""

from __future__ import annotations

import numpy as np
from scipy import special

_CHUNK = 2048
"""Tokens that go through the wide part of a layer at once, so that memory does not grow with the text."""


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    """Return LayerNorm of the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps) * gain + bias


def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """Return RMSNorm of the last axis."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * gain


def gelu(x: np.ndarray) -> np.ndarray:
    """Return the exact GELU, x times the normal distribution function."""
    return x * (0.5 * (1 + special.erf(x / np.sqrt(2).astype(x.dtype)))).astype(x.dtype)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """Return GELU's approximation by tanh."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    """Return x times the logistic function."""
    return x * special.expit(x)


def relu(x: np.ndarray) -> np.ndarray:
    """Return the positive part."""
    return np.maximum(x, 0)


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "silu": silu,
    "swish": silu,
    "relu": relu,
}


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return softmax over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def in_chunks(function, x: np.ndarray) -> np.ndarray:
    """Return function(x), computed over some thousand rows at a time."""
    if len(x) <= _CHUNK:
        return function(x)
    return np.concatenate([function(x[i : i + _CHUNK]) for i in range(0, len(x), _CHUNK)])

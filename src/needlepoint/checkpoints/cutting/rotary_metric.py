"""Second moments of keys as a query sees them through rotary positions, averaged over distances."""

from __future__ import annotations

import numpy as np

from needlepoint.checkpoints.forward.states import Turning
from needlepoint.checkpoints.heads.rotary import frequencies, pair_indices


def averaged(key_moments: np.ndarray, shares: np.ndarray, turning: Turning) -> np.ndarray:
    r"""eq:rotary-metric. Return $\sum_tw_tR_tG_KR_t^T$ over the distances $t = 0, -1, -2, ...$ with weights `shares`.

    A pair (u, v) is the complex number u + iv, which $R_t$ multiplies by $e^{i\omega t}$: the moments of pairs j, k are
    multiplied by $\sum_tw_te^{i(\omega_j \mp \omega_k)t}$. Coordinates that are not turned are pairs of frequency
    zero."""
    p = len(key_moments)
    first, second = pair_indices(turning.width, turning.pairs)
    rest = np.arange(turning.width, p)
    first, second = np.concatenate([first, rest[0::2]]), np.concatenate([second, rest[1::2]])
    omega = np.zeros(p // 2)
    omega[: turning.width // 2] = frequencies(turning.width, turning.base)
    uu, vv = key_moments[np.ix_(first, first)], key_moments[np.ix_(second, second)]
    uv = key_moments[np.ix_(first, second)]
    plain, mirrored = uu + vv + 1j * (uv.T - uv), uu - vv + 1j * (uv.T + uv)  # E k k^dagger, E k k^T
    t = -np.arange(len(shares))
    wave = np.exp(1j * np.outer(omega, t))  # (pairs, distances)
    plain = plain * ((wave * shares) @ wave.conj().T)
    mirrored = mirrored * ((wave * shares) @ wave.T)
    found = np.empty((p, p))
    found[np.ix_(first, first)] = (plain + mirrored).real / 2
    found[np.ix_(second, second)] = (plain - mirrored).real / 2
    cross = (mirrored.imag - plain.imag) / 2
    found[np.ix_(first, second)] = cross
    found[np.ix_(second, first)] = cross.T
    return (found + found.T) / 2


def distance_shares(weights: np.ndarray) -> np.ndarray:
    """Return how much of causal attention (t, t) goes to each distance 0, -1, ... (t), summed over rows."""
    t = len(weights)
    back = np.arange(t)[:, None] - np.arange(t)[None, :]
    lower = back >= 0
    return np.bincount(back[lower], weights=weights[lower], minlength=t)

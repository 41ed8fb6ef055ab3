"""Integrals over a Wishart law plus wide noise as power series, because the closed forms lose their digits there."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL = 0.2
"""The series are used where |g| / b is below this."""

_TERMS = 24  # SMALL to this power is below rounding


def integrals(b: float, t: np.ndarray, e: np.ndarray, g: np.ndarray, arg: np.ndarray) -> tuple[np.ndarray, ...]:
    r"""eq:wishart-series. Return $I_{01}, I_{11}, I_{21}, I_{02}, I_{12}, I_{03}$ and the overlap, each (n,), term by
    term with $z(g) - \epsilon = \frac1g + P(g)$, $P = b - \epsilon + (1 + \delta^2)g + \sum_{n\ge2}b^{1-n}g^n$.

    `t` is $\delta^2$, `e` is $\epsilon$ and `arg` the argument of g, all (n,).
    """
    # cumulative products of real numbers stay exactly real, which complex powers need not
    steps = np.repeat(g[:, None] / b, _TERMS, axis=1)
    geometric = b * np.cumprod(np.concatenate([np.ones((len(g), 1)), steps], axis=1), axis=1)
    # terms of P and of k b / (b - g)^2 = b sum (n + 1) (g / b)^n, each with its power of g
    P, rise = geometric.copy(), geometric * np.arange(1, _TERMS + 2)
    P[:, 0], P[:, 1] = b - e, (1 + t) * g
    P2, P3 = _product(P, P), _product(P, _product(P, P))
    one = np.zeros_like(P)
    one[:, 0] = 1.0
    lines = (one, P), (one, 2 * P, P2), (one, 3 * P, 3 * P2, P3)  # series in (1/g + P)^k, beginning with g^-k

    def integral(terms: tuple[np.ndarray, ...], more: int = 0) -> np.ndarray:
        """Return the integral of g^more times the sum over i of g^-(k - i) terms[i], (n,)."""
        low = more + 1 - len(terms)
        return sum((_primitive(line, low + i, g, arg) for i, line in enumerate(terms)), np.zeros(len(g)))

    first, second, third = lines
    tilted = tuple(_product(line, rise) / 2 for line in second)
    return (
        integral(first),
        integral(first, 1),
        integral(first, 2),
        integral(second),
        integral(second, 1),
        integral(third),
        integral(tilted),
    )


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product of two power series (n, terms), truncated at as many terms."""
    out = np.zeros_like(a)
    for i in range(a.shape[1]):
        out[:, i:] += a[:, i, None] * b[:, : a.shape[1] - i]
    return out


def _primitive(terms: np.ndarray, power: int, g: np.ndarray, arg: np.ndarray) -> np.ndarray:
    r"""Return $\frac1\pi\mathrm{Im}\int_g^{0+}$ of $g^{power}$ times a series whose terms include their powers of g."""
    exponents: Any = np.arange(terms.shape[1]) + power + 1
    logarithm = exponents == 0
    weights = terms / np.where(logarithm, 1, exponents)
    whole = (weights * ~logarithm).sum(axis=1) * g ** (power + 1)
    # 1/g integrates to a logarithm, whose coefficient is real and whose imaginary part is the argument of g
    residue = (weights * logarithm).sum(axis=1) * g ** (power + 1)
    return -(whole.imag + residue.real * arg) / np.pi

r"""The place law of MaxSLR as a race: $J$ is the argmax of the utilities $\chi^*_l + \Gamma_l/\mu$, $\Gamma_l$ Gumbel.

Softmax at inverse temperature $\mu$, the snr, is this argmax in law, so an infinite snr is the same formulas without
$\Gamma$. A token with a lower utility than the winner's is called slower.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from scipy import special

from needlepoint.numerics.arrays import Array
from needlepoint.numerics.gaussian import lattice, trapezoid_rule
from needlepoint.tasks.single_location import SingleLocation
from needlepoint.theory.location.moments.accuracy import ACCURACY

REACH = 9.5
"""Integrals over a key field, N(0, 1), go from -REACH to REACH."""

TAIL = 1e-18
"""Probability of the Gumbel law that its rule leaves out; times the length, the error that this makes in a risk."""


@functools.cache
def gumbel_rule(nodes: int = ACCURACY.gumbel_nodes) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for a standard Gumbel variable: the normal trapezoid rule mapped by quantiles."""
    t, w = trapezoid_rule(nodes)
    return -np.log(-special.log_ndtr(-t)), w


def utility_law(snr: float, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""eq:utility. Return density $p$ and distribution $\Psi$ of $\chi^* + \Gamma/\mu$ at y, each of shape (y,)."""
    if math.isinf(snr):
        return _phi(y), special.ndtr(y)
    if snr < ACCURACY.soft:
        x, w = trapezoid_rule(ACCURACY.gumbel_nodes)
        survive = np.exp(np.minimum(snr * (x - y[:, None]), 700.0))
        cdf = np.exp(-survive)
        return snr * ((survive * cdf) @ w), cdf @ w
    g, w = gumbel_rule()
    at = y[:, None] - g / snr
    return _phi(at) @ w, special.ndtr(at) @ w


def log_below(snr: float, y: np.ndarray) -> np.ndarray:
    r"""Return $\log\Psi$ of eq:utility, (y,), accurate where $\Psi$ is near 1, because high powers of it are taken."""
    if math.isinf(snr):
        return special.log_ndtr(y)
    if snr < ACCURACY.soft:
        x, w = trapezoid_rule(ACCURACY.gumbel_nodes)
        survive = np.exp(np.minimum(snr * (x - y[:, None]), 700.0))
        below, above = np.exp(-survive) @ w, -np.expm1(-survive) @ w
    else:
        g, w = gumbel_rule()
        at = y[:, None] - g / snr
        below, above = special.ndtr(at) @ w, special.ndtr(-at) @ w
    return np.where(below > 0.5, np.log1p(-np.minimum(above, 0.5)), np.log(np.maximum(below, 1e-300)))


def utility_grid(snr: float, longest: int, finest: float = 0.1) -> tuple[float, np.ndarray]:
    """Return step and nodes of a lattice over the utilities of up to `longest` tokens; the wider law sets the step."""
    soft = 0.0 if math.isinf(snr) else 1 / snr
    step = max(finest, 0.2 * soft)
    return step, lattice(-REACH - 4.0 * soft, REACH + (45.0 + math.log(longest)) * soft, step)


def bayes_excess_risk(snr: float, length: int, finest: float = 0.05) -> float:
    r"""eq:max-bayes. Return the Bayes risk $R = E\sum_{l\ne m}p_lp_m = \frac{L(L-1)}{\mu}\int dy\,p(y)^2\Psi(y)^{L-2}$.

    All terms are positive, so nothing cancels; for large snr it goes to eq:max-decay.
    """
    if length == 1 or math.isinf(snr):
        return 0.0
    if snr == 0:
        return (length - 1) / length
    step, y = utility_grid(snr, length, finest)
    density, _ = utility_law(snr, y)
    slower = np.exp((length - 2) * log_below(snr, y))
    return length * (length - 1) / snr * float(np.sum(density**2 * slower)) * step


@functools.lru_cache(maxsize=128)
def winner_density(law: tuple[tuple[int, float], ...], snr: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    r"""eq:winner. Return nodes x and $\varphi(x)\bar W(x)$, the density of $\chi^*_J$, both of shape (x,).

    $W(x) = L\,E[p_1|\chi^*_1 = x] = L\,E[\Psi(x + \Gamma/\mu)^{L-1}]$, averaged over the lengths.
    """
    x = lattice(-REACH, REACH + step / 2, step)
    if snr == 0:
        return x, _phi(x)
    if math.isinf(snr):
        slower, w = log_below(snr, x)[:, None], np.ones(1)
    else:
        # for long sequences the power of Psi is steep and rises in the tail of the Gumbel rule, which needs more nodes
        longest = max(n for n, _ in law)
        g, w = gumbel_rule(ACCURACY.gumbel_nodes * (1 if longest <= 50 else 2 if longest <= 1000 else 4))
        slower = log_below(snr, (x[:, None] + g / snr).ravel()).reshape(len(x), -1)
    return x, _phi(x) * sum(p * n * (np.exp((n - 1) * slower) @ w) for n, p in law)


def winner_rule(task: SingleLocation, refine: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights (with sum 1) of a quadrature rule for the law of chi*_J; `refine` divides its step."""
    return _winner_rule(task.length_law, task.tilt, refine)


@functools.lru_cache(maxsize=256)
def _winner_rule(law: tuple[tuple[int, float], ...], snr: float, refine: int) -> tuple[np.ndarray, np.ndarray]:
    longest = max(n for n, _ in law)
    step = 0.1 if longest <= 50 else 0.05 if longest <= 10_000 else 0.025
    x, density = winner_density(law, snr, step)
    if refine == 1:
        return x, step * density
    # the density is band-limited on this lattice, so that sinc interpolation is exact to rounding
    fine = lattice(-REACH, REACH + step / (2 * refine), step / refine)
    return fine, step / refine * (np.sinc((fine[:, None] - x) / step) @ density)


class Winner(NamedTuple):
    r"""The law of $\chi^*_J$: a quadrature rule (`x`, `weight`), and on the lattice `fine` its distribution `below` and
    its density with first and second derivative (`slope`, `bend`)."""

    x: Array
    weight: Array
    fine: Array
    below: Array
    density: Array
    slope: Array
    bend: Array


def winner_law(task: SingleLocation, refine: int = 1) -> Winner:
    """Return the law of chi*_J as a quadrature rule and as tabulated functions; `refine` divides the rule's step."""
    return Winner(*winner_rule(task, refine), *_winner_table(task.length_law, task.tilt))


@functools.lru_cache(maxsize=256)
def _winner_table(law: tuple[tuple[int, float], ...], snr: float) -> tuple[np.ndarray, ...]:
    x, weight = _winner_rule(law, snr, ACCURACY.fine)
    density = scipy.interpolate.make_interp_spline(x, np.maximum(weight, 0.0) * (len(x) - 1) / (x[-1] - x[0]), k=7)
    below = density.antiderivative()(x)
    return x, below / below[-1], density(x), density.derivative()(x), density.derivative(2)(x)


Smoothing = Callable[[np.ndarray], np.ndarray]


@functools.lru_cache(maxsize=32)
def race(snr: float, step: float, nodes: int, longest: int) -> tuple[float, Smoothing, Smoothing]:
    r"""eq:race. Return the step of the lattice of utilities y, and two maps (..., x) -> (..., y), for a token that wins
    with utility y and for one that is slower.

    They take $b(x)$, on the lattice $x_j = -9.5 + j\,$step of $\chi^*$, to $\int dx\,b(x)\,p_\mu(y - x)$ and
    $\int dx\,b(x)\,P_\mu(y - x)$, with density and distribution of $\Gamma/\mu$. Where $\Gamma/\mu$ is narrower than
    the lattice, b is a sinc series, integrated exactly: an indefinite integral for an infinite snr.
    """
    soft = 0.0 if math.isinf(snr) else 1 / snr
    low = math.ceil(4.0 * soft / step)
    high = math.ceil((45.0 + math.log(longest)) * soft / step)
    resolved = snr * step <= 0.2
    if resolved and (nodes <= ACCURACY.dense or high > 50 * nodes):
        x = -REACH + step * np.arange(nodes)
        step_y, y = utility_grid(snr, longest, step)
        survive = np.exp(np.minimum(snr * (x[:, None] - y), 700.0))
        cdf = np.exp(-survive)
        density, cdf = step * snr * (survive * cdf), step * cdf
        return step_y, lambda b: b @ density, lambda b: b @ cdf
    shift = np.arange(-nodes + 1 - low, nodes + high)
    if resolved:
        survive = np.exp(np.minimum(-snr * step * shift, 700.0))
        cdf = np.exp(-survive)
        stride = max(1, math.floor(0.2 / (snr * step)))
        density = step * snr * (survive * cdf)
        return stride * step, _convolution(density, nodes, stride), _convolution(step * cdf, nodes, stride)
    g, w = (np.zeros(1), np.ones(1)) if math.isinf(snr) else gumbel_rule()
    at = shift[:, None] - g / (snr * step)
    cdf = step * ((0.5 + special.sici(np.pi * at)[0] / np.pi) @ w)
    if math.isinf(snr):
        return step, lambda b: b, _convolution(cdf, nodes)
    return step, _convolution(np.sinc(at) @ w, nodes), _convolution(cdf, nodes)


def _convolution(kernel: np.ndarray, nodes: int, stride: int = 1) -> Smoothing:
    """Return the map b -> out, out_i = sum_j b_j K(y_i - x_j), of which every stride-th output is kept.

    `kernel` is K on the lattice of shifts y - x, from the most negative one on.
    """
    outputs = len(kernel) - nodes + 1
    if nodes <= ACCURACY.dense:
        index = np.arange(0, outputs, stride)[None, :] - np.arange(nodes)[:, None] + nodes - 1
        matrix = kernel[index]
        return lambda b: b @ matrix
    size = scipy.fft.next_fast_len(nodes + len(kernel) - 1, real=True)
    spectrum = np.asarray(scipy.fft.rfft(kernel, size))

    def convolve(b: np.ndarray) -> np.ndarray:
        product = np.asarray(scipy.fft.rfft(b, size)) * spectrum
        return np.asarray(scipy.fft.irfft(product, size))[..., nodes - 1 : nodes - 1 + outputs : stride]

    return convolve


def _phi(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

"""Means of normalised-kernel attention weights (softmax, softplus) at any length, by one-token transforms.

A power of 1 / sum w(chi_l) is an integral over u of exponentials, which factorise over tokens. So a table over u and
the score of one token serves every length. All terms are positive: nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from needlepoint.core.routes import TABLES, route
from needlepoint.numerics.gaussian import lattice
from needlepoint.tasks.single_location import MaxSLR, SpikedSLR
from needlepoint.theory.location.moments import place_race
from needlepoint.theory.location.moments.accuracy import ACCURACY
from needlepoint.theory.location.moments.weight_moments import MaxMoments, SpikedMoments

REACH = place_race.REACH

LogKernel = Callable[[np.ndarray], np.ndarray]


@route("means of kernels", name="shifted", cost=TABLES, task=SpikedSLR)
def spiked(
    task: SpikedSLR, log_kernel: LogKernel, key: float, key_sq: float, coarseness: float = 1.0, rest: bool = True
) -> SpikedMoments | None:
    """eq:kernel-risk. Return the seven means over the law of lengths; None where the kernel is too steep for tables."""
    norm, spread_sq = math.sqrt(key_sq), task.label_var * key_sq
    # a token that is alone has weight 1
    parts = [[p * m for m in (1.0, 0.0, spread_sq, 1.0, 0.0, 0.0, spread_sq)] for n, p in task.length_law if n == 1]
    longer = [(n, p) for n, p in task.length_law if n > 1]
    if longer:
        # mean and standard deviation of the score of the relevant token, and of another one
        scores = [(math.sqrt(task.snr) * key, task.relevant_std * norm), (0.0, norm)]
        found = token_transforms(log_kernel, scores, longer[0][0] - 1, task.longest, coarseness)
        if found is None:
            return None
        du, (relevant, other) = found
        parts += [[p * mean for mean in _spiked_at_length(n, du, relevant, other)] for n, p in longer]
    return SpikedMoments(*map(sum, zip(*parts, strict=True)))


def token_transforms(
    log_kernel: LogKernel, scores: list[tuple[float, float]], fewest: int, longest: int, coarseness: float
) -> tuple[np.ndarray, list[np.ndarray]] | None:
    r"""eq:kernel-moments. Return the weights of the nodes u, and an array (j, a, u) of $\psi_{j,a}$ for each kind of
    token; None where the tables would be too large.

    $\psi_{j,a}(u) = E[\xi^aT^je^{-T}]$, $T = e^uw(\chi)$, $j, a = 0, 1, 2$, for tokens with scores
    $\chi = \mathrm{mean} + \xi$, $\xi\sim N(0, \mathrm{std}^2)$: `scores` lists the (mean, std) of each kind, and a
    sequence has at least `fewest` tokens of the last kind. Trapezoid rules in the score and in u are exact to rounding
    for smooth kernels.
    """
    steepest = max(std for _, std in scores)
    step_x = coarseness * _ladder(min(0.1, 0.25 / max(steepest, 1e-300)))
    if 2 * REACH / step_x > ACCURACY.table:
        return None
    x = lattice(-REACH, REACH, step_x)
    weights = step_x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    log_w = [log_kernel(mean + std * x) for mean, std in scores]
    slopes = [np.abs(np.gradient(w, step_x)) for w in log_w]
    # u ends where e^(-sum T) is negligible: all `fewest` tokens score below this with a probability of 1e-18 only
    deep = x > special.ndtri(10 ** (-18.0 / fewest))
    low, high = _u_range(log_w, log_w[-1][deep], longest)
    u, du = _u_rule(low, high, log_w, slopes, coarseness)
    if len(u) * len(x) > ACCURACY.table:
        return None
    moments = []
    for log_weight, (_, std) in zip(log_w, scores, strict=True):
        powers = np.stack([weights * (std * x) ** a for a in range(3)], axis=1)
        t = _products(u, log_weight)
        survive = np.exp(-t)
        once = t * survive
        moments.append(np.stack([survive @ powers, once @ powers, (t * once) @ powers]).transpose(0, 2, 1))
    return du, moments


def _u_range(log_w: list[np.ndarray], common: np.ndarray, longest: int) -> tuple[float, float]:
    """Return the least and the largest u at which the integrands are not negligible.

    `common` are log-kernels at scores among which at least one token lies, but for a negligible probability.
    """
    return -max(float(w.max()) for w in log_w) - 38.0 - math.log(longest), -float(common.min()) + 5.0


def _u_rule(
    low: float, high: float, log_w: list[np.ndarray], slopes: list[np.ndarray], coarseness: float
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return nodes and weights in u.

    Where log w varies widely over the scores, the mean over the scores smooths the transforms and steps may be longer:
    everywhere for softmax; for kernels whose logarithm is steep at low scores alone (softplus) beyond some c, where
    $u = c + \tau + be^{\tau/b}$ with $\tau$ on a lattice.
    """
    least = max(1.0, float(min(map(np.min, slopes))) / ACCURACY.wide)
    step = 0.2 * min(coarseness, 2.5) * least
    if min(s[0] for s in slopes) < 2 * ACCURACY.wide * least:
        u = lattice(low, high, step)
        return u, np.full(len(u), step)
    # the low scores end where the slope of log w has fallen to half of its value at the lowest score
    bend = -min(float(w[np.argmax(s < s[0] / 2)]) for w, s in zip(log_w, slopes, strict=True))
    c = bend + ACCURACY.bend
    end = high - c if high < c else ACCURACY.bend * math.log1p((high - c) / ACCURACY.bend)
    tau = lattice(low - c - ACCURACY.bend * math.exp(min(0.0, low - c) / ACCURACY.bend), end, step)
    growth = np.exp(tau / ACCURACY.bend)
    return c + tau + ACCURACY.bend * growth, step * (1 + growth)


def _products(u: np.ndarray, log_w: np.ndarray) -> np.ndarray:
    """Return T = e^u w, (u, scores): a product of exponentials, which is cheaper, where that cannot overflow."""
    if max(np.max(np.abs(u)), np.max(np.abs(log_w))) < 340.0:
        return np.multiply.outer(np.exp(u), np.exp(log_w))
    return np.exp(np.minimum(np.add.outer(u, log_w), 700.0))


def _spiked_at_length(length: int, du: np.ndarray, r: np.ndarray, p: np.ndarray) -> SpikedMoments:
    r"""eq:kernel-risk. Return the seven means at one length.

    $E[g\sigma_l] = \int du\,E[gT_le^{-\sum T}]$ and $E[g\sigma_l\sigma_m] = \int du\,E[gT_lT_me^{-\sum T}]$, which
    factorise over tokens.
    """
    # notation: r and p are psi of eq:kernel-moments, of the relevant token and of another; n other tokens
    n, empty = length - 1, np.clip(p[0, 0], 0.0, 1.0)
    all_others, but_one, but_two = empty**n, empty ** (n - 1), empty ** max(n - 2, 0)

    def mean(integrand: np.ndarray) -> float:
        return float(integrand @ du)

    return SpikedMoments(
        weight=mean(r[1, 0] * all_others),
        weight_xi=mean(r[1, 1] * all_others),
        xi_mu=mean(r[1, 2] * all_others + n * r[0, 1] * p[1, 1] * but_one),
        weight_sq=mean(r[2, 0] * all_others),
        others_sq=mean(n * p[2, 0] * r[0, 0] * but_one),
        weight_mu=mean(r[2, 1] * all_others + n * r[1, 0] * p[1, 1] * but_one),
        mu_sq=mean(
            r[2, 2] * all_others
            + n * (p[2, 2] * r[0, 0] + 2 * r[1, 1] * p[1, 1]) * but_one
            + n * (n - 1) * p[1, 1] ** 2 * r[0, 0] * but_two
        ),
    )


@route("means of kernels", name="tilted", cost=TABLES, task=MaxSLR)
def maximal(
    task: MaxSLR, log_kernel: LogKernel, key: float, key_sq: float, coarseness: float = 1.0, rest: bool = True
) -> MaxMoments | None:
    """eq:max-kernel. Return the five means over the law of lengths; None where the kernel is too steep for tables.

    `rest=False` skips `rest_star` and `rest_rest`, which the risk on the manifold does not need.
    """
    # a token that is alone has weight 1
    total = sum(p for n, p in task.length_law if n == 1) * np.array([1.0, 0.0, 1.0, 1.0, key_sq])
    longer = [(n, p) for n, p in task.length_law if n > 1]
    if longer:
        found = token_transforms(log_kernel, [(0.0, math.sqrt(key_sq))], longer[0][0], task.longest, coarseness)
        if found is None:
            return None
        du, (p,) = found
        if task.snr == 0:  # the place is uniform and independent of the fields
            stars = _uniform_place(longer, p, du, key, key_sq)
        else:
            stars = _race(task.snr, longer, log_kernel, key, key_sq, coarseness, rest)
        if stars is None:
            return None
        empty = np.clip(p[0, 0], 0.0, 1.0)
        for n, probability in longer:
            pairs = p[2, 2] * empty ** (n - 1) + (n - 1) * p[1, 1] ** 2 * empty ** (n - 2)
            squares = n * np.array([(p[2, 0] * empty ** (n - 1)) @ du, pairs @ du])
            total[3:] += probability * squares
        total[:3] += stars
    weight, rest_star, rest_rest, weights_sq, scores_sq = map(float, total)
    return MaxMoments(weight, rest_star, rest_rest, weights_sq, scores_sq)


LengthLaw = Sequence[tuple[int, float]]


def _uniform_place(law: LengthLaw, p: np.ndarray, du: np.ndarray, key: float, key_sq: float) -> np.ndarray:
    """eq:max-kernel. Return its first three means at snr 0, where the place is uniform: E g_J (...) is
    E sum g_l (...) / L, with g and chi* the two parts of the score.
    """
    empty = np.clip(p[0, 0], 0.0, 1.0)
    rest_sq = max(key_sq - key**2, 0.0)
    weight = both = 0.0
    for n, probability in law:
        pairs = p[1, 2] * empty ** (n - 1) + (n - 1) * p[1, 1] * p[0, 1] * empty ** (n - 2)
        weight += probability * float((p[1, 0] * empty ** (n - 1)) @ du)
        both += probability * float(pairs @ du)
    if key_sq == 0:
        return np.array([weight, 0.0, weight])
    # chi* = kappa chi / q + s e / sqrt(q), g = s chi / q - kappa e / sqrt(q), with e independent of the score
    slope = key * math.sqrt(rest_sq) / key_sq
    return np.array([weight, slope * (both / key_sq - weight), rest_sq / key_sq**2 * both + key**2 / key_sq * weight])


def _race(
    snr: float,
    law: LengthLaw,
    log_kernel: LogKernel,
    key: float,
    key_sq: float,
    coarseness: float,
    rest: bool,
) -> np.ndarray | None:
    r"""eq:max-kernel. Return its first three means at snr > 0; None where the tables would be too large.

    $E[g\,\sigma_l]$ with $J$ the winner of eq:race: a table over $(u, y)$, $y$ the winner's utility; every other token
    is slower, that is, of lower utility. For each token $b(u, x) = \varphi(x)E_g[(\ldots)e^{-T}|\chi^* = x]$.
    """
    s = math.sqrt(max(key_sq - key**2, 0.0))
    if s**2 <= 8 * np.finfo(float).eps * key_sq:
        s = 0.0
    step = coarseness * _ladder(min(0.1, 0.25 / max(math.sqrt(key_sq), 1e-300)))
    nodes = math.floor(2 * REACH / step) + 1
    if nodes > 100_000:
        return None
    x = -REACH + step * np.arange(nodes)
    laws = _scores_given_star(x, key, s, math.sqrt(key_sq), coarseness)
    if laws is None:
        return None
    scores, given = laws
    log_w = log_kernel(scores)
    along = log_kernel(math.sqrt(key_sq) * x)
    slope = np.abs(np.gradient(along, 2 * step))  # half the slope: given chi* the score varies less and smooths less
    shortest, longest = law[0][0], law[-1][0]
    deep = x > special.ndtri(10 ** (-18.0 / shortest))
    low, high = _u_range([log_w], along[deep], longest)
    u, du = _u_rule(low, high, [along], [slope], coarseness)
    if len(u) * nodes > ACCURACY.table or len(u) * log_w.size > 50 * ACCURACY.table:
        return None
    step_y, winning, losing = place_race.race(snr, step, nodes, longest)
    phi = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    total = np.zeros(3)
    blocks = max(1, math.ceil(len(u) * log_w.size / ACCURACY.block))
    for block, weight in zip(np.array_split(u, blocks), np.array_split(du, blocks), strict=True):
        t = _products(block, log_w)
        survive = np.exp(-t)
        once = t * survive
        slower = np.clip(losing(phi * given(survive, 0)), 0.0, 1.0)
        # of each mean the term with the winner's own weight, and the term with the weight of a slower token
        terms: list[tuple[np.ndarray, np.ndarray | None]] = [(given(once, 0), None)]
        win_g: np.ndarray | float = 0.0
        if rest and s > 0:
            win_g = winning(phi * given(survive, 1))
            terms += [(x * given(once, 1), x * given(once, 0)), (given(once, 2), given(once, 1))]
        # probability that all other tokens are slower, or all but one, times the ways to choose them, over the lengths
        lost = sum(p * n * slower ** (n - 1) for n, p in law)
        lost_but_one = sum(p * n * (n - 1) * slower ** (n - 2) for n, p in law) if s > 0 else 0.0
        for i, (own, other) in enumerate(terms):
            total[i] += weight @ np.sum(winning(phi * own) * lost, axis=-1)
            if other is not None:
                total[i] += weight @ np.sum(win_g * losing(phi * other) * lost_but_one, axis=-1)
    return total * step_y


def _ladder(step: float) -> float:
    """Return the next smaller of 0.1, 0.1 / sqrt 2, 0.1 / 2, ...: few lattices, so that `race` can cache them."""
    return 0.1 * 2.0 ** (-math.ceil(2 * math.log2(0.1 / step) - 1e-9) / 2)


def _scores_given_star(
    x: np.ndarray, key: float, s: float, norm: float, coarseness: float
) -> tuple[np.ndarray, Callable[[np.ndarray, int], np.ndarray]] | None:
    """Return score nodes and the map from (a table over them, a) to the mean of table times g^a given chi* = x, where
    chi = key x + s g; None where neither a matrix nor the product of the rules for x and g is small enough.
    """
    if s == 0.0:
        return key * x, lambda table, a: table
    g_step = 0.6 * coarseness**0.5
    score_step = min(coarseness * min(0.1 * norm, 0.25), g_step * s)
    if 2 * REACH * norm / score_step * len(x) < min(4 * len(x) ** 2, ACCURACY.table):
        # one lattice of scores serves all x: the conditional law is a matrix
        scores = lattice(-REACH * norm, REACH * norm, score_step)
        g = (scores[:, None] - key * x) / s
        law = score_step / s * np.exp(-(g**2) / 2) / math.sqrt(2 * math.pi)
        laws = [law * g**a for a in range(3)]
        return scores, lambda table, a: table @ laws[a]
    if 2 * REACH / g_step * len(x) > ACCURACY.table / 100:
        return None
    g = lattice(-REACH, REACH, g_step)
    w = g_step * np.exp(-(g**2) / 2) / math.sqrt(2 * math.pi)
    return key * x[:, None] + s * g, lambda table, a: table @ (w * g**a)

"""The null of a head: queries and keys with independent Gaussian weights, in closed form."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from needlepoint.checkpoints.heads import tracy_widom
from needlepoint.core.errors import InvalidParameter

_GRID = 4001
"""Points at which the distribution function is tabulated; quantiles are right to 1e-6."""


@dataclass(frozen=True)
class ProductNull:
    r"""The singular values of $A^TB$, $A$ and $B$ independent $p \times d$ matrices of standard Gaussian numbers, as
    $s/d$; their law depends on the ratio $c = p/d$ only, and $x = (s/d)^2$ has mean 1."""

    p: float
    d: float

    def __post_init__(self) -> None:
        if not 0 < self.p <= self.d:
            raise InvalidParameter(f"ProductNull(p={self.p}, d={self.d}): 0 < p <= d is expected.")

    @property
    def ratio(self) -> float:
        """Return c = p/d."""
        return self.p / self.d

    @functools.cached_property
    def edges(self) -> tuple[float, float]:
        r"""eq:product-edges. Return the ends of the bulk, s/d: $x_\pm$ at
        $y_\pm = \frac14(-1 \pm \sqrt{1 + 8/c})$."""
        c = self.ratio
        y = (-1 + np.array([-1.0, 1.0]) * np.sqrt(1 + 8 / c)) / 4
        low, high = np.sqrt(np.maximum((1 + y) * (1 + c * y) ** 2 / y, 0.0))
        return float(low), float(high)

    def density(self, x: np.ndarray) -> np.ndarray:
        r"""eq:product-null. Return the density of $x = (s/d)^2$: $|\mathrm{Im}\,y|/(\pi x)$, $y$ the complex root of
        $c^2y^3 + (c^2 + 2c)y^2 + (1 + 2c - x)y + 1 = 0$ (Cardano); zero outside the bulk."""
        # notation: a, b, e coefficients of the cubic over that of y^3; P, Q of the depressed one
        c, x = self.ratio, np.asarray(x, float)
        a, b, e = (c * c + 2 * c) / c**2, (1 + 2 * c - x) / c**2, 1 / c**2
        P, Q = b - a * a / 3, 2 * a**3 / 27 - a * b / 3 + e
        found = Q**2 / 4 + P**3 / 27
        root = np.sqrt(np.maximum(found, 0.0))
        imaginary = np.abs(np.cbrt(-Q / 2 + root) - np.cbrt(-Q / 2 - root)) * np.sqrt(3) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((found > 0) & (x > 0), imaginary / (np.pi * x), 0.0)

    @functools.cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Return x and the distribution function there; points are dense at the edges, where the density ends like a
        root."""
        low, high = (edge**2 for edge in self.edges)
        angle = np.linspace(0.0, np.pi, _GRID)
        x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
        flow = self.density(x) * (high - low) / 2 * np.sin(angle)
        flow[[0, -1]] = 0.0
        mass = np.concatenate([[0.0], np.cumsum((flow[1:] + flow[:-1]) / 2)])
        return x, mass / mass[-1]

    @functools.cached_property
    def values(self) -> np.ndarray:
        """Return what p sorted singular values are compared with, largest first: s/d at the levels 1 - (i - 1/2)/p."""
        count = round(self.p)
        x, mass = self._table
        return np.sqrt(np.interp(1 - (np.arange(count) + 0.5) / count, mass, x))

    def level(self, probability: float) -> float:
        r"""eq:product-top. Return the s/d that the largest of all values stays below with this probability:
        $e + t\,\mathrm{TW}_1$ with $t = d(pa)^{-2/3}/(2\sqrt{x_+})$, $a = \sqrt{2/x''}/x_+$, $x'' = 2c^2 + 2/y_+^3$
        and $e = d\sqrt{x_+}$, where p and d are each reduced by one half."""
        p, d = self.p - 0.5, self.d - 0.5
        c = p / d
        y = (-1 + np.sqrt(1 + 8 / c)) / 4
        top = (1 + y) * (1 + c * y) ** 2 / y
        a = np.sqrt(2 / (2 * c**2 + 2 / y**3)) / top
        scale = d * (p * a) ** (-2 / 3) / (2 * np.sqrt(top))
        return float((d * np.sqrt(top) + scale * tracy_widom.quantile(probability)) / self.d)

    @property
    def spike_threshold(self) -> float:
        r"""eq:product-spike. Return the strength above which an added spike shows: $\theta_c = s_+/(1 + cy_+)$, over
        d."""
        y = (-1 + np.sqrt(1 + 8 / self.ratio)) / 4
        return float(self.edges[1] / (1 + self.ratio * y))

    def spike(self, s: np.ndarray | float) -> np.ndarray:
        r"""eq:product-spike. Return the strength of the spike $\theta uv^T$ (u, v independent of A and B) that puts a
        singular value at $s$, both over d: $\theta = s/(1 + cy)$, $y$ the smaller positive root; NaN inside the
        bulk."""
        return np.asarray(s, float) / (1 + self.ratio * self._root(s))

    def noise(self, s: np.ndarray | float) -> np.ndarray:
        r"""Return the standard deviation of an outlier at $s$, both over d: $\sqrt p(1 + y)$. For strong spikes it is
        that of $u^TA^TBv$, $\sqrt p$; nearer to the bulk it was measured on planted spikes, within 15 %."""
        return np.sqrt(self.p) * (1 + self._root(s)) / self.d

    def _root(self, s: np.ndarray | float) -> np.ndarray:
        """Return the smaller positive root y of the cubic of eq:product-null at x = s^2 outside the bulk, else NaN."""
        c, found = self.ratio, []
        for value in np.atleast_1d(np.asarray(s, float)):
            roots = np.roots([c * c, c * c + 2 * c, 1 + 2 * c - value**2, 1.0])
            real = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0)]
            found.append(real.min() if value > self.edges[1] and len(real) else np.nan)
        return np.reshape(found, np.shape(s))

    def outlier_level(self, probability: float) -> float:
        r"""eq:outlier-level. Return the s/d above which a value counts as an outlier when the scale is fitted to the
        same head: `level`, widened by half the fitted scale's own spread, $1.1\sqrt c/p$, from $c = 1/4$ on, linearly
        up to $c = 1/2$. Without that, 1.7 % of pure heads have an outlier at the nominal 1 % and $p/d = 1/2$."""
        spread = 1.1 * np.sqrt(self.ratio) / self.p
        return self.level(probability) * float(1 + 0.5 * spread * max(self.ratio - 0.25, 0.0) / 0.25)


def null_draws(p: int, d: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the singular values of `count` draws of the null, (count, p) as s/d, largest first: those of the
    triangular factors of A and B (Bartlett)."""
    i = np.arange(p)
    factors = []
    for _ in range(2):
        lower = np.tril(rng.standard_normal((count, p, p)), -1)
        lower[:, i, i] = np.sqrt(rng.chisquare(d - i, size=(count, p)))
        factors.append(lower)
    return np.linalg.svd(np.swapaxes(factors[0], 1, 2) @ factors[1], compute_uv=False) / d


@functools.lru_cache(maxsize=256)
def product_null(p: int, d: int) -> ProductNull:
    """Return the null of heads of width p in a model of width d; kept, because all heads of a model share it."""
    return ProductNull(p, d)

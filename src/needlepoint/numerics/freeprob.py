r"""Free convolution with a semicircle: the law of the eigenvalues of a matrix plus Gaussian noise.

$\mu_\delta$ is the limit law of the eigenvalues of $S_0 + \delta Z$, with $Z$ from the Gaussian orthogonal ensemble
(semicircle of radius 2). All that is asked of it here comes from its resolvent $g(x) = \int\mu_\delta(dy)/(x - y)$ just
above the real axis. Arrays in, arrays out, broadcast against each other; no compilation.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy

from needlepoint.numerics import wishart_series
from needlepoint.numerics.gaussian import legendre_rule

Complex: TypeAlias = Any  # a complex array; numpy's own types do not follow real and complex through functions

_CLUSTERED = 48  # most Gauss nodes per panel of the support
_MOST = 2000  # about the most nodes in all; with many panels fewer nodes on each are enough
_GRADES = 10  # panels on each side of a point that is almost a cusp, each four times as wide as the last
_TABLE = 129  # most points per panel at which the distribution function is tabulated


class Truncated(NamedTuple):
    r"""eq:truncated, eq:cut-overlap. $J(\delta, \epsilon) = \int(x - \epsilon)_+^2\mu_\delta(dx)$, its derivatives by
    $\delta$ (1) and $\epsilon$ (2), the mass above $\epsilon$, and the overlap of the cut matrix with $S_0$,
    $\frac1d\mathrm{Tr}S_0(S_0 + \delta Z - \epsilon)_+ = J - \frac\delta2\partial_1J - \frac\epsilon2\partial_2J$,
    which is computed without that difference, where digits would cancel."""

    J: np.ndarray
    d1: np.ndarray
    d2: np.ndarray
    d11: np.ndarray
    d12: np.ndarray
    d22: np.ndarray
    above: np.ndarray
    overlap: np.ndarray


def from_integrals(delta: np.ndarray, found: Sequence[np.ndarray]) -> Truncated:
    r"""eq:wishart-truncated. Return the truncated moments from $I_{01}, I_{11}, I_{21}, I_{02}, I_{12}, I_{03}$ and the
    overlap."""
    i01, i11, i21, i02, i12, i03, overlap = found
    second = 2 * i12 + 8 * delta**2 * i21
    return Truncated(i03 / 3, 2 * delta * i12, -i02, second, -4 * delta * i11, 2 * i01, i01, overlap)


class Nodes(NamedTuple):
    """A rule of integration over the support: points, weights of dx, density."""

    x: np.ndarray
    dx: np.ndarray
    density: np.ndarray

    @property
    def mass(self) -> np.ndarray:
        """Return the weights of the law itself."""
        return self.dx * self.density


class FreeSum(abc.ABC):
    """The law of S0, to which a semicircle of standard deviation delta is added."""

    mean: float
    """The mean of the eigenvalues of S0."""
    square: float
    """The mean square of the eigenvalues of S0."""

    @abc.abstractmethod
    def resolvent(self, x: np.ndarray | float, delta: np.ndarray | float) -> Complex:
        """Return g(x + i0), whose imaginary part is minus pi times the density."""

    @abc.abstractmethod
    def truncated(self, delta: np.ndarray | float, eps: np.ndarray | float) -> Truncated:
        """eq:truncated. Return the truncated moments, in the shape that `delta` and `eps` broadcast to."""

    @abc.abstractmethod
    def support(self, delta: float) -> np.ndarray:
        """Return the intervals where the density is positive, from left to right, (pieces, 2)."""

    def cuts(self, delta: float) -> np.ndarray:
        """Return points inside the support near which the density is almost singular, so that panels end there."""
        return np.empty(0)

    def density(self, x: np.ndarray | float, delta: np.ndarray | float) -> np.ndarray:
        return np.maximum(-self.resolvent(x, delta).imag / np.pi, 0.0)

    def distribution(self, x: np.ndarray | float, delta: np.ndarray | float) -> np.ndarray:
        """Return the mass at or below x."""
        return 1.0 - self.truncated(delta, x).above

    def panels(self, delta: float, more: Sequence[float] = ()) -> np.ndarray:
        """Return the support divided at the cuts and at `more` points, (panels, 2)."""
        cuts = np.sort(np.concatenate([self.cuts(delta), np.asarray(more, dtype=float)]))
        ends = [np.r_[a, cuts[(cuts > a) & (cuts < b)], b] for a, b in self.support(delta)]
        return np.concatenate([np.stack([e[:-1], e[1:]], axis=1) for e in ends])

    def nodes(self, delta: float, more: Sequence[float] = ()) -> Nodes:
        """Return Gauss nodes on every panel, clustered at its ends like the arcsine law."""
        panels = self.panels(delta, more)
        x, dx = _clustered(panels, *_arc_nodes(int(np.clip(_MOST // len(panels), 8, _CLUSTERED))))
        return Nodes(x.ravel(), dx.ravel(), self.density(x.ravel(), delta))

    def quantiles(self, p: np.ndarray, delta: float) -> np.ndarray:
        """Return where the distribution function reaches p, in the shape of p: it is the integral of a spline through
        the density on every panel."""
        panels = self.panels(delta)
        angle = np.linspace(0.0, np.pi, int(np.clip(2 * _MOST // len(panels), 17, _TABLE)))
        x, dx = _clustered(panels, angle, np.ones(angle.size))
        mass = scipy.interpolate.CubicSpline(angle, self.density(x.ravel(), delta).reshape(x.shape) * dx, axis=1)
        F = mass.antiderivative()(angle)  # (panels, table), from 0 in every panel
        ends = np.cumsum(F[:, -1])
        p = np.asarray(p, dtype=float) * ends[-1]
        panel = np.minimum(np.searchsorted(ends, p), len(ends) - 1)
        found = np.empty_like(p)
        for i in np.unique(panel):
            mine = panel == i
            rises = np.r_[True, np.diff(np.maximum.accumulate(F[i])) > 0]
            inverse = scipy.interpolate.PchipInterpolator(np.maximum.accumulate(F[i])[rises], angle[rises])
            left = p[mine] - (ends[i] - F[i, -1])
            at = inverse(np.clip(left, 0.0, F[i, rises][-1]))
            found[mine] = panels[i].mean() - np.diff(panels[i]) / 2 * np.cos(at)
        return found


def _clustered(panels: np.ndarray, angle: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points at the cosines of `angle` in (0, pi) on every panel, and weights of dx, both (panels, angles)."""
    centre, half = panels.mean(axis=1)[:, None], np.diff(panels, axis=1) / 2
    return centre - half * np.cos(angle), half * np.sin(angle) * weight


@functools.cache
def _arc_nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` Gauss-Legendre nodes and weights on (0, pi)."""
    t, w = legendre_rule(count)
    return np.pi * t, np.pi * w


# --- Wishart matrices: one cubic root -----------------------------------------------------------


class MarchenkoPastur(FreeSum):
    r"""The law of $W_0W_0^\top/\sqrt{p_0d}$ with $W_0$ of standard normals, d x p0, and $k = p_0/d$: mean $\sqrt k$,
    mean square $1 + k$, an atom of $1 - k$ at zero if $k < 1$."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.mean, self.square = float(np.sqrt(ratio)), 1.0 + ratio

    def resolvent(self, x: np.ndarray | float, delta: np.ndarray | float) -> Complex:
        r"""eq:wishart-resolvent. Return the root of $\delta^2g^3 - (\delta^2b + x)g^2 + (1 - k + xb)g - b = 0$, $b =
        \sqrt k$, with $\mathrm{Im}\,g < 0$; where all are real, the one on whose branch $x$ falls as $g$ grows.
        """
        x, delta = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(delta, dtype=float))
        b, k = self.mean, self.ratio
        # y = delta g
        a2, a1, a0 = -(delta * b + x / delta), 1.0 - k + x * b, -b * delta
        r = _isolated_root(a2, a1, a0)
        # the other two roots solve y^2 + 2 half y + rest = 0; the division starts at the end that loses no digits
        large, safe = np.abs(r) > 1.0, np.where(r == 0, 1.0, r)
        rest = np.where(large, -a0 / safe, a1 + r * (r + a2))
        half = np.where(large, (rest - a1) / (2 * safe), (r + a2) / 2)
        disc = half * half - rest
        wave = np.sqrt(np.abs(disc))
        # the two roots where they are real, without cancellation
        far = -half - np.copysign(wave, half)
        near = np.where(far == 0, 0.0, rest / np.where(far == 0, 1.0, far))
        three = np.sort(np.stack([r, far, near]), axis=0)
        real = np.where((three[0] > 0) & (three[0] < b * delta), three[0], three[1])
        real = _polished(real, a2, a1, a0)
        y = np.where(disc < 0, -half - 1j * wave, real)
        y = np.where(disc < 0, _polished(y, a2, a1, a0), y)
        y = np.where((disc < 0) & (np.imag(y) > 0), np.conj(y), y)
        return y / delta

    def truncated(self, delta: np.ndarray | float, eps: np.ndarray | float) -> Truncated:
        r"""eq:wishart-truncated. Return the truncated moments: $J = I_{03}/3$, $\partial_2J = -I_{02}$, $\partial_1J =
        2\delta I_{12}$, $1 - F = I_{01}$, $\partial_{22}J = 2I_{01}$, $\partial_{12}J = -4\delta I_{11}$,
        $\partial_{11}J = 2I_{12} + 8\delta^2I_{21}$, with $I_{jk} =
        \frac1\pi\mathrm{Im}\int_{g(\epsilon)}^{0+}g^j(z(g) - \epsilon)^kdg$, $z(g) =
        \frac1g + \frac k{b - g} + \delta^2g$, elementary in $g(\epsilon)$.
        """
        shape = np.broadcast_shapes(np.shape(delta), np.shape(eps))
        d, e = (np.broadcast_to(np.asarray(x, dtype=float), shape).ravel() for x in (delta, eps))
        g = self.resolvent(e, d)
        above = g.imag < 0
        a = np.where(above, np.arctan2(g.imag, g.real), np.where(g.real < 0, -np.pi, 0.0))
        found = self._closed(d * d, e, g, a)
        wide = np.abs(g) < wishart_series.SMALL * self.mean
        if np.any(wide):
            found[:, wide] = wishart_series.integrals(self.mean, (d * d)[wide], e[wide], g[wide], a[wide])
        return from_integrals(d.reshape(shape), [x.reshape(shape) for x in found])

    def _closed(self, t: np.ndarray, e: np.ndarray, g: Complex, a: np.ndarray) -> np.ndarray:
        """Return the seven integrals in powers and arguments of g and of b - g, (7, n)."""
        b, k = self.mean, self.ratio
        u, c = b - g, t * b - e
        A = np.where(g.imag < 0, np.arctan2(-g.imag, b - g.real), np.where(g.real > b, np.pi, 0.0))
        g2, g3, g4 = g**2, g**3, g**4
        p01 = a - k * A + (t * g2 / 2 - e * g).imag
        p11 = -k * b * A + ((1 - k) * g + t * g3 / 3 - e * g2 / 2).imag
        p21 = -(k**2) * A + ((1 - k) * g2 / 2 - k * b * g + t * g4 / 4 - e * g3 / 3).imag
        p02 = (
            2 * (b - e) * a
            - 2 * (b + k * c) * A
            + (-1 / g + k**2 / u + t**2 * g3 / 3 - t * e * g2 + (e**2 + 2 * t * (1 - k)) * g).imag
        )
        p12 = (
            a
            + (k**2 - 2 * k - 2 * k**2 * t + 2 * k * b * e) * A
            + (
                k**2 * b / u
                + t**2 * g4 / 4
                - 2 * t * e * g3 / 3
                + (e**2 / 2 + t * (1 - k)) * g2
                - (2 * e * (1 - k) + 2 * k * b * t) * g
            ).imag
        )
        p03 = (
            3 * (1 + k + t - 2 * b * e + e**2) * a
            - 3 * (1 + k - k**2 * t + k * c**2 + 2 * b * c) * A
            + (
                -1 / (2 * g2)
                + k**3 / (2 * u**2)
                + 3 * (e - b) / g
                + 3 * k * (b + k * c) / u
                + t**3 * g4 / 4
                - t**2 * e * g3
                + 1.5 * t * (e**2 + t * (1 - k)) * g2
                - (e**3 + 6 * t * e + 6 * k * c * t - 3 * k * b * t**2) * g
            ).imag
        )
        overlap = (
            (1 + k - b * e) * a
            - (1 + k - b * e - k * b * c * t) * A
            + b / 2 * (1 / u - 1 / g).imag
            + k * b / 2 * (k**2 / (3 * u**3) + c**2 / u + t**2 * g + 2 / u + b / u**2).imag
            + k * b * (c / (b * u) + k * c / (2 * u**2) - k * t / u).imag
        )
        return -np.array([p01, p11, p21, p02, p12, p03, overlap]) / np.pi

    def _critical(self, delta: float) -> Complex:
        """Return the four roots g of z'(g) = 0, real and complex."""
        b, k, t = self.mean, self.ratio, delta * delta
        # -(b - g)^2 + k g^2 + t g^2 (b - g)^2
        return np.roots([t, -2 * t * b, t * b * b + k - 1, 2 * b, -b * b])

    def _z(self, g: Complex, delta: float) -> Complex:
        return 1 / g + self.ratio / (self.mean - g) + delta * delta * g

    def support(self, delta: float) -> np.ndarray:
        r"""eq:wishart-edges. Return $z(g)$ at the real roots of $-(b - g)^2 + kg^2 + \delta^2g^2(b - g)^2$, (pieces,
        2)."""
        roots = self._critical(delta)
        real = roots[np.abs(roots.imag) < 1e-9 * (1 + np.abs(roots))].real
        edges = np.sort(self._z(real, delta))
        if len(edges) == 4 and edges[2] <= edges[1]:  # a gap that is nothing but rounding
            edges = edges[[0, 3]]
        return edges.reshape(-1, 2)

    def cuts(self, delta: float) -> np.ndarray:
        """Return graded points around what is almost a cusp: a narrow gap, or a place where complex roots of z'(g) = 0
        come near the axis."""
        roots, pieces = self._critical(delta), self.support(delta)
        at = self._z(roots[roots.imag > 1e-9 * (1 + np.abs(roots))], delta)
        centres = np.concatenate([at.real, (pieces[1:, 0] + pieces[:-1, 1]) / 2])[:, None]
        widths = np.concatenate([np.abs(at.imag), pieces[1:, 0] - pieces[:-1, 1]])[:, None] * 4.0 ** np.arange(_GRADES)
        return np.sort(np.concatenate([centres - widths, centres, centres + widths], axis=None))


def _isolated_root(a2: np.ndarray, a1: np.ndarray, a0: np.ndarray) -> np.ndarray:
    """Return the real root of y^3 + a2 y^2 + a1 y + a0 that is farthest from the other two."""
    third = a2 / 3
    p, q = a1 - a2 * third, 2 * third**3 - third * a1 + a0
    size = np.sqrt(np.abs(p) / 3)
    safe = np.where(size > 0, size, 1.0)
    ratio = np.abs(q) / (2 * safe**3)
    angle = np.arccos(np.minimum(ratio, 1.0)) / 3
    real = np.where(ratio <= 1, np.cos(angle), np.cosh(np.arccosh(np.maximum(ratio, 1.0)) / 3))
    grown = np.where(p < 0, real, np.sinh(np.arcsinh(ratio) / 3))
    t = np.where(size > 0, -np.sign(q) * 2 * safe * grown, -np.cbrt(q))
    return _polished(t - third, a2, a1, a0, steps=3)


def _polished(y: np.ndarray, a2: np.ndarray, a1: np.ndarray, a0: np.ndarray, steps: int = 2) -> np.ndarray:
    """Return the root y after Newton steps, which are taken only where they reduce the residual of the cubic."""
    value = ((y + a2) * y + a1) * y + a0
    for _ in range(steps):
        slope = (3 * y + 2 * a2) * y + a1
        with np.errstate(invalid="ignore", over="ignore"):  # a step that is not finite is not taken
            new = y - value / np.where(slope == 0, 1.0, slope)
            new_value = ((new + a2) * new + a1) * new + a0
        better = np.abs(new_value) < np.abs(value)
        y, value = np.where(better, new, y), np.where(better, new_value, value)
    return y

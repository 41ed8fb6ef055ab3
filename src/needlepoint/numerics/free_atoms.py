r"""Free convolution of finitely many atoms with a semicircle, by subordination.

The resolvent of the sum at $x$ is the resolvent of the atoms at another point $w(x)$, in or on the edge of the upper
half plane, with $w + \delta^2G_0(w) = x$. Integrals over the spectrum are contour integrals from $w$.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.numerics.freeprob import Complex, FreeSum, Truncated, from_integrals
from needlepoint.numerics.gaussian import legendre_rule


@dataclass(frozen=True)
class FreeAtomsAccuracy:
    """The numbers that steer the roots and contour integrals of a law of atoms, set by hand."""

    at_once: int = 2_000_000
    """Complex numbers in memory at once (32 MB)."""

    rough: int = 3
    """First steps, by the plain map, before Newton's method."""

    newton: int = 40
    """Most steps of Newton's method."""

    halvings: int = 54
    """Steps of bisection, which leave rounding."""

    heights: int = 30
    """Most steps to the height of the curve above a point."""

    segment: int = 16
    """Gauss nodes of the path's first part, next to w."""

    panel: int = 12
    """Gauss nodes of each panel of the ray."""

    arc: int = 32
    """Gauss nodes of the quarter circle."""

    almost: float = 30.0
    """How far above 1/delta^2, as a factor, the sum over atoms may be where the density still dips."""

    stretch: float = 1.5
    """The distance to w grows by a factor exp(stretch) along a panel, at most."""


ACCURACY = FreeAtomsAccuracy()


class Atoms(FreeSum):
    """The law of eigenvalues `values` with `weights` that sum to one (equal ones if None). A weight of zero is a single
    eigenvalue among infinitely many: it adds nothing to the law but may lie outside of it (`outliers`)."""

    def __init__(
        self, values: Sequence[float] | np.ndarray, weights: Sequence[float] | np.ndarray | None = None
    ) -> None:
        values = np.asarray(values, dtype=float)
        weights = np.full(values.shape, 1.0 / values.size) if weights is None else np.asarray(weights, dtype=float)
        self.spikes = np.unique(values[weights == 0])
        self.s, place = np.unique(values[weights > 0], return_inverse=True)
        self.a = np.bincount(place, weights[weights > 0])
        self.mean, self.square = float(self.a @ self.s), float(self.a @ self.s**2)

    # --- the atoms' own resolvent -----------------------------------------------------------------

    def _sums(self, w: Complex) -> tuple[Complex, Complex]:
        """Return G0 and its derivative at points of any shape."""
        inverse = 1.0 / (w[..., None] - self.s)
        return inverse @ self.a, -(inverse**2) @ self.a

    def _spread(self, u: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums over atoms of a / ((u - s)^2 + square) and of a / ((u - s)^2 + square)^2."""
        inverse = 1.0 / ((u[..., None] - self.s) ** 2 + square[..., None])
        return inverse @ self.a, inverse**2 @ self.a

    # --- where the subordination function is ------------------------------------------------------

    def subordinate(self, x: np.ndarray | float, delta: np.ndarray | float) -> Complex:
        r"""eq:subordination. Return the root $w$ of $w + \delta^2G_0(w) = x$ with $\mathrm{Im}\,w > 0$, in the shape of
        x; outside the support there is none, and it is the real root that continues those inside."""
        x, delta = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(delta, dtype=float))
        flat = self._in_chunks(self._subordinate, x.ravel(), delta.ravel(), per_point=self.s.size)
        return flat[0].reshape(x.shape)

    def _in_chunks(self, function, *points: np.ndarray, per_point: int) -> list[np.ndarray]:
        size = max(1, ACCURACY.at_once // per_point)
        parts = [function(*(p[i : i + size] for p in points)) for i in range(0, points[0].size, size)]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _subordinate(self, x: np.ndarray, delta: np.ndarray) -> tuple[Complex]:
        t = delta * delta
        w = x + 1j * delta
        for _ in range(ACCURACY.rough):
            w = (w + x - t * self._sums(w)[0]) / 2
        G, slope = self._sums(w)
        value, reach = w + t * G - x, np.ones_like(x)
        tiny = 4e-15 * (np.abs(x) + delta)
        for _ in range(ACCURACY.newton):
            new = w - reach * value / (1 + t * slope)
            new = np.where(np.imag(new) > 0, new, new.real + 0.1j * np.imag(w))
            new_G, new_slope = self._sums(new)
            new_value = new + t * new_G - x
            better = np.abs(new_value) < np.abs(value)
            w, value, slope = (
                np.where(better, new, w),
                np.where(better, new_value, value),
                np.where(better, new_slope, slope),
            )
            reach = np.where(better, np.minimum(1.0, 2 * reach), reach / 4)
            if np.all((np.abs(value) <= tiny) | (reach < 1e-9)):
                break
        # near the real axis x is outside the support, or so close to its edge that Newton's method is not reliable
        lost = np.nonzero((np.abs(value) > 1e3 * tiny) | (np.imag(w) < 1e-4 * delta))[0]
        if lost.size:
            w[lost] = self._on_the_curve(x[lost], delta[lost])
        return (w,)

    def _height(self, u: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return v^2 >= 0 with sum a / ((u - s)^2 + v^2) = 1/t, or 0 where the sum is below 1/t already, shaped like u:
        by Newton's method on the inverse of the sum, which is concave and rises, from below."""
        gap = (u[..., None] - self.s) ** 2
        square = np.maximum(0.0, np.max(t[..., None] * self.a - gap, axis=-1))
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(ACCURACY.heights):
                f, f2 = self._spread(u, square)
                step = np.where(np.isfinite(f) & (f * t > 1), (t - 1 / f) * f * f / f2, 0.0)
                square = square + step
                if np.all(step <= 1e-16 * square):
                    break
        return square

    def _on_the_curve(self, x: np.ndarray, delta: np.ndarray) -> Complex:
        """Return w = u + i v(u) at which the curve of `_height` reaches x, in the shape of x.

        x(u) rises along the curve, so that bounds on u enclose one root: secant steps, and every third step a
        bisection.
        """
        t, low, high = delta * delta, x - delta, x + delta
        below, above = -np.ones_like(x), np.ones_like(x)
        narrow = 4 * np.spacing(np.abs(x) + delta)
        u, square = x, x
        for i in range(3 * ACCURACY.halvings):
            with np.errstate(divide="ignore", invalid="ignore"):
                secant = high - above * (high - low) / (above - below)
                u = np.where((secant > low) & (secant < high) & (i % 3 < 2), secant, (low + high) / 2)
                square = self._height(u, t)
                away = u[:, None] - self.s
                gap = u + t * ((away / (away**2 + square[:, None])) @ self.a) - x
            right = gap > 0
            low, high = np.where(right, low, u), np.where(right, u, high)
            below, above = np.where(right, below, gap), np.where(right, gap, above)
            if np.all((high - low <= narrow) | (np.abs(gap) <= narrow)):
                break
        return u + 1j * np.sqrt(square)

    def resolvent(self, x: np.ndarray | float, delta: np.ndarray | float) -> Complex:
        return self._sums(self.subordinate(x, delta))[0]

    # --- integrals --------------------------------------------------------------------------------

    def truncated(self, delta: np.ndarray | float, eps: np.ndarray | float) -> Truncated:
        r"""eq:atoms-truncated. Return the truncated moments, by the integrals $I_{jk}$ with $g = G_0(w)$, $z = w +
        \delta^2G_0(w)$ and $dg = G_0'(w)dw$ along a path from $w(\epsilon)$ over the atoms to the real axis right of
        them.

        It goes straight up by the distance to the nearest atom, further up in panels that grow with the distance, and
        down a quarter circle. The overlap has $\frac12(z - \epsilon)^2$ and $\sum_ia_is_i/(w - s_i)$ in place of $g$.
        """
        delta, eps = np.broadcast_arrays(np.asarray(delta, dtype=float), np.asarray(eps, dtype=float))
        w = self.subordinate(eps, delta).ravel()
        panels = self._panels(w)
        nodes = ACCURACY.segment + ACCURACY.panel * panels + ACCURACY.arc
        found = self._in_chunks(
            functools.partial(self._along_the_path, panels),
            w,
            delta.ravel(),
            eps.ravel(),
            per_point=self.s.size * nodes,
        )
        return from_integrals(delta, [x.reshape(delta.shape) for x in found])

    def _panels(self, w: Complex) -> int:
        near = np.array([np.min(np.abs(x - self.s)) for x in w])
        far = np.maximum(np.abs(w - self.s[0]), np.abs(w - self.s[-1]))
        return int(np.ceil(np.max(np.log(2 * far / near)) / ACCURACY.stretch))

    def _along_the_path(self, panels: int, w: Complex, delta: np.ndarray, eps: np.ndarray) -> tuple[np.ndarray, ...]:
        distance = np.abs(w[:, None] - self.s)
        near, far = distance.min(axis=1), 2 * distance.max(axis=1)
        t, dt = legendre_rule(ACCURACY.segment)
        points, steps = [w[:, None] + 1j * near[:, None] * t], [1j * near[:, None] * dt * np.ones_like(w)[:, None]]
        t, dt = legendre_rule(ACCURACY.panel)
        grow = (np.log(far / near) / panels)[:, None]
        for i in range(panels):
            up = near[:, None] * np.exp(grow * (i + t))
            points.append(w[:, None] + 1j * up)
            steps.append(1j * up * grow * dt)
        t, dt = legendre_rule(ACCURACY.arc)
        radius = (far + w.imag)[:, None] * np.exp(0.5j * np.pi * (1 - t))
        points.append(w.real[:, None] + radius)
        steps.append(radius * (-0.5j * np.pi * dt))
        path, dw = np.concatenate(points, axis=1), np.concatenate(steps, axis=1)
        inverse = 1.0 / (path[..., None] - self.s)
        g, squares = inverse @ self.a, inverse**2 @ np.stack([self.a, self.a * self.s], axis=1)
        dg, tilted = np.moveaxis(-squares * dw[..., None], -1, 0)
        z = path + (delta**2)[:, None] * g - eps[:, None]

        def integral(integrand: Complex, d: Complex) -> np.ndarray:
            return np.sum((integrand * d).imag, axis=1) / np.pi

        moments = (integral(f, dg) for f in (z, g * z, g * g * z, z**2, g * z**2, z**3))
        return (*moments, integral(z**2, tilted) / 2)

    # --- the support ------------------------------------------------------------------------------

    def support(self, delta: float) -> np.ndarray:
        r"""eq:atoms-support. Return the images (pieces, 2) of the intervals on which $\sum_ia_i/(u - s_i)^2 >
        1/\delta^2$."""
        t, s = delta * delta, self.s
        place, lowest = self._valleys(t, 1.0)
        kept = (1.0 / (lowest[:, None] - s)) ** 2 @ self.a * t < 1
        place, lowest = place[kept], lowest[kept]
        inside = np.concatenate([s[place], s[place + 1], s[:1], s[-1:]])
        outside = np.concatenate([lowest, lowest, s[:1] - 1.01 * delta, s[-1:] + 1.01 * delta])
        for _ in range(ACCURACY.halvings):
            u = (inside + outside) / 2
            with np.errstate(divide="ignore"):
                dense = (1.0 / (u[:, None] - s)) ** 2 @ self.a * t > 1
            inside, outside = np.where(dense, u, inside), np.where(dense, outside, u)
        edges = np.sort(outside + t * ((1.0 / (outside[:, None] - s)) @ self.a))
        return edges.reshape(-1, 2)

    def cuts(self, delta: float) -> np.ndarray:
        """Return where the density dips between atoms whose pieces have almost separated."""
        t = delta * delta
        u = self._valleys(t, ACCURACY.almost)[1]
        w = u + 1j * np.sqrt(self._height(u, np.full(u.shape, t)))
        return np.sort((w + t * self._sums(w)[0]).real)

    def _valleys(self, t: float, slack: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of atoms whose own and right neighbour's part of sum a / (u - s)^2 falls below slack/t
        between them, and the lowest point of the whole sum there."""
        s = self.s
        place = np.nonzero((np.cbrt(self.a[1:]) + np.cbrt(self.a[:-1])) ** 3 * t < slack * np.diff(s) ** 2)[0]
        low, high = s[place], s[place + 1]
        for _ in range(ACCURACY.halvings):  # the sum is convex between two atoms
            u = (low + high) / 2
            falls = (1.0 / (u[:, None] - s)) ** 3 @ self.a > 0
            low, high = np.where(falls, u, low), np.where(falls, high, u)
        return place, (low + high) / 2

    def outliers(self, delta: float) -> np.ndarray:
        r"""eq:outliers. Return where single eigenvalues $s$ lie outside of the law: $s + \delta^2G_0(s)$ if
        $\delta^2\sum_ia_i/(s - s_i)^2 < 1$."""
        away = self.spikes[:, None] - self.s
        with np.errstate(divide="ignore"):
            free = (1.0 / away) ** 2 @ self.a * delta**2 < 1
        return self.spikes[free] + delta**2 * ((1.0 / away[free]) @ self.a)

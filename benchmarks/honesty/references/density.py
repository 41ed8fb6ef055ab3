"""The law of S0 + delta Z by Biane's curve: its density at x(u) is v(u) / (pi delta^2), where
int s0(ds) / ((u - s)^2 + v^2) = 1 / delta^2 and x(u) = u + delta^2 Re G0(u + i v). The library goes by roots of the
resolvent's equation and contours; here every mean is a plain integral over the density."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from benchmarks.honesty.references.panels import panels, root
from scipy import optimize

import needlepoint as ndl


class Target:
    """A law s0: the pieces that its eigenvalues lie on, and its resolvent with one derivative."""

    def __init__(self, target: Any):
        self.wishart = isinstance(target, ndl.Wishart)
        if self.wishart:
            self.k = target.rank_ratio
            self.b = math.sqrt(self.k)
            self.low, self.high = (1 - self.b) ** 2 / self.b, (1 + self.b) ** 2 / self.b
            self.square = 1 + self.k
            self.pieces = [(0.0, 0.0), (self.low, self.high)] if self.k < 1 else [(self.low, self.high)]
            self.alike = max(0.0, 1 - self.k) ** 2  # the chance that two eigenvalues are equal
        else:
            values = np.asarray(target.eigenvalues(), dtype=float)
            weights = getattr(target, "weights", None)
            a = np.full(len(values), 1 / len(values)) if weights is None else np.asarray(weights, dtype=float)
            order = np.argsort(values)
            self.s, self.a = values[order][a[order] > 0], a[order][a[order] > 0]
            self.square = float(self.a @ self.s**2)
            self.pieces = [(x, x) for x in np.unique(self.s)]
            self.alike = sum(float(self.a[self.s == x].sum()) ** 2 for x, _ in self.pieces)

    def resolvent(self, w: np.ndarray) -> np.ndarray:
        if not self.wishart:
            return np.sum(self.a / (w[..., None] - self.s), axis=-1)
        root = np.sqrt(w - self.low) * np.sqrt(w - self.high)
        if not np.iscomplexobj(w):
            raise TypeError("the resolvent is asked for at complex points")
        b, k = self.b, self.k
        # of the two forms of the root the one without cancellation
        plain = w * b + 1 - k
        minus, plus = plain - b * root, plain + b * root
        return np.where(np.abs(minus) > np.abs(plus) * 0.1, minus / (2 * w), 2 * b / plus)

    def slope(self, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        if not self.wishart:
            return -np.sum(self.a / (w[..., None] - self.s) ** 2, axis=-1)
        return 1 / (-1 / g**2 + self.k / (self.b - g) ** 2)

    def crowd(self, u: float) -> float:
        """int s0(ds) / (u - s)^2 off the pieces."""
        w = np.array([u + 1e-30j])
        return float(-np.real(self.slope(w, self.resolvent(w)))[0])


class Nodes(NamedTuple):
    x: np.ndarray
    mass: np.ndarray  # density times dx
    density: np.ndarray
    hilbert: np.ndarray  # Re g(x)


def intervals(law: Target, delta: float) -> list[tuple[float, float]]:
    """Of u, where the sum has a density."""
    level, ends = 1 / delta**2, []

    def gap(u: float) -> float:
        return law.crowd(u) - level

    def edge(a: float, b: float) -> float:
        for end in (a, b):
            if gap(a) * gap(b) > 0 and any(
                abs(end - x) < 1e-12 * max(1.0, abs(x)) for piece in law.pieces for x in piece
            ):
                return end  # the noise is too small to move this edge by more than rounding
        return root(gap, a, b, 1e-15 * max(1.0, abs(a), abs(b)))

    def close(point: float, side: float) -> float:
        """A number just beside a piece at which the crowd is above the level."""
        step = delta * 1e-6
        while gap(point + side * step) < 0:
            step /= 10
            if step < 1e-14 * max(1.0, abs(point)):
                break
        return point + side * step

    first, last = law.pieces[0][0], law.pieces[-1][1]
    ends.append(edge(first - 1.001 * delta, close(first, -1)))
    for (_, a), (b, _) in zip(law.pieces[:-1], law.pieces[1:], strict=True):
        low, high = close(a, 1), close(b, -1)
        if low >= high:
            continue
        best: Any = optimize.minimize_scalar(
            gap, bounds=(low, high), method="bounded", options={"xatol": 1e-12 * (b - a)}
        )
        if best.fun < 0:
            ends += [edge(low, float(best.x)), edge(float(best.x), high)]
    ends.append(edge(close(last, 1), last + 1.001 * delta))
    return list(zip(ends[::2], ends[1::2], strict=True))


def heights(law: Target, delta: float, u: np.ndarray) -> np.ndarray:
    """v on the curve, by halving its logarithm and Newton's method at the end."""
    low, high = np.full(u.shape, math.log(delta) - 40.0), np.full(u.shape, math.log(delta) + 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        v = np.exp(middle)
        above = -np.imag(law.resolvent(u + 1j * v)) / v > 1 / delta**2
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp((low + high) / 2)


def curve(law: Target, delta: float, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, density, Re g and dx/du."""
    v = heights(law, delta, u)
    w = u + 1j * v
    g = law.resolvent(w)
    h = 1 + delta**2 * law.slope(w, g)
    along = np.real(g)
    return u + delta**2 * along, v / (math.pi * delta**2), along, np.abs(h) ** 2 / np.maximum(np.real(h), 1e-300)


def nodes(law: Target, delta: float, cut: float | None = None, n: int = 60) -> Nodes:
    """The whole law, or what is above the cut; angles on each interval, several panels of each."""
    parts = []
    for a, b in intervals(law, delta):
        start = -math.pi / 2
        if cut is not None:

            def place(t: float, a: float = a, b: float = b) -> float:
                u = np.array([(a + b) / 2 + (b - a) / 2 * math.sin(t)])
                return float(curve(law, delta, u)[0][0]) - cut

            if place(math.pi / 2 - 1e-9) <= 0:
                continue
            if place(-math.pi / 2 + 1e-9) < 0:
                start = root(place, -math.pi / 2 + 1e-9, math.pi / 2 - 1e-9, 1e-15)
        t, w = graded(start, math.pi / 2, between(law, a, b), n)
        u = (a + b) / 2 + (b - a) / 2 * np.sin(t)
        x, density, hilbert, slope = curve(law, delta, u)
        dx = slope * (b - a) / 2 * np.cos(t) * w
        parts.append((x, density * dx, density, hilbert))
    if not parts:
        return Nodes(*(np.zeros(0) for _ in range(4)))
    return Nodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def between(law: Target, a: float, b: float) -> np.ndarray:
    """Angles of the atoms inside an interval of u and of the places half way between them: the curve bends there."""
    inside = np.array([x for x, y in law.pieces if x == y and a < x < b])
    if len(inside) < 2:
        return np.zeros(0)
    points = np.concatenate([inside, (inside[1:] + inside[:-1]) / 2])
    return np.arcsin(np.clip((2 * points - a - b) / (b - a), -1.0, 1.0))


def graded(start: float, end: float, inner: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Panels that shrink towards both ends, and end at the inner points."""
    shares = np.array([0, 1e-4, 1e-3, 1e-2, 0.06, 0.2, 0.5, 0.8, 0.94, 0.99, 0.999, 0.9999, 1.0])
    ends = np.unique(np.concatenate([start + (end - start) * shares, inner[(inner > start) & (inner < end)]]))
    return panels(ends, n)


class Truncated(NamedTuple):
    J: float
    d1: float  # by delta
    d2: float  # by the cut
    above: float


def truncated(law: Target, delta: float, cut: float, n: int = 40) -> Truncated:
    """J = int (x - cut)_+^2 and its derivatives; by delta it is 4 delta int (x - cut)_+ Re g, which follows from
    d/d delta tr f(S0 + delta Z) = delta int int (f'(x) - f'(y)) / (x - y)."""
    at = nodes(law, delta, cut, n)
    over = at.x - cut
    return Truncated(
        float(at.mass @ over**2),
        4 * delta * float(at.mass @ (over * at.hilbert)),
        -2 * float(at.mass @ over),
        float(at.mass.sum()),
    )


def cube(law: Target, delta: float, n: int = 40) -> float:
    """int density^3."""
    at = nodes(law, delta, None, n)
    return float(at.mass @ at.density**2)

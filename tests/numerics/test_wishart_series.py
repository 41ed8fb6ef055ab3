"""Wishart targets in wide noise, where the closed forms cancel, against many digits."""

import itertools
import math

import mpmath
import pytest

from needlepoint.numerics.free_atoms import Atoms
from needlepoint.numerics.freeprob import MarchenkoPastur

FEW = Atoms([0.0, 1.0, 3.0], [0.5, 0.3, 0.2])


def in_many_digits(k, delta, eps):
    """J, its derivative by delta and the overlap with the target, by the closed forms of eq:wishart-truncated in 80
    digits, where nothing that cancels is lost."""
    with mpmath.workdps(80):
        k, delta, e = (mpmath.mpf(x) for x in (k, delta, eps))
        b, t = mpmath.sqrt(k), delta**2
        g = mpmath.mpmathify(complex(MarchenkoPastur(float(k)).resolvent(float(e), float(delta))))
        inside = g.imag < 0
        g = g if inside else g.real
        for _ in range(8):  # Newton's method doubles the digits of eq:wishart-resolvent
            g -= (((t * g - t * b - e) * g + 1 - k + e * b) * g - b) / (
                (3 * t * g - 2 * (t * b + e)) * g + 1 - k + e * b
            )

        def integral(j, power):
            """Of g^j (z - e)^power from g to 0, along a path that leaves g downwards: by parts in partial fractions."""
            total = mpmath.mpf(0)
            for i1, i2, i3, i4 in itertools.product(range(power + 1), repeat=4):
                if i1 + i2 + i3 + i4 == power:
                    times = mpmath.factorial(power)
                    for i in (i1, i2, i3, i4):
                        times /= mpmath.factorial(i)
                    total += times * k**i2 * t**i3 * (-e) ** i4 * primitive(j - i1 + i3, i2)
            return -total / mpmath.pi

        def primitive(p, n):
            """The imaginary part of the integral of g^p / (b - g)^n."""
            if n == 0:
                return angle if p == -1 else (g ** (p + 1)).imag / (p + 1)
            if p < 0:  # 1 / (g u) = (1/g + 1/u) / b
                return (primitive(p, n - 1) + primitive(p + 1, n)) / b
            if p > 0:  # g = b - u
                return b * primitive(p - 1, n) - primitive(p - 1, n - 1)
            return -other if n == 1 else (1 / (n - 1) / (b - g) ** (n - 1)).imag

        angle = mpmath.arg(g) if inside else -mpmath.pi if g < 0 else mpmath.mpf(0)
        other = -mpmath.arg(1 / (b - g)) if inside else mpmath.pi if g > b else mpmath.mpf(0)
        J, d1, d2 = integral(0, 3) / 3, 2 * delta * integral(1, 2), -integral(0, 2)
        return float(J), float(d1), float(J - delta * d1 / 2 - e * d2 / 2)


@pytest.mark.exact
@pytest.mark.parametrize("k", [1e-6, 0.5, 7.0, 1e6])
@pytest.mark.parametrize("delta", [1e-3, 0.7, 30.0, 1e6, 1e9])
def test_wishart_integrals_keep_their_digits_in_wide_noise(k, delta):
    """The closed forms alone lose all of them: J was off by a factor of 250 at k = 1e6, delta = 1e9."""
    law = MarchenkoPastur(k)
    for place in (0.0, 0.3, -0.5):
        eps = place * (math.sqrt(k) + 2 * delta)
        J, d1, overlap = in_many_digits(k, delta, eps)
        found = law.truncated(delta, eps)
        assert pytest.approx(J, rel=1e-13) == found.J
        assert found.d1 == pytest.approx(d1, rel=1e-12, abs=1e-13 * J / delta)
        assert found.overlap == pytest.approx(overlap, rel=1e-13)


@pytest.mark.exact
def test_the_overlap_with_the_target_is_what_the_derivatives_say():
    """Where their difference keeps its digits; for lists and for Wishart targets, on both sides of the series."""
    for law in (FEW, MarchenkoPastur(0.5), MarchenkoPastur(30.0)):
        for delta in (0.05, 0.4, 1.0, 4.0):
            for eps in (-1.0, 0.0, 0.5, 1.5):
                at = law.truncated(delta, eps)
                assert at.overlap == pytest.approx(at.J - delta * at.d1 / 2 - eps * at.d2 / 2, rel=1e-12)

"""Free convolution with a semicircle: closed form, contour integrals, densities and random matrices."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from needlepoint.numerics.free_atoms import Atoms
from needlepoint.numerics.freeprob import MarchenkoPastur, Truncated

from reference_values import reference_values

REFERENCE = reference_values("attention-indexed")["values"]
NAMES = {"J": "J", "d1J": "d1", "d2J": "d2", "d11J": "d11", "d12J": "d12", "mass_above": "above"}
RATIOS = [0.05, 0.3, 0.9, 1.0, 1.1, 3.0]
FEW = Atoms([0.0, 1.0, 3.0], [0.5, 0.3, 0.2])
POWER = Atoms(math.sqrt(1000) / np.arange(1, 1001))


@pytest.mark.paper
@pytest.mark.parametrize("case", [v for v in REFERENCE if v["name"].startswith("J_")], ids=lambda v: str(v["id"]))
def test_reference_values(case):
    law = POWER if "power" in case["name"] else MarchenkoPastur(case["inputs"]["kappa0"])
    found = law.truncated(case["inputs"]["delta"], case["inputs"]["eps"])
    for name, value in case["outputs"].items():
        assert abs(getattr(found, NAMES[name]) - value) <= case["tol"] * max(1.0, abs(value))


@pytest.mark.paper
def test_reference_edges():
    (case,) = (v for v in REFERENCE if v["name"] == "edges")
    found = MarchenkoPastur(case["inputs"]["kappa0"]).support(case["inputs"]["delta"])
    np.testing.assert_allclose(found, [[case["outputs"]["e0"], case["outputs"]["e1"]]], atol=case["tol"])


# --- the law itself -----------------------------------------------------------------------------


@pytest.mark.quadrature
@pytest.mark.parametrize("delta", [1e-4, 1e-2, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_density_has_the_moments_of_the_sum(ratio, delta):
    law = MarchenkoPastur(ratio)
    nodes = law.nodes(delta)
    b, t = math.sqrt(ratio), delta**2
    third = b * (1 + 3 * ratio + ratio**2) / ratio + 3 * t * b  # free cumulants add up
    for power, moment in enumerate((1.0, b, 1 + ratio + t, third)):
        assert nodes.mass @ nodes.x**power == pytest.approx(moment, rel=1e-11, abs=1e-11)


@pytest.mark.quadrature
@pytest.mark.parametrize(("law", "deltas"), [(FEW, (0.05, 0.4, 0.8, 3.0)), (POWER, (0.5, 2.0))], ids=["few", "power"])
def test_the_density_of_atoms_has_the_moments_of_the_sum(law, deltas):
    for delta in deltas:
        nodes = law.nodes(delta)
        for power, moment in enumerate((1.0, law.mean, law.square + delta**2)):
            assert nodes.mass @ nodes.x**power == pytest.approx(moment, rel=1e-9)


def by_adaptive_integration(law, delta, eps):
    """J, d2 and the mass above eps, panel by panel."""
    found = np.zeros(3)
    for low, high in law.panels(delta):
        low = max(low, eps)
        if low < high:
            centre, half = (low + high) / 2, (high - low) / 2

            def integrand(angle, power, centre=centre, half=half):
                x = centre - half * math.cos(angle)
                return (x - eps) ** power * float(law.density(x, delta)) * half * math.sin(angle)

            found += [
                integrate.quad(integrand, 0, math.pi, (p,), epsabs=1e-12, epsrel=1e-12, limit=200)[0] for p in (2, 1, 0)
            ]
    return found * np.array([1.0, -2.0, 1.0])


@pytest.mark.quadrature
@pytest.mark.parametrize("delta", [0.02, 0.5, 3.0])
@pytest.mark.parametrize(
    "law", [MarchenkoPastur(r) for r in (0.1, 1.0, 2.0)] + [FEW], ids=["rank .1", "square", "rank 2", "atoms"]
)
def test_truncated_moments_by_adaptive_integration(law, delta):
    (low, high) = law.support(delta)[[0, -1], [0, 1]]
    for eps in (low + 0.2 * (high - low), low + 0.6 * (high - low)):
        found = law.truncated(delta, eps)
        expected = by_adaptive_integration(law, delta, eps)
        np.testing.assert_allclose([found.J, found.d2, found.above], expected, rtol=1e-9, atol=1e-10)


DERIVATIVES = [("J", "d1", 0), ("J", "d2", 1), ("d1", "d11", 0), ("d1", "d12", 1), ("d2", "d12", 0), ("d2", "d22", 1)]


@pytest.mark.exact
@settings(deadline=None, max_examples=60)
@given(
    ratio=st.floats(0.05, 3.0),
    delta=st.floats(0.05, 5.0),
    place=st.floats(-0.2, 1.1),
    atoms=st.booleans(),
)
def test_derivatives_by_difference_quotients(ratio, delta, place, atoms):
    law = FEW if atoms else MarchenkoPastur(ratio)
    (low, high) = law.support(delta)[[0, -1], [0, 1]]
    eps, h = low + place * (high - low), 1e-5
    here = law.truncated(delta, eps)
    for of, by, axis in DERIVATIVES:
        ends = [law.truncated(delta + s * h * (axis == 0), eps + s * h * (axis == 1)) for s in (1, -1)]
        quotient = (getattr(ends[0], of) - getattr(ends[1], of)) / (2 * h)
        # at the edges of pieces the second derivatives have infinite slopes
        scale = 1 + abs(quotient)
        assert abs(quotient - getattr(here, by)) < (1e-7 if of == "J" else 1e-3) * scale


@pytest.mark.exact
def test_outside_the_support_everything_is_elementary():
    for law in (MarchenkoPastur(0.3), FEW):
        for delta in (0.1, 1.0):
            pieces = law.support(delta)
            below, above = law.truncated(delta, pieces[0, 0] - 0.5), law.truncated(delta, pieces[-1, 1] + 0.5)
            e = pieces[0, 0] - 0.5
            square = law.square + delta**2 - 2 * e * law.mean + e * e
            expected = Truncated(square, 2 * delta, 2 * (e - law.mean), 2.0, 0.0, 2.0, 1.0, law.square - e * law.mean)
            np.testing.assert_allclose(below, expected, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(above, np.zeros(8), atol=1e-10)


@pytest.mark.exact
def test_a_rule_for_the_wishart_law_has_its_integrals():
    """Gauss-Chebyshev points of the law and the atom at zero, noisy enough not to see single points."""
    k, n = 0.5, 200
    b, i = math.sqrt(k), np.arange(1, n + 1)
    low, high = (1 - b) ** 2 / b, (1 + b) ** 2 / b
    angle = i * np.pi / (n + 1)
    x = (high + low) / 2 + (high - low) / 2 * np.cos(angle)
    weights = (high - low) ** 2 / 4 * np.pi / (n + 1) * np.sin(angle) ** 2 * b / (2 * np.pi * x)
    rule = Atoms(np.r_[0.0, x], np.r_[1 - k, weights])
    delta, eps = (m.ravel() for m in np.meshgrid([1.0, 1.5, 4.0], [-1.0, 0.3, 1.5, 4.0]))
    for mine, theirs in zip(rule.truncated(delta, eps), MarchenkoPastur(k).truncated(delta, eps), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.negative
def test_another_rank_is_not_mistaken_for_this_one():
    mine, other = (MarchenkoPastur(k).truncated(1.0, 0.3).J for k in (0.5, 0.501))
    assert abs(mine - other) > 1e-4


@pytest.mark.exact
def test_subordination_holds_on_and_off_the_support():
    rng = np.random.default_rng(0)
    delta, x = np.exp(rng.uniform(-4, 1.5, 300)), rng.uniform(-3, 6, 300)
    w = FEW.subordinate(x, delta)
    assert np.all(w.imag >= 0)
    assert np.max(np.abs(w + delta**2 * ((1 / (w[:, None] - FEW.s)) @ FEW.a) - x) / (1 + np.abs(x))) < 1e-12
    # on the support the density is positive, off it zero
    inside = np.array(
        [np.any((FEW.support(t)[:, 0] < y) & (y < FEW.support(t)[:, 1])) for t, y in zip(delta, x, strict=True)]
    )
    np.testing.assert_array_equal(w.imag > 1e-7, inside)


@pytest.mark.exact
def test_quantiles_invert_the_distribution():
    p = (np.arange(300) + 0.5) / 300
    for law, delta in ((MarchenkoPastur(0.2), 0.2), (MarchenkoPastur(1.0), 0.05), (FEW, 0.3), (FEW, 1.0)):
        found = law.quantiles(p, delta)
        assert np.all(np.diff(found) > 0)
        np.testing.assert_allclose(law.distribution(found, delta), p, atol=2e-5)


@pytest.mark.exact
def test_an_atom_of_weight_zero_is_an_outlier_or_nothing():
    law = Atoms([0.0, 2.5, 0.5], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(law.outliers(1.0), [2.5 + 1 / 2.5])  # Baik, Ben Arous and Péché on the semicircle
    np.testing.assert_allclose(law.support(1.0), [[-2.0, 2.0]], atol=1e-12)
    np.testing.assert_allclose(law.truncated(1.0, 0.0).J, 0.5, rtol=1e-12)


# --- random matrices ------------------------------------------------------------------------------


def eigenvalues(values, delta, rng):
    d = len(values)
    noise = rng.standard_normal((d, d)) / math.sqrt(2 * d)
    return np.linalg.eigvalsh(np.diag(values) + delta * (noise + noise.T))


@pytest.mark.montecarlo
@pytest.mark.parametrize("delta", [0.2, 1.0])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0])
def test_eigenvalues_of_random_matrices(ratio, delta):
    d, repeats, eps = 300, 16, 0.4
    rng = np.random.default_rng(int(100 * ratio + delta))
    law = MarchenkoPastur(ratio)
    sorted_, sums = [], []
    for _ in range(repeats):
        W = rng.standard_normal((d, round(ratio * d)))
        found = eigenvalues(np.linalg.eigvalsh(W @ W.T / math.sqrt(W.shape[1] * d)), delta, rng)
        sorted_.append(found)
        sums.append([np.mean(np.maximum(found - eps, 0) ** 2), np.mean(found > eps)])
    expected = law.truncated(delta, eps)
    mean, error = np.mean(sums, axis=0), np.std(sums, axis=0, ddof=1) / math.sqrt(repeats)
    assert np.all(error < 0.01 * mean)
    # fluctuations of eigenvalue sums are of order 1/d, and so is their bias
    for value, measured, spread in zip((expected.J, expected.above), mean, error, strict=True):
        assert abs(measured - value) < 4 * spread + 3 / d
    quantiles = law.quantiles((np.arange(d) + 0.5) / d, delta)
    gaps = np.abs(np.mean(sorted_, axis=0) - quantiles)
    assert np.mean(gaps) < 0.01 * np.ptp(quantiles)
    # the law of another noise is refuted
    other = law.quantiles((np.arange(d) + 0.5) / d, 1.2 * delta)
    assert np.mean(np.abs(np.mean(sorted_, axis=0) - other)) > 2 * np.mean(gaps)

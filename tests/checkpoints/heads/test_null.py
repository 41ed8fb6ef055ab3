"""The product null: reference values, sampling, planted spikes, false positives."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.heads import tracy_widom
from needlepoint.checkpoints.heads.null import ProductNull, null_draws
from needlepoint.checkpoints.heads.report import compare_with_null

from checkpoint_cases import real_value

SHAPES = [(32, 384), (64, 512), (64, 576), (32, 128), (32, 64)]


def planted(p, d, strengths, rng):
    """Singular values over d of A^T B + sum theta u v^T, u and v orthonormal and independent of A and B."""
    many = len(strengths)
    u, v = (np.linalg.qr(rng.standard_normal((d, many)))[0] for _ in range(2))
    left = np.concatenate([rng.standard_normal((p, d)).T, u * np.asarray(strengths) * d], axis=1)
    right = np.concatenate([rng.standard_normal((p, d)).T, v], axis=1)
    r = np.linalg.qr(left, mode="r") @ np.linalg.qr(right, mode="r").T
    return np.linalg.svd(r, compute_uv=False) / d


@pytest.mark.paper
def test_reference_values():
    for p, d in ((32, 384), (64, 512)):
        want, tol = real_value(f"null edges s/d at ({p},{d})")
        np.testing.assert_allclose(ProductNull(p, d).edges, want, atol=tol)
    want, tol = real_value("null 99 % level of s1/d")
    got = [ProductNull(p, d).level(0.99) for p, d in ((32, 384), (64, 512), (64, 576), (32, 64))]
    np.testing.assert_allclose(got, want, atol=tol)
    null = ProductNull(32, 384)
    want, tol = real_value("null quantile s_1, s_17, s_32")
    np.testing.assert_allclose(null.values[[0, 16, 31]], want, atol=tol)
    want, tol = real_value("spike threshold")
    assert null.spike_threshold == pytest.approx(want, abs=tol)
    want, tol = real_value("spike size")
    assert float(null.spike(1.7)) == pytest.approx(want, abs=tol)


@pytest.mark.paper
def test_tracy_widom_quantiles():
    """Bejan's table (2005), printed to four digits."""
    for level, value in ((0.90, 0.4501), (0.95, 0.9793), (0.99, 2.0234), (0.995, 2.4224), (0.999, 3.2724)):
        assert tracy_widom.quantile(level) == pytest.approx(value, abs=3e-4)
    with pytest.raises(ndl.InvalidParameter, match="probability from"):
        tracy_widom.quantile(1.0)


@pytest.mark.exact
@pytest.mark.parametrize(("p", "d"), SHAPES)
def test_the_density_is_that_of_a_polynomial_root(p, d):
    """Mass one, mean one, and the imaginary part of a root found by another routine."""
    null = ProductNull(p, d)
    low, high = (edge**2 for edge in null.edges)
    x = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, np.pi, 20001))
    density = null.density(x)
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-6)
    assert np.trapezoid(density * x, x) == pytest.approx(1.0, abs=1e-6)
    c = p / d
    for at in x[[3000, 9000, 17000]]:
        root = np.roots([c * c, c * c + 2 * c, 1 + 2 * c - at, 1.0])
        assert null.density(at) == pytest.approx(np.abs(root.imag).max() / (np.pi * at), rel=1e-8)
    assert null.density(np.array([low - 1e-3, high + 1e-3, -1.0])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.montecarlo
@pytest.mark.parametrize(("p", "d", "error"), [(32, 384, 0.008), (64, 512, 0.008), (32, 64, 0.03)])
def test_sorted_values_are_those_of_draws(p, d, error, rng):
    """The quantile rule is off by half a per cent at the top and one at the bottom, as the sheet has it."""
    mean = null_draws(p, d, 400, rng).mean(axis=0)
    np.testing.assert_allclose(ProductNull(p, d).values[: p - 2], mean[: p - 2], rtol=error)


@pytest.mark.exact
def test_draws_by_triangles_are_draws_of_the_product(rng):
    """Bartlett's factors against matrices drawn in full: means of all sorted values within five errors."""
    full = []
    for _ in range(300):
        a, b = rng.standard_normal((2, 8, 24))
        full.append(np.linalg.svd(a.T @ b, compute_uv=False)[:8] / 24)
    quick = null_draws(8, 24, 3000, rng)
    full = np.array(full)
    error = np.sqrt(full.var(axis=0) / 300 + quick.var(axis=0) / 3000)
    assert np.all(np.abs(full.mean(axis=0) - quick.mean(axis=0)) < 5 * error)


@pytest.mark.montecarlo
@pytest.mark.parametrize(("p", "d"), SHAPES)
def test_two_thousand_pure_draws_give_the_stated_rate(p, d, rng):
    """One head in a hundred has an outlier, with the scale fitted: 20 of 2,000, standard error 4.4."""
    null, count = ProductNull(p, d), 2000
    hits = sum(bool(compare_with_null(row, null, 0.99)[2]) for row in null_draws(p, d, count, rng))
    assert abs(hits - 0.01 * count) < 3 * np.sqrt(0.01 * 0.99 * count)


@pytest.mark.negative
def test_a_level_at_the_bulk_edge_has_false_positives(rng):
    """Without the Tracy-Widom term a fifth of pure heads would have an outlier."""
    null = ProductNull(32, 384)
    draws = null_draws(32, 384, 500, rng)
    assert (draws[:, 0] / np.median(draws / null.values, axis=1) > null.edges[1]).mean() > 0.1


@pytest.mark.montecarlo
def test_planted_spikes_are_counted_and_measured(rng):
    """Spikes of 1.6, 2 and 3 (the threshold is 1.205): their number, and strengths within 3 % on average."""
    null, found = ProductNull(32, 384), []
    for _ in range(40):
        _, _, outliers = compare_with_null(planted(32, 384, (3.0, 2.0, 1.6), rng)[:32] * 384, null, 0.99)
        found.append([o.strength / 384 for o in outliers[:3]])
        assert 3 <= len(outliers) <= 4
        assert [o.subspace for o in outliers[:3]] == [0, 1, 2]
    np.testing.assert_allclose(np.mean(found, axis=0), [3.0, 2.0, 1.6], rtol=0.03)


@pytest.mark.montecarlo
def test_spikes_below_the_threshold_do_not_show(rng):
    null = ProductNull(32, 384)
    hits = [len(compare_with_null(planted(32, 384, (0.8,), rng)[:32] * 384, null, 0.99)[2]) for _ in range(40)]
    assert np.mean(hits) < 0.15
    assert np.isnan(null.spike(1.0))


@pytest.mark.montecarlo
@pytest.mark.parametrize("strength", [1.6, 3.0])
def test_equal_spikes_are_one_subspace_and_the_noise_is_right(strength, rng):
    null, tops, together = ProductNull(32, 384), [], 0
    for _ in range(60):
        values = planted(32, 384, (strength, strength), rng)
        tops.append(values[:2].sum() / np.sqrt(2))
        outliers = compare_with_null(values[:32] * 384, null, 0.99)[2]
        together += outliers[0].subspace == outliers[1].subspace
    noise = float(null.noise(np.mean(tops) / np.sqrt(2)))
    assert np.std(tops) == pytest.approx(noise, rel=0.3)  # 60 draws know it to 9 %, the formula to 15 %
    assert together > 40


def test_bad_shapes_are_refused():
    for p, d in ((0, 4), (5, 4)):
        with pytest.raises(ndl.InvalidParameter, match="0 < p <= d"):
            ProductNull(p, d)

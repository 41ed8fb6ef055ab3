"""Teachers and weights in R^d: exact Gram matrices, uniform position, and the laws of random starts."""

import numpy as np
import pytest
from scipy import stats

import needlepoint as ndl
from needlepoint.simulation.location.vectors import frames, starting_vectors, with_overlaps

EPS = np.finfo(float).eps
POINTS = {
    "general": ndl.Overlaps(0.4, 0.5, -0.3, 0.2, 0.25, 0.8, 1.3),
    "unit": ndl.Overlaps(0.4, 0.5, -0.3, 0.2, 0.25),
    "oracle": ndl.Overlaps(1.0, 1.0),
    "k = v": ndl.Overlaps(0.3, 0.4, 0.3, 0.4, 1.0),
    "k = v*": ndl.Overlaps(0.0, 0.0, 0.6, 1.0, 0.0),
    "k = 0": ndl.Overlaps(0.0, 0.5, key_sq=0.0),
    "long": ndl.Overlaps(10.0, -3.0, 1.0, 2.0, 5.0, 400.0, 100.0),
}
HOLDS = {"general": 4, "unit": 4, "oracle": 2, "k = v": 3, "k = v*": 3, "k = 0": 3, "long": 4}


def gram(vectors):
    stacked = np.stack(vectors, axis=1)
    return np.einsum("rid,rjd->rij", stacked, stacked)


def descent(start, **changes):
    return ndl.ProjectedDescent(0.1, 10, start, **changes)


@pytest.mark.exact
@pytest.mark.parametrize("extra", [0, 1, 30])
@pytest.mark.parametrize("point", POINTS)
def test_the_gram_matrix_is_exactly_the_one_asked_for(point, extra):
    o, d = POINTS[point], HOLDS[point] + extra
    vectors = with_overlaps(np.random.default_rng(0), o, 20, d)
    assert all(x.shape == (20, d) for x in vectors)
    size = max(1.0, o.key_sq, o.value_sq)
    # orthonormality of a QR frame to a few EPS, times the squared lengths
    np.testing.assert_allclose(gram(vectors), np.broadcast_to(o.gram(), (20, 4, 4)), rtol=0, atol=32 * EPS * size)
    np.testing.assert_allclose(vectors.five(), np.tile(o.five()[:, None], 20), rtol=0, atol=32 * EPS * size)


@pytest.mark.exact
@pytest.mark.parametrize("point", POINTS)
def test_too_few_dimensions_are_refused(point):
    d = HOLDS[point] - 1
    with pytest.raises(ndl.InvalidParameter, match=rf"simulate\(d={d}\): d must be >= {d + 1} to hold"):
        with_overlaps(np.random.default_rng(0), POINTS[point], 1, d)


@pytest.mark.exact
def test_vectors_in_the_plane_of_the_teachers_need_two_dimensions():
    for angle in np.linspace(0, 6, 41):
        c, s = float(np.cos(angle)), float(np.sin(angle))
        o = ndl.Overlaps(c, c, -s, s, 0.0)
        vectors = with_overlaps(np.random.default_rng(0), o, 2, 2)
        np.testing.assert_allclose(gram(vectors), np.broadcast_to(o.gram(), (2, 4, 4)), rtol=0, atol=32 * EPS)


def assert_uniform(basis):
    """Mean 0, second moments 1/d, fourth moments 3/(d(d+2)) of every coordinate of (runs, size, d) vectors."""
    runs, _, d = basis.shape
    variance = 1 / d
    fourth = 3 / (d * (d + 2))
    eighth = 105 / (d * (d + 2) * (d + 4) * (d + 6))
    assert np.max(np.abs(basis.mean(axis=0))) < 5 * np.sqrt(variance / runs)
    for power, mean, second in ((2, variance, fourth), (4, fourth, eighth)):
        se = np.sqrt((second - mean**2) / runs)
        assert se < 0.01 * mean
        assert np.max(np.abs((basis**power).mean(axis=0) - mean)) < 5 * se


@pytest.mark.montecarlo
@pytest.mark.parametrize("size", [2, 4])
def test_frames_are_orthonormal_and_uniform(size):
    basis = frames(np.random.default_rng(1), 40_000, 4, size)
    products = np.einsum("rid,rjd->rij", basis, basis)
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(size), products.shape), rtol=0, atol=32 * EPS)
    assert_uniform(basis)
    # products of different vectors and coordinates average to zero (their variance is below 1 / d^2 times 2)
    cross = np.einsum("rid,rje->idje", basis, basis) / len(basis)
    np.testing.assert_allclose(
        cross, np.einsum("ij,de->idje", np.eye(size), np.eye(4)) / 4, rtol=0, atol=5 * 0.36 / 200
    )


@pytest.mark.negative
def test_a_frame_without_its_signs_is_not_uniform():
    q, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((40_000, 4, 2)))
    with pytest.raises(AssertionError):
        assert_uniform(np.swapaxes(q, 1, 2))


@pytest.mark.montecarlo
def test_vectors_with_overlaps_are_in_uniform_position():
    o = POINTS["unit"]
    vectors = with_overlaps(np.random.default_rng(2), o, 40_000, 5)
    assert_uniform(np.stack(vectors, axis=1))


def assert_sphere_overlap(x, dimension):
    """x is the overlap of a uniform unit vector of R^dimension with a fixed one: x^2 is Beta(1/2, (dimension-1)/2)."""
    n = len(x)
    square = stats.beta(0.5, (dimension - 1) / 2)
    se = square.std() / np.sqrt(n)
    assert se < 0.01 / dimension
    assert abs(np.mean(x**2) - 1 / dimension) < 5 * se
    assert abs(np.mean(x)) < 5 / np.sqrt(n * dimension)
    assert stats.kstest(x**2, square.cdf).pvalue > 6e-7  # 5 standard deviations


D, RUNS = 7, 60_000


@pytest.mark.montecarlo
def test_the_law_of_a_start_on_the_sphere():
    vectors = starting_vectors(descent("sphere", d=D, runs=1), D, RUNS, seed=0)
    np.testing.assert_allclose(gram(vectors)[:, range(4), range(4)], 1.0, rtol=0, atol=16 * EPS)
    assert np.max(np.abs(np.einsum("rd,rd->r", vectors.k_star, vectors.v_star))) < 16 * EPS
    five = vectors.five()
    for x in five:
        assert_sphere_overlap(x, D)
    # each pair is uncorrelated: the product of two overlaps has a variance of about 1 / D^2
    assert np.max(np.abs(np.triu(five @ five.T / RUNS, 1))) < 5 / (D * np.sqrt(RUNS))


@pytest.mark.montecarlo
def test_the_law_of_a_start_on_the_manifold():
    vectors = starting_vectors(descent("manifold", d=D, runs=1), D, RUNS, seed=0)
    kappa, nu, theta, eta, rho = vectors.five()
    np.testing.assert_allclose(gram(vectors)[:, range(4), range(4)], 1.0, rtol=0, atol=16 * EPS)
    # what is left of a projection is rounding over the length that survives it, at worst one in RUNS small
    assert np.max(np.abs([theta, eta, rho])) < 1e3 * EPS
    assert_sphere_overlap(kappa, D - 1)
    assert_sphere_overlap(nu, D - 2)
    assert abs(np.mean(kappa**2 * nu**2) - 1 / ((D - 1) * (D - 2))) < 5 * np.std(kappa**2 * nu**2) / np.sqrt(RUNS)


@pytest.mark.negative
def test_the_laws_of_the_two_starts_differ():
    kappa, nu, *_ = starting_vectors(descent("manifold", d=D, runs=1), D, RUNS, seed=0).five()
    for x in (kappa, nu):
        with pytest.raises(AssertionError):
            assert_sphere_overlap(x, D)


@pytest.mark.exact
def test_in_three_dimensions_a_start_on_the_manifold_has_the_teachers_value():
    nu = starting_vectors(descent("manifold", d=3, runs=1), 3, 500, seed=1).five()[1]
    # v is orthogonal to k* and k, which span the plane orthogonal to v*
    np.testing.assert_allclose(np.abs(nu), 1.0, rtol=0, atol=16 * EPS)


@pytest.mark.exact
def test_given_starts_follow_each_other():
    o = (POINTS["unit"], POINTS["oracle"])
    vectors = starting_vectors(descent(o), 9, 3, seed=0)
    five = vectors.five()
    assert five.shape == (5, 6)
    np.testing.assert_allclose(five, np.repeat([x.five() for x in o], 3, axis=0).T, rtol=0, atol=32 * EPS)
    one = starting_vectors(descent(o[0]), 9, 3, seed=0)
    np.testing.assert_array_equal(one.k, vectors.k[:3])


@pytest.mark.exact
@pytest.mark.parametrize("start", ["sphere", "manifold"])
def test_starts_are_reproducible_and_differ_by_seed_and_run(start):
    learner = descent(start, d=8, runs=4)
    a, b, c = (starting_vectors(learner, 8, 4, seed) for seed in (0, 0, 1))
    for x, y, z in zip(a, b, c, strict=True):
        np.testing.assert_array_equal(x, y)
        assert not np.any(x == z)
        assert not np.any(x[0] == x[1])


@pytest.mark.exact
@pytest.mark.parametrize(("start", "lowest"), [("sphere", 2), ("manifold", 3)])
def test_starts_in_too_few_dimensions_are_refused(start, lowest):
    learner = descent(start, d=10, runs=1)
    assert starting_vectors(learner, lowest, 2, seed=0).k.shape == (2, lowest)
    with pytest.raises(ndl.InvalidParameter, match=rf"simulate\(d={lowest - 1}\): d must be >= {lowest} for start="):
        starting_vectors(learner, lowest - 1, 2, seed=0)

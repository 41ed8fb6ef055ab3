"""Fixed points, the swapped minimum and the critical scales of erf attention."""

import numpy as np
import pytest
from scipy import optimize

import needlepoint as ndl

TASK = ndl.SpikedSLR(10, snr=200, relevant_std=0.5**0.5)


def erf(scale, **more):
    return ndl.KeyValueAttention(ndl.Erf(scale, **more), unit_norm=True)


@pytest.mark.paper
@pytest.mark.parametrize(
    ("scale", "saddle", "corner"),
    [
        (0.1, (-3.26794, 0.77152), (-0.021386, -1.906835)),
        (0.3, (-20.38730, 1.03133), (-7.5e-14, -2.0)),
        (0.9, (-71.98682, 1.58305), (-4.0e-54, -2.0)),
    ],
)
def test_published_rates(scale, saddle, corner):
    """sheet 01, section 6; its key rate of -3e-54 at .9 is -4.0e-54 by the formula it states."""
    points = ndl.fixed_points(TASK, erf(scale))
    assert [p.kind for p in points] == ["minimum", "minimum", "maximum", "maximum", "saddle"]
    assert points[4].rates == pytest.approx(saddle, abs=5e-5)
    assert points[0].rates == pytest.approx(corner, rel=0.01)


@pytest.mark.exact
@pytest.mark.parametrize("scale", [0.1, 0.3, 0.9])
def test_rates_are_the_jacobian_of_the_field(scale):
    """Central differences of the vector field at the saddle and one-sided ones at the corners."""
    step = 1e-6
    for point in ndl.fixed_points(TASK, erf(scale)):
        x = np.array([point.overlaps.key, point.overlaps.value])

        def field(y):
            return np.array(ndl.vector_field(TASK, erf(scale), *y))

        jacobian = np.stack([(field(x + step * e) - field(x - step * e)) / (2 * step) for e in np.eye(2)], axis=1)
        np.testing.assert_allclose(
            np.sort(np.linalg.eigvals(jacobian).real), np.sort(point.rates), rtol=1e-5, atol=1e-8
        )
        np.testing.assert_allclose(field(x), 0.0, atol=1e-12)


@pytest.mark.exact
def test_field_is_the_gradient_of_the_risk():
    rng, step = np.random.default_rng(0), 1e-6
    for key, value in rng.uniform(-0.9, 0.9, (20, 2)):

        def risk(k, v):
            return ndl.excess_risk(TASK, erf(0.1), ndl.Overlaps(k, v)).value

        slope = [
            (risk(key + step, value) - risk(key - step, value)) / (2 * step),
            (risk(key, value + step) - risk(key, value - step)) / (2 * step),
        ]
        got = ndl.vector_field(TASK, erf(0.1), key, value)
        np.testing.assert_allclose(got, [-(1 - key**2) * slope[0], -(1 - value**2) * slope[1]], atol=1e-8)


@pytest.mark.exact
def test_there_are_exactly_five_fixed_points():
    """Root searches from random points end at one of the five."""
    model, rng = erf(0.1), np.random.default_rng(1)
    known = [(p.overlaps.key, p.overlaps.value) for p in ndl.fixed_points(TASK, model)]
    ends = 0
    for x0 in rng.uniform(-1, 1, (100, 2)):
        found = optimize.root(lambda x: np.array(ndl.vector_field(TASK, model, *x)), x0, tol=1e-12)
        if found.success and np.all(np.abs(found.x) <= 1 + 1e-9):
            ends += 1
            assert min(np.hypot(*(found.x - p)) for p in known) < 1e-5
    assert ends > 50


@pytest.mark.paper
@pytest.mark.parametrize("scale", [0.05, 0.1, 0.3])
def test_oracle_curvatures(scale):
    """sheet 01, section 6: eigenvalues of the (theta, eta) plane and of the orthogonal directions."""
    published = {0.05: None, 0.1: (0.20556, 424.01, 0.010693, 0.95342), 0.3: (0.87205, 592.75, 0.0, 1.0)}[scale]
    point = ndl.oracle_point(TASK, erf(scale))
    assert point.kind == "minimum"
    if published:
        curvatures = -np.array(point.rates)
        for value in published:
            assert np.min(np.abs(curvatures - value)) < 5e-5 * max(1.0, value)


@pytest.mark.paper
def test_large_scale_makes_the_oracle_a_saddle():
    point = ndl.oracle_point(TASK, erf(0.9))
    assert point.kind == "saddle"
    assert max(point.rates) == pytest.approx(0.02102, abs=5e-6)
    critical = ndl.oracle_instability(TASK)
    assert critical.value == pytest.approx(0.892437948, abs=2e-8)
    for scale, kind in ((critical.value * (1 - 1e-6), "minimum"), (critical.value * (1 + 1e-6), "saddle")):
        assert ndl.oracle_point(TASK, erf(scale)).kind == kind


@pytest.mark.exact
def test_instability_in_the_saturated_regime():
    for length in (2, 10, 40):
        task = ndl.SpikedSLR(length, snr=5000, relevant_std=0.8)
        share = 1 - (length - 1) * 0.64 / (5000 + 0.64)
        assert ndl.oracle_instability(task).value == pytest.approx(0.5 * np.sqrt(4 / share**2 - 1), rel=1e-9)
    assert ndl.oracle_instability(ndl.SpikedSLR(100, snr=1.0)).value == np.inf
    assert ndl.oracle_instability(ndl.SpikedSLR(1, snr=200.0)).value == np.inf


@pytest.mark.exact
@pytest.mark.parametrize("snr", [200.0, 1e8, 1e12])
def test_instability_error_is_honest(snr):
    """The curvature is known to the rounding of one that grows with snr."""
    found = ndl.oracle_instability(ndl.SpikedSLR(10, snr=snr, relevant_std=0.5**0.5))
    saturated = 0.5 * np.sqrt(4 / (1 - 4.5 / (snr + 0.5)) ** 2 - 1)
    assert abs(found.value - saturated) <= found.error + 1e-10


@pytest.mark.exact
def test_nullcline_is_where_the_key_stands_still():
    key = np.linspace(-0.9, 0.9, 19)
    key_dot, _ = ndl.vector_field(TASK, erf(0.1), key, ndl.nullcline(TASK, erf(0.1), key))
    np.testing.assert_allclose(key_dot, 0.0, atol=1e-14)


@pytest.mark.paper
def test_swapped_minimum():
    point = ndl.swapped_minimum(TASK, erf(0.1))
    assert point.kind == "minimum"
    assert point.overlaps.value_on_key == pytest.approx(0.629772, abs=5e-7)
    assert point.excess_risk == pytest.approx(0.1155117, abs=5e-8)
    for scale in (0.05, 0.1, 0.3, 0.9):
        assert ndl.swapped_minimum(TASK, erf(scale)).kind == "minimum"
    # the risk there is that of the closed form, and every feasible neighbour is higher or equal
    rng = np.random.default_rng(2)
    k, v = np.array([0, 1.0, 0]), np.array([point.overlaps.value_on_key, 0, 0, 0])
    v[3] = np.sqrt(1 - v[0] ** 2)
    for _ in range(100):
        a, b = k + 0.01 * rng.standard_normal(3), v + 0.01 * rng.standard_normal(4)
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        o = ndl.Overlaps(a[0], b[1], b[0], a[1], float(a @ b[:3]))
        assert ndl.excess_risk(TASK, erf(0.1), o).value > point.excess_risk - 1e-12


@pytest.mark.paper
@pytest.mark.parametrize(("d", "value"), [(100, 1.578), (400, 1.814), (1600, 2.051), (6400, 2.280)])
def test_swapped_crossing(d, value):
    for length in (2, 50):
        crossing = ndl.swapped_crossing(ndl.SpikedSLR(length, snr=d / 2, relevant_std=0.5**0.5))
        assert crossing.value * np.sqrt(d) == pytest.approx(value, abs=6e-4)
    if d == 400:
        assert crossing.value == pytest.approx(0.09072182760869256, abs=1e-10)
        task = ndl.SpikedSLR(10, snr=200, relevant_std=0.5**0.5)
        for factor, lower in ((0.999, True), (1.001, False)):
            model = erf(factor * crossing.value)
            gap = ndl.swapped_minimum(task, model).excess_risk - ndl.oracle_point(task, model).excess_risk
            assert (gap < 0) is lower


def test_crossing_at_weak_spikes():
    crossing = ndl.swapped_crossing(ndl.SpikedSLR(10, snr=0.001)).value
    assert 0.009 < crossing < 0.012


def test_what_the_landscape_needs():
    with pytest.raises(ndl.InvalidParameter, match="without shift and offset"):
        ndl.fixed_points(TASK, erf(0.1, shift=0.2))
    with pytest.raises(ndl.InvalidParameter, match="scale is None"):
        ndl.vector_field(TASK, erf(None), 0.1, 0.1)
    for call in (ndl.fixed_points, ndl.swapped_minimum):
        with pytest.raises(ndl.InvalidParameter, match="snr must be > 0"):
            call(ndl.SpikedSLR(3, snr=0.0), erf(0.1))
    with pytest.raises(ndl.InvalidParameter, match="snr must be > 0"):
        ndl.swapped_crossing(ndl.SpikedSLR(3, snr=0.0))

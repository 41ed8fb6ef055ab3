"""Theory points in batches against one by one: CPU time of both in one run, after compilation."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.curves import predict_curves

POPULATION = ndl.Population()
START = ndl.Overlaps(0.1, 0.2, -0.05, 0.15, 0.3)
EVERY = 10  # of the points, one by one, are timed and the rest is scaled up


def optima(erf, snrs, offsets, task=ndl.SpikedSLR):
    """One curve in snr for each offset."""
    return [[(task(5, float(s)), ndl.KeyValueAttention(erf(float(o))), POPULATION) for s in snrs] for o in offsets]


def given(offset):
    return ndl.Erf(1.0, -0.5, offset)


def free_shift(offset):
    return ndl.Erf(1.0, None, offset)


def descents(steps):
    learner = ndl.ProjectedDescent(1e-3, steps, START, record_every=steps)
    model = ndl.KeyValueAttention(ndl.Erf(1.0), unit_norm=True)
    return [
        [
            (ndl.SpikedSLR(10, float(s), 0.7), model.replace(activation=ndl.Erf(float(scale))), learner)
            for s in np.geomspace(1, 100, 40)
        ]
        for scale in np.geomspace(0.1, 1.0, 25)
    ]


SNRS, OFFSETS = np.geomspace(0.1, 50, 40), np.linspace(0.5, 1.5, 25)


def ratio(benchmark, clock, report, name, curves):
    """CPU time one by one over CPU time in batches, of the same points; the values must agree."""
    flat = [question for curve in curves for question in curve]
    some = flat[::EVERY]
    predict_curves(curves)
    ndl.predict(*flat[0], throw=False)
    single, ones = clock(lambda: [ndl.predict(*question, throw=False) for question in some])
    batch, found = clock(predict_curves, curves)
    single *= len(flat) / len(some)
    for a, b in zip([p for curve in found for p in curve][::EVERY], ones, strict=True):
        assert abs(a.risk.value - b.risk.value) <= a.risk.error + b.risk.error
    benchmark.pedantic(predict_curves, (curves,), rounds=1)
    benchmark.extra_info.update(points=len(flat), ratio=single / batch, points_per_second=len(flat) / batch)
    report(
        f"{name}, {len(flat):,} points: {1e3 * single / len(flat):.2f} ms a point one by one (1 in {EVERY} timed), "
        f"{1e3 * batch / len(flat):.2f} ms in batches, ratio {single / batch:.1f}, {len(flat) / batch:,.0f} points/s"
    )
    return single / batch


def test_erf_optimum(benchmark, clock, report):
    """Wanted: ten times faster, and at most 3 ms a point."""
    ratio(benchmark, clock, report, "erf optimum", optima(given, SNRS, OFFSETS))


@pytest.mark.parametrize("task", [ndl.SpikedSLR, ndl.MaxSLR])
def test_erf_optimum_with_a_free_shift(benchmark, clock, report, task):
    name = f"erf optimum with a free shift, {task.__name__}"
    ratio(benchmark, clock, report, name, optima(free_shift, SNRS[::2], OFFSETS[::5], task))


def test_erf_optimum_at_max(benchmark, clock, report):
    ratio(benchmark, clock, report, "erf optimum, MaxSLR", optima(given, SNRS[::2], OFFSETS, ndl.MaxSLR))


def test_erf_grid(benchmark, clock, report):
    """A figure of 100 x 100 optima, all of them computed."""
    curves = optima(given, np.geomspace(0.1, 50, 100), np.linspace(0.5, 1.5, 100))
    predict_curves(curves[:8])
    seconds, _ = clock(predict_curves, curves)
    benchmark.extra_info.update(points=10_000, points_per_second=1e4 / seconds)
    benchmark.pedantic(predict_curves, (curves[:8],), rounds=1)
    report(f"erf optimum, 100 x 100 grid: {seconds:.1f} s CPU, {1e4 / seconds:,.0f} points/s")


@pytest.mark.parametrize("steps", [100, 1000])
def test_descent(benchmark, clock, report, steps):
    """A step of one run is 24 nodes of one integral: arithmetic, which an axis of runs does not make less."""
    ratio(benchmark, clock, report, f"descent of {steps} steps", descents(steps))

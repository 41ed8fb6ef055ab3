"""The attention-indexed model: CPU time of truncated moments, of the Bayes curve, of a point and of a figure."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.theory.indexed.bayes import curve

TASK, MODEL = ndl.AttentionIndexed(2, ndl.Wishart(0.5), noise_var=0.5), ndl.TiedAttention()


@pytest.mark.parametrize(
    "target",
    [ndl.Wishart(0.5), ndl.Eigenvalues((0.0, 1.0, 3.0), (0.5, 0.3, 0.2))],
    ids=["Wishart", "three atoms"],
)
def test_truncated_moments(benchmark, clock, report, target):
    """Wanted: J and its derivatives at 10,000 points in 1 s."""
    rng = np.random.default_rng(0)
    delta, eps = rng.uniform(0.05, 3.0, 10_000), rng.uniform(-1.0, 5.0, 10_000)
    seconds, found = clock(target.law.truncated, delta, eps)
    assert np.all(np.isfinite(found))
    benchmark.pedantic(target.law.truncated, (delta, eps), rounds=3)
    report(f"J and derivatives, 10,000 points, {type(target).__name__}: {1e3 * seconds:.0f} ms")


def test_bayes_curve(benchmark, clock, report):
    """Wanted: 100 points in 1 s."""
    taus = np.geomspace(1e-3, 1e3, 100)
    seconds, found = clock(curve, TASK, taus)
    assert np.all(np.diff(found[:, 0]) < 0)
    benchmark.pedantic(curve, (TASK, taus), rounds=3)
    report(f"Bayes curve, 100 points: {1e3 * seconds:.0f} ms")


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_one_point(benchmark, clock, report, tokens):
    """Wanted: two tokens at 1e-4 in 1 s after compilation."""
    asked = TASK.replace(tokens=tokens), MODEL, ndl.Ridge(0.3, 0.02)
    ndl.predict(*asked, throw=False)
    seconds, found = clock(ndl.predict, *asked, throw=False)
    benchmark.pedantic(ndl.predict, asked, {"throw": False}, rounds=1)
    report(
        f"{tokens} tokens: {seconds:.2f} s, {found.status.name}, "
        f"estimation error {found.estimation_error.value:.5f} +- {found.estimation_error.error:.0e}"
    )


def test_errors_against_alpha(benchmark, clock, report):
    """Wanted: three penalties and 25 alphas in 90 s on two cores; here on one."""

    def figure():
        return [
            ndl.predict(TASK, MODEL, ndl.Ridge(float(alpha), lam), throw=False)
            for lam in (1e-3, 0.02, 0.1)
            for alpha in np.geomspace(0.03, 3.0, 25)
        ]

    seconds, found = clock(figure)
    statuses = {s.name: sum(p.status is s for p in found) for s in {p.status for p in found}}
    benchmark.pedantic(ndl.predict, (TASK, MODEL, ndl.Ridge(0.3, 0.02)), rounds=1)
    report(f"errors against alpha, 75 points on one core, compilation included: {seconds:.1f} s; {statuses}")

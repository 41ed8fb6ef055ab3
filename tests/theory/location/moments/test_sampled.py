"""Quasi-Monte-Carlo means: against exact routes, their own scatter, and the pieces they are summed from."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.channels import elementwise
from needlepoint.core.routes import routes
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.moments import kernels as kernel_moments
from needlepoint.theory.location.moments import sampled as sampled_moments

INF = math.inf
TASKS = [
    ndl.SpikedSLR(3, 2.0, relevant_std=0.7),
    ndl.MaxSLR(3, 1.5),
    ndl.MaxSLR(2, INF),
    ndl.MaxSLR({1: 0.4, 3: 0.6}, 3.0),
]
KEY, KEY_SQ = 0.7, 1.2


@float64
def means(task, activation, log2_points=10, count=16, seed=0, key=KEY, key_sq=KEY_SQ):
    c = elementwise.constants(task, ndl.KeyValueAttention(activation))
    return np.array(sampled_moments.scrambles(task, type(activation), c, key, key_sq, log2_points, count, seed))


def exact(task):
    route = kernel_moments.spiked if isinstance(task, ndl.SpikedSLR) else kernel_moments.maximal
    return np.array(route(task, lambda x: x, KEY, KEY_SQ))


@pytest.mark.quadrature
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_every_mean_is_unbiased(task):
    """Each scrambling is an unbiased rule: the mean of 16 lies within five of their standard errors."""
    found = means(task, ndl.Softmax())
    se = found.std(axis=0, ddof=1) / 4
    assert np.all(se < 0.01)
    assert np.all(np.abs(found.mean(axis=0) - exact(task)) < 5 * se + 1e-12)
    # negative twin: the means at another key
    other = means(task, ndl.Softmax(), key=0.5)
    assert np.any(np.abs(other.mean(axis=0) - exact(task)) > 5 * se)


@pytest.mark.quadrature
def test_the_scatter_falls_with_the_points():
    """Scrambled Sobol points on smooth weights of three tokens beat the N^(-1/2) of sampling."""
    sizes = (6, 8, 10, 12)
    scatter = [means(TASKS[0], ndl.Softmax(), n).std(axis=0).max() for n in sizes]
    slope = np.polyfit(sizes, np.log2(scatter), 1)[0]
    assert slope < -0.8


@pytest.mark.exact
def test_lengths_mix_linearly():
    law = {1: 0.25, 3: 0.75}
    for kind in (ndl.SpikedSLR, ndl.MaxSLR):
        mixed = means(kind(law, 1.5), ndl.Softplus(), 8, 2)
        parts = sum(p * means(kind(n, 1.5), ndl.Softplus(), 8, 2) for n, p in law.items())
        np.testing.assert_allclose(mixed, parts, rtol=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("task", TASKS[:3], ids=str)
def test_chunks_do_not_change_the_means(task, monkeypatch):
    whole = means(task, ndl.Softmax(), 10, 2)
    monkeypatch.setattr(sampled_moments, "ACCURACY", replace(sampled_moments.ACCURACY, chunk=500))
    np.testing.assert_allclose(means(task, ndl.Softmax(), 10, 2), whole, rtol=1e-12)


def test_seeds_are_repeatable_and_independent():
    one, same, other = (means(TASKS[1], ndl.Softmax(), 8, 2, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert np.all(one != other)
    assert np.all(one[0] != one[1])


@pytest.mark.quadrature
def test_errors_of_a_function_without_structure_are_honest():
    """A softmax written by hand goes through this route; the kernel's tables are exact to 1e-10."""

    @ndl.activation("softmax_by_hand")
    def mine(scores):
        return jax.nn.softmax(scores)

    rng, inside, model = np.random.default_rng(1), 0, ndl.KeyValueAttention(mine)
    assert [one.name for one in routes("excess risk", task=TASKS[0], model=model)] == ["qmc", "fields"]
    for task in (*TASKS, *TASKS):
        k, v = rng.standard_normal(3), rng.standard_normal(4)
        at = ndl.Overlaps(k[0], v[1], v[0], k[1], float(k @ v[:3]), float(k @ k), float(v @ v))
        found, tables = (
            ndl.excess_risk(task, model, at),
            ndl.excess_risk(task, ndl.KeyValueAttention(ndl.Softmax()), at),
        )
        assert found.error < 0.01 * found.value
        assert abs(found.value - tables.value) <= 2 * found.error + tables.error
        inside += abs(found.value - tables.value) <= found.error + tables.error
    assert inside >= 7  # a Student with 15 degrees leaves 3 standard errors in 0.9 % of cases


def test_too_many_tokens_are_refused():
    with pytest.raises(ndl.NoTheory, match="goes up to 10600"):
        means(ndl.MaxSLR(10_601, 1.0), ndl.Softmax(), 4, 1)
    with pytest.raises(ndl.NoTheory, match="goes up to 21201"):
        means(ndl.SpikedSLR(21_202, 1.0), ndl.Softmax(), 4, 1)
    assert np.all(np.isfinite(means(ndl.SpikedSLR(300, 1.0), ndl.Softmax(), 4, 1)))

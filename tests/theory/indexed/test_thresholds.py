"""Thresholds of the attention-indexed model: their errors, narrow layers, wide noise."""

import math

import mpmath
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.numerics.freeprob import MarchenkoPastur
from needlepoint.theory.indexed.quadratic_loss import unpenalised
from needlepoint.theory.indexed.thresholds import fitting_at_rank, interpolation, least_trace, thresholds

TIED = ndl.TiedAttention()
HALF = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.5)


# --- wide noise -----------------------------------------------------------------------------------


@pytest.mark.exact
def test_noise_that_drowns_the_target_leaves_half_a_semicircle():
    """As the noise grows the matrix is fitted to nothing but noise, and 2 N alpha goes to 1/2; this one was -0."""
    drowned = thresholds(ndl.AttentionIndexed(2, ndl.Wishart(1e6), noise_var=1e12), TIED).interpolation
    assert drowned.value == pytest.approx(0.125, rel=1e-6)
    values = [thresholds(ndl.AttentionIndexed(2, ndl.Wishart(1e6), noise_var=v), TIED) for v in (1e4, 1e7, 1e10)]
    falling = [v.interpolation.value for v in values] + [drowned.value, 0.125]
    assert all(np.diff(falling) < 0)


def in_many_digits(k, noise_var):
    """eq:interpolation for one token and a Wishart target, from Marchenko and Pastur's law itself: 35 digits."""
    k, Q = mpmath.mpf(k), 1 + mpmath.mpf(k) + mpmath.mpf(noise_var) / 2
    b = mpmath.sqrt(k)

    def parts(delta):
        t = delta**2
        g = mpmath.mpmathify(complex(MarchenkoPastur(float(k)).resolvent(0.0, float(delta))))
        for _ in range(4):  # Newton's method doubles the digits of eq:wishart-resolvent
            g -= (((t * g - t * b) * g + 1 - k) * g - b) / ((3 * t * g - 2 * t * b) * g + 1 - k)
        u, a, A = b - g, mpmath.arg(g), -mpmath.arg(1 / (b - g))
        I12 = a + (k**2 - 2 * k - 2 * k**2 * t) * A
        I12 += (k**2 * b / u + t**2 * g**4 / 4 + t * (1 - k) * g**2 - 2 * k * b * t * g).imag
        J = 3 * (1 + k + t) * a - 3 * (1 + k - k**2 * t + k * (t * b) ** 2 + 2 * b * t * b) * A
        J += (-1 / (2 * g**2) + k**3 / (2 * u**2) - 3 * b / g + 3 * k * (b + k * t * b) / u).imag
        J += (t**3 * g**4 / 4 + 3 * t * t * (1 - k) * g**2 / 2 - (6 * k * t * b * t - 3 * k * b * t**2) * g).imag
        return -J / (3 * mpmath.pi), -2 * delta * I12 / mpmath.pi

    def gap(x):
        J, d1 = parts(mpmath.exp(x))
        return J - mpmath.exp(x) * d1 / 2 - Q

    low, high = (mpmath.log(Q) / 2 + step for step in (-20, 40))
    for _ in range(90):
        x = (low + high) / 2
        low, high = (x, high) if gap(x) < 0 else (low, x)
    delta = mpmath.exp(x)
    return parts(delta)[1] / (4 * delta)


@pytest.mark.exact
@pytest.mark.parametrize(("k", "noise_var"), [(1e-3, 0.5), (0.3, 1e-6), (0.3, 1e6), (1.0, 0.5)])
def test_the_error_of_interpolation_holds_the_truth(k, noise_var):
    found = interpolation(ndl.AttentionIndexed(1, ndl.Wishart(k), noise_var)).alpha
    with mpmath.workdps(35):
        gap = abs(float(in_many_digits(k, noise_var) - mpmath.mpf(found.value)))
    assert gap <= found.error
    # noise that is nearly nothing beside the target is known by a difference
    assert found.error < (1e-6 if noise_var < 1e-3 else 1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("k", [1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999])
def test_the_least_trace_keeps_its_digits(k):
    """min h of eq:recovery in 40 digits, with the semicircle's integrals in closed form."""
    with mpmath.workdps(40):
        k_ = mpmath.mpf(k)

        def h(theta):
            c, s = mpmath.cos(theta), mpmath.sin(theta)
            # moments of a semicircle above 2 cos(theta)
            zeroth = (theta - s * c) / mpmath.pi
            first = 4 * s**3 / (3 * mpmath.pi)
            second = (theta - mpmath.sin(4 * theta) / 4) / mpmath.pi
            beyond = second - 4 * c * first + 4 * c * c * zeroth
            return k_ * (1 - k_) * 4 * c * c + 1 - (1 - k_) ** 2 + (1 - k_) ** 2 * beyond

        found, theta = least_trace(k)
        best = mpmath.findroot(lambda x: mpmath.diff(h, x), theta)
        assert found == pytest.approx(float(h(best)), rel=1e-13)


# --- narrow layers --------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_layer_as_wide_as_its_solution_has_the_thresholds_of_full_width():
    edge = interpolation(HALF)
    for width in (edge.rank, edge.rank + 0.01, 1.0, 5.0):
        assert thresholds(HALF, ndl.TiedAttention(width_ratio=width)) == thresholds(HALF, TIED)
    clean = HALF.replace(noise_var=0.0)
    assert thresholds(clean, ndl.TiedAttention(width_ratio=0.75)) == thresholds(clean, TIED)


@pytest.mark.exact
@pytest.mark.parametrize("width", [0.1, 0.3, 0.58])
def test_a_narrow_layer_has_bounds(width):
    """It was given the threshold of full width, 0.307. At 0.1 training leaves an objective of 0.0886(14) at 0.2."""
    found = thresholds(HALF, ndl.TiedAttention(width_ratio=width))
    low, high = (found.interpolation.value + sign * found.interpolation.error for sign in (-1, 1))
    assert low < high <= thresholds(HALF, TIED).interpolation.value * (1 + 1e-12)
    assert high <= (width - width**2 / 2) * (1 + 1e-12)
    assert low >= width**2 / 2 * (1 - 1e-12)
    (note,) = found.notes
    assert f"W is only {width:g} d wide" in note
    # the solution of least trace at the lower bound is as wide as the layer
    law = HALF.target.law
    assert unpenalised(law, low, law.square + 0.25).at.above == pytest.approx(width, abs=1e-4)
    assert fitting_at_rank(HALF, width, interpolation(HALF).delta) == pytest.approx(low, rel=1e-6)


@pytest.mark.exact
def test_a_narrow_layer_and_a_target_without_noise():
    clean = HALF.replace(noise_var=0.0)
    full = thresholds(clean, TIED)
    below = thresholds(clean, ndl.TiedAttention(width_ratio=0.4))
    assert below.recovery.value == math.inf
    assert "rank 0.5 d, and W is only 0.4 d wide" in " ".join(below.notes)
    between = thresholds(clean, ndl.TiedAttention(width_ratio=0.6)).recovery
    assert between.value - between.error == pytest.approx(full.bayes_recovery.value, rel=1e-10)
    assert between.value + between.error == pytest.approx(full.recovery.value, rel=1e-10)


@pytest.mark.training
@pytest.mark.slow
def test_training_fits_below_the_bounds_of_a_narrow_layer_and_not_above_them():
    """Sixteen seeds each. At d = 40 the upper bound, a count of degrees of freedom, moves by 1/2d."""
    model = ndl.TiedAttention(width_ratio=0.3)
    found = thresholds(HALF, model).interpolation
    low, high = found.value - found.error, found.value + found.error

    def loss(alpha):
        return ndl.simulate(HALF, model, ndl.Ridge(alpha, 1e-5), d=40, repeats=16, samples=1).train_loss

    below, above = loss(0.9 * low), loss(1.15 * high)
    assert below.value < 1e-5
    assert above.value > 1e-2
    assert above.error < 0.2 * above.value


@pytest.mark.exact
@pytest.mark.parametrize("target", [ndl.PowerLaw(1.5, 30), ndl.Eigenvalues([0.0, 1.0]), ndl.Wishart(3.0)])
@pytest.mark.parametrize("noise_var", [1e-30, 1e-9, 1.0, 1e12])
def test_thresholds_are_finite_with_any_noise(target, noise_var):
    found = thresholds(ndl.AttentionIndexed(2, target, noise_var), TIED).interpolation
    assert found.finite
    assert 0.125 * (1 - 1e-9) <= found.value <= 0.25 * (1 + 1e-9)


@pytest.mark.parametrize("model", [ndl.TiedAttention(beta=2.0), ndl.DirectAttention(beta=0.5)])
def test_a_temperature_that_nothing_depends_on_is_refused(model):
    task, learner = ndl.AttentionIndexed(1, ndl.Wishart(0.5), 0.5), ndl.Ridge(0.3, 0.1)
    for asked in (
        lambda: ndl.thresholds(task, model),
        lambda: ndl.predict(task, model, learner),
        lambda: ndl.simulate(task, model, learner, d=10, repeats=1),
    ):
        with pytest.raises(ndl.InvalidParameter, match=r"beta=\S+ with tokens=1: beta must be 1"):
            asked()
    with pytest.raises(ndl.InvalidParameter, match="beta_star must be 1"):
        task.replace(beta_star=2.0)


@pytest.mark.parametrize(
    ("target", "alike"),
    [
        (ndl.Wishart(0.3), 0.49),
        (ndl.Eigenvalues((0.0, 1.0)), 0.5),
        (ndl.Eigenvalues((0.0, 1.0, 1.0, 3.0)), 0.375),
        (ndl.Eigenvalues((0.5, 2.0), (0.2, 0.8)), 0.68),
        (ndl.Eigenvalues((2.0,)), 1.0),
        (ndl.PowerLaw(1.0, 10), 0.1),
    ],
)
def test_equal_eigenvalues_need_not_be_told_apart(target, alike):
    """The best recovery is the limit of eq:indexed-bayes without noise, (1 - sum w^2) / 2N; k (2 - k) / 2N was said
    for any target, and predictions between the two ended in an error."""
    task = ndl.AttentionIndexed(1, target)
    found = thresholds(task, ndl.TiedAttention()).bayes_recovery
    assert found.value == pytest.approx((1 - alike) / 2, abs=1e-14)
    density = target.law.nodes(1e-4 * math.sqrt(target.law.square))
    noise = 1e-8 * target.law.square
    limit = 1 - 4 * math.pi**2 / 3 * noise * float(density.dx @ density.density**3)
    assert limit == pytest.approx(1 - alike, abs=2e-3)
    known = ndl.predict(task, None, ndl.BayesOptimal(alpha=found.value * 1.01 + 1e-3))
    assert known.metrics["estimation_error"].value == 0.0
    assert "known exactly" in known.notes[0]
    if alike < 1:
        before = ndl.predict(task, None, ndl.BayesOptimal(alpha=found.value * 0.9))
        assert before.metrics["estimation_error"].value > 0.01 * target.law.square * 0.1

"""Branches: the swapped point is the best with k along v*, and overlaps are told apart up to their gauge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.channels.branches import NEAR, ORACLE, classify, swapped_point
from needlepoint.channels.elementwise import excess_risk
from needlepoint.numerics.precision import float64
from needlepoint.theory.location.erf import closed_form as erf_closed_form

SIGN = np.array([-1.0, -1.0, -1.0, -1.0, 1.0])
TASK = ndl.SpikedSLR(10, snr=200.0, relevant_std=np.sqrt(0.5))


def attention(scale, **constants):
    return ndl.KeyValueAttention(ndl.Erf(scale, **constants), unit_norm=True)


swapped = float64(swapped_point)


@float64
def branch(task, model, five):
    (label,) = classify(task, model, np.asarray(five, float)[:, None])
    return label


@jax.jit
@jax.value_and_grad
@jax.grad
def slope_and_curvature(theta, c, five):
    return erf_closed_form.unit_excess_risk(c, five.at[2].set(theta))


@float64
def slopes(task, model, five):
    """Risk along theta at fixed other overlaps: first and second derivative, by the closed form."""
    found = slope_and_curvature(float(five[2]), erf_closed_form.constants(task, model), jnp.asarray(five))
    return tuple(float(x) for x in found)


def assert_lowest_along_theta(task, model, five):
    slope, curvature = slopes(task, model, five)
    assert curvature > 0
    if five[2] < 1:
        # the risk is quadratic in theta: what rounding leaves of the slope, 64 times
        assert abs(slope) < 64 * np.finfo(float).eps * curvature
    else:
        assert five[2] == 1
        assert slope <= 0


SETTINGS = [
    (TASK, 0.05),
    (TASK, 0.1),
    (TASK, 0.3),
    (TASK, 0.9),
    (ndl.SpikedSLR(4, snr=2.0, relevant_std=1.2), 0.2),
    (ndl.SpikedSLR({2: 0.5, 7: 0.5}, snr=0.3), 0.5),
]


@pytest.mark.exact
@pytest.mark.parametrize(("task", "scale"), SETTINGS)
def test_theta_star_minimises_the_risk_along_theta(task, scale):
    five = swapped(task, attention(scale))
    np.testing.assert_array_equal(five[[0, 1, 3, 4]], [0, 0, 1, 0])
    assert_lowest_along_theta(task, attention(scale), five)
    ndl.Overlaps.from_five(five)  # such vectors exist


@pytest.mark.quadrature
@pytest.mark.parametrize(("task", "scale"), SETTINGS[1:5:3])
def test_theta_star_by_one_dimensional_means(task, scale):
    law = {"task.snr": task.snr, "task.relevant_std": task.relevant_std, **task.length_moments()}
    theta = np.linspace(0, 1, 5)

    @float64
    def risks():
        zero, one = jnp.zeros(5), jnp.ones(5)
        overlaps = (zero, zero, jnp.asarray(theta), one, zero, one, one)
        return np.asarray(excess_risk(ndl.Erf(scale), law, overlaps, 128))

    a, b, _ = np.polyfit(theta, risks(), 2)
    # a quadratic through its own values: rounding of the risk over the curvature, some 1e-12
    assert swapped(task, attention(scale))[2] == pytest.approx(min(1.0, -b / (2 * a)), abs=1e-10)


@pytest.mark.paper
def test_the_value_of_the_theory_sheet():
    # 01-erf-location.md, section 6: d = 400, gamma^2 = 1/2, lambda = .1, six digits
    assert swapped(TASK, attention(0.1))[2] == pytest.approx(0.629772, abs=5e-7)


@pytest.mark.negative
@pytest.mark.parametrize("wrong", [{"relevant_std": 0.75}, {"snr": 201.0}])
def test_the_theta_star_of_another_task_fails_the_same_check(wrong):
    five = swapped(TASK.replace(**wrong), attention(0.1))
    with pytest.raises(AssertionError):
        assert_lowest_along_theta(TASK, attention(0.1), five)


@pytest.mark.exact
def test_without_a_spike_theta_star_is_clipped():
    np.testing.assert_array_equal(swapped(TASK.replace(snr=0.0), attention(0.1)), [0, 0, 1, 1, 0])


@pytest.mark.exact
@pytest.mark.parametrize("scale", [0.05, 0.1, 0.9])
def test_points_are_recognised_up_to_the_common_sign(scale):
    model = attention(scale)
    for name, point in (("oracle", ORACLE), ("swapped", swapped(TASK, model))):
        for sign in (1.0, SIGN):
            assert branch(TASK, model, sign * point) == name
            for nudge in 0.9 * NEAR * np.eye(5):
                assert branch(TASK, model, sign * point + nudge) == name
                assert branch(TASK, model, sign * point - nudge) == name


@pytest.mark.exact
def test_every_run_has_its_own_branch():
    model = attention(0.1)
    point = swapped(TASK, model)
    columns = np.stack([ORACLE, SIGN * point, np.zeros(5), SIGN * ORACLE, point], axis=1)
    assert float64(classify)(TASK, model, columns) == ("oracle", "swapped", "other", "oracle", "swapped")


@pytest.mark.negative
@pytest.mark.parametrize(
    "five",
    [
        [1, -1, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [1 - 1.1 * NEAR, 1, 0, 0, 0],
        [1, 1, 0, 0, 1.1 * NEAR],
        [0, 0, 0.63, -1, 0],
        [0.302, 0.947, 0.321, 0.953, 0.806],
    ],
)
def test_other_points_are_neither(five):
    assert branch(TASK, attention(0.1), np.array(five, float)) == "other"


@pytest.mark.exact
def test_only_a_pure_erf_has_a_swapped_point():
    point = swapped(TASK, attention(0.1))
    for model in (attention(0.1, shift=0.1), attention(0.1, offset=0.1), ndl.KeyValueAttention(ndl.Softmax())):
        assert branch(TASK, model, point) == "other"
        assert branch(TASK, model, ORACLE) == "oracle"


@pytest.mark.exact
def test_the_other_sign_is_no_oracle_unless_the_activation_is_odd():
    """The risk says so: it is the same at both signs for an odd activation, and higher for any other."""
    for model, same in (
        (attention(0.1), True),
        (attention(0.1, offset=0.1), False),
        (attention(0.1, shift=0.1), False),
    ):
        assert branch(TASK, model, SIGN * ORACLE) == ("oracle" if same else "other")
        here, there = (ndl.excess_risk(TASK, model, ndl.Overlaps(s, s)).value for s in (1.0, -1.0))
        assert (abs(there - here) < 1e-12 * here) == same
        assert there > 0.999 * here

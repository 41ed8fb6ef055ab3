"""Activations: their values, their symmetries, and their accuracy where exponentials underflow."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.numerics.precision import float64

EPS = np.finfo(float).eps
ALL = [ndl.Softmax(), ndl.Softplus(), ndl.Linear(), ndl.Erf(), ndl.Erf(0.3, -0.2, 0.7)]
SCORES = np.random.default_rng(0).standard_normal((5, 4)) * 3


@float64
def weights(activation, scores):
    return np.asarray(activation(jnp.asarray(scores)))


def softplus_truth(scores):
    with mpmath.workdps(40):
        kernel = [mpmath.log1p(mpmath.exp(mpmath.mpf(float(x)))) for x in scores]
        return [k / mpmath.fsum(kernel) for k in kernel]


@pytest.mark.exact
def test_values():
    np.testing.assert_allclose(weights(ndl.Erf(), SCORES), special.erf(SCORES), rtol=8 * EPS)
    shifted = 0.7 + special.erf(0.3 * SCORES - 0.2)
    np.testing.assert_allclose(weights(ndl.Erf(0.3, -0.2, 0.7), SCORES), shifted, rtol=0, atol=8 * EPS)
    np.testing.assert_array_equal(weights(ndl.Linear(), SCORES), 1 + SCORES)
    np.testing.assert_allclose(weights(ndl.Softmax(), SCORES), special.softmax(SCORES, axis=-1), rtol=32 * EPS)
    kernel = np.log1p(np.exp(SCORES))
    # a logarithm and an exponential of numbers of size ten
    np.testing.assert_allclose(weights(ndl.Softplus(), SCORES), kernel / kernel.sum(-1, keepdims=True), rtol=64 * EPS)


@pytest.mark.exact
@pytest.mark.parametrize("activation", ALL, ids=repr)
def test_permuting_tokens_permutes_weights(activation):
    order = np.array([2, 0, 3, 1])
    # sums over tokens in another order
    np.testing.assert_allclose(
        weights(activation, SCORES[:, order]), weights(activation, SCORES)[:, order], rtol=16 * EPS
    )


@pytest.mark.exact
@pytest.mark.parametrize("activation", ALL, ids=repr)
def test_shape_and_batching(activation):
    whole = weights(activation, SCORES)
    assert whole.shape == SCORES.shape
    assert whole.dtype == np.float64
    np.testing.assert_allclose(weights(activation, SCORES[2]), whole[2], rtol=16 * EPS)
    np.testing.assert_allclose(weights(activation, SCORES[None])[0], whole, rtol=16 * EPS)


@pytest.mark.exact
@pytest.mark.parametrize("activation", ALL, ids=repr)
def test_the_declared_form_is_true(activation):
    one_changed = SCORES.copy()
    one_changed[:, 0] += 1.0
    before, after = weights(activation, SCORES), weights(activation, one_changed)
    assert np.sum(before[:, 0] != after[:, 0]) >= 4  # erf is flat to rounding beyond 6
    if activation.form == "elementwise":
        np.testing.assert_array_equal(before[:, 1:], after[:, 1:])
    else:
        assert activation.form == "kernel"
        np.testing.assert_allclose(before.sum(-1), 1.0, rtol=8 * EPS)
        assert np.all(before > 0)
        # a kernel's ratios do not feel the other tokens
        np.testing.assert_allclose(before[:, 1] / before[:, 2], after[:, 1] / after[:, 2], rtol=64 * EPS)


@pytest.mark.exact
def test_softmax_ignores_a_common_shift_and_softplus_does_not():
    np.testing.assert_allclose(weights(ndl.Softmax(), SCORES + 300), weights(ndl.Softmax(), SCORES), rtol=600 * EPS)
    assert np.max(np.abs(weights(ndl.Softplus(), SCORES + 3) - weights(ndl.Softplus(), SCORES))) > 0.1


@pytest.mark.exact
def test_softplus_tends_to_softmax_far_left_and_to_a_ratio_far_right():
    x = np.array([0.3, -1.0, 2.0])
    # log(1 + e^x) = e^x (1 - e^x / 2 + ...): relative difference e^-38 at x = -40 + 2
    np.testing.assert_allclose(weights(ndl.Softplus(), x - 40), special.softmax(x), rtol=200 * EPS)
    np.testing.assert_allclose(weights(ndl.Softplus(), x + 1e4), (x + 1e4) / np.sum(x + 1e4), rtol=64 * EPS)


@pytest.mark.exact
@pytest.mark.parametrize(
    "scores",
    [
        [-29.9, -30.1, -30.0],
        [-35.0, -30.0 + 1e-9, -30.0 - 1e-9],
        [-800.0, -801.0, -805.0],
        [-1000.0, 2.0, -40.0],
        [-5.0, -20.0, -25.0],
        [700.0, 800.0, -700.0],
    ],
)
def test_softplus_keeps_its_relative_accuracy_far_left(scores):
    found = weights(ndl.Softplus(), scores)
    truth = np.array([float(x) for x in softplus_truth(scores)])
    # the logarithm of the kernel is as large as the score, so its rounding is |score| EPS; taking it for the score
    # below -30 costs e^-30 / 2
    tolerance = 8 * EPS * max(8, *np.abs(scores)) + np.exp(-30)
    np.testing.assert_allclose(found, truth, rtol=tolerance, atol=1e-300)


@pytest.mark.negative
def test_a_plain_softplus_has_no_weights_far_left():
    kernel = np.log1p(np.exp(np.array([-800.0, -801.0])))
    assert kernel.sum() == 0.0  # nothing left to normalise


@pytest.mark.exact
@pytest.mark.parametrize("activation", ALL, ids=repr)
def test_derivatives_are_finite_and_those_of_the_values(activation):
    scores = np.array([-900.0, -30.0, 0.4, 1.0])

    @float64
    def slopes():
        jacobian = jax.jacfwd(activation)(jnp.asarray(scores))
        h = 1e-5
        rows = [
            (weights(activation, scores + h * e) - weights(activation, scores - h * e)) / (2 * h) for e in np.eye(4)
        ]
        return np.asarray(jacobian), np.array(rows).T

    jacobian, differences = slopes()
    assert np.all(np.isfinite(jacobian))
    # central differences: h^2 f''' / 6 with f''' of order one, and the rounding of the scores 900 EPS / h
    np.testing.assert_allclose(jacobian, differences, rtol=0, atol=1e-9 + 900 * EPS / 1e-5)


@pytest.mark.exact
def test_constants_can_be_traced():
    @float64
    def slope():
        def total(scale):
            return ndl.Erf.weights(jnp.asarray(SCORES[0]), {"scale": scale, "shift": 0.1, "offset": 0.0}).sum()

        return float(jax.grad(total)(0.4))

    x = SCORES[0]
    exact = np.sum(x * 2 / np.sqrt(np.pi) * np.exp(-((0.4 * x + 0.1) ** 2)))
    assert slope() == pytest.approx(exact, rel=64 * EPS)


@pytest.mark.exact
def test_odd_is_true_only_of_a_pure_erf():
    assert ndl.Erf(0.3).odd
    assert ndl.Erf(None).odd
    assert not ndl.Erf(0.3, shift=0.1).odd
    assert not ndl.Erf(0.3, offset=0.1).odd
    assert not ndl.Erf(0.3, shift=None).odd
    np.testing.assert_array_equal(weights(ndl.Erf(0.3), -SCORES), -weights(ndl.Erf(0.3), SCORES))


@pytest.mark.exact
def test_the_scale_must_be_positive():
    for scale in (0.0, -1.0):
        with pytest.raises(ndl.InvalidParameter, match="scale must be"):
            ndl.Erf(scale)


@pytest.mark.exact
def test_forms_are_declared_once_each():
    assert {type(a).__name__: a.form for a in ALL} == {
        "Softmax": "kernel",
        "Softplus": "kernel",
        "Linear": "elementwise",
        "Erf": "elementwise",
    }


@pytest.mark.exact
@pytest.mark.parametrize("activation", [ndl.Softmax(), ndl.Softplus()], ids=repr)
def test_a_kernel_is_the_same_in_numpy_and_in_jax(activation):
    scores = np.array([-1e3, -30.0, -5.0, 0.0, 0.5, 40.0, 1e3])

    @float64
    def in_jax():
        return np.asarray(type(activation).log_kernel(jnp.asarray(scores), jnp))

    # one logarithm and one exponential
    np.testing.assert_allclose(in_jax(), type(activation).log_kernel(scores, np), rtol=8 * EPS, atol=8 * EPS)


@pytest.mark.exact
@pytest.mark.parametrize("activation", [ndl.Softmax(), ndl.Softplus()], ids=repr)
def test_a_kernel_weighs_a_lone_token_fully_and_equal_scores_equally(activation):
    for score in (-900.0, 0.0, 900.0):
        np.testing.assert_array_equal(weights(activation, [score]), [1.0])
        np.testing.assert_allclose(weights(activation, [score] * 5), 0.2, rtol=4 * EPS)


@pytest.mark.exact
def test_a_free_constant_has_no_weights():
    for free in ({"scale": None}, {"shift": None}, {"offset": None}):
        name = next(iter(free))
        assert ndl.Erf(**free).free_constants() == [name]
        with pytest.raises(ndl.InvalidParameter, match=rf"Erf\({name}=None\): {name} is None; weights need its value"):
            ndl.Erf(**free)(SCORES)


@pytest.mark.exact
@pytest.mark.parametrize("double", [False, True], ids=["32-bit caller", "64-bit caller"])
@pytest.mark.parametrize("activation", ALL, ids=repr)
def test_a_call_computes_in_the_precision_of_the_caller(activation, double):
    with jax.enable_x64(double):
        found = activation(jnp.asarray(SCORES))
        assert found.dtype == (jnp.float64 if double else jnp.float32)
    # sums over tokens of numbers up to ten
    np.testing.assert_allclose(found, weights(activation, SCORES), rtol=0, atol=64 * np.finfo(found.dtype).eps)

"""Models: the predictor on data is the formula, and its constants are listed."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.numerics.precision import float64

EPS = np.finfo(float).eps
RNG = np.random.default_rng(0)
X, K, V = RNG.standard_normal((6, 3, 5)), RNG.standard_normal(5), RNG.standard_normal(5)

KERNELS = {
    ndl.Erf(0.4, 0.1, -0.3): lambda s: -0.3 + special.erf(0.4 * s + 0.1),
    ndl.Linear(): lambda s: 1 + s,
    ndl.Softmax(): lambda s: np.exp(s) / np.exp(s).sum(),
    ndl.Softplus(): lambda s: np.log1p(np.exp(s)) / np.log1p(np.exp(s)).sum(),
}


@float64
def predictions(model, x, k, v):
    return np.asarray(model(jnp.asarray(x), jnp.asarray(k), jnp.asarray(v)))


@pytest.mark.exact
@pytest.mark.parametrize("activation", KERNELS, ids=repr)
@pytest.mark.parametrize("unit_norm", [False, True])
def test_attention_acts_on_data_as_its_formula(activation, unit_norm):
    model = ndl.KeyValueAttention(activation, unit_norm=unit_norm)
    sigma = KERNELS[activation]
    expected = []
    for sequence in X:
        w = sigma(np.array([K @ token for token in sequence]))
        expected.append(sum(w[j] * (V @ token) for j, token in enumerate(sequence)))
    # some 30 products and sums of numbers of size ten
    np.testing.assert_allclose(predictions(model, X, K, V), expected, rtol=0, atol=300 * EPS)


@pytest.mark.exact
@pytest.mark.parametrize("activation", KERNELS, ids=repr)
def test_attention_does_not_feel_the_order_of_tokens_and_is_linear_in_the_value(activation):
    model = ndl.KeyValueAttention(activation)
    base = predictions(model, X, K, V)
    np.testing.assert_allclose(predictions(model, X[:, [2, 0, 1]], K, V), base, rtol=0, atol=100 * EPS)
    np.testing.assert_allclose(predictions(model, X, K, -2 * V), -2 * base, rtol=0, atol=100 * EPS)


@pytest.mark.exact
def test_the_common_sign_of_key_and_value_is_a_gauge_of_a_pure_erf_only():
    pure = ndl.KeyValueAttention(ndl.Erf(0.4))
    np.testing.assert_allclose(predictions(pure, X, -K, -V), predictions(pure, X, K, V), rtol=0, atol=100 * EPS)
    shifted = ndl.KeyValueAttention(ndl.Erf(0.4, shift=0.3))
    assert np.max(np.abs(predictions(shifted, X, -K, -V) - predictions(shifted, X, K, V))) > 0.1


@pytest.mark.exact
def test_free_constants_and_traced_ones():
    def model(*constants):
        return ndl.KeyValueAttention(ndl.Erf(*constants), unit_norm=True)

    assert model(None, 0.0, None).free_constants() == ["scale", "offset"]
    assert model(None, None, None).free_constants() == ["scale", "shift", "offset"]
    assert model(0.3).free_constants() == []
    assert ndl.KeyValueAttention(ndl.Softmax()).free_constants() == []
    assert model(0.3, 0.1, 0.2).constants() == {"scale": 0.3, "shift": 0.1, "offset": 0.2}
    assert model(None, 0.1).constants() == {"shift": 0.1, "offset": 0.0}
    assert ndl.KeyValueAttention(ndl.Softplus()).constants() == {}


@pytest.mark.exact
def test_an_activation_is_needed():
    with pytest.raises(ndl.InvalidParameter, match="activation must be"):
        ndl.KeyValueAttention(ndl.LinearRegression())
    with pytest.raises(ndl.InvalidParameter, match="activation must be"):
        ndl.KeyValueAttention(0.3)


@pytest.mark.exact
def test_a_function_of_the_scores_acts_as_its_formula():
    def squares(scores):
        return scores**2 / 7.0

    model = ndl.KeyValueAttention(squares, unit_norm=True)
    expected = np.einsum("nl,nl->n", (X @ K) ** 2 / 7, X @ V)
    # some 30 products and sums of numbers of size ten
    np.testing.assert_allclose(predictions(model, X, K, V), expected, rtol=0, atol=300 * EPS)
    assert model.free_constants() == []
    assert model.constants() == {}
    assert model.unit_norm


@pytest.mark.exact
def test_replacing_the_activation_keeps_the_rest():
    model = ndl.KeyValueAttention(ndl.Erf(None), unit_norm=True)
    assert model.replace(activation=ndl.Softmax()) == ndl.KeyValueAttention(ndl.Softmax(), unit_norm=True)
    assert model.replace(activation=jnp.tanh).activation.form == "general"
    with pytest.raises(ndl.InvalidParameter, match="unit_norm must be True or False"):
        model.replace(unit_norm="yes")


@pytest.mark.exact
@pytest.mark.parametrize("free", [{"scale": None}, {"shift": None}, {"offset": None}])
def test_a_model_with_a_free_constant_does_not_compute(free):
    name = next(iter(free))
    with pytest.raises(ndl.InvalidParameter, match=f"{name} is None; weights need its value"):
        predictions(ndl.KeyValueAttention(ndl.Erf(**free), unit_norm=True), X, K, V)

"""The minima of sequences by the proximal maps of attention, held against Newton's method on the fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.losses import Square
from needlepoint.theory.fields.envelope import at
from needlepoint.theory.fields.law import fields, normals, parts
from needlepoint.theory.fields.states.minima import by_newton, of_attention

M, Q = jnp.diag(jnp.array([0.5, 0.8])), jnp.diag(jnp.array([1.2, 1.1]))
V = jnp.diag(jnp.array([0.6, 0.4]))
ACTIVATIONS = {"linear": ndl.Linear(), "softmax": ndl.Softmax(), "erf": ndl.Erf(scale=0.7, offset=0.5)}


def heights(activation, tokens, search, susceptibility=V, near=None):
    """The envelopes at the minima that a search finds, and the minima."""
    task, model = ndl.SpikedSLR(tokens, 2.0, noise=0.1), ndl.KeyValueAttention(activation)
    with jax.enable_x64(True):
        (part,) = parts(task, model, Square())
        seq = fields(part.kind, part.numbers, M, Q, normals(part.kind.normals, 8, 1, 0)[0][0])
        low = search(part.kind, part.numbers, susceptibility, seq, near)
        return np.asarray(at(part.kind, part.numbers, V, seq, low.chi).height), low


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [2, 3])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_both_routes_find_the_same_minima(name, tokens):
    mine, low = heights(ACTIVATIONS[name], tokens, of_attention)
    other, newton = heights(ACTIVATIONS[name], tokens, by_newton)
    # a search may miss a minimum of a sample in a thousand; elsewhere Newton's method ends within rounding
    assert np.mean(np.abs(mine - other) > 1e-8 * (1 + other)) <= 1 / 256
    again, _ = heights(ACTIVATIONS[name], tokens, by_newton, near=newton)
    np.testing.assert_allclose(again, other, rtol=1e-9)
    followed, _ = heights(ACTIVATIONS[name], tokens, of_attention, near=low)
    np.testing.assert_allclose(followed, mine, rtol=1e-9)


@pytest.mark.negative
def test_minima_of_another_susceptibility_are_higher():
    right, _ = heights(ndl.Softmax(), 2, of_attention)
    wrong, _ = heights(ndl.Softmax(), 2, of_attention, susceptibility=1.5 * V)
    assert np.mean(wrong) > np.mean(right) + 1e-3

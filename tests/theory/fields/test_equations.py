"""The equations for any field law: conjugates are derivatives, energy is free energy, no minimum is missed."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.models.fields import informed
from needlepoint.theory.fields import envelope
from needlepoint.theory.fields.law import fields, normals
from needlepoint.theory.fields.order import Conjugates, Order, Pattern
from needlepoint.theory.fields.ridge.equations import Equations, minima, starting_points
from needlepoint.theory.fields.symmetry import patterns

SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
FULL = Pattern(((), ()), ((), ()))
"""No symmetry: every entry of M, Q and V is free."""

CASES = {
    "spiked": (ndl.SpikedSLR(2, 2.0, noise=0.1, relevant_std=0.6), SOFTMAX, ndl.Square()),
    "max": (ndl.MaxSLR(2, 2.0, noise=0.1), SOFTMAX, ndl.Square()),
    "signs": (ndl.SignSLR(2, 3.0), SOFTMAX, ndl.Logistic()),
}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def equations(case, pattern=FULL, points=9, alpha=3.0):
    return Equations(*CASES[case], alpha, (0.4, 0.6), pattern, points, 1, 0)


ORDER = Order(
    np.array([[0.5, 0.1], [-0.1, 0.8]]), np.array([[0.7, 0.1], [0.1, 1.1]]), np.array([[0.6, 0.05], [0.05, 0.3]])
)


@pytest.mark.parametrize("case", CASES)
def test_conjugates_are_derivatives_of_the_mean_envelope(case):
    """Central differences of the envelope, minimised anew at every point, over full matrices."""
    eq = equations(case)
    hat = eq.means(ORDER).conjugates
    h = 1e-4

    def phi(order):
        return eq.means(order).envelope

    def slope(which, i, j):
        ends = []
        for sign in (1, -1):
            moved = [x.copy() for x in ORDER]
            moved[which][i, j] += sign * h
            if which and i != j:
                moved[which][j, i] += sign * h
            ends.append(phi(Order(*moved)))
        return (ends[0] - ends[1]) / (2 * h) / (2 if which and i != j else 1)

    for which, factor in ((0, -1.0), (1, 2.0), (2, -2.0)):
        known = (hat.M, hat.V, hat.Q)[which]
        for i in range(2):
            for j in range(2):
                assert factor * slope(which, i, j) == pytest.approx(known[i, j], abs=3e-7)


@pytest.mark.parametrize("case", CASES)
def test_the_energy_is_the_free_energy_at_a_fixed_point(case):
    pattern = patterns(*CASES[case][:2])[0]
    eq = equations(case, pattern)
    start = starting_points(pattern, informed(*CASES[case][:2]))["informed"]
    near = eq.settle(start).x
    end = eq.solve(near, eq.slope(near[0]), 1e-7)
    order = pattern.unpack(end.x[0])
    found = eq.means(order)
    assert end.residual[0] < 1e-7
    assert eq.free_energy(order, found) == pytest.approx(eq.energy(order, found), abs=1e-6)
    wrong = replace(eq, alpha=1.1 * eq.alpha)
    assert abs(wrong.free_energy(order, found) - wrong.energy(order, found)) > 1e-3


def test_the_search_for_minima_misses_none_that_random_starts_find():
    task, model, loss = CASES["max"]
    eq = Equations(task, model, loss, 1.0, (0.01, 0.01), FULL, 9, 1, 0)
    order = Order(np.diag([0.4, 0.9]), np.diag([2.0, 2.0]), np.diag([8.0, 4.0]))  # weak penalties: several minima
    (_, kind, numbers) = eq.parts[0]
    base = normals(kind.normals, 9, 1, 0)[0][0]
    low = minima(kind, numbers, order, base)
    heights = np.asarray(envelope.descend(kind, numbers, *order, base, low.chi, 0).height)
    rng = np.random.default_rng(0)
    missed = np.zeros(base.shape[-1], bool)
    for _ in range(40):
        other = envelope.descend(kind, numbers, *order, base, 3 * rng.standard_normal(low.chi.shape), 60)
        missed |= np.asarray(other.height) < heights - 1e-7
    assert np.mean(np.isfinite(low.gap)) > 0.01  # there are rivals to be missed
    assert np.mean(missed) < 0.005


def test_eliminated_values_are_at_their_minimum():
    """No move of all fields together lowers the envelope, computed from its definition."""
    model = CASES["spiked"][1]
    eq = equations("spiked")
    (_, kind, numbers) = eq.parts[0]
    base = normals(kind.normals, 9, 1, 0)[0][0]
    low = minima(kind, numbers, ORDER, base)
    assert envelope.split(kind).z == (1,)
    seq = fields(kind, numbers, ORDER.M, ORDER.Q, base)
    at = envelope.at(kind, numbers, ORDER.V, seq, low.chi)
    inverse = np.linalg.inv(ORDER.V)

    def height(lam):
        outputs = np.asarray(jax.vmap(model.outputs, -1)(lam))
        away = np.asarray(lam) - np.asarray(seq.columns)
        cost = np.einsum("lpn,pq,lqn,l->n", away, inverse, away, 1 / np.asarray(seq.spread) ** 2) / 2
        return (np.asarray(seq.y) - outputs) ** 2 / 2 + cost

    least = height(at.fields)
    assert np.allclose(least, at.height, rtol=1e-10)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2):
        move = size * rng.standard_normal(at.fields.shape)
        assert np.all(height(np.asarray(at.fields) + move) > least)


def test_coordinates_of_singular_and_infinite_matrices():
    """Columns that become dependent keep a root; what is not finite is not a number, and no traceback."""
    M = np.array([[1e4, 0.0], [0.0, 1.0]])
    order = Order(M, M @ M.T + np.array([[1.0, 1.0], [1.0, 1.0]]), np.eye(2))
    x = FULL.pack(order)
    assert np.all(np.isfinite(x))
    back = FULL.unpack(x)
    assert np.allclose(back.Q, order.Q, rtol=1e-9, atol=1e-4)
    assert np.all(np.isnan(FULL.pack(order._replace(Q=np.full((2, 2), np.inf)))))
    lost = FULL.updated(Conjugates(M, np.full((2, 2), np.nan), np.eye(2)), np.ones(2))
    assert np.all(np.isnan(lost.V))

"""The best penalties of ridge training: derivatives of the fixed point, the search along them, its stated error."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

import needlepoint as ndl
from needlepoint.numerics.precision import float64
from needlepoint.theory.curves import predict_curves
from needlepoint.theory.location.ridge.branches import STARTS
from needlepoint.theory.location.ridge.equations import Equations
from needlepoint.theory.location.ridge.penalty import Search, best_penalties
from needlepoint.theory.location.ridge.prediction import _raised
from needlepoint.theory.location.ridge.sensitivity import by_log_penalties, risk_at, sensitivities
from needlepoint.theory.location.ridge.solutions import value_form
from needlepoint.theory.location.ridge.solving import solve
from needlepoint.theory.penalties.accuracy import LOWEST

SPIKED, MAX = ndl.SpikedSLR(2, 2.0, noise=0.3), ndl.MaxSLR(3, 3.0, noise=0.2)
SOFTMAX, LINEAR, ERF = (ndl.KeyValueAttention(a) for a in (ndl.Softmax(), ndl.Linear(), ndl.Erf(offset=1.0)))
CASES = {"softmax": (SPIKED, SOFTMAX), "linear": (SPIKED, LINEAR), "max": (MAX, LINEAR), "erf": (SPIKED, ERF)}


@functools.cache
@float64
def fixed_point(case, penalties, level=11):
    task, model = CASES[case]
    equations = Equations(task, model, 4.0, penalties, level, 1, 0)
    end = equations.settle(STARTS["informed"][None], 1e-9, 80)
    assert end.residual[0] < 1e-6
    return equations, end.x[0]


@pytest.mark.exact
@pytest.mark.parametrize("case", CASES)
@float64
def test_the_gradient_is_that_of_solved_risks(case):
    penalties, h = (0.5, 0.8), 0.02
    equations, x = fixed_point(case, penalties)
    found = sensitivities(equations, x[None])[0]
    for axis in (0, 1):
        sides = []
        for sign in (1, -1):
            moved = [p * math.exp(sign * h * (i == axis)) for i, p in enumerate(penalties)]
            there, end = fixed_point(case, tuple(moved))
            sides.append((risk_at(there, end)[0], end))
        risk = (sides[0][0] - sides[1][0]) / (2 * h)
        point = (sides[0][1] - sides[1][1]) / (2 * h)
        # differences over steps of 0.03 of the map and of 0.02 of the penalty, whose squares are 1e-3
        assert found.gradient[axis] == pytest.approx(risk, rel=0.02, abs=2e-4)
        assert found.moves[:, axis] == pytest.approx(point, rel=0.03, abs=3e-3)


@pytest.mark.negative
@float64
def test_without_the_feedback_of_the_fixed_point_the_gradient_is_wrong():
    equations, x = fixed_point("softmax", (0.5, 0.8))
    direct = risk_at(equations, x)[1] @ by_log_penalties(equations, equations.map(x[None])[0])
    assert not np.allclose(direct, sensitivities(equations, x[None])[0].gradient, rtol=0.02)  # as above


@pytest.mark.exact
@pytest.mark.parametrize("case", CASES)
@float64
def test_the_risk_and_its_derivatives_by_the_coordinates(case):
    equations, x = fixed_point(case, (0.5, 0.8))
    value, gradient = risk_at(equations, x)
    m_k, s_k, _, m_v, s_v, _ = x
    form = value_form(equations.task, equations.model, m_k, m_k**2 + math.exp(s_k))[0]
    assert value == pytest.approx(1 - 2 * m_v * form[0] + (m_v**2 + math.exp(s_v)) * form[1])
    for i in range(6):
        # wider steps than the ones in the code, so that a mistake there does not cancel
        sides = [risk_at(equations, x + sign * 5e-3 * np.eye(6)[i])[0] for sign in (1, -1)]
        assert gradient[i] == pytest.approx((sides[0] - sides[1]) / 1e-2, rel=1e-3, abs=1e-4)


@float64
def by_simplex(task, model, alpha, level):
    """The penalties that a simplex finds with the same points: no derivatives, no continuation."""
    search = Search(task, model, ndl.Ridge(alpha, "optimal"))

    def risk(x):
        equations = search.equations(x, level)
        end = equations.settle(STARTS["informed"][None], 1e-6, 80)
        return risk_at(equations, end.x[0])[0] if end.residual[0] < 1e-3 else 10.0

    return optimize.minimize(risk, np.log([0.5, 0.5]), method="Nelder-Mead", options={"xatol": 5e-3, "fatol": 1e-7})


@pytest.mark.quadrature
@pytest.mark.parametrize("case", ["softmax", "linear"])
@float64
def test_the_descent_ends_where_a_simplex_does(case):
    task, model = CASES[case]
    best = best_penalties(task, model, ndl.Ridge(4.0, "optimal"))
    simplex = by_simplex(task, model, 4.0, 11)
    # other points than those of the check: apart by the stated factors at most (twice: both have such an error)
    assert np.all(np.abs(np.log(best.penalties) - simplex.x) <= 2 * np.log(best.factor) + 0.02)
    assert 0 < best.shortfall < 1e-3
    assert best.solves < 30


@pytest.mark.quadrature
@pytest.mark.parametrize("common", [False, True])
@float64
def test_no_random_penalty_is_better(common):
    learner = ndl.Ridge(3.0, "optimal", common=common)
    found = ndl.predict(MAX, LINEAR, learner)
    assert found.learner == learner
    chosen = found.resolved[2]
    assert chosen.common is False
    assert isinstance(chosen.lam, float) is common
    rng = np.random.default_rng(0)
    for _ in range(6):
        factors = np.exp(rng.normal(0, 0.7, 2))
        pair = np.multiply(chosen.penalties, factors[0] if common else factors)
        other = solve(MAX, LINEAR, 3.0, (float(pair[0]), float(pair[1])))[0].excess_risk
        assert found.excess_risk.value <= other.value + found.excess_risk.error + other.error


@pytest.mark.exact
def test_one_penalty_cannot_be_better_than_two():
    two, one = (ndl.predict(MAX, LINEAR, ndl.Ridge(3.0, "optimal", common=c)) for c in (False, True))
    assert two.excess_risk.value <= one.excess_risk.value + two.excess_risk.error + one.excess_risk.error
    assert any("best penalties are known to a factor" in note for note in two.notes)
    assert any("best penalty is known to a factor" in note for note in one.notes)


@pytest.mark.exact
def test_the_scale_of_an_activation_is_a_penalty():
    # scores twice as steep are those of a key twice as long: one model, at four times the penalty on it
    plain, steep = (
        ndl.predict(SPIKED, ndl.KeyValueAttention(ndl.Erf(scale, offset=1.0)), ndl.Ridge(4.0, "optimal"))
        for scale in (1.0, 2.0)
    )
    assert abs(plain.excess_risk.value - steep.excess_risk.value) <= plain.excess_risk.error + steep.excess_risk.error
    (key, value), (steep_key, steep_value) = (p.resolved[2].penalties for p in (plain, steep))
    # each is known to a factor of 1.1 or so
    assert math.log(steep_key / key) == pytest.approx(math.log(4), abs=0.3)
    assert math.log(steep_value / value) == pytest.approx(0, abs=0.3)


@pytest.mark.exact
def test_a_penalty_without_a_minimum_ends_at_the_bound_and_says_so():
    # labels without noise of a place that is sure to be found: the weaker the penalty on the key, the better
    found = ndl.predict(ndl.MaxSLR(2, math.inf), SOFTMAX, ndl.Ridge(5.0, "optimal"), throw=False)
    assert found.resolved[2].penalties[0] == pytest.approx(LOWEST)
    assert any("lam_key is sought between" in note for note in found.notes)


@pytest.mark.quadrature
def test_a_curve_of_best_penalties_is_its_points():
    curve = [(SPIKED, SOFTMAX, ndl.Ridge(alpha, "optimal")) for alpha in (3.0, 4.0, 5.5)]
    (together,) = predict_curves([curve])
    for question, found in zip(curve, together, strict=True):
        alone = ndl.predict(*question)
        assert abs(found.excess_risk.value - alone.excess_risk.value) <= (
            found.excess_risk.error + alone.excess_risk.error
        )
        apart = np.abs(np.log(found.resolved[2].penalties) - np.log(alone.resolved[2].penalties))
        assert np.all(apart < 0.5)  # each is known to a factor of 1.2 or so


def test_the_search_tells_how_far_it_is():
    told = []
    ndl.predict(SPIKED, LINEAR, ndl.Ridge(3.0, "optimal"), progress=told.append)
    assert told == sorted(told)
    assert len(told) > 4
    assert told[-1] == 1.0


@float64
def test_converged_is_said_only_where_the_whole_error_is_within_the_tolerance():
    """The error after a search is that of the solution and how far it may be above the least, together."""
    (solution, *_) = solve(SPIKED, LINEAR, 4.0, (0.5, 0.8), tol=1e-2)
    assert solution.status is ndl.Status.CONVERGED
    own = solution.excess_risk.error
    good, limited = ndl.Status.CONVERGED, ndl.Status.NOISE_LIMITED
    for before, shortfall, tol, after in [
        (good, own, 2.5 * own, good),
        (good, own, 1.5 * own, limited),
        (limited, own, 2.5 * own, good),
        (good, math.inf, 2.5 * own, limited),
        (ndl.Status.MAX_STEPS, own, 2.5 * own, ndl.Status.MAX_STEPS),
    ]:
        found = _raised(replace(solution, status=before), shortfall, tol)
        assert found.status is after
        assert found.excess_risk.error == (2 * own if math.isfinite(shortfall) else own)

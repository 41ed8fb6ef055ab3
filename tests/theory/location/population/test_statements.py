"""The statements about the optimum: closed forms against brute force, limits, rates, bounds and lengths."""

import math

import numpy as np
import pytest
from scipy import integrate, interpolate, linalg, optimize, special, stats

import needlepoint as ndl
from needlepoint.theory.location.moments import place_race

INF = math.inf
UNIFORM = dict.fromkeys((1, 2, 3), 1 / 3)
LINEAR = ndl.KeyValueAttention(ndl.Linear())


def bayes(task):
    return ndl.predict(task, None, ndl.BayesOptimal()).excess_risk.value


# --- linear ------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [1, 2, 7, 300, {1: 0.25, 6: 0.75}], ids=str)
@pytest.mark.parametrize(("snr", "std"), [(0.0, 1.0), (0.2, 0.5), (2.0, 1.0), (40.0, 1.7)])
def test_linear_attention_by_brute_force(tokens, snr, std):
    """1 - S1^2/S2 with S1 = 1 + sqrt(snr) m and S2 = (G+...) minimised numerically over the key, for v eliminated."""
    task, G = ndl.SpikedSLR(tokens, snr, std), std**2
    n = sum(p * (length - 1) for length, p in task.length_law)

    def risk(m):
        # E sigma^2 of a relevant token: (1 + sqrt(snr) m)^2 + G m^2, of another one 1 + m^2
        first = 1 + math.sqrt(snr) * m
        return G - G**2 * first**2 / (G * (first**2 + G * m**2) + n * (1 + m**2))

    brute = optimize.minimize_scalar(risk, bounds=(-5, 60), method="bounded", options={"xatol": 1e-12})
    found, at = ndl.linear_optimum(task)
    assert found.value == pytest.approx(brute.fun, abs=1e-12)
    assert risk(at.key) == pytest.approx(found.value, abs=1e-13 * G)
    here = ndl.excess_risk(task, LINEAR, at)
    assert abs(here.value - found.value) <= here.error + found.error


@pytest.mark.exact
@pytest.mark.parametrize("length", [2, 3, 10])
def test_linear_closed_forms(length):
    for snr in (0.5, 2.0, 30.0):
        found, at = ndl.linear_optimum(ndl.SpikedSLR(length, snr))
        expected = length * (length - 1) / (length**2 + snr * (length - 1))  # sheet 02, section 2
        assert found.value == pytest.approx(expected, rel=1e-14)
        assert at.key == pytest.approx(math.sqrt(snr) * (length - 1) / length, rel=1e-14)
    # E max of L Gaussians, order statistics from scipy
    mean = integrate.quad(lambda x: x * length * stats.norm.pdf(x) * stats.norm.cdf(x) ** (length - 1), -12, 12)[0]
    found, at = ndl.linear_optimum(ndl.MaxSLR(length, INF))
    assert found.value == pytest.approx(1 - (1 + mean**2) / length, abs=1e-9)
    assert at.key == pytest.approx(mean, abs=1e-9)
    # nothing to select: all keys are as good as none
    for task in (ndl.SpikedSLR(length, 0.0), ndl.MaxSLR(length, 0.0)):
        found, at = ndl.linear_optimum(task)
        assert found.value == pytest.approx(1 - 1 / length, rel=1e-13)
        assert at.key == 0.0


@pytest.mark.exact
def test_linear_decay():
    """L / snr, which is L / ((L - 1) snr) for L = 2 only: snr R / L = .9978 (L = 3), .9945 (L = 10) at snr 2000."""
    for length, ratio in ((3, 0.9978), (10, 0.9945)):
        task = ndl.SpikedSLR(length, snr=2000.0)
        exact = ndl.linear_optimum(task)[0].value
        assert ndl.linear_asymptote(task) == pytest.approx(length / 2000, rel=1e-14)
        assert exact / ndl.linear_asymptote(task) == pytest.approx(ratio, abs=5e-5)
        # negative twin: the form of secondary sources
        assert abs(exact / (length / ((length - 1) * 2000)) - 1) > 0.5
    for task in (ndl.SpikedSLR(5, 1e9, 1.4), ndl.SpikedSLR(UNIFORM, 1e9)):
        assert ndl.linear_optimum(task)[0].value / ndl.linear_asymptote(task) == pytest.approx(1.0, abs=1e-7)
    # under MaxSLR there is a floor, reached like snr^-2
    gaps = [
        ndl.linear_optimum(ndl.MaxSLR(4, s))[0].value - ndl.linear_asymptote(ndl.MaxSLR(4, s)) for s in (40.0, 80.0)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(4.0, rel=0.02)


# --- softmax and Bayes ---------------------------------------------------------------------------------


@pytest.mark.paper
@pytest.mark.parametrize(("length", "ratios"), [(2, (0.903, 0.956, 0.977, 0.988)), (10, (0.764, 0.945, 0.977, 0.988))])
def test_exponential_decay_of_the_spiked_task(length, ratios):
    """sheet 02, section 2, three digits; the rate is 1/4 whatever the length."""
    for snr, ratio in zip((20.0, 50.0, 100.0, 200.0), ratios, strict=True):
        task = ndl.SpikedSLR(length, snr)
        asymptote = (length - 1) * math.sqrt(math.pi / (4 * snr)) * math.exp(-snr / 4)
        assert ndl.bayes_asymptote(task) == pytest.approx(asymptote, rel=1e-13)
        assert bayes(task) / asymptote == pytest.approx(ratio, abs=5.1e-4)
    assert -math.log(bayes(ndl.SpikedSLR(length, 208.0)) / bayes(ndl.SpikedSLR(length, 200.0))) / 8 == pytest.approx(
        0.25, abs=0.004
    )


@pytest.mark.exact
@pytest.mark.parametrize("tokens", [2, 3, 20, {1: 0.5, 4: 0.5}], ids=str)
def test_the_max_task_decays_like_one_over_snr(tokens):
    """snr R -> L (L-1) int phi^2 Phi^(L-2), which is 1 / sqrt pi for L = 2 and E max of L Gaussians in general."""
    task = ndl.MaxSLR(tokens, 1000.0)
    mean = ndl.linear_optimum(task.replace(snr=INF))[1].key  # Stein: E chi*_J = snr R at every snr
    assert ndl.bayes_asymptote(task) == pytest.approx(mean / 1000, rel=1e-12)
    if tokens == 2:
        assert ndl.bayes_asymptote(task) == pytest.approx(1 / (1000 * math.sqrt(math.pi)), rel=1e-13)
    gaps = [bayes(ndl.MaxSLR(tokens, s)) / ndl.bayes_asymptote(ndl.MaxSLR(tokens, s)) - 1 for s in (100.0, 200.0)]
    assert abs(gaps[1]) < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(4.0, rel=0.02)
    assert ndl.bayes_asymptote(task.replace(snr=INF)) == 0.0


# --- the best element-wise activation ------------------------------------------------------------------


def free_knots(task, knots=240):
    """The best element-wise activation that is piecewise linear on a grid of scores, at k = k*: the risk over v and
    the heights h is G - max (a.h)^2 / h'Bh with a = E_J[hat], B = G E_J[hat hat'] + n E_o[hat hat'].
    """
    m, std = (math.sqrt(task.snr), task.relevant_std) if isinstance(task, ndl.SpikedSLR) else (0.0, 1.0)
    n = sum(p * (length - 1) for length, p in task.length_law)
    grid = np.linspace(min(-7, m - 7 * std), max(7, m + 7 * std), knots)
    x = np.linspace(grid[0], grid[-1], 20 * (knots - 1) + 1)
    step = x[1] - x[0]
    place = (x - grid[0]) / (grid[1] - grid[0])
    hats = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(knots)))
    other = stats.norm.pdf(x) * step
    if isinstance(task, ndl.SpikedSLR):
        G, relevant, plain = task.label_var, stats.norm.pdf(x, m, std) * step, n * other
    else:
        G = 1.0
        at, density = place_race.winner_density(task.length_law, task.snr, 0.1)
        relevant = interpolate.make_interp_spline(at, density, k=5)(x) * step
        plain = (n + 1) * other - relevant  # sum over all tokens less the relevant one
    a = hats.T @ relevant
    B = hats.T @ ((G * relevant + plain)[:, None] * hats) + 1e-14 * np.eye(knots)
    return G - G**2 * a @ linalg.solve(B, a, assume_a="pos")


BOUNDS = [
    ndl.SpikedSLR(2, 2.0),
    ndl.SpikedSLR(8, 5.0),
    ndl.SpikedSLR(3, 2.0, relevant_std=0.6),
    ndl.SpikedSLR(3, 2.0, relevant_std=1.5),
    ndl.SpikedSLR(UNIFORM, 4.0),
    ndl.MaxSLR(2, 1.0),
    ndl.MaxSLR(6, 3.0),
    ndl.MaxSLR(3, INF),
    ndl.MaxSLR(UNIFORM, 2.0),
]


@pytest.mark.exact
@pytest.mark.parametrize("task", BOUNDS, ids=str)
def test_a_flexible_activation_reaches_the_bound_and_no_more(task):
    """240 free heights: above the bound by the square of the interpolation error, h^4 with h = 0.06."""
    bound, fitted = ndl.elementwise_bound(task), free_knots(task)
    assert bound.error < 1e-9
    assert -1e-8 < fitted - bound.value < 3e-6
    # negative twin: a coarse family does not get there
    assert free_knots(task, 6) - bound.value > 2e-5


@pytest.mark.exact
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(t, marks=pytest.mark.slow) if isinstance(t, ndl.MaxSLR) and math.isfinite(t.snr) else t
        for t in BOUNDS
        if t.label_var == 1.0
    ],
    ids=str,
)
def test_a_fitted_erf_is_near_the_bound_and_never_below(task):
    """sheet 02, section 2: within 3e-4 with a free shift (fixed lengths), and Bayes is below both."""
    bound = ndl.elementwise_bound(task)
    fitted = ndl.predict(task, ndl.KeyValueAttention(ndl.Erf(shift=None, offset=None)), ndl.Population()).excess_risk
    assert fitted.value >= bound.value - bound.error - fitted.error
    assert fitted.value - bound.value < 3e-4
    assert bayes(task) <= bound.value + bound.error
    assert bound.value < ndl.linear_optimum(task)[0].value


@pytest.mark.exact
@pytest.mark.parametrize("length", [1, 2, 10, 1000])
def test_the_bound_at_the_ends(length):
    assert ndl.elementwise_bound(ndl.MaxSLR(length, INF)).value == pytest.approx(
        (length - 1) / (2 * length - 1), abs=1e-11
    )
    for task in (ndl.SpikedSLR(length, 0.0), ndl.MaxSLR(length, 0.0)):
        found = ndl.elementwise_bound(task)
        assert found.value == pytest.approx(1 - 1 / length, abs=1e-12 + found.error)
    # spiked: E_1 of the probability that a token is another one
    m, n = math.sqrt(3.0), length - 1
    if n:
        direct = integrate.quad(
            lambda x: stats.norm.pdf(x - m) * special.expit(-(m * x - 1.5 - math.log(n))), -9, 14, epsabs=1e-12
        )[0]
        assert ndl.elementwise_bound(ndl.SpikedSLR(length, 3.0)).value == pytest.approx(direct, abs=1e-10)


@pytest.mark.exact
def test_spiked_element_wise_attention_knows_the_mean_length_only():
    mixed, fixed = ndl.SpikedSLR({1: 0.5, 5: 0.5}, 2.0), ndl.SpikedSLR(3, 2.0)
    assert ndl.elementwise_bound(mixed).value == pytest.approx(ndl.elementwise_bound(fixed).value, rel=1e-13)
    assert ndl.linear_optimum(mixed)[0].value == pytest.approx(ndl.linear_optimum(fixed)[0].value, rel=1e-13)
    # under MaxSLR it does not
    mixed, fixed = ndl.MaxSLR({1: 0.5, 5: 0.5}, 2.0), ndl.MaxSLR(3, 2.0)
    assert abs(ndl.elementwise_bound(mixed).value - ndl.elementwise_bound(fixed).value) > 0.01


# --- lengths -------------------------------------------------------------------------------------------


@pytest.mark.paper
@pytest.mark.parametrize(
    ("task", "shared", "separate"),
    [
        (ndl.SpikedSLR(UNIFORM, 2.0), 1 / 3, 0.264957),
        (ndl.MaxSLR(UNIFORM, INF), 0.389476, 0.256260),
    ],
    ids=str,
)
def test_one_key_for_all_lengths_costs_linear_attention(task, shared, separate):
    """sheet 02, corollary 4.4, six digits."""
    found = ndl.length_cost(task, LINEAR)
    assert found.shared.value == pytest.approx(shared, abs=5.1e-7)
    assert found.separate.value == pytest.approx(separate, abs=5.1e-7)
    assert found.cost.value == pytest.approx(shared - separate, abs=1.1e-6)


@pytest.mark.exact
@pytest.mark.parametrize(
    "task",
    [ndl.SpikedSLR(UNIFORM, 2.0), pytest.param(ndl.MaxSLR({2: 0.5, 9: 0.5}, 3.0), marks=pytest.mark.slow)],
    ids=str,
)
def test_lengths_cost_softmax_nothing(task):
    found = ndl.length_cost(task, ndl.KeyValueAttention(ndl.Softmax()))
    assert abs(found.cost.value) <= found.cost.error < 1e-12
    for activation in (ndl.Softplus(), ndl.Erf(shift=None, offset=1.0)):
        assert ndl.length_cost(task, ndl.KeyValueAttention(activation)).cost.value > 1e-5


def test_a_single_length_costs_nothing():
    assert ndl.length_cost(ndl.SpikedSLR(4, 2.0), LINEAR).cost.value == 0.0


def test_statements_without_an_answer():
    with pytest.raises(ndl.InvalidParameter, match="relevant_std=1 only"):
        ndl.softmax_key(ndl.SpikedSLR(2, 1.0, relevant_std=0.5))
    with pytest.raises(ndl.InvalidParameter, match="snr must be > 0"):
        ndl.bayes_asymptote(ndl.MaxSLR(2, 0.0))
    with pytest.raises(ndl.InvalidParameter, match="snr must be > 0"):
        ndl.linear_asymptote(ndl.SpikedSLR(2, 0.0))
    with pytest.raises(ndl.NoTheory, match="no statement about Softmax"):
        ndl.elementwise_bound(ndl.Softmax())
    with pytest.raises(ndl.NoTheory, match="smallest number"):
        ndl.elementwise_bound(ndl.SpikedSLR(2, 1e6))
    assert ndl.softmax_key(ndl.MaxSLR(2, INF)) == INF

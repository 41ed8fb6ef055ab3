"""The place law of MaxSLR: its convolutions against direct integrals, 30 digits and sampling."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

import needlepoint as ndl
from needlepoint.numerics.gaussian import lattice
from needlepoint.theory.location.moments import place_race

INF = math.inf
ROUNDING = 1e-13  # of sums of a few hundred terms of one sign


def utility(snr, y):
    """Density and distribution of a Gaussian plus a Gumbel over snr, the Gaussian conditioned on (20 digits)."""
    mpmath.mp.dps = 20

    def gumbel(x):
        t = mpmath.exp(-snr * (y - x))
        return t, mpmath.exp(-t)

    # the integrand is a Gaussian cut off at y on the scale 1 / snr
    breaks = sorted({-12, -6, 0, 6, 12, *(y + c / snr for c in (-30, -4, -1, 1, 4, 30) if abs(y + c / snr) < 12)})
    density = mpmath.quad(lambda x: mpmath.npdf(x) * snr * mpmath.fprod(gumbel(x)), breaks)
    return float(density), float(mpmath.quad(lambda x: mpmath.npdf(x) * gumbel(x)[1], breaks))


@pytest.mark.exact
@pytest.mark.parametrize("snr", [0.05, 0.7, 0.999, 1.0, 3.0, 40.0])
def test_utilities_are_a_convolution(snr):
    """Both sides of the switch at snr 1; the other rule integrates over the other variable."""
    y = np.array([-3.0, -0.4, 0.9, 2.5, 6.0])
    for found, exact in zip(place_race.utility_law(snr, y), np.transpose([utility(snr, x) for x in y]), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-11, atol=ROUNDING)


@pytest.mark.exact
@pytest.mark.parametrize("snr", [0.3, 1.0, 30.0, INF])
def test_utilities_are_a_law(snr):
    step, y = place_race.utility_grid(snr, 10)
    density, cdf = place_race.utility_law(snr, y)
    assert step * density.sum() == pytest.approx(1.0, abs=ROUNDING)
    soft = 0.0 if snr == INF else 1 / snr
    assert step * (density @ y) == pytest.approx(np.euler_gamma * soft, rel=1e-11, abs=ROUNDING)
    second = 1 + (np.pi**2 / 6 + np.euler_gamma**2) * soft**2
    assert step * (density @ y**2) == pytest.approx(second, rel=1e-11)
    assert np.all(np.diff(cdf) >= -1e-15)
    # the distribution is the integral of the density: central differences of step h have error h^2 p'' / 6
    h = 1e-4
    up, down = (place_race.utility_law(snr, y + sign * h)[1] for sign in (1, -1))
    np.testing.assert_allclose((up - down) / (2 * h), density, atol=1e-8)


def bayes_of_two(snr):
    """L = 2: 1 - E(p^2 + (1-p)^2) = E 2 p (1 - p), p = sigmoid(snr sqrt 2 z): one integral, with 30 digits."""
    mpmath.mp.dps = 30

    def integrand(z):
        return mpmath.npdf(z) / (2 * mpmath.cosh(snr * z / mpmath.sqrt(2)) ** 2)

    scale = 1 / snr
    return float(2 * mpmath.quad(integrand, sorted({0, *(x for x in (scale, 5 * scale, 40 * scale) if x < 14), 3, 14})))


@pytest.mark.exact
@pytest.mark.parametrize("snr", [1e-6, 0.1, 0.9999, 1.0, 2.0, 5.0, 60.0, 1e4, 1e8])
def test_bayes_risk_of_two_tokens(snr):
    assert place_race.bayes_excess_risk(snr, 2) == pytest.approx(bayes_of_two(snr), rel=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize(("snr", "length"), [(0.8, 3), (2.0, 3), (6.0, 3)])
def test_bayes_risk_of_three_tokens(snr, length):
    """1 - E|p|^2 by a trapezoid rule in the two differences of the scores, of step 0.025 (exact to rounding)."""
    x = np.linspace(-9, 9, 721)
    w = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * 0.025
    # an orthonormal frame of the plane orthogonal to (1, 1, 1)
    a, b = np.meshgrid(x, x)
    scores = snr * np.stack(
        [a / math.sqrt(2) + b / math.sqrt(6), -a / math.sqrt(2) + b / math.sqrt(6), -2 * b / 6**0.5]
    )
    p = special.softmax(scores, axis=0)
    direct = 1 - w @ np.sum(p**2, axis=0) @ w
    assert place_race.bayes_excess_risk(snr, length) == pytest.approx(direct, abs=1e-12)


@pytest.mark.montecarlo
@pytest.mark.parametrize(("snr", "length"), [(0.5, 7), (1.7, 30), (12.0, 200)])
def test_bayes_risk_of_many_tokens(snr, length):
    rng = np.random.default_rng(0)
    p = special.softmax(snr * rng.standard_normal((4_000_000 // length, length)), axis=1)
    risk = 1 - np.sum(p**2, axis=1)
    se = risk.std() / math.sqrt(len(risk))
    exact = place_race.bayes_excess_risk(snr, length)
    assert se < 0.01 * exact
    assert abs(risk.mean() - exact) < 5 * se
    # negative twin: an snr that is 10 % too large
    assert abs(risk.mean() - place_race.bayes_excess_risk(1.1 * snr, length)) > 5 * se


@pytest.mark.exact
@pytest.mark.parametrize("snr", [0.01, 0.1, 0.7, 1.0, 4.0, 25.0])
@pytest.mark.parametrize("length", [2, 10, 100, 1000])
def test_the_mean_of_the_winner_is_the_bayes_risk(length, snr):
    """Stein: E sum p_l chi*_l = snr E sum p_l (1 - p_l). The linear optimum is made of this mean, and says so."""
    task = ndl.MaxSLR(length, snr)
    mean = snr * place_race.bayes_excess_risk(snr, length)
    found, at = ndl.linear_optimum(task)
    value = 1 - (1 + mean**2) / length
    assert abs(found.value - value) <= found.error
    assert at.key == pytest.approx(mean, abs=length * found.error)  # d value = 2 mean d mean / L


@pytest.mark.exact
def test_bayes_risk_at_the_ends():
    for length in (1, 2, 9):
        assert place_race.bayes_excess_risk(0.0, length) == pytest.approx((length - 1) / length, rel=1e-15)
        assert place_race.bayes_excess_risk(INF, length) == 0.0
        if length > 1:
            # p = 1/L + snr (x - mean)/L + ..., so that the first correction is snr^2 (1 - 1/L) / L
            small = place_race.bayes_excess_risk(1e-3, length)
            assert small == pytest.approx((length - 1) / length * (1 - 1e-6 / length), rel=1e-11)
    risks = [place_race.bayes_excess_risk(snr, 5) for snr in np.geomspace(1e-2, 1e3, 60)]
    assert np.all(np.diff(risks) < 0)


@pytest.mark.exact
@pytest.mark.parametrize(("quantity", "at"), [("bayes", 1.0), ("mean", 1.0), ("bound", 1.0)])
def test_nothing_jumps_where_the_rule_changes(quantity, at):
    """Utilities at snr 1: the jump over 1e-9 is the slope times 1e-9, and rounding."""

    def value(snr):
        if quantity == "bayes":
            return place_race.bayes_excess_risk(snr, 6)
        if quantity == "bound":
            return ndl.elementwise_bound(ndl.MaxSLR(6, snr)).value
        x, w = place_race.winner_rule(ndl.MaxSLR(6, snr))
        return w @ x

    assert abs(value(at * (1 + 1e-9)) - value(at * (1 - 1e-9))) < 3e-9


@pytest.mark.exact
@pytest.mark.parametrize("snr", [0.0, 0.4, 1.0, 2.5, 30.0, INF])
@pytest.mark.parametrize("tokens", [1, 2, 10, 1000, {1: 0.25, 4: 0.75}])
def test_the_winner_has_a_law(snr, tokens):
    """Mass 1; at an infinite snr the distribution is E[Phi^L], and at snr 0 the winner is any token."""
    task = ndl.MaxSLR(tokens, snr)
    for refine in (1, 3, 8):
        x, w = place_race.winner_rule(task, refine)
        # L - 1 factors Psi have the rounding of L of them
        assert w.sum() == pytest.approx(1.0, abs=ROUNDING + 2e-15 * task.longest)
        if snr == 0 or tokens == 1:
            assert w @ x**4 == pytest.approx(3.0, rel=1e-12)
        if snr == INF:
            # E Phi(chi*_J) = L / (L + 1)
            assert w @ special.ndtr(x) == pytest.approx(sum(p * n / (n + 1) for n, p in task.length_law), rel=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("snr", [0.2, 0.999, 1.001, 3.0, 25.0])
def test_the_winner_of_two(snr):
    """L = 2: W(x) = 2 E sigmoid(snr (x - x')) straight from the softmax."""
    x, density = place_race.winner_density(((2, 1.0),), snr, 0.1)
    for i in range(30, len(x), 30):
        at = float(x[i])
        mean = integrate.quad(
            lambda z, at=at: stats.norm.pdf(z) * special.expit(snr * (at - z)),
            -12,
            12,
            points=[at],
            epsabs=1e-14,
            epsrel=1e-13,
            limit=200,
        )[0]
        assert density[i] == pytest.approx(2 * mean * stats.norm.pdf(at), rel=1e-10, abs=1e-16)


@pytest.mark.montecarlo
@pytest.mark.parametrize(("snr", "tokens"), [(0.6, 5), (3.0, 5), (INF, 12), (2.0, {1: 0.5, 6: 0.5})])
def test_the_winner_by_sampling(snr, tokens):
    task, rng = ndl.MaxSLR(tokens, snr), np.random.default_rng(1)
    means = []
    for n, p in task.length_law:
        star = rng.standard_normal((200_000, n))
        place = special.softmax(snr * star, axis=1) if snr < INF else star == star.max(axis=1, keepdims=True)
        first, second = np.sum(place * star, axis=1), np.sum(place * (star > 1), axis=1)
        means.append([(p * s.mean(), p * s.std() / math.sqrt(len(s))) for s in (first, second)])
    x, w = place_race.winner_rule(task, 16)
    edge = 0.5 * w[np.isclose(x, 1.0)].sum()
    # the lattice of step 1/160 sees the cut at 1 to 1e-5
    for exact, parts, slack in ((w @ x, 0, 0.0), (w[x > 1 + 1e-9].sum() + edge, 1, 3e-5)):
        value, se = sum(m[parts][0] for m in means), math.hypot(*(m[parts][1] for m in means))
        assert se < 0.01 * abs(exact)
        assert abs(value - exact) < 5 * se + slack
        # negative twin: the plain Gaussian token
        assert abs(value - (0.0 if parts == 0 else stats.norm.sf(1.0))) > 20 * se


def brute_race(b, snr, y):
    """int b(x) p(y - x) dx and int b(x) P(y - x) dx by adaptive quadrature, the law of a Gumbel over snr."""
    if snr == INF:
        return b(y), integrate.quad(b, -12, y, epsabs=1e-14, epsrel=1e-13, limit=200)[0]

    def survive(x):
        return math.exp(min(snr * (x - y), 700.0))

    options = {
        "points": sorted({min(max(y + c / snr, -11.9), 11.9) for c in (-30, -3, 0, 3, 5)}),
        "epsabs": 1e-13,
        "epsrel": 1e-12,
        "limit": 500,
    }
    density = integrate.quad(lambda x: b(x) * snr * survive(x) * math.exp(-survive(x)), -12, 12, **options)[0]
    return density, integrate.quad(lambda x: b(x) * math.exp(-survive(x)), -12, 12, **options)[0]


def smooth(x):
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * special.expit(1.5 * x - 0.5)


@pytest.mark.exact
@pytest.mark.parametrize("step", [0.1, 0.05, 0.025])  # the last has more nodes than a dense product is for
@pytest.mark.parametrize("snr", [0.3, 1.9999, 2.0001, 4.0, 7.0, 200.0, INF])
def test_a_race_is_a_convolution(snr, step):
    """The sides of snr * step = 0.2, and an indefinite integral at the end."""
    nodes = math.floor(2 * place_race.REACH / step) + 1
    x = -place_race.REACH + step * np.arange(nodes)
    step_y, winning, losing = place_race.race(snr, step, nodes, 5)
    wins, loses = winning(smooth(x)), losing(smooth(x))
    # the lattice of y starts where the mean is that of b and of the Gumbel noise
    mass, noise = step * smooth(x).sum(), 0.0 if snr == INF else np.euler_gamma / snr
    index = np.arange(len(wins))
    y = step * smooth(x) @ x / mass + noise + step_y * (index - step_y * (wins @ index) / mass)
    # wins are a density, loses go up to the whole mass
    assert step_y * wins.sum() == pytest.approx(step * smooth(x).sum(), abs=ROUNDING)
    assert loses[-1] == pytest.approx(step * smooth(x).sum(), abs=ROUNDING)
    for at in np.searchsorted(y, [-2.1, -0.3, 0.4, 1.7, 3.2]):
        density, cdf = brute_race(smooth, snr, float(y[at]))
        assert wins[at] == pytest.approx(density, abs=1e-11)
        assert loses[at] == pytest.approx(cdf, abs=1e-11)


@pytest.mark.negative
def test_a_running_sum_is_seen():
    """At an infinite snr the plain running trapezoid sum has an error of order step^2, which 1e-11 sees."""
    step, nodes = 0.1, 191
    x = -place_race.REACH + step * np.arange(nodes)
    loses = place_race.race(INF, step, nodes, 5)[2](smooth(x))
    naive = step * (np.cumsum(smooth(x)) - smooth(x) / 2)
    assert 1e-5 < np.max(np.abs(loses - naive)) < 1e-3


@pytest.mark.exact
def test_a_race_of_tables_is_a_race_of_rows():
    """Leading axes are kept by the dense product and by the Fourier one."""
    for step in (0.1, 0.025):
        nodes = math.floor(2 * place_race.REACH / step) + 1
        x = lattice(-place_race.REACH, place_race.REACH + step / 2, step)[:nodes]
        rows = np.stack([smooth(x), smooth(-x), np.zeros_like(x)])
        for apply in place_race.race(9.0, step, nodes, 3)[1:]:
            np.testing.assert_allclose(apply(rows), [apply(r) for r in rows], atol=1e-15)

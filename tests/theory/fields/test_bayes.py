"""The best predictor that knows the teachers, for any field law: the rules of single-location tasks, a closed form, and
sampled vectors."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import needlepoint as ndl
from needlepoint.core import specs

KNOWN = ndl.BayesOptimal()


class Tilted(ndl.SequenceTask):
    """Three tokens that are not alike. The place shifts its token, and the third one is narrow if it is the place; the
    label has two entries, and its noise is not added."""

    teachers = ("key", "value")
    exchangeable = False
    tokens: int = ndl.count(lo=3, default=3)
    snr: float = ndl.real(lo=0.0, default=2.0)
    bias: float = ndl.real(default=0.7)
    narrow: float = ndl.real(lo=0.0, open_lo=True, default=0.8)

    def places(self):
        return 3

    def shift(self, place):
        return {"key": jnp.sqrt(self.snr) * (jnp.arange(self.tokens) == place), "value": 0.4 * jnp.arange(self.tokens)}

    def spread(self, place):
        return jnp.where((jnp.arange(self.tokens) == 2) & (place == 2), self.narrow, 1.0)

    def label(self, fields, place, noise):
        at = fields.value[place]
        return jnp.stack([at * (1 + 0.3 * noise), jnp.tanh(at + fields.key[place] + noise)])


class Sided(ndl.SequenceTask):
    """The second of two places is the likelier the larger the first token's key is; both have shifts of their own."""

    teachers = ("key", "value")
    exchangeable = False
    tokens: int = ndl.count(lo=2, default=2)
    slope: float = ndl.real(default=2.0)
    noise: float = ndl.real(lo=0.0, default=0.3)

    def places(self):
        return 2

    def shift(self, place):
        return {"value": 0.5 * (place == 1) * jnp.ones(self.tokens)}

    def log_tilt(self, fields, place):
        sign = 2 * place - 1
        return jnp.log(2.0) - jnp.log1p(jnp.exp(-sign * self.slope * fields.key[0]))

    def label(self, fields, place, noise):
        return jnp.where(place == 0, fields.value[0], -fields.value[1]) + self.noise * noise


@pytest.fixture(autouse=True, scope="module")
def _declared():
    """The classes of this file have names while it runs."""
    classes = (Tilted, Sided)
    for one in classes:
        ndl.spec(one)
    yield
    for one in classes:
        specs.forget(one.__name__)


def agree(found, other):
    """Three standard errors over scramblings, and the error of the other rule."""
    assert abs(found.value - other.value) <= 1.5 * found.error + other.error


SETTINGS = [
    (ndl.SpikedSLR(3, 4.0, noise=0.2), KNOWN, {"snr": 4.5}),
    (ndl.SpikedSLR({2: 0.5, 4: 0.5}, 4.0), KNOWN, {"snr": 4.5}),
    (ndl.SpikedSLR(3, 4.0, relevant_std=0.8), ndl.BayesOptimal(d=20), {"relevant_std": 0.75}),
    (ndl.MaxSLR(3, 2.0, noise=0.2), KNOWN, {"snr": 2.3}),
]


@pytest.mark.quadrature
@pytest.mark.parametrize(("task", "learner", "changed"), SETTINGS)
def test_the_generic_rule_is_the_specialised_one(task, learner, changed):
    found, other = (ndl.predict(task, None, learner, method=method) for method in ("fields", "location"))
    agree(found.excess_risk, other.excess_risk)
    assert found.exact
    assert found.risk.value - found.excess_risk.value == pytest.approx(task.noise_var, abs=1e-12)
    with pytest.raises(AssertionError):
        agree(found.excess_risk, ndl.predict(task.replace(**changed), None, learner).excess_risk)


@pytest.mark.exact
@pytest.mark.parametrize("task", [ndl.MaxSLR(3, math.inf, noise=0.2), ndl.SpikedSLR(3, 4.0, relevant_std=0.8)])
def test_a_place_that_is_known_leaves_only_the_noise(task):
    """At infinite snr the argmax is the place; in the limit norms tell which token has another spread."""
    found = ndl.predict(task, None, KNOWN, method="fields")
    assert found.excess_risk.value <= found.excess_risk.error <= 1e-12
    assert found.exact is math.isinf(task.snr)
    assert any("norms tell" in note for note in found.notes) is not found.exact


@pytest.mark.exact
def test_signs_with_noise_inside_have_a_closed_form():
    r"""$E[y|X] = \mathrm{erf}(v/\sqrt2\sigma)$, whose mean square is $(2/\pi)\arcsin(1/(1+\sigma^2))$."""
    found = ndl.predict(ndl.SignSLR(2, snr=3.0, noise=0.5), None, KNOWN).risk
    agree(found, ndl.Estimate(1 - 2 / math.pi * math.asin(1 / 1.25)))
    assert found.error < 2e-3
    with pytest.raises(AssertionError):
        agree(found, ndl.Estimate(1 - 2 / math.pi * math.asin(1 / 1.26)))


def by_vectors(d, task, seed, samples=100_000, prior=(1.0, 1.0, 1.0)):
    """The risk of the posterior mean for `Tilted`, with NumPy and whole vectors, mean and standard error. Another prior
    of the places is a wrong predictor."""
    rng = np.random.default_rng(seed)
    place = rng.integers(3, size=samples)
    shifts = np.zeros((3, 3, d))
    shifts[np.arange(3), np.arange(3), 0] = math.sqrt(task.snr)
    shifts[:, :, 1] = 0.4 * np.arange(3)
    spreads = np.ones((3, 3))
    spreads[2, 2] = task.narrow
    x = shifts[place] + spreads[place][:, :, None] * rng.standard_normal((samples, 3, d))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights /= weights.sum()
    logs = np.log(np.array(prior)) * np.ones((samples, 1))
    means = np.zeros((samples, 3, 2))
    for p in range(3):
        squares = np.sum((x - shifts[p]) ** 2, axis=2)
        logs[:, p] += np.sum(-squares / (2 * spreads[p] ** 2) - d * np.log(spreads[p]), axis=1)
        key, value = x[:, p, 0], x[:, p, 1]
        means[:, p] = np.stack([value, np.tanh((value + key)[:, None] + nodes) @ weights], axis=1)
    noise = rng.standard_normal(samples)
    here = np.arange(samples)
    key, value = x[here, place, 0], x[here, place, 1]
    y = np.stack([value * (1 + 0.3 * noise), np.tanh(value + key + noise)], axis=1)
    errors = np.sum((y - np.einsum("np,npk->nk", special.softmax(logs, axis=1), means)) ** 2, axis=1)
    return errors.mean(), errors.std() / math.sqrt(samples)


@pytest.mark.montecarlo
@pytest.mark.parametrize("d", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_task_of_ones_own_is_what_vectors_give(d):
    task = Tilted()
    found = ndl.predict(task, None, ndl.BayesOptimal(d=d))
    assert "excess_risk" not in found.metrics  # noise that multiplies cannot be subtracted
    measured, se = by_vectors(d, task, seed=1)
    assert se < 0.01 * measured
    assert abs(found.risk.value - measured) <= found.risk.error + 5 * se
    # a predictor with another prior is worse, by more than that: its risk is not the least
    wrong, se = by_vectors(d, task, seed=1, prior=(1.0, 1.0, 20.0))
    assert wrong - found.risk.value > found.risk.error + 5 * se


@pytest.mark.montecarlo
def test_simulation_finds_the_same_with_its_own_posterior():
    for task, d, samples in ((Tilted(), 6, 3500), (Sided(), 4, 10_000), (ndl.SignSLR(2, snr=3.0, noise=0.5), 4, 3000)):
        found = ndl.predict(task, None, ndl.BayesOptimal(d=d))
        measured = ndl.simulate(task, None, ndl.BayesOptimal(d=d), d=d, repeats=16, samples=samples)
        assert measured.risk.error < 0.01 * measured.risk.value
        assert abs(ndl.compare(found, measured).worst) < 5


@pytest.mark.slow
def test_the_limit_of_many_dimensions_is_that_of_known_spreads():
    limit = ndl.predict(Tilted(), None, KNOWN)
    at = [ndl.predict(Tilted(), None, ndl.BayesOptimal(d=d)).risk for d in (10, 1000)]
    assert not limit.exact
    agree(at[1], limit.risk)
    assert at[0].value - limit.risk.value > at[0].error + limit.risk.error


def test_what_has_no_rule_says_what_has():
    with pytest.raises(ndl.NoTheory, match="BayesOptimal\\(\\) knows the teachers"):
        ndl.predict(Sided(), None, ndl.BayesOptimal(alpha=2.0))
    with pytest.raises(ndl.NoTheory, match="BayesOptimal\\(\\) knows the teachers"):
        ndl.simulate(Sided(), None, ndl.BayesOptimal(alpha=2.0), d=10, repeats=2)
    with pytest.raises(ndl.InvalidParameter, match="the number of teachers"):
        ndl.predict(ndl.Needles(2, 3.0), None, ndl.BayesOptimal(d=3))
    tight = ndl.predict(Sided(), None, KNOWN, tol=1e-7, throw=False)
    assert tight.status is ndl.Status.NOISE_LIMITED
    assert tight.risk.error > 1e-7

"""Power-law targets: exponents of learning, and directions that are learned one after the other."""

import numpy as np
import pytest

import needlepoint as ndl


def task(gamma, d, noise):
    return ndl.AttentionIndexed(1, ndl.PowerLaw(gamma, d), noise)


@pytest.mark.slow
@pytest.mark.paper
@pytest.mark.parametrize(("gamma", "noise", "near"), [(1.5, 0.5, 0.03), (1.0, 0.0, 0.1)])
def test_local_slopes_approach_the_exponents(gamma, noise, near):
    """Noisy labels and smaller exponents are left out: their slopes come down slowly (-.56 for -.5 here)."""
    ratios = np.array([3e2, 1e3])
    found = [
        ndl.predict(task(gamma, 100_000, noise), ndl.TiedAttention(), ndl.Ridge(r / 1e5, "optimal")) for r in ratios
    ]
    errors = [float(p.estimation_error) for p in found]
    slope = np.log(errors[1] / errors[0]) / np.log(ratios[1] / ratios[0])
    expected = ndl.learning_exponents(task(gamma, 100_000, noise)).estimation_error
    assert abs(slope / expected - 1) < near
    # the exponent of the other case would be far off
    other = ndl.learning_exponents(task(gamma, 100_000, 0.5 - noise)).estimation_error
    assert abs(slope / other - 1) > 0.3


@pytest.mark.montecarlo
def test_directions_are_those_of_a_matrix_in_noise():
    """S0 + delta Z at d = 400 has the eigenvalues and overlaps that are predicted for its spikes."""
    d, learner = 400, ndl.Ridge(0.05, 0.3)
    question = task(1.0, d, 0.5), ndl.TiedAttention(), learner
    found, prediction = ndl.recovered_directions(*question), ndl.predict(*question)
    delta, cut = prediction.conjugates["noise"], prediction.conjugates["cut"]
    assert 2 <= len(found) < 10
    rng, top, overlaps = np.random.default_rng(0), [], []
    for _ in range(16):
        G = rng.standard_normal((d, d))
        values, vectors = np.linalg.eigh(
            np.diag(ndl.PowerLaw(1.0, d).eigenvalues()) + delta * (G + G.T) / np.sqrt(2 * d)
        )
        top.append(values[::-1][:2])
        overlaps.append(vectors[[0, 1], [-1, -2]] ** 2)
    error = np.std(top, axis=0, ddof=1) / 4
    # the others are not zero, which moves each by about delta^2 Tr S0 / (d s^2)
    moved = delta**2 * np.mean(ndl.PowerLaw(1.0, d).eigenvalues()) / found.target[:2] ** 2
    assert np.all(np.abs(np.mean(top, axis=0) - cut - found.eigenvalue[:2]) < 4 * error + 2 * moved)
    spread = np.std(overlaps, axis=0, ddof=1) / 4
    assert np.all(np.abs(np.mean(overlaps, axis=0) - found.overlap[:2]) < 4 * spread + 0.05)


@pytest.mark.exact
def test_more_data_recover_more_directions_in_order():
    counts = [
        len(ndl.recovered_directions(task(1.0, 400, 0.5), ndl.TiedAttention(), ndl.Ridge(r / 400, "optimal")))
        for r in (3, 30, 300)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ndl.learning_exponents(ndl.AttentionIndexed(1, ndl.Wishart(0.5))), "PowerLaw target"),
        (lambda: ndl.learning_exponents(task(0.5, 10, 0.5)), "above 1/2"),
        (
            lambda: ndl.recovered_directions(
                ndl.AttentionIndexed(1, ndl.Wishart(0.5)), ndl.TiedAttention(), ndl.Ridge(1, 1)
            ),
            "PowerLaw or Eigenvalues",
        ),
        (
            lambda: ndl.recovered_directions(task(1.0, 10, 0.5), ndl.TiedAttention(), ndl.BayesOptimal(1.0)),
            "Ridge learns",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ndl.NeedlepointError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)

"""Ridge training from many starts: CPU time of 64 starts in one batch, and of the same starts one after the other."""

import functools

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.numerics.precision import float64
from needlepoint.simulation.location import ridge

QUESTIONS = {
    "linear": (ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(2.0, 0.1)),
    "softmax": (ndl.KeyValueAttention(ndl.Softmax()), ndl.Ridge(2.0, 0.01)),
}
TASK, D, STARTS = ndl.SpikedSLR(2, snr=2.0, noise=0.1), 200, 64


@pytest.mark.parametrize("name", QUESTIONS)
def test_sixty_four_starts(benchmark, clock, report, name):
    """Wanted after compilation, with the risks of all of them: 5 s at d = 200, n = 2 d and two tokens."""
    ask = functools.partial(ndl.simulate, TASK, *QUESTIONS[name], d=D, repeats=1, starts=STARTS)
    ask()
    seconds, found = clock(ask, seed=1)
    benchmark.pedantic(ask, rounds=1)
    report(f"{name}: {seconds:.2f} s, lowest energy {found.energy.value:.5f}, {found.distinct_minima.value:.0f} minima")


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_batch_against_one_after_the_other(benchmark, clock, report, name):
    """What one product for all starts saves, and whether the two find minima that are as low."""
    train = float64(np.errstate(over="ignore", invalid="ignore")(ridge.train))
    lone = float64(ridge.lbfgs)
    asked = (TASK, *QUESTIONS[name], D, 0, 0)
    train(*asked, STARTS)
    together, trained = clock(train, *asked, STARTS)
    starts = np.random.default_rng(0).standard_normal((12, 2, D))
    starts /= np.linalg.norm(starts, axis=2, keepdims=True)
    lone(trained.problem, starts[0])
    apart, minima = clock(lambda: [lone(trained.problem, weights) for weights in starts])
    benchmark.pedantic(train, (*asked, 4), rounds=1)
    each = apart / len(starts)
    steps = [np.mean([m.steps for m in found]) for found in (trained.minima.values(), minima)]
    means = [np.mean([m.energy for m in found]) for found in (trained.minima.values(), minima)]
    report(
        f"{name}: {together:.2f} s for {STARTS + 1} starts with the data, {each * (STARTS + 1):.2f} s one after the "
        f"other; gradients a start {steps[0]:.0f} and {steps[1]:.0f}, mean energies {means[0]:.4f} and {means[1]:.4f}"
    )

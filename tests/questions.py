"""Small questions of every family, one table for the tests of what all families share.

A question is a task, a model and a learner, something to sweep over (two values), and a small simulation. Together they
meet every kind of result: with and without overlaps, of both types; with trajectories; with spectra and the values of
every repeat; Bayes without a model; theory that is exact at a d and theory that is a limit.
"""

from dataclasses import dataclass, field
from typing import Any

import needlepoint as ndl

ERF = ndl.KeyValueAttention(ndl.Erf(scale=0.4), unit_norm=True)
FREE = ndl.KeyValueAttention(ndl.Erf(scale=0.4, offset=1.0))
LINEAR = ndl.KeyValueAttention(ndl.Linear())
SOFTMAX = ndl.KeyValueAttention(ndl.Softmax())
START = ndl.Overlaps(0.3, 0.4, 0.1, -0.1, 0.2)
ONE_TOKEN = ndl.AttentionIndexed(1, ndl.Wishart(0.5), noise_var=0.04)
TWO_TOKENS = ndl.AttentionIndexed(2, ndl.Wishart(0.5), noise_var=0.04)
SPIKED = ndl.SpikedSLR(2, snr=4.0, noise=0.2)
MAX = ndl.MaxSLR(2, snr=2.0, noise=0.2)


@dataclass(frozen=True)
class Question:
    """`over` has one path with two values; `simulation` are the arguments of `Simulation` but the repeats."""

    task: ndl.core.specs.Spec
    model: Any
    learner: Any
    over: dict[str, list[Any]]
    simulation: dict[str, Any] = field(default_factory=lambda: {"d": 8, "samples": 100})
    papers: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[Any, Any, Any]:
        return self.task, self.model, self.learner

    @property
    def status(self) -> ndl.Status:
        """What an answer is: a run that did its steps is not said to have converged."""
        return ndl.Status.FINISHED if hasattr(self.learner, "record_every") else ndl.Status.CONVERGED


QUESTIONS = {
    # the optimum at infinite data
    "spiked, softmax, population": Question(SPIKED, SOFTMAX, ndl.Population(), {"task.snr": [1.0, 4.0]}),
    "spiked, erf on spheres, population": Question(SPIKED, ERF, ndl.Population(), {"task.snr": [1.0, 4.0]}),
    "max, linear, population": Question(MAX, LINEAR, ndl.Population(), {"task.snr": [1.0, 2.0]}),
    "spiked, regression, population": Question(
        SPIKED, ndl.LinearRegression(), ndl.Population(), {"task.snr": [1.0, 4.0]}
    ),
    # ridge training
    "spiked, softmax, ridge": Question(SPIKED, SOFTMAX, ndl.Ridge(3.0, 1.0), {"learner.lam": [1.0, 2.0]}),
    "max, softmax, ridge": Question(MAX, SOFTMAX, ndl.Ridge(3.0, 1.0), {"learner.lam": [1.0, 2.0]}),
    "one token, tied, ridge": Question(
        ONE_TOKEN, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1), {"learner.alpha": [0.5, 1.0]}
    ),
    "one token, direct, ridge": Question(
        ONE_TOKEN, ndl.DirectAttention(), ndl.Ridge(0.5, 0.1), {"learner.lam": [0.1, 0.2]}
    ),
    "two tokens, tied, ridge": Question(
        TWO_TOKENS, ndl.TiedAttention(), ndl.Ridge(0.5, 0.1), {"learner.alpha": [0.5, 1.0]}
    ),
    # ridge training by the rules for every field law
    "needles, one head, ridge": Question(
        ndl.Needles(2, snr=3.0, noise=0.2),
        ndl.MultiHead(1, ndl.Softmax()),
        ndl.Ridge(3.0, 1.0),
        {"learner.lam": [1.0, 2.0]},
    ),
    "positional, tied, ridge": Question(
        ndl.PositionalSemantic(0.3),
        ndl.LowRankTied(),
        ndl.Ridge(2.0, 0.2, loss=ndl.Square(0.25)),
        {"learner.alpha": [1.5, 2.0]},
    ),
    # Bayes
    "spiked, Bayes": Question(SPIKED, None, ndl.BayesOptimal(), {"task.snr": [1.0, 4.0]}),
    "signs, Bayes": Question(ndl.SignSLR(2, snr=3.0, noise=0.5), None, ndl.BayesOptimal(), {"task.noise": [0.5, 1.0]}),
    "max, Bayes of samples": Question(MAX, None, ndl.BayesOptimal(alpha=2.0), {"learner.alpha": [1.0, 2.0]}),
    "spiked, Bayes of samples": Question(SPIKED, None, ndl.BayesOptimal(alpha=2.0), {"learner.alpha": [1.0, 2.0]}),
    "one token, Bayes": Question(ONE_TOKEN, None, ndl.BayesOptimal(0.5), {"learner.alpha": [0.3, 0.5]}),
    "two tokens, Bayes": Question(TWO_TOKENS, None, ndl.BayesOptimal(0.5), {"learner.alpha": [0.3, 0.5]}),
    # dynamics
    "spiked, erf, descent": Question(SPIKED, ERF, ndl.ProjectedDescent(0.01, 5, START), {"learner.lr": [0.01, 0.02]}),
    "spiked, erf, descent of random starts": Question(
        SPIKED, ERF, ndl.ProjectedDescent(0.01, 5, "sphere", d=8, runs=3), {"learner.lr": [0.01, 0.02]}
    ),
    "spiked, erf, SGD": Question(
        SPIKED, ERF, ndl.OnlineSGD(0.01, 5, 2, START, d=8, runs=3), {"learner.lr": [0.01, 0.02]}
    ),
    "max, erf, SGD": Question(MAX, FREE, ndl.OnlineSGD(0.01, 5, 2, START, d=8, runs=3), {"learner.lr": [0.01, 0.02]}),
    "spiked, softmax, flow": Question(SPIKED, SOFTMAX, ndl.GradientFlow(0.5, START, 0.25), {"task.snr": [1.0, 4.0]}),
    "max, erf, flow": Question(MAX, FREE, ndl.GradientFlow(0.5, START, 0.25), {"task.snr": [1.0, 2.0]}),
}

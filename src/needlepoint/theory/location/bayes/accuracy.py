"""The numbers that steer the Bayes-optimal predictions, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BayesAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; `benchmarks/honesty` and the tests of this
    room hold what comes of it.
    """

    # given_teachers.py

    given_teachers_rounding: float = 1e-13
    """Relative error of eq:max-bayes, whose rules are exact to rounding: see its test against 30 digits."""

    # max_posterior.py

    points: int = 11
    """log2 of the key fields of one scrambling."""

    search_points: int = 10
    """The same in a search."""

    draws: int = 16
    """Draws of the value fields for each key field: they vary more, and cost less."""

    search_draws: int = 4
    """The same in a search."""

    max_posterior_chunk: int = 2**21
    """Numbers held at once."""

    longest: int = 200
    """Most tokens for which the state evolution of the max task is sampled."""

    never: float = 1e-14
    """A place of smaller probability does not count."""

    b: tuple[float, float] = (-40.0, 46.0)
    """Ends of b in `two_tokens`: beyond them the label rules out one token."""

    b_step: float = 0.05
    """Step of the table over b in `two_tokens`."""

    # samples.py

    samples_most: int = 400
    """Most iterations of a search."""

    near: float = 1e-2
    """Size of a step of log(q / (1 - q)) below which Newton's method takes over."""

    lowest: float = -21.0
    """Least value of log(q / (1 - q))."""

    apart: float = 1e-4
    """Overlaps that differ by more are two branches."""

    samples_far: int = 1000
    """How far Newton's method may go, in units of the last step of the iteration."""

    corrections: int = 8
    """Most corrections with fine integrals."""

    samples_rounding: float = 1e-13
    """Error of a mean by quadrature that no change of the steps shows."""

    # spiked_posterior.py

    u_step: float = 0.2
    """Step of u in the lattice of the integral over u, times its coarseness."""

    table: float = 0.01
    """Step of the tables that are interpolated, with an error of 1e-10."""

    nodes: int = 32
    """Nodes per unit of standard deviation of a token's log-weight."""

    largest: int = 20_000_000
    """Most numbers in a table."""

    # spiked_teachers.py

    reach: float = 9.5
    """Least number of standard deviations that the nodes of the relevant token go from its mean."""

    ties: float = 6.5
    """How far they go beyond the place where two tokens are mistaken for each other, in the same units."""

    spiked_teachers_far: float = 16.0
    """Farthest that they go, in the same units: beyond, the risk is below 1e-40."""

    step_u: float = 0.2
    """Step of u."""

    step_log: float = 0.3
    """Step of a log-weight between neighbouring nodes."""

    deep: float = 120.0
    """A log-likelihood ratio that no other token reaches, but for risks below 1e-30."""

    largest_line: int = 200_000
    """Most nodes of a token."""

    largest_table: int = 200_000_000
    """Most (u, node) pairs."""

    spiked_teachers_chunk: int = 4_000_000
    """(u, node) pairs held in memory at once."""

    spiked_teachers_rounding: float = 1e-12
    """Error of the risk, relative to it, that no change of the steps shows."""

    # transition.py

    spacing: float = 0.5
    """Spacing of the points on the curve of fixed points, in log(q_v / (1 - q_v))."""

    solved: float = 1e-6
    """Largest difference of log alpha by key and by value; what is left is corrected for later."""

    transition_most: int = 30
    """Most steps of an iteration."""


ACCURACY = BayesAccuracy()

"""The numbers that steer the solver of the replica-symmetric equations, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RidgeAccuracy:
    """Steps, tolerances and numbers of points, each with its unit and reason.

    Coordinates are overlaps and logarithms (see `equations.pack`), all of order one. Where nothing is said of how a
    value was chosen, it was set by hand; the robustness table of docs/theory/ridge.md is what was measured with it.
    """

    # branches.py

    found: float = 1e-4
    """Step of the coordinates below which a search for branches has converged."""

    nearly_found: float = 1e-3
    """Step that is accepted where the search stops shrinking: samples whose minima appear or vanish make the map
    jump slightly."""

    finer: tuple[int, ...] = (0, 2, 4)
    """Doublings of the coarse points that are tried in turn until a branch is found."""

    # curves.py

    memory: int = 4
    """Points of a curve that the next one is extrapolated from."""

    small: float = 1e-3
    """Added to parameters before the logarithm, and to distances, so that neither is zero."""

    alike: float = 0.1
    """Least distance between two known points, relative to the distance of the later one to the next point."""

    # equations.py

    least_log_spread: float = math.log(1e-10)
    """Lower bound of log(q - m^2): where a weight vanishes, its logarithm would have no limit."""

    largest_log_susceptibility: float = 25.0
    """Upper bound of log V; there neither the penalty nor the data hold the weight."""

    linear: float = 0.05
    """Distance in any coordinate from a fixed point within which first order is accurate enough; seen on two
    settings only."""

    solve_steps: int = 150
    """Most steps of `solve`."""

    followed_steps: int = 3
    """Newton steps with which a minimum of a sequence is followed from the last one; six where it is searched for. Most
    end in two; if many do not, all take three more, and the last few are searched for."""

    searches: int = 3
    """Most searches for lower minima of sequences at the end of an iteration that followed them, each after the first
    at the end of what the one before has moved. One is enough where nothing jumps."""

    settle_steps: int = 60
    """Most steps of `settle`."""

    pooled_steps: int = 40
    """Most steps of `settle_pooled`."""

    pooled_steps_dear: int = 12
    """The same where the proximal map is not one-dimensional: each step is seven maps of all scramblings, and forty of
    them took over ten minutes for answers that are flagged in any case."""

    jumping_step: float = 1e-3
    """Steps below this may stop shrinking: samples whose minima appear or vanish make the map jump slightly."""

    # fields.py

    even_snr: float = 8.0
    """The snr at which the two estimators of the key's conjugate m_k on the max task get equal weights."""

    late: int = 64
    """Samples that did not converge and are solved again in one batch."""

    far: float = 1e-6
    """Slope left times V_k (about the distance of a score to its minimum) above which a sample is solved again."""

    # penalty.py

    penalty_points_cheap: int = 12
    """log2 of the points with which penalties are compared, for one-dimensional proximal maps."""

    penalty_points_dear: int = 9
    """The same for all other proximal maps. All penalties use the same points, so that the risk is smooth."""

    remembered: float = 0.5
    """Largest difference of log penalties over which minima of sequences are followed from one solution to the next; a
    little more than the differences of the risk are taken over."""

    penalty_settled: float = 5e-4
    """Step of the coordinates below which a scrambling is solved in these rounds: what it leaves in the differences of
    the risk is small beside those between scramblings."""

    penalty_steps: int = 20
    """Most steps to a solution of the search, and of each scrambling to its own."""

    risk_step: float = 1e-3
    """Step of the differences of the population risk, relative to the key's norm or spread."""

    # refining.py

    most_cheap: int = 16
    """log2 of the most points per scrambling for one-dimensional proximal maps."""

    most_dear: int = 13
    """log2 of the most points per scrambling for all other proximal maps."""

    worth: int = 11
    """log2 of the points per scrambling beyond which stability is computed first: more points may not be worth
    it."""

    gap: float = 0.4
    """Scramblings that leave a wider gap in a coordinate are on different branches; seen on two settings only."""

    rate: float = 0.75
    """The error is taken to fall as the inverse of the number of points to this power."""

    # solutions.py

    settled: float = 1e-5
    """Step of the coordinates below which a solution has converged."""

    quiet: float = 0.1
    """A step has converged, too, below this share of the largest standard deviation between scramblings."""

    held: float = 20.0
    """log V beyond which neither the penalty nor the data hold the weight."""

    loose: float = 1e3
    """The same for V, where a penalty is zero and the iteration did not converge."""

    sampled: int = 16
    """Scramblings for the population risk of an activation that has no tables."""

    # solving.py

    nearly: float = 3e-3
    """Step below which starts are no longer followed; enough to see whether they end farther apart than `APART`."""

    trend: float = 0.3
    """Largest move of a coordinate by extrapolation from the neighbours on a curve."""

    first_steps: int = 2
    """Most steps of a curve's next point from its neighbours, before a Jacobian of its own is computed."""

    first_steps_followed: int = 6
    """The same where minima are followed: a step is a fraction of the search at their end."""

    mixed: int = 3
    """Neighbours that are extrapolated from where they were solved with different numbers of points."""

    ample: float = 0.5
    """Share of the tolerance: if the neighbour's error is below it, half as many points are tried."""

    # stability.py

    clear: float = 0.7
    """A replicon below this, by five standard errors, is accepted with few points."""

    stability_points: int = 12
    """log2 of the points per scrambling that decide on stability; its means have heavy tails."""

    spare_points: int = 13
    """Highest log2 of points that replaces `stability_points` where the solution has used it: its minima can be
    reused."""

    idle: float = 1e-9
    """Response of the forces times V (their share in what holds a weight) below which they count as constant."""

    flat: float = 1e-4
    """Slope times V_k (about the distance of a score to its minimum) below which a rival is a minimum."""


ACCURACY = RidgeAccuracy()

"""The numbers that steer sampling, training and message passing on location tasks, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LocationTrainingAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; the tests of this room hold what comes of
    it.
    """

    # bayes_amp.py

    largest: float = 4e8
    """Most numbers in a data set (3.2 GB)."""

    bayes_amp_chunk: int = 2_000_000
    """Numbers in memory at once besides the data (16 MB)."""

    bayes_amp_steps: int = 1000
    """Most steps of message passing for the Bayes-optimal predictor."""

    bayes_amp_damping: float = 0.5
    """Share of the old weights, variances and scores; undamped, a mode off the invariant manifold grows."""

    patience: int = 400
    """Steps after which an iteration that circles is damped by `stronger` instead."""

    stronger: float = 0.8
    """The damping of an iteration that circles."""

    bayes_amp_tolerance: float = 1e-4
    """A step of k and of v below this, in norm, has converged."""

    # free_norms.py

    largest_sample: int = 100_000_000
    """Most token coordinates of a fixed sample (800 MB)."""

    rtol: float = 1e-6
    """Relative tolerance of the integrator of a flow, far below the sampling error."""

    # hessians.py

    largest_d: int = 2000
    """Largest d at which the Hessian is computed: it has (2 d)^2 entries (128 MB)."""

    block: int = 512
    """Sequences whose products with their small Hessians are in memory at once."""

    # ridge_amp.py

    ridge_amp_steps: int = 500
    """Most steps of message passing for ridge training."""

    ridge_amp_damping: float = 0.5
    """Share of the old state; undamped, modes off the invariant manifold grow and single sequences oscillate."""

    # ridge_problem.py

    drawn: int = 256
    """Sequences drawn at once, so that one compilation serves every n and copies are small."""

    drawn_numbers: int = 4_000_000
    """Fewer sequences are drawn at once if they have more numbers than this (32 MB)."""

    cached: int = 2**18
    """Numbers in a block that is multiplied by k and by v while it is in the cache (2 MB)."""

    padded: int = 8192
    """Sequences whose small derivatives are taken at once; fewer are padded to a power of two."""

    ridge_problem_tolerance: float = 1e-6
    """Slope at which a minimum has been found; `Problem.tolerance` says in which units."""

    # risks.py

    largest_sequence: int = 100_000_000
    """Most token coordinates of one sequence (800 MB)."""

    risks_chunk: int = 4_000_000
    """Token coordinates of a chunk of sequences, which is in memory at once (32 MB)."""


ACCURACY = LocationTrainingAccuracy()

"""The numbers that steer training and message passing on the attention-indexed model, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IndexedTrainingAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; the tests of this room hold what comes of
    it.
    """

    # amp.py

    amp_steps: int = 500
    """Most steps of message passing for ridge training."""

    amp_damping: float = 0.5
    """Share of the old S, Sigma and g; undamped S oscillates, and single sequences do if g is not damped."""

    newton_steps: int = 60
    """Most Newton steps of a sequence's proximal map."""

    halvings: int = 30
    """Most halvings of one Newton step that does not descend."""

    amp_still: float = 1e-11
    """Newton step, relative to 1 + the largest score, after which only rounding is left."""

    # bayes.py

    bayes_steps: int = 1000
    """Most steps of message passing for the Bayes-optimal estimate."""

    bayes_damping: float = 0.6
    """Share of the old S; residuals are not damped, since single eigenvalues swing if they lag behind S."""

    patience: int = 300
    """Steps after which an iteration that circles is damped by `stronger` instead."""

    stronger: float = 0.8
    """The damping of an iteration that circles."""

    bayes_still: float = 1e-4
    """Move of S relative to sqrt(d tau), the noise of the matrix that it is estimated from."""

    found: float = 1e-10
    """tau relative to the mean square of the target below which S0 is known."""

    table: int = 256
    """Points at which the shrinkage is tabulated."""

    per_piece: int = 16
    """Fewest of them on each piece of the support."""

    log2_points: int = 6
    """log2 of the points of each of two rules of integration over the unknown part of test scores."""

    at_once: int = 2**21
    """Numbers in memory at once (16 MB)."""

    # minimisers.py

    minimisers_steps: int = 10_000
    """Most steps of FISTA."""

    adam_steps: int = 3_000
    """Steps of Adam."""

    adam_rate: float = 0.2
    """First rate of Adam, for entries of W of order one."""

    adam_decay: float = 1e-3
    """Last rate of Adam, relative to the first."""

    power_steps: int = 30
    """Steps of the power iteration for the largest curvature."""

    margin: float = 1.1
    """Factor on the largest curvature, which the power iteration finds to a few per cent."""

    # problem.py

    cached: int = 2**18
    """Numbers in a block of tokens that is multiplied by S at once (2 MB)."""

    tolerance: float = 1e-6
    """Slope at which a minimum has been found; `Problem.tolerance` says in which units."""

    # training.py

    drawn: int = 2**21
    """Numbers in the test tokens that are drawn at once (16 MB)."""


ACCURACY = IndexedTrainingAccuracy()

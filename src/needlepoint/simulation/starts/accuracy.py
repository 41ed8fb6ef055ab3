"""The numbers that steer training from many starts, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StartsAccuracy:
    """Steps, tolerances and sizes, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; the tests of this room hold what comes of it.
    """

    # lbfgs.py

    most_steps: int = 10_000
    """Most gradients of one start, as where starts are trained one by one."""

    memory: int = 20
    """Pairs of steps and gradients that each start keeps."""

    descent: float = 1e-4
    """Share of the descent that the slope promises, which a step has to give."""

    flattened: float = 0.9
    """Share of the slope that may be left after a step; more means that the step was too short."""

    trials: int = 25
    """Most lengths of one step that are tried; then the direction is the gradient's, and after that the start ends."""

    crowd: float = 0.8
    """Share of the batch that is still on its way below which those that have ended leave it."""

    batch: int = 2**26
    """Numbers in the memory of starts that are trained in one batch (0.5 GB); more starts are more batches."""

    # measures.py

    most_starts: int = 100_000
    """Most random starts of a repeat."""

    # products.py

    block: int = 2**22
    """Numbers in a block of fields of all starts (32 MB)."""

    # distinct.py

    same_energy: float = 1e-5
    """Relative difference of the energies of two minima below which they may be one."""

    same_weights: float = 0.99
    """Cosine of the weights of two minima, column by column and up to gauge, above which they may be one."""

    no_column: float = 1e-6
    """Norm of a column, as a share of the norm of all, below which its direction is rounding."""


ACCURACY = StartsAccuracy()

"""The numbers that steer the search for the population optimum, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PopulationAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Where nothing is said of how a value was chosen, it was set by hand; `benchmarks/honesty` and the tests of this
    room hold what comes of it.
    """

    # best_key.py

    coarse: float = 1e-5
    """Value error, in units of the label's variance, above which the tables at a minimum need not be fine."""

    rounds: int = 8
    """Most rounds of minimisation from one start, each with variables scaled by where it starts: a flat valley takes
    several."""

    small: float = 1e-3
    """Risk, in units of the label's variance, below which the minimum may lie in a valley that is too flat for
    gradients alone."""

    scanning: float = 0.5
    """Share of the progress that the scan counts for."""

    promising: float = 0.03
    """How far above the lowest a scanned point may lie, in units of the label's variance."""

    # first_keys.py

    alignments: tuple[float, ...] = (1.0, 0.6, -0.6, -1.0)
    """Cosines of k with its teacher at which the scan looks."""

    apart: float = 0.25
    """Largest difference of log |k| between neighbouring norms."""

    turning: float = 0.4
    """Largest change of an argument of erf between neighbouring norms."""

    saturated: float = 6.0
    """erf is constant to rounding beyond this argument."""

    underflow: float = 27.0
    """1 - erf underflows beyond this argument."""

    offsets: tuple[float, ...] = (1.0, -1.0, 0.0)
    """Offsets of erf at which (A, B) of eq:value-form are computed; they are polynomials of the offset, of degree 1 and
    2, so three determine them."""

    largest_offset: float = 1e6
    """Largest offset of erf that a scan returns, in absolute value."""

    # infima.py

    far: float = 1e9
    """Norm at which erf counts as a step, in units of max(1, |shift|) / scale."""

    turns: int = 129
    """Nodes of the grid of scores at which the step may lie."""

    zooms: int = 4
    """How often that grid zooms in."""

    # risk.py

    scrambles: int = 64
    """Scramblings of sampled risks: many, as few may all happen to have too few points beyond a step."""

    qmc_rtol: float = 1e-4
    """Relative error of the risk at which no more points are taken."""

    unseen: float = 1e-10
    """Relative error so small that all scramblings may have missed a rare event."""

    qmc_points: tuple[int, int] = (10, 12)
    """log2 of the first and the last number of points a scramble."""

    nodes: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    """Nodes of the trapezoid rule, refined in this order."""

    refine: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Divisions of the step of the winner's rule, in this order."""

    # risk_at_a_key.py

    qmc_budget: int = 17
    """log2 of points times tokens, the most that a search takes."""

    # statements.py

    largest_shift: float = 100.0
    """Largest shift of the spike, in standard deviations of a token; beyond it the bound underflows."""


ACCURACY = PopulationAccuracy()

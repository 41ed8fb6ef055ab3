"""The numbers that steer the search for the ground state, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StatesAccuracy:
    """Steps, tolerances and numbers of points, each with its unit and reason. Values were set by hand where nothing
    else is said.

    The breaking parameter x multiplies envelopes, so that it is measured in one over the mean envelope of the
    replica-symmetric solution.
    """

    tolerance: float = 0.03
    """Default error of the risk, relative to the risk."""

    kernel: int = 8192
    """Samples (outer times inner points) that are in memory at once: their arrays stay in the nearest caches."""

    coarse: tuple[int, int] = (10, 8)
    """log2 of the outer and of the inner points with which the branch is followed in x, where the proximal map is at
    most a search in one dimension."""

    coarse_else: tuple[int, int] = (8, 7)
    """The same for searches in several dimensions."""

    inner: tuple[tuple[float, int, int], ...] = ((0.77, 11, 7), (0.0, 10, 9))
    """(least effective share of the inner points at the ground state, log2 of the outer points per scrambling to begin
    with, log2 of the inner points), where the proximal map is at most a search in one dimension. For softmax over two
    tokens, whose share is .67, the complexity scattered three times less between scramblings with (10, 9) than with
    (11, 8); for linear attention, .8, fewer inner points do no harm."""

    most_outer: int = 13
    """log2 of the most outer points per scrambling, for these maps: a sample takes .1 to .5 microseconds."""

    inner_else: tuple[tuple[float, int, int], ...] = ((0.0, 8, 8),)
    """The same for searches in several dimensions, whose samples take 5 to 20 microseconds."""

    most_outer_else: int = 10
    """log2 of their most outer points."""

    rate: float = 0.6
    """The error is taken to fall as the inverse of the number of outer points to this power."""

    scrambles: int = 8
    """Independent scramblings, from whose differences errors come."""

    first: float = 3e-4
    """First x, over one over the mean envelope: so small that overlaps and energies are the replica-symmetric ones."""

    second: float = 0.03
    """Second x in the same unit; up to it everything changes linearly in x."""

    growth: float = 1.8
    """Factor between the x that follow each other."""

    growth_past: float = 1.3
    """The same where the complexity has begun to fall."""

    gone: float = 0.5
    """Share of the largest complexity below which the branch is not followed further: of one scrambling the complexity
    is known to some tenths, and more points take over."""

    nearly_gone: float = 0.85
    """Share of the largest below which the x where it vanishes may be foretold from the last two points,"""

    ahead: float = 1.5
    """at most by this factor beyond the last."""

    most_inner: int = 10
    """log2 of the most inner points of the branch; they are doubled where twice as many change the complexity by more
    than"""

    off: float = 0.25
    """this share of the largest so far."""

    ample: float = 0.97
    """Effective share of the inner points above which that is not tried."""

    most_x: int = 24
    """Most x on a branch."""

    begun: float = 0.5
    """Share of a column's spread (Q - M M^T) that states have in common where the branch begins."""

    together: float = 1e-4
    """States whose columns differ by less than this share of their squared norms are one state."""

    sought: tuple[float, ...] = (0.1, 0.4, 1.6)
    """x, in the same unit, at which states are sought where there is only one at the first x."""

    found: float = 1e-4
    """Step of the coordinates below which a point of the branch has converged."""

    nearly_found: float = 2e-3
    """Step that is accepted where it stops shrinking: minima that appear or vanish make the map jump."""

    settled: float = 2e-5
    """Step of the coordinates below which the ground state has converged."""

    quiet: float = 0.1
    """A step has converged, too, below this share of the largest standard deviation between scramblings."""

    slow: int = 12
    """Steps to a point beyond which the Jacobian that they used is computed again for the next."""

    steps: int = 60
    """Most steps to a point of the branch."""

    first_steps: int = 3
    """Steps after which the differences between scramblings are known well enough to say which steps are small."""

    fine_steps: int = 30
    """Most steps of the scramblings to the ground state, with the Jacobian of the branch."""

    test_points: int = 10
    """log2 of the points, two scramblings, with which risks of the scramblings are compared."""

    share: float = 0.3
    """Least effective share of the inner points. Below it their mean is that of a few, and energies rise spuriously."""

    around: float = 1.2
    """Factor between the x at which the equations of the ground state are solved: the complexity vanishes between two,
    and a third says what x changes."""

    most_around: int = 7
    """Most such x until three are around the ground state."""

    rise: float = 2.0
    """Standard errors by which the complexity may grow from one of these x to the next. Too few inner points make it
    grow, where it should fall."""

    small_apart: float = 0.1
    """Where states differ in no column by more than this share of its squared norm, and"""

    small_change: float = 0.015
    """no metric changes by more than this share of it, the replica-symmetric answer counts as trusted up to that."""


ACCURACY = StatesAccuracy()

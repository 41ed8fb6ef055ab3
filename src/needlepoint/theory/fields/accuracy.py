"""The numbers that steer the solver of the field equations, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldAccuracy:
    """Steps, tolerances and numbers of points, each with its unit and reason. Values were set by hand where nothing
    else is said."""

    tolerance: float = 0.01
    """Default error of the risk, relative to the risk of predicting zero."""

    coarse: int = 9
    """log2 of the points per scrambling with which branches are searched for."""

    finer: tuple[int, ...] = (0, 2)
    """Doublings of the coarse points that are tried in turn until a branch is found."""

    scrambles: int = 8
    """Independent scramblings, from whose differences errors come."""

    most: tuple[tuple[int, int], ...] = ((2, 15), (4, 14), (6, 13), (9, 12))
    """(dimension of the proximal map, log2 of the most points per scrambling up to it)."""

    most_else: int = 11
    """log2 of the most points beyond these dimensions."""

    rate: float = 0.75
    """The error is taken to fall as the inverse of the number of points to this power."""

    found: float = 1e-4
    """Step of the coordinates below which a search for branches has converged."""

    nearly_found: float = 2e-3
    """Step that is accepted where the search stops shrinking: minima that appear or vanish make the map jump."""

    settled: float = 1e-5
    """Step of the coordinates below which a solution has converged."""

    quiet: float = 0.1
    """A step has converged, too, below this share of the largest standard deviation between scramblings."""

    jumping_step: float = 1e-3
    """Steps below this may stop shrinking."""

    apart: float = 0.05
    """Points are on different branches if one of their coordinates differs by more than this."""

    pushed: float = 0.3
    """How far from a solution whose symmetry is broken the search for one without it begins, along the direction that
    grows (a unit vector of the coordinates)."""

    settle_steps: int = 60
    solve_steps: int = 30
    """Most steps of the two iterations."""

    held: float = 1e8
    """Susceptibility beyond which neither the penalty nor the data hold a weight."""

    rough: int = 5
    """Newton steps of the proximal map from every start, before the two lowest points are followed."""

    fine: int = 40
    """Newton steps from these at most; most samples need six."""

    far: float = 2.0
    """How far starts of the proximal map are from the field, in units of the field's spread or 1 if that is less."""

    distinct: float = 1e-3
    """Two points are different minima if a field differs by more than this, relative to 1 + the largest."""

    softening: float = 0.03
    """Width over which the two lowest minima of a sample are averaged, as a share of the mean envelope. It keeps the
    means continuous where the proximal map jumps. The bias is of second order in it."""

    test_points: int = 13
    """log2 of the points per scrambling of the population risk at a solution."""

    stability_points: int = 11
    """log2 of the points per scrambling that decide on stability, at least those of the solution."""

    response_level: int = 10
    """log2 of the points with which penalties are compared. With half as many, jumps of the proximal map put an error
    of 0.003 into the gradient of the risk for softmax over two tokens, and descents stalled."""

    response_points: int = 12
    """log2 of the points per scrambling of the population risk whose derivatives lead to the best penalties."""

    response_settled: float = 5e-4
    """Step of the coordinates below which a scrambling is solved where its risk is compared with others'."""

    response_near: float = 0.4
    """A solution at full accuracy is the one that the search for penalties followed if no coordinate differs by
    more."""

    known_points: int = 12
    """log2 of the points per scrambling with which the best predictor that knows the teachers is integrated first."""

    known_most: int = 16
    """log2 of the most points per scrambling of this integral."""

    known_numbers: int = 2**24
    """Most numbers in a scrambling of it (128 MB)."""

    known_nodes: int = 256
    """Intervals between -9 and 9 of the rule for the label's noise, where it is not added: labels may jump with it."""

    crossing_steps: int = 12
    """Most points at which the energies of two phases are compared; two or three are usual."""

    crossing_step: float = 1e-3
    """Step to a crossing, relative to the interval, below which it is taken without another comparison."""

    large: int = 16
    """Dimension of the proximal map beyond which a point takes more than minutes: it is refused."""


ACCURACY = FieldAccuracy()

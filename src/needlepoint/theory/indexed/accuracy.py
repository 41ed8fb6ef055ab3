"""The numbers that steer the solvers of the attention-indexed model, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IndexedAccuracy:
    """Steps, tolerances, sizes and numbers of points, each with its unit and reason.

    Q is the mean square of the target with half the label noise. Where nothing is said of how a value was chosen,
    it was set by hand; `benchmarks/honesty` and the tests of this room hold what comes of it.
    """

    # bayes.py

    bayes_rounding: float = 1e-9
    """Error of the results, relative to Q, the mean square of the target with half the label noise."""

    widest: float = 1e12
    """Largest tau that is searched, relative to the mean square of the target."""

    # closed_form.py

    closed_form_rounding: float = 1e-9
    """Error of numbers that come from a root, relative to the larger of them and Q; 1e-10 was seen."""

    closed_form_settled: float = 1e-7
    """Largest residual of the equations, relative to Q, at which they count as solved."""

    # doubt.py

    whole_spectrum: int = 20
    """Eigenvalues from which on a list is probably a whole spectrum, not a few kinds of eigenvalues."""

    # equations.py

    equations_least: float = 1e-12
    """Lower bound of the conjugate m, the pull towards the target, which is positive at a solution."""

    flattest: float = 1e-12
    """Lower bound of the conjugate Sigma, a curvature."""

    equations_rough: float = 1e-4
    """Step of the coordinates at which the Jacobian is computed."""

    most: int = 80
    """Most steps of each iteration."""

    enough: float = 1e-3
    """A step that may end the iteration if it stops shrinking, because minima jump from node to node."""

    # fields.py

    cut: float = 1e-8
    """Weight of a node, relative to the largest, below which it is left out."""

    far: float = 1e-4
    """Last step, relative to 1 + the largest coordinate, above which a minimum has not converged."""

    apart: float = 1e-3
    """Distance, relative to 1 + the largest coordinate, above which two ends are different minima."""

    # prediction.py

    realised: int = 0
    """Level of the integration rule for a repeat's own prediction: only its difference to the limit is used."""

    prediction_rough: float = 1e-2
    """Tolerance of the solutions in the search for the best penalty."""

    penalties: tuple[float, float] = (1e-4, 30.0)
    """Bounds of the search for the best penalty, for lam times `unit`."""

    # quadratic_loss.py

    smallest: float = 1e-9
    """Lower bound of delta, relative to sqrt(Q)."""

    largest: float = 1e9
    """Upper bound of delta, relative to sqrt(Q)."""

    tiny: float = 1e-4
    """Relative to sqrt(Q / 2a): a smaller delta is no start, the sign of the balance may be rounding there."""

    steps: int = 100
    """Most steps of Newton's method."""

    rays: int = 9
    """Points of the grid of t = eps / delta, between two of which the best one is then searched for."""

    near: float = 2e-10
    """Step of log(delta) below which it may end by the rule in `on_ray`."""

    quadratic_loss_settled: float = 1e-12
    """A step of log(delta) below this has converged."""

    beyond: float = 1e-7
    """The first t that is tried is this far above the largest one whose ray has no root."""

    # quadrature.py

    spacings: tuple[float, ...] = (1.0, 0.8, 0.6, 0.5, 0.42, 0.36, 0.31)
    """Spacings of the lattice for two tokens, at inverse temperature 1."""

    levels: tuple[int, ...] = (10, 12, 14)
    """log2 of the Sobol points per scrambling."""

    scrambles: int = 8
    """Scramblings of the Sobol points, over which errors are estimated."""

    nodes: float = 2e6
    """Most nodes of a lattice (80 MB)."""

    cut_off: float = 1e-6
    """Bound of the share of a mean that lies beyond the lattice's radius."""

    rows: int = 2**21
    """About how many normals one scrambling of rows of scores has (16 MB)."""

    planes: tuple[int, ...] = (240, 530, 1170)
    """Nodes along each axis of the plane of two score differences, coarse to fine."""

    edge: float = 8.5
    """End of each axis in standard deviations: 1e-16 of the weight lies beyond."""

    pair_rounding: float = 1e-14
    """Absolute rounding error of a loss on the plane."""

    # solutions.py

    solutions_settled: float = 1e-9
    """A step of the coordinates below this has converged."""

    jumps: float = 1e-3
    """Largest step that is accepted as solved: minima that jump from node to node keep it from shrinking."""

    little: float = 1e-6
    """Step, and q relative to the target's mean square, that tell a solution from S = 0."""

    few: float = 1e-7
    """Share of sequences with more than one minimum above which sums over nodes jump."""

    hopeless: float = 0.005
    """Share of sequences with more than one minimum above which more nodes are not worth it."""

    easy: float = 0.05
    """Penalties below this are approached from larger ones."""

    path: float = 4.0
    """Each step on the way divides the penalty by at most this."""

    # thresholds.py

    thresholds_rounding: float = 1e-13
    """Relative error of truncated moments at a cut of zero; 3e-15 was seen."""

    thresholds_least: float = 1e-28
    """delta^2 relative to the target's mean square below which the noise is lost in rounding."""

    same: float = 1e-9
    """Ranks over d that differ by less count as equal."""


ACCURACY = IndexedAccuracy()

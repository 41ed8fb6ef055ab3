"""Where two phases exchange their order: slopes of energies, and a bisection with more points."""

import math
from dataclasses import replace

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.models.fields import informed
from needlepoint.numerics.precision import float64
from needlepoint.theory.fields.ridge.equations import Equations, starting_points
from needlepoint.theory.fields.ridge.solutions import settled
from needlepoint.theory.fields.symmetry import patterns

TASK, MODEL, LOSS = ndl.PositionalSemantic(0.3), ndl.LowRankTied(), ndl.Square(0.25)
LEARNER = ndl.Ridge(1.0, 0.04, loss=LOSS)


class Phases:
    """The energies of both phases as functions of alpha on fixed points, each solution continued from the last one."""

    def __init__(self, level, seed, alpha, penalty=0.04):
        self.equations, self.x = {}, {}
        for pattern in patterns(TASK, MODEL):
            coarse = Equations(TASK, MODEL, LOSS, alpha, (penalty,), pattern, 9, 1, seed)
            starts = starting_points(pattern, informed(TASK, MODEL)).values()
            ends = [settled(coarse, "", x).x for x in starts]
            orders = [pattern.unpack(x) for x in ends]
            lowest = np.argmin([coarse.energy(order, coarse.means(order)) for order in orders])
            self.equations[pattern.name] = replace(coarse, log2_points=level)
            self.x[pattern.name] = ends[lowest]

    def at(self, alpha):
        """Free energy, mean envelope and mean loss of both phases. The free energy is stationary: what is left of a
        step enters it with its square."""
        found = {}
        for name, equations in self.equations.items():
            here, near = replace(equations, alpha=alpha), self.x[name]
            for _ in range(6):
                here.forget()  # minima are sought anew where the last round ended
                left = np.max(np.abs(here.map(near[None])[0] - near))
                if left < 1e-4:
                    break
                near = here.solve(near[None], here.slope(near), 1e-6).x[0]
            assert left < 5e-3
            self.x[name] = near
            order = here.pattern.unpack(near)
            means = here.means(order)
            found[name] = here.free_energy(order, means), means.envelope, means.loss
        return found


@pytest.mark.exact
@float64
def test_the_slope_of_an_energy_is_the_mean_envelope():
    phases, h = Phases(9, 0, 2.0), 0.05
    here, ahead, behind = (phases.at(alpha) for alpha in (2.0, 2.0 + h, 2.0 - h))
    for name, (_, slope, loss) in here.items():
        # what jumps and softening of 512 points leave
        assert (ahead[name][0] - behind[name][0]) / (2 * h) == pytest.approx(slope, rel=0.02)
        assert loss != pytest.approx(slope, rel=0.02)  # weights that move change more than the loss


@float64
def bisected(seed):
    phases = Phases(13, seed, 1.25)

    def gap(alpha):
        found = phases.at(alpha)
        return found["semantic"][0] - found["positional"][0]

    low, high = 1.23, 1.27
    assert gap(low) * gap(high) < 0
    sign = math.copysign(1.0, gap(low))
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (middle, high) if sign * gap(middle) > 0 else (low, middle)
    return (low + high) / 2


@float64
def from_newton(penalty, alpha):
    """Where the energies at this penalty cross, by a Newton step from alpha."""
    found = Phases(13, 7, alpha, penalty).at(alpha)
    heights, slopes, _ = (a - b for a, b in zip(found["semantic"], found["positional"], strict=True))
    return alpha - heights / slopes


@pytest.mark.slow
@pytest.mark.quadrature
def test_the_crossing_is_where_a_bisection_ends():
    found = ndl.energy_crossing(TASK, MODEL, LEARNER, (1.15, 1.35), tol=5e-5)
    others = np.array([bisected(seed) for seed in range(7, 11)])
    spread = 3 * others.std(ddof=1) / math.sqrt(len(others)) + 0.04 / 2**6
    assert abs(found.value - others.mean()) <= found.error + spread
    assert found.error < 0.05
    assert spread < 0.02
    # at another penalty it is elsewhere, by more than that
    assert abs(found.value - from_newton(0.05, found.value)) > found.error + spread


def test_a_crossing_needs_two_phases():
    with pytest.raises(ndl.InvalidParameter, match="the number of its phases is 1; a crossing needs two"):
        ndl.energy_crossing(ndl.SpikedSLR(2, 2.0), ndl.KeyValueAttention(ndl.Linear()), ndl.Ridge(1.0, 0.5), (2.0, 3.0))


@pytest.mark.slow
def test_a_crossing_needs_bounds_on_both_sides():
    with pytest.raises(ndl.InvalidParameter, match="the same phase is lower at both ends"):
        ndl.energy_crossing(TASK, MODEL, LEARNER, (2.0, 2.2))

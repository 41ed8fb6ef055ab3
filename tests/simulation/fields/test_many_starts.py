"""The lowest minimum of many starts of models that say their fields."""

import jax
import pytest

import needlepoint as ndl
from needlepoint.core.options import SimulationOptions
from needlepoint.simulation.fields import training
from needlepoint.simulation.location import ridge

NEEDLES, HEADS = ndl.Needles(3, snr=4.0, noise=0.1), ndl.MultiHead(2, ndl.Softmax())
WEAK = ndl.Ridge(5.0, (0.02, 0.04))
D = 30


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.exact
def test_the_lowest_of_many_heads():
    found = ndl.simulate(NEEDLES, HEADS, WEAK, d=D, repeats=2, starts=8, samples=500)
    assert found.status is ndl.Status.CONVERGED
    best = [found.metrics[f"energy_best_of_{k}"].value for k in (1, 4, 8)]
    assert best[0] > best[1] > best[2]
    assert found.energy.value <= min(best[2], found.energy_informed.value) + 1e-12
    assert {"key1_between_minima", "value2_between_lowest", "excess_risk_one_start"} <= set(found.metrics)
    assert "off_manifold_sq" not in found.metrics


@pytest.mark.exact
def test_heads_in_another_order_are_one_minimum():
    """At a strong penalty there is one minimum, which random starts find in either order of the heads."""
    learner = ndl.Ridge(5.0, (0.3, 0.6))
    trained = training.train(NEEDLES, HEADS, learner, D, 0, 0, 8)
    first = {
        bool(m.weights[0] @ trained.teachers[0] > m.weights[1] @ trained.teachers[0]) for m in trained.minima.values()
    }
    found = ndl.simulate(NEEDLES, HEADS, learner, d=D, repeats=1, starts=8, samples=500)
    assert first == {True, False}
    assert found.distinct_minima.value < 9
    assert found.best_found_again.value == 1.0


def test_the_general_rule_says_what_the_one_of_single_location_tasks_says():
    task, model = ndl.SpikedSLR(2, snr=2.0, noise=0.1), ndl.KeyValueAttention(ndl.Softmax())
    options = SimulationOptions(D, 2, samples=500, starts=4)
    mine, theirs = (rule.simulate_ridge(task, model, ndl.Ridge(2.0, 0.01), options) for rule in (training, ridge))
    assert list(mine.metrics) == list(theirs.metrics)


@pytest.mark.parametrize("changed", [{"algorithm": "amp"}, {"start": "informed"}], ids=str)
def test_one_start_is_refused(changed):
    with pytest.raises(ndl.InvalidParameter, match=r"simulate\(starts=4\): Ridge\("):
        ndl.simulate(NEEDLES, HEADS, WEAK.replace(**changed), d=D, repeats=1, starts=4)

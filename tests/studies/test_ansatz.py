"""Studies with an ansatz: it is stored with the study and its points, and what it adds survives."""

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.core.estimates import Estimate
from needlepoint.studies.storage.codec import decode, encode
from needlepoint.studies.sweeps import Sweep

ASKED = ndl.SpikedSLR(2, 2.0, noise=0.1), ndl.KeyValueAttention(ndl.Softmax()), ndl.Ridge(5.0, 0.5)
OVER = {"learner.alpha": [4.0, 5.0]}


@pytest.mark.contract
def test_a_study_keeps_its_ansatz(tmp_path):
    store = tmp_path / "study.sqlite"
    with ndl.sweep(*ASKED, OVER, ansatz="1rsb", store=store) as study:
        first = [point.prediction.excess_risk.value for point in study.points()]
        assert all("replica symmetry is stable here" in point.prediction.notes[-1] for point in study.points())
    with ndl.open_study(store) as again:
        assert again.definition.ansatz == "1rsb"
        assert [point.prediction.excess_risk.value for point in again.points()] == first


@pytest.mark.contract
def test_the_ansatz_is_in_ids_only_where_it_is_given():
    plain, broken = (Sweep.of(*ASKED, OVER, ansatz=ansatz) for ansatz in ("rs", "1rsb"))
    at = next(iter(plain.axes.points()))
    assert "ansatz" not in plain.to_json()
    assert "ansatz" not in plain.prediction(at).options
    assert plain.prediction(at).id != broken.prediction(at).id
    assert Sweep.from_json(broken.to_json()) == broken
    # batches of curves know replica symmetry alone
    assert [len(unit.jobs) for unit in broken.theory_units()] == [1, 1]
    assert [len(unit.jobs) for unit in plain.theory_units()] == [2]


def test_an_unknown_ansatz_is_refused():
    with pytest.raises(ndl.InvalidParameter, match="ansatz must be one of"):
        ndl.sweep(*ASKED, OVER, ansatz="full")


@pytest.mark.contract
def test_states_survive_being_stored():
    states = ndl.States(
        Estimate(10.7, 3.0), {"key": Estimate(0.33, 0.03)}, np.array([1.0, 2.0]), *3 * [np.ones(2)], 0.8
    )
    made = ndl.Prediction(*ASKED, {"risk": Estimate(1.0, 0.1)}, states=states)
    arrays = {}
    read = decode(encode(made, arrays), arrays)
    assert read.to_json() == made.to_json()
    assert read.states.threshold_energy == 1.0
    assert "complexity" in str(read)

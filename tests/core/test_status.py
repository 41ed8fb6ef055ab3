"""Statuses: stable codes inside batches, sentences outside."""

import pytest

from needlepoint.core.status import Status


@pytest.mark.exact
def test_codes_are_pinned():
    """They travel in arrays and stored results: a code must keep its meaning."""
    assert {s.name: int(s) for s in Status} == {
        "CONVERGED": 0,
        "MAX_STEPS": 1,
        "NOISE_LIMITED": 2,
        "DIVERGED": 3,
        "UNBOUNDED": 4,
        "INFEASIBLE": 5,
        "UNSTABLE": 6,
        "FINISHED": 7,
    }


@pytest.mark.contract
@pytest.mark.parametrize("status", Status)
def test_every_status_carries_a_sentence(status):
    assert status.sentence.endswith(".")
    assert len(status.sentence.split()) > 5
    assert "\n" not in status.sentence
    assert Status(int(status)) is status


def test_sentences_differ():
    assert len({s.sentence for s in Status}) == len(Status)


def test_only_what_converged_or_did_its_steps_can_be_used_as_it_is():
    assert [s for s in Status if s.ok] == [Status.CONVERGED, Status.FINISHED]

"""Which driver may commit the next batch of a sink: owners, their runs, gaps, and what is over."""

from __future__ import annotations

import pytest

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced
from tests.helpers.decided_transactions import Coordinator, prepared
from transactions.records import Handle, SinkKey
from transactions.requests import CommitBatch, Done
from transactions.sinks import RETIRED_MAX, check_request


def committed(
    coordinator: Coordinator,
    sequence: int,
    *handles: Handle,
    driver: tuple[str, str] = ("query", "run-1"),
    takeover: bool = False,
) -> object:
    """The reply to a batch of a driver, once its markers have arrived."""
    owner, run = driver
    request = CommitBatch(
        key="sink", sequence=sequence, handles=handles, owner=owner, run=run, is_takeover=takeover
    )
    reply = coordinator.ask(request)
    return coordinator.complete() if reply is None else reply


# requirement: D3
def test_a_new_run_fences_the_run_before_which_never_returns() -> None:
    coordinator = Coordinator()
    assert committed(coordinator, 0) == Done(), "a batch without rows counts"
    assert committed(coordinator, 1, driver=("query", "run-2")) == Done()
    coordinator = coordinator.next_leader()
    handle = prepared(coordinator, "sink~1", 7)
    assert isinstance(committed(coordinator, 2, handle), ProducerFenced)
    assert isinstance(committed(coordinator, 1), ProducerFenced), "not even what is committed"
    assert committed(coordinator, 2, handle, driver=("query", "run-2")) == Done()
    anonymous = coordinator.ask(CommitBatch(key="sink", sequence=3, handles=(handle,)))
    assert isinstance(anonymous, ProducerFenced)


# requirement: D3
def test_a_run_that_repeats_the_newest_batch_fences_and_one_further_behind_does_not() -> None:
    coordinator = Coordinator()
    first, again = prepared(coordinator, "sink~1", 7), prepared(coordinator, "sink~2", 8)
    assert committed(coordinator, 0) == Done()
    assert committed(coordinator, 1, first) == Done()
    behind = committed(coordinator, 0, driver=("query", "of an old checkpoint"))
    assert isinstance(behind, Conflict)
    assert behind.details["newest_sequence"] == 1
    assert committed(coordinator, 1, first) == Done(), "it goes on"
    repeated = committed(coordinator, 1, again, driver=("query", "run-2"))
    assert isinstance(repeated, Conflict)
    assert repeated.details["newest_sequence"] == 1
    assert isinstance(committed(coordinator, 2), ProducerFenced)
    assert committed(coordinator, 2, again, driver=("query", "run-2")) == Done()


# requirement: D3
def test_a_sink_belongs_to_one_query_until_it_is_taken_over() -> None:
    coordinator = Coordinator()
    assert committed(coordinator, 0) == Done()
    assert committed(coordinator, 1) == Done()
    other = ("other", "run-9")
    handle = prepared(coordinator, "sink~1", 7)
    refused = committed(coordinator, 0, handle, driver=other)
    assert isinstance(refused, Conflict)
    assert refused.details["owner"] == "query"
    assert committed(coordinator, 0, handle, driver=other, takeover=True) == Done()
    assert coordinator.committed.sinks["sink"].sequence == 0, "the batches of another query count anew"
    assert committed(coordinator, 1, driver=other) == Done()
    assert isinstance(committed(coordinator, 2, takeover=True), ProducerFenced)
    assert isinstance(committed(coordinator, 2, driver=("query", "run-3")), Conflict)


# requirement: D3
def test_a_gap_is_refused_and_decides_nothing() -> None:
    coordinator = Coordinator()
    handle = prepared(coordinator, "sink~1", 7)
    assert committed(coordinator, 4) == Done(), "a sink that nobody knows begins anywhere"
    written = len(coordinator.written)
    refused = committed(coordinator, 6, handle, driver=("query", "run-2"))
    assert isinstance(refused, Conflict)
    assert refused.details["expected_sequence"] == 5
    assert len(coordinator.written) == written
    assert committed(coordinator, 5) == Done(), "its run fences nobody"
    assert committed(coordinator, 7, handle, takeover=True) == Done()


@pytest.mark.parametrize(("owner", "run"), [("query", ""), ("", "run"), ("", "")])
def test_half_a_driver_and_an_empty_batch_without_one_are_refused(owner: str, run: str) -> None:
    with pytest.raises(InvalidRequest):
        check_request(CommitBatch(key="sink", sequence=0, handles=(), owner=owner, run=run))


def test_the_newest_retired_runs_are_remembered() -> None:
    coordinator = Coordinator()
    for number in range(RETIRED_MAX + 3):
        assert committed(coordinator, number, driver=("query", f"run-{number}")) == Done()
    retired = coordinator.committed.sinks["sink"].retired
    assert len(retired) == RETIRED_MAX
    assert retired[-1] == f"run-{RETIRED_MAX + 1}"
    assert {SinkKey} in coordinator.written

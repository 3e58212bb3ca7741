"""Which run may write into a sink: epochs of runs, owners, gaps, and what is over."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced
from raftlog.hosting.decisions import RECORDS_PER_BATCH
from tests.helpers.decided_transactions import ID_RETENTION_MS, Coordinator, opened, prepared
from transactions.decisions import SWEEP_MS
from transactions.records import KINDS, Handle, Sink, SinkKey, State, Transaction, TransactionKey
from transactions.requests import (
    AbortBatch,
    BeginRun,
    CommitBatch,
    Done,
    Join,
    Open,
    Prepare,
    Request,
    RunBegun,
)
from transactions.sinks import RETIRED_MAX, check_request
from transactions.state import TransactionsState


def begun(
    coordinator: Coordinator, sequence: int, run: str = "run-1", owner: str = "query", takeover: bool = False
) -> object:
    """The reply to a run."""
    return coordinator.ask(
        BeginRun(key="sink", owner=owner, run=run, sequence=sequence, is_takeover=takeover)
    )


def committed(
    coordinator: Coordinator, sequence: int, *handles: Handle, run: str = "run-1", epoch: int = 1
) -> object:
    """The reply to a batch of a run, once its markers have arrived."""
    reply = coordinator.ask(
        CommitBatch(key="sink", sequence=sequence, handles=handles, run=run, run_epoch=epoch)
    )
    return coordinator.complete() if reply is None else reply


def with_batches(*sequences: int) -> Coordinator:
    """A sink with these batches, of ``run-1`` with epoch 1."""
    coordinator = Coordinator()
    for sequence in sequences:
        assert begun(coordinator, sequence) == RunBegun(epoch=1, is_committed=False)
        assert committed(coordinator, sequence) == Done(), "a batch without rows counts"
    return coordinator


# requirement: D3
def test_a_run_that_registers_fences_the_run_before_at_once_and_for_ever() -> None:
    coordinator = with_batches(0)
    old, late = (
        prepared(coordinator, "sink~1", 7, run_epoch=1),
        opened(coordinator, "sink~2", 8, run_epoch=1),
    )
    assert begun(coordinator, 1, "run-2") == RunBegun(epoch=2, is_committed=False)
    assert begun(coordinator, 1, "run-2") == RunBegun(epoch=2, is_committed=False), "each task says so"
    coordinator = coordinator.next_leader()
    coordinator.complete()
    assert isinstance(committed(coordinator, 1, old), ProducerFenced)
    assert isinstance(begun(coordinator, 1), ProducerFenced), "it does not come back"
    assert isinstance(coordinator.ask(Join(transaction=late, partitions=(("orders", 0),))), ProducerFenced)
    assert isinstance(coordinator.ask(Prepare(transaction=late, prepared_ms_max=1_000)), ProducerFenced)
    again = coordinator.ask(Open(transactional_id="sink~1", timeout_ms=60_000, run_epoch=1))
    assert isinstance(again, ProducerFenced)
    anonymous = coordinator.ask(CommitBatch(key="sink", sequence=1, handles=(old,)))
    assert isinstance(anonymous, ProducerFenced)
    new = prepared(coordinator, "sink~1", 7, run_epoch=2)
    assert committed(coordinator, 1, new, run="run-2", epoch=2) == Done()


# requirement: D3
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_run_that_registers_does_not_change_the_outcome_of_a_decided_batch(is_commit: bool) -> None:
    coordinator = with_batches(0)
    handle = prepared(coordinator, "sink~1", 7, run_epoch=1)
    if is_commit:
        ask: Request = CommitBatch(key="sink", sequence=1, handles=(handle,), run="run-1", run_epoch=1)
    else:
        ask = AbortBatch(key="sink", handles=(handle,), run_epoch=1)
    assert coordinator.ask(ask) is None, "its markers are on their way"
    asked = max(coordinator.replies) + 1
    assert begun(coordinator, 2 if is_commit else 1, "run-2") == RunBegun(epoch=2, is_committed=False)
    coordinator.complete()
    assert coordinator.replies[asked] == Done()


# requirement: D3
def test_an_old_run_that_registers_late_fences_nobody() -> None:
    coordinator = with_batches(0, 1)
    repeats = begun(coordinator, 1, "paused before its first batch")
    assert repeats == RunBegun(epoch=0, is_committed=True)
    behind = begun(coordinator, 0, "of an old copy of the checkpoint")
    assert isinstance(behind, Conflict)
    assert behind.details["newest_sequence"] == 1
    gap = begun(coordinator, 3, "of another checkpoint")
    assert isinstance(gap, Conflict)
    assert gap.details["expected_sequence"] == 2
    handle = prepared(coordinator, "sink~1", 7, run_epoch=1)
    assert committed(coordinator, 2, handle) == Done()


# requirement: D3
def test_what_older_runs_have_open_is_aborted_however_much_it_is() -> None:
    coordinator = with_batches(0)
    handles = [
        prepared(coordinator, f"sink~{number}", number, run_epoch=1)
        for number in range(RECORDS_PER_BATCH + 1)
    ]
    other = prepared(coordinator, "sink-2~1", 5_000)
    begun(coordinator, 1, "run-2")
    assert {mark.transaction for mark in coordinator.marks} == {*handles}
    assert not any(mark.is_commit for mark in coordinator.marks)
    assert coordinator.committed.transactions[other.transactional_id].state is State.PREPARED


# requirement: D3
def test_a_commit_aborts_the_attempts_that_do_not_count() -> None:
    coordinator = with_batches(0)
    counts = prepared(coordinator, "sink~1.0", 7, run_epoch=1)
    prepared(coordinator, "sink~1.1", 8, run_epoch=1)
    begun(coordinator, 1)
    assert committed(coordinator, 1, counts) == Done()
    assert coordinator.committed.open == {}


# requirement: D3
def test_the_abort_of_a_run_ends_what_it_has_open_and_nothing_of_another_run() -> None:
    coordinator = with_batches(0)
    first = prepared(coordinator, "sink~1", 7, run_epoch=1)
    opened(coordinator, "sink~2", 8, run_epoch=1)
    coordinator.ask(
        Join(transaction=opened(coordinator, "sink~3", 9, run_epoch=1), partitions=(("orders", 0),))
    )
    assert coordinator.ask(AbortBatch(key="sink", handles=(first,), run_epoch=1)) is None
    assert coordinator.complete() == Done()
    assert coordinator.committed.open == {}
    begun(coordinator, 1, "run-2")
    kept = prepared(coordinator, "sink~1", 7, run_epoch=2)
    assert coordinator.ask(AbortBatch(key="sink", handles=(), run_epoch=1)) == Done()
    assert committed(coordinator, 1, kept, run="run-2", epoch=2) == Done()


# requirement: D3
def test_a_sink_belongs_to_one_query_until_it_is_taken_over() -> None:
    coordinator = with_batches(0, 1)
    refused = begun(coordinator, 0, "run-9", "other")
    assert isinstance(refused, Conflict)
    assert refused.details["owner"] == "query"
    assert begun(coordinator, 0, "run-9", "other", takeover=True) == RunBegun(epoch=2, is_committed=False)
    assert committed(coordinator, 0, run="run-9", epoch=2) == Done()
    assert coordinator.committed.sinks["sink"].sequence == 0, "batches of another query are numbered from 0"
    assert begun(coordinator, 1, "run-9", "other") == RunBegun(epoch=2, is_committed=False)
    assert isinstance(committed(coordinator, 2), ProducerFenced)
    assert isinstance(begun(coordinator, 2, "run-3"), Conflict)


# requirement: D3
def test_a_takeover_without_a_batch_forgets_no_batch() -> None:
    coordinator = with_batches(0, 1)
    begun(coordinator, 5, "run-9", "other", takeover=True)
    assert begun(coordinator, 1, "run-2", takeover=True) == RunBegun(epoch=0, is_committed=True)
    assert begun(coordinator, 2, "run-2", takeover=True) == RunBegun(epoch=3, is_committed=False)
    assert committed(coordinator, 2, run="run-2", epoch=3) == Done()


# requirement: D3
def test_a_gap_is_refused_until_the_sink_is_taken_over_without_it() -> None:
    coordinator = with_batches(4)
    handle = prepared(coordinator, "sink~1", 7, run_epoch=1)
    written = len(coordinator.written)
    for refused in (begun(coordinator, 6), committed(coordinator, 6, handle)):
        assert isinstance(refused, Conflict)
        assert refused.details["expected_sequence"] == 5
    assert len(coordinator.written) == written
    assert begun(coordinator, 7, takeover=True) == RunBegun(epoch=1, is_committed=False)
    assert committed(coordinator, 7, handle) == Done()


@pytest.mark.parametrize(("run", "epoch"), [("run", 0), ("", 3), ("", 0)])
def test_half_a_run_and_an_empty_batch_without_one_are_refused(run: str, epoch: int) -> None:
    with pytest.raises(InvalidRequest):
        check_request(CommitBatch(key="sink", sequence=0, handles=(), run=run, run_epoch=epoch))
    with pytest.raises(InvalidRequest):
        check_request(AbortBatch(key="sink", handles=()))


def test_a_run_that_is_not_registered_commits_and_opens_nothing() -> None:
    coordinator = Coordinator()
    assert isinstance(committed(coordinator, 0), ProducerFenced)
    never = coordinator.ask(
        Open(transactional_id="sink~1", timeout_ms=60_000, new_producer_id=7, run_epoch=1)
    )
    assert isinstance(never, ProducerFenced)


def test_a_run_that_is_forgotten_can_register_and_its_old_epoch_stays_fenced() -> None:
    coordinator = with_batches(0)
    for number in range(2, RETIRED_MAX + 3):
        reply = begun(coordinator, 1, f"run-{number}")
        assert reply == RunBegun(epoch=number, is_committed=False)
    assert len(coordinator.committed.sinks["sink"].retired) == RETIRED_MAX
    assert isinstance(begun(coordinator, 1, "run-2"), ProducerFenced), "the 64th before the newest"
    assert isinstance(committed(coordinator, 1), ProducerFenced)
    assert begun(coordinator, 1) == RunBegun(epoch=RETIRED_MAX + 3, is_committed=False), "the 65th"


def test_a_sink_that_begins_with_a_batch_is_kept_for_the_whole_retention() -> None:
    coordinator = Coordinator(now_ms=2 * ID_RETENTION_MS)
    handle = prepared(coordinator, "sink~1", 7)
    assert committed(coordinator, 0, handle, run="", epoch=0) == Done()
    coordinator.advance(ID_RETENTION_MS - 2 * SWEEP_MS)
    assert committed(coordinator, 0, handle, run="", epoch=0) == Done(), "it is known to be committed"
    assert "sink" in coordinator.committed.sinks
    coordinator.advance(ID_RETENTION_MS + 2 * SWEEP_MS)
    assert coordinator.committed.sinks == {}


def test_nothing_is_forgotten_while_no_time_is_trusted() -> None:
    coordinator = Coordinator(now_ms=2 * ID_RETENTION_MS)
    handle = prepared(coordinator, "sink~1", 7)
    assert committed(coordinator, 0, handle, run="", epoch=0) == Done()
    coordinator.is_time_trusted = False
    coordinator.advance(2 * ID_RETENTION_MS)
    assert "sink" in coordinator.committed.sinks
    assert "sink~1" in coordinator.committed.transactions
    coordinator.is_time_trusted = True
    coordinator.advance(2 * SWEEP_MS)
    assert (coordinator.committed.sinks, coordinator.committed.transactions) == ({}, {})


# requirement: D3
@pytest.mark.parametrize("owner", ["", "query"])
def test_a_sink_of_a_former_version_goes_on(owner: str) -> None:
    handle = Handle("sink~1", 7, 0)
    of_runs = {"owner": owner, "run": "old", "retired": ["older"]} if owner else {}
    sink = {"sequence": 7, "handles": [["sink~0", 6, 0]], "changed_ms": 5, **of_runs}
    transaction = {
        "producer_id": 7,
        "epoch": 0,
        "state": "prepared",
        "partitions": [["orders", 0]],
        "prepared_ms_max": 9_000,
        "changed_ms": 5,
    }
    state = TransactionsState()
    for key, value in ((SinkKey("sink"), sink), (TransactionKey("sink~1"), transaction)):
        found = KINDS.decoded(msgspec.msgpack.encode(key), msgspec.msgpack.encode(value))
        assert found is not None
        state.put(*found)
    assert isinstance(state.sinks["sink"], Sink)
    assert isinstance(state.transactions["sink~1"], Transaction)
    coordinator = Coordinator(state)
    assert begun(coordinator, 7) == RunBegun(epoch=0, is_committed=True)
    next_batch = 8 if owner else 9  # batch 8 had no rows, and former versions did not commit it
    assert begun(coordinator, next_batch) == RunBegun(epoch=1, is_committed=False)
    assert [mark.transaction for mark in coordinator.marks] == [handle], "what the former version has open"
    coordinator.complete()
    new = prepared(coordinator, "sink~1", 7, run_epoch=1)
    assert committed(coordinator, next_batch, new) == Done()

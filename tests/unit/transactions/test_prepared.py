"""Prepared transactions that are committed twice, too late, or in two batches; and very many ids."""

from __future__ import annotations

import pytest

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced, TransactionAborted
from raftlog.node.frame_limits import FRAME_LIMITS
from raftlog.wire.limits import NAME_CHARACTERS_MAX
from tests.helpers.decided_transactions import HOUR_MS, Coordinator, opened, prepared
from transactions.batches import HANDLES_MAX
from transactions.records import KINDS, Handle, Key, State, Value
from transactions.requests import (
    AbortBatch,
    CommitBatch,
    Described,
    Done,
    End,
    Ended,
    Join,
    Listed,
    ListTransactions,
    Prepare,
    ReadTransaction,
)

IDS = 10_000


def committed(coordinator: Coordinator, sequence: int, *handles: Handle) -> object:
    """The reply to a batch of these, once its markers have arrived."""
    reply = coordinator.ask(CommitBatch(key="sink", sequence=sequence, handles=handles))
    return coordinator.complete() if reply is None else reply


# requirement: D3
def test_a_handle_is_committed_once_however_often_its_batch_is_sent() -> None:
    coordinator = Coordinator()
    handle = prepared(coordinator, "sink~1", 7)
    assert committed(coordinator, 1, handle) == Done()
    decided = len(coordinator.written)
    assert committed(coordinator.next_leader(), 1, handle) == Done()
    assert committed(coordinator, 1, handle) == Done()
    assert len(coordinator.written) == decided


def test_a_batch_has_so_many_handles() -> None:
    handles = [Handle(f"sink~{number}", 7, 0) for number in range(HANDLES_MAX + 1)]
    refusal = committed(Coordinator(), 1, *handles)
    assert isinstance(refusal, InvalidRequest)
    assert f"at most {HANDLES_MAX}" in str(refusal)


# requirement: N2
@pytest.mark.parametrize("tasks", [70, 900])
def test_a_batch_is_never_larger_than_a_row_of_a_coordinator(tasks: int) -> None:
    """A sink has few transactions with many partitions, or many with few."""
    coordinator = Coordinator(state_bytes_max=1 << 40)
    count = 63_000 // tasks
    topics = ["a" * (NAME_CHARACTERS_MAX - 1) + "b", "a" * NAME_CHARACTERS_MAX]
    handles = []
    for task in range(tasks):
        handle = opened(coordinator, f"sink~{task}", task)
        partitions = tuple((topics[task % 2], number) for number in range(count))
        coordinator.ask(Join(transaction=handle, partitions=partitions))
        coordinator.ask(Prepare(transaction=handle, prepared_ms_max=HOUR_MS))
        handles.append(handle)
    refused, batches = 0, len(coordinator.written)
    while isinstance(refusal := committed(coordinator, 1, *handles[refused:]), InvalidRequest):
        assert "bytes, more than" in str(refusal)
        assert len(coordinator.written) == batches
        refused += 1
    assert refusal == Done()
    assert refused > 0
    size_bytes = sum(map(stored_bytes, coordinator.rows))
    assert 0.9 * FRAME_LIMITS.decision_bytes_max < size_bytes < FRAME_LIMITS.write_bytes_max
    rest = tuple(handles[:refused])
    assert coordinator.ask(AbortBatch(key="sink", handles=rest)) is None
    assert coordinator.complete() == Done(), "what was too large is ended otherwise"


def stored_bytes(row: tuple[Key, Value | None]) -> int:
    """The bytes of a row in the log."""
    record = KINDS.record_of(*row)
    return len(record.key or b"") + len(record.value or b"")


def test_an_id_that_is_opened_again_by_the_same_request_is_the_same_transaction() -> None:
    """The first answer may be lost."""
    coordinator = Coordinator()
    handle = opened(coordinator, "orders", 7)
    assert opened(coordinator, "orders", 7) == handle
    assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),))) == Done()


# requirement: D3
def test_a_handle_belongs_to_one_batch() -> None:
    coordinator = Coordinator()
    first, second = prepared(coordinator, "sink~1", 7), prepared(coordinator, "sink~2", 8)
    assert isinstance(committed(coordinator, 1, first, first), InvalidRequest)
    assert committed(coordinator, 1, first) == Done()
    assert isinstance(committed(coordinator, 2, first, second), ProducerFenced)
    assert isinstance(committed(coordinator, 1, second), Conflict)
    assert committed(coordinator, 2, second) == Done(), "a refused batch has decided nothing"


# requirement: D3
def test_a_prepared_transaction_is_aborted_alone_and_committed_with_its_batch() -> None:
    coordinator = Coordinator()
    handle = prepared(coordinator, "sink~1", 7)
    assert isinstance(coordinator.ask(End(transaction=handle, is_commit=True)), Conflict)
    assert coordinator.ask(End(transaction=handle, is_commit=False)) is None
    assert coordinator.complete() == Ended(is_committed=False, next_epoch=1)


# requirement: D3
def test_a_handle_expires() -> None:
    coordinator = Coordinator()
    handle, other = prepared(coordinator, "sink~1", 7), prepared(coordinator, "sink~2", 8)
    coordinator.advance(HOUR_MS - 1)
    described = coordinator.ask(ReadTransaction(transactional_id="sink~1"))
    assert isinstance(described, Described)
    assert described.transaction.state is State.PREPARED
    assert committed(coordinator, 1, other) == Done()
    coordinator.advance(1)
    coordinator.complete()
    assert isinstance(committed(coordinator, 2, handle), TransactionAborted)
    assert coordinator.ask(AbortBatch(key="sink", handles=(handle,))) == Done(), "it is aborted"


def test_ten_thousand_ids_are_kept_through_a_snapshot() -> None:
    coordinator = Coordinator()
    handles = [opened(coordinator, f"copy-{number}", number) for number in range(IDS)]
    assert coordinator.ask(Join(transaction=handles[17], partitions=(("orders", 0),))) == Done()
    successor = coordinator.next_leader()
    everything = successor.ask(ListTransactions(open_only=False))
    still_open = successor.ask(ListTransactions(open_only=True))
    assert isinstance(everything, Listed)
    assert isinstance(still_open, Listed)
    assert len(everything.transactions) == IDS
    assert [*still_open.transactions] == ["copy-17"]
    page = successor.ask(ListTransactions(open_only=False, after="copy-10", count_max=2))
    assert isinstance(page, Listed)
    assert [*page.transactions] == ["copy-100", "copy-1000"]

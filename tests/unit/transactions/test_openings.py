"""Openings of a transactional id that are repeated: by brokers, by clients, and late copies on the way."""

from __future__ import annotations

import pytest

from raftlog.errors import OutcomeForgotten, ProducerFenced
from tests.helpers.decided_transactions import Coordinator
from transactions.records import Handle, State
from transactions.requests import End, Ended, Join, Open, Opened


def opened(coordinator: Coordinator, incarnation: str, *, after: Handle | None = None) -> object:
    """The reply to one opening, once all markers have arrived."""
    reply = coordinator.ask(
        Open(
            transactional_id="copy", timeout_ms=5_000, new_producer_id=7, incarnation=incarnation, after=after
        )
    )
    return coordinator.complete() if reply is None else reply


# requirement: D3
def test_a_repeated_opening_fences_nothing() -> None:
    coordinator = Coordinator()
    assert opened(coordinator, "a") == Opened(producer_id=7, epoch=0)
    coordinator.ask(Join(transaction=Handle("copy", 7, 0), partitions=(("orders", 0),)))
    assert opened(coordinator, "a") == Opened(producer_id=7, epoch=0), "a copy that comes late"
    assert coordinator.committed.transactions["copy"].state is State.ONGOING
    coordinator.ask(End(transaction=Handle("copy", 7, 0), is_commit=True))
    assert coordinator.complete() == Ended(is_committed=True, next_epoch=1)
    assert opened(coordinator, "a") == Opened(producer_id=7, epoch=1)
    assert opened(coordinator.next_leader(), "a") == Opened(producer_id=7, epoch=1)


# requirement: D3
def test_another_incarnation_fences_and_late_copies_of_the_first_opening_do_not() -> None:
    coordinator = Coordinator()
    opened(coordinator, "a")
    assert opened(coordinator, "b") == Opened(producer_id=7, epoch=1)
    assert isinstance(opened(coordinator, "a"), ProducerFenced)
    assert isinstance(opened(coordinator.next_leader(), "a"), ProducerFenced)
    assert opened(coordinator, "b") == Opened(producer_id=7, epoch=1)


# requirement: D3
def test_an_opening_behind_a_transaction_may_be_repeated() -> None:
    coordinator = Coordinator()
    opened(coordinator, "a")
    handle = Handle("copy", 7, 0)
    coordinator.ask(End(transaction=handle, is_commit=False))
    assert opened(coordinator, "a2", after=handle) == Opened(producer_id=7, epoch=2)
    assert opened(coordinator, "a2", after=handle) == Opened(producer_id=7, epoch=2), "its answer was lost"
    assert isinstance(opened(coordinator, "c", after=handle), ProducerFenced)


# requirement: D3
@pytest.mark.parametrize("count", [2, 3])
def test_an_opening_without_a_name_fences(count: int) -> None:
    coordinator = Coordinator()
    replies = [opened(coordinator, "") for _ in range(count)]
    assert replies[0] == replies[1] == Opened(producer_id=7, epoch=0), "the repetition of a broker"
    coordinator.ask(Join(transaction=Handle("copy", 7, 0), partitions=(("orders", 0),)))
    assert opened(coordinator, "") == Opened(producer_id=7, epoch=2), "its transaction is aborted"


def test_a_caller_that_has_gone_takes_no_other_with_it() -> None:
    coordinator = Coordinator()
    handle = Handle("copy", 7, 0)
    assert isinstance(coordinator.ask(End(transaction=handle, is_commit=True)), OutcomeForgotten)
    opened(coordinator, "a")
    coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),)))
    asked = [End(transaction=handle, is_commit=True)] * 3
    assert [coordinator.ask(end) for end in asked] == [None, None, None]
    for end in (4, 5):
        coordinator.forget(end, asked[0])
    assert coordinator.complete() == Ended(is_committed=True, next_epoch=1)
    assert coordinator.replies.keys().isdisjoint({4, 5}), "who has gone is told nothing"

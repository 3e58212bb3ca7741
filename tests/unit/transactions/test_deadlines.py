"""Transactions that have ended leave no deadline in memory, and those that are open have theirs."""

from __future__ import annotations

from raftlog.hosting.deadlines import STALE_MIN
from tests.helpers.decided_transactions import Coordinator, opened
from transactions.decisions import ENDED_MAX, PAUSE_MS
from transactions.records import State, Transaction, TransactionKey
from transactions.requests import Done, End, Join
from transactions.state import TransactionsState


# requirement: D3
def test_deadlines_of_transactions_that_have_ended_are_not_kept() -> None:
    coordinator = Coordinator()
    for _ in range(2 * STALE_MIN):
        handle = opened(coordinator, "each minute")
        assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),))) == Done()
        coordinator.ask(End(transaction=handle, is_commit=True))
        coordinator.complete()
    assert len(coordinator._decisions._due._heap) <= STALE_MIN + 2
    handle = opened(coordinator, "each minute")
    assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),))) == Done()
    coordinator.advance(60_000)
    assert coordinator.committed.transactions["each minute"].state is State.PREPARE_ABORT


# requirement: D3
def test_the_deadline_of_a_transaction_that_has_ended_does_not_count_for_the_next_one() -> None:
    coordinator = Coordinator()
    for ends_by_itself in (True, False):
        handle = opened(coordinator, "each minute")
        assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),))) == Done()
        coordinator.advance(30_000)
        if ends_by_itself:
            coordinator.ask(End(transaction=handle, is_commit=True))
            coordinator.complete()
    coordinator.advance(29_000)
    assert coordinator.committed.transactions["each minute"].state is State.ONGOING
    coordinator.advance(1_000)
    assert coordinator.committed.transactions["each minute"].state is State.PREPARE_ABORT


# requirement: D3
def test_transactions_that_exceed_their_time_together_are_aborted_some_at_a_time() -> None:
    """Open transactions as a new leader finds them: each gets its whole time again."""
    state = TransactionsState()
    for number in range(ENDED_MAX + 1):
        is_open = Transaction(
            producer_id=number, epoch=0, state=State.ONGOING, timeout_ms=5_000, partitions=(("orders", 0),)
        )
        state.put(TransactionKey(f"copy-{number}"), is_open)
    coordinator = Coordinator(state)
    began_ms = coordinator.now_ms
    assert coordinator.step() == 0, "the last one is taken over in another step"
    steps = [(coordinator.step(), coordinator.now_ms) for _ in range(2)]
    assert steps == [(ENDED_MAX, began_ms + 5_000), (1, began_ms + 5_000 + PAUSE_MS)]
    assert {each.state for each in coordinator.committed.transactions.values()} == {State.PREPARE_ABORT}
    assert len(coordinator.marks) == ENDED_MAX + 1

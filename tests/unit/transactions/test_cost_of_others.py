"""A request costs what it is about, however many transactions others have; the whole state goes in steps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from broker.coordinators.transactions import BrokerTransactions
from broker.metrics.transactions import TransactionMetrics
from tests.helpers.decided_transactions import HOUR_MS, ID_RETENTION_MS, Coordinator, prepared
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.profiled import opcodes_of
from transactions.decisions import SWEEP_MS, TAKEN_OVER_MAX
from transactions.keyed_requests import LOOKED_AT_MAX
from transactions.records import Handle, Outcome, State, Transaction, TransactionKey
from transactions.requests import AbortBatch, BeginRun, Done, Join, Known, ReadOutcomes
from transactions.room import Room
from transactions.state import TransactionsState

# requirement: N2

FEW, MANY = 2 * LOOKED_AT_MAX, 4 * LOOKED_AT_MAX


def with_others(count: int, state: State) -> Coordinator:
    """A leader that knows so many transactions of others, and three prepared ones of a sink."""
    kept = TransactionsState()
    for number in range(count):
        kept.put(TransactionKey(f"other-{number}"), one(number, state))
    coordinator = Coordinator(kept, now_ms=count)
    while coordinator._decisions._left_behind:
        coordinator.step()
    for task in range(3):
        prepared(coordinator, f"sink~{task}", 1_000_000 + task)
    return coordinator


def one(number: int, state: State) -> Transaction:
    """A transaction that changed at the time of its number."""
    return Transaction(
        producer_id=number,
        epoch=2,
        state=state,
        partitions=(("orders", 0),) if state is not State.COMPLETE else (),
        timeout_ms=HOUR_MS,
        began_ms=number,
        changed_ms=number,
        last=Outcome(number, 1, is_committed=True),
        client="10.0.0.1",
    )


def outcomes(coordinator: Coordinator) -> None:
    asked = ReadOutcomes(transactions=((7, 2), (8, 1), (9, 0), (-1, 0)))
    assert coordinator.ask(asked) == Known(open=((7, 2),), committed=((8, 1),))


def run_of_a_sink(coordinator: Coordinator) -> None:
    coordinator.ask(BeginRun(key="sink", owner="query", run="r", sequence=0))
    assert {mark.transaction.transactional_id for mark in coordinator.marks} == {"sink~0", "sink~1", "sink~2"}


def abort_of_a_sink(coordinator: Coordinator) -> None:
    assert coordinator.ask(AbortBatch(key="sink", handles=(), run_epoch=1)) == Done()


def metrics(coordinator: Coordinator) -> None:
    decisions = coordinator._decisions
    led = SimpleNamespace(coordinators={0: SimpleNamespace(decisions=decisions, tally=decisions._tally)})
    collector = TransactionMetrics(cast("BrokerTransactions", led), ManualWallClock())
    families = {family.name: family for family in collector.collect()}
    counts = {sample.labels["state"]: sample.value for sample in families["raftlog_transactions"].samples}
    assert counts["prepared"] == 3


def sweep(coordinator: Coordinator) -> None:
    coordinator._decisions._forget_some(coordinator.now_ms)


def refusal(coordinator: Coordinator) -> None:
    room: Room = coordinator._decisions._room
    room.expired()
    room._name_due("10.0.0.1", 0)
    room._bytes_of_open("10.0.0.1")


@pytest.mark.parametrize("state", [State.ONGOING, State.COMPLETE])
@pytest.mark.parametrize("work", [outcomes, run_of_a_sink, abort_of_a_sink, metrics, sweep, refusal])
def test_a_request_costs_nothing_for_the_transactions_of_others(
    work: Callable[[Coordinator], None], state: State
) -> None:
    few, many = (with_others(count, state) for count in (FEW, MANY))
    before = opcodes_of(lambda: work(few))
    assert opcodes_of(lambda: work(many)) <= before + 100, "some more steps of a binary search"


def test_the_counts_are_those_of_the_transactions() -> None:
    coordinator = with_others(3, State.ONGOING)
    state = coordinator._decisions.state
    assert state.oldest_began_ms == 0
    assert (state.open_parts.of("10.0.0.1"), state.open_parts.total) == (3, 6)
    coordinator.ask(BeginRun(key="sink", owner="query", run="r", sequence=0))
    assert {each: state.open_states.of(each) for each in (State.PREPARED, State.PREPARE_ABORT)} == {
        State.PREPARED: 0,
        State.PREPARE_ABORT: 3,
    }
    coordinator.complete()
    assert [*state.idle] == ["sink~0", "sink~1", "sink~2"]
    assert state.open_states.total == len(state.began) == 3
    again = TransactionsState()
    again.restore(coordinator.committed.snapshot())
    assert again.open_states.total == 3
    assert again.producers == state.producers


def left_behind(state: State, count: int = 2 * TAKEN_OVER_MAX + 1) -> Coordinator:
    """A leader that begins with open transactions."""
    kept = TransactionsState()
    for number in range(count):
        kept.put(TransactionKey(f"other-{number}"), one(number, state))
    return Coordinator(kept)


def test_a_new_leader_sends_markers_again_in_steps() -> None:
    coordinator = left_behind(State.PREPARE_COMMIT)
    counts = [len(coordinator.marks)]
    for _ in range(2):
        coordinator.step()
        counts.append(len(coordinator.marks))
    assert counts == [TAKEN_OVER_MAX, 2 * TAKEN_OVER_MAX, 2 * TAKEN_OVER_MAX + 1]
    assert len({mark.transaction for mark in coordinator.marks}) == counts[-1], "each once"


def test_a_transaction_that_ends_before_it_is_taken_over_gets_one_marker() -> None:
    coordinator = left_behind(State.ONGOING)
    last = f"other-{2 * TAKEN_OVER_MAX}"
    coordinator.ask(AbortBatch(key="other", handles=()))
    handle = Handle(last, 2 * TAKEN_OVER_MAX, 2)
    assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 1),))) == Done()
    assert last not in coordinator._decisions._left_behind
    coordinator.step()
    coordinator.step()
    assert not coordinator._decisions._left_behind
    assert not coordinator.marks
    coordinator.advance(HOUR_MS)
    assert len(coordinator.marks) == len({mark.transaction for mark in coordinator.marks})


def test_an_old_id_is_forgotten_although_many_young_ones_stand_before_it_in_a_snapshot() -> None:
    kept = TransactionsState()
    for number in range(2 * LOOKED_AT_MAX):
        kept.put(TransactionKey(f"a-{number}"), one(ID_RETENTION_MS + number, State.COMPLETE))
    kept.put(TransactionKey("old"), one(0, State.COMPLETE))
    again = TransactionsState()
    again.restore(kept.snapshot())
    coordinator = Coordinator(again, now_ms=ID_RETENTION_MS)
    coordinator.advance(2 * SWEEP_MS)
    assert len(coordinator.committed.transactions) == 2 * LOOKED_AT_MAX
    assert "old" not in coordinator.committed.transactions
